"""All pages of the console, and the route of each of their addresses."""

from toolgate.serve.console import (
    api_docs,
    approvals,
    assets,
    audit,
    budgets,
    call,
    calls,
    grants,
    health,
    jobs,
    keys,
    learning,
    money,
    openapi_documents,
    overview,
    person,
    policy,
    policy_suggestions,
    schedules,
    search,
    servers,
    teams,
    tenants,
    tools,
)
from toolgate.serve.console.frame import routes_of

PAGES = (
    overview.pages,
    approvals.pages,
    grants.pages,
    calls.pages,
    call.pages,
    tools.pages,
    servers.pages,
    openapi_documents.pages,
    teams.pages,
    learning.pages,
    money.pages,
    budgets.pages,
    health.pages,
    jobs.pages,
    schedules.pages,
    policy.pages,
    policy_suggestions.pages,
    audit.pages,
    keys.pages,
    api_docs.pages,
    tenants.pages,
    search.pages,
    person.pages,
)
ROUTES = [route for pages in PAGES for route in pages.routes]

routes = [*routes_of(ROUTES), *assets.routes]
