"""What stands for a secret wherever one was."""

MASK = "[REDACTED]"
