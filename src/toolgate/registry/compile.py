"""From a definition to a catalog entry: everything about a tool that can be checked or computed before its first call.

A bad definition is refused here with the path of each fault, whatever source it comes from.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any

import msgspec
import orjson
from msgspec.structs import replace
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from toolgate.errors import DefinitionError, Fault, unknown
from toolgate.jsontext import MAX_DEFINITION_DEPTH, is_deeper
from toolgate.model import (
    PROPOSES,
    TIERS,
    CacheRule,
    Cost,
    Entry,
    Implementation,
    Operation,
    Source,
    Tier,
    Tool,
    bound_fingerprint,
    must_ask,
    nano,
    reach_words,
)
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.hooks import Hook, HookSet
from toolgate.pipeline.stage_marks import StageMarks
from toolgate.registry.compiled_schema import NO_DEFAULTS, compile_schema, defaults_of, properties_of
from toolgate.registry.decorator import Declaration, declared, is_marked, where_of
from toolgate.registry.effective_tier import tier_of

OWN_SOURCES: tuple[Source, ...] = ("builtin", "python")
"""Code of whoever runs this installation. What others wrote is not taken at its word where that would share more."""
INNERMOST = -1_000_000_000
MAX_COMPILED = 64
"""Entries of one built-in tool that are kept, each of other settings: a process has few Apps, and a test run thousands."""
CHOICE = re.compile(r"'([^']*)'")
LATER_FIELDS = ("internal", "http", "mcp", "workflow")
"""Fields that fingerprints leave out where they say nothing: there are approvals of tools from before they existed."""
NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class DefinitionRules(msgspec.Struct, frozen=True):
    """Rules of the settings for all definitions."""

    tiers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Tools whose tier is raised, and to what."""
    timeout: float = 60.0
    """Seconds for tools that name none."""
    guards: Callable[[Mapping[str, Any], Tier], Any] = lambda _schema, _tier: None
    """Which arguments of a schema are paths or commands, for the rules of a tier."""
    kinds: Mapping[str, Tier] = msgspec.field(default_factory=dict)
    """What a call of a dynamic tool risks at least, by its kind: whoever sends one in has no say in it. Of a kind that is
    not here, the most."""
    sandbox_seconds: float = 30.0
    """Seconds in the sandbox for tools that name none."""
    marks: Callable[..., StageMarks | None] = lambda _tool, _tier, **_what_it_passes: None
    """What has the stages of a tool's calls kept; None: they are not."""
    hook: Callable[[Any], Any] = HookSet().instance
    """Makes a hook of what a tool declares."""
    hosts: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)
    """By the names of settings, the hosts that they name (`reaches`)."""
    costs: Mapping[str, Cost] = msgspec.field(default_factory=dict)
    """Built-in tools whose price is a setting."""
    sent_out: frozenset[str] = frozenset()
    """Tools whose calls go out over the event stream, besides those whose definition says so."""


NO_RULES = DefinitionRules()


def entry_of(code: Any, source: Source = "python", rules: DefinitionRules = NO_RULES) -> Entry:
    """The entry of a function or class that `@tool` declared."""
    try:
        return _entry_of(code, source, rules)
    except DefinitionError as error:
        raise error.at(where_of(code)) from error.__cause__


def _entry_of(code: Any, source: Source, rules: DefinitionRules) -> Entry:
    found = declared(code)
    if found is None:
        name = getattr(code, "__name__", type(code).__name__)
        raise DefinitionError(name, [Fault("", "it is not declared as a tool")], suggestion="Put @tool(tier=...) above it.")
    tool = _definition_of(found, source)
    if source == "builtin" and tool.name in rules.costs:
        tool = tool.model_copy(update={"cost": rules.costs[tool.name]})
    try:
        implementation = found.make(code)
    except Exception as error:
        advice = f"Register an object of it: app.register({code.__name__}(...))." if inspect.isclass(code) else None
        fault = Fault("", f"it cannot be made: {type(error).__name__}: {error}")
        raise DefinitionError(tool.name, [fault], suggestion=advice) from error
    compiled = found.compiled if source == "builtin" else None
    return compile_entry(tool, implementation, (*found.hooks, *_stages_of(implementation.instance)), rules, compiled)


def _definition_of(found: Declaration, source: Source) -> Tool:
    """The definition that `@tool` declared. It is made once; every App has its own copy of what can be changed in it."""
    known = found.definitions.get(source)
    if known is None:
        try:
            page = {"documentation": f"docs/reference/tools/{found.fields['name']}.md"} if source == "builtin" else {}
            made = definition({**page, **found.fields, "source": source})
        except DefinitionError as error:
            faults = [Fault(path, _advice(found.fields, path) or message) for path, message in error.faults]
            raise DefinitionError(error.name, faults) from None
        copies = {field: _copier(value) for field, value in vars(made).items() if isinstance(value, dict)}
        known = found.definitions[source] = made, copies
    made, copies = known
    return made.model_copy(update={field: copy() for field, copy in copies.items()})


def _copier(value: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """Makes copies of what an App could change: of JSON, out of its text, which takes a tenth of the time."""
    if not value:
        return dict
    if all(isinstance(item, Operation) for item in value.values()):  # which never change
        return value.copy
    try:
        return partial(orjson.loads, orjson.dumps(value))
    except TypeError:  # a value that is refused later
        return partial(deepcopy, value)


def _advice(fields: Mapping[str, Any], path: str) -> str | None:
    """Advice to the author of a Python tool on what to do about a fault; None if its message says so."""
    if path == "description" and not fields.get("description"):
        return "add a docstring: its first paragraph tells models what the tool does"
    if path == "name" and fields.get("name") == "<lambda>":
        return "a lambda has no name: use def, or @tool(name=...)"
    return None


def _stages_of(made: Any) -> list[Hook]:
    """`before_execution(**arguments)` and `after_execution(output)` of a class-based tool, as the hook they
    are: the innermost one at will_execute and did_execute."""
    stages: dict[str, Callable[[Hook, InvokeContext], Any]] = {}
    before, after = getattr(made, "before_execution", None), getattr(made, "after_execution", None)
    if callable(before):
        stages["will_execute"] = lambda _hook, ctx: before(**ctx.arguments)
    if callable(after):
        stages["did_execute"] = lambda _hook, ctx: after(ctx.output)
    return [type(type(made).__name__, (Hook,), {"priority": INNERMOST, **stages})()] if stages else []


def definition(fields: Mapping[str, Any]) -> Tool:
    """A `Tool` from plain values, or a DefinitionError that names what is wrong."""
    if is_deeper(fields, MAX_DEFINITION_DEPTH):
        too_deep = Fault("", f"its definition is nested more than {MAX_DEFINITION_DEPTH} levels deep")
        raise DefinitionError(str(fields.get("name") or "?"), [too_deep])
    try:
        return Tool.model_validate(dict(fields))
    except ValidationError as error:
        faults = [
            Fault(".".join(str(part) for part in fault["loc"]), _words(fault)) for fault in error.errors(include_url=False)
        ]
        raise DefinitionError(str(fields.get("name") or "?"), faults) from None


def _words(fault: ErrorDetails) -> str:
    """Words for what pydantic found wrong with a field, for somebody who does not know pydantic."""
    if fault["type"] == "literal_error":
        return unknown(fault["input"], CHOICE.findall(fault["ctx"]["expected"]))
    return fault["msg"].removeprefix("Value error, ")


def compile_entry(
    tool: Tool,
    implementation: Any,
    hooks: Iterable[Any] = (),
    rules: DefinitionRules = NO_RULES,
    compiled: dict[Any, Entry] | None = None,
) -> Entry:
    """The entry of a definition and what runs it. Raises DefinitionError where the definition contradicts itself.

    `compiled`: what was compiled of this very definition so far, by what the rules say of it; None keeps nothing.
    """
    made_hooks = _made(tool, hooks, rules)
    hosts = tuple(rules.hosts.get(getattr(implementation, "reaches", None) or "", ())) if tool.source == "builtin" else ()
    if compiled is None:
        entry = _compiled(tool, hosts, rules)
    else:
        said = _said_of(tool, hosts, rules)
        found = compiled.get(said)
        if found is None:
            if len(compiled) == MAX_COMPILED:
                compiled.clear()
            found = compiled[said] = _compiled(tool, hosts, rules)
        entry = found
    asks = entry.asks is not None or bool(tool.operations)
    marks = rules.marks(tool, entry.tier, takes_text=entry.takes_text, asks=asks)
    own = {
        "tool": tool,
        "implementation": implementation,
        "defaults": defaults_of(tool.input_schema),
        "cache": _cache(tool, implementation, made_hooks),
        "hooks": made_hooks if marks is None else (*made_hooks, marks),
        "jails_commands": tool.source == "builtin" and getattr(implementation, "jails_commands", False) is True,
    }
    inner = entry.operations
    operations = None if inner is None else {name: replace(one, **own) for name, one in inner.items()}
    return replace(entry, operations=operations, **own)


def _said_of(tool: Tool, hosts: tuple[str, ...], rules: DefinitionRules) -> tuple[Any, ...]:
    """All that the rules and the settings say of a built-in tool, apart from what each App puts into its own entries."""
    tiers = tuple(rules.tiers.get(name) for name in (tool.name, tool.alias_of or tool.name))
    sent_out = tool.name in rules.sent_out
    return (tiers, rules.timeout, rules.guards, rules.sandbox_seconds, tool.cost.model_dump_json(), hosts, sent_out)


def _compiled(tool: Tool, hosts: tuple[str, ...], rules: DefinitionRules) -> Entry:
    """The entry, but for what each App puts into its own: the rest follows from the definition, the hosts and the rules, and
    nothing in it changes."""
    tier = tier_of(tool, rules.tiers, rules.kinds)
    if tool.internal and tool.source not in OWN_SOURCES:
        raise DefinitionError(tool.name, [Fault("internal", "only the operator's own code has tools that no list shows")])
    takes = compile_schema(tool, "input_schema", tool.input_schema)
    gives = None if tool.output_schema is None else compile_schema(tool, "output_schema", tool.output_schema)
    destructive = tool.destructive or tool.annotations.get("destructiveHint") is True
    confirms = tool.confirms()
    asks = _asking(tool, must_ask(tier, destructive=destructive, confirms=confirms), hosts)
    fixed_nano, capability_nano = _price(tool)
    free_calls = tool.cost.free_tier_limit
    priced = bool(fixed_nano or capability_nano or tool.cost.per_unit) or free_calls is not None
    waits = asks or priced or tool.cache or tool.rate_limit or tool.concurrency
    entry = Entry(
        tool=tool,
        name=tool.name,
        implementation=None,
        tier=tier,
        destructive=destructive,
        confirms=confirms,
        check_input=takes.check,
        check_output=None if gives is None else gives.check,
        defaults=NO_DEFAULTS,
        copies=bool(tier != "read_only" or takes.takes_text or waits),
        takes_text=takes.takes_text,
        public_input=takes.public_fields,
        public_output=frozenset() if gives is None else gives.public_fields,
        literal_input=takes.literal_fields,
        kind=tool.kind,
        target=_target(tool, tier),
        timeout=tool.timeout or rules.timeout,
        run_seconds=rules.sandbox_seconds if tool.timeout is None and _runs_in_sandbox(tool) else None,
        retry=tool.retry,
        cache=None,
        auth=tool.requires_auth,
        rate_limit=tool.rate_limit,
        concurrency=tool.concurrency,
        priced=priced,
        fixed_nano=fixed_nano,
        unit_cost=tool.cost.per_unit,
        capability_nano=capability_nano,
        free_calls=free_calls,
        expected_ms=max((c.estimated_time_ms for c in tool.capabilities if c.estimated_time_ms is not None), default=None),
        asks=asks,
        unasked=f"tier {tier} runs unasked",
        guards=_guards(tool, takes.text, tier, rules),
        fingerprint=bound_fingerprint(fingerprint(tool, tier), hosts),
        hosts=hosts,
        background=tool.background,
        internal=tool.internal,
        is_sent_out=tool.route == "events" or tool.name in rules.sent_out,
    )
    return _with_operations(entry, takes.text, rules) if tool.operations else entry


def _with_operations(entry: Entry, schema: bytes, rules: DefinitionRules) -> Entry:
    """An entry with one for each operation. The argument is checked by the schema before one of them is taken, so the two
    must name the same."""
    tool = entry.tool
    argument = properties_of(tool.input_schema).get("operation", {})
    if argument.get("enum") != list(tool.operations):
        words = "they must be the values, in their order, that the schema of the argument `operation` lists"
        raise DefinitionError(tool.name, [Fault("operations", words)])
    if "operation" not in tool.input_schema.get("required", ()) and argument.get("default") not in tool.operations:
        raise DefinitionError(tool.name, [Fault("operations", "the argument `operation` must be required")])
    if tool.cache is not None:
        raise DefinitionError(tool.name, [Fault("cache", "a tool with operations has none")])
    return replace(entry, operations={name: _operation(entry, name, schema, rules) for name in tool.operations})


def _operation(entry: Entry, name: str, schema: bytes, rules: DefinitionRules) -> Entry:
    """The entry that governs the calls of one operation. What raises the tool's tier raises that of each operation."""
    tool = entry.tool
    destructive, confirms = entry.destructive or tool.destroys(name), tool.confirms(name)
    alone = tool.model_copy(update={"tier": tool.operations[name].tier, "operations": {}, "capabilities": ()})
    least: Tier = "write" if destructive else "read_only"
    tier = max(tier_of(alone, rules.tiers, rules.kinds), least, key=TIERS.index)
    return replace(
        entry,
        tier=tier,
        destructive=destructive,
        confirms=confirms,
        unasked=f"tier {tier} runs unasked",
        asks=_asking(tool, must_ask(tier, destructive=destructive, confirms=confirms), entry.hosts),
        copies=True,
        target=_target(tool, tier),
        guards=_guards(tool, schema, tier, rules),
        fingerprint=sha256(f"{entry.fingerprint} {tier} {name}".encode()).hexdigest(),
    )


def _target(tool: Tool, tier: Tier) -> str | None:
    """The external system that a tool depends on: of an endpoint, its host, which the definition cannot rename."""
    if tool.http is not None:
        return tool.http.address.address
    return tool.target or (tool.name if tier == "external_api" else None)


def _made(tool: Tool, hooks: Iterable[Any], rules: DefinitionRules) -> tuple[Any, ...]:
    try:
        return tuple(rules.hook(hook) for hook in hooks)
    except Exception as error:
        raise DefinitionError(tool.name, [Fault("hooks", f"{type(error).__name__}: {error}")]) from error


def _price(tool: Tool) -> tuple[int, int]:
    """In nano-dollars: the fixed price, and the largest estimate among the capabilities if the definition names no price."""
    estimates = [nano(capability.estimated_cost) for capability in tool.capabilities if capability.estimated_cost]
    return nano(tool.cost.fixed), 0 if tool.cost.fixed or tool.cost.per_unit else max(estimates, default=0)


def _runs_in_sandbox(tool: Tool) -> bool:
    """Tells whether the code or command of a call has the time that sandbox.seconds gives: of custom tools, and of the
    built-in tools that run what their caller sends."""
    return tool.kind == "sandbox" or (tool.source == "builtin" and tool.tier == "execute")


def _cache(tool: Tool, implementation: Any, hooks: tuple[Any, ...]) -> CacheRule | None:
    """For whom results are kept. Only a function that is given its arguments and nothing else gives everybody the same; what
    can see who calls (a context, an object of its own, hooks, another program) answers that user alone, unless the code of
    whoever runs this installation says otherwise. A definition that came from elsewhere can only say less."""
    rule = tool.cache
    if rule is None:
        return None
    sees_nobody = (
        isinstance(implementation, Implementation)
        and implementation.context_parameter is None
        and implementation.instance is None
        and not hooks
    )
    shared = rule.scope != "user" and (sees_nobody or (rule.scope == "tenant" and tool.source in OWN_SOURCES))
    return rule.model_copy(update={"scope": "tenant" if shared else "user"})


def _asking(tool: Tool, why: str | None, hosts: Sequence[str]) -> str | None:
    """The reason why a person is asked, and what they should know of a program's definition when they answer."""
    if why is None:
        return None
    why += reach_words(hosts)
    if tool.http is not None:
        why += f"; it sends {tool.http.method} to {tool.http.address.authority}"
    if tool.program is None:
        return why
    if tool.source == "dynamic":
        return f"{why}; its code was sent in at run time (sha256 {sha256(tool.program.code.encode()).hexdigest()[:16]})"
    if tool.program.allowlist:
        why += f"; it may run {', '.join(map(str, tool.program.allowlist))}"
    return f"{why}; {PROPOSES}" if tool.program.auto_accept else why


def fingerprint(tool: Tool, tier: Tier) -> str:
    """A hash of the whole definition, and of the tier that it has in effect."""
    try:
        unsaid = {field for field in LATER_FIELDS if not getattr(tool, field)}
        plain = tool.model_dump(mode="json", exclude=unsaid)
        text = orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)
    except (ValueError, TypeError) as error:  # what is no JSON: objects, half surrogates, integers of more than 64 bits
        raise DefinitionError(tool.name, [Fault(_not_json(tool), f"it is not JSON: {error}")]) from error
    if b"u0000" in text and NUL.search(text):
        raise DefinitionError(tool.name, [Fault("", "it holds a NUL character, which PostgreSQL cannot keep")])
    return sha256(text + tier.encode()).hexdigest()


def _not_json(tool: Tool) -> str:
    for name in Tool.model_fields:
        try:
            orjson.dumps(tool.model_dump(mode="json", include={name}))
        except (ValueError, TypeError):
            return name
    return ""


def _guards(tool: Tool, schema: bytes, tier: Tier, rules: DefinitionRules) -> Any:
    if tool.source in ("builtin", "workflow"):
        return _guards_of_few(rules.guards, schema, tier)
    return rules.guards(tool.input_schema, tier)


@lru_cache(maxsize=512)
def _guards_of_few(guards: Callable[[Mapping[str, Any], Tier], Any], schema: bytes, tier: Tier) -> Any:
    """Of the few tools that every App has, and of the workflows that settings name; of others it would hold a copy of each
    schema."""
    return guards(orjson.loads(schema), tier)


def declared_in(module: Any) -> list[Any]:
    """The functions and classes of a module that `@tool` declared or refused, each once whatever its names."""
    found = [code for code in vars(module).values() if not inspect.ismodule(code) and is_marked(code)]
    return list({id(code): code for code in found}.values())
