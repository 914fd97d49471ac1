"""/tenants: the tenants that are known, with what they use."""

from toolgate.serve.console.page import PageRequest, Pages, View
from toolgate.serve.http.tenants import DAYS, TenantsQuery, list_tenants

pages = Pages("system")


@pages.get("/tenants", permission="read", twin="/v1/tenants")
async def tenants(request: PageRequest, query: TenantsQuery) -> View:
    """By name; for those who do not run the installation, their own."""
    found = await list_tenants(request, query)
    values = {
        "found": found.items, "next": found.next, "days": DAYS, "most": max((one.calls for one in found.items), default=0),
        "is_operator": request.credential.may("operate"),
    }  # fmt: skip
    return View(template="tenants.html", title="Tenants", values=values, listed=found.items)
