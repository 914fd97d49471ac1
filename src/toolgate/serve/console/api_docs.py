"""/docs: the routes of /v1, as the OpenAPI document describes them."""

from typing import Any

import msgspec

from toolgate.serve.console.page import PageRequest, Pages, View
from toolgate.serve.http.endpoint import ROLE_NAMES, ApiModel, Endpoint
from toolgate.serve.http.reach import Name

pages = Pages("system")


class DocsQuery(ApiModel, frozen=True):
    """The routes that are shown."""

    q: Name | None = None
    """A text in their method, path or description."""


class ShownRoute(msgspec.Struct, frozen=True):
    """A route as the page shows it."""

    method: str
    path: str
    summary: str
    role: str
    allowed: bool
    """True if the sender's roles may use it."""
    query: list[str]
    body: list[str]
    """Names of its fields; those in `required` must be there."""
    required: frozenset[str]


@pages.get("/docs", permission="own", twin="/v1/openapi.json")
async def docs(request: PageRequest, query: DocsQuery) -> View:
    """Each route with its role and what it takes."""
    part = (query.q or "").lower()
    found: dict[str, list[ShownRoute]] = {}
    for resource in request.http.resources:
        for endpoint in resource.endpoints:
            if part in f"{endpoint.method} {endpoint.path} {endpoint.summary}".lower():
                found.setdefault(resource.tag, []).append(_shown(request, endpoint))
    values: dict[str, Any] = {"found": found, "number": sum(map(len, found.values()))}
    return View(template="docs.html", title="HTTP API", values=values)


def _shown(request: PageRequest, endpoint: Endpoint) -> ShownRoute:
    body = () if endpoint.body is None else msgspec.structs.fields(endpoint.body)
    asked = msgspec.structs.fields(endpoint.query)
    return ShownRoute(
        method=endpoint.method, path=endpoint.path, summary=" ".join(endpoint.summary.split()),
        role=ROLE_NAMES[endpoint.permission], allowed=endpoint.permission in request.credential.permissions,
        query=[one.encode_name for one in asked], body=[one.encode_name for one in body],
        required=frozenset(one.encode_name for one in (*asked, *body) if one.required),
    )  # fmt: skip
