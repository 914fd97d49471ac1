"""The loop: the model is asked, what it wants called is called, and it is told the results, until it has answered.

What comes next is read off the journal each time, so a run goes on in any process from wherever the last one was. Each
answer of the model is on record before anything that it wants is done, and each result before the model is told it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Any, Literal, NamedTuple

import msgspec

from toolgate.agent.calls import MODEL_TOOL, SUBORDINATE_TOOL, RunCalls, RunScope, WantedCall
from toolgate.agent.conversation import RunConversation
from toolgate.agent.events import Emit
from toolgate.agent.journal import JournalEntry, RunJournal
from toolgate.agent.limits import exhausted, is_unusable, repeated, unusable_in_a_row
from toolgate.agent.run import EventKind, PendingCall, RunEvent
from toolgate.agent.tool_results import message_of, refusal
from toolgate.errors import CODES, nearest
from toolgate.llm.completion import Message, ToolRequest
from toolgate.model import CALL_TOOL, Actor, Entry, ErrorInfo, Outcome, SpendingLimit
from toolgate.pipeline.early_exit import Halt
from toolgate.settings.agent import AgentSettings
from toolgate.tasks import start_task, stop_tasks

ENDING_TOOL = "response"
MAX_SHORTENINGS = 4
"""Times in a row that a conversation is shortened because the model's server says it is too long."""


class LoopRoom(NamedTuple):
    """The parts of an App that all loops share."""

    settings: AgentSettings
    find: Callable[[str, str], Entry | None]
    """A tool of a tenant."""
    mask: Callable[[Any], Any]
    edited: Callable[[str, str, str | None], Awaitable[dict[str, Any] | None]]
    """The arguments that a person had run in place of those of a call: by tenant, call and approval."""
    approval: Callable[[PendingCall | None, Actor], Awaitable[str | None]]
    """The approval that a call is to come with which has waited; None: a grant covers it by now."""
    why_stopped: Callable[[RunJournal], Awaitable[str | None]]
    """The reason why a run may not go on: its grant was revoked, or the key that it came with; None: it may."""


class Ended(NamedTuple):
    """The end of a loop."""

    status: Literal["done", "failed", "waiting", "stopped"]
    """stopped: this process is to end, and another goes on."""
    reason: str | None = None
    text: str | None = None


class Loop:
    """The loop of one run, as long as this process drives it."""

    def __init__(self, room: LoopRoom, journal: RunJournal, calls: RunCalls, emit: Emit, spending: SpendingLimit) -> None:
        self._room = room
        self._journal = journal
        self._calls = calls
        self._emit = emit
        self._spending = spending
        self._had, self._cost_before = spending.left, journal.row.cost
        self._began, self._seconds_before = monotonic(), journal.row.seconds
        self._context = room.settings.context_tokens
        self._shortenings = 0
        self.stopping = asyncio.Event()
        """Set to have it begin nothing more."""

    async def drive(self) -> Ended:
        """Goes on until the run has ended, waits, or is to stop."""
        while True:
            if self.stopping.is_set():
                return Ended("stopped")
            ended = await self._step()
            if ended is not None:
                return ended

    def sums(self) -> dict[str, Any]:
        """The cost of the run, with what calls under way may cost, and the time that it has worked."""
        cost = self._cost_before + self._had - self._spending.left
        return {"cost": max(cost, self._cost_before), "seconds": self._seconds()}

    def _seconds(self) -> float:
        return self._seconds_before + monotonic() - self._began

    def seconds_left(self) -> float:
        journal = self._journal
        return journal.limits.seconds - (self._seconds() - journal.leg.seconds)

    def tell(self, kind: EventKind, **data: Any) -> None:
        self._emit(RunEvent(kind, data, self._journal.id))

    # -- one step

    async def _step(self) -> Ended | None:
        journal = self._journal
        stopped = await self._room.why_stopped(journal)
        if stopped is not None:
            return Ended("failed", stopped)
        if journal.missing:
            return await self._make_calls(journal.missing)
        answer, new = journal.last_answer, journal.new
        final = next((entry.ends for entry in new if entry.ends is not None), None)
        if final is not None:
            return Ended("done", None, final)
        if answer is not None and not new:
            return await self._judge(answer)
        return await self._ask()

    async def _judge(self, entry: JournalEntry) -> Ended | None:
        """Ends the run with an answer without calls, or has the model correct it."""
        answer = entry.answer
        if answer is None or is_unusable(entry):
            return await self._correct(entry)
        if answer.ending == "refused":
            return Ended("failed", "The model declined to answer.", answer.text)
        cut = "The answer was cut off at the model's limit of tokens (setting model.max_tokens)."
        return Ended("done", cut if answer.ending == "truncated" else None, answer.text)

    async def _correct(self, entry: JournalEntry) -> Ended | None:
        """Tells the model what was wrong with its answer, some times."""
        count = unusable_in_a_row(self._journal.of_leg())
        if count >= self._room.settings.unusable_replies:
            return Ended("failed", f"The model gave {count} replies in a row that were empty or could not be read.")
        problem = None if entry.answer is None else entry.answer.problem
        words = problem or "Your reply was empty: it had neither an answer nor a call. Answer the user, or call a tool."
        self.tell("notice", text=f"The model was told about its reply: {words}")
        await self._journal.save(self._journal.entry("notice", Message("user", f"[Toolgate] {words}")), **self.sums())
        return None

    # -- the model's turn

    async def _ask(self) -> Ended | None:
        journal = self._journal
        reason = self._exhausted()
        if reason is not None:
            return Ended("failed", reason)
        turn = journal.turn
        conversation = RunConversation(journal, self._context, self.tell, self.sums)
        outcome = await self._calls.model(
            WantedCall(
                MODEL_TOOL,
                conversation.arguments(),
                f"agent:{journal.id}:{turn}:model",
                is_repeatable=True,
                approval=await self._room.approval(journal.pending.get(0), self._calls.actor),
                timeout=max(self.seconds_left(), 1.0),
            ),
            conversation,
        )
        if outcome.pending is not None:
            return await self._wait(0, MODEL_TOOL, outcome)
        journal.pending.pop(0, None)
        is_kept = journal.turn > turn  # whatever became of the call after that
        if not outcome.ok and not is_kept:
            return await self._unanswered(outcome, conversation)
        if not is_kept:  # a hook has answered in place of the tool
            await conversation.keep_output(outcome.output)
        await journal.save(**self.sums())
        self._shortenings = 0
        self._tell_answer(journal)
        return None

    def _exhausted(self) -> str | None:
        journal = self._journal
        return exhausted(journal.row._replace(**self.sums()), journal.leg, journal.limits, self._seconds())

    def _tell_answer(self, journal: RunJournal) -> None:
        entry, row = journal.last_answer, journal.row
        answer = None if entry is None else entry.answer
        if answer is not None and (answer.thoughts or answer.headline):
            self.tell("thoughts", thoughts=list(answer.thoughts), headline=answer.headline)
        if answer is not None and journal.is_json and answer.text:
            self.tell("text", text=answer.text)
        self.tell("turn", turn=row.turns, tokens=row.tokens, cost_usd=row.cost / 1e9)

    async def _unanswered(self, outcome: Outcome, conversation: RunConversation) -> Ended | None:
        """The model could not be asked. What is too long for it is shortened; anything else ends the run, which can be
        resumed."""
        error = outcome.error or ErrorInfo("UNEXPECTED_ERROR", CODES["UNEXPECTED_ERROR"].message)
        await self._journal.save(**self.sums())
        details = error.details or {}
        if details.get("too_long") is True:
            self._shortenings += 1
            if self._shortenings <= MAX_SHORTENINGS and (less := conversation.less()) is not None:
                self._context = less
                return None
            return Ended("failed", "The conversation is too long for the model, although results of tools were shortened.")
        if error.code == "TIMEOUT" and self.seconds_left() <= 0:
            return Ended("failed", self._exhausted())
        advice = f" {error.suggestion}" if error.suggestion else ""
        if error.code == "BUDGET_EXCEEDED" and details.get("limit") == "run":
            return Ended("failed", f"The next turn of the model would go beyond its limit of cost: {error.message}")
        if error.code == "USER_CANCELLED":
            return Ended("failed", f"The model may not be asked: {error.message}")
        return Ended("failed", f"The model could not be asked ({error.code}): {error.message}{advice}")

    # -- the calls of an answer

    async def _make_calls(self, missing: list[tuple[int, ToolRequest]]) -> Ended | None:
        """Makes all calls of an answer whose results are not there, side by side."""
        journal, answer = self._journal, self._journal.last_answer
        assert answer is not None
        if is_unusable(answer) and unusable_in_a_row(journal.of_leg()) >= self._room.settings.unusable_replies:
            count = self._room.settings.unusable_replies
            return Ended("failed", f"The model gave {count} replies in a row that were empty or could not be read.")
        before = [entry for entry in journal.of_leg() if entry.seq < answer.seq]
        again = next((request for _, request in missing if repeated(before, request, journal.limits)), None)
        if again is not None:
            return await self._stop_repeating(missing, again)
        tasks = [start_task(self._make_call(seq, request, answer), unheard=True) for seq, request in missing]
        try:
            await asyncio.wait(tasks)
        finally:
            await stop_tasks(*tasks)
        errors = [error for task in tasks if (error := task.exception()) is not None]
        halted = next((error for error in errors if isinstance(error, Halt)), None)
        if errors:
            raise halted or errors[0]
        if journal.pending:
            return self._waits()
        return None

    async def _stop_repeating(self, missing: list[tuple[int, ToolRequest]], again: ToolRequest) -> Ended:
        words = (
            f"{again.name} was called {self._journal.limits.same_call} times with the same arguments and the same result."
        )
        for seq, request in missing:
            error = ErrorInfo("CAPACITY_EXCEEDED", f"Nothing was run: {words}", suggestion="Go about it in another way.")
            await self._refuse(seq, request, error)
        return Ended("failed", f"The model repeats itself: {words}")

    async def _make_call(self, seq: int, request: ToolRequest, answer: JournalEntry) -> None:
        """Makes one call, and puts its result on record."""
        number = seq - answer.seq - 1
        refused = self._refused(request, number)
        if refused is not None:
            return await self._refuse(seq, request, refused)
        journal, waiting = self._journal, self._journal.pending.get(seq)
        if waiting is None:
            self.tell("call", request=request.id, tool=request.name, arguments=self._room.mask(request.arguments))
        outcome = await self._outcome(seq, request, f"agent:{journal.id}:{answer.turn}:{number}")
        if outcome.pending is not None:
            await self._wait(seq, request.name, outcome, request)
            return None
        tenant = self._calls.actor.tenant
        edited = None
        if outcome.ok and self._asks(request, waiting):
            edited = await self._room.edited(tenant, outcome.id, None if waiting is None else waiting.id)
        message = message_of(request, outcome, edited=edited, **self._form())
        return await self._keep(seq, request, message, outcome, outcome.error)

    async def _outcome(self, seq: int, request: ToolRequest, key: str) -> Outcome:
        """The outcome of a call. One that waited comes with the answer; one that was queued, with the same key, is given
        what came of its job."""
        tool, arguments = _called(request)
        entry = self._room.find(tool, self._calls.actor.tenant)
        is_own = tool == SUBORDINATE_TOOL  # which knows by its key what it did before
        wanted = WantedCall(
            tool,
            arguments,
            key,
            is_repeatable=is_own or _is_repeatable(entry),
            approval=await self._room.approval(self._journal.pending.get(seq), self._calls.actor),
        )
        scope = RunScope(self._journal.id, self._calls.root, self._journal.style, self._emit, self.seconds_left)
        outcome = await self._calls.tool(wanted, scope)
        if is_own and _is_void(outcome, wanted.approval):  # it has ended, and its result was not put on record
            outcome = await self._calls.tool(wanted._replace(approval=None), scope)
        if outcome.error is not None and outcome.error.code == "TOOL_NOT_FOUND":  # missing or hidden: told alike
            error = msgspec.structs.replace(outcome.error, suggestion=self._near(request.name))
            return msgspec.structs.replace(outcome, error=error)
        return outcome

    def _refused(self, request: ToolRequest, number: int) -> ErrorInfo | None:
        """The reason why a call is not made; None: it is."""
        most = self._room.settings.calls_a_turn
        if number >= most:
            words = f"No more than {most} tools can be called at once; this call was not made."
            return ErrorInfo("CAPACITY_EXCEEDED", words, suggestion="Call it in your next turn.")
        if request.arguments is None:
            words = f"The arguments of {request.name[:64]!r} are not a JSON object, so it was not called."
            return ErrorInfo("VALIDATION_ERROR", words, suggestion="Call it again, with a JSON object of its arguments.")
        return None

    def _near(self, name: str) -> str:
        """The tool that the model may have meant, of those that it was told of."""
        system = self._journal.system
        near = nearest(name, () if system is None else [tool.name for tool in system.tools])
        return ("" if near is None else f"Did you mean {near}? ") + "Call only tools that you were told of."

    def _asks(self, request: ToolRequest, waiting: PendingCall | None) -> bool:
        """Tells whether a person may have changed the arguments of a call, or of the one that `call_tool` made."""
        if request.name == CALL_TOOL:
            return waiting is not None and waiting.tool == (request.arguments or {}).get("name")
        entry = self._room.find(request.name, self._calls.actor.tenant)
        return entry is not None and entry.riskiest.asks is not None

    def _form(self) -> dict[str, Any]:
        return {"is_json": self._journal.is_json, "most": self._room.settings.result_chars}

    async def _refuse(self, seq: int, request: ToolRequest, error: ErrorInfo) -> None:
        await self._keep(seq, request, refusal(request, error, **self._form()), None, error)

    async def _keep(
        self, seq: int, request: ToolRequest, message: Message, outcome: Outcome | None, error: ErrorInfo | None
    ) -> None:
        """Puts a result on record, then tells of it."""
        journal = self._journal
        output = None if outcome is None else outcome.output
        is_final = request.name == ENDING_TOOL and isinstance(output, dict) and output.get("end_turn") is True
        ends = output.get("text") if is_final and isinstance(output, dict) else None
        journal.pending.pop(seq, None)
        await journal.save(journal.entry("tool", message, seq=seq, ends=ends), **self.sums())
        told: dict[str, Any] = {"request": request.id, "tool": request.name}
        shown = {"output": output} if outcome is not None and outcome.ok else {"error": msgspec.to_builtins(error)}
        if outcome is None:
            self.tell("result", **told, status="failure", **shown)
        else:
            cost = {"duration_ms": outcome.metrics.duration_ms, "cost_usd": outcome.metrics.cost_usd}
            self.tell("result", **told, status=outcome.status, **shown, **cost)

    # -- waiting

    async def _wait(self, seq: int, tool: str, outcome: Outcome, request: ToolRequest | None = None) -> Ended:
        """Notes what a call waits for."""
        journal, pending = self._journal, outcome.pending
        assert pending is not None
        kind: Literal["approval", "job"] = "job" if pending.kind == "job" else "approval"
        if tool == CALL_TOOL and outcome.error is not None:
            tool = str((outcome.error.details or {}).get("tool") or tool)  # the one that is asked about
        journal.pending[seq] = PendingCall(seq, kind, pending.id, tool)
        await journal.save(**self.sums())
        words = None if outcome.error is None else outcome.error.message
        name = None if request is None else request.id
        self.tell("pending", request=name, tool=tool, **{kind: pending.id}, message=words)
        return self._waits()

    def _waits(self) -> Ended:
        waiting = list(self._journal.pending.values())
        asked = [one.tool for one in waiting if one.kind == "approval"]
        if asked:
            return Ended("waiting", f"A person has to answer about {', '.join(sorted(set(asked)))}.")
        return Ended("waiting", f"It waits for {', '.join(sorted({one.tool for one in waiting}))} in the background.")


def _called(request: ToolRequest) -> tuple[str, Mapping[str, Any]]:
    """The tool that is called, with its arguments. A subordinate is called by itself, although the model names it to
    call_tool: otherwise it would not be one of this run, and go on when the run is cancelled or its key revoked."""
    given = request.arguments or {}
    inner = given.get("arguments")
    if request.name == CALL_TOOL and given.get("name") == SUBORDINATE_TOOL and isinstance(inner, Mapping):
        return SUBORDINATE_TOOL, inner
    return request.name, given


def _is_repeatable(entry: Entry | None) -> bool:
    """Tells whether a call has no effect, costs nothing and asks nobody: it may be made again."""
    if entry is None:
        return True
    riskiest = entry.riskiest
    return riskiest.tier == "read_only" and not entry.priced and riskiest.asks is None and not entry.background


def _is_void(outcome: Outcome, approval: str | None) -> bool:
    """True of a call that came with an approval which is not for it any more."""
    if approval is None or outcome.error is None or outcome.error.code != "PERMISSION_DENIED":
        return False
    return (outcome.error.details or {}).get("approval") == approval
