"""Language models: one port for all dialects."""
