"""One call that waits, shaped for a person: what is shown, what of it is cut, and what its forms are made of.

Whoever approves must have been able to see all that will run. What is too long for the page is cut, and said to be: then
only the whole page (`whole=yes`) has the buttons that let a call run.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from markupsafe import Markup

from toolgate.gates.approval.request import SCOPES, GrantScope
from toolgate.model import MASK
from toolgate.screening.lookalikes import marked
from toolgate.serve.console.renderer import visible
from toolgate.serve.http.approvals import ApprovalDetail, FileChange

MAX_ROWS, MAX_NAME_CHARS, MAX_VALUE_LINES, MAX_VALUE_CHARS, MAX_DIFF_LINES = 40, 120, 30, 2_000, 200
"""Of what is shown without being asked for the whole."""
MAX_FIELDS = 50
"""Arguments that get a field each; of more, one field holds them all."""
MAX_TELLING_CHARS = 120
TELLING = ("command", "code", "sql", "path", "url", "to", "query", "subject", "title", "name", "message", "text")
"""Arguments that say most about a call, the most telling first."""
LASTS = (("900", "15 minutes"), ("3600", "1 hour"), ("28800", "8 hours"), ("86400", "1 day"), ("604800", "7 days"))


def plainly(text: str) -> Markup:
    """A text with what cannot be seen, and letters that can be taken for others, written out."""
    if text.isascii():
        return visible(text, len(text))
    seen, shown, at = marked(text), Markup(""), 0
    begin = 0
    for number, char in enumerate(text):
        written = char.encode("unicode_escape").decode() if not char.isascii() else char
        if seen.startswith(char, at):
            at += len(char)
            continue
        at += len(written)
        shown += visible(text[begin:number], number - begin)
        shown += Markup('<span class="hidden-char" title="can be taken for another letter">{} U+{:04X}</span>').format(
            char, ord(char)
        )
        begin = number + 1
    return shown + visible(text[begin:], len(text) - begin)


def telling(arguments: Mapping[str, Any]) -> Markup:
    """The most telling argument of a call, on one line."""
    texts = {name: value for name, value in arguments.items() if isinstance(value, str) and value}
    name = next((name for name in TELLING if name in texts), None) or next(iter(texts), None) or next(iter(arguments), None)
    if name is None:
        return Markup('<span class="faint">no arguments</span>')
    line = " ".join(_text(arguments[name]).split("\n"))[:MAX_TELLING_CHARS]
    return plainly(line) if name in TELLING[:6] else plainly(f"{name[:40]}: {line}")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An argument as it is shown."""

    name: Markup
    value: Markup
    is_block: bool
    """True: it has several lines, or is no plain text."""
    more_lines: int = 0
    more_chars: int = 0
    is_masked: bool = False
    in_diff: bool = False
    """True: the differences show it, so it is folded."""
    lines: int = 1


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The differences in one file as they are shown."""

    path: Markup
    change: FileChange
    lines: list[tuple[str, str, Markup]]
    """Of each line its class, its sign and its words."""
    more: int
    """Lines that are not shown."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits, as it is shown."""

    rows: list[Row]
    more_rows: int
    differences: list[Difference]
    is_whole: bool
    is_cut: bool
    """True: not all that will run is shown."""


def asked_of(approval: ApprovalDetail, *, whole: bool) -> Asked:
    differences = [_difference(one, whole=whole) for one in approval.changes]
    covered = {"content"} if differences and all(one.lines and not one.more for one in differences) else set()
    given = list(approval.arguments.items())
    rows = [_row(name, value, whole=whole, in_diff=name in covered) for name, value in given[: None if whole else MAX_ROWS]]
    more = len(given) - len(rows)
    cut = bool(more) or any(row.more_chars for row in rows) or any(one.more > one.change.cut for one in differences)
    return Asked(rows=rows, more_rows=more, differences=differences, is_whole=whole, is_cut=cut)


def _row(name: str, value: Any, *, whole: bool, in_diff: bool) -> Row:
    text, label = _text(value), name
    lines = text.split("\n")
    kept = text
    if not whole and not in_diff:
        kept = "\n".join(lines[:MAX_VALUE_LINES])[:MAX_VALUE_CHARS]
        label = name[:MAX_NAME_CHARS]
    return Row(
        name=plainly(label),
        value=plainly(kept),
        is_block=len(lines) > 1 or not isinstance(value, str | int | float | bool | None),
        more_lines=len(lines) - kept.count("\n") - 1,
        more_chars=len(text) - len(kept) + len(name) - len(label),
        is_masked=MASK in text,
        in_diff=in_diff,
        lines=len(lines),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


CLASSES = {"+": "add", "-": "del", "@": "same", "\\": "same"}


def _difference(change: FileChange, *, whole: bool) -> Difference:
    most = len(change.lines) if whole else MAX_DIFF_LINES
    limit = None if whole else MAX_VALUE_CHARS
    long = any(len(line) > MAX_VALUE_CHARS for line in change.lines) and not whole
    lines = [(CLASSES.get(line[0], ""), line[0], plainly(line[1:][:limit])) for line in change.lines[:most]]
    more = change.cut + len(change.lines) - len(lines) + long
    return Difference(path=plainly(change.path), change=change, lines=lines, more=more)


# -- forms


class Field(msgspec.Struct, frozen=True):
    """A field for one argument."""

    key: str
    name: str
    is_json: bool
    value: str


def fields_of(arguments: Mapping[str, Any]) -> list[Field]:
    """A field for each argument; for very many, one for all. A text with what cannot be seen is edited as JSON, where that
    is written out."""
    if len(arguments) > MAX_FIELDS:
        return [Field("all", "All arguments", True, _json(arguments))]
    return [
        Field(f"arg-{number}", name, not _is_plain(value), value if _is_plain(value) else _json(value))
        for number, (name, value) in enumerate(arguments.items())
    ]


def first_field(arguments: Mapping[str, Any]) -> str:
    """The key of the first field for arguments."""
    return "all" if len(arguments) > MAX_FIELDS else "arg-0" if arguments else "more"


def _is_plain(value: Any) -> bool:
    return isinstance(value, str) and '"hidden-char"' not in str(plainly(value))


def _json(value: Any) -> str:
    return json.dumps(value, indent=2)


def edited_arguments(arguments: Mapping[str, Any], form: Mapping[str, list[str]]) -> tuple[dict[str, Any], dict[str, str]]:
    """The arguments as a form has them, and what is wrong with them, by field. What was not touched stays what it was."""
    found: dict[str, Any] = {}
    faults: dict[str, str] = {}
    for field in fields_of(arguments):
        text = form.get(field.key, [""])[-1].replace("\r\n", "\n")
        if f"leave-{field.key}" in form:
            continue
        if text == field.value.replace("\r\n", "\n"):
            value = dict(arguments) if field.key == "all" else arguments[field.name]
        else:
            value = _parsed(text, field, faults)
        if field.key == "all":
            found = value if isinstance(value, dict) else {}
            if not isinstance(value, dict):
                faults.setdefault("all", "It must be a JSON object.")
        else:
            found[field.name] = value
    if more := form.get("more", [""])[-1].strip():
        value = _parsed(more, Field("more", "", True, ""), faults)
        if isinstance(value, dict):
            found |= value
        else:
            faults.setdefault("more", 'It must be a JSON object, such as {"name": "value"}.')
    return found, faults


def _parsed(text: str, field: Field, faults: dict[str, str]) -> Any:
    if not field.is_json:
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        faults[field.key] = f"This is not JSON: {error}. Text stands in double quotes."
        return None


def scopes_of(approval: ApprovalDetail) -> list[tuple[GrantScope, str]]:
    """Those for whom a grant can be, and their words: the narrowest first."""
    by = approval.asked_by
    words: dict[GrantScope, str | None] = {
        "session": f"this session ({approval.session})" if approval.session else None,
        "user": f"{by.user}" + (f" as {by.persona}" if by.persona else ""),
        "persona": f"everybody as {by.persona}" if by.persona else None,
        "tenant": f"everybody of {by.tenant}",
    }
    return [(scope, found) for scope in SCOPES if (found := words[scope]) is not None]
