"""`toolgate tools add` and `new`: custom tools as files. They are put in place whole, or not at all."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import typer

from toolgate.app.app import App
from toolgate.cli.context import NotFound, Usage, entry_named, opened
from toolgate.cli.output import Unwritable, emit, note, say
from toolgate.cli.tools.templates import template
from toolgate.errors import CallError, DefinitionError, Fault, SettingsError, plural
from toolgate.model import LOCAL, TOOL_NAME, Runtime
from toolgate.sandbox.custom.file import ToolFile, ToolFileError, parse_tool_file, read_tool_file
from toolgate.sandbox.custom.folder import CustomFolder
from toolgate.sandbox.custom.reload import compiled


class AddedTool(NamedTuple):
    """A tool that was put in place."""

    tool: ToolFile
    file: Path
    replaced: bool
    loads: bool
    """Whether custom tools are loaded by themselves here."""
    unchecked: str | None
    """Why its code could not be compiled beforehand."""


async def add_tool(ctx: typer.Context, from_file: Path, *, force: bool, as_json: bool) -> int:
    """`tools add`."""
    content = _given(from_file)

    async with opened(ctx) as app:
        added = await _add(app, content, from_file, force=force, instead="Replace it with --force.")
    if as_json:
        emit(_plain(added))
    else:
        _say_added(added)
    return 0


async def new_tool(ctx: typer.Context, name: str, runtime: Runtime, *, as_json: bool) -> int:
    """`tools new`."""
    if not TOOL_NAME.match(name):
        raise Usage(
            f"{name!r:.80} is no name of a tool.",
            suggestion="A name is a letter, then letters, digits, _ and -, at most 64 characters in all.",
        )
    content = template(name, runtime)

    async with opened(ctx) as app:
        added = await _add(app, content, _folder(app) / f"{name}.yml", instead="Edit it, or give the new one another name.")
    if as_json:
        emit(_plain(added))
        return 0
    say(("✓ New tool", "green"), f": {name} ({runtime}) in {added.file}")
    _note_troubles(added)
    _note_next_steps(added)
    return 0


# -- putting it in place


def _given(file: Path) -> bytes:
    if not file.exists():
        raise NotFound(f"There is no file {file}.")
    return read_tool_file(file)


async def _add(app: App, content: bytes, file: Path, *, instead: str, force: bool = False) -> AddedTool:
    """Check everything, then write. `instead`: what to do if there is such a tool already."""
    settings = app.settings
    if settings.enforcement.disable_local_tools:
        raise SettingsError(
            "Adding tools is disabled by the setting enforcement.disable_local_tools.",
            suggestion="Ask the operator of this installation.",
        )
    tool = parse_tool_file(content, file, app.parts.rules)
    name = tool.entry.name
    target, taken = _target(app, name)
    if taken and not force:
        raise DefinitionError(name, [Fault("name", f"{target} is there already")], suggestion=instead)
    unchecked = await _compile(app, tool)
    _write(target, content)
    app.parts.project.add(target, content)
    details = {"file": str(target), "fingerprint": tool.entry.fingerprint, "replaced": taken}
    await app.parts.events.record("tool.added", LOCAL, name, details)
    return AddedTool(tool, target, taken, settings.auto_load_custom_tools, unchecked)


def _folder(app: App) -> Path:
    return app.settings.home / "tools"


def _target(app: App, name: str) -> tuple[Path, bool]:
    """The file for a tool of this name, and whether a custom tool is in it; raises if another kind of tool has the name."""
    entry = entry_named(app, name, LOCAL)
    if entry is not None and entry.tool.source != "custom":
        fault = Fault("name", f"the name is taken by a tool of source {entry.tool.source}")
        raise DefinitionError(name, [fault], suggestion="Give it another name.")
    folder = CustomFolder(_folder(app), app.parts.rules, app.parts.project.refusal)
    folder.changes()
    file = folder.file_of(name) or _folder(app) / f"{name}.yml"
    return file, os.path.lexists(file)


async def _compile(app: App, tool: ToolFile) -> str | None:
    """Refuse code that does not compile; why that can't be told, if there is no sandbox."""
    try:
        problem = await compiled(tool, app.parts.sandbox)
    except CallError as error:
        return error.message
    if problem is not None:
        raise ToolFileError(problem)
    return None


def _write(target: Path, content: bytes) -> None:
    """Put a file in place, whole or not at all."""
    fresh = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(target)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink()
        raise Unwritable(target, error) from None


# -- words


def _plain(added: AddedTool) -> dict[str, Any]:
    entry, program = added.tool.entry, added.tool.program
    return {
        "tool": entry.name, "file": str(added.file), "replaced": added.replaced, "tier": entry.tier,
        "runtime": program.runtime, "asks": entry.asks, "examples": len(program.examples), "loads": added.loads,
        "unchecked": added.unchecked, "fingerprint": entry.fingerprint,
    }  # fmt: skip


def _say_added(added: AddedTool) -> None:
    entry, examples = added.tool.entry, added.tool.program.examples
    say(
        ("✓ Replaced tool" if added.replaced else "✓ Added tool", "green"),
        f": {entry.name} ({added.tool.program.runtime}, tier {entry.tier}) in {added.file}",
    )
    if entry.asks:
        note(f"A person is asked before it runs: {entry.asks}.")
    _note_troubles(added)
    if examples:
        note(f"Run its {plural(len(examples), 'example')}: toolgate tools test {entry.name}")


def _note_next_steps(added: AddedTool) -> None:
    """The next steps with a tool that was just written."""
    name = added.tool.entry.name
    steps = {
        f"toolgate tools test {name}": f"runs its {plural(len(added.tool.program.examples), 'example')}",
        f"toolgate call {name} name=Ada": "calls it",
        "toolgate trust": "accepts the file after you edited it",
    }
    width = max(map(len, steps))
    lines = [f"  {command:<{width}}  {does}" for command, does in steps.items()]
    note("\n".join(("It greets somebody. Change it into the tool that you need. Next:", *lines)), lines=True)


def _note_troubles(added: AddedTool) -> None:
    if added.unchecked:
        note((f"Its code could not be checked. {added.unchecked}", "yellow"))
    if not added.loads:
        note(("It is not loaded by itself: the setting auto_load_custom_tools is false.", "yellow"))
