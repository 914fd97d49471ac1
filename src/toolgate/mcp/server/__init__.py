"""Toolgate as an MCP server: the tools that an actor may see, called through the one pipeline.

`endpoint` serves HTTP and `stdio` a pipe; both use one `gateway.Gateway`. `results` turns outcomes into results and knows
nothing of the SDK. Import the others only when something is served: the SDK takes a second to load.
"""
