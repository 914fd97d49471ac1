"""The conversation of a run as `ask_model` finds it: what the model has seen, its tools, where its text goes, and where its
answer is kept."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from toolgate.agent.journal import RunJournal, TurnAnswer
from toolgate.agent.limits import fitted, tokens_of
from toolgate.agent.replies import read_reply
from toolgate.errors import InvalidInput
from toolgate.llm.completion import Completion, Message, ToolDefinition, ToolRequest, estimate_tokens
from toolgate.model import Actor
from toolgate.threads import to_thread

LONG_REPLY_CHARS = 20_000
"""From here on a reply is read off the event loop."""
LESS = 0.6
"""The part of the messages that is kept when the model's server finds a conversation too long."""


class RunConversation:
    """One turn of a run, as the port `Conversations` has it. No call but the loop's own finds it."""

    def __init__(
        self, journal: RunJournal, context: int, tell: Callable[..., None], sums: Callable[[], dict[str, Any]]
    ) -> None:
        self._journal = journal
        self._turn = journal.turn
        self._tell = tell
        self._sums = sums
        system = journal.system
        self._tools: tuple[ToolDefinition, ...] = () if system is None or journal.is_json else system.tools
        seen = journal.seen
        self._entries = [*seen, *journal.new]
        self._defined = sum(estimate_tokens(f"{one.name}{one.description}{one.parameters}") for one in self._tools)
        messages, self._shortened = fitted(self._entries, self._defined, context)
        self._seen, self._new = messages[: len(seen)], messages[len(seen) :]
        self._tokens = sum(map(tokens_of, messages))
        if self._shortened:
            tell("notice", text=f"The conversation is long: {self._shortened} older results of tools were shortened in it.")

    def arguments(self) -> dict[str, Any]:
        """The arguments of this turn's call."""
        return {
            "conversation": self._journal.id,
            "turn": self._turn,
            "messages": [_plain(message) for message in self._new],
            "tools": [tool.name for tool in self._tools],
        }

    def less(self) -> int | None:
        """The tokens that the conversation should have, if it is too long as it is; None: it can't be made shorter."""
        wanted = self._defined + math.floor(self._tokens * LESS)
        _, shortened = fitted(self._entries, self._defined, wanted)
        return wanted if shortened > self._shortened else None

    # -- the port

    async def history(self, conversation: str, turn: int, actor: Actor) -> Sequence[Message]:
        self._check(conversation, turn, actor)
        return self._seen

    async def definitions(self, conversation: str, actor: Actor) -> Sequence[ToolDefinition]:
        self._check(conversation, self._turn, actor)
        return self._tools

    def sink(self, conversation: str, actor: Actor) -> Callable[[str], None] | None:
        self._check(conversation, self._turn, actor)
        if self._journal.is_json:
            return None  # nobody wants to read the JSON of it
        return lambda text: self._tell("text", text=text)

    async def keep(self, conversation: str, turn: int, answer: Completion, actor: Actor, sent: Sequence[Message]) -> None:
        self._check(conversation, turn, actor)
        is_changed = list(map(_plain, sent)) != list(map(_plain, self._new))
        await self._keep(answer.text, answer.requests, answer.ending, answer.tokens, tuple(sent) if is_changed else None)

    async def keep_output(self, output: Any) -> None:
        """Keeps an answer that a hook gave in place of the model."""
        given = output if isinstance(output, Mapping) else {}
        requests = msgspec.convert(given.get("requests") or [], tuple[ToolRequest, ...])
        await self._keep(str(given.get("text") or ""), requests, str(given.get("ending") or "complete"), 0)

    def _check(self, conversation: str, turn: int, actor: Actor) -> None:
        if (conversation, turn, actor) != (self._journal.id, self._turn, self._journal.actor):
            raise InvalidInput("There is no conversation of that id.", suggestion="Leave out conversation.")

    async def _keep(
        self,
        text: str,
        requests: tuple[ToolRequest, ...],
        ending: str,
        tokens: int,
        sent: tuple[Message, ...] | None = None,
    ) -> None:
        journal, row = self._journal, self._journal.row
        if journal.turn != self._turn:
            return  # it was kept already, by an attempt before this one
        if journal.is_json:
            answer, message = await self._read(text, ending), Message("assistant", text)
        else:
            answer, message = TurnAnswer(text or None, requests, ending=ending), Message("assistant", text, requests)
        entry = msgspec.structs.replace(journal.entry("assistant", message, answer=answer), sent=sent)
        journal.pending.pop(0, None)
        await journal.save(entry, status="running", turns=row.turns + 1, tokens=row.tokens + tokens, **self._sums())

    async def _read(self, text: str, ending: str) -> TurnAnswer:
        """An answer in the style json. What the model quotes of results of tools, or of the user, is no call."""
        quotable = [entry.message.text for entry in self._journal.entries if entry.kind in ("tool", "user")]
        if len(text) > LONG_REPLY_CHARS or sum(map(len, quotable)) > LONG_REPLY_CHARS:
            reply = await to_thread(read_reply, text, quotable=quotable)
        else:
            reply = read_reply(text, quotable=quotable)
        return TurnAnswer(reply.text, reply.requests, tuple(reply.thoughts), reply.headline, reply.problem, ending)


def _plain(message: Message) -> dict[str, Any]:
    """A message as an argument: without fields that say nothing, so that whoever is asked about it sees the rest."""
    plain = {"role": message.role, "text": message.text}
    if message.request_id is not None:
        plain["request_id"] = message.request_id
    return {**plain, "is_error": True} if message.is_error and message.role == "tool" else plain
