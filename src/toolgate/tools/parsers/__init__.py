"""Readers of what others wrote, each run in a process of its own (`sandbox.helper_process`): not loaded with the tools."""
