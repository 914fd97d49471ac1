"""/teams: the tools of the organisation, and what of its newest bundle waits for a person. For operators."""

from toolgate.errors import ToolgateError
from toolgate.serve.console.page import Go, PageRequest, Pages, View
from toolgate.serve.console.word_diff import text_diff
from toolgate.serve.http.teams import (
    ReviewedFingerprints,
    accept_team_tools,
    get_teams,
    reject_team_tools,
    remove_teams,
    sync_teams,
)
from toolgate.serve.problems import HttpProblem, problem_of

pages = Pages("tools")


@pages.get("/teams", permission="operate", twin="/v1/teams")
async def teams(request: PageRequest) -> View:
    """Shows the tools that wait, each with its difference, and those in use."""
    return await _shown(request)


async def _shown(request: PageRequest, *, note: str = "", status: int = 200, confirm: bool = False) -> View:
    found = await get_teams(request)
    waiting = [one for one in found.tools if one.state in ("new", "changed")]
    values = {
        "organisation": found.organisation, "note": note, "confirm": confirm,
        "waiting": [(one, text_diff("file", one.accepted, one.found)) for one in waiting],
        "others": [one for one in found.tools if one.state not in ("new", "changed")],
    }  # fmt: skip
    return View(template="teams.html", title="Organisation", values=values, listed=found.tools, status=status)


@pages.post("/teams", permission="operate")
async def change_teams(request: PageRequest) -> View | Go:
    """Gets the newest bundle, accepts or rejects by fingerprint exactly what the page showed, or removes all."""
    action = request.typed("action")
    hashes = [*request.form.get("hash", ())]
    try:
        if action == "sync":
            await sync_teams(request)
            return Go("/teams", done="synced")
        if action == "remove":
            if request.typed("sure") != "yes":
                return await _shown(request, confirm=True)
            await remove_teams(request)
            return Go("/teams", done="removed")
        if action not in ("accept", "reject"):
            raise HttpProblem(422, "The form is not one of this page.", suggestion="Load the page again.")
        if not hashes:
            return await _shown(request, note="Tick what you accept or reject.", status=422)
        change = accept_team_tools if action == "accept" else reject_team_tools
        await change(request, ReviewedFingerprints(hashes=hashes))
    except ToolgateError as error:
        problem = error if isinstance(error, HttpProblem) else problem_of(error)
        if problem is None:
            raise
        words = " ".join(one for one in (problem.message, problem.suggestion) if one)
        return await _shown(request, note=words, status=problem.status)
    return Go("/teams", done="accepted" if action == "accept" else "rejected")
