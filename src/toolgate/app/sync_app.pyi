# ruff: noqa: A002 - names are those of App's own methods
"""App and its facets as `App.open_sync` gives them: written by `make reference`."""

import builtins
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from toolgate.agent.prompt import Style, SystemPrompt
from toolgate.agent.run import Run, RunEvent, RunLimits, RunResult, RunStatus, Transcript
from toolgate.agent.run import Style as RunStyle
from toolgate.app.app import App
from toolgate.app.argument_origins import ArgumentOrigins
from toolgate.app.attention import AttentionItem
from toolgate.app.events import EventListener
from toolgate.app.file_differences import FileDifference
from toolgate.app.log_tail import LogEvent
from toolgate.app.openapi_documents import AddedDocument, DocumentStatus
from toolgate.app.secrets import CredentialTest, SecretSource
from toolgate.app.served_tools import ServedTools
from toolgate.app.server_status import ServerStatus
from toolgate.app.statistics import CallStatistics, Counted
from toolgate.app.team_sync import ReceivedBundle
from toolgate.app.teams import TeamStatus
from toolgate.app.tools import AddedTool, FlagScope
from toolgate.conversation.canvas import CanvasBlock
from toolgate.conversation.notifications import Notification
from toolgate.conversation.push_tokens import PushToken
from toolgate.gates.approval.request import Answer, Approval, ApprovalRequest, Approver, Grant, GrantTerms, Listed, State
from toolgate.gates.flow.user_words import KeptWords
from toolgate.gates.ledger.details import CallDetails
from toolgate.gates.ledger.telemetry import CallMetrics
from toolgate.gates.policy.documents import Documents, PolicyData
from toolgate.gates.policy.engine import Action, EmbeddedEngine, RemoteEngine
from toolgate.gates.policy.replay import Replay
from toolgate.gates.policy.suggestion import PolicySuggestion
from toolgate.gates.quota.budget_accounts import BudgetStatus
from toolgate.gates.secrets.names import Owner
from toolgate.jobs.handlers import Handler
from toolgate.jobs.job import Job
from toolgate.jobs.qstash import QStashMessage
from toolgate.jobs.runner import AttemptObserver
from toolgate.jobs.schedules import CronTimes, Schedule, ScheduleState
from toolgate.learning.feedback import Feedback
from toolgate.learning.proposals import Proposal
from toolgate.learning.recommendations import PastTask, Recommendation
from toolgate.learning.tool_reports import ToolReport
from toolgate.mcp.definitions import Comparison, DefinitionPin
from toolgate.mcp.import_files import ImportedServer
from toolgate.mcp.pins import AcceptedItems
from toolgate.mcp.review import PendingDefinition
from toolgate.mcp.server.identity import Credential
from toolgate.mcp.server.prompts_resources import UpstreamConnections
from toolgate.model import Actor, Background, Call, Caller, Decision, Entry, Outcome, Source, Tier, Tool
from toolgate.model.roles import Permission, Role
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.explain import Explanation
from toolgate.registry.catalog import ToolProblem, ToolSource
from toolgate.registry.decorator import ClassTool
from toolgate.registry.export import Shape
from toolgate.registry.skill_folder import SkillFolder
from toolgate.runners.execution import Runner
from toolgate.sandbox.quarantine import QuarantineSet
from toolgate.settings import ServerSettings, Settings
from toolgate.store.approvals import WaitingQuestions
from toolgate.store.attachments import AttachmentRow
from toolgate.store.behaviours import AdjustmentRow
from toolgate.store.budgets import BudgetRow, By, CostLine, UsageBy, UsageLine
from toolgate.store.call_counts import CountBy, CountFilter
from toolgate.store.canvas import CanvasRow
from toolgate.store.catalog import DynamicRow, FlaggedFor, FlagRow
from toolgate.store.chain import Head, LogVerdict
from toolgate.store.database import Rows
from toolgate.store.documents import DocumentRow
from toolgate.store.head_keys import HeadKeys
from toolgate.store.idempotency import KeyRow
from toolgate.store.idempotency import State as IdempotencyState
from toolgate.store.jobs import JobBacklog
from toolgate.store.keys import ApiKey, KeyState
from toolgate.store.learning import FeedbackRow
from toolgate.store.log_pages import CallFilter, LogFilter, LogPage
from toolgate.store.signed_heads import SignedHead
from toolgate.store.teams import BundleRow
from toolgate.store.tool_health import HealthRow
from toolgate.store.web_sessions import SignInLink, WebSession
from toolgate.teams.review import TeamTool
from toolgate.tool_search import Ranking
from toolgate.undo import Undone
from toolgate.workflow.invocations import Invocation

class SyncApp:
    """Toolgate in one process: holds the tools, runs every call, keeps the records."""

    tools: SyncToolsFacet
    approvals: SyncApprovalsFacet
    grants: SyncGrantsFacet
    budgets: SyncBudgetsFacet
    policy: SyncPolicyFacet
    secrets: SyncSecretsFacet
    servers: SyncServersFacet
    teams: SyncTeamsFacet
    openapi: SyncOpenApiFacet
    audit: SyncAuditFacet
    statistics: SyncStatisticsFacet
    learning: SyncLearningFacet
    attention: SyncAttentionFacet
    changes: SyncChangesFacet
    idempotency: SyncIdempotencyFacet
    keys: SyncKeysFacet
    issuers: SyncIssuersFacet
    sign_ins: SyncSignInsFacet
    jobs: SyncJobsFacet
    qstash: SyncQStashFacet
    schedules: SyncSchedulesFacet
    documents: SyncDocumentsFacet
    attachments: SyncAttachmentsFacet
    canvas: SyncCanvasFacet
    notifications: SyncNotificationsFacet
    push_tokens: SyncPushTokensFacet
    behaviours: SyncBehavioursFacet
    agents: SyncAgentsFacet
    undo: SyncUndoFacet
    workspace: SyncWorkspaceFacet
    sessions: SyncSessionsFacet
    workflows: SyncWorkflowsFacet

    settings: Settings
    def __init__(self, app: App) -> None: ...
    def start(self) -> Self:
        """Opens the App, as `with` does; for notebooks, where `with` ends with its cell."""
    def close(self) -> None:
        """Closes the App: running calls are waited for, as the settings say."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def metrics(self) -> CallMetrics | None:
        """The Prometheus metrics of the calls so far; None unless the setting `metrics` is on."""
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
        hooks: Iterable[Any] = ...,
        workspace: str | os.PathLike[str] | None = None,
        door: str = "python",
        caller: Caller | None = None,
        background: Background | None = None,
        internal: bool = False,
        connection: str | None = None,
    ) -> Outcome:
        """Calls a tool by its name, or by the function, class or object that was registered. Whatever the tool,
        a hook, a gate or the arguments do, it gives an outcome."""
    def enqueue(
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
        """Has a tool called in the background. Its outcome is pending, with the id of the job: `app.jobs.wait(id, 60)`."""
    def explain(
        self,
        name: str | Callable[..., Any] | ClassTool,
        arguments: Mapping[str, Any] | str | bytes | None = None,
        *,
        actor: Actor | None = None,
        session: str | None = None,
        idempotency_key: str | None = None,
        workspace: str | os.PathLike[str] | None = None,
        door: str = "python",
    ) -> Explanation:
        """Gives what every gate would say to a call, without making it."""
    def say(self, session: str | None, text: str, *, actor: Actor | None = None, through: str = "python") -> KeptWords:
        """Tells what the user typed in a session: never what a model, a tool or a document says. Whoever is asked to approve
        a call of the session is shown it, and the pipeline knows which addresses, names and amounts the user named."""
    def register(self, code: Any, *, source: Source = "python") -> Tool:
        """Puts a tool into the catalog: a function, class or object declared with `@tool`. Gives its definition."""
    def add_hook(self, hook: Any) -> None:
        """Adds a hook to every call: an object of a subclass of `Hook`, or the class (see `resolve_hooks_with`)."""
    def resolve_hooks_with(self, resolver: Callable[[type], Any]) -> None:
        """Has hooks that are given as classes made by a function, such as a container's own: `app.resolve_hooks_with(
        container.get)`. To be called before they are added, and before tools that have some are registered."""
    def provide(
        self,
        token: Any,
        instance: Any,
        scope: Literal["global", "session"] = "global",
        *,
        session: str | None = None,
        tenant: str = ...,
        user: str = ...,
    ) -> None:
        """Offers an instance to tools and hooks under a token (`ctx.get(token)`): to all calls, to every session, or to one
        session of a user."""
    def add_runner(self, kind: str, runner: Runner, *, tier: Tier = "external_api") -> None:
        """Says how tools of a kind are run. `tier` is the least tier of those that are registered at run time."""
    def add_listener(self, listener: EventListener) -> None:
        """Adds a function that is called with the name and the fields of an event: budget.alert, notification.sent,
        canvas.appended, workflow.completed."""
    def refresh(self) -> None:
        """Takes over now what other processes changed; it happens by itself before the next call."""
    def flush(self) -> None:
        """Waits until everything that happened so far is on disk."""

class SyncToolsFacet:
    """The tools in the catalog."""

    def search(self, query: str | Sequence[str], actor: Actor | None = None, *, limit: int = 10) -> Ranking:
        """Gives the tools that an actor may see and that fit a task, best first, each with a score from 0 to 1. Several
        phrasings of one task find more than one. Of tools that fit alike, those come first that did well in the tenant
        lately (`app.learning`)."""
    def export(self, shape: Shape, actor: Actor | None = None) -> builtins.list[dict[str, Any]]:
        """Gives the tools that a model is listed which works for an actor, in the shape that a model's API or an MCP client
        takes: all that the actor may see, or, where those are too many to read, what `served` says."""
    def served(self, actor: Actor | None = None) -> ServedTools:
        """Gives the tools that a model is listed which works for an actor, by name: all that the actor may see, or, above
        the size that the setting `discovery` names, those of discovery (`search_tools`, `describe_tool`, `call_tool`), those
        that the tenant uses most, and those that are pinned. The others can be called all the same."""
    def export_skill(
        self, folder: Path, names: Sequence[str] = ..., *, actor: Actor | None = None, force: bool = False
    ) -> SkillFolder:
        """Writes tools that an actor may see, all or those that are named, as an agent skill: a folder with SKILL.md and a
        reference for each tool. A folder that was not written by this is overwritten only with `force`. Raises `CallError`
        for a tool that the actor does not have, `InvalidInput` for a folder that can't be used."""
    def prompt(self, actor: Actor | None = None, *, session: str | None = None, style: Style = "native") -> SystemPrompt:
        """Gives what a model is told before it begins to work for an actor, and how many tokens that takes."""
    def typed(self, language: Literal["typescript", "python"], actor: Actor | None = None) -> str:
        """Gives the tools that an actor may see as declarations of functions, for a program (`run_program`)."""
    def token_costs(self, actor: Actor | None = None) -> dict[str, int]:
        """Gives how many tokens each tool's definition takes: of all tools, or of those that an actor may see. Estimated
        where the extra `tokens` is not installed."""
    @property
    def problems(self) -> builtins.list[ToolProblem]:
        """The tools that could not be loaded, and why."""
    def entries(self) -> builtins.list[Entry]:
        """Gives every tool in the catalog as it is compiled, of all tenants: for whoever runs this installation."""
    def health(self, name: str) -> HealthRow | None:
        """Gives the last health check of a tool that has one, made by any process of this installation, and when the next
        is due; None if there is none."""
    def get(self, name: str, actor: Actor | None = None) -> Entry:
        """Gives a tool of the actor's tenant, enabled or not. Raises `CallError` (TOOL_NOT_FOUND)."""
    def visible(self, name: str, actor: Actor) -> Entry | None:
        """Gives a tool that an actor has; None for one that is hidden, off or missing, after the same lookups: how long it
        takes tells nothing."""
    @property
    def version(self) -> tuple[int, str, int] | None:
        """Something that is another once catalog, flags or policy are, or a day has begun on which others are listed; None
        while a change of another process is still to be taken over."""
    def why_off(self, entry: Entry, actor: Actor, *, door: str = "python") -> str | None:
        """Gives why an actor does not have a tool; None if it has."""
    def is_off(self, entry: Entry, tenant: str) -> bool:
        """Tells whether flags disable a tool for a tenant."""
    def is_enforced(self, name: str) -> bool:
        """Tells whether `enforcement` keeps a tool enabled."""
    def flag(self, name: str, *, tenant: str | None = None, persona: str | None = None) -> bool | None:
        """Gives the flag of a tool for everybody, a tenant or a persona; None: there is none."""
    @property
    def withheld(self) -> Mapping[str, str]:
        """The names of tools that wait to be accepted, and why."""
    def register(self, code: Any, *, source: Source = "python") -> Tool:
        """Registers a tool, as `app.register` does."""
    def register_many(self, codes: Iterable[Any]) -> None:
        """Registers each of these; the first that is refused raises."""
    def load(self, source: ToolSource) -> None:
        """Registers all tools of a source. What can't be registered is noted in `problems`."""
    def check(self) -> None:
        """Has the sandbox compile the code of custom tools that nobody has compiled yet. What does not is taken out of the
        catalog, and is in `problems`. It happens by itself soon after the App is opened."""
    def add_custom(self, content: bytes, file: Path, *, replace: bool = False, actor: Actor | None = None) -> AddedTool:
        """Checks the file of a custom tool, its code too, and puts it where custom tools are loaded from, trusted."""
    def add_dynamic(
        self,
        fields: Mapping[str, Any],
        actor: Actor | None = None,
        *,
        replace: bool = False,
        door: str = "python",
        by_operator: bool = False,
    ) -> Tool:
        """Registers a tool at run time, for the actor's tenant. It survives a restart."""
    def remove_dynamic(self, name: str, actor: Actor | None = None, *, by_operator: bool = False) -> Tool:
        """Removes a tool of the actor's tenant that was registered at run time, at once and in every process."""
    def registration_of(self, entry: Entry) -> DynamicRow | None:
        """Gives who registered a tool at run time, and by which door; None: it comes from elsewhere."""
    def enable(self, tool: str, **flag: Unpack[FlagScope]) -> None:
        """Enables a tool for everybody, for a tenant, or for a persona."""
    def disable(self, tool: str, **flag: Unpack[FlagScope]) -> None:
        """Disables a tool for everybody, for a tenant, or for a persona."""
    def set_enabled(
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
        an admin of the tenant, who neither changes what an operator set nor enables what is disabled for everybody."""
    def flags(
        self,
        scope: FlaggedFor = "tenant",
        whose: str | None = None,
        *,
        tool: str | None = None,
        limit: int = ...,
        after: tuple[str, str] | None = None,
    ) -> builtins.list[FlagRow]:
        """Gives the flags of tenants, of personas or for everybody: of one tenant or persona, or of all; of one tool, or of
        all; at most `limit`, beginning after that of a tenant or persona and tool."""
    def set_flags(self, flags: Iterable[tuple[str, str, bool | None]], actor: Actor | None = None) -> None:
        """Sets many flags of tenants at once: (tenant, tool, enabled). Recorded as one act in each of them, with the first
        hundred."""
    def list(self, actor: Actor | None = None, source: Source | None = None) -> tuple[Tool, ...]:
        """Gives the tools that an actor may see, sorted by name; of one source, or of all."""

class SyncApprovalsFacet:
    """The calls that wait for a person."""

    def add_approver(self, approver: Approver) -> None:
        """Attaches somebody who can be asked: a function that is given an `ApprovalRequest` and gives an `Answer`, True,
        False, or None for "I can't say". Where nobody answers, a call that must be asked about ends as pending."""
    def get(self, id: str, tenant: str | None) -> Approval:
        """Gives one question of a tenant, or of any (None), as an approver is shown it, and what became of it. Raises
        `ToolgateError` if there is none."""
    def on_record(self, id: str, tenant: str | None, user: str | None = None) -> Approval:
        """Gives one question of a tenant, or of any (None), as records hold it, with what looks like a secret masked; of one
        user, if one is named. Raises `ToolgateError` if there is none."""
    def state(self, id: str, tenant: str) -> State:
        """Gives what became of a question of a tenant, without what its approver must see."""
    def is_usable(self, id: str, tenant: str) -> bool:
        """Tells whether a call that comes with this approval is answered by it or may still use it, and not a call that used
        it before and may have had its effect. Raises `ToolgateError` if there is no such question."""
    def may_answer(self, asked: ApprovalRequest, actor: Actor, through: str) -> bool:
        """Tells whether an actor's yes would count, given through a door."""
    def why_not(self, asked: ApprovalRequest, actor: Actor, through: str) -> str | None:
        """Gives the reason why an actor's yes would not count, given through a door; None: it would."""
    def changes(self, asked: ApprovalRequest, actor: Actor, through: str) -> builtins.list[FileDifference]:
        """Gives what a call would change in its file, as that is now: of built-in file tools, and only for somebody whose
        yes would count and who is shown the arguments (`get`); for everybody else, nothing."""
    def origins(self, asked: ApprovalRequest, actor: Actor, through: str) -> ArgumentOrigins:
        """Gives the values of a call's arguments that stand in outputs of earlier calls of its session, as far as those are
        kept (setting audit.details): only for somebody whose yes would count and who is shown the arguments (`get`)."""
    def last_answers(self, asked: ApprovalRequest, *, user: str | None = None, limit: int = ...) -> builtins.list[Approval]:
        """Gives the last answered questions of the same tenant about the same tool, newest first: of one user, or of all."""
    def ids(self, tenant: str | None, beginning: str) -> builtins.list[tuple[str, str]]:
        """Gives the ids that begin so, each with its tenant: of one tenant, or of all."""
    def counts(self) -> dict[str, int]:
        """Gives how many questions wait for an answer, by tenant: for whoever runs this installation."""
    def waiting(self, tenant: str | None, *, user: str | None = None) -> WaitingQuestions:
        """Gives how many questions wait for an answer and since when the first does: of a tenant or of all (None), and asked
        by one user or by any."""
    def answer(self, id: str, answer: Answer | bool, *, actor: Actor | None = None, through: str = "python") -> Approval:
        """Approves, edits or rejects a call that waits. It runs when it is made again, or by `resume`."""
    def withdraw(self, id: str, *, actor: Actor | None = None, reason: str = "") -> None:
        """Ends a question because its call is given up: an answer comes too late from now on, and runs nothing. One that is
        over stays as it is."""
    def resume(self, id: str, *, actor: Actor | None = None) -> Outcome:
        """Runs a call that was approved, as the actor that made it and through the door that it came by: what it may do, and
        the folder that it works in, depend on both. An approval for a call inside another has that one go on."""
    def list(
        self,
        *,
        state: Listed | None = "waiting",
        actor: Actor | None = None,
        tool: str | None = None,
        user: str | None = None,
        limit: int = ...,
        after: str | None = None,
        all_tenants: bool = False,
        newest: bool = False,
    ) -> builtins.list[Approval]:
        """Gives the questions of the actor's tenant, or of all, oldest or `newest` first: about a tool, and asked by a user,
        or by any; at most `limit`, beginning after the id `after`."""

class SyncGrantsFacet:
    """The grants on record."""

    def create(
        self,
        tool: str,
        terms: GrantTerms,
        *,
        actor: Actor | None = None,
        session: str | None = None,
        reason: str | None = None,
        by: Actor | None = None,
        operation: str | None = None,
        arguments: dict[str, Any] | None = None,
        through: str = "python",
    ) -> Grant:
        """Agrees ahead of time to calls of a tool by an actor; never to destructive ones. `by`: who agrees; without it, the
        person at this machine. `operation`: of a tool that has several, the one that is agreed to. `arguments`: those that
        are agreed to, and no others; without them, any. `through`: the door."""
    def get(self, id: str, tenant: str | None, user: str | None = None) -> Grant:
        """Gives one grant of a tenant, or of any (None); for one user, if one is named. Raises `ToolgateError` if there is
        none."""
    def ids(self, tenant: str | None, beginning: str) -> builtins.list[tuple[str, str]]:
        """Gives the ids that begin so, each with its tenant: of one tenant, or of all."""
    def revoke(self, id: str, *, actor: Actor | None = None) -> Grant:
        """Takes a grant back: it holds for no call from now on, in any process."""
    def list(
        self,
        *,
        active: bool = True,
        actor: Actor | None = None,
        tool: str | None = None,
        user: str | None = None,
        limit: int = ...,
        after: str | None = None,
        all_tenants: bool = False,
    ) -> builtins.list[Grant]:
        """Gives the grants of the actor's tenant, or of all, oldest first: those that hold now, or all that there were; of a
        tool, and for a user, or for any; at most `limit`, beginning after the id `after`."""

class SyncBudgetsFacet:
    """The budgets of this installation."""

    def limits(self) -> builtins.list[BudgetRow]:
        """Gives the budgets as they are on record."""
    def get(self, id: str) -> BudgetRow | None:
        """Gives a budget as it is on record; None: there is none of this id."""
    def remove(self, id: str, *, actor: Actor | None = None) -> bool:
        """Removes a budget; gives whether there was one."""
    def costs(
        self, by: By = "tool", *, since: datetime | None = None, tenant: str | None = None, max_rows: int | None = None
    ) -> builtins.list[CostLine]:
        """Gives the calls that ran and what they cost: by tool, user, persona, tenant or day, since the beginning of the
        hour of `since`, by user of its day in UTC; without it, in the last thirty days. `max_rows`: as for `usage`."""
    def use_of_tenants(self, tenants: Iterable[str], *, since: datetime) -> builtins.list[CostLine]:
        """Gives the calls of tenants that ran and their cost, by tenant and persona, since the beginning of the day of
        `since` in UTC, as far as they are counted (`app.statistics.up_to`)."""
    def set(self, budget: BudgetRow, *, actor: Actor | None = None) -> None:
        """Sets a budget, or changes the one of the same id. A new one counts what was spent in its period already."""
    def usage(
        self,
        by: UsageBy = "day",
        *,
        since: datetime | None = None,
        tenant: str | None = None,
        user: str | None = None,
        max_rows: int | None = None,
    ) -> builtins.list[UsageLine]:
        """Gives how many calls ended, and how; by day, tool or user, since the beginning of the hour of `since`;
        without it, in the last thirty days. `max_rows`: the rows of the log, at most, that are counted now; without it, all
        that were not counted before (`app.statistics.up_to`)."""
    def counting(self, tool: str, arguments: Any, actor: Actor) -> builtins.list[BudgetStatus]:
        """Gives the balance of each budget that would count a call; none, if its tool is free, or is gone."""
    def list(self, tenant: str | None = None) -> builtins.list[BudgetStatus]:
        """Gives what of every budget is spent and reserved; of one tenant, or of all."""

class SyncPolicyFacet:
    """The policy in force."""

    @property
    def engine(self) -> EmbeddedEngine | RemoteEngine:
        """The engine that decides: the policy in this process, or an OPA server."""
    @property
    def data(self) -> PolicyData:
        """The data that the policy decides by, as it holds now."""
    def decide(self, actor: Actor, action: Action, tool: str, **about: Any) -> Decision:
        """Gives what the policy says to an action, without doing it."""
    def documents(self, tenant: str | None = None) -> dict[str, Any]:
        """Gives the data that the policy decides by: all of it, or the part that concerns one tenant."""
    def reload(self) -> None:
        """Reads the policy's file again. One that is wrong is refused, and the policy in force stays."""
    def personas(self) -> list[str]:
        """Gives the personas that flags or the policy's data name, by name: for whoever runs this installation."""
    def replay(
        self,
        text: str | None = None,
        *,
        data: Documents | None = None,
        since: datetime | None = None,
        tenant: str | None = None,
    ) -> Replay:
        """Gives what another policy, as Rego, or other data would have said to the calls on record. It decides in a process
        of its own. Documents that `data` leaves out, and allow lists of tenants that it does not name, are those in force.
        Raises PolicyError for what can't be used, or takes too long or too much memory."""
    def suggest(self, *, tenant: str | None = None, persona: str | None = None, days: int = 30) -> PolicySuggestion:
        """Gives the smallest data that would have allowed what was used in the last days: allow lists for a tenant, or for
        all, and rules on arguments whose values were few. With a persona (empty: callers without one), only its list is made
        again. Nothing is applied: `replay` shows what it would change, `set_allow_list` applies it."""
    def set_allow_list(
        self, tenant: str, document: Documents | None, *, reason: str | None = None, actor: Actor | None = None
    ) -> None:
        """Leaves the callers of a tenant the tools on a list, and no others: a document `{personas, no_persona, everybody,
        unlisted_personas}` as in the policy's data. None takes the list away. Raises PolicyError for a malformed one."""
    def observed(self, *, since: datetime | None = None, tenant: str | None = None) -> dict[str, Replay]:
        """Gives what the policies that are observed (`policy.observe`) would have changed, by the name of their files."""
    def deny(self, tool: str, denied: bool = True, *, reason: str | None = None, actor: Actor | None = None) -> None:
        """Denies a tool to everybody, also one that is not there yet; or takes that back."""
    def restrict_code(
        self, tenant: str, restricted: bool = True, *, reason: str | None = None, actor: Actor | None = None
    ) -> None:
        """Forbids a tenant to execute code, or takes that back."""
    def allow_adding_tools(self, persona: str, allowed: bool = True, *, actor: Actor | None = None) -> None:
        """Gives a persona the permission tool.enable, or takes it."""

class SyncSecretsFacet:
    """The secrets of this installation."""

    def has(self, name: str, actor: Actor | None = None) -> bool:
        """Tells whether a secret is set for an actor."""
    def check_place(self, where: str) -> None:
        """Raises `StoreError` if no secret can be set there, before anybody is asked for a value."""
    def remove(self, name: str, owner: Owner, where: str | None = None, *, actor: Actor | None = None) -> tuple[str, ...]:
        """Removes a secret from where it is said to be, or wherever it is kept. Gives where it was."""
    def test(self, tool: str, actor: Actor | None = None) -> CredentialTest:
        """Tests the credential that a tool would be given for an actor, by the tool's own `test_auth(credential)`: a method
        of a class-based tool or an attribute of a function. One with a parameter `ctx` finds providers and the actor there.
        Raises `CallError` if there is no such tool."""
    def list(self) -> tuple[SecretSource, ...]:
        """Gives the sources that can say what they have, and the secrets in each."""
    def set(self, name: str, value: str, owner: Owner, where: str = "file", *, actor: Actor | None = None) -> None:
        """Sets a secret for its owner, in the encrypted file or the keyring."""

class SyncServersFacet:
    """The MCP servers of this installation."""

    @property
    def connections(self) -> UpstreamConnections:
        """The lists of the servers as they are now, and the state of each connection; nothing can be called through it."""
    def get(self, name: str) -> ServerStatus:
        """Gives one MCP server. Raises `SettingsError` if there is none of that name."""
    def add(
        self,
        name: str,
        settings: ServerSettings | Mapping[str, Any],
        *,
        secrets: Mapping[str, str] | None = None,
        actor: Actor | None = None,
        operator: Actor | None = None,
        replace: bool = False,
    ) -> ServerStatus:
        """Adds a server, or with `replace` changes the one of its name, and keeps the secrets that its settings name. It
        is not started yet, and none of its tools is there before it was listed (`refresh`) and they were accepted
        (`accept`)."""
    def try_out(
        self,
        name: str,
        settings: ServerSettings | Mapping[str, Any],
        *,
        secrets: Mapping[str, str] | None = None,
        actor: Actor | None = None,
        operator: Actor | None = None,
        replace: bool = False,
    ) -> bool:
        """Starts a server that is about to be added, and asks it what it has: nothing of it is kept. Raises CallError if it
        can't be used; `details` has the last lines of its stderr. False: it can't be tried, since it is off or a secret is
        missing. Otherwise it runs, and `add` with the same settings takes it over."""
    def remove(self, name: str, *, actor: Actor | None = None, operator: Actor | None = None) -> None:
        """Removes a server that was added, with its tools and what was accepted of them."""
    def restart(self, name: str, *, actor: Actor | None = None, operator: Actor | None = None) -> None:
        """Restarts a server in every process that has it running."""
    def refresh(self, name: str) -> Comparison:
        """Asks a server what it has now, and compares that with what was accepted. It is started if need be."""
    def quarantined(self, server: str | None = None) -> builtins.list[PendingDefinition]:
        """Gives the definitions that wait to be accepted: of a server or an OpenAPI document (`openapi:NAME`), or of all."""
    def pinned(self, entry: Entry) -> DefinitionPin | None:
        """Gives the definition of a tool of a server as it was accepted, and by whom; None: it is no tool of a server."""
    def accept(
        self, shown: Iterable[PendingDefinition], *, actor: Actor | None = None, operator: Actor | None = None
    ) -> builtins.list[PendingDefinition]:
        """Accepts definitions as they were shown (`quarantined`); they can be called from now on, in every process. Gives
        those that were accepted: one that has changed since it was shown is not."""
    def import_from(
        self, document: Any, *, actor: Actor | None = None, replace: bool = False, use: Collection[str] = ...
    ) -> tuple[builtins.list[ImportedServer], builtins.list[ToolProblem]]:
        """Adds the servers of a file as desktop clients and editors have it. Credentials in it are kept as secrets; of those
        that are there already, a server is given only what `use` names. Gives those that were added, and why others were
        not."""
    def log_in(
        self,
        name: str,
        show: Callable[[str], None],
        *,
        browser: bool = True,
        actor: Actor | None = None,
        accept_issuer: str | None = None,
    ) -> str | None:
        """Logs in to a remote server; `show` is given the address where a person does that. Tokens are kept as secrets."""
    @property
    def accepted_items(self) -> AcceptedItems:
        """The prompts and resources that were accepted; another object as soon as they are others."""
    @property
    def unreachable(self) -> builtins.list[str]:
        """The names of servers that can't be reached now: their tools may be missing, or fail."""
    @property
    def problems(self) -> builtins.list[ToolProblem]:
        """Servers and tools of theirs that can't be used, and why."""
    def is_listed(self, name: str) -> bool:
        """Tells whether it is known what a server has."""
    def why_unusable(self, name: str) -> str | None:
        """Gives what is wrong with the settings of a server; None: nothing is, or there is no such server."""
    def has(self, name: str) -> bool:
        """Tells whether there is a server of this name, usable or not."""
    def items(self, name: str) -> builtins.list[str]:
        """Gives the prompts and resources of a server that were accepted."""
    def subscribe(self, name: str, uri: str, *, tool: str, actor: Actor) -> None:
        """Has listeners of `connections` told when a resource changes, until as many have unsubscribed. The actor, who may
        read it with a tool, is on record."""
    def on_step(self, name: str, tell: Callable[[str], None]) -> None:
        """Has a function called with each step of a server's installation and start."""
    def missing_secrets(self, settings: ServerSettings) -> builtins.list[str]:
        """Gives the names of the secrets that a server is to be given, and that are not set."""
    def ready(self) -> tuple[int, int]:
        """Gives how many servers are not down, and how many there are: as this process knows them, without a look at the
        store."""
    def list(self) -> builtins.list[ServerStatus]:
        """Gives every MCP server, those of the settings file first."""

class SyncTeamsFacet:
    """The tools of the organisation."""

    def status(self) -> TeamStatus:
        """Gives how the organisation's bundle stands here."""
    def waiting(self) -> builtins.list[TeamTool]:
        """Gives what of the newest bundle waits for a person."""
    def get(self, name: str) -> TeamTool:
        """Gives one tool of the newest bundle. Raises `BundleRefused` if it has none of that name."""
    def sync(self, *, operator: Actor | None = None) -> ReceivedBundle:
        """Gets the bundle from where the settings say. What it brings waits to be accepted; tools that it no longer has
        can't be called any more. Raises `BundleRefused`, with nothing changed."""
    def add(self, content: bytes, *, operator: Actor | None = None) -> ReceivedBundle:
        """Takes a bundle that came by another way, such as a file, as `sync` does."""
    def accept(self, shown: Iterable[TeamTool], *, operator: Actor | None = None) -> builtins.list[TeamTool]:
        """Accepts tools as they were shown (`list`), all or none: they can be called from now on, in every process, as long
        as nobody rejects them or the organisation removes them. Gives those that were accepted: none, if one has changed
        since it was shown. Raises `BundleRefused` for what can't be used."""
    def reject(self, shown: Iterable[TeamTool], *, operator: Actor | None = None) -> builtins.list[TeamTool]:
        """Rejects tools as they were shown. A change that waits is not taken, and what was accepted stays in use; what is
        accepted as it is, or whose change was rejected already, is used no more. Gives those that were rejected."""
    def remove(self, *, operator: Actor | None = None) -> int:
        """Takes all tools of the organisation out of use, and forgets what was accepted of them. Gives how many there were.
        The version of its bundle stays known, so that no older one is taken later."""
    def publish(self, content: bytes, *, org_id: str, public_key: str, operator: Actor | None = None) -> BundleRow:
        """Publishes a bundle for installations that get theirs from this Toolgate. It is checked as they will check it.
        Raises `BundleRefused`, with nothing changed."""
    def published(self, org_id: str) -> BundleRow | None:
        """Gives the bundle that is published here for an organisation; None: there is none."""
    def list(self) -> builtins.list[TeamTool]:
        """Gives the tools of the newest bundle, with what waits, and the difference to what was accepted."""

class SyncOpenApiFacet:
    """The OpenAPI documents of this installation."""

    def list(self) -> builtins.list[DocumentStatus]:
        """Gives every document, in the order in which they were added."""
    def get(self, name: str) -> DocumentStatus:
        """Gives one document. Raises `SettingsError` if there is none of that name."""
    def add(
        self,
        name: str,
        origin: str,
        *,
        content: bytes | None = None,
        server: str | None = None,
        operations: Sequence[str] = ...,
        secrets: Mapping[str, str] | None = None,
        replace: bool = False,
        actor: Actor | None = None,
        operator: Actor | None = None,
    ) -> AddedDocument:
        """Reads a document from a URL, or a file of this machine, and has each of its operations wait to be accepted."""
    def refresh(
        self, name: str, *, content: bytes | None = None, actor: Actor | None = None, operator: Actor | None = None
    ) -> AddedDocument:
        """Reads a document again, and compares its operations with those that were accepted."""
    def remove(self, name: str, *, actor: Actor | None = None, operator: Actor | None = None) -> None:
        """Removes a document with its tools and what was accepted of them."""
    def problems(self, name: str) -> Sequence[ToolProblem]:
        """Gives the operations of a document that could not be tools when this process last read it."""

class SyncAuditFacet:
    """The audit log."""

    @property
    def is_signed(self) -> bool:
        """True if heads of the log are signed (setting audit.key)."""
    def verify(self, heads: Iterable[SignedHead | None] = ...) -> LogVerdict:
        """Walks the whole audit log and compares it with the head noted outside the database, with the signed heads (those
        that are kept, and those that are given) and with the details that are kept of calls. The verdict's `ok` is true if
        nothing was changed."""
    def artifact(self, id: str, *, actor: Actor | None = None) -> bytes | None:
        """Gives the whole output of a call that was cut, as JSON, to the user whose call it was; None to everybody else."""
    def artifact_of_anybody(self, id: str, tenant: str) -> bytes | None:
        """Gives the whole output of any user's call within a tenant: for whoever runs this installation."""
    def of_call(self, call_id: str) -> Rows:
        """Gives the records of a call, as rows of the log, oldest first; a beginning of its id will do if it is the only one
        that begins so."""
    def latest(self, count: int, *, tenant: str | None = None, tool: str | None = None, status: str | None = None) -> Rows:
        """Gives the last rows of the log, oldest first."""
    def after(self, seq: int, *, tenant: str | None = None, limit: int = ...) -> Rows:
        """Gives the rows of the log after a number: one page, in order; of a tenant, or of all."""
    @property
    def tail(self) -> SyncLogTail:
        """The end of the log, followed live: `with app.audit.tail.watching() as watcher`."""
    def rows(self, wanted: LogFilter, *, before: int | None = None, limit: int = 50) -> LogPage:
        """Gives rows of the log, newest first, beginning before a number. A page may hold less than `limit` though there are
        more: its `next` says where to go on."""
    def calls(self, wanted: CallFilter, *, before: int | None = None, limit: int = 50) -> LogPage:
        """Gives the end records of calls, newest first, beginning before a number; pages as for `rows`."""
    def calls_within(self, call_id: str, *, tenant: str, levels: int = 5, limit: int = 200) -> Rows:
        """Gives the end records of the calls that a call made, of those that these made, and so on, level by level."""
    def are_linked(self, rows: Rows) -> bool:
        """Tells whether the hash of each of these rows is that of its content and of the row before it. Only `verify` tells
        whether the whole log is as it was written."""
    def tenants(self, limit: int) -> list[str]:
        """Gives the tenants that the log has rows of, by name, at most `limit`: for whoever runs this installation."""
    def on_call(self, listener: Callable[[InvokeContext, Outcome], None]) -> None:
        """Has a function called with each call that ends, and its outcome. It must be quick and raise nothing: a call waits
        for it. A `Hook` may do more, and costs more."""
    def of_request(self, request_id: str, *, tenant: str | None = None) -> tuple[str, ...]:
        """Gives the ids of the calls that were made with a request id of the caller's own, oldest first; of a tenant, or of
        all."""
    def latest_head(self) -> SignedHead | None:
        """Gives the latest signed head; None: none was signed, or heads are not signed."""
    def prove(self, call_id: str) -> dict[str, Any] | None:
        """Gives a proof that the records of a call are in the audit log; None if there is no such call."""
    def details(self, call_id: str, *, tenant: str | None = None) -> tuple[CallDetails, ...]:
        """Gives what is kept of a call besides its records: what each gate said, how long each took, and the output (setting
        audit.details). Nothing if there is no such call, of that tenant if one is given, or nothing was to be kept."""
    def prune_details(self) -> int:
        """Removes details that are older than audit.details.days, or beyond audit.details.total_bytes; gives of how many
        calls. It happens by itself every ten seconds."""
    def sign_with(self, keys: HeadKeys) -> None:
        """Has the heads of the audit log signed by keys that are kept elsewhere, in a KMS say. To be called before
        `with`."""
    def key(self, *, rotate: bool = False) -> dict[str, Any]:
        """Gives the key that signs the heads of the audit log. `rotate`: signs once more with it, then makes a new one."""
    def sign(self, *, anew: bool = False, actor: Actor | None = None) -> SignedHead | None:
        """Signs the head of the audit log now; gives the latest signed head. `anew`: accepts the log as it is, whatever was
        signed before."""
    def heads(self) -> tuple[Head | None, Head]:
        """Gives the last head noted outside the database, and where the log ends, without walking it."""
    def end(self) -> Head:
        """Gives where the log ends."""

class SyncStatisticsFacet:
    """Counts of the calls that ended. They are made from the audit log, which alone is the record."""

    def over_time(
        self, wanted: CountFilter, since: datetime, until: datetime, *, step: int | None = None, by: CountBy = "status"
    ) -> CallStatistics:
        """Gives figures and series of a time, which is widened to whole steps. Steps of less than a day are hours or
        several of them. Raises `InvalidInput` for what is not counted: by two of persona, door and user, or in steps
        that are too many."""
    def values(
        self, wanted: CountFilter, since: datetime, until: datetime, bys: Sequence[CountBy]
    ) -> dict[CountBy, list[tuple[str, int]]]:
        """Gives the names that calls of a time have, with how many calls there are of each; the most first, at most 100.
        Those of a user, of a persona by tool, and of more than two days, are of whole days."""
    def catch_up(self, *, max_rows: int | None = None) -> Counted:
        """Counts the rows of the log that are not counted yet: all, or at most so many. Gives how far that came."""
    def up_to(self) -> Counted:
        """Gives how far the log is counted."""
    def rebuild(self) -> Counted:
        """Counts the whole log again. It may take long; meanwhile, answers hold what is counted so far."""
    def counting(self) -> AbstractContextManager[None]:
        """Counts rows in the background while inside `with`: in small steps, and slowly while calls are made."""

class SyncLearningFacet:
    """The consequences of past calls. Nothing of it crosses tenants, and none of it adds a tool to what an actor may use."""

    @property
    def by_meaning(self) -> bool:
        """True if tasks are compared by their meaning: the extra `embeddings` is installed. Otherwise it is their words."""
    def weights(self, actor: Actor | None = None) -> Mapping[str, float]:
        """Gives the factors, by name of tool, that order what an actor's searches find: from 0.7 to 1.15, 1 for a tool of
        which nothing is known."""
    def feedback(self, said: Feedback, *, actor: Actor | None = None, all_users: bool = False) -> FeedbackRow:
        """Takes what an actor says about a call, or about a tool. `all_users`: it may be about calls of others in the
        tenant."""
    def remember(self, text: str, *, tags: Sequence[str] = ..., actor: Actor | None = None) -> str:
        """Keeps a note for later `recall`, secrets masked; gives its id. Raises `InvalidInput`, and `CallError`
        (RATE_LIMITED, CAPACITY_EXCEEDED)."""
    def recall(self, query: str, *, limit: int = 10, actor: Actor | None = None, all_users: bool = False) -> list[PastTask]:
        """Gives the actor's tasks and notes that are like a query, with the tools that worked. `all_users`: those of all
        users of the tenant. Raises `InvalidInput`."""
    def recommend(self, task: str, *, limit: int = 5, actor: Actor | None = None) -> list[Recommendation]:
        """Gives the tools that succeeded with similar tasks of anybody in the tenant, of those that the actor may see.
        Raises `InvalidInput`."""
    def show(
        self, *, tenant: str | None = None, tool: str | None = None, user: str | None = None, since: datetime | None = None
    ) -> list[ToolReport]:
        """Gives how each tool did since then, or in the last thirty days: the least reliable first, at most 100. Of one
        tenant or of all, of one user, tool or of all. How it went over time says `app.statistics`."""
    def said(self, *, tenant: str, user: str | None = None, tool: str | None = None, limit: int = 50) -> list[FeedbackRow]:
        """Gives the latest feedback of a tenant, the newest first: of one user or tool, or of all."""
    def forget(
        self, tenant: str, *, user: str | None = None, before: datetime | None = None, actor: Actor | None = None
    ) -> int:
        """Deletes feedback, past tasks and notes of a tenant, or of one of its users; all, or what is from before a moment.
        Of a whole tenant, what its outcomes taught is forgotten too. Gives how much there was."""
    def suggestions(self) -> list[Proposal]:
        """Gives the limits that tools should have by what was seen of them, and those that were answered. For operators."""
    def accept(self, id: str, *, actor: Actor | None = None) -> Proposal:
        """Has a proposal hold from now on, in all processes; also one that was rejected. Raises `FeedbackRefused` if there
        is no such proposal."""
    def reject(self, id: str, *, actor: Actor | None = None) -> Proposal:
        """Has a proposal not made again; one that was accepted holds no more. Raises `FeedbackRefused` as `accept`."""

class SyncAttentionFacet:
    """The things that need a person, of a tenant or of the whole installation."""

    def list(
        self,
        actor: Actor,
        permissions: Collection[Permission],
        *,
        all_tenants: bool = False,
        budgets: Sequence[BudgetStatus] | None = None,
    ) -> builtins.list[AttentionItem]:
        """Gives what somebody with these permissions may see: their own calls and jobs; with `read`, all that is the
        tenant's; with `operate`, also what is the installation's. `budgets`: their balances, if they are known already."""

class SyncChangesFacet:
    """Changes that are made only if nothing else has changed."""

    def alone(self, name: str) -> AbstractContextManager[None]:
        """Holds the lock of a name, with what other processes changed before it taken over. Raises CAPACITY_EXCEEDED if
        another holds it too long."""

class SyncIdempotencyFacet:
    """The idempotency keys on record: those whose call began and has no known end need a person."""

    @property
    def lease_seconds(self) -> float:
        """The longest time until the calls of a process that died are known to have no end."""
    def unsettled(self, tenant: str | None = None) -> builtins.list[KeyRow]:
        """Gives the idempotency keys whose call began and has no known end: of a tenant, or of all."""
    def list(self, tenant: str | None = None, *, state: IdempotencyState | None = None) -> builtins.list[KeyRow]:
        """Gives the latest keys, oldest first: of a tenant, or of all; in a state, or in any."""
    def get(self, key: str, *, actor: Actor | None = None) -> KeyRow | None:
        """Gives what is known of an actor's key; None: nothing."""
    def settle(self, key: str, *, happened: bool, output: Any = None, actor: Actor | None = None) -> KeyRow:
        """Says whether the call with this key had its effect. If it had, callers are given `output`; if not, the key is
        free again."""

class SyncKeysFacet:
    """The API keys of this installation."""

    def create(
        self,
        name: str,
        actor: Actor,
        *,
        lasting: timedelta | None = None,
        roles: Iterable[Role] = ...,
        may_approve: bool = False,
        may_speak: bool = False,
        same_user: bool = False,
        by: Actor | None = None,
    ) -> tuple[ApiKey, str]:
        """Makes a key with which its holder acts for an actor. Gives it and, this once, its text."""
    def revoke(self, id: str, *, by: Actor | None = None) -> ApiKey:
        """Ends a key: no process takes it from now on. Raises `KeyRefused`."""
    def get(self, id: str, tenant: str | None = None) -> ApiKey:
        """Gives a key: of a tenant, or of any. Raises `KeyRefused` if there is none."""
    def list(
        self,
        tenant: str | None = None,
        *,
        limit: int | None = None,
        after: str | None = None,
        state: KeyState | None = None,
        named: str | None = None,
    ) -> builtins.list[ApiKey]:
        """Gives all keys, or those of a tenant, in a state, and with a text in their name; oldest first: at most `limit`,
        beginning after the id `after`."""
    def any(self) -> bool:
        """Tells whether there is a key that would be taken."""
    def sealing_key(self, purpose: str) -> str:
        """Gives the key with which a door seals what its clients carry for it: in the store, so that all processes agree."""
    def known(self, text: bytes) -> Credential | None:
        """Gives who holds a key, if it was checked a moment ago and nothing has changed since; None: ask `check`."""
    def check(self, text: bytes) -> Credential | None:
        """Gives who holds a key; None if it is none, or one that expired or was revoked."""
    def recall(self, id: str) -> Credential | None:
        """Gives whose key this id is of, to go on with what its holder began; None if there is no such key. Raises
        `KeyRefused` if it is no longer valid."""
    def close(self) -> None:
        """Waits until the use of every key that was checked is noted."""

class SyncIssuersFacet:
    """The issuers whose tokens are taken."""

    @property
    def names(self) -> tuple[str, ...]:
        """The issuers, as their tokens name them."""
    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that tokens must have."""
    def known(self, text: bytes) -> Credential | None:
        """Gives who holds a token, if it was checked a moment ago; None: ask `check`."""
    def check(self, text: bytes) -> Credential | None:
        """Gives who holds a token; None if it is none that is taken. Raises `MissingScope`, and `KeySetUnavailable` where
        that can't be told."""
    def recall(self, id: str) -> None:
        """Raises `KeyRefused` if this is the id of a token's holder: tokens are not kept, so that nobody can go on in their
        name."""
    def close(self) -> None:
        """Lets go of what is being fetched."""

class SyncSignInsFacet:
    """The sign-in links of this installation, and the browsers that are signed in."""

    def create_link(
        self, actor: Actor | None = None, *, roles: Iterable[Role] = ..., by: Actor | None = None
    ) -> tuple[SignInLink, str]:
        """Makes a link that signs its opener in as an actor, once. Gives it and, this once, its token. Without an actor, it
        is for the person at this machine. Raises `SignInRefused`."""
    def open_link(self, token: str) -> tuple[WebSession, str] | None:
        """Signs in whoever has the token of a link. Gives the session and, this once, its token; None: there is no such
        link, or it was used, or has expired."""
    def address(self) -> str | None:
        """Gives the address that a link leads to: the public one, or that of a server which runs on this database."""
    def serve_at(self, url: str) -> None:
        """Says where this process serves HTTP, so that others can make links to it."""
    def known(self, text: bytes) -> Credential | None:
        """Gives whose session a token is of, if it was checked a moment ago and nothing has changed since."""
    def check(self, text: bytes) -> Credential | None:
        """Gives whose session a token is of; None if it is none, or one that expired or was revoked."""
    def find(self, text: bytes) -> WebSession | None:
        """Gives the session that a token is of, if it is valid."""
    def list(self, tenant: str | None = None) -> builtins.list[WebSession]:
        """Gives the sessions on record, of all tenants or of one; oldest first."""
    def revoke(self, id: str, *, by: Actor | None = None) -> WebSession:
        """Ends a session: no process takes its cookie from now on. Raises `SignInRefused`."""
    def close(self) -> None:
        """Waits until the use of every session that was checked is noted."""
    def csrf_token(self, credential: Credential) -> str:
        """Gives what a form of this session's pages holds in a hidden field: a page of somebody else can't know it."""
    def is_csrf_token(self, credential: Credential, sent: str) -> bool:
        """Tells whether a form was sent by a page of this session."""

class SyncJobsFacet:
    """Jobs: calls of tools and other work that workers do in the background."""

    def add_handler(self, handler: Handler) -> None:
        """Adds the handler of a type of jobs, a function declared with `@job_handler`."""
    def enqueue(
        self,
        type: str,
        payload: Mapping[str, Any],
        *,
        actor: Actor | None = None,
        key: str | None = None,
        delay: float = 0.0,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> Job:
        """Queues a job of a type that has a handler. Calls of tools are queued with `app.enqueue`."""
    def get(self, id: str, *, actor: Actor | None = None, all_users: bool = False) -> Job:
        """Gives a job. Raises `Failed` if there is none of this id that the actor may see."""
    def ids(self, tenant: str | None, beginning: str) -> builtins.list[tuple[str, str]]:
        """Gives the ids that begin so, each with its tenant: of one tenant, or of all."""
    def list(
        self,
        *,
        state: str | None = None,
        type: str | None = None,
        persona: str | None = None,
        actor: Actor | None = None,
        all_users: bool = False,
        all_tenants: bool = False,
        limit: int = ...,
        before: str | None = None,
    ) -> builtins.list[Job]:
        """Gives the latest jobs, latest first; `before`: those that are older than the one with this id. `all_tenants` is
        for whoever runs this installation; `persona` narrows what `all_users` and `all_tenants` give."""
    def follow(self, id: str, *, actor: Actor | None = None, all_users: bool = False) -> Iterator[Job]:
        """Gives a job as it is, and again whenever it has changed, until it is over."""
    def wait(self, id: str, seconds: float, *, actor: Actor | None = None, all_users: bool = False) -> Job:
        """Gives a job once it is over, or as it is after so many seconds."""
    def cancel(self, id: str, *, actor: Actor | None = None, all_users: bool = False) -> Job:
        """Ends a job: at once if it waits, and if it runs as soon as its worker hears of it."""
    def retry(self, id: str, *, actor: Actor | None = None, all_users: bool = False) -> Job:
        """Has a job that failed, was cancelled or is parked tried again; a parked one, perhaps, for the second time."""
    def counts(self, *, actor: Actor | None = None, all_tenants: bool = False) -> dict[str, int]:
        """Gives the number of the tenant's jobs in each state, or of all tenants'."""
    def backlog(self, failed_seconds: float, due_seconds: float) -> JobBacklog:
        """Gives what of all tenants' jobs somebody should look at: how many there are in each state, failed within so many
        seconds, and are due for so many. For whoever runs this installation."""
    @property
    def types(self) -> frozenset[str]:
        """The types of jobs that this process has a handler for."""
    def worker(
        self, concurrency: int | None = None, *, once: bool = False, observers: Sequence[AttemptObserver] = ...
    ) -> AbstractContextManager[SyncJobWorker]:
        """Runs jobs in this process, of all tenants, while inside `with`; those that run at its end are waited for."""
    def run_all(self, concurrency: int | None = None) -> None:
        """Runs all jobs that are due in this process, until none is left."""
    def keep_waiting(self, call: Call, outcome: Outcome) -> Outcome:
        """Keeps a call that was to be queued and waits for a person: it is queued when they have agreed."""

class SyncQStashFacet:
    """The door of QStash, a queue that brings its messages by HTTP."""

    @property
    def max_bytes(self) -> int | None:
        """The size of the largest message that is taken; None: none is taken."""
    def receive(self, delivery: QStashMessage) -> Job:
        """Queues the job that a message brings; gives the one that it brought before, if it comes again."""

class SyncSchedulesFacet:
    """Schedules: calls of tools and other jobs that are queued at the times of a cron line."""

    def add(
        self,
        cron: str,
        tool: str,
        arguments: Mapping[str, Any] | str | bytes | None = None,
        *,
        name: str | None = None,
        timezone: str | None = None,
        max_runs: int | None = None,
        until: datetime | None = None,
        actor: Actor | None = None,
        session: str | None = None,
        workspace: str | os.PathLike[str] | None = None,
        door: str = "python",
    ) -> Schedule:
        """Has a tool called at the times of a cron line."""
    def add_job(
        self,
        cron: str,
        type: str,
        payload: Mapping[str, Any],
        *,
        name: str | None = None,
        timezone: str | None = None,
        max_runs: int | None = None,
        until: datetime | None = None,
        actor: Actor | None = None,
    ) -> Schedule:
        """Has a job of a type that has a handler queued at the times of a cron line. Calls of tools are added with `add`."""
    def times(self, cron: str, *, timezone: str | None = None, count: int = 5, actor: Actor | None = None) -> CronTimes:
        """Gives the next times of a cron line in a time zone, without one in that of the user. Raises `Failed`."""
    def get(self, id_or_name: str, *, actor: Actor | None = None, all_users: bool = False) -> Schedule:
        """Gives a schedule. Raises `Failed` if there is none that the actor may see."""
    def list(
        self,
        *,
        actor: Actor | None = None,
        all_users: bool = False,
        limit: int = ...,
        after: str | None = None,
        state: ScheduleState | None = None,
        named: str | None = None,
    ) -> builtins.list[Schedule]:
        """Gives the schedules, oldest first; `after`: those that are younger than the one with this id; `named`: those with
        this text in their name."""
    def pause(self, id_or_name: str, *, actor: Actor | None = None, all_users: bool = False) -> Schedule:
        """Has a schedule fire no more until it is resumed. A job that it has queued is not affected."""
    def resume(self, id_or_name: str, *, actor: Actor | None = None, all_users: bool = False) -> Schedule:
        """Has a schedule that is paused fire again, from its next time on."""
    def remove(self, id_or_name: str, *, actor: Actor | None = None, all_users: bool = False) -> Schedule:
        """Removes a schedule, and cancels its job if one is not over. Gives what was removed."""
    def run_now(self, id_or_name: str, *, actor: Actor | None = None, all_users: bool = False) -> Job:
        """Queues the job of a schedule now, besides its times. It is done for the user of the schedule."""

class SyncDocumentsFacet:
    """The documents that were taken in. Tools see only those of their caller's tenant and persona."""

    def remove(self, id: str, *, actor: Actor | None = None, all_users: bool = True) -> DocumentRow | None:
        """Removes a document of the actor's tenant, with its passages; `all_users=False`: only one that the actor's user
        took in. Gives what was removed; None: there is none."""
    def list(
        self, tenant: str | None = None, *, user: str | None = None, after: str | None = None, limit: int | None = None
    ) -> builtins.list[DocumentRow]:
        """Gives the documents of a tenant, or of all; that one user took in, or all; oldest first. `after`: those that are
        younger than the one with this id."""

class SyncAttachmentsFacet:
    """The files that users uploaded. An actor sees and removes those of their own user; `all_users`, those of their tenant.
    The tool `document_ingest` takes one by its id."""

    @property
    def max_bytes(self) -> int:
        """The size of the largest file that is taken."""
    def add(self, name: str, content: bytes, *, media_type: str | None = None, actor: Actor | None = None) -> AttachmentRow:
        """Keeps a file of the actor's user. Raises `InvalidInput` for one that is empty, too large or without a name, and
        `Failed` if the user has as much as they may have."""
    def get(self, id: str, *, actor: Actor | None = None, all_users: bool = False) -> tuple[AttachmentRow, bytes]:
        """Gives a file with its content. Raises `Failed` if there is none that the actor may see."""
    def list(
        self, *, actor: Actor | None = None, all_users: bool = False, limit: int = ..., before: str | None = None
    ) -> builtins.list[AttachmentRow]:
        """Gives the latest files, latest first; `before`: those that are older than the one with this id."""
    def remove(self, id: str, *, actor: Actor | None = None, all_users: bool = False) -> AttachmentRow:
        """Removes a file. Gives what was removed. Raises `Failed` if there is none that the actor may remove."""

class SyncCanvasFacet:
    """The canvases of sessions: blocks that agents appended with `canvas_append`."""

    def read(
        self, session: str, *, pane: str | None = None, after: int = 0, limit: int = ..., actor: Actor | None = None
    ) -> builtins.list[CanvasBlock]:
        """Gives the blocks of the canvas of an actor's session, in order: of one pane, or of all; at most `limit`, beginning
        after the number `after`."""
    def clear(self, session: str, *, actor: Actor | None = None) -> int:
        """Removes the canvas of an actor's session; gives how many blocks it had."""
    def list(self, *, actor: Actor | None = None) -> builtins.list[CanvasRow]:
        """Gives the canvases of an actor's sessions, those first that changed last."""

class SyncNotificationsFacet:
    """The messages of agents to users, sent with `notify_user`."""

    def dismiss(self, id: str, *, actor: Actor | None = None) -> bool:
        """Removes a notification of an actor's user; gives whether there was one."""
    def list(
        self, *, actor: Actor | None = None, all_users: bool = False, limit: int = ..., before: str | None = None
    ) -> builtins.list[Notification]:
        """Gives the latest notifications of the actor's user, or of all users of the tenant, oldest first; `before`: those
        that are older than the one with this id."""

class SyncPushTokensFacet:
    """The services at which users want their notifications. A token is a credential: it is kept encrypted, and not shown."""

    def add(self, url: str, name: str | None = None, *, actor: Actor | None = None) -> PushToken:
        """Adds a push token of the actor's user: an apprise URL of a kind that the setting `notify.push.kinds` allows."""
    def remove(self, id_or_name: str, *, actor: Actor | None = None) -> PushToken | None:
        """Removes a push token of the actor's user. Gives what was removed; None: there is none."""
    def list(self, *, actor: Actor | None = None) -> builtins.list[PushToken]:
        """Gives the push tokens of the actor's user, oldest first."""

class SyncBehavioursFacet:
    """The adjustments of behaviour, made with `behaviour_adjustment`: every prompt of their persona has them."""

    def current(self, actor: Actor | None = None) -> builtins.list[str]:
        """Gives the adjustments that hold for the tenant and persona of an actor, oldest first."""
    def remove(self, id: str, *, actor: Actor | None = None) -> AdjustmentRow | None:
        """Removes an adjustment of the actor's tenant. Gives what was removed; None: there is none."""
    def list(self, tenant: str = ...) -> builtins.list[AdjustmentRow]:
        """Gives the adjustments of all personas of a tenant."""

class SyncAgentsFacet:
    """The runs of agents. Each belongs to the actor that started it; to any other it is not there."""

    def start(
        self,
        text: str,
        *,
        actor: Actor | None = None,
        session: str | None = None,
        limits: RunLimits | None = None,
        style: RunStyle | None = None,
        workspace: str | os.PathLike[str] | None = None,
        background: bool = False,
        door: str = "python",
    ) -> Run:
        """Begins a run and returns: this App drives it until it ends, also past answers of people that it waits for. If this
        process dies, a worker goes on with it."""
    def say(
        self,
        run: Run | str,
        text: str,
        *,
        actor: Actor | None = None,
        limits: RunLimits | None = None,
        background: bool = False,
    ) -> Run:
        """Goes on with a conversation that has ended, with its whole history, as `start` does. Raises a `ToolgateError`
        while it runs or waits."""
    def run(
        self,
        text: str,
        *,
        actor: Actor | None = None,
        session: str | None = None,
        limits: RunLimits | None = None,
        style: RunStyle | None = None,
        workspace: str | os.PathLike[str] | None = None,
        run: Run | str | None = None,
        stop_when_left: bool = False,
        door: str = "python",
    ) -> Iterator[RunEvent]:
        """Starts a run, or says something in one (`run`), and gives its events until it ends or waits for a person. The last
        one is `end`, with its result."""
    def resume(self, run: Run | str, *, actor: Actor | None = None) -> Run:
        """Goes on with a run that waits, has failed, or whose process has died, and returns: this App drives it. What was
        done is not done again. What still waits for a person goes on waiting."""
    def follow(self, run: Run | str, *, actor: Actor | None = None, stop_when_left: bool = False) -> Iterator[RunEvent]:
        """Gives the events of a run that this App drives, from now on, until it ends or waits; of any other only the end,
        when it has come."""
    def wait(self, run: Run | str, seconds: float, *, actor: Actor | None = None) -> RunResult:
        """Gives the result of a run once it has ended or waits for a person, or how it stands when the time is over."""
    def list(
        self, *, actor: Actor | None = None, status: RunStatus | None = None, limit: int = 100, before: str | None = None
    ) -> builtins.list[Run]:
        """Gives the latest runs of the actor, latest first: in one state, or in any; at most `limit`, older than the one
        whose id is `before`."""
    def show(self, run: Run | str, *, actor: Actor | None = None) -> Transcript:
        """Gives a run with all that was said in it, secrets masked. Raises a `ToolgateError` if the actor has none of this
        id."""
    def cancel(self, run: Run | str, *, actor: Actor | None = None) -> Run:
        """Ends a run, whichever process drives it, and withdraws the questions that it waits for."""

class SyncUndoFacet:
    """The backups of files that calls changed."""

    def calls(self, beginning: str, actor: Actor | None = None) -> list[str]:
        """Gives the ids of the actor's calls that can be undone and begin so."""
    def is_possible(self, call_id: str, *, actor: Actor | None = None) -> bool:
        """Tells whether there are backups of files that a call of the actor's user changed, and that were not put back."""
    def preview(self, call_id: str, *, actor: Actor | None = None, force: bool = False) -> list[Undone]:
        """Gives what `revert` would do, and does nothing."""
    def revert(self, call_id: str, *, actor: Actor | None = None, force: bool = False) -> list[Undone]:
        """Puts back the files that a call changed. `force`: also those that were changed again since."""

class SyncWorkspaceFacet:
    """The changes that were not brought into workspaces."""

    def changes(self) -> list[QuarantineSet]:
        """Gives the sets of changes that programs and servers made in workspaces and that wait, oldest first."""
    def get(self, number: str) -> QuarantineSet:
        """Gives one set of changes. Raises `ToolgateError` if there is none."""
    def content(self, one: QuarantineSet, change: Any) -> bytes | None:
        """Gives the content that a change of a set would bring in."""
    def take(self, number: str, paths: Iterable[str] = ..., *, actor: Actor | None = None) -> list[str]:
        """Makes the changes of a set in its workspace, or only those to some paths. Gives what could not be done."""
    def drop(self, number: str, *, actor: Actor | None = None) -> None:
        """Forgets a set of changes."""

class SyncSessionsFacet:
    """The sessions that calls name."""

    def work_in(self, session: str, folder: str | os.PathLike[str], *, tenant: str = ..., user: str = ...) -> Path:
        """Sets the folder in which the calls of a user's session read and write files and run commands."""
    def share(self, name: str, with_users: Iterable[str], *, tenant: str = ...) -> None:
        """Shares one session, with its files and providers, among these users of a tenant, until the App is closed. For
        everybody else the name means a session of their own. The setting `sessions.shared` does it for good."""

class SyncWorkflowsFacet:
    """The workflows that were started and report their end by a callback."""

    def get(self, id: str, *, actor: Actor | None = None) -> Invocation | None:
        """Gives an invocation of the actor's user; None: there is none."""
    def wait(self, id: str, seconds: float, *, actor: Actor | None = None) -> Invocation | None:
        """Gives an invocation of the actor's user when it is over, or as it is when the seconds are."""
    def check_proof(self, *, timestamp: str, signature: str) -> None:
        """Raises `CallbackRefused` for a report that can't be valid, before it is read."""
    def report(self, id: str, body: bytes, *, timestamp: str, signature: str) -> None:
        """Takes the report of a workflow's end. Raises `CallbackRefused` if it is not signed, or was made before."""
    def list(
        self,
        *,
        actor: Actor | None = None,
        all_users: bool = False,
        workflow: str | None = None,
        state: str | None = None,
        limit: int = ...,
    ) -> builtins.list[Invocation]:
        """Gives the latest invocations of the actor's user, or of all users of the tenant, oldest first."""

class SyncLogTail:
    """The watchers of one process, and the one reader for them."""

    def watching(
        self, after: int | None = None, *, tenant: str | None = None, user: str | None = None
    ) -> AbstractContextManager[SyncWatcher]:
        """Follows the log while inside `with`."""
    def close(self) -> None:
        """Ends the reader."""

class SyncJobWorker:
    """Runs jobs in this process."""

    def start(self, *, once: bool = False) -> None:
        """Begins to run jobs in the background; `once`: until none is left that is due."""
    def run_once(self) -> None:
        """Runs all jobs that are due, and those that they queue, until none is left."""
    def wait(self) -> None:
        """Waits until it is told to stop, or (`once`) no job is left. Raises what else ended it."""
    @property
    def is_halting(self) -> bool: ...
    def halt(self) -> None:
        """Has it take no more jobs. `stop` waits for those that run."""
    def hurry(self) -> None:
        """Has `stop` wait for none of those that run: they are interrupted, and queued again."""
    def stop(self) -> None:
        """Takes no more jobs, waits for those that run as long as the settings say, and has the others queued again."""

class SyncWatcher:
    """Somebody who follows the log, from one number on."""

    def give(self, event: LogEvent) -> None:
        """Takes a new row of its tenant and user from the reader."""
    def take(self, seconds: float) -> list[LogEvent]:
        """Gives what has happened since the last look; nothing, if nothing does within so many seconds."""
