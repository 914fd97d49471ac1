"""Secrets in the environment: TOOLGATE_SECRET_NAME. They are for everybody."""

import os
from collections.abc import Mapping
from datetime import datetime

from toolgate.secrets.names import NAME, PREFIX


class Environment:
    """The source that reads TOOLGATE_SECRET_<NAME>."""

    name = "environment"

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def __call__(self, key: str) -> str | None:
        if "/" in key:
            return None
        return self._variables.get(PREFIX + key) or self._variables.get(PREFIX + key.upper())

    def why_not(self) -> str | None:
        """The environment is always there."""
        return None

    def held(self) -> dict[str, datetime | None]:
        """The keys that have a value."""
        names = (variable.removeprefix(PREFIX) for variable, value in self._variables.items() if value)
        return {name: None for name in sorted(names) if NAME.match(name) and self._variables.get(PREFIX + name)}


def from_environment(environment: Mapping[str, str] | None = None) -> Environment:
    """The source that reads TOOLGATE_SECRET_<NAME>."""
    return Environment(os.environ if environment is None else environment)
