"""`app.tools`: the tools in the catalog, where they come from, and for whom they are enabled."""

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, Unpack

from toolgate.app.facets import CallableFacet, acting_for, check_named
from toolgate.errors import CallError, DefinitionError, Denied, Fault, SettingsError, not_found
from toolgate.model import DISCOVERY_TOOLS, LOCAL, Actor, Entry, Source, Tool
from toolgate.registry.catalog import PROBLEMS, ToolProblem, ToolSource, origin
from toolgate.registry.compile import entry_of
from toolgate.registry.export import Shape, export
from toolgate.store import catalog as table
from toolgate.store.tool_health import HealthRow
from toolgate.tasks import uninterrupted
from toolgate.threads import to_thread
from toolgate.trust import replace_file

if TYPE_CHECKING:
    from toolgate.agent.prompt import Style, SystemPrompt
    from toolgate.app.served_tools import ServedTools
    from toolgate.registry.skill_folder import SkillFolder
    from toolgate.sandbox.custom.yaml_file import ToolFile
    from toolgate.tool_search import Ranking


class FlagScope(TypedDict, total=False):
    """For whom a tool is enabled or disabled, why, and who does it."""

    tenant: str | None
    persona: str | None
    reason: str | None
    actor: Actor | None


MAX_LISTED_FLAGS = 10_000
"""Flags that are listed at once, if nothing else is said."""


class AddedTool(NamedTuple):
    """A custom tool that was put in place."""

    tool: "ToolFile"
    file: Path
    replaced: bool
    unchecked: str | None
    """The reason why its code could not be compiled beforehand; None if it could."""


class ToolsFacet(CallableFacet):
    """The tools in the catalog."""

    # -- what there is

    async def search(self, query: str | Sequence[str], actor: Actor | None = None, *, limit: int = 10) -> "Ranking":
        """Gives the tools that an actor may see and that fit a task, best first, each with a score from 0 to 1. Several
        phrasings of one task find more than one. Of tools that fit alike, those come first that did well in the tenant
        lately (`app.learning`)."""
        phrasings = [query] if isinstance(query, str) else list(query)
        return await self._parts.tool_index.search(phrasings, actor or LOCAL, limit=limit)

    async def export(self, shape: Shape, actor: Actor | None = None) -> list[dict[str, Any]]:
        """Gives the tools that a model is listed which works for an actor, in the shape that a model's API or an MCP client
        takes: all that the actor may see, or, where those are too many to read, what `served` says."""
        actor = actor or LOCAL
        return export(await self._parts.prompts.described(await self._parts.served.entries(actor), actor), shape)

    async def served(self, actor: Actor | None = None) -> "ServedTools":
        """Gives the tools that a model is listed which works for an actor, by name: all that the actor may see, or, above
        the size that the setting `discovery` names, those of discovery (`search_tools`, `describe_tool`, `call_tool`), those
        that the tenant uses most, and those that are pinned. The others can be called all the same."""
        return await self._parts.served.of(actor or LOCAL)

    async def export_skill(
        self, folder: Path, names: Sequence[str] = (), *, actor: Actor | None = None, force: bool = False
    ) -> "SkillFolder":
        """Writes tools that an actor may see, all or those that are named, as an agent skill: a folder with SKILL.md and a
        reference for each tool. A folder that was not written by this is overwritten only with `force`. Raises `CallError`
        for a tool that the actor does not have, `InvalidInput` for a folder that can't be used."""
        from toolgate.registry.skill_folder import SkillFolder, skill_files, skill_name, write_skill

        actor = actor or LOCAL
        name = skill_name(folder)
        entries = await self._parts.permitted.entries(actor)
        known = {entry.name: entry for entry in entries}
        for one in names:
            if one not in known:
                raise not_found(one)
        chosen = [known[one] for one in dict.fromkeys(names)] if names else entries
        files = skill_files(name, await self._parts.prompts.described(chosen, actor), actor)
        written = await to_thread(write_skill, folder, files, force=force)
        return SkillFolder(folder, tuple(entry.name for entry in chosen), written)

    async def prompt(
        self, actor: Actor | None = None, *, session: str | None = None, style: "Style" = "native"
    ) -> "SystemPrompt":
        """Gives what a model is told before it begins to work for an actor, and how many tokens that takes.

        Args:
            actor: Whose tools and manner; without it, the person at this machine's.
            session: The session, for hooks.
            style: `native`: the definitions of the tools go beside the text, as the model's API takes them. `json`: they are
                in the text, with the form of the reply that calls one (`toolgate.agent.replies`).

        Raises `SettingsError` if a prompt file cannot be used, `CallError` if a hook fails.
        """
        return await self._parts.prompts.system(actor or LOCAL, session=session, style=style)

    async def typed(self, language: Literal["typescript", "python"], actor: Actor | None = None) -> str:
        """Gives the tools that an actor may see as declarations of functions, for a program (`run_program`)."""
        from toolgate.registry.code_mode_types import typed

        tools = await self._parts.permitted.tools(actor or LOCAL)
        return typed([tool for tool in tools if tool.name not in DISCOVERY_TOOLS], language)

    async def token_costs(self, actor: Actor | None = None) -> dict[str, int]:
        """Gives how many tokens each tool's definition takes: of all tools, or of those that an actor may see. Estimated
        where the extra `tokens` is not installed."""
        entries = self._parts.catalog.entries()
        if actor is not None:
            entries = await self._parts.permitted.entries(actor)
        return await self._parts.catalog_sync.token_costs(entries)

    @property
    def problems(self) -> list[ToolProblem]:
        """The tools that could not be loaded, and why."""
        custom = self._parts.custom.problems if self._parts.custom is not None else ()
        parts = self._parts
        return [
            *parts.catalog.problems, *parts.team_tools.problems, *parts.local_tools.problems, *custom,
            *parts.mcp_tools.problems, *parts.openapi_tools.problems,
        ]  # fmt: skip

    def entries(self) -> list[Entry]:
        """Gives every tool in the catalog as it is compiled, of all tenants: for whoever runs this installation."""
        return self._parts.catalog.entries()

    async def health(self, name: str) -> HealthRow | None:
        """Gives the last health check of a tool that has one, made by any process of this installation, and when the next
        is due; None if there is none."""
        return await self._parts.health.of(name)

    def get(self, name: str, actor: Actor | None = None) -> Entry:
        """Gives a tool of the actor's tenant, enabled or not. Raises `CallError` (TOOL_NOT_FOUND)."""
        return self._parts.catalog.resolve(name, (actor or LOCAL).tenant)

    async def visible(self, name: str, actor: Actor) -> Entry | None:
        """Gives a tool that an actor has; None for one that is hidden, off or missing, after the same lookups: how long it
        takes tells nothing."""
        return await self._parts.permitted.find(name, actor)

    @property
    def version(self) -> tuple[int, str, int] | None:
        """Something that is another once catalog, flags or policy are, or a day has begun on which others are listed; None
        while a change of another process is still to be taken over."""
        parts = self._parts
        return None if parts.notices.changed() else (parts.catalog.version, parts.guard.policy_hash, parts.served.day)

    async def why_off(self, entry: Entry, actor: Actor, *, door: str = "python") -> str | None:
        """Gives why an actor does not have a tool; None if it has."""
        if entry.tool.tenant not in (None, actor.tenant):
            return f"{entry.name} belongs to tenant {entry.tool.tenant}"
        if (off := self._parts.catalog.why_off(entry, actor.tenant, is_internal=True)) is not None:
            return off
        decision = await self._parts.guard.decide(actor, "tool.view", entry.name, tier=entry.tier, door=door)
        return None if decision.allow else decision.reason

    def is_off(self, entry: Entry, tenant: str) -> bool:
        """Tells whether flags disable a tool for a tenant."""
        return self._parts.catalog.why_off(entry, tenant, is_internal=True) is not None

    def is_enforced(self, name: str) -> bool:
        """Tells whether `enforcement` keeps a tool enabled."""
        return self._parts.catalog.is_enforced(name)

    def flag(self, name: str, *, tenant: str | None = None, persona: str | None = None) -> bool | None:
        """Gives the flag of a tool for everybody, a tenant or a persona; None: there is none."""
        if tenant is not None:
            return self._parts.catalog.tenant_flag(name, tenant)
        if persona is not None:
            return name not in self._parts.policy.data.personas.get(persona, {})
        return self._parts.catalog.is_on(name)

    @property
    def withheld(self) -> Mapping[str, str]:
        """The names of tools that wait to be accepted, and why."""
        return {**self._parts.mcp_tools.withheld, **self._parts.openapi_tools.withheld}

    # -- where they come from

    def register(self, code: Any, *, source: Source = "python") -> Tool:
        """Registers a tool, as `app.register` does."""
        entry = code if isinstance(code, Entry) else entry_of(code, source, self._parts.rules)
        self._parts.catalog_sync.register(entry)
        return entry.tool

    def register_many(self, codes: Iterable[Any]) -> None:
        """Registers each of these; the first that is refused raises."""
        for code in codes:
            self.register(code)

    def load(self, source: ToolSource) -> None:
        """Registers all tools of a source. What can't be registered is noted in `problems`."""
        for loaded in source.load():
            if isinstance(loaded, ToolProblem):
                self._parts.catalog.note(loaded)
                continue
            try:
                self.register(loaded)
            except DefinitionError as error:
                problem = ToolProblem(origin(loaded), str(error))
                self._parts.catalog.note(problem)
                logging.getLogger(PROBLEMS).warning("%s: %s", *problem)

    async def check(self) -> None:
        """Has the sandbox compile the code of custom tools that nobody has compiled yet. What does not is taken out of the
        catalog, and is in `problems`. It happens by itself soon after the App is opened."""
        if self._parts.custom is not None:
            await self._parts.custom.check()

    async def add_custom(
        self, content: bytes, file: Path, *, replace: bool = False, actor: Actor | None = None
    ) -> AddedTool:
        """Checks the file of a custom tool, its code too, and puts it where custom tools are loaded from, trusted.

        Raises `SettingsError` where that is disabled, `DefinitionError` if the file is wrong or the name is taken, `OSError`
        if it cannot be written.
        """
        from toolgate.sandbox.custom.yaml_file import parse_tool_file

        refused_by = self._parts.local_tools.refused_by
        if refused_by is not None:
            raise SettingsError(
                f"Adding tools is disabled by {refused_by}.",
                suggestion="Ask the operator of this installation.",
            )
        tool = parse_tool_file(content, file, self._parts.rules)
        name, target = tool.entry.name, self._custom_file(tool.entry.name)
        taken = os.path.lexists(target)
        if taken and not replace:
            raise DefinitionError(
                name,
                [Fault("name", f"{target} is there already")],
                suggestion="Edit that file, rename the tool, or replace it: `toolgate tools add --from-file FILE --force`.",
            )
        unchecked = await self._why_unchecked(tool)
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, content, mode=0o666)  # what the umask leaves: it is a file of the project
        self._parts.project.add(target, content)
        details = {"file": str(target), "fingerprint": tool.entry.fingerprint, "replaced": taken}
        await self._parts.events.record("tool.added", actor or LOCAL, name, details)
        return AddedTool(tool, target, taken, unchecked)

    def _custom_file(self, name: str) -> Path:
        """The file for a custom tool of this name; raises if another kind of tool has the name."""
        from toolgate.sandbox.custom.folder import CustomFolder

        with suppress(CallError):
            source = self._parts.catalog.resolve(name, LOCAL.tenant).tool.source
            if source != "custom":
                fault = Fault("name", f"the name is taken by a tool of source {source}")
                raise DefinitionError(name, [fault], suggestion="Give it another name.")
        folder = CustomFolder(self._parts.settings.home / "tools", self._parts.rules, self._parts.project.refusal)
        folder.changes()
        return folder.file_of(name) or self._parts.settings.home / "tools" / f"{name}.yml"

    async def _why_unchecked(self, tool: "ToolFile") -> str | None:
        """Refuses code that does not compile; says why that cannot be told, if there is no sandbox."""
        from toolgate.sandbox.custom.folder import compiled
        from toolgate.sandbox.custom.yaml_file import ToolFileError

        try:
            problem = await compiled(tool, self._parts.sandbox)
        except CallError as error:
            return error.message
        if problem is not None:
            raise ToolFileError(problem)
        return None

    async def add_dynamic(
        self,
        fields: Mapping[str, Any],
        actor: Actor | None = None,
        *,
        replace: bool = False,
        door: str = "python",
        by_operator: bool = False,
    ) -> Tool:
        """Registers a tool at run time, for the actor's tenant. It survives a restart.

        Args:
            fields: Its definition, with how it runs: `program` (kind sandbox), `http`, `mcp` or `workflow`.
            actor: Whose tenant has it from then on.
            replace: True to replace the tool of this name that the tenant has registered.
            door: By which door it came, for the record.
            by_operator: True for whoever runs this installation, whom no policy is asked about.

        Raises `CallError` (PERMISSION_DENIED) without the permission tool.enable or (CAPACITY_EXCEEDED) past the limits of
        the setting `registration`, `DefinitionError` if the fields are wrong.
        """
        actors = (actor or LOCAL,)
        return await self._parts.registration.add(fields, actors, replace=replace, door=door, by_operator=by_operator)

    async def remove_dynamic(self, name: str, actor: Actor | None = None, *, by_operator: bool = False) -> Tool:
        """Removes a tool of the actor's tenant that was registered at run time, at once and in every process.

        Raises `CallError`: TOOL_NOT_FOUND, also for a tool that is hidden from the actor, PERMISSION_DENIED without the
        permission tool.enable, or INVALID_INPUT for a tool of another source.
        """
        return await self._parts.registration.remove(name, (actor or LOCAL,), by_operator=by_operator)

    async def registration_of(self, entry: Entry) -> table.DynamicRow | None:
        """Gives who registered a tool at run time, and by which door; None: it comes from elsewhere."""
        if entry.tool.source != "dynamic" or entry.tool.tenant is None:
            return None
        return await self._parts.store.read(table.dynamic_tool(entry.name, entry.tool.tenant))

    # -- for whom they are enabled

    async def enable(self, tool: str, **flag: Unpack[FlagScope]) -> None:
        """Enables a tool for everybody, for a tenant, or for a persona."""
        await self.set_enabled(tool, True, **flag)

    async def disable(self, tool: str, **flag: Unpack[FlagScope]) -> None:
        """Disables a tool for everybody, for a tenant, or for a persona."""
        await self.set_enabled(tool, False, **flag)

    @uninterrupted
    async def set_enabled(
        self,
        tool: str,
        enabled: bool | None,
        *,
        tenant: str | None = None,
        persona: str | None = None,
        reason: str | None = None,
        actor: Actor | None = None,
        by_operator: bool = True,
    ) -> None:
        """Enables or disables a tool, as `enable` and `disable` do. None takes the flag away again. `by_operator`: False for
        an admin of the tenant, who neither changes what an operator set nor enables what is disabled for everybody.

        Raises `CallError`: TOOL_NOT_FOUND, or PERMISSION_DENIED for a tool that `enforcement` keeps enabled.
        """
        by, actor = actor or acting_for(tenant), actor or LOCAL
        if tenant is not None and persona is not None:
            raise ValueError("a flag is for a tenant or for a persona, not for both")
        if enabled is not None:
            check_named(tenant=tenant, persona=persona)
        entry = self._parts.catalog.resolve(tool, actor.tenant)
        if tenant is None and persona is None:
            tenant = entry.tool.tenant  # for all who have it: of a dynamic tool that is one tenant
        if enabled is False and self._parts.catalog.is_enforced(tool):
            raise Denied("PERMISSION_DENIED", f"Cannot disable tool: {tool} (enforced by enterprise policy).")
        if not by_operator and (tenant is None or (enabled and not self._parts.catalog.is_on(tool))):
            raise Denied("PERMISSION_DENIED", f"Only an operator may do this: {tool} is switched for everybody.")
        if tenant is not None:
            change = table.set_tenant_flags([(tenant, tool, enabled)], by_operator=by_operator)
        elif persona is not None:
            change = table.set_persona_restriction(persona, tool, enabled is not False, reason)
        elif enabled is None:
            change = table.set_enabled(tool, entry.tool.enabled, None)
        else:
            change = table.set_enabled(tool, enabled, actor.user)
        try:
            await self._parts.store_sync.change(change)
        except table.OperatorsFlag:
            raise Denied("PERMISSION_DENIED", f"An operator set the flag of {tool} for this tenant.") from None
        action = {None: "tool.flag_removed", True: "tool.enabled", False: "tool.disabled"}[enabled]
        details = {"for_tenant": tenant, "for_persona": persona, "reason": reason}
        await self._parts.events.record(action, by, tool, details)

    async def flags(
        self,
        scope: table.FlaggedFor = "tenant",
        whose: str | None = None,
        *,
        tool: str | None = None,
        limit: int = MAX_LISTED_FLAGS,
        after: tuple[str, str] | None = None,
    ) -> "list[table.FlagRow]":
        """Gives the flags of tenants, of personas or for everybody: of one tenant or persona, or of all; of one tool, or of
        all; at most `limit`, beginning after that of a tenant or persona and tool."""
        await self._parts.catalog_sync.save()
        return await self._parts.store.read(table.listed_flags(scope, whose, limit, after, tool))

    @uninterrupted
    async def set_flags(self, flags: Iterable[tuple[str, str, bool | None]], actor: Actor | None = None) -> None:
        """Sets many flags of tenants at once: (tenant, tool, enabled). Recorded as one act in each of them, with the first
        hundred."""
        listed, of_tenant = [*flags], defaultdict[str, list[tuple[str, bool | None]]](list)
        for tenant, tool, enabled in listed:
            of_tenant[tenant].append((tool, enabled))
        for tenant in {one[0] for one in listed if one[2] is not None}:
            check_named(tenant=tenant)
        await self._parts.store_sync.change(table.set_tenant_flags(listed))
        by, record = actor or LOCAL, self._parts.events.record
        acts = (
            (by if by.tenant == tenant else acting_for(tenant, by.user), {"count": len(changed), "flags": changed[:100]})
            for tenant, changed in of_tenant.items()
        )
        await asyncio.gather(*(record("tenant.flags", one, "", details) for one, details in acts))

    async def list(self, actor: Actor | None = None, source: Source | None = None) -> tuple[Tool, ...]:
        """Gives the tools that an actor may see, sorted by name; of one source, or of all."""
        permitted = await self._parts.permitted.tools(actor or LOCAL)
        return permitted if source is None else tuple(tool for tool in permitted if tool.source == source)
