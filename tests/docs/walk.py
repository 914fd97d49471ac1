"""Follows one call through the files of `toolgate`; `python -m tests.docs.walk` prints the walk as Markdown, and with a path
writes the ways down of `toolgate call` there."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, NamedTuple

import toolgate
from tests.docs.markdown import ROOT
from toolgate.cli.main import main
from toolgate.testing import memory_app

SOURCE = Path(toolgate.__file__).parent


class Visit(NamedTuple):
    """One function that a call passed through."""

    file: str
    """Below `src/toolgate`."""
    function: str
    code: Any
    caller: str
    """The file that it was called from; empty if that is not ours."""


async def followed(call: Awaitable[object]) -> list[Visit]:
    """The functions that a call enters, in order. One that goes on after it waited is not entered again."""
    visits: list[Visit] = []
    seen: list[FrameType] = []  # kept, so that no other frame gets the same identity

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        file = _file(frame)
        if event == "call" and file and not any(frame is other for other in seen[-200:]):
            seen.append(frame)
            caller = "" if frame.f_back is None else _file(frame.f_back)
            visits.append(Visit(file, frame.f_code.co_qualname, frame.f_code, caller))

    sys.setprofile(profile)
    try:
        await call
    finally:
        sys.setprofile(None)
    return visits


def _file(frame: FrameType) -> str:
    path = frame.f_code.co_filename
    return path[len(str(SOURCE)) + 1 :] if path.startswith(str(SOURCE)) else ""


def rooms(visits: list[Visit]) -> list[tuple[str, list[str]]]:
    """The files in the order of the walk, each with what was called in it before the next."""
    return [(file, [visit.function for visit in there]) for file, there in groupby(visits, lambda visit: visit.file)]


def figures(visits: list[Visit]) -> tuple[int, int, int]:
    """Files, function calls, changes of file."""
    return len({visit.file for visit in visits}), len(visits), len(rooms(visits)) - 1


async def walk_of_calculator() -> list[Visit]:
    """A plain call, once everything that the first one makes is made."""
    async with memory_app() as app:
        for _ in range(3):
            assert (await app.invoke("calculator", {"expression": "2 + 3"})).ok
        return await followed(app.invoke("calculator", {"expression": "2 + 3"}))


# -- from the terminal

Way = tuple[tuple[str, str], ...]
"""The rooms on the way down to a function, each as the file and the function by which it was entered."""


@cache
def ways_of_terminal() -> tuple[Way, ...]:
    """The ways down to every function that `toolgate call calculator` enters, in order, each once. In a process of its own,
    in a new project folder."""
    with TemporaryDirectory() as folder:
        found = Path(folder, "ways.json")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
        subprocess.run(
            [sys.executable, "-m", "tests.docs.walk", str(found)],
            cwd=ROOT,
            env={**environment, "XDG_CONFIG_HOME": folder},
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=120,
        )
        return tuple(tuple((file, function) for file, function in way) for way in json.loads(found.read_text("utf-8")))


def _trace_terminal(found: Path) -> None:
    ways: dict[Way, None] = {}

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and _file(frame):
            way: list[FrameType] = []
            at: FrameType | None = frame
            while at is not None and _file(at):  # a task of the event loop begins a way of its own
                way.append(at)
                at = at.f_back if at.f_back is None or _file(at.f_back) else _past_library(at.f_back)
            entered = (next(group) for _, group in groupby(reversed(way), lambda one: room_of(_file(one))))
            ways[tuple((_file(one), one.f_code.co_qualname) for one in entered)] = None

    project = found.with_name("project")
    project.mkdir()
    os.chdir(project)
    command = ["call", "calculator", "expression=2 + 3"]
    main(command)  # what the first one makes is made
    sys.setprofile(profile)
    code = main(command)
    sys.setprofile(None)
    assert code == 0
    found.write_text(json.dumps(list(ways)), "utf-8")


def _past_library(frame: FrameType | None) -> FrameType | None:
    """The caller of ours that is behind code of a library; none if the event loop is."""
    while frame is not None and not _file(frame):
        if frame.f_code.co_filename.endswith("asyncio/events.py"):
            return None
        frame = frame.f_back
    return frame


def room_of(file: str) -> str:
    return file.partition("/")[0].removesuffix(".py")


def zigzags(ways: Iterator[Way] | tuple[Way, ...]) -> list[str]:
    """The ways that come back to a room which they have left."""
    found = []
    for way in ways:
        rooms = [room_of(file) for file, _ in way]
        if len(set(rooms)) < len(rooms):
            found.append(" > ".join(f"{file} {function}" for file, function in way))
    return found


def lines() -> Iterator[str]:
    """The walk as Markdown."""
    visits = asyncio.run(walk_of_calculator())
    yield f"A call of `calculator` passes {figures(visits)[1]} functions in {figures(visits)[0]} files:"
    yield ""
    yield "| file | functions |"
    yield "|---|---|"
    for file, functions in rooms(visits):
        yield f"| `{file}` | {', '.join(f'`{name}`' for name in functions)} |"


if __name__ == "__main__" and len(sys.argv) > 1:
    _trace_terminal(Path(sys.argv[1]))
elif __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
