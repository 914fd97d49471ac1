"""`app.policy`: the policy in force, the data that it decides by, and what another policy would have said."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from toolgate.app.facets import Facet
from toolgate.errors import Denied
from toolgate.model import LOCAL, Actor, Decision
from toolgate.store import catalog as table
from toolgate.tasks import uninterrupted

if TYPE_CHECKING:
    from toolgate.gates.policy.documents import PolicyData
    from toolgate.gates.policy.engine import Action, EmbeddedEngine, RemoteEngine
    from toolgate.gates.policy.replay import Replay


class PolicyFacet(Facet):
    """The policy in force."""

    @property
    def engine(self) -> "EmbeddedEngine | RemoteEngine":
        """The engine that decides: the policy in this process, or an OPA server."""
        return self._parts.guard.engine

    @property
    def data(self) -> "PolicyData":
        """The data that the policy decides by, as it holds now."""
        return self._parts.policy.data

    async def decide(self, actor: Actor, action: "Action", tool: str, **about: Any) -> Decision:
        """Gives what the policy says to an action, without doing it."""
        return await self._parts.guard.decide(actor, action, tool, **about)

    async def documents(self, tenant: str | None = None) -> dict[str, Any]:
        """Gives the data that the policy decides by: all of it, or the part that concerns one tenant."""
        data = self._parts.policy.data
        return data.whole() if tenant is None else data.of_tenant(tenant)

    async def reload(self) -> None:
        """Reads the policy's file again. One that is wrong is refused, and the policy in force stays."""
        await self._parts.policy.reload()

    async def replay(self, text: str, *, since: datetime | None = None, tenant: str | None = None) -> "Replay":
        """Gives what another policy, as Rego, would have said to the calls on record."""
        from toolgate.gates.policy.embedded_rego import EmbeddedRego
        from toolgate.gates.policy.replay import recorded_pages, replay

        await self._parts.store.flush()
        pages = recorded_pages(self._parts.store, since=since, tenant=tenant)
        return await replay(pages, EmbeddedRego(text), self._parts.policy.data)

    async def observed(self, *, since: datetime | None = None, tenant: str | None = None) -> "dict[str, Replay]":
        """Gives what the policies that are observed (`policy.observe`) would have changed, by the name of their files."""
        from toolgate.gates.policy.replay import observed, recorded_pages

        await self._parts.store.flush()
        return await observed(recorded_pages(self._parts.store, since=since, tenant=tenant))

    @uninterrupted
    async def deny(self, tool: str, denied: bool = True, *, reason: str | None = None, actor: Actor | None = None) -> None:
        """Denies a tool to everybody, also one that is not there yet; or takes that back."""
        if denied and self._parts.catalog.is_enforced(tool):
            raise Denied("PERMISSION_DENIED", f"Cannot deny tool: {tool} (enforced by enterprise policy).")
        await self._parts.store_sync.change(table.set_member("global_tool_deny", tool, denied, reason))
        await self._parts.events.record("policy.global_deny", actor or LOCAL, tool, {"denied": denied, "reason": reason})

    @uninterrupted
    async def restrict_code(
        self, tenant: str, restricted: bool = True, *, reason: str | None = None, actor: Actor | None = None
    ) -> None:
        """Forbids a tenant to execute code, or takes that back."""
        change = table.set_member("code_execution_restricted_tenants", tenant, restricted, reason)
        await self._parts.store_sync.change(change)
        details = {"for_tenant": tenant, "restricted": restricted}
        await self._parts.events.record("policy.code_execution", actor or LOCAL, "", details)

    @uninterrupted
    async def allow_adding_tools(self, persona: str, allowed: bool = True, *, actor: Actor | None = None) -> None:
        """Gives a persona the permission tool.enable, or takes it."""
        await self._parts.store_sync.change(table.set_can_add_tools(persona, allowed))
        details = {"for_persona": persona, "can_add_tools": allowed}
        await self._parts.events.record("persona.permissions", actor or LOCAL, "", details)
