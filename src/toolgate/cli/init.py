"""`toolgate init`: makes the working directory a project, with a settings file in which every setting is a comment."""

import errno
import os
from pathlib import Path
from typing import NamedTuple

import typer

from toolgate.cli.context import AsJson, Usage, place_of
from toolgate.cli.output import Unwritable, emit, note, say
from toolgate.cli.settings_template import TEMPLATE
from toolgate.discovery import FILE, discover
from toolgate.errors import SettingsError
from toolgate.project import Project
from toolgate.settings import Settings, load_settings
from toolgate.store.private import make_home
from toolgate.trust import working_directory

NEXT = (
    ("toolgate doctor", "checks that everything works"),
    ("toolgate call echo text=hello", "calls a tool"),
    ("toolgate tools new NAME", "writes a tool of your own"),
)


class Made(NamedTuple):
    """What was done, and what stands in the way."""

    folder: Path
    data: Path | None
    """The data folder, if it is ready."""
    trusted: bool
    untrusted: list[str]
    """What was there already and nobody has trusted."""
    before: Path | None
    """The project that commands here used until now."""


def init(ctx: typer.Context, as_json: AsJson = False) -> int:
    """Make this folder a project by writing toolgate.yaml. In it, the settings that people change first are comments."""
    place = place_of(ctx)
    if place.settings is not None or place.home is not None:
        raise Usage("`toolgate init` writes to the working directory: it takes neither --settings nor --home.")
    made = _make(working_directory())
    if as_json:
        data = None if made.data is None else str(made.data)
        emit({"folder": str(made.folder), "settings": str(made.folder / FILE), "data": data,
              "trusted": made.trusted, "untrusted": made.untrusted})  # fmt: skip
    else:
        _tell(made)
    return 0


def _make(folder: Path) -> Made:
    load_settings(os.devnull)  # a wrong variable is told before anything is written
    before = discover().folder
    _write(folder / FILE)
    settings = load_settings(untrusted=True)
    project = Project(settings)
    trusted = True
    try:
        project.add(folder / FILE, TEMPLATE.encode())
        # Only the file that this command wrote: what came with a clone is for the person to look at.
        changes = [] if project.is_named else project.changes()
        untrusted = [change.found.name for change in changes if change.state in ("new", "changed")]
    except SettingsError as error:
        note((str(error), "yellow"))
        trusted, untrusted = False, []
    data = _make_data(settings, project) if trusted and not untrusted else None
    return Made(folder, data, trusted, untrusted, None if before == folder else before)


def _write(file: Path) -> None:
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(TEMPLATE)
    except FileExistsError:
        there = FileExistsError(errno.EEXIST, "it is there already, and was left as it is")
        raise Unwritable(file, there) from None
    except OSError as error:
        raise Unwritable(file, error) from error


def _make_data(settings: Settings, project: Project) -> Path | None:
    """The data folder, as the first call would make it."""
    if settings.in_memory:
        return None
    make_home(settings.home)
    project.adopt()
    return settings.home.absolute()


def _tell(made: Made) -> None:
    say(("✓ ", "green"), f"{made.folder / FILE} is written. Every setting in it is a comment: the defaults hold.")
    if made.data is not None:
        say(("✓ ", "green"), f"{made.data} is ready for data. Git ignores it.")
    if made.trusted:
        say(("✓ ", "green"), f"{FILE} is trusted as it is now. After a change to it, run `toolgate trust`.")
    if made.untrusted:
        they, them = ("it was", "it") if len(made.untrusted) == 1 else ("they were", "them")
        say(("! ", "yellow"), f"Not trusted, because {they} here already: {', '.join(made.untrusted)}.")
        say(f"  Look at {them}, then run `toolgate trust`. Until then Toolgate does nothing here.")
    if made.before is not None:
        say(
            ("! ", "yellow"),
            f"Commands here used the project {made.before} until now, with its data. This is one of its own.",
        )
    if os.environ.get("TOOLGATE_SETTINGS"):
        say(("! ", "yellow"), f"TOOLGATE_SETTINGS names another settings file: {FILE} is not read while it is set.")
    if not made.untrusted:
        say("\nNext:", lines=True)
        for command, does in NEXT:
            say(f"  {command:<31}", (does, "dim"))
