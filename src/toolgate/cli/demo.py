"""`toolgate demo`: the demo content of `toolgate serve --demo`, which is made here and removed again."""

import asyncio
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from toolgate.cli.context import CommandGroup, GlobalOptions, Usage, diverted, global_options
from toolgate.cli.output import Part, answer, note
from toolgate.demo import LEAD, DemoFolder, fill
from toolgate.model import Actor
from toolgate.settings import VARIABLE_PREFIX

DEBUG = "TOOLGATE_DEBUG"

group = CommandGroup(help="Remove the demo content of `toolgate serve --demo`.", no_args_is_help=True)


@group.callback()
def demo() -> None:
    """The commands of the group."""


@group.command()
def remove(ctx: typer.Context) -> int:
    """Remove the folder of the demo content with all that is in it."""
    folder = _folder(ctx)
    removed = folder.remove()
    said: list[Part] = [("✓ Removed", "green"), " the demo content"] if removed else ["There is no demo content"]
    return answer({"removed": removed, "folder": str(folder.path)}, *said, f" in {folder.path}")


@contextmanager
def demo_content(ctx: typer.Context) -> Iterator[Actor]:
    """Has what follows work on the demo content alone, which is made first if it is not there. Variables with settings and
    secrets are left out: they belong to another installation. Gives the person of the demo whose place one takes."""
    folder = _folder(ctx)
    with folder.in_use() as is_new:
        for name in [name for name in os.environ if name.startswith(VARIABLE_PREFIX) and name != DEBUG]:
            del os.environ[name]
        os.chdir(folder.workspace)  # tools that work where the server was started stay in the demo, too
        if is_new:
            note(("Making demo content in ", "dim"), f"{folder.path} …")
            with diverted():
                asyncio.run(fill(folder))
        ctx.obj = GlobalOptions(folder.settings_file)
        note(("Demo content: ", "green"), f"{folder.path}. Remove it, once the server has stopped: {_removal(folder)}")
        note(("Another sign-in link: ", "dim"), f"toolgate --settings {shlex.quote(str(folder.settings_file))} sign-in")
        yield LEAD


def _folder(ctx: typer.Context) -> DemoFolder:
    place = global_options(ctx)
    if place.settings is not None:
        raise Usage("Demo content has settings of its own.", suggestion="Leave --settings away.")
    return DemoFolder(place.home)


def _removal(folder: DemoFolder) -> str:
    where = "" if folder.path == DemoFolder().path else f" --home {shlex.quote(str(folder.path))}"
    return f"toolgate{where} demo remove"
