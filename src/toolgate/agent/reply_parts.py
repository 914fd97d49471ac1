# ruff: noqa: RUF001 - typographic quotes and full-width marks are what models write
"""Splits a model's reply into what it thought, said, quoted, and wrote as JSON.

A JSON value counts only where it stands on its own: it begins a line, and nothing but another value follows it there, at the
top of the reply, in a fenced block that is labelled as JSON or not at all, or in the tags that open models put around calls.
What is within a sentence, a text, inline code, a block with another label, a block quote or other tags is a quotation: it
may be the words of a page or a file that the model repeats. Every character is read a few times at most.
"""

import re
from typing import Any, Literal, NamedTuple

from toolgate.agent.relaxed_json import CutOff, RelaxedJson, UnreadableJson
from toolgate.llm.json_extraction import Unfit, sound

LABELS = frozenset({"", "json", "json5", "jsonc", "jsonl", "tool", "tool_call", "tool_calls", "tool_use", "function_call"})
"""Of fenced blocks that are read. Any other says that the block is something else."""
CALL_TAGS = frozenset({"tool_call", "tool_calls", "tool_use", "function_call", "function_calls", "function", "invoke"})
THOUGHT_TAGS = frozenset({"think", "thinking", "thought", "thoughts", "reasoning", "reflection", "scratchpad"})
MAX_PARTS = 2_000

_SPACE = re.compile(r"[\s\ufeff\u200b]*+")
_FENCE = re.compile(r"(`{3,}+|~{3,}+)[ \t]*+([\w+.-]*+)")
_FENCE_END = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)[ \t\r]*+$", re.MULTILINE)
_TAG = re.compile(r"<([A-Za-z_][\w-]*+)([^<>]{0,200}+)>")
_CLOSING_TAG = re.compile(r"</([A-Za-z_][\w-]*+)\s*+>")
_OUTER_TAGS = re.compile(r"\A<[^<>]*+>|</[^<>]*+>\s*+\Z")
_TAG_NAME = re.compile(r"""(?:^|\sname)\s*+=\s*+["']?([\w.:-]++)""")
"""<function=search> and <invoke name="search">."""
_MARKER = re.compile(r"<[|｜][\w▁ -]{1,40}+[|｜]>|\[/?TOOL_CALLS?\]")
"""Special tokens of open models that show in the text."""
_LEAD = re.compile(r"(?i)(?:json|assistant|reply|action|call|tool[ _]call)\s*+:?\s*+(?=[{\[`~<])")
_VALUE = re.compile(r"""\{\s*+(?:["'`“”„‘}]|[A-Za-z_$][\w$-]{0,63}+\s*+[:：]|//|/\*|\#)|\[\s*+[\[{]""")
"""The beginning of an object, or of a list of some: not of `{name}` or `[1]` in a sentence."""
_PROSE = re.compile(
    rf"[^\n]*+\n?+(?:(?![ \t]*+(?:[<`~>]|\[/?TOOL|{_VALUE.pattern}|{_LEAD.pattern[4:]}))(?:[^\n<]++|<(?!/))*+\n)*+",
    re.IGNORECASE,
)
"""A line, and those after it in which nothing else can begin."""
_QUOTED_LINES = re.compile(r"(?:[ \t]*+>[^\n]*+\n?+)++")
_AFTER = re.compile(r"[ \t]*+[}\],;]*+[ \t]*+(?=[\n\r{]|\[\s*+[\[{]|```|~~~|<[/|｜]|\Z)")
"""The characters that may stand after a value on its line: a bracket too many, a comma before the next."""


class ReplyPart(NamedTuple):
    """A part of a reply."""

    kind: Literal["thought", "prose", "quotation", "value"]
    start: int
    end: int
    value: Any = None
    tool: str | None = None
    """The name in the tag around a value, which is then the arguments of that tool."""
    cut: bool = False
    """True: the reply ends within it. A value is then an object of the members that are whole."""
    open_member: str | None = None
    """Of a value that is cut: the member in which the reply ends; empty if that is in its key."""


class ReplyParts:
    """The parts of one reply, in order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self.parts: list[ReplyPart] = []
        self.broken: UnreadableJson | None = None
        """The reason why a value was not read; what follows it is prose."""
        self.has_markers = False
        """True if tags or tokens of a call stand outside of quotations."""
        self._first_brace = text.find("{") if "{" in text else len(text)
        self._last_close = {found[1]: found.start() for found in _CLOSING_TAG.finditer(text)}
        while True:
            self._skip(_SPACE)
            if self._position >= len(text):
                break
            self._skip(_LEAD)
            if self.broken is not None or self._is_full():
                self._add("prose", len(text))
            elif not (self._marker() or self._tag() or self._fence() or self._values()):
                self._prose()

    def text_of(self, kind: str) -> list[str]:
        """The texts of the parts of a kind."""
        return [text for part in self.parts if part.kind == kind and (text := self._text[part.start : part.end].strip())]

    @property
    def spoken(self) -> list[ReplyPart]:
        """All parts but thoughts."""
        return [part for part in self.parts if part.kind != "thought"]

    @property
    def thoughts(self) -> list[str]:
        """The texts of thoughts, without tags."""
        found = (self._text[part.start : part.end] for part in self.parts if part.kind == "thought")
        return [thought for text in found if (thought := _OUTER_TAGS.sub("", text).strip())]

    def without_thoughts(self) -> str:
        """The reply as the model said it."""
        kept, position = [], 0
        for part in self.parts:
            if part.kind == "thought":
                kept.append(self._text[position : part.start])
                position = part.end
        return "".join([*kept, self._text[position:]]).strip("\ufeff\u200b \t\r\n")

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        found = pattern.match(self._text, self._position)
        self._position = self._position if found is None else found.end()
        return found is not None

    def _add(self, kind: Literal["prose", "quotation"], end: int) -> None:
        start, self._position = self._position, end
        if self.parts and self.parts[-1].kind == kind:
            start = self.parts.pop().start
        self.parts.append(ReplyPart(kind, start, end))

    def _is_full(self) -> bool:
        """True once there are as many parts as are told apart; what follows is prose, and a call in it is a problem."""
        if len(self.parts) >= MAX_PARTS:
            self.broken = UnreadableJson(f"there are more than {MAX_PARTS:,} parts in the reply", self._position)
        return self.broken is not None

    # -- JSON

    def _values(self, tool: str | None = None) -> bool:
        """Reads the values that begin here, one after the other; False if there is none."""
        begins = _VALUE.match(self._text, self._position) is not None
        while self.broken is None and _VALUE.match(self._text, self._position):
            if self._is_full():
                break
            self._value(tool)
            self._skip(_SPACE)
        return begins

    def _value(self, tool: str | None) -> None:
        reader, start = RelaxedJson(self._text, self._position), self._position
        try:
            value = reader.read()
            self._position = reader.position
            if not self._skip(_AFTER):
                raise UnreadableJson("text follows the JSON on its line", self._position)
            self.parts.append(ReplyPart("value", start, reader.position, value, tool))
        except CutOff as error:
            if self._text[start] == "[" or tool is not None:
                self.broken = error
                return
            self.broken = self._cut_value(start, reader)
        except UnreadableJson as error:
            self.broken = error

    def _cut_value(self, start: int, reader: RelaxedJson) -> UnreadableJson | None:
        """Keeps the members of an object in which the reply ends that are whole."""
        try:
            members = sound(reader.members)
        except Unfit as error:
            return UnreadableJson(str(error), start)
        end = self._position = len(self._text)
        self.parts.append(ReplyPart("value", start, end, members, cut=True, open_member=reader.open_member))
        return None

    def _fence(self) -> bool:
        fence = _FENCE.match(self._text, self._position)
        if fence is None:
            return False
        start, self._position = self._position, fence.end()
        self._skip(_SPACE)
        if fence[2].lower() in LABELS and self._values():
            if self._position < len(self._text) and not self._skip(_FENCE):
                self.broken = self.broken or UnreadableJson("text follows the JSON in its block", self._position)
            return True
        ends = (found for found in _FENCE_END.finditer(self._text, fence.end()) if found[1].startswith(fence[1]))
        closing = next(ends, None)
        self._position = start
        self._add("quotation", len(self._text) if closing is None else closing.end())
        return True

    # -- the rest

    def _prose(self) -> None:
        if self._text[self._position] == ">" and (quoted := _QUOTED_LINES.match(self._text, self._position)):
            self._add("quotation", quoted.end())
            return
        found = _PROSE.match(self._text, self._position)
        end = len(self._text) if found is None else found.end()
        closing = next((tag for tag in _CLOSING_TAG.finditer(self._text, self._position, end) if _is_thought(tag)), None)
        if closing is None or self._first_brace < closing.start():  # what looks like it may stand in a text of the JSON
            self._add("prose", end)
        else:  # all up to here was a thought: some servers leave out its first tag
            self._position = closing.end()
            self.parts = [ReplyPart("thought", 0, self._position)]

    def _marker(self) -> bool:
        found = self._skip(_MARKER)
        self.has_markers |= found
        return found

    def _tag(self) -> bool:
        tag = _TAG.match(self._text, self._position)
        if tag is None:
            closing = _CLOSING_TAG.match(self._text, self._position)
            return closing is not None and closing[1].lower() in CALL_TAGS and self._skip(_CLOSING_TAG)
        name = tag[1].lower()
        if name in CALL_TAGS:
            self.has_markers, self._position = True, tag.end()
            self._skip(_SPACE)
            named = _TAG_NAME.search(tag[2])
            self._values(None if named is None else named[1])
            return True
        is_closed = self._last_close.get(tag[1], -1) > self._position
        if not is_closed and not _is_thought(tag):
            return False  # a sentence that begins so
        start, self._position = self._position, len(self._text)
        if is_closed:
            self._position = self._text.find(f"</{tag[1]}", tag.end())
            self._skip(_CLOSING_TAG)
        kind: Literal["thought", "quotation"] = "thought" if _is_thought(tag) else "quotation"
        self.parts.append(ReplyPart(kind, start, self._position, cut=not is_closed))
        return True


def _is_thought(tag: re.Match[str]) -> bool:
    return tag[1].lower() in THOUGHT_TAGS
