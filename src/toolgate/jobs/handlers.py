"""Handlers: what is done for a job of a type. Toolgate's own are added by `app`; others with the decorator `job_handler`, in
code that registers it (`app.jobs.add_handler`) or by an entry point of an installed package (group `toolgate.jobs`)."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, TypeVar

import jsonschema_rs
import msgspec

from toolgate.errors import ToolgateError
from toolgate.jobs.job import JobProgress
from toolgate.model import Actor
from toolgate.store.jobs import JobRow

GROUP = "toolgate.jobs"
DEFAULT_ATTEMPTS = 3
MAX_ATTEMPTS = 100
logger = logging.getLogger("toolgate.jobs")

Handler = Callable[["JobContext"], Awaitable[Any]]
H = TypeVar("H", bound=Handler)


class PermanentFailure(ToolgateError):
    """A job that is not to be tried again. Raised by its handler."""


class JobWaits(Exception):
    """A job that waits for an approval."""

    def __init__(self, approval: str) -> None:
        super().__init__(approval)
        self.approval = approval


class JobParked(ToolgateError):
    """A job of which nobody knows whether it had its effect: a person has to settle it."""


class JobContext:
    """A job as its handler is given it."""

    def __init__(
        self,
        row: JobRow,
        actor: Actor,
        payload: dict[str, Any],
        providers: Mapping[Any, Any],
        report: Callable[[JobProgress], Awaitable[None]],
    ) -> None:
        self.row = row
        self.id = row.id
        """Also the idempotency key for whatever the handler does outside: a job may be run again after a crash."""
        self.actor = actor
        self.payload = payload
        self.attempt = row.attempts + 1
        self._providers = providers
        self._report = report

    def get(self, token: Any) -> Any:
        """Gives what was provided under a token (`app.provide`). Raises LookupError if nothing was."""
        try:
            return self._providers[token]
        except KeyError:
            raise LookupError(f"nothing is provided for {token!r}") from None

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Says how far the job has got; whoever looks at it sees that."""
        await self._report(JobProgress(done, total, message))


class JobType(msgspec.Struct, frozen=True, eq=False):
    """A type of jobs: its handler, how often it is tried, and the schema of its payloads."""

    name: str
    handler: Handler
    max_attempts: int = DEFAULT_ATTEMPTS
    timeout: float | None = None
    """Seconds for one attempt."""
    schema: dict[str, Any] | None = None
    check: Any = None
    is_masked: bool = False
    """True if its results are outcomes of calls, which the pipeline has masked."""

    def fault(self, payload: Any) -> str | None:
        """The fault of a payload; None if it has none."""
        if self.check is None:
            return None
        error = next(iter(self.check.iter_errors(payload)), None)
        if error is None:
            return None
        path = ".".join(str(part) for part in error.instance_path)
        return f"{path or 'the payload'}: {str(error.message)[:300]}"


def job_handler(
    type: str,  # noqa: A002 - as in the payload
    *,
    max_attempts: int = DEFAULT_ATTEMPTS,
    timeout: float | None = None,
    schema: dict[str, Any] | None = None,
) -> Callable[[H], H]:
    """Declares an async function as the handler of a type of jobs."""

    def declare(handler: H) -> H:
        handler.job_type = make_type(type, handler, max_attempts, timeout, schema)  # type: ignore[attr-defined]
        return handler

    return declare


def make_type(
    name: str, handler: Handler, max_attempts: int, timeout: float | None, schema: dict[str, Any] | None
) -> JobType:
    """A type of jobs, checked."""
    if not name or len(name) > 64 or not all(char.isalnum() or char in "_-." for char in name):
        raise ValueError(f"the type of a job is 1 to 64 letters, digits, '_', '-' or '.', not {name!r:.80}")
    if not 1 <= max_attempts <= MAX_ATTEMPTS:
        raise ValueError(f"max_attempts must be between 1 and {MAX_ATTEMPTS}, not {max_attempts!r}")
    check = None if schema is None else jsonschema_rs.validator_for(schema)
    return JobType(name, handler, max_attempts, timeout, schema, check)


class JobHandlers:
    """The types of jobs that this process knows."""

    def __init__(self, *, installed: bool = False) -> None:
        """`installed`: those that installed packages offer too, which are loaded when they are first asked for: to find them
        takes longer than a short command."""
        self._types: dict[str, JobType] = {}
        self._to_be_loaded = installed

    def add(
        self,
        type: str,  # noqa: A002
        handler: Handler,
        *,
        max_attempts: int = DEFAULT_ATTEMPTS,
        timeout: float | None = None,
        schema: dict[str, Any] | None = None,
        is_masked: bool = False,
    ) -> None:
        """Adds a handler. Raises ValueError if its type has one."""
        made = make_type(type, handler, max_attempts, timeout, schema)
        self.add_type(msgspec.structs.replace(made, is_masked=is_masked))

    def add_type(self, made: JobType) -> None:
        if made.name in self._types:
            raise ValueError(f"jobs of type {made.name} have a handler already")
        self._types[made.name] = made

    def add_declared(self, handler: Handler) -> None:
        """Adds a function that `job_handler` declared."""
        made = getattr(handler, "job_type", None)
        if not isinstance(made, JobType):
            raise TypeError(f"{handler!r:.80} is no job handler: put @job_handler('type') above it")
        self.add_type(made)

    def load(self) -> None:
        """Adds what installed packages offer. One that can't be loaded keeps none of the others out."""
        for point in entry_points(group=GROUP):
            try:
                self.add_declared(point.load())
            except Exception:  # whatever somebody's module raises
                logger.exception("the job handler %s (%s) cannot be used", point.name, point.value)

    def _load_once(self) -> None:
        if self._to_be_loaded:
            self._to_be_loaded = False
            self.load()

    @property
    def names(self) -> frozenset[str]:
        self._load_once()
        return frozenset(self._types)

    def get(self, name: str) -> JobType | None:
        if name not in self._types:
            self._load_once()
        return self._types.get(name)
