"""The hosts that a call may reach from the sandbox: how an entry of a list of allowed commands names them, and how whoever
is asked about the call is told."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, ValidationError, field_validator
from pydantic_core import PydanticKnownError

MAX_COMMAND_HOSTS = 50


class AllowedCommand(BaseModel):
    """A command that may run in the sandbox, with a network of its own on which these hosts answer and no others."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    command: str = Field(min_length=1, max_length=1_000)
    """Its beginning, word by word; a word may end in `*`."""
    hosts: tuple[str, ...] = Field(max_length=MAX_COMMAND_HOSTS)
    """`registry.npmjs.org`, `*.example.com`, `git.example.com:8443`. Empty: it needs no network, whatever it is."""

    @field_validator("command")
    @classmethod
    def _words(cls, command: str) -> str:
        if not command.split() or not command.isprintable():
            raise ValueError("it is no beginning of a command, such as `npm install`")
        return command

    @field_validator("hosts")
    @classmethod
    def _hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        from toolgate.network.allowed_hosts import AllowedHosts

        AllowedHosts(hosts)
        return hosts

    def __str__(self) -> str:
        return f"{self.command} (may reach {', '.join(self.hosts)})" if self.hosts else self.command


def _entry(value: Any) -> "str | AllowedCommand":
    if isinstance(value, str | AllowedCommand):
        return value
    if not isinstance(value, dict):
        raise PydanticKnownError("string_type")
    try:
        return AllowedCommand.model_validate(value)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise ValueError("; ".join(faults)) from None


def _plain(entry: "str | AllowedCommand") -> "str | dict[str, Any]":
    return entry if isinstance(entry, str) else entry.model_dump(mode="json")


CommandEntry = Annotated[str | AllowedCommand, PlainValidator(_entry), PlainSerializer(_plain, return_type=Any)]
"""Text, or a command with its hosts. Not a union of pydantic's: its faults would be told twice, once for each kind."""


def reach_words(hosts: Sequence[str]) -> str:
    """The end of the sentence that tells a person why they are asked."""
    return f"; it may reach {', '.join(hosts)}, and no other host" if hosts else ""


def bound_fingerprint(fingerprint: str, hosts: Sequence[str]) -> str:
    """What an approval or a grant is bound to: the definition, and the hosts that were shown with it."""
    return sha256("\n".join((fingerprint, *sorted(hosts))).encode()).hexdigest() if hosts else fingerprint
