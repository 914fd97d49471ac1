"""Agents: what a model is told, how its reply is read, and the loop of model and tools around the one pipeline."""
