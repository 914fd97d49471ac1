"""Language models: one port for all dialects. Streaming and tool calls are not here yet."""
