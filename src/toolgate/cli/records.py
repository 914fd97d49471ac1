"""A row of the audit log as the `audit` commands show it: as a line, as JSON, as a row of a table."""

from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

import orjson

from toolgate.cli.output import Part
from toolgate.cli.table import STATE_STYLES
from toolgate.cli.times import iso, shown

CSV_FIELDS = ("persona", "user", "session", "door", "duration_ms", "attempts", "cached", "cost_usd", "code", "message")
"""What a table shows of the body in columns of their own."""
CSV_HEADER = ("seq", "time", "kind", "call_id", "tenant", "tool", "status", *CSV_FIELDS, "body", "hash")
SHORT_ID = 18
"""How much of an id a line shows: enough to find the call again."""


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

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> Self:
        return cls(*row)

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
