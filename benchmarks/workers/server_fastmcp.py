"""FastMCP as a server of `add` (`server_fastmcp.py PORT`), or as a proxy (`server_fastmcp.py PORT URL`)."""

import sys

import uvicorn
from fastmcp import FastMCP
from fastmcp.server import create_proxy
from measure import add

if __name__ == "__main__":
    server = FastMCP("bench")
    if len(sys.argv) > 2:
        server = create_proxy(sys.argv[2])
    else:
        server.tool(add)
    uvicorn.run(
        server.http_app(path="/mcp"),
        port=int(sys.argv[1]),
        log_level="critical",
        access_log=False,
        loop="uvloop",
        http="httptools",
    )
