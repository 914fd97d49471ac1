"""`toolgate audit`: read the log of everything that was called, and find out whether anybody changed it."""

import asyncio
import csv
import io
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import orjson
import typer

from toolgate.app.app import App
from toolgate.cli.context import CommandGroup, NotFound, OnlyTenant, ToFile, Usage, argument, opened, option, text_option
from toolgate.cli.files import content_of, output_to
from toolgate.cli.output import Part, answer, answered, as_json, clean, emit, note, say, show
from toolgate.cli.table import STATE_STYLES
from toolgate.cli.times import iso, shown
from toolgate.cli.waterfall import show_details
from toolgate.store.signed_heads import parse as parse_head

FOLLOW_SECONDS = 0.3
HANG = len("12:34:56 ")
"""The indent of a folded record's lines: below its id, so that times stand alone at the left."""
Status = Literal["started", "success", "failure", "timeout", "denied", "pending", "done"]
"""The statuses of records: `started` and `done` (of what is no call), and how a call can end."""

CSV_FIELDS = ("persona", "user", "session", "door", "duration_ms", "attempts", "cached", "cost_usd", "code", "message")
"""The fields of the body that a table shows in columns of their own."""
CSV_HEADER = ("seq", "time", "kind", "call_id", "tenant", "tool", "status", *CSV_FIELDS, "body", "hash")
SHORT_ID = 18
"""Characters of an id that a line shows: enough to find the call again."""

group = CommandGroup(help="The log of everything that was called.", no_args_is_help=True)


class AuditRecord(NamedTuple):
    """The columns of a row."""

    seq: int
    at: int
    kind: str
    call_id: str
    tenant: str
    tool: str
    status: str
    body: str
    hash: str

    @property
    def content(self) -> Any:
        """The body, or its text if somebody made it something that is no JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return self.body

    @property
    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.at / 1_000_000, UTC)

    def fits(self, tenant: str | None, tool: str | None, status: str | None) -> bool:
        return tenant in (None, self.tenant) and tool in (None, self.tool) and status in (None, self.status)

    def to_json(self) -> bytes:
        """One line; the body's bytes are the very ones that the hash covers."""
        content = self.content
        shown = self._asdict() | {"body": content if isinstance(content, str) else orjson.Fragment(self.body)}
        return orjson.dumps({"seq": self.seq, "time": iso(self.moment), **shown})

    def to_cells(self) -> list[str]:
        content = self.content
        known = content if isinstance(content, dict) else {}
        fields = [_cell(known.get(name)) for name in CSV_FIELDS]
        texts = [_cell(text) for text in (self.kind, self.call_id, self.tenant, self.tool, self.status)]
        return [str(self.seq), iso(self.moment), *texts, *fields, self.body, self.hash]

    def to_line(self, tool_width: int, *, brief: bool) -> list[Part]:
        """For people; `brief` leaves date and zone out of what happened today."""
        content = self.content
        known = content if isinstance(content, dict) else {}
        who = "/".join(str(part) for part in (self.tenant, known.get("persona"), known.get("user")) if part)
        local = self.moment.astimezone()
        today = brief and local.date() == datetime.now(UTC).astimezone().date()
        when = f"{local:%H:%M:%S}" if today else shown(self.moment, seconds=True)
        parts: list[Part] = [
            (f"{when} ", "dim"),
            (f"{self.call_id[:SHORT_ID]} ", "dim"),
            f"{self.tool or '-':<{tool_width}} ",
            (
                f"{self.status:<8}" if self.kind in ("start", "end") else f"{self.kind:<22}",
                STATE_STYLES.get(self.status, ""),
            ),
        ]
        if self.kind in ("start", "end"):
            took = known.get("duration_ms")
            parts.append(f"{took:>9,.1f} ms  " if isinstance(took, int | float) else " " * 14)
        parts.append(who)
        parts.extend(f"  for {name} {known[f'for_{name}']}" for name in ("tenant", "persona") if known.get(f"for_{name}"))
        if known.get("reason"):
            parts.append(f"  because: {known['reason']}")
        if self.kind == "budget.alert":
            parts.append(f"  {known.get('message', '')}")
        if known.get("code"):
            own = f" ({known['tool_code']})" if known.get("tool_code") else ""
            parts.append((f"  {known['code']}{own}: {known.get('message', '')}", "red"))
        return parts


def _cell(value: Any) -> str:
    """Text for a spreadsheet, which would take a text that begins like a formula for one."""
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
    return orjson.dumps(value).decode()


@group.command()
async def tail(
    ctx: typer.Context,
    count: Annotated[int, option("-n --lines N", "How many records.", min=0, max=100_000)] = 20,
    tenant: OnlyTenant = None,
    tool: Annotated[str | None, text_option("--tool NAME", "Only of this tool.")] = None,
    status: Annotated[
        Status | None,
        option("--status STATUS", f"Only with this status: {', '.join(get_args(Status))}."),
    ] = None,
    follow: Annotated[bool, option("--follow -f", "Go on showing records as they are written.")] = False,
) -> int:
    """Show the last records, oldest first."""

    async with opened(ctx) as app:
        end = (await app.audit.end()).seq
        rows = await app.audit.latest(count, tenant=tenant, tool=tool, status=status)
        _print([AuditRecord(*row) for row in rows])
        if not rows and not as_json() and not follow:
            note((_none(filtered=(tenant, tool, status) != (None, None, None), count=count), "dim"))
        if follow:
            await _follow(app, max([end, *(row[0] for row in rows)]), (tenant, tool, status))
    return 0


def _none(*, filtered: bool, count: int) -> str:
    """An empty log, or a filter that nothing passes, as a sentence that says what to do."""
    if filtered or not count:
        return "No record matches. `toolgate audit tail` shows the last records of all tenants, tools and statuses."
    return "Nothing has been recorded yet. Every call is: `toolgate call calculator expression=1+1` makes the first record."


async def _follow(app: App, seq: int, wanted: tuple[str | None, str | None, str | None]) -> None:
    while True:
        records = [AuditRecord(*row) for row in await app.audit.after(seq)]
        _print([record for record in records if record.fits(*wanted)])
        if records:
            seq = records[-1].seq
        else:
            await asyncio.sleep(FOLLOW_SECONDS)


def _print(records: list[AuditRecord]) -> None:
    tool_width = max((len(record.tool) for record in records), default=0)
    for record in records:
        if not answered(record.to_json()):
            say(*record.to_line(min(max(tool_width, 12), 40), brief=sys.stdout.isatty()), hang=HANG)


@group.command("show")
async def show_call(
    ctx: typer.Context,
    call_id: Annotated[str, argument("CALL_ID", "The id of a call, or how it alone begins, or its request id.")],
    verbose: Annotated[bool, option("--verbose", "Show the traceback of a tool that crashed, too.")] = False,
) -> int:
    """Show all records of one call. If they are kept (setting audit.details), its stages and its output too."""
    async with opened(ctx) as app:
        records = await _records_of(app, call_id)
        details = {kept.seq: kept for kept in await app.audit.details(records[0].call_id)}
    if as_json():
        kept = orjson.dumps([one.to_dict() for one in details.values()])
        rows = b",".join(one.to_json() for one in records)
        emit(b'{"call_id":"%s","records":[%s],"details":%s}' % (records[0].call_id.encode(), rows, kept))
        return 0
    for record in records:
        say(
            (f"{record.kind} ", "bold"),
            (record.status, STATE_STYLES.get(record.status, "")),
            f"  {record.tool or '-'}  {shown(record.moment, seconds=True)}",
        )
        say((f"row {record.seq}, call {record.call_id}, tenant {record.tenant}, hash {record.hash}", "dim"))
        _show_body(record.content, verbose)
        if record.seq in details:
            show_details(details[record.seq])
    return 0


async def _records_of(app: App, name: str) -> list[AuditRecord]:
    """The records of the call that has this id, or whose id alone begins so, or that was made with this request id."""
    rows = await app.audit.of_call(name) if _is_call_id(name) else ()
    calls: tuple[str, ...] = ()
    if not rows:
        with suppress(ValueError):  # text that no request id can be
            calls = await app.audit.of_request(name)
    if len(calls) > 1:
        raise NotFound(
            f"{len(calls)} calls have the request id {clean(name)}.", suggestion=f"Name one: {', '.join(calls[-5:])}."
        )
    if calls:
        rows = await app.audit.of_call(calls[0])
    if not rows:
        raise _no_call(name)
    return [AuditRecord(*row) for row in rows]


def _is_call_id(name: str) -> bool:
    return name.isascii() and name.isprintable()


def _no_call(name: str) -> NotFound:
    return NotFound(
        f"There is no call with the id {clean(name[:64])!r}, or more than one whose id begins so: see toolgate audit tail."
    )


def _show_body(content: Any, verbose: bool) -> None:
    """Prints what a record holds; a traceback after it, as the text that it is."""
    trace = content.pop("traceback", None) if isinstance(content, dict) else None
    show(content)
    if trace is not None and verbose:
        say((str(trace), "dim"), lines=True)
    elif trace is not None:
        note(("The tool crashed: --verbose shows its traceback.", "dim"))


@group.command()
async def verify(
    ctx: typer.Context,
    heads: Annotated[Path | None, option("--heads FILE", "Compare it with the signed heads in this file, too.")] = None,
) -> int:
    """Find out whether anybody changed the log. It finds rows that were changed, added or removed, a cut tail, a log that is
    not the one whose head was signed, and details of calls that were changed, added, or removed too early."""
    given = [] if heads is None else [parse_head(line) for line in content_of(heads).splitlines() if line.strip()]
    async with opened(ctx) as app:
        verdict = await app.audit.verify(given)
    if as_json():
        emit({"ok": verdict.ok, **verdict._asdict(), "head": verdict.head._asdict()})
        return 0 if verdict.ok else 1
    if verdict.ok and not verdict.rows:
        say(("✓ The audit log is empty: nothing has been recorded here.", "green"))
    elif verdict.ok:
        say((f"✓ The audit log is whole: {verdict.rows:,} rows, head {verdict.head.seq} {verdict.head.hash}", "green"))
        if verdict.signed is not None:
            at = datetime.fromtimestamp(verdict.signed["at"] / 1_000_000, UTC)
            say(f"  signed up to row {verdict.signed['seq']:,} by key {verdict.signed['key']}, {shown(at, seconds=True)}")
    else:
        say((f"✗ The audit log is not what was written ({verdict.rows:,} rows):", "red"))
    for fault in verdict.faults:
        say((f"  {fault}", "red"))
    for warning in verdict.warnings:
        note((f"! {warning}", "yellow"))
    return 0 if verdict.ok else 1


@group.command()
async def prove(
    ctx: typer.Context,
    call_id: Annotated[str | None, argument("[CALL_ID]", "The id of a call, or how it alone begins.")] = None,
    output: ToFile = None,
    script: Annotated[bool, option("--script", "Write the program that checks a proof, which needs only Python.")] = False,
) -> int:
    """Write a proof that a call is in the signed log. It can be checked without the log."""
    if script == (call_id is not None):
        raise Usage("Name a call to prove, or ask for the program that checks a proof: --script.")
    if script:
        content = resources.files("toolgate.gates.ledger").joinpath("check_proof.py").read_bytes()
    else:
        content = orjson.dumps(await _proof(ctx, str(call_id)), option=orjson.OPT_INDENT_2) + b"\n"
    with output_to(output) as put:
        put(content)
    return 0


async def _proof(ctx: typer.Context, call_id: str) -> dict[str, Any]:
    async with opened(ctx) as app:
        if not app.audit.is_signed:
            raise Usage("Heads of this log are not signed, so nothing can be proven.", suggestion="Set audit.key to file.")
        found = await app.audit.prove(call_id) if _is_call_id(call_id) else None
    if found is None:
        raise _no_call(call_id)
    return found


@group.command()
async def sign(
    ctx: typer.Context,
    anew: Annotated[
        bool, option("--anew", "Accept the log as it is now, whatever was signed before. This is recorded.")
    ] = False,
) -> int:
    """Sign the head of the log now."""
    async with opened(ctx) as app:
        head = await app.audit.sign(anew=anew)
    if head is None and not as_json():
        note(("Nothing was signed: the log is empty, or the setting audit.key is none.", "dim"))
        return 0
    told, words = (b"null", "") if head is None else (head.to_json(), f"row {head.seq:,} with key {head.key}")
    return answer(told, (f"✓ Signed the log up to {words}", "green"))


@group.command()
async def key(
    ctx: typer.Context,
    rotate: Annotated[bool, option("--rotate", "Make a new key, which signs from now on.")] = False,
) -> int:
    """Show the key that signs the head of the log. Whoever checks proofs needs its public half."""
    async with opened(ctx) as app:
        found = None if not app.audit.is_signed else await app.audit.key(rotate=rotate)
    if as_json():
        emit(found)
    elif found is None:
        note(("This log is not signed: the setting audit.key is none, or the log is in memory.", "dim"))
    else:
        if rotate:
            say(("✓ Made a new key", "green"), ", which signs from now on. What earlier keys signed stays valid.")
        say(f"Key:        {found['key']}, in {found['place']}")
        say(f"Public key: {found['public_key']}")
    return 0


@group.command()
async def export(
    ctx: typer.Context,
    shape: Annotated[Literal["jsonl", "csv"], option("--format", "A JSON object to a line, or a table.")] = "jsonl",
    output: ToFile = None,
    first: Annotated[int, option("--from SEQ", "Begin with this row.", min=1)] = 1,
) -> int:
    """Write the log, or its end, for other programs."""
    if as_json() and output is None and shape == "csv":
        raise Usage("--json and --format csv contradict each other.", suggestion="With --output FILE, --json is a summary.")
    rows = await _export(ctx, shape, output, first)
    if output is None:
        return 0
    if not answered({"rows": rows, "format": shape, "output": str(output)}):
        note(f"{rows:,} rows written to {output}")
    return 0


async def _export(ctx: typer.Context, shape: str, output: Path | None, first: int) -> int:
    written = 0
    async with opened(ctx) as app:
        with output_to(output) as put:
            if shape == "csv":
                put(_csv([CSV_HEADER]))
            async for page in _pages(app, first):
                written += len(page)
                if shape == "csv":
                    put(_csv([record.to_cells() for record in page]))
                else:
                    put(b"".join(record.to_json() + b"\n" for record in page))
    return written


async def _pages(app: App, first: int) -> AsyncIterator[list[AuditRecord]]:
    seq = first - 1
    while rows := await app.audit.after(seq):
        yield [AuditRecord(*row) for row in rows]
        seq = rows[-1][0]


def _csv(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "backslashreplace")
