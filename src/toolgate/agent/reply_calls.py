"""The calls that a JSON value in a reply means, in the spellings that models use for them.

What is ambiguous is a problem and not a call: two names or two sets of arguments in one object, arguments that were cut off.
"""

import re
from typing import Any, NamedTuple

import orjson

from toolgate.agent.relaxed_json import RelaxedJson, UnreadableJson
from toolgate.agent.reply_parts import ReplyPart

MAX_NAME_CHARS = 128

# Keys, without regard to case and to what is no letter: toolName is tool_name.
TOOL_NAME_KEY = "toolname"
OTHER_NAME_KEYS = ("tool", "functionname", "function", "action", "name")
ARGUMENT_KEYS = (
    "toolargs", "toolarguments", "toolinput", "toolparameters", "toolparams", "arguments", "args", "parameters", "params",
    "input", "actioninput", "kwargs",
)  # fmt: skip
NESTED_KEYS = ("toolcall", "functioncall", "tooluse", "function", "tool", "action", "call")
"""Of objects that hold a call."""
LIST_KEYS = ("toolcalls", "calls", "functioncalls", "actions", "tools")
THOUGHT_KEYS = ("thoughts", "thought", "thinking", "reasoning")
TEXT_KEYS = ("text", "response", "answer", "finalanswer", "message", "content", "reply")
REMARK_KEYS = frozenset(
    {*THOUGHT_KEYS, "headline", "title", "id", "callid", "toolcallid", "type", "index", "role", "plan", "reflection",
     "reason", "explanation", "step", "stopreason"}
)  # fmt: skip
"""Of what a model says beside a call."""
REPLY_KEYS = frozenset({TOOL_NAME_KEY, *THOUGHT_KEYS})
"""Of what is surely meant as a reply, and not as data."""
KNOWN_KEYS = frozenset({TOOL_NAME_KEY, *OTHER_NAME_KEYS, *ARGUMENT_KEYS, *REMARK_KEYS})
FINAL_ACTIONS = frozenset({"finalanswer", "final"})
TWO_WAYS = "The JSON in the reply says in more than one way which tool is to be called."
Call = tuple[str, dict[str, Any]]
"""The name of a tool, and its arguments."""

_NOT_LETTERS = re.compile(r"[^a-z]")


class ReplyProblem(Exception):
    """A reply that is not run, and why."""


class Meaning(NamedTuple):
    """One value of a reply."""

    part: ReplyPart
    calls: list[Call]
    thoughts: list[str]
    headline: str | None = None
    text: str | None = None


def meaning_of(part: ReplyPart) -> Meaning | None:
    """The meaning of a value as a reply; None if it is something else. Raises ReplyProblem."""
    value = part.value
    if part.tool is not None:
        if _call_in(value) is not None:
            raise ReplyProblem("A tag in the reply names a tool, and so does the JSON in it.")
        return Meaning(part, [_call(part.tool, value)], [])
    if isinstance(value, dict):
        return _object_meaning(part, _fields(value))
    calls = _listed(value)
    return Meaning(part, calls, []) if calls else None


def _object_meaning(part: ReplyPart, fields: dict[str, Any]) -> Meaning | None:
    if part.cut and not _is_whole(part, fields):
        return None
    thoughts = _thoughts(fields)
    headline = fields["headline"] if isinstance(fields.get("headline"), str) else None
    if _folded(fields.get("action")) in FINAL_ACTIONS and isinstance(fields.get("actioninput"), str):
        return Meaning(part, [], thoughts, headline, fields["actioninput"])
    calls = _calls_in(fields)
    if calls:
        return Meaning(part, calls, thoughts, headline)
    if not fields.keys() & REPLY_KEYS:
        return None
    texts = {fields[key] for key in TEXT_KEYS if isinstance(fields.get(key), str)}
    if len(texts) != 1:
        raise ReplyProblem("The JSON in the reply names no tool and has no text.")
    return Meaning(part, [], thoughts, headline, texts.pop())


def _folded(key: Any) -> str:
    return _NOT_LETTERS.sub("", key.lower()) if isinstance(key, str) else ""


def _fields(value: dict[str, Any]) -> dict[str, Any]:
    """The members of an object, by their keys as they are compared."""
    fields: dict[str, Any] = {}
    for key, member in value.items():
        name = _folded(key)
        if name in fields and fields[name] != member and name in KNOWN_KEYS:
            raise ReplyProblem(f"The JSON in the reply has {key[:40]!r} twice, in two spellings.")
        fields[name] = member
    return fields


def _is_whole(part: ReplyPart, fields: dict[str, Any]) -> bool:
    """True if the call of an object in which the reply ends is whole: name and arguments were closed, and what was begun
    after them is only a remark. False if it is no reply. Raises ReplyProblem."""
    begun = None if part.open_member is None else _folded(part.open_member)
    has_call = TOOL_NAME_KEY in fields and any(isinstance(fields.get(key), dict) for key in ARGUMENT_KEYS)
    if has_call and (begun is None or begun in REMARK_KEYS):
        return True
    if {*fields, begun} & (REPLY_KEYS | {*ARGUMENT_KEYS, *LIST_KEYS, *NESTED_KEYS}):
        raise ReplyProblem("The reply ends before its JSON does, so nothing was run.")
    return False


def _thoughts(fields: dict[str, Any]) -> list[str]:
    found: Any = next((fields[key] for key in THOUGHT_KEYS if fields.get(key)), [])
    lines = found if isinstance(found, list) else [found]
    return [line if isinstance(line, str) else orjson.dumps(line).decode() for line in lines]


# -- calls


def _calls_in(fields: dict[str, Any]) -> list[Call]:
    """The calls of an object: a list of them, one within it, or the object itself."""
    ways = [calls for key in LIST_KEYS if (calls := _listed(fields.get(key)))]
    ways += [[call] for call in (_own_call(fields), *_inner_calls(fields)) if call is not None]
    if len(ways) > 1:
        raise ReplyProblem(TWO_WAYS)
    return ways[0] if ways else []


def _listed(value: Any) -> list[Call]:
    """The calls of a list; none if it is something else. Raises ReplyProblem if it is in part."""
    if not isinstance(value, list):
        return []
    found = [_call_in(item) for item in value]
    calls = [call for call in found if call is not None]
    if calls and len(calls) < len(found):
        raise ReplyProblem("A list of calls in the reply has something in it that is no call.")
    return calls


def _call_in(value: Any, levels: int = 1) -> Call | None:
    """The call that an object is, or that is within it."""
    if not isinstance(value, dict):
        return None
    fields = _fields(value)
    found = [call for call in (_own_call(fields), *(_inner_calls(fields) if levels else ())) if call is not None]
    if len(found) > 1:
        raise ReplyProblem(TWO_WAYS)
    return found[0] if found else None


def _inner_calls(fields: dict[str, Any]) -> list[Call | None]:
    """{"function": {"name": …, "arguments": …}}"""
    return [_call_in(fields[key], levels=0) for key in NESTED_KEYS if key in fields]


def _own_call(fields: dict[str, Any]) -> Call | None:
    """The call that an object is; None if it is none."""
    given = [fields[key] for key in ARGUMENT_KEYS if key in fields]
    name = fields.get(TOOL_NAME_KEY)
    if isinstance(name, str) and name.strip():
        if not given and fields.keys() - REMARK_KEYS - {TOOL_NAME_KEY}:
            raise ReplyProblem(
                "The JSON in the reply has no tool_args: the arguments of a tool stand in an object of that name."
            )
        names = {name}
    else:
        names = {fields[key] for key in OTHER_NAME_KEYS if isinstance(fields.get(key), str)}
        if not given or not names or not fields.keys() <= KNOWN_KEYS:
            return None
    if len(names) > 1 or any(one != given[0] for one in given):
        raise ReplyProblem("The JSON in the reply names more than one tool, or has arguments twice, in two spellings.")
    return _call(names.pop(), given[0] if given else None)


def _call(name: str, arguments: Any) -> Call:
    name = name.strip().removeprefix("functions.")
    if not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
        raise ReplyProblem("The name of the tool in the reply is no name.")
    if isinstance(arguments, str) and arguments.strip():
        arguments = _value_in(arguments)
    if arguments is None or arguments == "":
        return name, {}
    if not isinstance(arguments, dict):
        raise ReplyProblem(f"tool_args of {name} must be a JSON object.")
    return name, arguments


def _value_in(text: str) -> Any:
    """The JSON value that a text is; the text itself if it is none."""
    reader = RelaxedJson(text)
    try:
        value = reader.read()
    except UnreadableJson:
        return text
    reader.skip()
    return value if reader.position == len(text) else text
