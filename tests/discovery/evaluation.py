"""Measures how well tools are found: a set of tools and of tasks that are said in other words than theirs.

A set from outside is a folder with `tools.jsonl` (`server`, `server_description`, `name` and `description` on each line) and
`tasks.jsonl` (`text`, `language`, `said_again`, and the `server` and `tool` that do it, or null where none does).
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from toolgate.mcp.catalog_entries import prefixed
from toolgate.model import Tool
from toolgate.tool_search.semantic_search import SemanticSearch
from toolgate.tool_search.text import name_words

Half = Literal["tuned", "held"]
SET: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("tools_and_tasks.yaml").read_text("utf-8"))


class Task(NamedTuple):
    """Something to do, and the name of the tool that does it; None: there is none."""

    language: str
    text: str
    tool: str | None
    half: Half
    said_again: Sequence[str]
    """Further phrasings, of some tasks: as an agent writes them that knows the task and no tool."""


class OutsideSet(NamedTuple):
    """A set that is not in the repository."""

    tools: tuple[Tool, ...]
    contexts: dict[str, str]
    tasks: list[Task]


class Quality(NamedTuple):
    """Shares of the tasks."""

    top1: float
    """The right tool comes first."""
    top5: float
    """The right tool is among the first five."""
    refused: float
    """Nothing is given where no tool fits."""
    unsure: float
    """Nothing is given, or it is said to be doubtful, where no tool fits."""
    english_top5: float
    other_top5: float


def tools() -> tuple[Tool, ...]:
    return tuple(
        Tool(
            name=tool["name"],
            description=tool["description"],
            source="mcp",
            target=f"mcp:{server['server']}",
            input_schema={
                "type": "object",
                "properties": {name: {"type": "string", "description": text} for name, text in tool["arguments"].items()},
            },
        )
        for half in ("tuned", "held")
        for server in SET[half]
        for tool in server["tools"]
    )


def contexts() -> dict[str, str]:
    """What each server is for, by the target of its tools."""
    return {
        f"mcp:{server['server']}": f"{name_words(server['server'])}. {server['about']}"
        for half in ("tuned", "held")
        for server in SET[half]
    }


def tasks() -> list[Task]:
    halves: tuple[Half, ...] = ("tuned", "held")
    again: dict[str, list[str]] = SET["said_again"]
    fitting = [
        Task(language, text, tool["name"], half, again.get(text, ()))
        for half in halves
        for server in SET[half]
        for tool in server["tools"]
        for language, text in tool["asks"].items()
    ]
    return fitting + [
        Task(language, text, None, halves[at % 2], again.get(text, ()))
        for at, (language, text) in enumerate(SET["fits_none"])
    ]


def outside_set(folder: Path) -> OutsideSet:
    rows, asked = (
        [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]
        for name in ("tools.jsonl", "tasks.jsonl")
    )
    for row in (*rows, *asked):
        row["server"] = _plain_name(row["server"])
    tools = tuple(
        Tool(
            name=prefixed(row["server"], row["name"]),
            description=row["description"],
            source="mcp",
            target=f"mcp:{row['server']}",
        )
        for row in rows
    )
    contexts = {f"mcp:{row['server']}": f"{name_words(row['server'])}. {row['server_description']}" for row in rows}
    return OutsideSet(
        tools,
        contexts,
        [
            Task(
                row["language"],
                row["text"],
                prefixed(row["server"], row["tool"]) if row["tool"] else None,
                "held",
                row.get("said_again", ()),
            )
            for row in asked
        ],
    )


def _plain_name(server: str | None) -> str:
    """A name as an operator would give the server of a package."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", server or "").strip("_-")


async def quality(
    search: SemanticSearch,
    given: tuple[Tool, ...],
    about: Mapping[str, str],
    chosen: Iterable[Task],
    *,
    is_said_again: bool = False,
) -> Quality:
    """Searches for each task by itself, in the words of the task alone or also in further phrasings."""
    places: list[tuple[bool, int]] = []
    refused: list[tuple[bool, bool]] = []
    for task in chosen:
        ranking = await search.rank([task.text, *(task.said_again if is_said_again else ())], given, about)
        assert ranking is not None
        if task.tool is None:
            refused.append((not ranking.found, not ranking.is_sure))
        else:
            names = [one.tool.name for one in ranking.found]
            places.append((task.language == "en", names.index(task.tool) if task.tool in names else len(given)))
    return shares(places, refused)


def shares(places: Sequence[tuple[bool, int]], refused: Sequence[tuple[bool, bool]]) -> Quality:
    """Quality by the places of the right tools, with whether the task is English, and by what was done where none fits."""
    english, other = ([place for is_english, place in places if is_english is kind] for kind in (True, False))
    return Quality(
        _share(place < 1 for _, place in places),
        _share(place < 5 for _, place in places),
        _share(none for none, _ in refused),
        _share(unsure for _, unsure in refused),
        _share(place < 5 for place in english),
        _share(place < 5 for place in other),
    )


def _share(told: Iterable[bool]) -> float:
    seen = list(told)
    return round(sum(seen) / max(1, len(seen)), 3)
