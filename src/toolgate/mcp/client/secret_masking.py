"""Masks a server's secrets in whatever it says: results, errors, questions, lists, log lines.

Masking happens where messages are read, before anything is cut or forwarded, with all secrets that the server has been given
so far: in its environment, command and headers, the tokens of its login, and in calls. A server without secrets costs
nothing. Otherwise a message is first searched as a whole, and only walked if a secret is in it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from toolgate.errors import CallError
from toolgate.jsontext import MAX_JSON_DEPTH
from toolgate.mcp.client.errors import ErrorResponse
from toolgate.model import MASK
from toolgate.screening.secret_patterns import Masker

MIN_SECRET_CHARS = 4
"""Shorter values are found everywhere."""
MAX_OWN_SECRETS, MAX_CALL_SECRETS = 200, 200
"""Secrets that are remembered: the server's own, and those of calls."""
SERVER_PARTS = ("result", "error", "params")
"""The parts of a message that the server fills."""
PROTOCOL_FIELDS = frozenset({
    "_meta", "annotations", "arguments", "capabilities", "code", "completion", "completions", "content", "contents", "data",
    "description", "error", "info", "inputRequests", "inputSchema", "instructions", "isError", "items", "level", "logger",
    "logging", "message", "messages", "method", "mimeType", "name", "nextCursor", "outputSchema", "params", "progress",
    "progressToken", "prompts", "properties", "protocolVersion", "requestState", "requestedSchema", "required", "resource",
    "resourceTemplates", "resources", "resultType", "role", "serverInfo", "status", "structuredContent", "subscribe",
    "supportedVersions", "taskId", "text", "title", "tools", "total", "type", "uri", "uriTemplate", "values", "version",
})  # fmt: skip
"""Field names of the protocol, which are not masked, whatever secrets there are."""
PROTOCOL_TERMS = frozenset({
    "array", "assistant", "boolean", "complete", "completed", "elicitation/create", "failed", "image", "input_required",
    "integer", "number", "object", "resource", "resource_link", "sampling/createMessage", "string", "task", "text", "user",
    "working",
})  # fmt: skip
TERM_FIELDS = frozenset({"method", "resultType", "role", "status", "type"})
"""Fields in which PROTOCOL_TERMS are not masked."""
NAME_FIELDS = frozenset({
    "name", "nextCursor", "progressToken", "protocolVersion", "requestId", "requestState", "supportedVersions", "taskId",
    "uri", "uriTemplate",
})  # fmt: skip
"""Fields that identify things, at the top of what is said and in LIST_FIELDS."""
LIST_FIELDS = frozenset({"contents", "prompts", "resourceTemplates", "resources", "tools"})
MIN_MASKED_NAME_CHARS = 16
"""In names only longer secrets are masked: a shorter one may just be a word, and without its name a thing can't be used."""


class SecretMasker:
    """Of one server, for as long as its name is known: it may repeat what it was once given."""

    def __init__(self) -> None:
        self._own: dict[str, None] = {}
        self._handed: dict[str, None] = {}
        self._masker: Masker | None = None
        """None without secrets."""

    def learn(self, value: str | None) -> None:
        """Adds a secret of the server's own."""
        if value and value not in self._own and len(value) >= MIN_SECRET_CHARS:
            self._take(self._own, [value], MAX_OWN_SECRETS)

    def learn_call_secrets(self, values: Iterable[str]) -> None:
        """Adds secrets that a call hands the server."""
        long_enough = [value for value in values if len(value) >= MIN_SECRET_CHARS]
        if not self._handed.keys() >= set(long_enough):
            self._take(self._handed, long_enough, MAX_CALL_SECRETS)

    def _take(self, into: dict[str, None], values: Iterable[str], most: int) -> None:
        for value in values:
            into.pop(value, None)
            into[value] = None
        while len(into) > most:
            del into[next(iter(into))]
        if self._own or self._handed:
            self._masker = Masker([*self._own, *self._handed])

    def mask_text(self, text: str, least: int = MIN_SECRET_CHARS) -> str:
        """Masks secrets of at least so many characters in a text."""
        return text if self._masker is None else self._masker.text(text, least, on_loop=True)

    def mask_value(self, value: Any) -> Any:
        """Masks a JSON value; returns the same object if there is nothing in it."""
        return self._masked(value, ("",)) if self._may_be_in(value) else value

    def mask_message(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Masks a JSON-RPC message."""
        if not self._may_be_in(message):
            return message
        return {name: self._masked(part, ("",)) if name in SERVER_PARTS else part for name, part in message.items()}

    def mask_error(self, error: CallError) -> None:
        """Masks our own error, which may quote the server: a header of its response, for example."""
        if self._masker is None:
            return
        error.message = self.mask_text(error.message)
        error.args = (error.message,)
        if isinstance(error, ErrorResponse):
            error.words = self.mask_text(error.words)

    def _may_be_in(self, value: Any) -> bool:
        return self._masker is not None and self._masker.has("\n".join(_texts(value)))

    def _masked(self, value: Any, path: tuple[str, ...]) -> Any:
        """`path`: the fields that lead there; empty for list items and at the top."""
        if isinstance(value, str):
            is_term = path[-1] in TERM_FIELDS and value in PROTOCOL_TERMS
            return value if is_term else self.mask_text(value, MIN_MASKED_NAME_CHARS if _names(path) else MIN_SECRET_CHARS)
        if len(path) > MAX_JSON_DEPTH:  # nothing can be done with it anyway
            return MASK
        if isinstance(value, Mapping):
            least = MIN_MASKED_NAME_CHARS if path[-1] == "properties" else MIN_SECRET_CHARS
            return {
                name if name in PROTOCOL_FIELDS else self.mask_text(name, least): self._masked(part, (*path, name))
                for name, part in value.items()
            }
        if isinstance(value, list):
            return [self._masked(part, (*path, "")) for part in value]
        is_number = type(value) in (int, float) and not _names(path)
        return MASK if is_number and self._masker is not None and self._masker.number(value) else value


def _names(path: tuple[str, ...]) -> bool:
    """True where a value identifies something."""
    match path:
        case (_, field) | (_, field, ""):
            return field in NAME_FIELDS
        case (_, list_of, "", field):
            return list_of in LIST_FIELDS and field in NAME_FIELDS
        case (*_, "required", ""):
            return True
    return False


def _texts(value: Any) -> Iterator[str]:
    """All texts and numbers in a value."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            waiting.extend(one)
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
        elif type(one) in (int, float):
            yield str(one)
