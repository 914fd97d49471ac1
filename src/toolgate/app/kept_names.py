"""Names that no tool from elsewhere may have, though the catalog has no tool of that name yet."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts


def why_kept(parts: "Parts", name: str) -> str | None:
    """The reason why a name is kept; None if it is not."""
    if parts.mcp_tools.keeps(name):
        return "the name is kept for a tool of an MCP server"
    if parts.openapi_tools.keeps(name):
        return "the name is kept for a tool of an OpenAPI document"
    return None
