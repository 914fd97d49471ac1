"""An MCP server of ten lines: `toolgate servers add shop -- python server.py` plugs it in."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("shop")
PRICES = {"apple": 0.5, "pear": 0.75}


@server.tool()
def price(article: str, pieces: int = 1) -> float:
    """Say what some pieces of an article cost."""
    return PRICES[article] * pieces


if __name__ == "__main__":
    server.run()
