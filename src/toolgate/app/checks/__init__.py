"""Checks of an installation, made by using what is there.

`toolgate doctor` prints them, /readyz answers with those that calls need, `toolgate servers` shows those of MCP servers.
"""
