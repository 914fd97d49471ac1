"""Secrets in the environment: TOOLGATE_SECRET_NAME, for everybody, and TOOLGATE_SERVER_SECRET_NAME, for MCP servers."""

import os
from collections.abc import Mapping
from datetime import datetime

from toolgate.gates.secrets.names import ENVIRONMENT_PREFIX, NAME, SERVER_PREFIX, SERVERS


class Environment:
    """The source that reads TOOLGATE_SECRET_<NAME> and TOOLGATE_SERVER_SECRET_<NAME>."""

    name = "environment"

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def __call__(self, key: str) -> str | None:
        space, slash, name = key.rpartition("/")
        if slash and space != SERVERS:
            return None
        prefix = SERVER_PREFIX if slash else ENVIRONMENT_PREFIX
        return self._variables.get(prefix + name) or self._variables.get(prefix + name.upper())

    def why_not(self) -> str | None:
        """The environment is always there."""
        return None

    def held(self) -> dict[str, datetime | None]:
        """The keys that have a value."""
        found = [
            (space, variable.removeprefix(prefix))
            for space, prefix in (("", ENVIRONMENT_PREFIX), (f"{SERVERS}/", SERVER_PREFIX))
            for variable, value in self._variables.items()
            if value and variable.startswith(prefix)
        ]
        return {space + name: None for space, name in sorted(found) if NAME.match(name)}


def from_environment(environment: Mapping[str, str] | None = None) -> Environment:
    """The source that reads TOOLGATE_SECRET_<NAME>."""
    return Environment(os.environ if environment is None else environment)
