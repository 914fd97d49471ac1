"""The texts by which tools are found, and the checks of what is searched for.

A definition may come from a server that wants to be found first. So little of it counts: its name, the beginning of its
description, and the beginning of what its server says of itself. The rest, arguments included, made searches worse.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from toolgate.errors import InvalidInput
from toolgate.model import Tool

MAX_PURPOSE_CHARS = 160
MIN_PURPOSE_CHARS = 12
MAX_CONTEXT_CHARS = 240
MAX_PHRASINGS = 16
MAX_PHRASING_CHARS = 2_000
PREFIXES = {"mcp": "mcp_", "openapi": ""}
"""What names of tools begin with before the name of their server, by their source."""
MAX_WORDS = 64
"""Words of a text that are compared as such."""

_PARAGRAPH_END = re.compile(r"\n\s*\n")
_NAME_PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\-.\s]+")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]+")
_WORDS = re.compile(r"[^\W_]+")
_SAID_OF_ALL = re.compile(
    r"\b(?:model context protocol|mcp|servers?|ai (?:agents?|assistants?)|(?:large )?language models?|llms?"
    r"|claude(?: desktop)?)\b",
    re.IGNORECASE,
)
"""Words of what a server says of itself that most servers say: they make servers alike that have nothing in common."""


class ToolText(NamedTuple):
    """The texts of a tool that are compared with a task."""

    purpose: str
    """The beginning of its description."""
    named_purpose: str
    """The same, with the words of its name."""
    context: str
    """Says what the server of the tool is for; empty if that is unknown."""
    words: frozenset[str]

    @property
    def key(self) -> bytes:
        """Tools with one key are found by the same texts and words."""
        whole = "\0".join((self.named_purpose, self.context, *sorted(self.words)))
        return sha256(whole.encode("utf-8", "surrogatepass")).digest()


def tool_text(tool: Tool, context: str = "") -> ToolText:
    """The texts of a tool; `context` is what its server says of itself."""
    name = name_words(_own_name(tool))
    purpose = _beginning(tool.description) or name
    return ToolText(
        purpose,
        f"{name}. {purpose}",
        _own_context(context),
        frozenset([*words_of(name_words(tool.name)), *words_of(" ".join(tool.tags)), *words_of(purpose)][:MAX_WORDS]),
    )


def server_of(tool: Tool) -> str:
    """The MCP server or OpenAPI document that a tool comes from, as `mcp:NAME` or `openapi:NAME`; empty if neither.

    Only what Toolgate itself has set is believed. Whoever registers a tool may write any target, and would be told by its
    scores what a server says of itself that is hidden from it."""
    if tool.source == "mcp":
        return tool.target or ""
    return ":".join(tool.tags[:2]) if tool.source == "openapi" else ""


def digest(text: str) -> str:
    """The name under which the vector of a text is kept."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def name_words(name: str) -> str:
    """`createIssue-v2` as `create issue v2`."""
    return " ".join(part for part in _NAME_PARTS.split(name) if part).lower()


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, with those of one letter left out."""
    return [word for word in _WORDS.findall(text.lower()) if len(word) > 1]


def plain(text: str, most: int) -> str:
    """The beginning of a text on one line, without characters that nobody sees."""
    return " ".join(_UNPRINTABLE.sub(" ", text[: 4 * most]).split())[:most]


def checked_phrasings(phrasings: Sequence[str]) -> list[str]:
    """The phrasings of a search, without empty ones and repetitions. Raises InvalidInput if it is too much."""
    if len(phrasings) > MAX_PHRASINGS:
        raise InvalidInput(
            f"A search takes at most {MAX_PHRASINGS} phrasings of one task, not {len(phrasings)}.",
            suggestion="Search for one task at a time, in one to three phrasings.",
        )
    longest = max(map(len, phrasings), default=0)
    if longest > MAX_PHRASING_CHARS:
        raise InvalidInput(
            f"A search takes phrasings of at most {MAX_PHRASING_CHARS} characters, not {longest}.",
            suggestion="Say in one sentence what the tool is to do.",
        )
    said = (plain(phrasing, MAX_PHRASING_CHARS) for phrasing in phrasings)
    return list(dict.fromkeys(one for one in said if one))


def _beginning(description: str) -> str:
    """A description's first paragraph, cut if it is long; one of few words takes the next one along."""
    taken = ""
    for paragraph in _PARAGRAPH_END.split(description[: 8 * MAX_PURPOSE_CHARS]):
        taken = plain(f"{taken} {paragraph}", MAX_PURPOSE_CHARS)
        if len(taken) >= MIN_PURPOSE_CHARS:
            break
    return taken


def _own_context(context: str) -> str:
    """What a server says of itself, without what servers say of themselves anyway; all of it if nothing else is left."""
    whole = plain(context, 2 * MAX_CONTEXT_CHARS)
    rest = plain(re.sub(r"\(\s*\)", " ", _SAID_OF_ALL.sub(" ", whole)), MAX_CONTEXT_CHARS)
    return rest if words_of(rest) else whole[:MAX_CONTEXT_CHARS]


def _own_name(tool: Tool) -> str:
    """The name without the prefix that all tools of an MCP server or of an OpenAPI document have."""
    kind, _, name = server_of(tool).partition(":")
    if kind not in PREFIXES:
        return tool.name
    return tool.name.removeprefix(PREFIXES[kind] + re.sub(r"[^A-Za-z0-9_-]", "_", name) + "_")
