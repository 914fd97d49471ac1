"""The output of a tool on its way out: made JSON, checked against the schema, and cut to the limits.

What is cut is not lost: the whole output becomes an artifact, and can be fetched by its id.
"""

from collections.abc import Awaitable, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from decimal import Decimal
from itertools import islice
from pathlib import PurePath
from typing import Any, NamedTuple

import orjson
from pydantic import BaseModel

from toolgate.errors import Failed, StoreError
from toolgate.jsontext import MANY_BYTES, MANY_VALUES, NOT_A_NUMBER, ValueFault, find_nan, schema_faults
from toolgate.model import Actor, Artifact, Call, Entry, new_id
from toolgate.pipeline.context import InvokeContext
from toolgate.store import artifacts as table
from toolgate.store.database import Store, now
from toolgate.threads import LARGE, Offload

STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
LENIENT = orjson.OPT_PASSTHROUGH_DATACLASS
SCALARS = frozenset({int, bool, type(None)})
CUT = "...[truncated]"
MOST_CUTS = 50
ENCODED = ("data", "blob")
"""Where an object that names a MIME type has the encoded content."""


class Outputs:
    """The gate; its state is the limits."""

    def __init__(self, most_string: int, most_items: int, most_bytes: int, artifacts: "Artifacts", offload: Offload) -> None:
        self._artifacts = artifacts
        self._offload = offload
        self._string = most_string
        self._items = most_items
        self._bytes = most_bytes
        self.surely_small = min(most_string, most_items * 2, most_bytes)
        """JSON shorter than this can hold neither a string nor a list that is too long."""

    def enter(self, ctx: InvokeContext, entry: Entry) -> int:
        """Make the output plain JSON values, and check them against what the tool promised. Gives its size in bytes."""
        output, size = ctx.result, 0
        if type(output) not in SCALARS:
            output, size = self._plain(output)
            ctx.result = output
        elif type(output) is int and not -(2**63) <= output < 2**64:
            raise _invalid(ValueFault("", "is an integer of more than 64 bits; return it as text"))
        if entry.check_output is not None and not entry.check_output.is_valid(output):
            text = orjson.dumps(output)
            every = len(text) <= MANY_BYTES and text.count(b",") <= MANY_VALUES
            raise _invalid(*schema_faults(entry.check_output, output, every=every))
        return size

    def _plain(self, output: Any) -> tuple[Any, int]:
        try:
            text = orjson.dumps(output, option=STRICT)
            plain = output
        except (orjson.JSONEncodeError, RecursionError):
            try:
                text = orjson.dumps(output, default=_known_types, option=LENIENT)
                plain = orjson.loads(text)
            except (orjson.JSONEncodeError, RecursionError) as error:
                raise _invalid(ValueFault("", f"is not JSON: {error.__cause__ or error}")) from error
        if b"null" in text:
            where = find_nan(output)
            if where is not None:
                raise _invalid(ValueFault(where, NOT_A_NUMBER))
        return plain, len(text)

    def limit(self, ctx: InvokeContext, size: int) -> Awaitable[None] | None:
        """Cuts an output that is over a limit, when awaited; `size` are its bytes as JSON."""
        if ctx.call.whole:
            return None
        if size > LARGE:
            return self._cut_large(ctx)
        whole = self._too_long(ctx)
        return None if whole is None else self._cut(ctx, whole, *self.cut(ctx.result))

    async def _cut_large(self, ctx: InvokeContext) -> None:
        tenant = ctx.call.actor.tenant
        whole = await self._offload(tenant, self._too_long, ctx)
        if whole is not None:
            await self._cut(ctx, whole, *await self._offload(tenant, self.cut, ctx.result))

    async def _cut(self, ctx: InvokeContext, whole: bytes, shown: Any, cuts: tuple[str, ...]) -> None:
        ctx.output = shown
        ctx.artifact = await self._artifacts.keep(ctx.call, whole, cuts)

    def _too_long(self, ctx: InvokeContext) -> bytes | None:
        """The whole output as JSON if any of it is over a limit, else None."""
        output = ctx.result
        if type(output) in SCALARS:
            return None
        text = orjson.dumps(output)
        if len(text) < self.surely_small:
            return None
        return text if len(text) > self._bytes or self._over(output) else None

    def _over(self, value: Any) -> bool:
        if isinstance(value, str):
            return len(value) > self._string
        if isinstance(value, list | tuple):
            return len(value) > self._items or any(self._over(part) for part in value)
        if isinstance(value, dict):
            encoded = encoded_in(value)
            inner = (part for key, part in value.items() if key != encoded)
            return any(self._over(part) for part in inner) or any(len(key) > self._string for key in value)
        return False

    def cut(self, output: Any) -> tuple[Any, tuple[str, ...]]:
        """The output within the limits, and a line for each thing that was cut. Where it is too large as a whole, everything
        gets shorter until it is not; names of objects are the last to go."""
        limits = OutputLimits(self._string, self._items, self._bytes)
        cuts: list[str] = []
        while True:
            shortened = _shorten(output, "", limits, cuts)
            if len(orjson.dumps(shortened)) <= self._bytes:
                return shortened, tuple(cuts[:MOST_CUTS])
            if limits == limits.halved():
                return "[too large to show]", ("the whole output",)
            cuts = [f"the whole output, to {self._bytes:,} bytes"]
            limits = limits.halved()


class Artifacts:
    """Outputs that were cut, kept whole for a while under an id."""

    def __init__(self, store: Store, days: float, most_bytes: int) -> None:
        self._store = store
        self._days = days
        self._most = most_bytes

    async def keep(self, call: Call, content: bytes, cuts: tuple[str, ...]) -> Artifact:
        """Keep an output. One that is too large even for that, or that the store refuses, is only cut, and says so."""
        identity = f"art_{new_id()}"
        if len(content) > self._most:
            return Artifact("", len(content), (*cuts, f"not kept: over {self._most:,} bytes"))
        row = table.ArtifactRow(
            identity, call.id, call.actor.tenant, call.actor.user, content, now() + timedelta(days=self._days)
        )
        try:
            await self._store.transact(table.keep(row))
        except StoreError as error:
            return Artifact("", len(content), (*cuts, f"not kept: {error.message}"))
        return Artifact(identity, len(content), cuts)

    async def fetch(self, identity: str, actor: Actor) -> bytes | None:
        """The whole output as JSON, for the user whose call it was."""
        return await self._store.read(table.fetch(identity, actor.tenant, actor.user))

    async def fetch_any(self, identity: str, tenant: str) -> bytes | None:
        """The whole output of any user's call, for whoever runs this installation."""
        return await self._store.read(table.fetch(identity, tenant))


class OutputLimits(NamedTuple):
    """The most that is shown of one string, list or object."""

    string: int
    items: int
    encoded: int
    """Characters of an image or the like, which is whole or not there at all."""
    names: int = 1 << 24

    def halved(self) -> "OutputLimits":
        names = self.names // 2 if self.names <= MANY_NAMES else MANY_NAMES
        string = min(self.string, max(self.string // 2, 16))
        return OutputLimits(string, max(self.items // 2, 1), self.encoded // 2, max(names, 1))


MANY_NAMES = 8192


def _shorten(value: Any, path: str, limits: OutputLimits, cuts: list[str]) -> Any:
    if isinstance(value, str):
        if len(value) <= limits.string:
            return value
        cuts.append(f"{path or 'the text'}: {len(value):,} characters, {limits.string:,} shown")
        return value[: limits.string] + CUT
    if isinstance(value, list | tuple):
        if len(value) > limits.items:
            cuts.append(f"{path or 'the list'}: {len(value):,} items, {limits.items:,} shown")
        shown = value[: limits.items]
        return [_shorten(part, f"{path}[{index}]", limits, cuts) for index, part in enumerate(shown)]
    if isinstance(value, dict):
        return _shorten_object(value, path, limits, cuts)
    return value


def encoded_in(value: dict[str, Any]) -> str | None:
    """Under which name an object holds the content of a file, encoded: it says of what type it is (as parts of MCP do)."""
    if not isinstance(value.get("mimeType"), str):
        return None
    return next((name for name in ENCODED if isinstance(value.get(name), str)), None)


def _shorten_object(value: dict[str, Any], path: str, limits: OutputLimits, cuts: list[str]) -> dict[str, Any]:
    encoded = encoded_in(value)
    if encoded is not None:
        size = len(value[encoded])
        rest = _shorten_object({name: part for name, part in value.items() if name != encoded}, path, limits, cuts)
        if size <= limits.encoded:
            return {**rest, encoded: value[encoded]}
        cuts.append(f"{path or 'the object'}: {size:,} characters of data, none shown")
        words = f"[{value['mimeType'][:100]}, {size:,} characters: left out]"
        return {"type": "text", "text": words} if encoded == "data" else {**rest, "text": words}
    if len(value) > limits.names:
        cuts.append(f"{path or 'the object'}: {len(value):,} names, {limits.names:,} shown")
    shown = {}
    for key, part in islice(value.items(), limits.names):
        where = f"{path}.{key:.40}" if path else f"{key:.40}"
        name = key
        if len(key) > limits.string:
            cuts.append(f"{where}: a name of {len(key):,} characters, {limits.string:,} shown")
            name = key[: limits.string] + CUT
        if name not in shown:  # two names may begin the same
            shown[name] = _shorten(part, where, limits, cuts)
    return shown


def _known_types(value: Any) -> Any:
    """Writes what orjson does not by itself. Numbers that are none have to be found here: it would write null."""
    plain = _as_json(value)
    where = find_nan(plain)
    if where is not None:
        raise ValueError(f"{type(value).__name__}.{where} {NOT_A_NUMBER}")
    return plain


def _as_json(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Decimal | PurePath):
        return str(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _invalid(*faults: ValueFault) -> Failed:
    words = "; ".join(f"{path}: {message}" if path else f"it {message}" for path, message in faults)
    return Failed(
        "OUTPUT_INVALID",
        f"The tool's output is not what it promised: {words}",
        suggestion="This is a fault of the tool, not of the arguments; its author can mend it.",
        details={"errors": [fault._asdict() for fault in faults]},
    )
