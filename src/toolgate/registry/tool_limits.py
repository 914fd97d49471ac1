"""Limits of tools that an operator accepted: a timeout, retries, a circuit breaker. They change how a tool is run, and
nothing about its tier, its rights or who is asked."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from toolgate.model import Entry, Retry

RETRY_CODES = ("TIMEOUT", "CONNECTION_ERROR")


class ToolLimits(NamedTuple):
    """The accepted limits of one tool; what is None or False is as the definition says."""

    timeout: float | None = None
    """Seconds."""
    attempts: int | None = None
    breaker: bool = False


class AcceptedLimits:
    """The accepted limits of all tools."""

    def __init__(self, max_seconds: float) -> None:
        """`max_seconds`: the longest timeout that the settings give to a tool that declares none."""
        self._max_seconds = max_seconds
        self.of_tools: Mapping[str, ToolLimits] = {}

    def applied(self, entry: Entry) -> Entry:
        """An entry with the limits of its tool. A tenant's own tool has none."""
        limits = self.of_tools.get(entry.name)
        if limits is None or entry.tool.tenant is not None:
            return entry
        changed = self._limited(entry, limits)
        if entry.operations is None:
            return changed
        return replace(changed, operations={name: self._limited(one, limits) for name, one in entry.operations.items()})

    def longest(self, entry: Entry) -> float:
        """The longest timeout that may be accepted for a tool: its own, or that of the settings."""
        return max(entry.timeout, self._max_seconds)

    def _limited(self, entry: Entry, limits: ToolLimits) -> Entry:
        timeout = entry.timeout if limits.timeout is None else min(limits.timeout, self.longest(entry))
        retry = entry.retry
        if limits.attempts is not None and may_repeat(entry):
            retry = Retry(max_attempts=limits.attempts, codes=RETRY_CODES)
        target = entry.name if limits.breaker and entry.target is None else entry.target
        return replace(entry, timeout=timeout, retry=retry, target=target)


def may_repeat(entry: Entry) -> bool:
    """True for a tool that may be run again by itself after a failure: one that changes nothing, costs nothing, and says
    nothing of retries."""
    return entry.retry is None and entry.tier == "read_only" and entry.tool.program is None and not entry.priced
