"""The port of tool sources: one implementation for each place that tools come from."""

from collections.abc import Iterable
from typing import Protocol

from toolgate.model import Entry
from toolgate.registry.catalog import ToolProblem


class ToolSource(Protocol):
    """Gives the tools of one source. What can't be loaded is given as a ToolProblem, and the rest still loads."""

    name: str

    def load(self) -> Iterable[Entry | ToolProblem]: ...
