"""The end of a call: the outcome that every door gives, as a value and as JSON."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, get_type_hints

import msgspec
import orjson
from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from toolgate.errors import CODES, Pending, Status, call_error, shortened
from toolgate.model.call import Call

OPTIONAL_FIELDS = frozenset({"artifact", "resources_used"})
"""Fields that an outcome as JSON leaves out where there is nothing in them."""
MAX_REPR_CHARS = 100
"""Characters of an output or a message in the repr of an outcome: pytest shows 240 in all."""


class JsonStruct(msgspec.Struct, frozen=True, gc=False):
    """Part of an outcome. Pydantic knows its JSON, so that a FastAPI route can return an outcome and describe it."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: GetCoreSchemaHandler) -> Any:
        fields = {
            name: core_schema.typed_dict_field(handler.generate_schema(hint), required=name not in OPTIONAL_FIELDS)
            for name, hint in get_type_hints(cls).items()
        }
        return core_schema.typed_dict_schema(fields, ref=f"{cls.__module__}.{cls.__qualname__}:{id(cls)}")


class ErrorInfo(JsonStruct, frozen=True, gc=False):
    """The error of a call, for programs (code, retryable) and for people (message, suggestion)."""

    code: str
    message: str
    retryable: bool = False
    suggestion: str | None = None
    details: dict[str, Any] | None = None


class PendingInfo(JsonStruct, frozen=True, gc=False):
    """The approval or job that a pending call waits for."""

    kind: str
    id: str


class Metrics(JsonStruct, frozen=True, gc=False):
    """The time, attempts and cost of a call."""

    duration_ms: float = 0.0
    attempts: int = 0
    cached: bool = False
    tokens_used: int | None = None
    cost_usd: float = 0.0
    resources_used: tuple[str, ...] | None = None


class Artifact(JsonStruct, frozen=True, gc=False):
    """An output that was too long to give out whole: kept under an id, with a list of what was cut."""

    id: str
    bytes: int
    cut: tuple[str, ...]


class Outcome(JsonStruct, frozen=True, gc=False):
    """The end of a call: `output` if `status` is success, else `error`, with `pending` if it waits."""

    id: str
    tool: str
    status: Status
    output: Any = None
    error: ErrorInfo | None = None
    pending: PendingInfo | None = None
    metrics: Metrics = Metrics()
    artifact: Artifact | None = None

    @property
    def ok(self) -> bool:
        """True if the call succeeded."""
        return self.status == "success"

    def to_dict(self) -> dict[str, Any]:
        """Gives the outcome as plain JSON values; artifact and resources_used only where there are any."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        if self.artifact is None:
            del plain["artifact"]
        else:
            plain["artifact"]["cut"] = list(self.artifact.cut)
        plain["metrics"]["duration_ms"] = round(self.metrics.duration_ms, 4)
        if self.metrics.resources_used is None:
            del plain["metrics"]["resources_used"]
        else:
            plain["metrics"]["resources_used"] = list(self.metrics.resources_used)
        return plain

    def to_json(self) -> bytes:
        """`to_dict` as JSON."""
        return orjson.dumps(self.to_dict())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        told = super().__get_pydantic_core_schema__(source, handler)
        as_json = core_schema.plain_serializer_function_ser_schema(lambda outcome: outcome.to_dict(), return_schema=told)
        return core_schema.is_instance_schema(cls, serialization=as_json)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Has `dict(outcome)` give what `to_dict` does, as with a pydantic model."""
        return iter(self.to_dict().items())

    def __repr__(self) -> str:
        """One line for failed assertions: how the call ended. The rest is in `to_dict`."""
        if self.status == "success":
            ended = f"success, output={shortened(repr(self.output), MAX_REPR_CHARS)}"
        elif self.pending is not None:
            ended = f"pending, {self.pending.kind} {self.pending.id}"
        else:
            ended = self.status
        why = f", {self.error.code}: {shortened(self.error.message, MAX_REPR_CHARS)}" if self.error is not None else ""
        return f"Outcome({self.tool}: {ended}{why}, id={self.id})"

    def raise_for_status(self) -> "Outcome":
        """Raises the `CallError` that matches a call which did not succeed; gives the outcome itself if it did."""
        if self.status == "success":
            return self
        __tracebackhide__ = True  # pytest shows the line that called this
        error = self.error or ErrorInfo("UNEXPECTED_ERROR", CODES["UNEXPECTED_ERROR"].message)
        rest: dict[str, Any] = {
            "retryable": error.retryable, "suggestion": error.suggestion, "details": error.details,
        }  # fmt: skip
        if self.pending is not None:
            raise Pending(error.code, error.message, kind=self.pending.kind, id=self.pending.id, **rest)
        raise call_error(error.code, error.message, **rest) from self._cause()

    def _cause(self) -> BaseException | None:
        return None


class Crash:
    """A tool's exception, so wrapped that nothing that displays an outcome (rich, a debugger, a log) shows its words, which
    may hold secrets: only `raise_for_status` does."""

    __slots__ = ("exception",)

    def __init__(self, exception: BaseException) -> None:
        self.exception = exception

    def __repr__(self) -> str:
        return f"<{type(self.exception).__name__}>"


class CrashedOutcome(Outcome, frozen=True, gc=True):
    """An outcome of a call whose tool raised something of its own, in this process: `raise_for_status` raises from it. It is
    no part of the outcome as JSON. The garbage collector looks at it, for the exception's frames may refer to it."""

    crash: Crash | None = None

    def _cause(self) -> BaseException | None:
        return None if self.crash is None else self.crash.exception

    def _told(self) -> Outcome:
        return Outcome(*(getattr(self, field) for field in Outcome.__struct_fields__))

    def to_dict(self) -> dict[str, Any]:
        return self._told().to_dict()


Invoke = Callable[[Call], Awaitable[Outcome]]
"""The architecture in one line: whoever wants a tool run is handed one of these, and has no other way."""

Arguments = Mapping[str, Any]
