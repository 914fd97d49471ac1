"""The doors for programs that are not in this process: HTTP, and MCP over HTTP or stdio."""
