"""Toolgate as an MCP server: the tools that an actor may see, called through the one pipeline.

`gateway` has the handlers of the protocol's methods, over HTTP or a pipe (`stdio`); `fast_path` answers plain requests
without the SDK; `results` turns outcomes into results for both. Import `gateway` and what it imports only when something is
served: the SDK takes a second to load.
"""
