# ruff: noqa: RUF001 - typographic quotes and full-width marks are what models write
"""Reads a model's reply in the JSON style: `{thoughts, headline, tool_name, tool_args}`, however dirty, or plain text.

`reply_parts` says which values of a reply count, `relaxed_json` what each is. Here they become calls. What is ambiguous is a
problem, to be told to the model, and never a call: two names or two sets of arguments in one object, calls on both sides of
a text, arguments that were cut off. Where there is a problem there are no requests: the model repeats its reply as a whole.
"""

import re
from collections.abc import Iterable
from html import unescape

import msgspec

from toolgate.agent.relaxed_json import CutOff, RelaxedJson, UnreadableJson
from toolgate.agent.reply_calls import Meaning, ReplyProblem, meaning_of
from toolgate.agent.reply_parts import ReplyPart, ReplyParts
from toolgate.jsontext import valid_text
from toolgate.llm.completion import ToolRequest

MAX_REPLY_CHARS = 1_000_000
MAX_CALLS = 64
"""In one reply."""
REPEAT = (
    "Reply again: with one JSON object that has thoughts, headline, tool_name and tool_args, and nothing around it, or with "
    "plain text to answer the user."
)

_CALL_WORD = r"tool(?:\\?[_ -])?(?:name|args|calls?)"
CALL_KEY = re.compile(rf"(?i)[\"'“”‘]{_CALL_WORD}[\"'“”’]\s*+[:：]|[{{,]\s*+{_CALL_WORD}\s*+[:：]")
"""A key of a call. Where one is left over in what was not read as a value, a call may have been meant."""
ANY_CALL_KEY = re.compile(rf"(?i){CALL_KEY.pattern[4:]}|[\"'“”](?:arguments|parameters|input|action_input)[\"'“”]\s*+[:：]")
"""Also those that other models use, and that data may have."""
_INLINE_CODE = re.compile(r"`[^`\n]*+`")
_ESCAPE = re.compile(r"\\++(?:u([0-9a-fA-F]{4})|[nrtbf])")
_NOT_WORDS = re.compile(r"\W++")


class ModelReply(msgspec.Struct, frozen=True):
    """The reply of a model. Exactly one of `requests`, `text` and `problem` is there."""

    thoughts: list[str]
    headline: str | None = None
    requests: tuple[ToolRequest, ...] = ()
    text: str | None = None
    """The answer to the user."""
    problem: str | None = None
    """The fault of the reply, in words for the model: nothing of it is to be run."""


def read_reply(text: str, *, quotable: Iterable[str] | None = None) -> ModelReply:
    """Reads a reply. Takes less than a second for any text, so a long one is better read off the event loop.

    Args:
        text: The reply.
        quotable: The texts that the model may have repeated: results of tools, messages of users. A call that stands there
            too, and has other text around it in the reply, is a quotation. None: it is not known, and a call between two
            texts, or beside a quotation, is a problem.
    """
    if len(text) > MAX_REPLY_CHARS:
        return ModelReply([], problem=f"The reply has more than {MAX_REPLY_CHARS:,} characters. Reply with less at once.")
    text = _decoded(valid_text(text))
    parts = ReplyParts(text)
    try:
        meanings = [meaning for part in parts.parts if part.kind == "value" and (meaning := meaning_of(part))]
        if parts.broken is not None and (meanings or parts.has_markers or ANY_CALL_KEY.search(text)):
            raise _problem_of(parts.broken, text)
        calling = _own(meanings, parts, text, quotable)
        if calling:
            return _calls(calling, parts, quotable)
        return _answer(meanings, parts)
    except ReplyProblem as problem:
        return ModelReply(parts.thoughts, problem=f"{problem} {REPEAT}")


def _decoded(text: str) -> str:
    """A reply that is one JSON text, decoded: some models encode theirs twice."""
    if text.lstrip().startswith('"{'):
        reader = RelaxedJson(text.strip())
        try:
            value = reader.read()
        except UnreadableJson:
            return text
        reader.skip()
        if reader.position == len(text.strip()) and isinstance(value, str):
            return value
    return text


def _problem_of(error: UnreadableJson, text: str) -> ReplyProblem:
    if isinstance(error, CutOff):
        return ReplyProblem("The reply ends before its JSON does, so nothing was run.")
    line = text.count("\n", 0, error.position) + 1
    column = error.position - text.rfind("\n", 0, error.position)
    return ReplyProblem(f"The JSON in the reply cannot be read (line {line}, column {column}): {error}.")


# -- all values


def _own(meanings: list[Meaning], parts: ReplyParts, text: str, quotable: Iterable[str] | None) -> list[Meaning]:
    """The values with calls, without those that the model quotes."""
    calling = [meaning for meaning in meanings if meaning.calls]
    if not calling or quotable is None or len(calling) == len(parts.spoken):
        return calling
    sources = [_words(source) for source in quotable]

    def is_quoted(part: ReplyPart) -> bool:
        words = _words(text[part.start : part.end])
        return any(words in source for source in sources)

    return [meaning for meaning in calling[: MAX_CALLS + 1] if not is_quoted(meaning.part)]


def _words(text: str) -> str:
    """The letters and digits of a text, without what differs between a text and its quotation: white space, punctuation, and
    how it is escaped in JSON or HTML."""
    text = unescape(text) if "&" in text else text
    return _NOT_WORDS.sub("", _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else "", text))


def _calls(calling: list[Meaning], parts: ReplyParts, quotable: Iterable[str] | None) -> ModelReply:
    calls = [call for one in calling for call in one.calls]
    if len(calls) > MAX_CALLS:
        raise ReplyProblem(f"There are more than {MAX_CALLS} calls in the reply.")
    starts = [part.start for part in parts.spoken]
    first, last = starts.index(calling[0].part.start), starts.index(calling[-1].part.start)
    if last - first + 1 != len(calling):
        raise ReplyProblem(
            "There are several calls in the reply with other text between them, and it is unclear which is meant."
        )
    if quotable is None and parts.text_of("quotation"):
        raise ReplyProblem("The reply quotes something and calls a tool at once, so it is unclear where the quotation ends.")
    if quotable is None and first > 0 and last < len(starts) - 1:
        raise ReplyProblem("There is text before and after the call in the reply, so it is unclear whether it is quoted.")
    prose = "\n".join(parts.text_of("prose"))
    if CALL_KEY.search(prose):
        raise ReplyProblem("There is another call within the text of the reply, and it is unclear which is meant.")
    return ModelReply(
        [*parts.thoughts, *([prose] if prose else []), *(line for one in calling for line in one.thoughts)],
        next((one.headline for one in calling if one.headline), None),
        tuple(ToolRequest(f"call_{number}", name, arguments) for number, (name, arguments) in enumerate(calls, 1)),
    )


def _answer(meanings: list[Meaning], parts: ReplyParts) -> ModelReply:
    """A reply without calls."""
    if parts.has_markers:
        raise ReplyProblem("The reply has the tags of a tool call, but no JSON object in them that names a tool.")
    if any(CALL_KEY.search(_INLINE_CODE.sub("", text)) for text in parts.text_of("prose")):
        raise ReplyProblem("There is a call within a sentence of the reply, so it is unclear whether it is meant.")
    quoted = parts.text_of("quotation")
    if len(quoted) == len(parts.spoken) and any(map(CALL_KEY.search, quoted)):
        raise ReplyProblem("The reply is a quotation with a call in it, so it is unclear whether it is meant.")
    if len(meanings) == len(parts.spoken) == 1:
        return ModelReply([*parts.thoughts, *meanings[0].thoughts], meanings[0].headline, text=meanings[0].text)
    shown = parts.without_thoughts()
    if not shown:
        ends = any(part.cut for part in parts.parts)
        raise ReplyProblem("The reply ends within its thoughts." if ends else "The reply is empty.")
    return ModelReply(parts.thoughts, text=shown)
