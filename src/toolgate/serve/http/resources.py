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
    learning,
    notifications,
    openapi,
    openapi_documents,
    policy,
    policy_suggestion,
    push_tokens,
    schedules,
    secrets,
    servers,
    session,
    statistics,
    teams,
    tenants,
    tool_access,
    tools,
    undo,
    user_words,
)
from toolgate.serve.http.endpoint import Endpoint
from toolgate.serve.http.handler import PathHandler

RESOURCES = (
    tools.resource,
    catalog.resource,
    tool_access.resource,
    events.resource,
    approvals.resource,
    grants.resource,
    budgets.resource,
    costs.resource,
    keys.resource,
    secrets.resource,
    flags.resource,
    policy.resource,
    policy_suggestion.resource,
    undo.resource,
    statistics.resource,
    learning.resource,
    invocations.resource,
    audit.resource,
    artifacts.resource,
    jobs.resource,
    schedules.resource,
    user_words.resource,
    canvas.resource,
    notifications.resource,
    push_tokens.resource,
    documents.resource,
    attachments.resource,
    servers.resource,
    teams.resource,
    openapi_documents.resource,
    tenants.resource,
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
    lists = {path for path, endpoints in found.items() if any(one.method == "GET" for one in endpoints)}
    return [Route(path, PathHandler(endpoints, _list_of(path, lists))) for path, endpoints in found.items()]


def _list_of(path: str, lists: set[str]) -> str | None:
    """The path of the list that holds what a path is about: /v1/jobs of /v1/jobs/{id}/retry."""
    parent, part, _ = path.partition("/{")
    return parent if part and parent in lists else None


routes = _routes()
