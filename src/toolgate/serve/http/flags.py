"""/v1/flags: the tools that are enabled and disabled, for the tenant, a persona or everybody."""

from toolgate.serve.http.catalog import ToolDetail, detail_of
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.pages import Page, PageQuery, page_of, position_of
from toolgate.serve.http.reach import Name, Reason, named_actor, tenant_of
from toolgate.serve.http.tools import visible
from toolgate.store.catalog import FlaggedFor, FlagRow

resource = Resource("flags")


class FlagView(ApiView, frozen=True):
    """A flag of a tool."""

    scope: FlaggedFor
    whose: str | None
    """The tenant or the persona; null for everybody."""
    tool: str
    enabled: bool
    reason: str | None
    by_operator: bool
    """True: only an operator changes it."""


class ToolFlags(ApiView, frozen=True):
    """The state of a tool for a tenant, and the flags that it comes from."""

    tool: str
    enabled: bool
    """True if the tenant has it."""
    everybody: bool
    """True if those have it who have no flag of their own."""
    flag: bool | None
    """The tenant's own flag; null: it has none."""
    by_operator: bool
    """True: an operator set the tenant's flag."""
    enforced: bool
    """True: nobody can disable it."""


class FlagsQuery(PageQuery, frozen=True):
    """The flags that are listed."""

    scope: FlaggedFor = "tenant"
    """Those of personas and for everybody are for operators."""


class FlagChange(ApiModel, frozen=True):
    """A flag to be set."""

    enabled: bool
    persona: Name | None = None
    """Of operators: for this persona, in every tenant, in place of the tenant."""
    reason: Reason | None = None


class FlagPersona(ApiModel, frozen=True):
    """The flag that is meant."""

    persona: Name | None = None


def _view(scope: FlaggedFor, row: FlagRow) -> FlagView:
    return FlagView(
        scope=scope, whose=row.whose or None, tool=row.tool, enabled=bool(row.enabled), reason=row.reason,
        by_operator=bool(row.by_operator),
    )  # fmt: skip


@resource.get("/v1/flags", permission="read")
async def list_flags(request: ApiRequest, query: FlagsQuery) -> Page[FlagView]:
    """List the flags of the tenant, by tool; for operators also those of personas and for everybody."""
    if query.scope != "tenant":
        request.require("operate")
    after = position_of(request, query)
    whose = tenant_of(request) if query.scope == "tenant" else None
    found = await request.app.tools.flags(
        query.scope, whose, limit=query.limit + 1, after=None if after is None else (after[0], after[1])
    )
    views = [_view(query.scope, row) for row in found]
    return page_of(request, query, views, lambda one: (one.whose or "", one.tool))


async def _change(request: ApiRequest, tool: str, enabled: bool | None, persona: str | None, reason: str | None) -> None:
    if persona is not None:
        request.require("operate")
        named_actor(request.sender.tenant, persona, request.sender.user)  # a name that nobody can have is refused
    await request.app.tools.set_enabled(
        tool, enabled, tenant=None if persona is not None else tenant_of(request), persona=persona, reason=reason,
        actor=request.sender, by_operator=request.credential.may("operate"),
    )  # fmt: skip


async def _state(request: ApiRequest, tool: str) -> ToolFlags:
    app, tenant = request.app, request.sender.tenant
    entry = app.tools.get(tool, request.sender)
    rows = await app.tools.flags("tenant", tenant, tool=tool, limit=1)
    return ToolFlags(
        tool=tool, enabled=not app.tools.is_off(entry, tenant), everybody=bool(app.tools.flag(tool)),
        flag=bool(rows[0].enabled) if rows else None, by_operator=bool(rows and rows[0].by_operator),
        enforced=app.tools.is_enforced(tool),
    )  # fmt: skip


@resource.get("/v1/flags/{tool}", permission="administer")
async def get_flags_of_tool(request: ApiRequest, tool: str) -> ToolFlags:
    """Get whether the tenant has a tool, and why."""
    return await _state(request, tool)


@resource.put("/v1/flags/{tool}", permission="administer")
async def set_flag(request: ApiRequest, tool: str, body: FlagChange) -> ToolFlags:
    """Enable or disable a tool for the tenant; of operators also for a persona, or with `tenant=*` for everybody.

    An admin neither changes a flag that an operator set, nor enables what is disabled for everybody.
    """
    await _change(request, tool, body.enabled, body.persona, body.reason)
    return await _state(request, tool)


@resource.delete("/v1/flags/{tool}", permission="administer")
async def remove_flag(request: ApiRequest, tool: str, query: FlagPersona) -> ToolFlags:
    """Remove a flag: what holds for everybody holds again."""
    await _change(request, tool, None, query.persona, None)
    return await _state(request, tool)


@resource.patch("/v1/tools/{name}", permission="administer")
async def change_tool(request: ApiRequest, name: str, body: FlagChange) -> ToolDetail:
    """Enable or disable a tool, as `PUT /v1/flags/{tool}` does; the answer is the tool."""
    await _change(request, name, body.enabled, body.persona, body.reason)
    return detail_of(request, await visible(request, name))
