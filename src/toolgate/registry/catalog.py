"""The catalog: every tool by name, who has it, and the list that an actor may see. All in memory, all lookups.

What the store says of tools (flags) is given to it by `App`, which also tells it when that changed. It decides nothing
but enabled or not; whether a persona may is `policy`'s.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, KeysView, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from toolgate.errors import DefinitionError, Failed, Fault, NotRegistered, not_found
from toolgate.model import SOURCES, Actor, Entry, Implementation, Tool
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import GateVerdict
from toolgate.registry.decorator import declared, where_of
from toolgate.registry.tool_limits import AcceptedLimits, ToolLimits

T = TypeVar("T")
PROBLEMS = "toolgate.tools"
"""The name of the logger that is told what could not be loaded."""
MAX_CACHED_FLAGS = 5_000_000
"""Tools in all the lists that are kept for actors; past that, they are made anew."""


class FlagData(Protocol):
    """The store's data on who has which tool."""

    epoch: int
    operator: dict[str, bool]
    tenants: dict[str, dict[str, bool]]
    personas: dict[str, dict[str, str]]
    allow_lists: dict[str, dict[str, Any]]


class ToolProblem(NamedTuple):
    """A tool that could not be loaded: where it is, and why."""

    where: str
    why: str


class ToolSource(Protocol):
    """Gives the tools of one place that tools come from. What can't be loaded is given as a ToolProblem."""

    name: str

    def load(self) -> Iterable[Entry | ToolProblem]: ...


class Catalog:
    def __init__(
        self,
        settings: Mapping[str, bool] | None = None,
        enforced: Iterable[str] = (),
        hidden_from: Callable[[Actor], Collection[str]] = lambda _actor: (),
        max_seconds: float = 60.0,
    ) -> None:
        """`max_seconds`: the longest timeout that an operator may accept for a tool which declares none."""
        self._settings = dict(settings or {})
        self._always_enforced = self._enforced = frozenset(enforced)
        self._hidden_from = hidden_from
        self.limits = AcceptedLimits(max_seconds)
        self._declared: dict[str, Entry] = {}
        """By name, the tools that have an accepted limit, as they are without it."""
        self._entries: dict[str, Entry] = {}
        self._by_name: list[tuple[str, Tool]] = []
        """Names and tools in order; empty if that must be found again."""
        self._seeded_off: set[str] = set()
        """Tools whose own definition says that they are off."""
        self._dynamic: dict[str, dict[str, Entry]] = {}
        self._flags: FlagData | None = None
        self._off: set[str] = set()
        self._permitted: dict[tuple[str | None, str | None], tuple[Tool, ...]] = {}
        self._listed = 0
        self.aliases: dict[str, str] = {}
        """Second names, and the first names of the same tools."""
        self.problems: list[ToolProblem] = []
        self.withheld: Mapping[str, str] = {}
        """Names that nobody may call yet, and why: for the log. Callers are told that there is no such tool."""
        self.version = 0
        """Counts up whenever what an actor may see might have changed."""

    # -- filling it

    def add(self, entry: Entry) -> None:
        """Put a tool in. The name must be free: for a taken one, the source that comes first in SOURCES keeps it, unless
        what has it gives way to whatever else there is for all tenants."""
        tool = entry.tool
        holder = self._dynamic.get(tool.tenant, {}) if tool.tenant else self._entries
        taken = holder.get(tool.name) or self._entries.get(tool.name)
        if taken is not None and (tool.tenant or not getattr(taken.implementation, "gives_way", False)):
            if SOURCES.index(tool.source) >= SOURCES.index(taken.tool.source):
                raise _taken(taken, tool.name)
            self.note(ToolProblem(origin(taken), str(_taken(entry, tool.name))))
        limited = self.limits.applied(entry)
        if limited is not entry:
            self._declared[tool.name] = entry
        elif not tool.tenant:
            self._declared.pop(tool.name, None)
        holder[tool.name] = limited
        if tool.tenant:
            self._dynamic[tool.tenant] = holder
        else:
            self._by_name = []
            if tool.alias_of is not None and tool.source == "builtin":
                self.aliases[tool.name] = tool.alias_of
            (self._seeded_off.discard if tool.enabled else self._seeded_off.add)(tool.name)
        self._switch((tool.name,))
        self._forget()

    def note(self, problem: ToolProblem) -> None:
        """Say what could not be loaded; saying it twice says no more."""
        if problem not in self.problems:
            self.problems.append(problem)

    def remove(self, name: str, tenant: str | None = None) -> None:
        holder = self._dynamic.get(tenant, {}) if tenant else self._entries
        holder.pop(name, None)
        if not tenant:
            self._by_name = []
            self._declared.pop(name, None)
            self._seeded_off.discard(name)
            self.aliases.pop(name, None)
        if tenant and not holder:
            self._dynamic.pop(tenant, None)
        self._forget()

    def use_flags(self, flags: FlagData) -> None:
        self._flags = flags
        self._off = set(self._seeded_off)
        self._switch({*self._settings, *flags.operator, *self._seeded_off})
        self._forget()

    def enforce(self, names: Iterable[str]) -> None:
        """Has nobody disable these tools from now on, besides those of the settings."""
        enforced = self._always_enforced | frozenset(names)
        if enforced != self._enforced:
            changed, self._enforced = enforced ^ self._enforced, enforced
            self._switch(changed)
            self._forget()

    def use_limits(self, limits: Mapping[str, ToolLimits]) -> None:
        """Takes the limits of tools that operators accepted; those that hold no more are undone."""
        if limits == self.limits.of_tools:
            return
        self._entries |= self._declared
        self._declared = {}
        self.limits.of_tools = dict(limits)
        for name in limits:
            entry = self._entries.get(name)
            if entry is not None:
                self._declared[name], self._entries[name] = entry, self.limits.applied(entry)
        self._forget()

    def holds(self, entry: Entry) -> bool:
        """True if a tool for all tenants is still this one, as it was put in: another source may have taken the name. What a
        source withdraws it compares by this, for the entry that is called may be one with accepted limits."""
        return self.declared(entry.name) is entry

    def declared(self, name: str) -> Entry | None:
        """The entry of a tool for all tenants without accepted limits."""
        return self._declared.get(name) or self._entries.get(name)

    def _switch(self, names: Iterable[str]) -> None:
        """Settings beat the seed, the store beats settings, and what an organisation enforces beats all."""
        for name in names:
            on = self._settings.get(name, name not in self._seeded_off)
            if self._flags is not None:
                on = self._flags.operator.get(name, on)
            if on or name in self._enforced:
                self._off.discard(name)
            else:
                self._off.add(name)

    def _forget(self) -> None:
        self._permitted.clear()
        self._listed = 0
        self.version += 1

    # -- looking things up

    def find(self, name: str, tenant: str, governed: bool = False) -> Entry | None:
        """The entry of a name, exactly as written: for a call that another Toolgate has governed, one that only runs it."""
        try:
            entry = self._entries.get(name)
            if entry is None and self._dynamic:
                entry = self._dynamic.get(tenant, {}).get(name)
        except TypeError:  # a list, say
            return None
        return entry.governed_elsewhere if governed and entry is not None else entry

    def resolve(self, name: str, tenant: str) -> Entry:
        """The entry of a name. Raises Failed if there is none."""
        entry = self.find(name, tenant)
        if entry is None:
            raise self.missing(name)
        return entry

    def name_of(self, code: Any) -> str:
        """The name under which a function, a class or an object is registered. Raises NotRegistered: another tool that has
        the name is not called in its place. What is no code is given back, for there is no tool of that name."""
        found = declared(code)
        if found is None and not callable(code):
            return cast(str, code)
        entry = self._entries.get(str(found.fields["name"])) if found is not None else None
        if entry is not None and _is_code_of(entry, code):
            return entry.name
        raise _not_registered(code, is_tool=found is not None)

    def missing(self, name: Any) -> Failed:
        """That there is no tool of a name, with the reason that the record holds."""
        return not_found(name, self.withheld.get(name) if isinstance(name, str) else None)

    def why_off(self, entry: Entry, tenant: str, *, is_internal: bool = False) -> str | None:
        """Gives the reason why a tenant does not have a tool; None if it has. A second name goes with the first: whoever
        switches a tool off does not think of what else it is called.

        Args:
            entry: The tool.
            tenant: The tenant.
            is_internal: True if Toolgate's own code asks, which alone has tools that are internal.
        """
        if entry.internal and not is_internal:
            return f"{entry.name} is called by Toolgate's own code alone"
        off, first = self._why_off(entry.name, tenant), entry.tool.alias_of
        if off is not None or first is None or entry.name not in self.aliases or entry.name in self._enforced:
            return off
        return self._why_off(first, tenant)

    def _why_off(self, name: str, tenant: str) -> str | None:
        flags = self._flags
        if flags is not None and tenant in flags.tenants and name not in self._enforced:
            flag = flags.tenants[tenant].get(name)
            if flag is not None:
                return None if flag else f"{name} is disabled for tenant {tenant}"
        return f"{name} is disabled" if name in self._off else None

    async def explain(self, ctx: InvokeContext, entry: Entry) -> AsyncIterator[GateVerdict]:
        off = self.why_off(entry, ctx.call.actor.tenant, is_internal=True)  # an operator asks about those, too
        yield GateVerdict("flags", "deny" if off else "pass", off or "it is enabled")

    def is_on(self, name: str) -> bool:
        """Tells whether a tool is enabled for those who have no flag of their own."""
        return name not in self._off and (name in self._enforced or self.aliases.get(name) not in self._off)

    def tenant_flag(self, name: str, tenant: str) -> bool | None:
        """Gives a tenant's own flag for a tool; None if it has none."""
        return None if self._flags is None else self._flags.tenants.get(tenant, {}).get(name)

    @property
    def enforced(self) -> frozenset[str]:
        """The tools that nobody can disable."""
        return self._enforced

    def is_enforced(self, name: str) -> bool:
        return name in self._enforced

    def entries(self) -> list[Entry]:
        """Every tool, whoever may use it."""
        return [*self._entries.values(), *self.dynamic()]

    def policy_entry(self, name: str, tenant: str) -> dict[str, Any] | None:
        """Gives what the policy is told of a tool that a tenant has; None if it has none of that name."""
        entry = self.find(name, tenant)
        if entry is None:
            return None
        return {
            "enabled": self.is_on(name),
            "requires_permission": entry.tool.requires_permission,
            "tier": entry.riskiest.tier,  # a rule on tiers that reads no input must hold for every operation
            "runs_code": entry.runs_code,
        }

    def names(self) -> KeysView[str]:
        """The tools that are there for all tenants."""
        return self._entries.keys()

    def tenant_names(self) -> list[tuple[str, str]]:
        """The tools that only one tenant has: (tenant, name)."""
        return [(tenant, name) for tenant, held in self._dynamic.items() for name in held]

    def dynamic(self) -> list[Entry]:
        """The tools that only one tenant has."""
        return [entry for held in self._dynamic.values() for entry in held.values()]

    def permitted(self, actor: Actor) -> tuple[Tool, ...]:
        """The tools that an actor may see, by name. Actors for whom no rule makes a difference share one list."""
        flags = self._flags
        has_list = flags is not None and actor.tenant in flags.allow_lists
        special_tenant = has_list or actor.tenant in self._dynamic or (flags is not None and actor.tenant in flags.tenants)
        special_persona = has_list or (flags is not None and actor.persona in flags.personas)
        key = (actor.tenant if special_tenant else None, actor.persona if special_persona else None)
        found = self._permitted.get(key)
        if found is None:
            found = tuple(self._list(actor))
            self._listed += len(found)
            if self._listed > MAX_CACHED_FLAGS:
                self._permitted.clear()
                self._listed = len(found)
            self._permitted[key] = found
        return found

    def _list(self, actor: Actor) -> list[Tool]:
        if not self._by_name:
            self._by_name = [(name, self._entries[name].tool) for name in sorted(self._entries)]
        hidden = {*self._off_for(actor.tenant), *self._hidden_from(actor)}
        seen = [tool for name, tool in self._by_name if name not in hidden and not tool.internal]
        own = self._dynamic.get(actor.tenant)
        if own:
            seen += [entry.tool for name, entry in own.items() if name not in hidden and name not in self._entries]
            seen.sort(key=attrgetter("name"))
        return seen

    def _off_for(self, tenant: str) -> set[str]:
        """Gives what `why_off` says, for all tools of a tenant at once."""
        flags = self._flags.tenants.get(tenant, {}) if self._flags is not None else {}
        counting = {name: on for name, on in flags.items() if name not in self._enforced}
        off = {name for name in self._off if not counting.get(name)} | {name for name, on in counting.items() if not on}
        return off | {name for name, first in self.aliases.items() if first in off and name not in self._enforced}

    def with_second_names(self, denied: Mapping[str, T]) -> dict[str, T]:
        """What is said of denied tools, said of their second names too."""
        return {**{name: denied[first] for name, first in self.aliases.items() if first in denied}, **denied}


def origin(entry: Entry) -> str:
    """The place where a tool is defined: its file and line, if it has any."""
    return where_of(getattr(entry.implementation, "function", None)) or entry.name


def _is_code_of(entry: Entry, code: Any) -> bool:
    held = entry.implementation
    return isinstance(held, Implementation) and any(
        code is part for part in (held.function, held.instance, type(held.instance))
    )


def _not_registered(code: Any, *, is_tool: bool) -> NotRegistered:
    name = getattr(code, "__name__", type(code).__name__)
    register = f"app.register({name})"
    return NotRegistered(
        f"{name} is not registered in this App.",
        suggestion=f"Register it first: {register}" if is_tool else f"Put @tool(tier=...) above it, then call {register}.",
    )


def _taken(by: Entry, name: str) -> DefinitionError:
    where = where_of(getattr(by.implementation, "function", None)) if by.tool.source == "python" else None
    fault = Fault("name", f"the name is taken by a tool of source {by.tool.source}{f' ({where})' if where else ''}")
    return DefinitionError(name, [fault], suggestion="Give it another name.")
