"""/grants: the tools that may run unasked for a while."""

from toolgate.serve.console.approval_view import telling
from toolgate.serve.console.page import Go, PageRequest, Pages, View
from toolgate.serve.http.grants import GrantsQuery, list_grants, revoke_grant

pages = Pages("approvals")


@pages.get("/grants", permission="own", twin="/v1/grants")
async def grants(request: PageRequest, query: GrantsQuery) -> View:
    """The grants that hold, oldest first; all that there were, if that is asked for."""
    found = await list_grants(request, query)
    values = {"found": found.items, "next": found.next, "query": query, "telling": telling}
    return View(template="grants.html", title="Grants", values=values, listed=found.items)


@pages.post("/grants/{id}/revoke", permission="answer")
async def revoke(request: PageRequest, id: str) -> Go:
    """Takes a grant back."""
    await revoke_grant(request, id)
    return Go("/grants", done="revoked")
