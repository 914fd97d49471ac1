"""Makes the parts of an App that call MCP servers (the operator's, and those that tenants registered), HTTP services and the
event stream."""

from typing import TYPE_CHECKING

from toolgate.app.openapi_documents import make_openapi_tools
from toolgate.app.registration import Registration
from toolgate.events.calls import EventCalls
from toolgate.mcp.catalog import McpTools
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.mcp.endpoints import McpEndpoints
from toolgate.mcp.runner import McpRunner
from toolgate.mcp.server_settings import named_servers
from toolgate.registry.registration import ToolRegistrar

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts


def make_servers(parts: "Parts", keeps_servers: bool) -> None:
    """MCP servers and OpenAPI documents, with their tools in the catalog, and the event stream."""
    settings = parts.settings
    parts.servers_engine = UpstreamServers(
        secrets=parts.server_secrets.find,
        sandbox=parts.sandbox,
        home=None if settings.in_memory else settings.home,
        keep=None if settings.in_memory else parts.server_secrets.keep_login,
        tokens=parts.server_secrets.login,
        rules=lambda: parts.tiers.paths,
        places=parts.places,
    )
    parts.mcp_tools = McpTools(
        settings.servers,
        parts.servers_engine,
        parts.store,
        parts.catalog,
        parts.rules,
        register=parts.catalog_sync.register,
        forget=parts.guard.forget,
        note=parts.events.record,
        announce=parts.announce,
        named=named_servers(settings),
        enabled=settings.mcp.enabled,
    )
    parts.openapi_tools = make_openapi_tools(parts)
    parts.mcp_tools.lists_by_itself = parts.servers_engine.restarts_by_itself = keeps_servers
    parts.event_calls = EventCalls(settings.events, parts.server_secrets.find)
    tenants_engine = UpstreamServers(secrets=lambda _name: None, sandbox=parts.sandbox, home=None, http=parts.tenants_http)
    tenants_engine.restarts_by_itself = False
    parts.mcp_endpoints = McpEndpoints(tenants_engine, parts.tenants_http)
    parts.registration = parts.providers.everywhere[ToolRegistrar] = Registration(parts)
    mcp = McpRunner(
        parts.mcp_tools,
        parts.mcp_endpoints,
        has_model=lambda actor: parts.models.is_configured(actor),
        withdraw=lambda id, actor, reason: parts.consent.questions.withdraw(id, actor, reason),
    )
    parts.execution.runners |= {"mcp": mcp, "events": parts.event_calls.runner}
