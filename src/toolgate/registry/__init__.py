"""The registry: declaring tools, finding them, and what they cost a model to read."""
