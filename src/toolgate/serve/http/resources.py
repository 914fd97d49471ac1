"""All resources of /v1, and the route of each of their paths."""

from starlette.routing import Route

from toolgate.serve.http import (
    approvals,
    artifacts,
    attachments,
    audit,
    budgets,
    canvas,
    catalog,
    costs,
    documents,
    events,
    flags,
    grants,
    health,
    invocations,
    jobs,
    keys,
    notifications,
    openapi,
    policy,
    push_tokens,
    schedules,
    secrets,
    servers,
    session,
    tools,
    undo,
)
from toolgate.serve.http.endpoint import Endpoint
from toolgate.serve.http.handler import PathHandler

RESOURCES = (
    tools.resource,
    catalog.resource,
    events.resource,
    approvals.resource,
    grants.resource,
    budgets.resource,
    costs.resource,
    keys.resource,
    secrets.resource,
    flags.resource,
    policy.resource,
    undo.resource,
    invocations.resource,
    audit.resource,
    artifacts.resource,
    jobs.resource,
    schedules.resource,
    canvas.resource,
    notifications.resource,
    push_tokens.resource,
    documents.resource,
    attachments.resource,
    servers.resource,
    health.resource,
    session.resource,
    openapi.resource,
)
"""Calls come first: the routes are compared in this order."""


def _routes() -> list[Route]:
    found: dict[str, list[Endpoint]] = {}
    for resource in RESOURCES:
        for endpoint in resource.endpoints:
            found.setdefault(endpoint.path, []).append(endpoint)
    return [Route(path, PathHandler(endpoints)) for path, endpoints in found.items()]


routes = _routes()
