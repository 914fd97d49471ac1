"""Makes the calls of MCP clients, through the same pipeline as every other door.

What a call needs on its way is asked of the client: its user's approval, or input for the tool. A client that can be asked
while it waits is; one that repeats the call with the answers (2026-07-28) is given a state to return. That is sealed and
bound to the actor, the tool and the arguments (`request_state`).
"""

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolgate.errors import CallError
from toolgate.gates.approval.request import Answer, ApprovalError
from toolgate.mcp.server.caller import ClientCaller, Request, is_modern, meta_of
from toolgate.mcp.server.identity import REQUEST_ID_KEY, Credential
from toolgate.mcp.server.request_state import InputRequiredResult, RetryState
from toolgate.mcp.server.results import APPROVAL_META, INVALID_PARAMS, ProtocolError
from toolgate.mcp.server.task_records import TaskRequest
from toolgate.model import Entry, Outcome
from toolgate.tasks import finish, start_task

if TYPE_CHECKING:
    from toolgate.app.app import App
    from toolgate.mcp.server.task_call import Task

IDEMPOTENCY_KEY_META, SESSION_META, TIMEOUT_META = "toolgate/idempotency_key", "toolgate/session", "toolgate/timeout"
"""Keys in `_meta` that a client may give its call, besides APPROVAL_META."""
USER_WORDS_META = "toolgate/user_words"
"""And the one that a client may give it whose credential may speak for the user."""
APPROVAL_POLL_SECONDS = 1.0
APPROVAL_QUESTION = "toolgate/approval"
"""The name of our question among those that a client is given to answer."""
APPROVAL_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Approve", "description": "Run this call, once.", "default": False},
        "reason": {"type": "string", "title": "Reason", "description": "For the record.", "maxLength": 1000},
    },
    "required": ["approve"],
}
ANSWER_TIME_SHARE = 0.9
MAX_CALL_ROUNDS = 100


class CallWishes(NamedTuple):
    approval: str | None
    key: str | None
    session: str | None
    timeout: float | None
    request_id: str | None = None
    connection: str | None = None


class ClientCalls:
    """The calls of clients, with whatever these are asked on the way."""

    def __init__(self, app: "App", session: str | None = None, workspace: Path | None = None) -> None:
        """`session`: of a door with one client (stdio). `workspace`: the folder that its operator chose for all calls."""
        self._app = app
        self._workspace = workspace
        self._session = session

    async def call(
        self, ctx: Request, who: Credential, tool: str, arguments: Any, task: "Task | None" = None
    ) -> Outcome | InputRequiredResult:
        """Gives the outcome, or the input that is required. With a task, the call may outlast its request."""
        wishes = self._wishes(ctx)
        await self._take_words(ctx, who, wishes)
        brought, responses = RetryState.of(ctx.params.get("requestState") if ctx.params else None), _responses(ctx)
        client = ClientCaller(ctx, _for_tool(brought, responses), brought.state, task)
        approval = brought.approval or wishes.approval
        if task is not None:
            where = None if self._workspace is None else str(self._workspace)
            task.client, task.approval = client, approval
            task.request = TaskRequest(
                tool, arguments, wishes.session, wishes.key, wishes.timeout, where, client.capabilities,
                client.input_responses, client.request_state, wishes.connection,
            )  # fmt: skip
        asked: set[str] = set()
        try:
            if brought.approval is not None and APPROVAL_QUESTION in responses:
                asked.add(brought.approval)
                await self._hear(who, brought.approval, responses[APPROVAL_QUESTION])
            return await self._through(client, who, tool, arguments, wishes._replace(approval=approval), asked)
        finally:
            client.is_gone = True

    async def resume(self, task: "Task", request: TaskRequest) -> Outcome | InputRequiredResult:
        """Makes the call of a task again whose process is gone: with the approval that it waited for, if it did."""
        client = ClientCaller(None, request.answers, request.state, task, request.capabilities)
        task.client = client
        wishes = CallWishes(task.approval, request.key, request.session, request.timeout, connection=request.connection)
        return await self._through(client, task.who, request.tool, request.arguments, wishes, set())

    def is_here(self, request: TaskRequest) -> bool:
        """True if the call would work in the same folder here as where it was made."""
        return request.workspace == (None if self._workspace is None else str(self._workspace))

    async def _through(
        self, client: ClientCaller, who: Credential, tool: str, arguments: Any, wishes: CallWishes, asked: set[str]
    ) -> Outcome | InputRequiredResult:
        """Repeats the call until nothing more is needed; the user is asked once about one approval."""
        for _ in range(MAX_CALL_ROUNDS):
            outcome = await self._invoke(client, who, tool, arguments, wishes)
            pending = outcome.pending
            if pending is None:
                break
            if pending.kind == "input":
                if not client.knows(client.wanted.values()):
                    break
                if client.can_come_again:
                    return _wanted(client)
                await self._fetch(client)
                continue
            if pending.kind != "approval" or pending.id in asked:
                break
            waits = await client.waits_for(pending.id, *_wait_words(outcome))
            form = await self._question(client, who, pending.id)
            if form is not None:
                if client.can_come_again:
                    return self._asking(client, form, pending.id)
                await self._ask(client, who, form, pending.id)
            elif waits:
                await self._answered(who, pending.id)
            else:
                break
            await client.confirm()
            asked.add(pending.id)
            wishes = wishes._replace(approval=pending.id)
        return outcome

    async def _fetch(self, client: ClientCaller) -> None:
        """Asks the client the tool's questions, when the call has become a task meanwhile."""
        questions = client.wanted
        try:
            given = await asyncio.gather(*(_put(client, asked) for asked in questions.values()))
        except CallError:
            given = []  # the tool is told that there is no answer, and says what it makes of that
        client.input_responses, client.request_state = dict(zip(questions, given, strict=False)), client.reminder

    async def _invoke(self, client: ClientCaller, who: Credential, tool: str, arguments: Any, wishes: CallWishes) -> Outcome:
        """Invokes in a task of its own: the SDK cancels at every await, a call is cancelled once and then recorded."""
        calling = self._app.invoke(
            tool, arguments, actor=who.actor, session=wishes.session, idempotency_key=wishes.key,
            approval=wishes.approval, timeout=wishes.timeout, request_id=wishes.request_id, workspace=self._workspace,
            door="mcp", caller=client, connection=wishes.connection,
        )  # fmt: skip
        task = start_task(calling, unheard=True)
        client.deadline = self._deadline(who, tool, wishes)
        try:
            return await finish(task)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            client.deadline = None

    def _deadline(self, who: Credential, tool: str, wishes: CallWishes) -> float | None:
        """When the tool's questions must be answered, by the loop's clock."""
        entry = self.entry(tool, who)
        limits = [limit for limit in (wishes.timeout, None if entry is None else entry.timeout) if limit is not None]
        return asyncio.get_running_loop().time() + ANSWER_TIME_SHARE * min(limits) if limits else None

    # -- approvals

    async def _question(self, client: ClientCaller, who: Credential, id: str) -> dict[str, Any] | None:
        """The form for the client's user; None: they can't be asked, may not answer, or would not see all that would run."""
        if not (who.may_approve and client.can_approve and self._app.settings.mcp.approval_seconds > 0):
            return None
        asked = (await self._app.approvals.get(id, who.actor.tenant)).request
        counts = self._app.approvals.may_answer(asked, who.actor, "mcp")
        if not counts or not asked.fits or asked.on_record:
            return None
        return {"mode": "form", "message": asked.text(), "requestedSchema": APPROVAL_FORM}

    def _asking(self, client: ClientCaller, form: dict[str, Any], id: str) -> InputRequiredResult:
        """Has the client ask its user, and repeat the call."""
        state = RetryState(id, client.input_responses, client.request_state)
        return InputRequiredResult({APPROVAL_QUESTION: {"method": "elicitation/create", "params": form}}, state.to_text())

    async def _ask(self, client: ClientCaller, who: Credential, form: dict[str, Any], id: str) -> None:
        """Asks the client's user now, for a while, or until somebody answers elsewhere."""
        asking = start_task(client.ask("elicitation/create", form), unheard=True)
        elsewhere = start_task(self._answered(who, id))
        try:
            await asyncio.wait(
                (asking, elsewhere),
                timeout=None if client.can_wait else self._app.settings.mcp.approval_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if asking.done():
                with contextlib.suppress(CallError):
                    await self._hear(who, id, asking.result())
        finally:
            elsewhere.cancel()
            asking.cancel()

    async def _answered(self, who: Credential, id: str) -> None:
        while await self._app.approvals.state(id, who.actor.tenant) == "waiting":
            await asyncio.sleep(APPROVAL_POLL_SECONDS)

    async def _hear(self, who: Credential, id: str, response: Any) -> None:
        answer = read_answer(response)
        if answer is not None and who.may_approve:
            with contextlib.suppress(ApprovalError):  # somebody else was quicker: their answer holds
                await self._app.approvals.answer(id, answer, actor=who.actor, through="mcp")

    def entry(self, tool: str, who: Credential) -> Entry | None:
        try:
            return self._app.tools.get(tool, who.actor)
        except CallError:
            return None

    # -- what a client says of its call

    def _wishes(self, ctx: Request) -> CallWishes:
        meta = meta_of(ctx)
        timeout = meta.get(TIMEOUT_META)
        if timeout is not None and (
            not isinstance(timeout, int | float) or isinstance(timeout, bool) or not 0 < timeout <= 86_400
        ):
            raise ProtocolError(INVALID_PARAMS, f"_meta.{TIMEOUT_META} must be a number of seconds above 0, up to 86400")
        named = self._session_of(ctx)
        return CallWishes(
            _words(meta, APPROVAL_META),
            _words(meta, IDEMPOTENCY_KEY_META),
            _words(meta, SESSION_META) or named,
            timeout,
            (getattr(ctx.request, "scope", None) or {}).get(REQUEST_ID_KEY),
            # Since 2026-07-28 no session is agreed on: the header is a name like any other, which a client can change.
            named if self._session is not None or not is_modern(ctx) else None,
        )

    async def _take_words(self, ctx: Request, who: Credential, wishes: CallWishes) -> None:
        """Takes what a client says that its user typed, before the call that comes with it. One that may not speak for the
        user is told so: to leave it out in silence would let its people think that it is known."""
        words = meta_of(ctx).get(USER_WORDS_META)
        if words is None:
            return
        if not who.may_speak:
            raise ProtocolError(
                INVALID_PARAMS,
                f"_meta.{USER_WORDS_META} is for credentials that may speak for the user: "
                "toolgate keys create --may-speak-for-the-user makes such a key",
            )
        if not isinstance(words, str):
            raise ProtocolError(INVALID_PARAMS, f"_meta.{USER_WORDS_META} must be text")
        await self._app.say(wishes.session, words, actor=who.actor, through="mcp")

    def _session_of(self, ctx: Request) -> str | None:
        """The session of the protocol itself. Its id is a credential, so only its hash is recorded."""
        if self._session is not None:
            return self._session
        headers = getattr(ctx.request, "headers", None)
        id = None if headers is None else headers.get("mcp-session-id")
        return None if id is None else f"mcp-{sha256(id.encode()).hexdigest()[:24]}"


def _wait_words(outcome: Outcome) -> tuple[str | None, datetime | None]:
    """What a call that waits for an approval says of it, and until when that can be given."""
    if outcome.error is None:
        return None, None
    until = (outcome.error.details or {}).get("expires_at")
    return outcome.error.message, datetime.fromisoformat(until) if isinstance(until, str) else None


def _words(meta: Mapping[str, Any], name: str) -> str | None:
    given = meta.get(name)
    if given is None:
        return None
    if not isinstance(given, str) or not 0 < len(given) <= 256 or not given.isprintable():
        raise ProtocolError(INVALID_PARAMS, f"_meta.{name} must be 1 to 256 printable characters")
    return given


def _responses(ctx: Request) -> Mapping[str, Any]:
    given = ctx.params.get("inputResponses") if ctx.params else None
    return given if isinstance(given, Mapping) else {}


def _for_tool(brought: RetryState, responses: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The client's answers for the tool; None if it has not asked anything yet."""
    answers = {**(brought.answers or {}), **{name: given for name, given in responses.items() if name != APPROVAL_QUESTION}}
    return answers if answers or brought.state is not None or brought.answers is not None else None


async def _put(client: ClientCaller, asked: Any) -> Mapping[str, Any]:
    """Puts a tool's question to the client. Its shape was not checked yet."""
    method, params = (asked.get("method"), asked.get("params")) if isinstance(asked, Mapping) else (None, None)
    return await client.ask(str(method), params if isinstance(params, Mapping) else {})


def _wanted(client: ClientCaller) -> InputRequiredResult:
    """The tool's questions, for the client to answer."""
    state = None if client.reminder is None else RetryState(state=client.reminder).to_text()
    return InputRequiredResult(dict(client.wanted), state)


def read_answer(response: Any) -> Answer | None:
    """Reads a client's answer to the form; None if it is no answer. Only a form that was accepted with its box ticked
    is a yes; one that was declined, or accepted without it, is a no."""
    if not isinstance(response, Mapping):
        return None
    content = response.get("content")
    filled = content if isinstance(content, Mapping) else {}
    given = filled.get("reason")
    reason = given if isinstance(given, str) else None
    if response.get("action") == "decline":
        return Answer("reject", reason)
    if response.get("action") == "accept" and isinstance(filled.get("approve"), bool):
        return Answer("approve" if filled["approve"] else "reject", reason)
    return None
