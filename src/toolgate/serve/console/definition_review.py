"""Definitions of a server or a document that wait to be accepted: what a page shows of them, and what its form does."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from toolgate.errors import ToolgateError
from toolgate.serve.console.page import Go, PageRequest, View
from toolgate.serve.console.word_diff import diff_of
from toolgate.serve.http.endpoint import ApiModel
from toolgate.serve.http.servers import AcceptedFingerprints, QuarantinedDefinition
from toolgate.serve.problems import HttpProblem, problem_of

SHOWN_AT_ONCE = 20
"""Definitions that wait, with their differences, on one page."""
CHANGED = (
    "Nothing was accepted: a definition has changed since you looked at it, or was accepted already. "
    "Below is what the server says now."
)
Act = Callable[[PageRequest, str], Awaitable[Any]]


class DefinitionsAfter(ApiModel, frozen=True):
    """The definitions that are shown: those after a name."""

    after: str | None = None


class Said(NamedTuple):
    """The answer to a form, on the page that it was sent from."""

    note: str = ""
    status: int = 200
    confirm: bool = False
    """If true, the page asks whether it is to be removed."""


NOTHING_SAID = Said()


def waiting_values(quarantined: Sequence[QuarantinedDefinition], after: str | None, said: Said) -> dict[str, Any]:
    """The values of a page with what waits, each with its difference."""
    every = sorted(quarantined, key=_place_of)
    rest = [one for one in every if after is None or _place_of(one) > after]
    shown = rest[:SHOWN_AT_ONCE]
    return {
        "note": said.note, "confirm": said.confirm, "waiting": len(every),
        "shown": [(one, diff_of(one.accepted, one.definition)) for one in shown],
        "next": _place_of(shown[-1]) if len(rest) > len(shown) else None, "before": len(every) - len(rest),
    }  # fmt: skip


def _place_of(one: QuarantinedDefinition) -> str:
    return f"{one.kind} {one.name}"


class DefinitionReview(NamedTuple):
    """The form of a page with definitions: it accepts what was shown, acts on their source, or removes that."""

    place: str
    shown: Callable[[PageRequest, str, str | None, Said], Awaitable[View]]
    """Gives the page, with what waits after a name."""
    accept: Callable[[PageRequest, str, AcceptedFingerprints], Awaitable[Any]]
    remove: Act
    acts: Mapping[str, tuple[Act, str]]
    """By action: what is done, and the name of the sentence that says so."""

    async def change(self, request: PageRequest, name: str) -> View | Go:
        """Does what a form asks for."""
        action = request.typed("action")
        if action in ("accept", "") or request.form.get("only"):
            return await self._accepted(request, name)
        try:
            if action == "remove" and request.typed("sure") != "yes":
                return await self.shown(request, name, None, Said(confirm=True))
            if action == "remove":
                await self.remove(request, name)
                return Go("/servers", done="removed")
            if action not in self.acts:
                raise HttpProblem(422, "The form is not one of this page.", suggestion="Load the page again.")
            act, done = self.acts[action]
            await act(request, name)
        except ToolgateError as error:
            problem = problem_from(error)
            if problem.status == 404:
                raise
            return await self.shown(request, name, None, Said(words_of(problem), problem.status))
        return Go(f"{self.place}/{name}", done=done)

    async def _accepted(self, request: PageRequest, name: str) -> View | Go:
        """Accepts by fingerprint exactly what the page showed: what has changed since is not accepted, nor the rest."""
        hashes = [*request.form.get("only", ())] or [*request.form.get("hash", ())]
        if not hashes:
            said = Said("Tick what you accept, or press the button beside it.", 422)
            return await self.shown(request, name, None, said)
        try:
            await self.accept(request, name, AcceptedFingerprints(hashes=hashes))
        except HttpProblem as problem:
            if problem.status != 409:
                raise
            return await self.shown(request, name, None, Said(CHANGED, 409))
        return Go(f"{self.place}/{name}", done="accepted")


def problem_from(error: ToolgateError) -> HttpProblem:
    problem = error if isinstance(error, HttpProblem) else problem_of(error)
    if problem is None:
        raise error
    return problem


def words_of(problem: HttpProblem) -> str:
    return " ".join(one for one in (problem.message, problem.suggestion) if one)
