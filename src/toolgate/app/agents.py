"""`app.agents`: conversations with agents, which ask a model and call tools until they have an answer."""

import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from toolgate.agent.run import Run, RunEvent, RunLimits, RunResult, RunStatus, Style, Transcript
from toolgate.app.facets import Facet
from toolgate.model import LOCAL, Actor

if TYPE_CHECKING:
    from toolgate.agent.agents import Agents, StartDriver


class AgentsFacet(Facet):
    """The runs of agents. Each belongs to the actor that started it; to any other it is not there."""

    @property
    def _agents(self) -> "Agents":
        return self._parts.agents

    async def start(
        self,
        text: str,
        *,
        actor: Actor | None = None,
        session: str | None = None,
        limits: RunLimits | None = None,
        style: Style | None = None,
        workspace: str | os.PathLike[str] | None = None,
        background: bool = False,
        door: str = "python",
    ) -> Run:
        """Begins a run and returns: this App drives it until it ends, also past answers of people that it waits for. If this
        process dies, a worker goes on with it.

        Whoever starts a run agrees to its questions to the model, up to its limit of cost: there is a grant for them, which
        is listed with the others and ends the run if it is revoked.

        Args:
            text: What the user says.
            actor: Who the agent acts as; without it, the person at this machine.
            session: The session that its calls belong to: their files and providers.
            limits: At most those of the settings, which hold without it.
            style: How the model calls tools; without it, as the settings say.
            workspace: The folder that its calls work in, in place of what its session and the settings say.
            background: Has a worker drive it, as a job, in place of this App.
            door: The door that it came by.
        """
        return await self._agents.start(
            text, actor or LOCAL, session=session, limits=limits, style=style, workspace=_real(workspace),
            driver="worker" if background else "app", door=door,
        )  # fmt: skip

    async def say(
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
        driver: StartDriver = "worker" if background else "app"
        return await self._agents.say(_id(run), text, actor or LOCAL, limits=limits, driver=driver)

    async def run(
        self,
        text: str,
        *,
        actor: Actor | None = None,
        session: str | None = None,
        limits: RunLimits | None = None,
        style: Style | None = None,
        workspace: str | os.PathLike[str] | None = None,
        run: Run | str | None = None,
        stop_when_left: bool = False,
        door: str = "python",
    ) -> AsyncIterator[RunEvent]:
        """Starts a run, or says something in one (`run`), and gives its events until it ends or waits for a person. The last
        one is `end`, with its result.

        Whoever reads the events slowly is given pieces of text together, and may miss events, which a `notice` says. Whoever
        stops reading does not stop the run, unless `stop_when_left` says so.
        """
        if run is None:
            begun = await self._agents.start(
                text, actor or LOCAL, session=session, limits=limits, style=style, workspace=_real(workspace),
                driver="caller", door=door,
            )  # fmt: skip
        else:
            begun = await self._agents.say(_id(run), text, actor or LOCAL, limits=limits, driver="caller")
        async for event in self._agents.follow(begun.id, actor or LOCAL, stop_when_left=stop_when_left):
            yield event

    async def resume(self, run: Run | str, *, actor: Actor | None = None) -> Run:
        """Goes on with a run that waits, has failed, or whose process has died, and returns: this App drives it. What was
        done is not done again. What still waits for a person goes on waiting."""
        return await self._agents.resume(_id(run), actor or LOCAL)

    async def follow(
        self, run: Run | str, *, actor: Actor | None = None, stop_when_left: bool = False
    ) -> AsyncIterator[RunEvent]:
        """Gives the events of a run that this App drives, from now on, until it ends or waits; of any other only the end,
        when it has come."""
        async for event in self._agents.follow(_id(run), actor or LOCAL, stop_when_left=stop_when_left):
            yield event

    async def wait(self, run: Run | str, seconds: float, *, actor: Actor | None = None) -> RunResult:
        """Gives the result of a run once it has ended or waits for a person, or how it stands when the time is over."""
        return await self._agents.wait(_id(run), seconds, actor or LOCAL)

    async def list(
        self,
        *,
        actor: Actor | None = None,
        status: RunStatus | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[Run]:
        """Gives the latest runs of the actor, latest first: in one state, or in any; at most `limit`, older than the one
        whose id is `before`."""
        return await self._agents.list(actor or LOCAL, status=status, limit=limit, before=before)

    async def show(self, run: Run | str, *, actor: Actor | None = None) -> Transcript:
        """Gives a run with all that was said in it, secrets masked. Raises a `ToolgateError` if the actor has none of this
        id."""
        return await self._agents.show(_id(run), actor or LOCAL)

    async def cancel(self, run: Run | str, *, actor: Actor | None = None) -> Run:
        """Ends a run, whichever process drives it, and withdraws the questions that it waits for."""
        return await self._agents.cancel(_id(run), actor or LOCAL)


def _id(run: Run | str) -> str:
    return run if isinstance(run, str) else run.id


def _real(folder: str | os.PathLike[str] | None) -> str | None:
    return None if folder is None else os.path.realpath(folder)
