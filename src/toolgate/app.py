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
from collections.abc import Awaitable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import orjson

from toolgate.approval.consent import Consent
from toolgate.cache import ResultCache
from toolgate.context import Providers
from toolgate.errors import DefinitionError, Denied, Fault, NotOpen, StoreError
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
from toolgate.quota.concurrency import Concurrency
from toolgate.quota.rate import Rates
from toolgate.redact import Redactor
from toolgate.registry.catalog import Catalog, Problem, origin
from toolgate.registry.compile import Rules, compile_entry, definition, entry_of
from toolgate.registry.export import Shape, export
from toolgate.registry.sources import ToolSource
from toolgate.registry.sources.python import EntryPointSource, FolderSource, PackageSource
from toolgate.registry.tokens import count_tokens, definition_text, is_exact
from toolgate.secrets import Secrets, from_environment
from toolgate.settings import Settings, load_settings
from toolgate.store import catalog as catalog_table
from toolgate.store import log
from toolgate.store.chain import START, Head, HeadFile, Verdict, Verifier
from toolgate.store.database import Store
from toolgate.store.open import open_store

if TYPE_CHECKING:
    from toolgate.ledger import telemetry

POLL_SECONDS = 1.0
"""How often another process's changes to flags are looked for."""

logger = logging.getLogger("toolgate")


class App:
    """Toolgate in one process. Made by `App.open`, used inside `async with`."""

    def __init__(self, settings: Settings, *, time_source: Any = time) -> None:
        self.settings = settings
        self._monotonic = time_source.monotonic
        self._opened = False
        self._unsaved: dict[str, Entry] = {}
        self._saving: asyncio.Task[None] | None = None
        self._one_save = asyncio.Lock()
        self._polling: asyncio.Task[None] | None = None
        self._epoch = 0
        self._wire()

    @classmethod
    def open(cls, settings_or_path: Settings | str | os.PathLike[str] | None = None, /, **overrides: Any) -> "App":
        """Settings from a file (./toolgate.yaml if there is one), the environment and the arguments."""
        if isinstance(settings_or_path, Settings):
            merged = settings_or_path.model_dump(exclude_unset=True) | overrides
            return cls(load_settings(os.devnull, merged, {}) if overrides else settings_or_path)
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
            self.guard.may_view,
        )
        self.local = LocalRunner(limits.threads)
        self.breakers = Breakers(settings.breaker.failures, settings.breaker.reset_seconds, self._monotonic)
        runners: dict[str, Runner] = {"local": self.local}
        self.execution = Execution(runners, self.breakers)
        self.artifacts = Artifacts(self.store, limits.artifact_days, limits.artifact_bytes)
        self.ledger = Ledger(self.store)
        self.secrets = Secrets(from_environment())
        pipeline = Pipeline(
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
            await self._save()
            await self._refresh()
        except BaseException:
            await self.store.close()
            raise
        self._opened = True
        self._polling = asyncio.create_task(self._poll())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened = False
        if self._polling is not None:
            self._polling.cancel()
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
        call = Call(new_id(), name, arguments, actor, session, idempotency_key, approval, timeout, None, 0, door)
        return self._invoke(call)

    # -- the registry

    def register(self, code: Any, *, source: Source = "python") -> Tool:
        """Put a tool into the catalog: something declared with `@tool`, or an `Entry` that a source made."""
        entry = code if isinstance(code, Entry) else entry_of(code, source, self._rules)
        self.catalog.add(entry)
        self._unsaved[entry.tool.name] = entry
        if self._opened and (self._saving is None or self._saving.done()):
            self._saving = asyncio.create_task(self._save_soon())
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
        self.catalog.add(entry)
        row = catalog_table.DynamicRow(
            tool.name, actor.tenant, actor.persona, tool.kind, tool.target,
            orjson.dumps(tool.input_schema).decode(), tool.model_dump_json(), tool.enabled,
        )  # fmt: skip
        try:
            self._unsaved[tool.name] = entry  # flags refer to a row of the catalog
            await self._save()
            await self.store.transact(catalog_table.add_dynamic(row))
        except StoreError:
            self.catalog.remove(tool.name, actor.tenant)
            raise
        await self._note("tool.registered", actor, tool.name, {"fingerprint": entry.fingerprint})
        await self._refresh()
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
        await self._save()
        if tenant is not None:
            await self.store.transact(catalog_table.set_tenant_flags([(tenant, tool, enabled)]))
        elif persona is not None:
            await self.store.transact(catalog_table.set_persona_restriction(persona, tool, enabled is not False, reason))
        else:
            on, by = (entry.tool.enabled, None) if enabled is None else (enabled, actor.user)
            await self.store.transact(catalog_table.set_enabled(tool, on, by))
        action = "tool.disabled" if enabled is False else "tool.enabled"
        await self._note(action, actor, tool, {"for_tenant": tenant, "for_persona": persona, "reason": reason})
        await self._refresh()

    async def set_tenant_flags(self, flags: Iterable[tuple[str, str, bool | None]]) -> None:
        """Many flags of tenants at once: (tenant, tool, enabled)."""
        await self._save()
        await self.store.transact(catalog_table.set_tenant_flags(flags))
        await self._refresh()

    async def allow_adding_tools(self, persona: str, allowed: bool = True) -> None:
        """Give a persona the permission tool.enable, or take it."""
        await self.store.transact(catalog_table.set_can_add_tools(persona, allowed))
        await self._note("persona.permissions", LOCAL, "", {"persona": persona, "can_add_tools": allowed})
        await self._refresh()

    async def _refresh(self) -> None:
        flags, dynamic = await self.store.read(catalog_table.all_of_it())
        if flags.epoch < self._epoch:
            return  # another refresh has overtaken this one
        self._epoch = flags.epoch
        self.guard.use(flags.personas, flags.can_add_tools)
        self._use_dynamic([row for row in dynamic if row.enabled])
        self.catalog.use_flags(flags)

    def _use_dynamic(self, rows: list[catalog_table.DynamicRow]) -> None:
        known = {(entry.tool.tenant, entry.name) for entry in self.catalog.dynamic()}
        for row in rows:
            if (row.tenant, row.name) not in known:
                try:
                    self.catalog.add(compile_entry(definition(orjson.loads(row.definition)), None, (), self._rules))
                except (DefinitionError, ValueError) as error:
                    self.catalog.note(Problem(f"dynamic tool {row.name} of tenant {row.tenant}", str(error)))
        for tenant, name in known - {(row.tenant, row.name) for row in rows}:
            self.catalog.remove(name, tenant)

    async def _poll(self) -> None:
        """See what other processes change."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                if await self.store.read(catalog_table.epoch()) != self._epoch:
                    await self._refresh()
            except StoreError as error:
                logger.warning("flags could not be read: %s", error)

    # -- what is on record

    async def _save_soon(self) -> None:
        await asyncio.sleep(0)
        try:
            await self._save()
        except StoreError as error:
            logger.warning("tools could not be put on record yet: %s", error)

    async def _save(self) -> None:
        """Put registered tools on record, with what they cost a model to read; those that have not changed are let be."""
        async with self._one_save:
            if not self._unsaved:
                return
            unsaved, self._unsaved = self._unsaved, {}
            try:
                known = await self.store.read(catalog_table.known_tools())
                changed = [entry for name, entry in unsaved.items() if not _on_record(entry, known.get(name))]
                if changed:
                    await self.store.transact(catalog_table.seed([_row(entry) for entry in changed]))
            except BaseException:
                self._unsaved = unsaved | self._unsaved
                raise

    async def _note(self, action: str, actor: Actor, tool: str, details: dict[str, Any]) -> None:
        await self.ledger.act(action, actor, tool, details, at=time.time_ns(), id=new_id())

    async def flush(self) -> None:
        """Wait until everything that happened so far is on disk."""
        await self._save()
        await self.store.flush()

    async def token_costs(self, actor: Actor | None = None) -> dict[str, int]:
        """What each tool's definition costs a model to read: of all tools, or of those that an actor may see. Counted, or
        estimated where no tokenizer is installed (`registry.tokens.is_exact`)."""
        await self._save()
        known = await self.store.read(catalog_table.known_tools())
        entries = self.catalog.entries()
        if actor is not None:
            entries = [self.catalog.resolve(tool.name, actor.tenant) for tool in self.catalog.permitted(actor)]
        costs = {}
        for entry in entries:
            fingerprint, tokens = known.get(entry.name, ("", None))
            if tokens is None or fingerprint != entry.fingerprint:
                tokens = count_tokens(definition_text(entry.tool))
            costs[entry.name] = tokens
        return costs

    async def verify_audit(self) -> Verdict:
        """Walk the whole audit log and compare it with the head noted outside the database."""
        await self.store.flush()
        noted = self._head_file.read() if self._head_file is not None else None
        return await log.verify(self.store, Verifier(noted))

    async def audit_heads(self) -> tuple[Head | None, Head]:
        """The last head noted outside the database, and where the log ends: what can be seen without walking it."""
        heads = self._head_file.read() if self._head_file is not None else None
        rows = await self.store.read(log.latest(1))
        return (heads[-1] if heads else None), (Head(rows[-1][0], rows[-1][-1]) if rows else START)

    # -- extension

    def add_hook(self, hook: Any) -> None:
        """Add a hook to every call."""
        self.hooks.add(hook)

    def provide(
        self, token: Any, instance: Any, scope: Literal["global", "session"] = "global", *, session: str | None = None
    ) -> None:
        """Offer an instance to tools and hooks: to all calls, to every session, or to one session."""
        if scope == "global":
            self.providers.everywhere[token] = instance
        elif scope == "session":
            held = self.providers.every_session if session is None else self.providers.session(session)
            held[token] = instance
        else:
            raise ValueError(f"scope must be 'global' or 'session', not {scope!r}")


def _on_record(entry: Entry, known: tuple[str, int | None] | None) -> bool:
    """Whether the store knows a tool as it is now: its fingerprint, and its token cost if that can be counted."""
    return known is not None and known[0] == entry.fingerprint and (known[1] is not None or not is_exact())


def _row(entry: Entry) -> catalog_table.CatalogRow:
    tool = entry.tool
    return catalog_table.CatalogRow(
        name=tool.name,
        enabled=tool.enabled,
        description=tool.description,
        params=orjson.dumps(tool.input_schema).decode(),
        source=tool.source,
        version=tool.version,
        tier=entry.tier,
        category=tool.category,
        definition=tool.model_dump_json(),
        fingerprint=entry.fingerprint,
        token_cost=count_tokens(definition_text(tool)) if is_exact() else None,
    )
