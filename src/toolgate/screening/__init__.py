"""Files that hold secrets and commands that do harm, recognised by what they are and not by how they are spelled.

`paths`, `commands`, `queries` and `secret_patterns` are what others use; the other modules are what those know, each
of one thing.
"""

MASK = "[REDACTED]"
"""Stands for a secret wherever one was."""
