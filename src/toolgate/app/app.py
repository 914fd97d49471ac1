"""App: the Python door. Opened from settings, it takes tools and calls them.

async with App.open() as app:
    app.register(add)
    outcome = await app.invoke("add", {"a": 1, "b": 2})
"""

import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from toolgate.app.agents import AgentsFacet
from toolgate.app.approvals import ApprovalsFacet, GrantsFacet
from toolgate.app.attachments import AttachmentsFacet
from toolgate.app.attention import AttentionFacet
from toolgate.app.audit import AuditFacet
from toolgate.app.conversation import BehavioursFacet, CanvasFacet, NotificationsFacet, PushTokensFacet
from toolgate.app.deprecated import renamed
from toolgate.app.documents import DocumentsFacet
from toolgate.app.events import EventListener
from toolgate.app.exclusive_changes import ChangesFacet
from toolgate.app.facets import BudgetsFacet, IdempotencyFacet, SessionsFacet, UndoFacet, WorkspaceFacet
from toolgate.app.issuers import IssuersFacet
from toolgate.app.jobs import JobsFacet
from toolgate.app.keys import KeysFacet
from toolgate.app.learning import LearningFacet
from toolgate.app.lifecycle import Lifecycle
from toolgate.app.openapi_documents import OpenApiFacet
from toolgate.app.policy import PolicyFacet
from toolgate.app.qstash import QStashFacet
from toolgate.app.schedules import SchedulesFacet
from toolgate.app.secrets import SecretsFacet
from toolgate.app.servers import ServersFacet
from toolgate.app.sign_ins import SignInsFacet
from toolgate.app.statistics import StatisticsFacet
from toolgate.app.teams import TeamsFacet
from toolgate.app.tools import ToolsFacet
from toolgate.app.typed_words import keep_words
from toolgate.app.workflows import WorkflowsFacet
from toolgate.errors import NotOpen, described
from toolgate.model import (
    LOCAL,
    TIERS,
    Actor,
    Background,
    Call,
    Caller,
    Invoke,
    Outcome,
    Source,
    Tier,
    Tool,
    check_request_id,
    new_id,
)
from toolgate.registry.decorator import ClassTool
from toolgate.runners.execution import Runner
from toolgate.settings import Settings, load_settings
from toolgate.tasks import uninterrupted

if TYPE_CHECKING:
    from toolgate.app.sync_app import SyncApp
    from toolgate.gates.flow.user_words import KeptWords
    from toolgate.gates.ledger.telemetry import CallMetrics
    from toolgate.pipeline.explain import Explanation

logger = logging.getLogger("toolgate")


class App:
    """Toolgate in one process: holds the tools, runs every call, keeps the records.

    Made by `App.open` and used inside `async with`; it belongs to the event loop that opened it. What people govern stands
    in its facets (`app.tools`, `app.approvals` …). Methods that act for somebody take an `actor`; without one, that is the
    person at this machine (tenant `default`, user `local`).
    """

    def __init__(self, settings: Settings, *, time_source: Any = time, keeps_servers: bool = True) -> None:
        from toolgate.app.assembly import Parts  # here, so that who only names App does not wait for all its parts

        parts = self.parts = Parts(settings, time_source, keeps_servers=keeps_servers)
        self.settings = settings
        self.tools = ToolsFacet(parts)
        self.approvals = ApprovalsFacet(parts, self.invoke)
        self.grants = GrantsFacet(parts)
        self.budgets = BudgetsFacet(parts)
        self.policy = PolicyFacet(parts)
        self.secrets = SecretsFacet(parts)
        self.servers = ServersFacet(parts)
        self.teams = TeamsFacet(parts)
        self.openapi = OpenApiFacet(parts)
        self.audit = AuditFacet(parts)
        self.statistics = StatisticsFacet(parts)
        self.learning = LearningFacet(parts)
        self.attention = AttentionFacet(parts)
        self.changes = ChangesFacet(parts)
        self.idempotency = IdempotencyFacet(parts)
        self.keys = KeysFacet(parts)
        self.issuers = IssuersFacet(parts)
        self.sign_ins = SignInsFacet(parts)
        self.jobs = JobsFacet(parts)
        self.qstash = QStashFacet(parts)
        self.schedules = SchedulesFacet(parts)
        self.mcp_tasks = parts.mcp_tasks
        self.mcp_sessions = parts.mcp_sessions
        self.documents = DocumentsFacet(parts)
        self.attachments = AttachmentsFacet(parts)
        self.canvas = CanvasFacet(parts)
        self.notifications = NotificationsFacet(parts)
        self.push_tokens = PushTokensFacet(parts)
        self.behaviours = BehavioursFacet(parts)
        self.agents = AgentsFacet(parts)
        self.undo = UndoFacet(parts)
        self.workspace = WorkspaceFacet(parts)
        self.sessions = SessionsFacet(parts)
        self.workflows = WorkflowsFacet(parts)
        self._invoke: Invoke = parts.pipeline.__call__
        self._lifecycle = Lifecycle(parts, self.tools)
        self._opened = False

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

    @classmethod
    def open_sync(cls, settings_or_path: Settings | str | os.PathLike[str] | None = None, /, **overrides: Any) -> "SyncApp":
        """`open` for scripts and notebooks: `with App.open_sync() as app: outcome = app.invoke(…)`.

        It has the facets and methods of an App under the same names. They block, and what is iterated with `async for` or
        entered with `async with` here is so there without `async`. The App runs in a thread of its own, so that this works
        also where an event loop runs already; any thread may use it.
        """
        from toolgate.app.sync_app import SyncApp

        return SyncApp(cls.open(settings_or_path, **overrides))

    async def __aenter__(self) -> Self:
        await self._lifecycle.start()
        self._opened = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened = False
        try:
            await self._lifecycle.end()
        except Exception as trouble:
            if not isinstance(error, Exception):  # whoever cancels hears of nothing but an error
                raise
            logger.warning("the App was not closed in order: %s", trouble)
            error.add_note(f"The App was not closed in order either: {described(trouble)}")

    if not TYPE_CHECKING:  # a type checker is to report the old names

        def __getattr__(self, name: str) -> Any:
            return renamed(self, name)

    @property
    def metrics(self) -> "CallMetrics | None":
        """The Prometheus metrics of the calls so far; None unless the setting `metrics` is on."""
        return self.parts.metrics

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
        request_id: str | None = None,
        hooks: Iterable[Any] = (),
        workspace: str | os.PathLike[str] | None = None,
        door: str = "python",
        caller: Caller | None = None,
        background: Background | None = None,
        internal: bool = False,
        connection: str | None = None,
    ) -> Awaitable[Outcome]:
        """Calls a tool by its name, or by the function, class or object that was registered: await this. Whatever the tool,
        a hook, a gate or the arguments do, it gives an outcome.

        Args:
            name: The tool.
            arguments: A mapping, or JSON as text or bytes.
            actor: Who calls; without it, the person at this machine.
            session: The session that the call belongs to: its files and providers.
            idempotency_key: Runs once for this key; again, gives what came of it.
            approval: The id of the approval that was given for this call.
            timeout: Seconds for the whole call, if less than the tool's own.
            request_id: The caller's own id for this request, kept with the records (`app.audit.of_request`).
            hooks: Hooks for this call alone, after those of its tool. Its result is neither taken from the cache nor put
                there, and a call that waits for a person goes on without them.
            workspace: The folder that it works in, in place of what its session and the settings say.
            door: The door that the call came by.
            caller: How to reach the caller while the call runs.
            background: Has the call queued; `enqueue` does it with all that belongs to it.
            internal: True if it may be a call of a tool that is internal, such as `ask_model`.
            connection: The session of the connection that the call came over, where the door has one.
        """
        if not self._opened:
            raise NotOpen
        if type(name) is not str:
            name = self.parts.catalog.name_of(name)
        if actor is None:
            actor = LOCAL
        elif type(actor) is not Actor:
            raise TypeError(f"actor must be an Actor, not a {type(actor).__name__}")
        if timeout is not None and not (isinstance(timeout, int | float) and 0 < timeout < float("inf")):
            raise ValueError(f"timeout must be a number of seconds above 0, not {timeout!r}")
        if session is not None and not isinstance(session, str):
            raise TypeError(f"session must be text, not a {type(session).__name__}")
        if request_id is not None:
            check_request_id(request_id)
        call = Call(
            new_id(), name, arguments, actor, session, idempotency_key, approval, timeout, None, 0, door, caller=caller,
            internal=internal,
            request_id=request_id, hooks=tuple(map(self.parts.hooks.instance, hooks)) if hooks else (),
            workspace=None if workspace is None else os.path.realpath(workspace), background=background,
            connection=connection,
        )  # fmt: skip
        return self._invoke(call)

    async def enqueue(
        self,
        name: str | Callable[..., Any] | ClassTool,
        arguments: Mapping[str, Any] | str | bytes | None = None,
        *,
        actor: Actor | None = None,
        session: str | None = None,
        idempotency_key: str | None = None,
        approval: str | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
        workspace: str | os.PathLike[str] | None = None,
        delay: float = 0.0,
        priority: int = 0,
        door: str = "python",
    ) -> Outcome:
        """Has a tool called in the background. Its outcome is pending, with the id of the job: `app.jobs.wait(id, 60)`.

        What governs the call is asked now, and again when a worker makes it. Where a person must agree, the job waits for
        them, and is queued when they have. A call with the key of an earlier one gives that one's job, and once it is over
        its outcome.

        Args:
            name: The tool; this and what is not listed here as for `invoke`.
            delay: Seconds from now before which it is not made.
            priority: From -10 to 10: the higher, the sooner among the jobs of its tenant.
        """
        wish = Background(delay, priority)
        outcome = await self.invoke(
            name, arguments, actor=actor, session=session, idempotency_key=idempotency_key, approval=approval,
            timeout=timeout, request_id=request_id, workspace=workspace, door=door, background=wish,
        )  # fmt: skip
        if outcome.pending is None or outcome.pending.kind != "approval":
            return outcome
        place = None if workspace is None else os.path.realpath(workspace)
        call = Call(
            outcome.id, outcome.tool, arguments, actor or LOCAL, session, idempotency_key, approval, timeout, door=door,
            request_id=request_id, workspace=place, background=wish,
        )  # fmt: skip
        return await self.jobs.keep_waiting(call, outcome)

    async def explain(
        self,
        name: str | Callable[..., Any] | ClassTool,
        arguments: Mapping[str, Any] | str | bytes | None = None,
        *,
        actor: Actor | None = None,
        session: str | None = None,
        idempotency_key: str | None = None,
        workspace: str | os.PathLike[str] | None = None,
        door: str = "python",
    ) -> "Explanation":
        """Gives what every gate would say to a call, without making it."""
        from toolgate.pipeline.explain import explain

        parts = self.parts
        if not isinstance(name, str):
            name = parts.catalog.name_of(name)
        if parts.notices.changed():
            await parts.notices.catch_up(self.refresh)
        chosen = None if workspace is None else os.path.realpath(workspace)
        call = Call(new_id(), name, arguments, actor or LOCAL, session, idempotency_key, door=door, workspace=chosen)
        return await explain(parts.pipeline, call)

    @uninterrupted
    async def say(
        self, session: str | None, text: str, *, actor: Actor | None = None, through: str = "python"
    ) -> "KeptWords":
        """Tells what the user typed in a session: never what a model, a tool or a document says. Whoever is asked to approve
        a call of the session is shown it, and the pipeline knows which addresses, names and amounts the user named.

        Args:
            session: The session; None: the user's calls that name none.
            text: The message, as it was typed. What was pasted into it counts as the user's words too.
            actor: The user; without it, the person at this machine.
            through: The door that it came by, for the record.

        Gives how much of it is known from now on. Raises `InvalidInput` for what is no text or no name of a session.
        """
        if not self._opened:
            raise NotOpen
        return await keep_words(self.parts, actor or LOCAL, session, text, through)

    # -- extension

    def register(self, code: Any, *, source: Source = "python") -> Tool:
        """Puts a tool into the catalog: a function, class or object declared with `@tool`. Gives its definition.

        Raises `DefinitionError` if it is no tool, or its name is taken.
        """
        return self.tools.register(code, source=source)

    def add_hook(self, hook: Any) -> None:
        """Adds a hook to every call: an object of a subclass of `Hook`, or the class (see `resolve_hooks_with`)."""
        self.parts.hooks.add(hook)

    def resolve_hooks_with(self, resolver: Callable[[type], Any]) -> None:
        """Has hooks that are given as classes made by a function, such as a container's own: `app.resolve_hooks_with(
        container.get)`. To be called before they are added, and before tools that have some are registered."""
        self.parts.hooks.resolver = resolver

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
        providers = self.parts.providers
        if scope == "global":
            providers.everywhere[token] = instance
        elif scope == "session":
            if session is None:
                providers.every_session[token] = instance
            else:
                providers.session(Actor(tenant, user=user), session)[token] = instance
        else:
            raise ValueError(f"scope must be 'global' or 'session', not {scope!r}")

    def add_runner(self, kind: str, runner: Runner, *, tier: Tier = "external_api") -> None:
        """Says how tools of a kind are run. `tier` is the least tier of those that are registered at run time."""
        if tier not in TIERS:
            raise ValueError(f"tier must be one of {', '.join(TIERS)}, not {tier!r:.40}")
        self.parts.execution.runners[kind] = runner
        self.parts.kinds[kind] = tier
        self.parts.catalog_sync.compile_again(kind)

    def add_listener(self, listener: EventListener) -> None:
        """Adds a function that is called with the name and the fields of an event: budget.alert, notification.sent,
        canvas.appended, workflow.completed."""
        self.parts.events.listeners.append(listener)

    # -- the store

    async def refresh(self) -> None:
        """Takes over now what other processes changed; it happens by itself before the next call."""
        await self.parts.store_sync.refresh()

    async def flush(self) -> None:
        """Waits until everything that happened so far is on disk."""
        await self.parts.catalog_sync.save()
        await self.parts.store.flush()
