"""Toolgate as an MCP server: the tools that an actor may see, called through the one pipeline.

`endpoint` is the way in over HTTP and `stdio` over a pipe; both serve one `gateway.Gateway`. `results` says how outcomes
become results and knows nothing of the SDK. Import the others only when something is served: the SDK takes a second.
"""
