"""Arguments of a call in the editor of whoever is asked to approve it: `$VISUAL` or `$EDITOR`, as git and crontab have it.

What the editor is given is what the question shows, and nothing that it hides. The file is readable by its owner alone, in a
folder of its own that is removed afterwards, with whatever the editor left beside it.
"""

import asyncio
import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from toolgate.cli.arguments import read_object
from toolgate.cli.context import Usage
from toolgate.cli.files import text_of
from toolgate.cli.output import UNSAFE, note, pretty
from toolgate.errors import CallError
from toolgate.gates.approval.edits import unknowable
from toolgate.gates.approval.request import ApprovalRequest, visible
from toolgate.model import MASK

COLOURS = {"+": "green", "-": "red", "@": "cyan"}
Fits = Callable[[str, str, str, dict[str, Any]], bytes]
"""(tool, tenant, workspace, arguments): raises a CallError if the tool does not take them."""


def editor() -> list[str]:
    """The program that the environment names, and its options; none if it names none."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    with suppress(ValueError):
        return shlex.split(named)
    return []


async def edited(request: ApprovalRequest, arguments: dict[str, Any], fits: Fits) -> dict[str, Any] | None:
    """Gives what a person makes of arguments in their editor; None, with a word about it, if that could not run. The
    difference is shown."""
    try:
        changed = await _edit(arguments)
        if changed is None:
            note(("Nothing was changed.", "yellow"))
            return None
        must_fit(request, changed, fits)
    except (Usage, CallError) as error:
        note((f"{error.message} Nothing was changed.", "red"))
        return None
    except orjson.JSONEncodeError:
        note(("That is nested too deeply. Nothing was changed.", "red"))
        return None
    show_difference(arguments, changed)
    return changed


def show_difference(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Shows what a person changed, line by line."""
    for line in unified_diff(_lines(before), _lines(after), "asked", "edited", lineterm=""):
        note("  ", (visible(line), COLOURS.get(line[:1], "dim")))


def must_fit(request: ApprovalRequest, arguments: dict[str, Any], fits: Fits) -> None:
    """Refuse now what would be refused later, when nobody can be asked again. What holds a secret of Toolgate's is
    checked when it is complete."""
    if (where := unknowable(arguments, request.arguments)) is not None:
        raise Usage(f"{where}: {MASK} stands for nothing there: write the value, or name a secret: {{{{secret:NAME}}}}.")
    if request.complete or MASK not in orjson.dumps(arguments).decode():
        fits(request.tool, request.actor.tenant, request.workspace, arguments)


async def _edit(arguments: dict[str, Any]) -> dict[str, Any] | None:
    program = editor()
    if not program:
        raise Usage("No editor is named: set VISUAL or EDITOR.")
    with TemporaryDirectory(prefix="toolgate-") as folder:
        file = Path(folder, "arguments.json")
        before = _text(arguments)
        file.touch(0o600)
        file.write_text(before, encoding="utf-8")
        try:
            process = await asyncio.create_subprocess_exec(*program, str(file))
        except OSError as error:
            raise Usage(f"The editor {program[0]} cannot be started: {error.strerror or error}.") from None
        code = await _ended(process)
        if code:
            raise Usage(f"The editor ended with exit code {code}.")
        after = text_of(file, "The edited file")
    if after == before:
        return None
    changed = read_object(f" {after}", "The edited file")  # the space: what begins with @ or - names no other file
    return None if changed == arguments else changed


async def _ended(process: asyncio.subprocess.Process) -> int:
    try:
        return await process.wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.kill()
        raise


def _lines(arguments: dict[str, Any]) -> list[str]:
    return pretty(arguments).split("\n")


def _text(arguments: dict[str, Any]) -> str:
    """JSON in which what an editor or a terminal might obey, or hide, is written out."""
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", pretty(arguments)) + "\n"
