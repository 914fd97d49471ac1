"""Registration of tools at run time: who may, what is taken, and what runs them.

Nothing that a model will read is taken unseen: its words are in the registration itself, which whoever registers a tool (or
approves that an agent does) has before them. Of an MCP server they must be the server's own arguments, or it is refused.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
from msgspec.structs import replace as replaced

from toolgate.app.kept_names import why_kept
from toolgate.errors import CallError, DefinitionError, Denied, Failed, Fault, InvalidInput, ToolgateError
from toolgate.mcp.client.model import Target
from toolgate.mcp.endpoints import server_of
from toolgate.mcp.pins import cleaned
from toolgate.mcp.review import suspicious
from toolgate.mcp.runner import StructuredOutputValidator
from toolgate.model import Actor, Auth, Entry, Tool
from toolgate.registry.compile import DefinitionRules, compile_entry, definition
from toolgate.registry.registration import UNSCREENED_FIELDS, checked_fields, look_alike
from toolgate.settings import N8nSettings
from toolgate.store import catalog as table
from toolgate.tasks import uninterrupted
from toolgate.workflow.source import SETUP_URL, NotConfigured, Webhook

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

MAX_NAMED_TOOLS = 30
OpenWorkflows = Mapping[str, Sequence[str]]


def dynamic_entry(tool: Tool, rules: DefinitionRules, n8n: N8nSettings, open_to: OpenWorkflows) -> Entry:
    """The entry of a tool that was registered at run time. Raises DefinitionError, also for a workflow that is not open to
    its tenant any more."""
    if tool.kind == "mcp" and tool.mcp is not None:
        entry = compile_entry(tool, Target(server_of(tool), tool.mcp.tool), (), rules)
        if entry.check_output is not None:
            entry = replaced(entry, check_output=StructuredOutputValidator(entry.check_output))
        return entry
    if tool.kind == "workflow" and tool.workflow is not None:
        webhook = tool.workflow.webhook
        if webhook not in open_to.get(tool.tenant or "", ()):
            words = f"the webhook is not open to tenant {tool.tenant}: an operator names it in registration.workflows"
            raise DefinitionError(tool.name, [Fault("workflow.webhook", words)])
        entry = compile_entry(tool, Webhook(webhook), (NotConfigured(),) if n8n.base_url is None else (), rules)
        return replaced(entry, auth=Auth(type="custom", config_key=n8n.webhook_secret, setup_url=SETUP_URL))
    return compile_entry(tool, None, (), rules)


class Registration:
    """Registers and removes tools. `actors`: who registers one, and for whom; each of them needs the permission."""

    def __init__(self, parts: "Parts") -> None:
        self._parts = parts

    async def check(
        self, fields: Mapping[str, Any], actors: Sequence[Actor], *, replace: bool, by_operator: bool = False
    ) -> Tool:
        """Gives the tool of a registration that may be made, as far as that can be told without asking anybody else."""
        parts, tenant = self._parts, actors[0].tenant
        given = checked_fields(fields, parts.settings.registration.definition_bytes)
        tool = definition({**given, "source": "dynamic", "tenant": tenant})
        if not by_operator:
            await self._may(tool.name, actors, "tool.registration_denied")
        if tool.kind not in parts.kinds:
            *others, last = sorted(parts.kinds)
            said = f"{tool.kind!r:.70} is not possible" if "kind" in given else "a dynamic tool must say how it runs"
            why = f"{said}; use {', '.join(others)} or {last}"
            raise DefinitionError(tool.name, [Fault("kind", why)])
        self._check_name(tool, replace=replace)
        self._check_words(tool.name, given)
        url = tool.mcp.url if tool.mcp is not None else str(tool.http.address) if tool.http is not None else None
        if url is not None:
            self._check_url(tool, url)
        parts.catalog_sync.compile_dynamic(tool)
        return tool

    @uninterrupted
    async def add(
        self,
        fields: Mapping[str, Any],
        actors: Sequence[Actor],
        *,
        replace: bool = False,
        door: str = "python",
        by_operator: bool = False,
    ) -> Tool:
        """Registers a tool for the tenant of the first actor."""
        parts, actor = self._parts, actors[0]
        tool = await self.check(fields, actors, replace=replace, by_operator=by_operator)
        if tool.mcp is not None:
            tool = await self._pinned(tool)
        entry = parts.catalog_sync.compile_dynamic(tool)
        parts.catalog_sync.keep(entry)
        limits = parts.settings.registration
        try:
            await parts.store_sync.change(
                table.add_dynamic(
                    _row(tool, actor, door), table.RegistrationLimits(limits.tools, limits.per_hour), replace=replace
                )
            )
        except table.RegistrationRefused as refused:
            raise self._refusal(tool.name, refused.reason) from None
        details = {"fingerprint": entry.fingerprint, "kind": tool.kind, "door": door, "replace": replace}
        await parts.events.record("tool.registered", actor, tool.name, details)
        return tool

    async def check_removal(self, name: str, actors: Sequence[Actor], *, by_operator: bool = False) -> Tool:
        """Gives the tool that may be removed. One that is hidden from an actor who may not remove it looks missing."""
        tenant = actors[0].tenant
        tool = self._parts.catalog.resolve(name, tenant).tool
        try:
            if tool.source != "dynamic" or tool.tenant != tenant:
                raise InvalidInput(
                    f"{name} was not registered at run time: its source is {tool.source}.",
                    suggestion=f"It is removed where it comes from; `toolgate tools disable {name}` hides it.",
                )
            if not by_operator:
                await self._may(name, actors, "tool.removal_denied")
        except (InvalidInput, Denied):
            seen = [await self._parts.permitted.find(name, actor) for actor in actors]
            if not by_operator and None in seen:
                raise self._parts.catalog.missing(name) from None
            raise
        return tool

    @uninterrupted
    async def remove(self, name: str, actors: Sequence[Actor], *, by_operator: bool = False) -> Tool:
        """Removes a tool of the tenant of the first actor."""
        tool = await self.check_removal(name, actors, by_operator=by_operator)
        await self._parts.store_sync.change(table.remove_dynamic(name, actors[0].tenant))
        await self._parts.events.record("tool.unregistered", actors[0], name, {})
        return tool

    async def _may(self, name: str, actors: Sequence[Actor], denied: str) -> None:
        for actor in actors:
            decision = await self._parts.guard.decide(actor, "tool.enable", name)
            if not decision.allow:
                await self._parts.events.record(denied, actors[0], name, {"reason": decision.reason})
                what = "Registering" if denied == "tool.registration_denied" else "Removing"
                advice = "An operator can permit it to a persona: `toolgate policy permit PERSONA`."
                raise Denied("PERMISSION_DENIED", f"{what} {name} is not permitted: {decision.reason}.", suggestion=advice)

    def _check_name(self, tool: Tool, *, replace: bool) -> None:
        parts, tenant = self._parts, tool.tenant or ""
        kept = why_kept(parts, tool.name)
        if kept is None and parts.team_tools.keeps(tool.name):
            kept = "the name is kept for a tool of the organisation"
        if kept is not None:
            raise DefinitionError(tool.name, [Fault("name", kept)], suggestion="Give it another name.")
        found = parts.catalog.find(tool.name, tenant)
        if found is not None and not (replace and found.tool.tenant == tenant):
            or_replace = ", or replace the tool that has it (--replace)" if found.tool.tenant == tenant else ""
            fault = Fault("name", "the name is taken")
            raise DefinitionError(tool.name, [fault], suggestion=f"Give it another name{or_replace}.")
        own = (name for holder, name in parts.catalog.tenant_names() if holder == tenant)
        withheld = (*parts.mcp_tools.withheld, *parts.openapi_tools.withheld, *parts.team_tools.names)
        other = look_alike(tool.name, (*parts.catalog.names(), *withheld, *own))
        if other is not None:
            raise DefinitionError(tool.name, [Fault("name", f"a reader would take it for {other}")])

    def _check_words(self, name: str, given: Mapping[str, Any]) -> None:
        """Refuses what looks like instructions to a model, or is hidden from a reader."""
        read = {field: value for field, value in given.items() if field not in UNSCREENED_FIELDS}
        warnings = suspicious(read)
        if warnings:
            faults = [Fault(where, f"it {words}") for where, _, words in (one.partition(": ") for one in warnings)]
            raise DefinitionError(name, faults, suggestion="Say what the tool does, in plain words, and nothing else.")

    def _check_url(self, tool: Tool, url: str) -> None:
        field = f"{tool.kind}.url"
        if "{{" in url:
            raise DefinitionError(tool.name, [Fault(field, "it cannot name a secret")])
        try:
            self._parts.tenants_http.check(url)
        except ToolgateError as error:
            raise DefinitionError(tool.name, [Fault(field, str(error))]) from None

    async def _pinned(self, tool: Tool) -> Tool:
        """A tool of an MCP server with the hash of the server's definition, if it takes what the registration says."""
        endpoint = tool.mcp
        if endpoint is None:
            return tool
        try:
            found = await self._parts.mcp_endpoints.definitions(tool)
        except CallError as error:
            raise DefinitionError(tool.name, [Fault("mcp.url", error.message)]) from None
        one = found.get(endpoint.tool)
        if one is None:
            names = ", ".join(cleaned(name)[:64] for name in sorted(found)[:MAX_NAMED_TOOLS]) or "none"
            raise DefinitionError(tool.name, [Fault("mcp.tool", f"the server has no such tool; it has: {names}")])
        theirs = orjson.loads(one.text)
        for field, key in (("input_schema", "inputSchema"), ("output_schema", "outputSchema")):
            said = getattr(tool, field)
            if said != theirs.get(key) and (field == "input_schema" or said is not None):
                schema = cleaned(orjson.dumps(theirs.get(key)).decode())
                raise DefinitionError(tool.name, [Fault(field, f"it must be the server's own: {schema[:20_000]}")])
        hints = theirs.get("annotations")
        stated = hints if isinstance(hints, dict) else {}
        raising = {name: True for name in ("destructiveHint", "openWorldHint") if stated.get(name) is True}
        return tool.model_copy(
            update={"mcp": endpoint.model_copy(update={"sha256": one.hash}), "annotations": {**tool.annotations, **raising}}
        )

    def _refusal(self, name: str, reason: str) -> ToolgateError:
        limits = self._parts.settings.registration
        if reason == "taken":
            fault = Fault("name", "the name is taken by a tool of source dynamic")
            return DefinitionError(name, [fault], suggestion="Give it another name, or replace that one.")
        if reason == "tools":
            words = f"This tenant has {limits.tools} registered tools, which is the most (setting registration.tools)."
            return Failed("CAPACITY_EXCEEDED", words, suggestion="Remove one that is not needed any more.")
        words = f"This tenant has registered {limits.per_hour} tools within an hour (setting registration.per_hour)."
        return Failed("CAPACITY_EXCEEDED", words, suggestion="Try again later.")


def _row(tool: Tool, actor: Actor, door: str) -> table.DynamicRow:
    endpoint = tool.target
    if tool.mcp is not None or tool.http is not None:
        endpoint = tool.mcp.url if tool.mcp is not None else tool.http.url if tool.http is not None else None
    elif tool.workflow is not None:
        endpoint = tool.workflow.webhook
    return table.DynamicRow(
        tool.name, actor.tenant, actor.persona, tool.kind, endpoint, orjson.dumps(tool.input_schema).decode(),
        tool.model_dump_json(), tool.enabled, actor.user, door,
    )  # fmt: skip
