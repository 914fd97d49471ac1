"""Least privilege from use: the allow lists that leave callers what they used, and rules on arguments whose values are few.

Everything here is a value made of counts and records; nothing is applied. A rule on an argument is made only where the
record says enough: see `MIN_ARGUMENT_CALLS` and `MAX_ARGUMENT_VALUES`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Literal, NamedTuple, TypeAlias

import orjson

from toolgate.gates.policy.documents import AllowList, Documents
from toolgate.model import MASK

MIN_ARGUMENT_CALLS = 60
"""Calls of a tool by a persona from which on its arguments are judged. If none of 60 calls had another value, then with 95 %
confidence less than 3/60 = 5 % of its calls do (the rule of three)."""
MAX_ARGUMENT_VALUES = 5
MIN_VALUE_CALLS = 2
"""A value that was seen once says that there are others which were not: their share is about that of the values seen once
(Good and Turing). So one such value, and there is no rule on the argument."""
MAX_VALUE_CHARS = 64
MAX_FOLDER_CHARS = 200
MAX_JUDGED_PAIRS = 5_000
"""Pairs of persona and tool whose arguments are looked at: bounds the memory."""
MAX_ARGUMENTS = 40
"""Arguments of one tool that are looked at."""

Scalar: TypeAlias = str | int | bool | None
Persona: TypeAlias = str | None


class ToolUse(NamedTuple):
    """A tool that a persona used."""

    tool: str
    calls: int
    last: date
    """The day of the last call that ran, in UTC."""


class UnusedTool(NamedTuple):
    """A tool that a persona may see and did not use."""

    tool: str
    last: date | None
    """The day of the last call before that time; None: no call is on record."""


class StoppedTool(NamedTuple):
    """A tool that a persona called and that never ran: a person or another check stopped each call, not the policy."""

    tool: str
    calls: int


class ArgumentRule(NamedTuple):
    """The values of an argument that calls had: few of them, or all within one folder."""

    tool: str
    argument: str
    values: tuple[Scalar, ...]
    under: str | None
    """The folder, with a slash at its end."""
    calls: int
    """Calls that were read for it."""


class PersonaUse(NamedTuple):
    """The use that the callers of a tenant with one persona, or with none, made of tools, and what it suggests."""

    tenant: str
    persona: Persona
    used: list[ToolUse]
    """The most used first."""
    unused: list[UnusedTool]
    """The first of them, by name; `unused_count` says how many there are."""
    unused_count: int
    stopped: list[StoppedTool]
    removed: list[ToolUse]
    """Tools that it used before the allow list in force left them out. They are not suggested: that would give them back."""
    rules: list[ArgumentRule]


class PolicySuggestion(NamedTuple):
    """The smallest policy data that would have allowed what was used."""

    since: datetime
    until: datetime
    personas: list[PersonaUse]
    data: Documents
    """The document `tenant_tool_allow`, for the tenants that were looked at."""
    rego: str | None
    """The policy in force with rules on arguments below it; None: there are no such rules, or they can't be added to it."""
    calls: int
    """Calls that used a tool."""
    read_calls: int
    """Calls that were read for rules on arguments, the newest first."""

    def to_dict(self) -> dict[str, Any]:
        personas = [
            {
                "tenant": one.tenant,
                "persona": one.persona,
                "used": [_use_to_dict(use) for use in one.used],
                "unused": [
                    {"tool": each.tool, "last": None if each.last is None else each.last.isoformat()} for each in one.unused
                ],
                "unused_count": one.unused_count,
                "stopped": [each._asdict() for each in one.stopped],
                "removed": [_use_to_dict(use) for use in one.removed],
                "rules": [{**rule._asdict(), "values": list(rule.values)} for rule in one.rules],
            }
            for one in self.personas
        ]
        return {
            "since": self.since.isoformat(), "until": self.until.isoformat(), "calls": self.calls,
            "read_calls": self.read_calls, "personas": personas, "data": self.data, "rego": self.rego,
        }  # fmt: skip


def _use_to_dict(use: ToolUse) -> dict[str, Any]:
    return {"tool": use.tool, "calls": use.calls, "last": use.last.isoformat()}


def suggested_list(
    used: Mapping[Persona, Collection[str]],
    *,
    enforced: Collection[str] = (),
    only: Persona | Literal[False] = False,
    in_force: AllowList | None = None,
) -> AllowList:
    """The list that leaves each caller of a tenant the tools that it used. `only`: one persona's part of it is made anew,
    and for the others all stays as it is."""
    everybody = frozenset(enforced)
    if only is False:
        personas = {persona: frozenset(tools) for persona, tools in used.items() if persona is not None and tools}
        return AllowList(personas, frozenset(used.get(None, ())) or None, everybody)
    base = AllowList({}, unlisted_unrestricted=True) if in_force is None else in_force
    base, tools = base._replace(everybody=base.everybody | everybody), frozenset(used.get(only, ()))
    return base._replace(no_persona=tools) if only is None else base._replace(personas={**base.personas, only: tools})


# -- arguments


class _Argument:
    """The values that calls of a tool by a persona gave one argument."""

    __slots__ = ("calls", "folder", "is_judged", "values")

    def __init__(self) -> None:
        self.calls = 0
        self.is_judged = True
        """False: it can't have a rule."""
        self.values: Counter[bytes] | None = Counter()
        """By their JSON, in which 1 and true differ; None: there are too many."""
        self.folder = ""

    def add(self, value: Any) -> None:
        if not self.is_judged:
            return
        if not _is_judged(value):
            self.is_judged, self.values = False, None
            return
        folder = _folder(value)
        self.folder = folder if self.calls == 0 else _common_folder(self.folder, folder)
        self.calls += 1
        if self.values is not None:
            self.values[orjson.dumps(value)] += 1
            if len(self.values) > MAX_ARGUMENT_VALUES or (isinstance(value, str) and len(value) > MAX_VALUE_CHARS):
                self.values = None

    def rule(self, tool: str, name: str) -> ArgumentRule | None:
        if not self.is_judged or self.calls < MIN_ARGUMENT_CALLS:
            return None
        if self.values is not None and min(self.values.values()) >= MIN_VALUE_CALLS:
            return ArgumentRule(tool, name, tuple(orjson.loads(value) for value in sorted(self.values)), None, self.calls)
        return ArgumentRule(tool, name, (), self.folder, self.calls) if self.folder else None


class ArgumentRecord:
    """The arguments of calls that ran, added one call at a time; holds no more than `MAX_JUDGED_PAIRS` pairs of persona and
    tool, and a few values of each argument."""

    def __init__(self, is_secret: Callable[[str, Scalar], bool]) -> None:
        self._is_secret = is_secret
        self._seen: dict[tuple[str, Persona, str], dict[str, _Argument]] = {}
        self.calls = 0

    def add(self, tenant: str, tool: str, body: Any) -> None:
        """Adds the call of a start record, if that holds its arguments."""
        arguments = body.get("arguments") if isinstance(body, dict) else None
        if not isinstance(arguments, dict):
            return
        self.calls += 1
        key = (tenant, body.get("persona"), tool)
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= MAX_JUDGED_PAIRS:
                return
            seen = self._seen[key] = {}
        for name, value in arguments.items():
            known = seen.get(name)
            if known is None and len(seen) < MAX_ARGUMENTS:
                known = seen[name] = _Argument()
            if known is not None:
                known.add(value)

    def rules(self, tenant: str, persona: Persona, tools: Iterable[str]) -> list[ArgumentRule]:
        """The rules for tools that a persona used. None is made of a value that is a secret by what is known now."""
        found = []
        for tool in tools:
            for name, seen in sorted(self._seen.get((tenant, persona, tool), {}).items()):
                rule = seen.rule(tool, name)
                if rule is not None and not any(self._is_secret(name, value) for value in (*rule.values, rule.under)):
                    found.append(rule)
        return found


def _is_judged(value: Any) -> bool:
    if isinstance(value, str):
        return MASK not in value and value.isprintable()
    return value is None or isinstance(value, int)


def _folder(value: Any) -> str:
    """The folder of a path or of a URL, with a slash at its end; empty for what is neither, or steps upwards."""
    if not isinstance(value, str) or not _stays_inside(value):
        return ""
    folder = value[: value.rfind("/") + 1][:MAX_FOLDER_CHARS]
    return folder if _names_something(folder) else ""


def _common_folder(one: str, other: str) -> str:
    length = 0
    for length, (left, right) in enumerate(zip(one, other, strict=False)):  # noqa: B007 - the place is what is wanted
        if left != right:
            break
    else:
        length = min(len(one), len(other))
    common = one[:length]
    common = common[: common.rfind("/") + 1]
    return common if _names_something(common) else ""


def _stays_inside(path: str) -> bool:
    return "\\" not in path and "%" not in path and ".." not in path.split("/")


def _names_something(folder: str) -> bool:
    """False for the root, and for a URL's scheme without its host."""
    if not folder.endswith("/"):
        return False
    scheme, mark, rest = folder.partition("://")
    return bool((rest if mark else scheme).strip("/"))


# -- rules as Rego

_RULES = """
# === ARGUMENTS ===

# Suggested from use. An argument that is left out is not judged: the policy is asked again with the arguments as they run.
suggested_arguments := %s

argument_rules := suggested_arguments[input.tenant].no_persona[input.resource] if input.persona_id == null

else := suggested_arguments[input.tenant].personas[input.persona_id][input.resource]

argument_refused(tool) if {
	tool == input.resource
	some argument, rule in argument_rules
	type_name(input.context.arguments[argument]) != ""
	not argument_fits(rule, input.context.arguments[argument])
}

argument_fits(rule, value) if value in rule.values

argument_fits(rule, value) if {
	is_string(value)
	startswith(value, rule.under)
	not contains(value, "\\\\")
	not contains(value, "%%")
	not ".." in split(value, "/")
}
"""


def with_argument_rules(policy: str, personas: Sequence[PersonaUse]) -> str | None:
    """The shipped policy with the rules on arguments below it; None: there are none. It has to be that text, whose rule
    `argument_refused` they add to."""
    table: dict[str, dict[str, Any]] = {}
    for one in personas:
        for rule in one.rules:
            held = table.setdefault(one.tenant, {"personas": {}, "no_persona": {}})
            tools = held["no_persona"] if one.persona is None else held["personas"].setdefault(one.persona, {})
            said = {"values": list(rule.values)} if rule.under is None else {"under": rule.under}
            tools.setdefault(rule.tool, {})[rule.argument] = said
    if not table:
        return None
    text = orjson.dumps(table, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2).decode()
    return policy + _RULES % text
