"""`app.policy`: the policy in force, the data that it decides by, and what another policy would have said."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from toolgate.app.facets import Facet, acting_for, check_named
from toolgate.errors import Denied
from toolgate.gates.policy.documents import ALLOW_LIST_KEYS, ALLOW_LIST_SCHEMA, Documents, PolicyError, told_faults
from toolgate.model import LOCAL, Actor, Decision
from toolgate.store import catalog as table
from toolgate.tasks import uninterrupted

if TYPE_CHECKING:
    from toolgate.gates.policy.documents import PolicyData
    from toolgate.gates.policy.engine import Action, EmbeddedEngine, RemoteEngine
    from toolgate.gates.policy.replay import Replay
    from toolgate.gates.policy.suggestion import PolicySuggestion


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

    def personas(self) -> list[str]:
        """Gives the personas that flags or the policy's data name, by name: for whoever runs this installation."""
        data = self._parts.policy.data
        return sorted({*data.personas, *(persona for one in data.allow_lists.values() for persona in one.personas)})

    async def replay(
        self,
        text: str | None = None,
        *,
        data: Documents | None = None,
        since: datetime | None = None,
        tenant: str | None = None,
    ) -> "Replay":
        """Gives what another policy, as Rego, or other data would have said to the calls on record. It decides in a process
        of its own. Documents that `data` leaves out, and allow lists of tenants that it does not name, are those in force.
        Raises PolicyError for what can't be used, or takes too long or too much memory."""
        from toolgate.app.policy_trial import TriedPolicy, candidate_documents
        from toolgate.gates.policy.replay import recorded_pages, replay

        documents = candidate_documents(self._parts.policy.data.whole(), {} if data is None else data)
        candidate = TriedPolicy(self._text() if text is None else text, documents)
        await self._parts.store.flush()
        pages = recorded_pages(self._parts.store, since=since, tenant=tenant)
        return await replay(pages, candidate, self._parts.policy.data)

    def _text(self) -> str:
        text = getattr(self._parts.guard.engine, "text", None)
        if not isinstance(text, str):
            raise PolicyError(
                "An OPA server decides here, and its policy is not known.", suggestion="Name a policy: a Rego file."
            )
        return text

    async def suggest(self, *, tenant: str | None = None, persona: str | None = None, days: int = 30) -> "PolicySuggestion":
        """Gives the smallest data that would have allowed what was used in the last days: allow lists for a tenant, or for
        all, and rules on arguments whose values were few. With a persona (empty: callers without one), only its list is made
        again. Nothing is applied: `replay` shows what it would change, `set_allow_list` applies it."""
        from toolgate.app.policy_suggestion import suggest

        return await suggest(self._parts, tenant, persona, days)

    @uninterrupted
    async def set_allow_list(
        self, tenant: str, document: Documents | None, *, reason: str | None = None, actor: Actor | None = None
    ) -> None:
        """Leaves the callers of a tenant the tools on a list, and no others: a document `{personas, no_persona, everybody,
        unlisted_personas}` as in the policy's data. None takes the list away. Raises PolicyError for a malformed one."""
        faults = [] if document is None else told_faults(ALLOW_LIST_SCHEMA, document, "is unknown", ALLOW_LIST_KEYS)
        if faults:
            raise PolicyError(f"The allow list is refused: {'; '.join(faults)}.")
        if document is not None:
            check_named(tenant=tenant)
            for persona in document["personas"]:
                check_named(persona=persona)
        await self._parts.store_sync.change(table.set_allow_list(tenant, document))
        details = {"for_tenant": tenant, "allow_list": document, "reason": reason}
        await self._parts.events.record("policy.allow_list", actor or acting_for(tenant), "", details)

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
        if restricted:
            check_named(tenant=tenant)
        change = table.set_member("code_execution_restricted_tenants", tenant, restricted, reason)
        await self._parts.store_sync.change(change)
        details = {"for_tenant": tenant, "restricted": restricted}
        await self._parts.events.record("policy.code_execution", actor or acting_for(tenant), "", details)

    @uninterrupted
    async def allow_adding_tools(self, persona: str, allowed: bool = True, *, actor: Actor | None = None) -> None:
        """Gives a persona the permission tool.enable, or takes it."""
        if allowed:
            check_named(persona=persona)
        await self._parts.store_sync.change(table.set_can_add_tools(persona, allowed))
        details = {"for_persona": persona, "can_add_tools": allowed}
        await self._parts.events.record("persona.permissions", actor or LOCAL, "", details)
