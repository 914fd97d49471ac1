"""The differences that a call of the built-in file tools would make: its file as it is now, against what it would be.

For an approver. Only the folder that was named in the question is read, by the rules that `read_file` reads it by; what
looks like a secret in the present file is masked.
"""

import os
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from toolgate.errors import CallError
from toolgate.gates.approval.request import ApprovalRequest
from toolgate.model import MASK, Call
from toolgate.screening.safe_open import name_of
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

FILE_TOOLS = "toolgate.tools.files"
MAX_FILE_BYTES = 1_000_000
MAX_LINES, MAX_LINES_CHARS = 2_000, 200_000
"""Of the differences of one file; how many lines were left out is told."""
MAX_COMPARED = 250_000
"""Lines of the one times lines of the other that are compared; of more, all old ones are replaced by all new ones."""
CONTEXT = 3
NO_NEWLINE = "\\ no line end at the end of the file"
NO_NEWLINES = {" ": NO_NEWLINE, "-": f"{NO_NEWLINE} as it is now", "+": f"{NO_NEWLINE} as it would be"}


class FileDifference(msgspec.Struct, frozen=True):
    """The differences in one file."""

    path: str
    lines: list[str]
    """Each begins with `+` (new), `-` (goes), a space (stays), `@` (so many lines stay and are not shown) or a backslash."""
    added: int = 0
    removed: int = 0
    cut: int = 0
    """The number of lines that are left out here, because there are too many."""
    is_new: bool = False
    note: str | None = None
    """Something that the lines do not say: why there are none, for one."""


class _Change(NamedTuple):
    """A change that arguments ask for."""

    path: str
    content: str | None = None
    pattern: str = ""
    replacement: str = ""
    every: bool = False

    @property
    def is_edit(self) -> bool:
        return bool(self.pattern)


async def differences(parts: "Parts", asked: ApprovalRequest) -> list[FileDifference]:
    """The differences that a call would make now; none where it is no call of a built-in file tool, or where its folder is
    not the one that the question names."""
    change = _change(parts, asked)
    if change is None:
        return []
    where = asked.workspace if asked.workspace.endswith(os.sep) else None
    call = Call("", asked.tool, None, asked.actor, asked.session, door=asked.door, workspace=where)
    if parts.checks.workspace(call) != asked.workspace:
        return [FileDifference(change.path, [], note="The folder of the call cannot be looked at here.")]
    try:
        data = await to_thread(_present, parts, call, change.path)
        before = None if data is None else data.decode()
        after = _after(change, before)
    except UnicodeDecodeError:
        return [FileDifference(change.path, [], note="The file that is there is no text.")]
    except (CallError, OSError) as error:
        words = error.message if isinstance(error, CallError) else (error.strerror or "it cannot be opened")
        return [FileDifference(change.path, [], note=f"The file that is there is not shown: {words.rstrip('.')}.")]
    if after is None:
        return [FileDifference(change.path, [], note="The call would fail: the text to replace is not there just once.")]
    for text in (before or "", after):
        if not parts.redactor.ready:
            await parts.redactor.prepare(text)
    shown = await to_thread(_masked, parts, before or "")
    # What is written comes from the arguments, which an approver sees; an edited line is partly that of the file.
    new = await to_thread(_masked, parts, after) if change.is_edit else _lines(after)
    return [await to_thread(_difference, change.path, before, after, shown, new)]


def _change(parts: "Parts", asked: ApprovalRequest) -> _Change | None:
    try:
        function = getattr(parts.catalog.resolve(asked.tool, asked.actor.tenant).implementation, "function", None)
    except CallError:
        return None
    given: dict[str, Any] = asked.arguments
    operation = given.get("operation", "write")
    path = given.get("path")
    if getattr(function, "__module__", "") != FILE_TOOLS or not isinstance(path, str):
        return None
    text = {name: given.get(name) for name in ("content", "pattern", "replacement")}
    content, pattern, replacement = (value if isinstance(value, str) else None for value in text.values())
    if operation == "write" and content is not None:
        return _Change(path, content)
    if operation == "edit" and pattern and replacement is not None:
        return _Change(path, None, pattern, replacement, given.get("replaceAll") is True)
    return _Change(path, "") if operation == "delete" else None


def _present(parts: "Parts", call: Call, path: str) -> bytes | None:
    """The bytes of the file that is there; None: there is none. Reads by the rules of the tools, and makes no folder."""
    places = parts.places
    if not Path(os.path.realpath(places.known(call) or Path.cwd())).is_dir():
        return None
    folder = places.of(call)
    try:
        with places.rules.open_read(path, folder, folder) as file:
            name = name_of(file.fileno())
            if name is None or places.is_foreign(folder, name):
                raise PermissionError(0, "it is Toolgate's own data")
            data = file.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(data) > MAX_FILE_BYTES:
        raise OSError(0, f"it has more than {MAX_FILE_BYTES:,} bytes")
    return data


def _after(change: _Change, before: str | None) -> str | None:
    """The text of the file afterwards; None: the call would fail."""
    if not change.is_edit:
        return change.content
    count = (before or "").count(change.pattern)
    return (before or "").replace(change.pattern, change.replacement) if count == 1 or (count and change.every) else None


def _lines(text: str) -> list[str]:
    """The lines of a text: only a line feed ends one, so that what else a program takes for a line end is seen."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _masked(parts: "Parts", text: str) -> list[str]:
    """The lines of a text with secrets masked: all of them, where a secret goes over several."""
    lines, masked = _lines(text), _lines(parts.redactor.text(text))
    return masked if len(masked) == len(lines) else [MASK] * len(lines)


def _difference(path: str, before: str | None, after: str, shown: list[str], new: list[str]) -> FileDifference:
    old = _ended(before or "")
    found = list(_shown(old, _ended(after), [*shown, NO_NEWLINE], [*new, NO_NEWLINE]))
    kept, size = 0, 0
    while kept < min(len(found), MAX_LINES) and (size := size + len(found[kept])) <= MAX_LINES_CHARS:
        kept += 1
    note = None if any(line[0] in "+-\\" for line in found) else "The file would stay as it is."
    return FileDifference(
        path,
        found[:kept],
        added=sum(line[0] == "+" for line in found),
        removed=sum(line[0] == "-" for line in found),
        cut=len(found) - kept,
        is_new=before is None,
        note="A new file, and an empty one." if before is None and not found else note,
    )


def _ended(text: str) -> list[str]:
    """The lines to be compared; a last one without an end is followed by the sign of that."""
    return [*_lines(text), NO_NEWLINE] if text and not text.endswith("\n") else _lines(text)


def _shown(old: list[str], new: list[str], old_words: list[str], new_words: list[str]) -> Iterator[str]:
    """The lines as they are shown, three that stay around those that change."""
    codes = _compared(old, new)
    for number, (tag, a, b, c, d) in enumerate(codes):
        if tag != "equal":
            yield from (_line("-", old_words[at], old[at]) for at in range(a, b))
            yield from (_line("+", new_words[at], new[at]) for at in range(c, d))
            continue
        head = 0 if number == 0 else CONTEXT
        tail = 0 if number == len(codes) - 1 else CONTEXT
        if b - a <= head + tail + 1:
            yield from (_line(" ", old_words[at], old[at]) for at in range(a, b))
            continue
        yield from (_line(" ", old_words[at], old[at]) for at in range(a, a + head))
        yield f"@{b - a - head - tail:,} lines stay"
        yield from (_line(" ", old_words[at], old[at]) for at in range(b - tail, b))


def _line(sign: str, words: str, line: str) -> str:
    return NO_NEWLINES[sign] if line is NO_NEWLINE else sign + words


def _compared(old: list[str], new: list[str]) -> list[tuple[str, int, int, int, int]]:
    least = min(len(old), len(new))
    start = next((at for at in range(least) if old[at] != new[at]), least)
    end = next((at for at in range(least - start) if old[-1 - at] != new[-1 - at]), least - start)
    one, other = old[start : len(old) - end], new[start : len(new) - end]
    codes: list[tuple[str, int, int, int, int]] = [("equal", 0, start, 0, start)] if start else []
    if len(one) * len(other) <= MAX_COMPARED:
        found = SequenceMatcher(None, one, other).get_opcodes()
        codes += [(tag, a + start, b + start, c + start, d + start) for tag, a, b, c, d in found]
    else:
        codes.append(("replace", start, len(old) - end, start, len(new) - end))
    return [*codes, ("equal", len(old) - end, len(old), len(new) - end, len(new))] if end else codes
