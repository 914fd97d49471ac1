"""App: settings made into stores, steps and one `Invoke`. The wiring, and the Python door.

async with App.open() as app:
    app.register(add)
    outcome = await app.invoke("add", {"a": 1, "b": 2})
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import orjson

from toolgate.approval.consent import Consent
from toolgate.approval.request import Answer, Approval, Approver, Grant, GrantTerms, State
from toolgate.approval.tiers import TierRules, plan
from toolgate.bus.notices import DATA
from toolgate.bus.open import open_notices
from toolgate.bus.redis import Redis
from toolgate.cache import ResultCache
from toolgate.context import InvokeContext, Providers
from toolgate.errors import DefinitionError, Denied, Fault, NotOpen, ToolgateError
from toolgate.execute.breaker import Breakers
from toolgate.execute.local import LocalRunner
from toolgate.execute.run import Execution, Runner
from toolgate.hooks import HookSet
from toolgate.idempotency import Idempotency
from toolgate.inputs import Inputs
from toolgate.invoke import Pipeline
from toolgate.journal import Journal, Undone
from toolgate.ledger.artifacts import Artifacts
from toolgate.ledger.audit import Act, Ledger
from toolgate.model import LOCAL, Actor, Call, Entry, Invoke, Outcome, Source, Tool, new_id
from toolgate.outputs import Outputs
from toolgate.policy.documents import PolicyData, PolicyError
from toolgate.policy.guard import Guard
from toolgate.policy.open import open_engine, policy_text
from toolgate.policy.shared import SharedDecisions
from toolgate.quota.budget import Budgets
from toolgate.quota.concurrency import Concurrency, Running
from toolgate.quota.rate import Rates
from toolgate.quota.standing import BudgetStatus
from toolgate.redact import Redactor
from toolgate.registry.catalog import Catalog, Problem, origin
from toolgate.registry.compile import Rules, compile_entry, definition, entry_of
from toolgate.registry.export import Shape, export
from toolgate.registry.keeper import Keeper
from toolgate.registry.sources import ToolSource
from toolgate.registry.sources.python import EntryPointSource, FolderSource, PackageSource
from toolgate.secrets import Secrets, open_sources
from toolgate.settings import Settings, load_settings
from toolgate.store import budgets, log
from toolgate.store import catalog as table
from toolgate.store.budgets import BudgetRow, By, CostLine
from toolgate.store.catalog import Flags
from toolgate.store.chain import START, Head, HeadFile, Verdict, Verifier
from toolgate.store.database import Store, now
from toolgate.store.idempotency import KeyRow
from toolgate.store.open import open_store
from toolgate.store.presence import Presence

if TYPE_CHECKING:
    from toolgate.explain import Explanation
    from toolgate.ledger import telemetry
    from toolgate.policy.replay import Replay

Listener = Callable[[str, dict[str, Any]], None]

logger = logging.getLogger("toolgate")


class App:
    """Toolgate in one process. Made by `App.open`, used inside `async with`."""

    def __init__(self, settings: Settings, *, time_source: Any = time) -> None:
        self.settings = settings
        self._monotonic = time_source.monotonic
        self._opened = False
        self._flags = Flags()
        self._policy_watch: asyncio.Task[None] | None = None
        self._wire()

    @classmethod
    def open(cls, settings_or_path: Settings | str | os.PathLike[str] | None = None, /, **overrides: Any) -> "App":
        """Settings from a file (./toolgate.yaml if there is one), the environment and the arguments."""
        if isinstance(settings_or_path, Settings):
            return cls(settings_or_path.with_overrides(overrides) if overrides else settings_or_path)
        return cls(load_settings(settings_or_path, overrides))

    def _wire(self) -> None:
        settings, limits = self.settings, self.settings.limits
        head = None if settings.in_memory else settings.audit_head_file or settings.home / "audit.head"
        self._head_file = HeadFile(head) if head else None
        self.store: Store = open_store(settings.database, head)
        self.redis = Redis(settings.redis_url) if settings.redis_url else None
        self.notices = open_notices(settings.database, self.redis)
        self.presence = Presence(self.store, limits.lease_seconds)
        self.tiers = TierRules(
            sensitive=(*settings.paths.sensitive, *settings.own_files),
            allowed=settings.paths.allowed,
            home=None if settings.in_memory else settings.home,
            allow=settings.commands.allow,
            deny=settings.commands.deny,
        )
        self._rules = Rules(settings.tier_overrides, settings.max_execution_time, plan)
        self.providers = Providers()
        self.hooks = HookSet()
        self.guard = Guard(
            open_engine(settings.policy, settings.opa_url),
            monotonic=self._monotonic,
            seconds=settings.policy.permission_seconds,
            shared=None if self.redis is None else SharedDecisions(self.redis),
        )
        self.redactor = Redactor(settings.sensitive_keys, settings.scan_secrets)
        self.catalog = Catalog(
            {name: tool.enabled for name, tool in settings.tools.items() if tool.enabled is not None},
            settings.enforcement.enforced_tools,
            lambda actor: self.guard.hidden_from(actor) if self.guard.native else (),
        )
        self._keeper = Keeper(
            self.store, self.catalog, self._rules, self._use, self._announce_change,
            min(settings.policy.enabled_seconds, settings.policy.schema_seconds),
        )  # fmt: skip
        self.local = LocalRunner(limits.threads)
        self.breakers = Breakers(settings.breaker.failures, settings.breaker.reset_seconds, self._monotonic, self.redis)
        runners: dict[str, Runner] = {"local": self.local}
        self.execution = Execution(runners, self.breakers)
        self.artifacts = Artifacts(self.store, limits.artifact_days, limits.artifact_bytes)
        self.ledger = Ledger(self.store)
        sources = open_sources(
            None if settings.in_memory else settings.home, file=settings.secrets.file, keyring=settings.secrets.keyring
        )
        self.secrets = Secrets(*sources, tools=settings.secrets.tools)
        self.journal = Journal(self.store, settings.home / "backups", limits.backup_bytes, limits.backup_days)
        self.providers.everywhere[Journal] = self.journal
        self.budgets = Budgets(
            self.store,
            self.presence,
            external_api_daily=settings.budgets.external_api_daily,
            timezone=settings.budgets.timezone,
            announce=self._tell,
        )
        self.consent = Consent(
            self.store,
            policy_hash=lambda: self.guard.policy_hash,
            expire_seconds=settings.approvals.expire_seconds,
            note=self._note,
            validate=self._canonical,
            mask=self._masked,
        )
        self.idempotency = Idempotency(self.store, self.presence, keep_days=limits.key_days)
        self.running = Running()
        self._listeners: list[Listener] = []
        pipeline = self._pipeline = Pipeline(
            running=self.running,
            notices=self.notices,
            refresh=self._keeper.refresh,
            providers=self.providers,
            hooks=self.hooks,
            catalog=self.catalog,
            guard=self.guard,
            inputs=Inputs(limits.input_bytes),
            tiers=self.tiers,
            consent=self.consent,
            rates=Rates(self._monotonic, settings.rate_limits, self.redis),
            budgets=self.budgets,
            concurrency=Concurrency(limits.tenant_concurrency, self.redis, limits.lease_seconds),
            idempotency=self.idempotency,
            redactor=self.redactor,
            cache=ResultCache(self._monotonic, redis=self.redis),
            secrets=self.secrets,
            execution=self.execution,
            outputs=Outputs(limits.output_string, limits.output_items, limits.output_bytes),
            artifacts=self.artifacts,
            ledger=self.ledger,
        )
        self._invoke: Invoke = pipeline.__call__
        self._observe()

    def _observe(self) -> None:
        """Metrics and spans, if they are wanted. Off, nothing of them is even imported."""
        self.metrics: telemetry.CallMetrics | None = None
        if not (self.settings.metrics or self.settings.tracing):
            return
        import toolgate.ledger.telemetry as extra

        if self.settings.metrics:
            self.metrics = extra.CallMetrics()
            self.hooks.add(self.metrics)
        if self.settings.tracing:
            self.hooks.add(extra.Tracing())

    # -- life

    async def __aenter__(self) -> Self:
        if self._head_file is not None:
            with contextlib.suppress(OSError):
                self._head_file.path.parent.mkdir(parents=True, exist_ok=True)
        await self.store.start()
        try:
            await self.notices.start()
            for source in self._sources():
                self.load(source)
            await self._keeper.start()
            self._policy_watch = asyncio.create_task(self._watch_policy())
        except BaseException:
            await self._close()
            raise
        self._opened = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened = False
        await self.running.wait(self.settings.shutdown_seconds)
        if self.running.count:
            logger.warning("%d calls still run and are left behind", self.running.count)
        for trouble in await self.execution.close():
            logger.warning("%s", trouble)
        try:
            await self.flush()
        finally:
            await self._close()

    async def _close(self) -> None:
        if self._policy_watch is not None:
            self._policy_watch.cancel()
        await self._keeper.stop()
        await self.budgets.close()
        await self.idempotency.close()
        await self._pipeline.concurrency.close()
        await self.presence.leave()
        await self.notices.close()
        if self.guard.engine.remote is True:
            await self.guard.engine.close()
        if self.redis is not None:
            await self.redis.close()
        await self.store.close()

    def _sources(self) -> list[ToolSource]:
        settings = self.settings
        rules = self._rules
        sources: list[ToolSource] = [PackageSource("toolgate.tools", "builtin", rules)]
        if settings.entry_points:
            sources.append(EntryPointSource(rules))
        if settings.auto_load_custom_tools and not settings.enforcement.disable_local_tools:
            sources.extend(FolderSource(folder, rules) for folder in settings.python_folders)
        return sources

    # -- calling tools

    def invoke(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | bytes | None = None,
        *,
        actor: Actor | None = None,
        session: str | None = None,
        idempotency_key: str | None = None,
        approval: str | None = None,
        timeout: float | None = None,
        door: str = "python",
    ) -> Awaitable[Outcome]:
        """Call a tool: await this. Whatever the tool, a hook, a gate or the arguments do, it gives an outcome."""
        if not self._opened:
            raise NotOpen
        if actor is None:
            actor = LOCAL
        elif type(actor) is not Actor:
            raise TypeError(f"actor must be an Actor, not a {type(actor).__name__}")
        if timeout is not None and not (isinstance(timeout, int | float) and 0 < timeout < float("inf")):
            raise ValueError(f"timeout must be a number of seconds above 0, not {timeout!r}")
        if session is not None and not isinstance(session, str):
            raise TypeError(f"session must be text, not a {type(session).__name__}")
        call = Call(new_id(), name, arguments, actor, session, idempotency_key, approval, timeout, None, 0, door)
        return self._invoke(call)

    # -- the registry

    def register(self, code: Any, *, source: Source = "python") -> Tool:
        """Put a tool into the catalog: something declared with `@tool`, or an `Entry` that a source made."""
        entry = code if isinstance(code, Entry) else entry_of(code, source, self._rules)
        self.catalog.add(entry)
        self.guard.forget()
        self._keeper.remember(entry)
        return entry.tool

    def register_many(self, codes: Iterable[Any]) -> None:
        for code in codes:
            self.register(code)

    def load(self, source: ToolSource) -> None:
        """Take all tools of a source. What can't be taken is noted in `problems`, the rest is in the catalog."""
        for loaded in source.load():
            if isinstance(loaded, Problem):
                self.catalog.note(loaded)
                continue
            try:
                self.register(loaded)
            except DefinitionError as error:
                self.catalog.note(Problem(origin(loaded), str(error)))

    @property
    def problems(self) -> list[Problem]:
        """The tools that could not be loaded, and why."""
        return self.catalog.problems

    async def tools(self, actor: Actor | None = None, source: Source | None = None) -> tuple[Tool, ...]:
        """The tools that an actor may see, by name."""
        permitted = await self._permitted(actor or LOCAL)
        return permitted if source is None else tuple(tool for tool in permitted if tool.source == source)

    async def _permitted(self, actor: Actor) -> tuple[Tool, ...]:
        if self.notices.changed():
            await self.notices.catch_up(self._keeper.refresh)
        enabled = self.catalog.permitted(actor)
        if self.guard.native:
            return enabled
        seen = set(await self.guard.permitted(actor, [tool.name for tool in enabled]))
        return tuple(tool for tool in enabled if tool.name in seen)

    async def export(self, shape: Shape, actor: Actor | None = None) -> list[dict[str, Any]]:
        """The permitted tools in the shape that a model or client takes."""
        actor = actor or LOCAL
        permitted = await self._permitted(actor)
        return export((self.catalog.resolve(tool.name, actor.tenant) for tool in permitted), shape)

    async def register_dynamic(self, fields: Mapping[str, Any], actor: Actor | None = None) -> Tool:
        """Register a tool at run time, for the actor's tenant. Needs the permission tool.enable; survives a restart."""
        actor = actor or LOCAL
        tool = definition({**fields, "source": "dynamic", "tenant": actor.tenant})
        decision = await self.guard.decide(actor, "tool.enable", tool.name)
        if not decision.allow:
            await self._note("tool.registration_denied", actor, tool.name, {"reason": decision.reason})
            raise Denied("PERMISSION_DENIED", f"Registering {tool.name} is not permitted: {decision.reason}.")
        if tool.kind not in self.execution.runners or tool.kind == "local":
            kinds = ", ".join(sorted(set(self.execution.runners) - {"local"})) or "none yet"
            raise DefinitionError(
                tool.name, [Fault("kind", f"a dynamic tool must say how it runs; {tool.kind!r} can't (possible: {kinds})")]
            )
        entry = compile_entry(tool, None, (), self._rules)
        await self._keeper.add_dynamic(entry, actor)
        await self._note("tool.registered", actor, tool.name, {"fingerprint": entry.fingerprint})
        return tool

    def add_runner(self, kind: str, runner: Runner) -> None:
        """Say how tools of a kind are run."""
        self.execution.runners[kind] = runner

    # -- flags

    async def set_enabled(
        self,
        tool: str,
        enabled: bool | None,
        *,
        tenant: str | None = None,
        persona: str | None = None,
        reason: str | None = None,
        actor: Actor | None = None,
    ) -> None:
        """Switch a tool for everybody, for a tenant, or for a persona. None takes the flag away again."""
        actor = actor or LOCAL
        if tenant is not None and persona is not None:
            raise ValueError("a flag is for a tenant or for a persona, not for both")
        entry = self.catalog.resolve(tool, actor.tenant)
        if tenant is None and persona is None:
            tenant = entry.tool.tenant  # for all who have it: of a dynamic tool that is one tenant
        if not enabled and enabled is not None and self.catalog.is_enforced(tool):
            raise Denied("PERMISSION_DENIED", f"Cannot disable tool: {tool} (enforced by enterprise policy).")
        await self._keeper.switch(entry, enabled, tenant=tenant, persona=persona, reason=reason, by=actor.user)
        action = {None: "tool.flag_removed", True: "tool.enabled", False: "tool.disabled"}[enabled]
        await self._note(action, actor, tool, {"for_tenant": tenant, "for_persona": persona, "reason": reason})

    async def set_tenant_flags(self, flags: Iterable[tuple[str, str, bool | None]], actor: Actor | None = None) -> None:
        """Many flags of tenants at once: (tenant, tool, enabled). Recorded as one act, with the first hundred of them."""
        listed = list(flags)
        await self._keeper.switch_many(listed)
        await self._note("tenant.flags", actor or LOCAL, "", {"count": len(listed), "flags": listed[:100]})

    async def allow_adding_tools(self, persona: str, allowed: bool = True, *, actor: Actor | None = None) -> None:
        """Give a persona the permission tool.enable, or take it."""
        await self._keeper.change(table.set_can_add_tools(persona, allowed))
        await self._note("persona.permissions", actor or LOCAL, "", {"for_persona": persona, "can_add_tools": allowed})

    async def refresh(self) -> None:
        """Take over now what other processes changed; it happens by itself before the next call."""
        await self._keeper.refresh()

    # -- policy

    async def set_global_deny(
        self, tool: str, denied: bool = True, *, reason: str | None = None, actor: Actor | None = None
    ) -> None:
        """Deny a tool to everybody, also one that is not there yet; or take that back."""
        await self._keeper.change(table.set_member("global_tool_deny", tool, denied, reason))
        await self._note("policy.global_deny", actor or LOCAL, tool, {"denied": denied, "reason": reason})

    async def restrict_code_execution(
        self, tenant: str, restricted: bool = True, *, reason: str | None = None, actor: Actor | None = None
    ) -> None:
        """Forbid a tenant to execute code, or take that back."""
        await self._keeper.change(table.set_member("code_execution_restricted_tenants", tenant, restricted, reason))
        await self._note("policy.code_execution", actor or LOCAL, "", {"for_tenant": tenant, "restricted": restricted})

    async def policy_documents(self) -> dict[str, Any]:
        """The data that the policy decides by."""
        return self.policy_data.whole()

    async def replay_policy(self, text: str, *, since: datetime | None = None, tenant: str | None = None) -> "Replay":
        """What another policy would have said to the calls on record."""
        from toolgate.policy.rego import EmbeddedRego
        from toolgate.policy.replay import recorded_pages, replay

        await self.flush()
        return await replay(recorded_pages(self.store, since=since, tenant=tenant), EmbeddedRego(text), self.policy_data)

    async def explain(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | bytes | None = None,
        *,
        actor: Actor | None = None,
        session: str | None = None,
    ) -> "Explanation":
        """What every gate would say to a call, without making it."""
        from toolgate.explain import explain

        if self.notices.changed():
            await self.notices.catch_up(self._keeper.refresh)
        return await explain(self._pipeline, Call(new_id(), name, arguments, actor or LOCAL, session))

    async def reload_policy(self) -> None:
        """Read the policy's file again. One that is wrong is refused, and the policy in force stays."""
        if self.guard.engine.remote is False:
            self.guard.set_engine(open_engine(self.settings.policy, None))
        await self._push_policy()

    async def _watch_policy(self) -> None:
        """Take a changed policy file without a restart, and push again what an OPA server did not take."""
        file, engine = self.settings.policy.file, self.guard.engine
        known = _stamp(file)
        while file is not None or self.settings.policy.push:
            await asyncio.sleep(1)
            if (found := _stamp(file)) != known:
                known = found
                try:
                    await self.reload_policy()
                except ToolgateError as error:
                    logger.error("the changed policy is not used, the one before stays in force: %s", error)
            elif engine.remote is True and not engine.is_ready:
                await self._push_policy()

    async def _use(self, found: Flags, limits: list[BudgetRow]) -> None:
        """Take what the store says now."""
        self._flags = found
        self._use_policy_data()
        self.budgets.use(limits)
        await self._push_policy()

    def _use_policy_data(self) -> None:
        found = self._flags
        self.policy_data = PolicyData(
            catalog=self.catalog.policy_entry,
            names=self.catalog.names,
            tenants=found.tenants,
            personas=found.personas,
            can_add_tools=found.can_add_tools,
            global_deny=found.global_deny,
            restricted_tenants=found.restricted_tenants,
            enforced=self.settings.enforcement.enforced_tools,
            tenant_names=self.catalog.tenant_names,
            epoch=found.epoch,
        )
        self.guard.use(self.policy_data)

    async def _push_policy(self) -> None:
        """Give an OPA server what it is to decide by. If it does not take it, it denies everything until it does."""
        engine = self.guard.engine
        if not (self.settings.policy.push and engine.remote is True):
            return
        try:
            await engine.push(policy_text(self.settings.policy), self.policy_data.whole())
        except PolicyError as error:
            logger.error("%s", error)
        self.guard.forget()

    async def _announce_change(self) -> None:
        await self.notices.announce(DATA)

    # -- approvals and grants

    def add_approver(self, approver: Approver) -> None:
        """Attach somebody who can be asked: a function that is given an ApprovalRequest and gives an Answer, True, False,
        or None for "I can't say". Where nobody answers, a call that must be asked about ends as pending."""
        self.consent.add(approver)

    async def approvals(self, *, state: State | None = "waiting", actor: Actor | None = None) -> list[Approval]:
        """The questions of the actor's tenant, oldest first."""
        return await self.consent.list((actor or LOCAL).tenant, state)

    async def answer_approval(
        self, id: str, answer: Answer | bool, *, actor: Actor | None = None, through: str = "python"
    ) -> Approval:
        """Approve, edit or reject a call that waits. It runs when it is called again with `approval=id`, or by `resume`."""
        if isinstance(answer, bool):
            answer = Answer("approve" if answer else "reject")
        return await self.consent.answer(id, answer, actor or LOCAL, through)

    async def resume(self, id: str, *, actor: Actor | None = None, door: str = "python") -> Outcome:
        """Run a call that was approved, as the actor that made it."""
        if not self._opened:
            raise NotOpen
        waiting = await self.consent.show(id, (actor or LOCAL).tenant)
        asked = waiting.request
        return await self._invoke(
            Call(new_id(), asked.tool, None, asked.actor, asked.session, waiting.idempotency_key, id, door=door)
        )

    async def grant(
        self,
        tool: str,
        terms: GrantTerms,
        *,
        actor: Actor | None = None,
        session: str | None = None,
        reason: str | None = None,
        by: Actor | None = None,
    ) -> Grant:
        """Agree ahead of time to calls of a tool by an actor; never to destructive ones."""
        actor = actor or LOCAL
        entry = self.catalog.resolve(tool, actor.tenant)
        return await self.consent.make_grant(entry, terms, actor, by or actor, session=session, reason=reason)

    async def grants(self, *, active: bool = True, actor: Actor | None = None) -> list[Grant]:
        """The grants of the actor's tenant: those that hold now, or all that there were."""
        return await self.consent.list_grants((actor or LOCAL).tenant, active=active)

    async def revoke_grant(self, id: str, *, actor: Actor | None = None) -> Grant:
        """Take a grant back: it holds for no call from now on, in any process."""
        return await self.consent.revoke(id, actor or LOCAL)

    def _canonical(self, tool: str, tenant: str, arguments: dict[str, Any]) -> bytes:
        """Arguments that a person edited, as they would run; raises a CallError if they do not fit the tool."""
        entry = self.catalog.resolve(tool, tenant)
        ctx = InvokeContext(Call("", tool, arguments), self.providers, self._invoke, 0, 0.0)
        self._pipeline.inputs.validate(ctx, entry)
        self._pipeline.inputs.normalize(ctx, entry)
        if entry.guards is not None:
            self.tiers.check(entry, ctx.arguments)
        return ctx.canonical

    async def _masked(self, tool: str, tenant: str, canonical: bytes) -> bytes:
        """Arguments as records may hold them."""
        arguments = orjson.loads(canonical)
        if not self.redactor.ready:
            await self.redactor.prepare(arguments)
        return self.redactor.arguments(canonical, arguments, self.catalog.resolve(tool, tenant).public_input, ())

    # -- money

    async def set_budget(self, budget: BudgetRow, *, actor: Actor | None = None) -> None:
        """Set a budget, or change the one of the same id."""
        await self._keeper.change(budgets.set_budget(budget))
        await self._note("budget.set", actor or LOCAL, budget.tool or "", {"budget": budget._asdict()})

    async def remove_budget(self, id: str, *, actor: Actor | None = None) -> bool:
        """Remove a budget; gives whether there was one."""
        removed = await self._keeper.change(budgets.remove_budget(id))
        if removed:
            await self._note("budget.removed", actor or LOCAL, "", {"budget": id})
        return removed

    async def budget_status(self, tenant: str | None = None) -> list[BudgetStatus]:
        """How every budget stands."""
        return await self.budgets.status(tenant)

    async def costs(self, by: By = "tool", *, since: datetime | None = None, tenant: str | None = None) -> list[CostLine]:
        """What calls have cost: by tool, user, persona, tenant or day; in the last thirty days if nothing is said."""
        return await self.budgets.costs(by, since or now() - timedelta(days=30), tenant)

    # -- keys, backups, listeners

    async def unsettled_keys(self, tenant: str | None = None) -> list[KeyRow]:
        """Idempotency keys whose call began and of which nobody knows how it ended: of a tenant, or of all."""
        return await self.idempotency.unsettled(tenant)

    async def settle_key(self, key: str, *, happened: bool, output: Any = None, actor: Actor | None = None) -> KeyRow:
        """Say whether the call with this key had its effect. If it had, callers are given `output`; if not, the key is
        free again."""
        actor = actor or LOCAL
        found = await self.idempotency.settle(actor.tenant, actor.user, key, happened=happened, output=output, by=actor.user)
        details = {"key": key, "happened": happened, "call": found.holder.call_id}
        await self._note("idempotency.settled", actor, found.holder.tool, details)
        return found

    async def undo(self, call_id: str, *, actor: Actor | None = None, force: bool = False) -> list[Undone]:
        """Put back the files that a call changed."""
        undone = await self.journal.undo(call_id, actor or LOCAL, force)
        details = {"call": call_id, "force": force, "count": len(undone), "paths": [one.path for one in undone[:100]]}
        await self._note("call.undone", actor or LOCAL, "", details)
        return undone

    def add_listener(self, listener: Listener) -> None:
        """Have something called with the name and the fields of what happens: budget.alert."""
        self._listeners.append(listener)

    def _tell(self, event: str, fields: dict[str, Any]) -> None:
        """Put something that happened on record, and tell who listens."""
        self.store.append(Act(time.time_ns(), new_id(), event, LOCAL, "", fields))
        for listener in self._listeners:
            try:
                listener(event, fields)
            except Exception:  # somebody else's code
                logger.exception("a listener failed on %s", event)

    # -- what is on record

    async def _note(self, action: str, actor: Actor, tool: str, details: dict[str, Any]) -> None:
        await self.ledger.act(action, actor, tool, details, at=time.time_ns(), id=new_id())

    async def flush(self) -> None:
        """Wait until everything that happened so far is on disk."""
        await self._keeper.save()
        await self.store.flush()

    async def token_costs(self, actor: Actor | None = None) -> dict[str, int]:
        """What each tool's definition costs a model to read: of all tools, or of those that an actor may see. Counted, or
        estimated where no tokenizer is installed (`registry.tokens.is_exact`)."""
        entries = self.catalog.entries()
        if actor is not None:
            entries = [self.catalog.resolve(tool.name, actor.tenant) for tool in await self._permitted(actor)]
        return await self._keeper.token_costs(entries)

    async def verify_audit(self) -> Verdict:
        """Walk the whole audit log and compare it with the head noted outside the database."""
        await self.store.flush()
        noted = self._head_file.read() if self._head_file is not None else None
        return await log.verify(self.store, Verifier(noted))

    async def audit_heads(self) -> tuple[Head | None, Head]:
        """The last head noted outside the database, and where the log ends: what can be seen without walking it."""
        return self._head_file.last() if self._head_file is not None else None, await self.audit_end()

    async def audit_end(self) -> Head:
        """Where the log ends."""
        rows = await self.store.read(log.latest(1))
        return Head(rows[-1][0], rows[-1][-1]) if rows else START

    # -- extension

    def add_hook(self, hook: Any) -> None:
        """Add a hook to every call."""
        self.hooks.add(hook)

    def provide(
        self,
        token: Any,
        instance: Any,
        scope: Literal["global", "session"] = "global",
        *,
        session: str | None = None,
        tenant: str = LOCAL.tenant,
    ) -> None:
        """Offer an instance to tools and hooks: to all calls, to every session, or to one session of a tenant."""
        if scope == "global":
            self.providers.everywhere[token] = instance
        elif scope == "session":
            held = self.providers.every_session if session is None else self.providers.session(tenant, session)
            held[token] = instance
        else:
            raise ValueError(f"scope must be 'global' or 'session', not {scope!r}")


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    """What changes when a file does; None if there is none, or it can't be looked at."""
    if file is None:
        return None
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
