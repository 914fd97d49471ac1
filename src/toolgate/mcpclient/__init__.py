"""The engine for MCP servers that Toolgate calls: one supervised connection for each.

It knows nothing of tools, calls or policies: it starts servers, keeps them alive, asks them, and says what became of it.
`engine.Servers` is all that the rest of Toolgate sees; `port` has the words.
"""
