"""The sources of secrets: the environment, an encrypted file, the system's keyring, asked in this order.

Never the environment at large, but TOOLGATE_SECRET_NAME, for everybody, and TOOLGATE_SERVER_SECRET_NAME, for MCP servers: a
caller that could name any variable could read them all.
"""

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from toolgate.gates.secrets.names import ENVIRONMENT_PREFIX, NAME, SERVER_PREFIX, SERVERS, Owner, parsed


class Source(Protocol):
    """Given a key (see `names`), the value, or None."""

    def __call__(self, key: str, /) -> str | None: ...


@runtime_checkable
class Readable(Protocol):
    """A source that can say which secrets it has."""

    name: str

    def why_not(self) -> str | None:
        """The reason why nothing can be kept or read there; None if it can."""

    def held(self) -> Mapping[str, datetime | None]:
        """The keys that have a value, and since when."""


@runtime_checkable
class Vault(Readable, Protocol):
    """A source into which secrets can be put."""

    def set(self, key: str, value: str) -> None:
        """Keeps a secret, in place of the one that was there."""

    def remove(self, key: str) -> bool:
        """Forgets a secret; False if there was none."""


class ListedSecret(NamedTuple):
    """All that may be shown of a secret."""

    name: str
    owner: Owner
    source: str
    set_at: datetime | None


class Environment:
    """The source that reads TOOLGATE_SECRET_<NAME> and TOOLGATE_SERVER_SECRET_<NAME>."""

    name = "environment"

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables = os.environ if variables is None else variables

    def __call__(self, key: str) -> str | None:
        space, slash, name = key.rpartition("/")
        if slash and space != SERVERS:
            return None
        prefix = SERVER_PREFIX if slash else ENVIRONMENT_PREFIX
        return self._variables.get(prefix + name) or self._variables.get(prefix + name.upper())

    def why_not(self) -> str | None:
        return None

    def held(self) -> dict[str, datetime | None]:
        found = [
            (space, variable.removeprefix(prefix))
            for space, prefix in (("", ENVIRONMENT_PREFIX), (f"{SERVERS}/", SERVER_PREFIX))
            for variable, value in self._variables.items()
            if value and variable.startswith(prefix)
        ]
        return {space + name: None for space, name in sorted(found) if NAME.match(name)}


def open_sources(
    home: Path | None,
    *,
    file: Path | None = None,
    keyring: bool = False,
    keyring_backend: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Source, ...]:
    """The sources, first one first. Without a home there is only the environment. Nothing is read or made yet."""
    made: list[Source] = [Environment(environment)]
    if home is not None:
        from toolgate.gates.secrets.encrypted_file import EncryptedFile

        made.append(EncryptedFile(file or home / "secrets.enc", environment))
        if keyring:
            from toolgate.gates.secrets.keyring_source import Keyring

            made.append(Keyring(home, keyring_backend))
    return tuple(made)


def listed(source: Readable) -> list[ListedSecret]:
    """The secrets of a source, without their values."""
    return [ListedSecret(*parsed(key), source.name, set_at) for key, set_at in source.held().items()]
