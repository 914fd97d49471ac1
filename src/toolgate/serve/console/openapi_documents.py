"""/openapi/{name}: an OpenAPI document, and what of its operations waits to be accepted. For operators."""

from toolgate.errors import ToolgateError
from toolgate.serve.console.page import Go, PageRequest, Pages, View
from toolgate.serve.console.servers import CHANGED, SHOWN_AT_ONCE, ServerPart, place_of, problem_from, words_of
from toolgate.serve.console.word_diff import diff_of
from toolgate.serve.http.openapi_documents import (
    accept_operations,
    get_openapi_document,
    refresh_openapi_document,
    remove_openapi_document,
)
from toolgate.serve.http.servers import AcceptedFingerprints
from toolgate.serve.problems import HttpProblem

pages = Pages("tools")


@pages.get("/openapi/{name}", permission="operate", twin="/v1/openapi/{name}")
async def openapi_document(request: PageRequest, name: str, query: ServerPart) -> View:
    """A document, and what waits, each with its difference."""
    return await _shown(request, name, query.after)


async def _shown(
    request: PageRequest, name: str, after: str | None = None, *, note: str = "", status: int = 200, confirm: bool = False
) -> View:
    detail = await get_openapi_document(request, name)
    every = sorted(detail.quarantined, key=place_of)
    rest = [one for one in every if after is None or place_of(one) > after]
    shown = rest[:SHOWN_AT_ONCE]
    values = {
        "document": detail.document, "detail": detail, "note": note, "confirm": confirm, "waiting": len(every),
        "shown": [(one, diff_of(one.accepted, one.definition)) for one in shown],
        "next": place_of(shown[-1]) if len(rest) > len(shown) else None, "before": len(every) - len(rest),
    }  # fmt: skip
    return View(template="openapi_document.html", title=name, values=values, status=status)


@pages.post("/openapi/{name}", permission="operate")
async def change_openapi_document(request: PageRequest, name: str) -> View | Go:
    """Accepts what was shown, reads the document again, or removes it."""
    action = request.typed("action")
    if action in ("accept", "") or request.form.get("only"):
        return await _accepted(request, name)
    try:
        if action == "refresh":
            await refresh_openapi_document(request, name)
        elif action == "remove" and request.typed("sure") != "yes":
            return await _shown(request, name, confirm=True)
        elif action == "remove":
            await remove_openapi_document(request, name)
            return Go("/servers", done="removed")
        else:
            raise HttpProblem(422, "The form is not one of this page.", suggestion="Load the page again.")
    except ToolgateError as error:
        problem = problem_from(error)
        if problem.status == 404:
            raise
        return await _shown(request, name, note=words_of(problem), status=problem.status)
    return Go(f"/openapi/{name}", done="refreshed")


async def _accepted(request: PageRequest, name: str) -> View | Go:
    """Accepts by fingerprint exactly what the page showed: what has changed since is not accepted, nor the rest."""
    hashes = [*request.form.get("only", ())] or [*request.form.get("hash", ())]
    if not hashes:
        return await _shown(request, name, note="Tick what you accept, or press the button beside it.", status=422)
    try:
        await accept_operations(request, name, AcceptedFingerprints(hashes=hashes))
    except HttpProblem as problem:
        if problem.status != 409:
            raise
        return await _shown(request, name, note=CHANGED, status=409)
    return Go(f"/openapi/{name}", done="accepted")
