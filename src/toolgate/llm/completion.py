"""A message to a language model, its answer, and what a dialect has to translate between the two and a server."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from toolgate.settings.model import ModelChoice

CHARACTERS_A_TOKEN = 4
MAX_COUNTED_TOKENS = 1_000_000_000

Role = Literal["system", "user", "assistant"]
Ending = Literal["complete", "truncated", "refused"]


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Role
    text: str


class Completion(msgspec.Struct, frozen=True):
    """The answer of a model. Its text is data: it may hold whatever the model read."""

    text: str
    ending: Ending
    """truncated: it reached the limit of tokens. refused: the model or its server declined."""
    input_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Malformed(Exception):
    """An answer is not what the dialect says."""


class Dialect(Protocol):
    """The form in which a server is asked and answers."""

    path: str
    """After the base URL."""

    def headers(self, key: str | None) -> dict[str, str]: ...

    def body(self, choice: ModelChoice, messages: Sequence[Message]) -> dict[str, Any]: ...

    def read(self, answer: Any, messages: Sequence[Message]) -> Completion:
        """The completion in an answer of status 200. Raises Malformed."""


def field(value: Any, name: str, kind: type) -> Any:
    """A field of an object that a server sent. Raises Malformed if it is not there, or of another kind."""
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise Malformed(f"{name} is missing or is no {kind.__name__}")
    return found


def counted(usage: Any, name: str, text: str) -> int:
    """The tokens that a server counted; where it counts none, an estimate of a text's. That a text has none is no count."""
    found = usage.get(name) if isinstance(usage, dict) else None
    if type(found) is int and bool(text) <= found <= MAX_COUNTED_TOKENS:
        return found
    return estimate_tokens(text)


def estimate_tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_A_TOKEN)


def asked(messages: Sequence[Message]) -> str:
    """All that is sent to a model."""
    return "\n".join(message.text for message in messages)
