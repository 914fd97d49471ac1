"""Circuit breakers, one for each target: after repeated failures it is left alone for a while, then tried by one call."""

from collections.abc import Callable
from dataclasses import dataclass

from toolgate.errors import CallError, Failed

TROUBLE = frozenset({"TIMEOUT", "CONNECTION_ERROR", "MCP_ERROR", "N8N_ERROR", "INVOCATION_ERROR"})
"""Codes that speak of the target's health, not of the caller's arguments."""


@dataclass(slots=True)
class Circuit:
    """The state of one target."""

    failures: int = 0
    opened_at: float | None = None
    trying: bool = False
    """Half open: one call is on its way to see whether the target is back."""


class Breakers:
    """All circuits."""

    def __init__(self, failures: int, reset_seconds: float, time: Callable[[], float]) -> None:
        self._failures = failures
        self._reset = reset_seconds
        self._time = time
        self._circuits: dict[str, Circuit] = {}

    def enter(self, target: str) -> bool:
        """Go on if the target may be called, else raise CIRCUIT_OPEN. True: this call is the one that tries."""
        circuit = self._circuits.get(target)
        if circuit is None or circuit.opened_at is None:
            return False
        wait = circuit.opened_at + self._reset - self._time()
        if wait > 0 or circuit.trying:
            raise Failed(
                "CIRCUIT_OPEN",
                f"{target} failed {circuit.failures} times in a row and is left alone for now.",
                details={"retry_after": round(max(wait, 1.0), 3), "target": target},
            )
        circuit.trying = True
        return True

    def leave(self, target: str, error: CallError | None) -> None:
        """Learn from how the call ended. What says nothing of the target's health changes nothing."""
        if error is None:
            self._circuits.pop(target, None)
        elif error.code in TROUBLE:
            circuit = self._circuits.setdefault(target, Circuit())
            circuit.failures += 1
            if circuit.failures >= self._failures:
                circuit.opened_at = self._time()

    def end_trial(self, target: str) -> None:
        """The call that tried is over, however it ended: the next may try."""
        circuit = self._circuits.get(target)
        if circuit is not None:
            circuit.trying = False

    def open_targets(self) -> list[str]:
        return sorted(target for target, circuit in self._circuits.items() if circuit.opened_at is not None)
