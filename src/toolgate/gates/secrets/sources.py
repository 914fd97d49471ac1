"""Where secrets can be: the environment, an encrypted file, the system's keyring, asked in this order."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from toolgate.gates.secrets.environment import from_environment
from toolgate.gates.secrets.names import Owner, parsed


class Source(Protocol):
    """Given a key (see `names`), the value, or None."""

    def __call__(self, key: str, /) -> str | None: ...


@runtime_checkable
class Readable(Protocol):
    """A source that can say which secrets it has."""

    name: str

    def why_not(self) -> str | None: ...
    def held(self) -> Mapping[str, datetime | None]: ...


@runtime_checkable
class Vault(Readable, Protocol):
    """A source into which secrets can be put."""

    def set(self, key: str, value: str) -> None: ...
    def remove(self, key: str) -> bool: ...


class ListedSecret(NamedTuple):
    """What may be shown of a secret."""

    name: str
    owner: Owner
    source: str
    set_at: datetime | None


def open_sources(
    home: Path | None,
    *,
    file: Path | None = None,
    keyring: bool = False,
    keyring_backend: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Source, ...]:
    """The sources, first one first. Without a home there is only the environment. Nothing is read or made yet."""
    made: list[Source] = [from_environment(environment)]
    if home is not None:
        from toolgate.gates.secrets.file import EncryptedFile

        made.append(EncryptedFile(file or home / "secrets.enc", environment))
        if keyring:
            from toolgate.gates.secrets.system import Keyring

            made.append(Keyring(home, keyring_backend))
    return tuple(made)


def listed(source: Readable) -> list[ListedSecret]:
    """The secrets of a source, without their values."""
    return [ListedSecret(*parsed(key), source.name, set_at) for key, set_at in source.held().items()]
