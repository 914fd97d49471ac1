"""/v1/tenants: the tenants that are known, with what they use."""

from collections import Counter
from datetime import timedelta

from toolgate.model import NANO
from toolgate.serve.http.endpoint import ApiRequest, ApiView, Resource
from toolgate.serve.http.pages import Page, PageQuery, page_of, position_of
from toolgate.serve.http.reach import Name
from toolgate.serve.http.statistics import caught_up
from toolgate.store.budgets import EACH, CostLine
from toolgate.store.database import now

resource = Resource("tenants")

DAYS = 30
MOST_TENANTS = 10_000


class TenantView(ApiView, frozen=True):
    """A tenant, with its calls of the last thirty days and of today, as far as they are counted."""

    name: str
    calls: int
    """That ran."""
    cost_usd: float
    personas: list[str]
    """With which calls were made."""
    flags: int
    """Tools that are enabled or disabled for it."""
    budgets: int
    """That count for it alone, or for each tenant."""


class TenantsQuery(PageQuery, frozen=True):
    """Filters of the list."""

    q: Name | None = None
    """A text in their name."""


@resource.get("/v1/tenants", permission="read")
async def list_tenants(request: ApiRequest, query: TenantsQuery) -> Page[TenantView]:
    """List tenants by name: for operators all that are known, for others their own."""
    after = position_of(request, query)
    app, everybody, own = request.app, request.credential.may("operate"), request.credential.actor.tenant
    named = None if everybody else own
    await request.once(caught_up)
    flags = Counter(row.whose for row in await app.tools.flags("tenant", named))
    caps = Counter(one.scope["tenant"] for one in await app.budgets.list(named) if one.scope["tenant"] not in (None, EACH))
    names = {own, *flags, *(name for name in caps if name)}
    if everybody:
        names.update(await app.audit.tenants(MOST_TENANTS), (key.actor.tenant for key in await app.keys.list()))
    part = (query.q or "").lower()
    known = [name for name in sorted(names) if (everybody or name == own) and part in name.lower()]
    shown = [name for name in known if after is None or name > after[0]][: query.limit + 1]
    lines: dict[str, list[CostLine]] = {name: [] for name in shown}
    for line in await app.budgets.use_of_tenants(shown, since=now() - timedelta(days=DAYS)):
        lines[line.tenant or ""].append(line)
    views = [
        TenantView(
            name=name, calls=sum(one.calls for one in used), cost_usd=sum(one.nano for one in used) / NANO,
            personas=sorted(one.name for one in used if one.name), flags=flags[name], budgets=caps[name],
        )
        for name, used in lines.items()
    ]  # fmt: skip
    return page_of(request, query, views, lambda one: (one.name,))
