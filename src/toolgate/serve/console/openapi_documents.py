"""/openapi/{name}: an OpenAPI document, and what of its operations waits to be accepted. For operators."""

from toolgate.serve.console.definition_review import (
    NOTHING_SAID,
    DefinitionReview,
    DefinitionsAfter,
    Said,
    waiting_values,
)
from toolgate.serve.console.page import Go, PageRequest, Pages, View
from toolgate.serve.http.openapi_documents import (
    accept_operations,
    get_openapi_document,
    refresh_openapi_document,
    remove_openapi_document,
)

pages = Pages("tools")


@pages.get("/openapi/{name}", permission="operate", twin="/v1/openapi/{name}")
async def openapi_document(request: PageRequest, name: str, query: DefinitionsAfter) -> View:
    """A document, and what waits, each with its difference."""
    return await _shown(request, name, query.after)


async def _shown(request: PageRequest, name: str, after: str | None = None, said: Said = NOTHING_SAID) -> View:
    detail = await get_openapi_document(request, name)
    values = {"document": detail.document, "detail": detail, **waiting_values(detail.quarantined, after, said)}
    return View(template="openapi_document.html", title=name, values=values, status=said.status)


REVIEW = DefinitionReview(
    place="/openapi", shown=_shown, accept=accept_operations, remove=remove_openapi_document,
    acts={"refresh": (refresh_openapi_document, "refreshed")},
)  # fmt: skip


@pages.post("/openapi/{name}", permission="operate")
async def change_openapi_document(request: PageRequest, name: str) -> View | Go:
    """Accepts what was shown, reads the document again, or removes it."""
    return await REVIEW.change(request, name)
