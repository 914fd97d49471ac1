"""Coordination of processes: counts and states shared through Redis, and notices of changes."""
