"""One conversation of a person with an agent: what is said, what the agent does meanwhile, and how each turn ended."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from toolgate.agent.run import Run, RunEvent, RunResult
from toolgate.app.app import App
from toolgate.cli.chat.screen import Screen
from toolgate.cli.context import NotFound, naming
from toolgate.cli.output import clean, note
from toolgate.errors import Denied, InvalidInput, plural
from toolgate.model import NANO, Actor
from toolgate.pipeline.usage import dollars
from toolgate.tasks import start_task

NO_MODEL = "No language model is configured, so only the commands work."
HOW_TO_SET_A_MODEL = (
    "To have one, write into toolgate.yaml:\n\n"
    "  model:\n    name: NAME-OF-THE-MODEL\n    # base_url: http://127.0.0.1:11434/v1   for a server of your own\n"
    "    # secret: null                          if it wants no key\n\n"
    "then run `toolgate trust`, and give the key with `toolgate secrets set MODEL_API_KEY`.\n"
    "docs/howto/use-a-model.md says more."
)


class Conversation:
    """One chat, as one actor."""

    def __init__(
        self, app: App, screen: Screen, actor: Actor, *, session: str | None = None, workspace: Path | None = None
    ) -> None:
        self._app, self._screen = app, screen
        self.actor = actor
        self._session, self._workspace = session, workspace
        self.run: Run | None = None
        """None: nothing was said yet."""
        self._heard_of: str | None = None
        """The run whose events are shown."""
        self.cost_usd, self.tokens = 0.0, 0
        """Of all conversations of this chat."""

    # -- who talks with what

    @property
    def model(self) -> str | None:
        """The model of the actor's tenant."""
        return self._app.settings.model.of(self.actor.tenant).name

    def greet(self) -> None:
        who = self.actor.tenant if self.actor.persona is None else f"{self.actor.persona} of {self.actor.tenant}"
        note(("Toolgate chat", "bold"), (f"  {self.model or 'no model'} · as {who}", "dim"))
        if self.model is None:
            note((f"{NO_MODEL} {HOW_TO_SET_A_MODEL}", "yellow"), lines=True)
        note(("/help lists the commands. Alt-Enter begins a new line, Ctrl-C stops the agent, Ctrl-D ends the chat.", "dim"))

    @property
    def _resuming(self) -> str:
        """The command that goes on with this conversation."""
        return f"toolgate chat --resume {self.run.id if self.run is not None else 'latest'}{naming(self.actor, user=True)}"

    def bid_farewell(self) -> None:
        spent = f"  {self.tokens:,} tokens, {dollars(round(self.cost_usd * NANO))}" if self.tokens else ""
        kept = f"  {self._resuming}" if self.run is not None else ""
        if spent or kept:
            note((f"{spent}{kept}".strip(), "dim"))

    def become(self, actor: Actor) -> None:
        """Goes on as another actor, in a conversation of its own: another persona has other rights, and is told nothing of
        what this one was."""
        self.actor, self.run = actor, None

    def begin_anew(self) -> None:
        """Forgets what was said: the next message begins another conversation."""
        self.run = None

    async def take_up(self, id: str | None) -> None:
        """Goes on with an earlier conversation; None: the latest one. Raises NotFound."""
        if id is not None:
            self.run = (await self._app.agents.show(id, actor=self.actor)).run
            return
        found = await self._app.agents.list(actor=self.actor, limit=1)
        if not found:
            raise NotFound("There is no earlier conversation of this user.")
        self.run = found[0]

    def show_state(self) -> None:
        """Says how the conversation stands that was taken up."""
        if self.run is None or self.run.status in ("done", "cancelled"):
            note(("You go on with it by what you say next.", "dim"))
        elif self.run.status == "running":
            note(("It is under way, or its process has died: /continue goes on with it then, /stop ends it.", "yellow"))
        else:
            self.show_end(self.run.result)

    # -- what is said

    async def say(self, text: str) -> RunResult:
        """Says something, shows what the agent does, and gives how it stands then."""
        if self.model is None:
            raise Denied("MISSING_AUTH", NO_MODEL, suggestion=HOW_TO_SET_A_MODEL)
        if self.run is not None and self.run.status == "waiting":
            raise InvalidInput(
                f"The agent still waits for {', '.join(one.id for one in self.run.pending)}.",
                suggestion="/approve shows what waits, /stop ends what it was asked for, /new begins another conversation.",
            )
        return await self._watched(
            self._app.agents.run(
                text, actor=self.actor, session=self._session, workspace=self._workspace, run=self.run,
                stop_when_left=True, door="cli",
            )
        )  # fmt: skip

    async def go_on(self) -> RunResult:
        """Goes on with what waited for an answer, or failed. Raises NotFound if nothing was said yet."""
        if self.run is None:
            raise NotFound("Nothing was said in this conversation yet.")
        resumed = await self._app.agents.resume(self.run, actor=self.actor)
        return await self._watched(self._app.agents.follow(resumed, actor=self.actor, stop_when_left=True))

    async def stop(self) -> None:
        """Ends what the agent does, or waits for."""
        if self.run is not None:
            self.run = await self._app.agents.cancel(self.run, actor=self.actor)

    async def _watched(self, events: AsyncIterator[RunEvent]) -> RunResult:
        """Shows the events of a run until it ends or waits. Ctrl-C stops it."""
        before, self._heard_of = self.run, None
        with self._screen.working(None if before is None else before.id) as interrupted:
            watching = start_task(self._shown(events), unheard=True)
            await asyncio.wait((watching, interrupted), return_when=asyncio.FIRST_COMPLETED)
            if not watching.done():
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching
            elif (error := watching.exception()) is not None:
                raise error
        await self._look(self._heard_of if before is None else before.id)
        if self.run is None:
            raise NotFound("The agent was stopped before it began.")
        before_cost, before_tokens = (before.cost_usd, before.tokens) if before is not None else (0.0, 0)
        self.cost_usd += self.run.cost_usd - before_cost
        self.tokens += self.run.tokens - before_tokens
        return self.run.result

    async def _shown(self, events: AsyncIterator[RunEvent]) -> None:
        async for event in events:
            self._heard_of = self._heard_of or event.run or None  # the first one is never a subordinate's
            self._screen.show(event)

    async def _look(self, id: str | None) -> None:
        """Reads how the conversation stands. One that was stopped before anything was heard of it is the latest."""
        if id is None:
            self.run = next(iter(await self._app.agents.list(actor=self.actor, limit=1)), None)
        else:
            self.run = (await self._app.agents.show(id, actor=self.actor)).run

    def show_end(self, result: RunResult, *, once: bool = False) -> None:
        """Says how a turn ended, where the answer itself does not. `once`: nothing can be typed any more."""
        summary = f"{plural(result.turns, 'turn')}, {result.tokens:,} tokens, {dollars(round(result.cost_usd * NANO))}"
        if result.status == "done":
            note((summary, "dim"))
        elif result.status == "waiting":
            note((f"Waiting: {clean(result.reason or 'a call needs an answer')}", "yellow"))
            answers = f"toolgate approvals approve {result.pending[0]}" if once else f"/approve {result.pending[0]}"
            goes_on = f"{self._resuming}, then /continue, goes on." if once else "others may answer too, then /continue."
            note((f"{answers} answers it{'' if once else ' here'}; {goes_on}", "dim"))
        else:
            is_stopped = result.status == "cancelled"
            words = (
                "Stopped." if is_stopped else f"The agent could not go on: {clean(result.reason or 'no reason is known.')}"
            )
            note((words, "red"), lines=True)
            first = f"{self._resuming}, then " if once else ""
            goes_on = "Say something to go on." if is_stopped and not once else f"{first}/continue tries again."
            note((f"{summary}. {goes_on}", "dim"))
