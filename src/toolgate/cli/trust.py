"""`toolgate trust`: which files of a folder Toolgate may obey."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from toolgate.cli.context import GlobalOptions, NotFound, Usage, argument, global_options, option
from toolgate.cli.output import Part, answer, answered, as_json, note, say
from toolgate.cli.table import STATE_STYLES, listing
from toolgate.discovery import discover
from toolgate.project import Project, TrustChange
from toolgate.settings import load_settings
from toolgate.trust import TRUST_VARIABLE, TrustRecords

HANG = len("  changed  ")
"""The indent of a folded line: below the name of its file."""


def trust(
    ctx: typer.Context,
    path: Annotated[Path | None, argument("PATH", "The folder; without it, this project's.")] = None,
    remove: Annotated[bool, option("--remove", "Trust it no longer.")] = False,
    list_all: Annotated[bool, option("--list", "List the folders that are trusted.")] = False,
) -> int:
    """Show which files Toolgate would use, and trust them. Those are settings, policy and tools of a folder, as they are
    now."""
    if remove and list_all:
        raise Usage("--remove and --list cannot be used together.")
    if list_all:
        return _list()
    folder = discover().folder if path is None else Path(os.path.realpath(path))
    if remove:
        return _remove(folder)
    project = _project(global_options(ctx)) if path is None else _project_at(folder, global_options(ctx))
    changes = project.changes()
    project.agree(changes)
    if answered(
        {"folder": str(folder), "record": str(project.records.path), "files": [_plain(change) for change in changes]}
    ):
        return 0
    for change in changes:
        say(*_line(change), hang=HANG)
    if changes:
        say(("✓ Trusted", "green"), f": {folder}, until one of these changes")
    else:
        say(f"{folder} has no settings, policy or tools that Toolgate would use. Once it has, run `toolgate trust` again.")
    if project.is_named:
        note((f"{TRUST_VARIABLE} names this folder, so it is trusted without a record.", "dim"))
    return 0


async def ask(place: GlobalOptions) -> bool:
    """Asks the person at the terminal, if there is one, whether to trust what is there. Only a clear yes is one."""
    from toolgate.cli.prompt import agrees, at_a_terminal

    if not at_a_terminal() or as_json():
        return False
    project = _project(place)
    note(f"Toolgate would use these files in {project.folder}, and you have not trusted them as they are now:")
    changes = project.changes()
    for change in changes:
        note(*_line(change), hang=HANG)
    if agreed := await agrees("Trust them?"):
        project.agree(changes)
    return agreed


def _project_at(folder: Path, place: GlobalOptions) -> Project:
    """The project in a folder that a person named: nobody is to agree to more than that, such as to one above it."""
    if not folder.is_dir():
        raise NotFound(f"There is no folder {folder}.")
    os.chdir(folder)
    project = _project(place)
    if project.folder != folder:
        raise NotFound(
            f"{folder} has nothing that Toolgate would obey: commands there use the project {project.folder}.",
            suggestion=f"`toolgate trust {project.folder}` trusts that.",
        )
    return project


def _project(place: GlobalOptions) -> Project:
    return Project(load_settings(place.settings, place.overrides, untrusted=True))


def _list() -> int:
    records = TrustRecords(os.environ).all()
    listing(
        [{"folder": folder, "at": agreed.at, "files": sorted(agreed.files)} for folder, agreed in records.items()],
        ["folder", ">files", ""],
        [
            [folder, str(len(agreed.files)), "" if Path(folder).is_dir() else "the folder no longer exists"]
            for folder, agreed in records.items()
        ],
        none="No folder is trusted. `toolgate trust` trusts the files of the folder you are in.",
    )
    if not as_json() and os.environ.get(TRUST_VARIABLE):
        note((f"Also trusted, by {TRUST_VARIABLE}: {os.environ[TRUST_VARIABLE]}", "dim"))
    return 0


def _remove(folder: Path) -> int:
    if not TrustRecords(os.environ).forget(folder):
        raise NotFound(f"{folder} is not trusted.", suggestion="`toolgate trust --list` shows which folders are.")
    told = {"folder": str(folder), "removed": True}
    return answer(told, ("✓ Removed", "green"), f": {folder} is no longer trusted")


def _line(change: TrustChange) -> list[Part]:
    line: list[Part] = [(f"  {change.state:<8} ", STATE_STYLES[change.state]), change.found.name]
    if change.found.what:
        line.append((f"  {change.found.what}", "dim"))
    if change.found.caution:
        line.append((f"  ({change.found.caution})", "yellow"))
    return line


def _plain(change: TrustChange) -> dict[str, Any]:
    found = change.found
    return {"name": found.name, "state": change.state, "what": found.what, "caution": found.caution or None}
