"""MCP servers that behave badly, as real programs: they write what they like to their output, without any SDK."""
