"""App: the Python door. Opened from settings, it takes tools and calls them.

async with App.open() as app:
    app.register(add)
    outcome = await app.invoke("add", {"a": 1, "b": 2})
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from toolgate.app.governance import Governing
from toolgate.errors import DefinitionError, Denied, Fault, NotOpen, SettingsError, StoreError
from toolgate.gates.ledger.retention import CallDetails
from toolgate.model import LOCAL, TIERS, Actor, Call, Caller, Entry, Outcome, Source, Tier, Tool, new_id
from toolgate.pipeline.runner import Runner
from toolgate.registry.catalog import PROBLEMS, Problem, origin
from toolgate.registry.compile import compile_entry, definition, entry_of
from toolgate.registry.declare import ClassTool
from toolgate.registry.export import Shape, export
from toolgate.registry.python_source import EntryPointSource, FolderSource, PackageSource
from toolgate.registry.source import ToolSource
from toolgate.settings import Settings, load_settings
from toolgate.store import log
from toolgate.store import state_keys as sealing
from toolgate.store.chain import START, Head, Verdict, Verifier
from toolgate.store.head_keys import HeadKeys
from toolgate.store.private import make_home
from toolgate.store.signed_heads import SignedHead
from toolgate.threads import to_thread
from toolgate.trust import Untrusted

logger = logging.getLogger("toolgate")


class App(Governing):
    """Toolgate in one process: holds the tools, runs every call, keeps the records.

    Made by `App.open` and used inside `async with`; it belongs to the event loop that opened it. Methods that act for
    somebody take an `actor`; without one, that is the person at this machine (tenant `default`, user `local`).
    """

    @classmethod
    def open(cls, settings_or_path: Settings | str | os.PathLike[str] | None = None, /, **overrides: Any) -> "App":
        """Makes an App from settings; it does nothing before `async with`.

        Args:
            settings_or_path: A `Settings`, or the path of a settings file. Without it: the `toolgate.yaml` of this folder or
                of the nearest one above, if there is one.
            **overrides: Settings by name, which win over the environment, which wins over the file.

        Raises `SettingsError` if a setting is wrong or a file that was found is not trusted. Entering it raises `StoreError`
        if the database can't be used.
        """
        if isinstance(settings_or_path, Settings):
            return cls(settings_or_path.with_overrides(overrides) if overrides else settings_or_path)
        return cls(load_settings(settings_or_path, overrides))

    # -- life

    async def __aenter__(self) -> Self:
        await self._make_home()
        if self._head_file is not None:
            with contextlib.suppress(OSError):
                self._head_file.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self.project.database is None or not self.project.database.exists()
        self._in_use = None if self.settings.in_memory else self.project.use_database()
        try:
            await self.store.start()
        except BaseException:
            self._leave_database()
            raise
        try:
            await self._bind_database(fresh=fresh)
            await self.notices.start()
            for source in self._sources():
                self.load(source)
            self.secrets.uses.check(self.catalog.entries())
            if self.custom is not None:
                self.custom.start()
            await self.mcp_tools.start()
            await self._keeper.start()
            self._policy_watch = asyncio.create_task(self._watch_policy())
            if self.heads is not None:
                self.heads.start()
            self.details.start()
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
            await self._keeper.save()
        finally:
            await self._close()  # which writes what is still waiting

    async def _make_home(self) -> None:
        """The data folder, closed to others. With the database elsewhere it is not needed: a read-only one will do."""
        if self.settings.in_memory:
            return
        try:
            await to_thread(make_home, self.settings.home)
            self.project.adopt()
        except StoreError as error:
            if self.settings.database_url is None:
                raise
            logger.warning("%s %s", error.message, error.suggestion)
        except (SettingsError, OSError) as error:  # where nothing can be recorded, a person is asked next time
            logger.warning("%s", error)

    async def _bind_database(self, *, fresh: bool) -> None:
        """Make sure that the database in a data folder that was found is the one that Toolgate made there."""
        if not self.project.judges_database:
            return
        mark = await self.store.read(sealing.known_key("project"))
        if mark is None:
            mark = await self.store.transact(sealing.key_for("project"))
        try:
            self.project.bind(mark, fresh=fresh)
        except Untrusted:
            raise
        except SettingsError as error:
            logger.warning("%s", error)

    def _sources(self) -> list[ToolSource]:
        settings = self.settings
        rules = self._rules
        sources: list[ToolSource] = [PackageSource("toolgate.tools", "builtin", rules)]
        if settings.entry_points:
            sources.append(EntryPointSource(rules))
        if settings.auto_load_custom_tools and not settings.enforcement.disable_local_tools:
            sources.extend(FolderSource(folder, rules, self.project.refusal) for folder in settings.python_folders)
        return sources

    # -- calling tools

    def invoke(
        self,
        name: str | Callable[..., Any] | ClassTool,
        arguments: Mapping[str, Any] | str | bytes | None = None,
        *,
        actor: Actor | None = None,
        session: str | None = None,
        idempotency_key: str | None = None,
        approval: str | None = None,
        timeout: float | None = None,
        door: str = "python",
        caller: Caller | None = None,
    ) -> Awaitable[Outcome]:
        """Call a tool by its name, or by the function, class or object that was registered: await this. Whatever the tool, a
        hook, a gate or the arguments do, it gives an outcome."""
        if not self._opened:
            raise NotOpen
        if type(name) is not str:
            name = self.catalog.name_of(name)
        if actor is None:
            actor = LOCAL
        elif type(actor) is not Actor:
            raise TypeError(f"actor must be an Actor, not a {type(actor).__name__}")
        if timeout is not None and not (isinstance(timeout, int | float) and 0 < timeout < float("inf")):
            raise ValueError(f"timeout must be a number of seconds above 0, not {timeout!r}")
        if session is not None and not isinstance(session, str):
            raise TypeError(f"session must be text, not a {type(session).__name__}")
        call = Call(
            new_id(), name, arguments, actor, session, idempotency_key, approval, timeout, None, 0, door, caller=caller
        )
        return self._invoke(call)

    # -- the registry

    def register(self, code: Any, *, source: Source = "python") -> Tool:
        """Puts a tool into the catalog: a function, class or object declared with `@tool`. Gives its definition.

        Raises `DefinitionError` if it is no tool, or its name is taken.
        """
        entry = code if isinstance(code, Entry) else entry_of(code, source, self._rules)
        self._register(entry)
        return entry.tool

    def register_many(self, codes: Iterable[Any]) -> None:
        """Registers each of these; the first that is refused raises."""
        for code in codes:
            self.register(code)

    def load(self, source: ToolSource) -> None:
        """Registers all tools of a source. What can't be registered is noted in `problems`."""
        for loaded in source.load():
            if isinstance(loaded, Problem):
                self.catalog.note(loaded)
                continue
            try:
                self.register(loaded)
            except DefinitionError as error:
                problem = Problem(origin(loaded), str(error))
                self.catalog.note(problem)
                logging.getLogger(PROBLEMS).warning("%s: %s", *problem)

    async def check_tools(self) -> None:
        """Have the sandbox compile the code of custom tools that nobody has compiled yet. What does not is taken out of the
        catalog, and is in `problems`. It happens by itself soon after the App is opened."""
        if self.custom is not None:
            await self.custom.check()

    @property
    def problems(self) -> list[Problem]:
        """The tools that could not be loaded, and why."""
        custom = self.custom.problems if self.custom is not None else ()
        return [*self.catalog.problems, *custom, *self.mcp_tools.problems]

    async def tools(self, actor: Actor | None = None, source: Source | None = None) -> tuple[Tool, ...]:
        """Gives the tools that an actor may see, sorted by name; of one source, or of all."""
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
        """Gives the tools that an actor may see in the shape that a model's API or an MCP client takes."""
        actor = actor or LOCAL
        permitted = await self._permitted(actor)
        return export((self.catalog.resolve(tool.name, actor.tenant) for tool in permitted), shape)

    async def typed(self, language: Literal["typescript", "python"], actor: Actor | None = None) -> str:
        """Gives the tools that an actor may see as declarations of functions, for a program (`run_program`)."""
        from toolgate.registry.typed import typed

        return typed(await self._permitted(actor or LOCAL), language)

    async def register_dynamic(self, fields: Mapping[str, Any], actor: Actor | None = None) -> Tool:
        """Registers a tool at run time, for the actor's tenant. It survives a restart.

        Raises `CallError` (PERMISSION_DENIED) without the permission tool.enable, `DefinitionError` if the fields are wrong.
        """
        actor = actor or LOCAL
        tool = definition({**fields, "source": "dynamic", "tenant": actor.tenant})
        decision = await self.guard.decide(actor, "tool.enable", tool.name)
        if not decision.allow:
            await self._note("tool.registration_denied", actor, tool.name, {"reason": decision.reason})
            raise Denied("PERMISSION_DENIED", f"Registering {tool.name} is not permitted: {decision.reason}.")
        if tool.kind not in self._kinds:
            kinds = ", ".join(sorted(self._kinds))
            server = "; the tools of an MCP server come with it: `toolgate servers add`" if tool.kind == "mcp" else ""
            why = f"a dynamic tool must say how it runs; {tool.kind!r} can't (possible: {kinds}){server}"
            raise DefinitionError(tool.name, [Fault("kind", why)])
        if self.mcp_tools.keeps(tool.name):
            raise DefinitionError(tool.name, [Fault("name", "it is kept for a tool of an MCP server")])
        entry = compile_entry(tool, None, (), self._rules)
        await self._keeper.add_dynamic(entry, actor)
        await self._note("tool.registered", actor, tool.name, {"fingerprint": entry.fingerprint})
        return tool

    def add_runner(self, kind: str, runner: Runner, *, tier: Tier = "external_api") -> None:
        """Says how tools of a kind are run. `tier` is the least tier of those that are registered at run time."""
        if tier not in TIERS:
            raise ValueError(f"tier must be one of {', '.join(TIERS)}, not {tier!r:.40}")
        self.execution.runners[kind] = runner
        self._kinds[kind] = tier
        self._keeper.compile_again(kind)
        self.guard.forget()

    def work_in(
        self, session: str, folder: str | os.PathLike[str], *, tenant: str = LOCAL.tenant, user: str = LOCAL.user
    ) -> Path:
        """Sets the folder in which the calls of a user's session read and write files and run commands."""
        return self.places.set(Actor(tenant, user=user), session, Path(folder))

    def share_session(self, name: str, with_users: Iterable[str], *, tenant: str = LOCAL.tenant) -> None:
        """Shares one session, with its files and providers, among these users of a tenant, until the App is closed. For
        everybody else the name means a session of their own. The setting `sessions.shared` does it for good."""
        if isinstance(with_users, str):
            raise TypeError("with_users must be a list of users, not one text")
        self.sessions.share(tenant, name, with_users)

    # -- what is on record

    async def token_costs(self, actor: Actor | None = None) -> dict[str, int]:
        """Gives how many tokens each tool's definition takes: of all tools, or of those that an actor may see. Estimated
        where the extra `tokens` is not installed."""
        entries = self.catalog.entries()
        if actor is not None:
            entries = [self.catalog.resolve(tool.name, actor.tenant) for tool in await self._permitted(actor)]
        return await self._keeper.token_costs(entries)

    async def verify_audit(self, heads: Iterable[SignedHead | None] = ()) -> Verdict:
        """Walks the whole audit log and compares it with the head noted outside the database and with the signed heads:
        those that are kept, and those that are given. The verdict's `ok` is true if nothing was changed."""
        await self.store.flush()
        if self.heads is not None and self._head_file is not None:
            return await self.heads.verify(self._head_file, heads)
        noted = self._head_file.read() if self._head_file is not None else None
        return await log.verify(self.store, Verifier(noted))

    async def call_details(self, call_id: str, *, tenant: str | None = None) -> tuple[CallDetails, ...]:
        """Gives what is kept of a call besides its records: what each gate said, how long each took, and the output (setting
        audit.details). Nothing if there is no such call, of that tenant if one is given, or nothing was to be kept."""
        await self.store.flush()
        rows = await self.store.read(log.of_call(call_id))
        ends = [row for row in rows if row[2] == "end" and tenant in (None, row[4])]
        found = [await self.details.of_record(row[0], row[7]) for row in ends]
        return tuple(kept for kept in found if kept is not None)

    def sign_heads_with(self, keys: HeadKeys) -> None:
        """Has the heads of the audit log signed by keys that are kept elsewhere, in a KMS say. To be called before
        `async with`."""
        if self.heads is not None:
            self.heads.keys = keys

    async def prove(self, call_id: str) -> dict[str, Any] | None:
        """Gives a proof that the records of a call are in the audit log; None if there is no such call."""
        return None if self.heads is None else await self.heads.prove(call_id)

    async def audit_key(self, *, rotate: bool = False) -> dict[str, Any]:
        """Gives the key that signs the heads of the audit log. `rotate`: signs once more with it, then makes a new one.

        Raises `StoreError` if heads are not signed (`audit.key: none`).
        """
        heads = self.heads
        if heads is None:
            raise StoreError("Heads of this log are not signed.", suggestion="Set audit.key to file.")
        if rotate:
            await self.sign_audit()
            before = await to_thread(heads.keys.key_id)
            fresh = await to_thread(heads.keys.rotate)
            await self._note("audit.key_rotated", LOCAL, "", {"before": before, "key": fresh})
        key = await to_thread(heads.keys.key_id)
        return {"key": key, "public_key": heads.keys.public_key(key), "place": heads.keys.place}

    async def sign_audit(self, *, anew: bool = False, actor: Actor | None = None) -> SignedHead | None:
        """Signs the head of the audit log now; gives the latest signed head. `anew`: accepts the log as it is, whatever was
        signed before."""
        if self.heads is None:
            return None
        await self.store.flush()
        if anew:
            first = await self.heads.begin_anew()
            if self._head_file is not None:
                self._head_file.set_aside()
            await self._note("audit.accepted", actor or LOCAL, "", {"rows": first})
        return await self.heads.sign()

    async def audit_heads(self) -> tuple[Head | None, Head]:
        """Gives the last head noted outside the database, and where the log ends, without walking it."""
        return self._head_file.last() if self._head_file is not None else None, await self.audit_end()

    async def audit_end(self) -> Head:
        """Gives where the log ends."""
        rows = await self.store.read(log.latest(1))
        return Head(rows[-1][0], rows[-1][-1]) if rows else START

    # -- extension

    def add_hook(self, hook: Any) -> None:
        """Adds a hook, an object of a subclass of `Hook`, to every call."""
        self.hooks.add(hook)

    def provide(
        self,
        token: Any,
        instance: Any,
        scope: Literal["global", "session"] = "global",
        *,
        session: str | None = None,
        tenant: str = LOCAL.tenant,
        user: str = LOCAL.user,
    ) -> None:
        """Offers an instance to tools and hooks under a token (`ctx.get(token)`): to all calls, to every session, or to one
        session of a user."""
        if scope == "global":
            self.providers.everywhere[token] = instance
        elif scope == "session":
            if session is None:
                self.providers.every_session[token] = instance
            else:
                self.providers.session(Actor(tenant, user=user), session)[token] = instance
        else:
            raise ValueError(f"scope must be 'global' or 'session', not {scope!r}")
