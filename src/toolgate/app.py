"""App: settings made into stores, steps and one `Invoke`. The wiring, and the Python door.

async with App.open() as app:
    app.register(add)
    outcome = await app.invoke("add", {"a": 1, "b": 2})
"""

import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from toolgate.approval.consent import Consent
from toolgate.cache import ResultCache
from toolgate.context import Providers
from toolgate.errors import DefinitionError, Denied, Fault, NotOpen
from toolgate.execute.breaker import Breakers
from toolgate.execute.local import LocalRunner
from toolgate.execute.run import Execution, Runner
from toolgate.hooks import HookSet
from toolgate.idempotency import Idempotency
from toolgate.inputs import Inputs
from toolgate.invoke import Pipeline
from toolgate.ledger.artifacts import Artifacts
from toolgate.ledger.audit import Ledger
from toolgate.model import LOCAL, Actor, Call, Entry, Invoke, Outcome, Source, Tool, new_id
from toolgate.outputs import Outputs
from toolgate.policy.guard import Guard
from toolgate.quota.concurrency import Concurrency, Running
from toolgate.quota.rate import Rates
from toolgate.redact import Redactor
from toolgate.registry.catalog import Catalog, Problem, origin
from toolgate.registry.compile import Rules, compile_entry, definition, entry_of
from toolgate.registry.export import Shape, export
from toolgate.registry.keeper import Keeper
from toolgate.registry.sources import ToolSource
from toolgate.registry.sources.python import EntryPointSource, FolderSource, PackageSource
from toolgate.secrets import Secrets, from_environment
from toolgate.settings import Settings, load_settings
from toolgate.store import log
from toolgate.store.catalog import Flags
from toolgate.store.chain import START, Head, HeadFile, Verdict, Verifier
from toolgate.store.database import Store
from toolgate.store.open import open_store

if TYPE_CHECKING:
    from toolgate.ledger import telemetry

logger = logging.getLogger("toolgate")


class App:
    """Toolgate in one process. Made by `App.open`, used inside `async with`."""

    def __init__(self, settings: Settings, *, time_source: Any = time) -> None:
        self.settings = settings
        self._monotonic = time_source.monotonic
        self._opened = False
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
        self._rules = Rules(settings.tier_overrides, settings.max_execution_time)
        self.providers = Providers()
        self.hooks = HookSet()
        self.guard = Guard()
        self.redactor = Redactor(settings.sensitive_keys, settings.scan_secrets)
        self.catalog = Catalog(
            {name: tool.enabled for name, tool in settings.tools.items() if tool.enabled is not None},
            settings.enforcement.enforced_tools,
            self.guard.hidden_from,
        )
        self._keeper = Keeper(self.store, self.catalog, self._rules, self._use_flags)
        self.local = LocalRunner(limits.threads)
        self.breakers = Breakers(settings.breaker.failures, settings.breaker.reset_seconds, self._monotonic)
        runners: dict[str, Runner] = {"local": self.local}
        self.execution = Execution(runners, self.breakers)
        self.artifacts = Artifacts(self.store, limits.artifact_days, limits.artifact_bytes)
        self.ledger = Ledger(self.store)
        self.secrets = Secrets(from_environment())
        self.running = Running()
        pipeline = Pipeline(
            running=self.running,
            providers=self.providers,
            hooks=self.hooks,
            catalog=self.catalog,
            guard=self.guard,
            inputs=Inputs(limits.input_bytes),
            consent=Consent(),
            rates=Rates(self._monotonic),
            concurrency=Concurrency(limits.tenant_concurrency),
            idempotency=Idempotency(),
            redactor=self.redactor,
            cache=ResultCache(self._monotonic),
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
            for source in self._sources():
                self.load(source)
            await self._keeper.start()
        except BaseException:
            await self.store.close()
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
        await self._keeper.stop()
        for trouble in await self.execution.close():
            logger.warning("%s", trouble)
        try:
            await self.flush()
        finally:
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
        permitted = self.catalog.permitted(actor or LOCAL)
        return permitted if source is None else tuple(tool for tool in permitted if tool.source == source)

    async def export(self, shape: Shape, actor: Actor | None = None) -> list[dict[str, Any]]:
        """The permitted tools in the shape that a model or client takes."""
        actor = actor or LOCAL
        permitted = self.catalog.permitted(actor)
        return export((self.catalog.resolve(tool.name, actor.tenant) for tool in permitted), shape)

    async def register_dynamic(self, fields: Mapping[str, Any], actor: Actor | None = None) -> Tool:
        """Register a tool at run time, for the actor's tenant. Needs the permission tool.enable; survives a restart."""
        actor = actor or LOCAL
        tool = definition({**fields, "source": "dynamic", "tenant": actor.tenant})
        decision = self.guard.decide(actor, "tool.enable", tool.name)
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
        await self._keeper.allow_adding(persona, allowed)
        await self._note("persona.permissions", actor or LOCAL, "", {"for_persona": persona, "can_add_tools": allowed})

    async def refresh(self) -> None:
        """Take over now what other processes changed; it happens by itself every second."""
        await self._keeper.refresh()

    def _use_flags(self, flags: Flags) -> None:
        self.guard.use(flags.personas, flags.can_add_tools)

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
            entries = [self.catalog.resolve(tool.name, actor.tenant) for tool in self.catalog.permitted(actor)]
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
