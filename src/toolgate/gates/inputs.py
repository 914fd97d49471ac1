"""Arguments on their way in: parsed, checked against the schema, completed with defaults, put into canonical form.

The canonical form is what is hashed, cached, approved and run: from `seal` on, the arguments can't change.
"""

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any

import orjson

from toolgate.errors import CallError, Failed, did_you_mean
from toolgate.jsontext import (
    MANY_BYTES,
    MANY_VALUES,
    NOT_A_NUMBER,
    UNKNOWN_ARGUMENT,
    ValueFault,
    find_nan,
    find_not_json,
    holds_too_much,
    schema_faults,
)
from toolgate.model import Entry
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import GateVerdict
from toolgate.schema import whole_numbers
from toolgate.threads import LARGE, Offload

CANONICAL = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
MAX_VALUES = 100_000
"""Of one call's arguments: each is checked against schema, paths and secrets, which takes microseconds for each."""
E, N, POINT = b"en."
"""Looking for a byte takes a fifth of the time that looking for bytes does."""
FLOATS_OR_MORE = frozenset({float, dict, list, tuple})


class Inputs:
    """The gate; its state is the limit, and which definitions speak of integers."""

    def __init__(self, most_bytes: int, offload: Offload) -> None:
        self._most = most_bytes
        self._offload = offload
        self._few = min(most_bytes, MAX_VALUES, LARGE)
        """Bytes up to which arguments are neither too big, nor too many, nor large."""
        self._wants_integers: dict[str, bool] = {}

    def parse(self, ctx: InvokeContext) -> None:
        """Arguments that are no dict yet: JSON text of one, another mapping, or none at all."""
        given = ctx.arguments
        if given is None:
            ctx.input = {}
        elif isinstance(given, str | bytes):
            ctx.input = self._read(given)
        elif isinstance(given, Mapping):
            try:
                ctx.input = dict(given)
            except Exception as error:  # it is somebody else's class
                what = f"cannot be read: the {type(given).__name__} raised {type(error).__name__}"
                raise _invalid([ValueFault("", what)]) from error
        else:
            raise _invalid([ValueFault("", f"must be named values, not {type(given).__name__}")])

    def glance(self, given: Any, entry: Entry | None) -> dict[str, Any]:
        """The arguments with their defaults, as far as they can be read before they are parsed; whatever is wrong with them
        is told later."""
        try:
            read = self._read(given) if isinstance(given, str | bytes) else dict(given or {})
        except Exception:  # noqa: BLE001 - it is whatever a caller sent
            read = {}
        return read if entry is None else {**entry.defaults, **read}

    def _read(self, text: str | bytes) -> dict[str, Any]:
        if len(text) > self._most:
            raise self._too_big(len(text))
        try:
            read = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise _invalid([ValueFault("", f"cannot be read as JSON: {error}")]) from error
        if not isinstance(read, dict):
            raise _invalid([ValueFault("", f"must be a JSON object, not {type(read).__name__}")])
        return read

    def accept(self, ctx: InvokeContext, entry: Entry) -> None:
        """Checks and seals at once arguments that did not come in by the line: a person's, or those of an explanation."""
        self._validate(ctx, entry)
        self.seal(ctx, entry)

    async def explain(self, ctx: InvokeContext, entry: Entry) -> AsyncIterator[GateVerdict]:
        """If the arguments are valid, the context has them in canonical form afterwards."""
        try:
            if type(ctx.arguments) is not dict:
                self.parse(ctx)
            self.accept(ctx, entry)
        except CallError as error:
            yield GateVerdict("input", "deny", error.message, error.details)
        else:
            yield GateVerdict("input", "pass", "the arguments fit the schema")

    def _validate(self, ctx: InvokeContext, entry: Entry) -> None:
        if self.enter(ctx, entry):
            self._check(ctx, entry)

    def enter(self, ctx: InvokeContext, entry: Entry) -> bool:
        """Writes the arguments as JSON and checks them against the schema. Gives whether they are large: then they are not
        checked yet, for that takes long (`check_large`). What is no JSON (objects, 300 levels), or too much, is refused."""
        arguments = ctx.arguments
        try:
            canonical = ctx.canonical = orjson.dumps(arguments, None, CANONICAL)
        except (orjson.JSONEncodeError, RecursionError) as error:
            raise _invalid([find_not_json(arguments) or ValueFault("", f"cannot be written as JSON: {error}")]) from error
        if len(canonical) > self._few and self._is_large(canonical):
            return True
        self._check(ctx, entry)
        return False

    def _is_large(self, canonical: bytes) -> bool:
        if len(canonical) > self._most:
            raise self._too_big(len(canonical))
        if holds_too_much(canonical, MAX_VALUES):
            raise _invalid(
                [ValueFault("", f"they hold more than {MAX_VALUES:,} values; send them as text, or in several calls")]
            )
        return len(canonical) > LARGE

    def _check(self, ctx: InvokeContext, entry: Entry) -> None:
        """Checks what was written against the schema."""
        arguments, canonical = ctx.arguments, ctx.canonical
        if N in canonical and b"null" in canonical and (where := find_nan(arguments)) is not None:
            raise _invalid([ValueFault(where, NOT_A_NUMBER)])
        if not entry.check_input.is_valid(arguments):
            every = len(canonical) <= MANY_BYTES and canonical.count(b",") <= MANY_VALUES
            raise _invalid(schema_faults(entry.check_input, arguments, every=every), entry)

    def check_large(self, ctx: InvokeContext, entry: Entry) -> Awaitable[None]:
        """Checks large arguments off the event loop."""
        ctx.arguments = orjson.loads(ctx.canonical)  # the caller's own could change while a thread looks at them
        return self._offload(ctx.call.actor.tenant, self._check, ctx, entry)

    def seal_large(self, ctx: InvokeContext, entry: Entry) -> Awaitable[None]:
        return self._offload(ctx.call.actor.tenant, self.seal, ctx, entry)

    def seal(self, ctx: InvokeContext, entry: Entry) -> None:
        """Fill in defaults, write whole numbers as such, and seal. Where hooks saw the arguments, they are checked again;
        there, and where the call will wait before it runs, the tool gets a copy that nobody else holds."""
        if ctx.hooked:
            self._validate(ctx, entry)
        changed: dict[str, Any] | None = None
        if entry.defaults:
            changed = {name: value for name, value in entry.defaults.items() if name not in ctx.arguments}
        if (POINT in ctx.canonical or E in ctx.canonical) and self._may_need_integers(ctx.arguments, entry):
            changed = {**(changed or {}), **_integers(ctx.arguments, entry)}
        if changed:
            ctx.canonical = orjson.dumps({**ctx.arguments, **changed}, None, CANONICAL)
        if changed or ctx.hooked or entry.copies or ctx.call.idempotency_key is not None:
            ctx.arguments = orjson.loads(ctx.canonical)
        ctx.sealed = True

    def _may_need_integers(self, arguments: dict[str, Any], entry: Entry) -> bool:
        """True if there is a float, or a place for one, and a schema that might want an integer there."""
        if not any(type(part) in FLOATS_OR_MORE for part in arguments.values()):
            return False
        wanted = self._wants_integers.get(entry.fingerprint)
        if wanted is None:
            wanted = self._wants_integers[entry.fingerprint] = b'"integer"' in orjson.dumps(entry.tool.input_schema)
        return wanted

    def _too_big(self, size: int) -> Failed:
        return _invalid([ValueFault("", f"{size:,} bytes as JSON, where {self._most:,} are allowed")])


def _integers(arguments: dict[str, Any], entry: Entry) -> dict[str, Any]:
    """The arguments in which 3.0 stands for an integer, with 3 there. JSON Schema takes both; Python does not."""
    whole = whole_numbers(arguments, entry.tool.input_schema)
    large = find_not_json(whole) if whole is not arguments else None
    if large is not None:
        raise _invalid([large], entry)
    return {name: part for name, part in whole.items() if part is not arguments[name]}


def _invalid(faults: Sequence[ValueFault], entry: Entry | None = None) -> Failed:
    words = "; ".join(f"{path}: {message}" if path else message for path, message in faults)
    suggestion = "Correct the arguments and call again."
    if entry is not None:
        known = entry.tool.input_schema.get("properties", {})
        suggestion = f"Correct the arguments and call again; {entry.tool.name} takes: {', '.join(known) or 'none'}."
        unknown = next((fault.path for fault in faults if fault.message == UNKNOWN_ARGUMENT), None)
        if unknown is not None and (near := did_you_mean(unknown, known)) is not None:
            suggestion = f"{near} {suggestion}"
    return Failed(
        "VALIDATION_ERROR",
        f"Invalid arguments: {words}",
        suggestion=suggestion,
        details={"errors": [fault._asdict() for fault in faults]},
    )
