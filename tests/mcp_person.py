"""Whoever called, at the other end of a door that keeps in touch: what the tests of MCP servers put there."""

from collections.abc import Mapping
from typing import Any


class Person:
    """Answers what tools ask, by the first word of the method (elicitation, sampling, roots), and notes what it was told."""

    input_responses: Mapping[str, Any] | None = None
    request_state: str | None = None
    can_come_again: bool = False

    def __init__(self, *, log_level: str | None = None, **answers: Mapping[str, Any]) -> None:
        self.capabilities: Mapping[str, Any] = {name: {} for name in answers}
        self.log_level = log_level
        self.answers = answers
        self.seen: list[tuple[float, float | None]] = []
        """How far the call had got, each time."""
        self.logged: list[Any] = []
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:  # noqa: ARG002
        self.seen.append((progress, total))

    async def log(self, level: str, data: Any, logger: str | None = None) -> None:  # noqa: ARG002
        self.logged.append(data)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append((method, params))
        return self.answers[method.partition("/")[0]]

    def remind(self, state: str | None, requests: Mapping[str, Any]) -> None:
        raise AssertionError(f"this client does not come again: {state}, {requests}")

    def goes_on(self) -> None:
        """It waits all the same."""
