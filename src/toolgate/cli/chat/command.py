"""The command line of `toolgate chat`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from toolgate.agent.run import RunResult
from toolgate.app.app import App
from toolgate.cli.chat.conversation import Conversation
from toolgate.cli.chat.line_input import line_input
from toolgate.cli.chat.screen import Screen
from toolgate.cli.chat.slash_commands import SlashCommands
from toolgate.cli.context import (
    CallerOptions,
    Session,
    Usage,
    WorkspaceFolder,
    argument,
    check_workspace,
    opened,
    option,
    sharing,
)
from toolgate.cli.output import answered, as_json, complain, note
from toolgate.cli.prompt import Prompt, at_a_terminal
from toolgate.errors import ToolgateError
from toolgate.model import new_id

EXIT = {"done": 0, "waiting": 3}
"""By the status of the run; every other is 1."""
LATEST = "latest"


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """The options of a chat besides its actor."""

    session: Session = None
    workspace: WorkspaceFolder = None
    resume: Annotated[
        str | None, option("--resume ID", f"Go on with this conversation; `{LATEST}` is the last one of this user.")
    ] = None


async def chat(
    ctx: typer.Context,
    whose: CallerOptions,
    options: ChatOptions,
    text: Annotated[list[str] | None, argument("TEXT", "Say this, show the answer, and end.")] = None,
) -> int:
    """Talk with an agent that uses your tools. `/help` lists the commands; calls that need a yes ask for it in place.

    Without a model, `/tools` and the other commands work all the same: docs/howto/use-a-model.md says how to set one.
    """
    check_workspace(options.workspace)
    words = " ".join(text or ())
    if as_json() and not words:
        raise Usage("--json needs the text to say: toolgate chat --json TEXT.")
    async with opened(ctx, serving=False) as app:
        with sharing(app):
            screen = Screen()
            talk = Conversation(app, screen, whose.actor, session=options.session or f"chat-{new_id()[-8:]}",
                workspace=options.workspace or (None if options.session else Path.cwd()))  # fmt: skip
            if at_a_terminal():
                app.approvals.add_approver(Prompt(app.approvals.canonical, screen.question))
            if options.resume is not None:
                await talk.take_up(None if options.resume == LATEST else options.resume)
            return await (_once(talk, words) if words else _talk(ctx, app, talk))


async def _once(talk: Conversation, text: str) -> int:
    """Says one thing."""
    result = await talk.say(text)
    if not answered(_plain(result)):
        talk.show_end(result, once=True)
    return EXIT.get(result.status, 1)


def _plain(result: RunResult) -> dict[str, Any]:
    return {name: getattr(result, name) for name in result.__struct_fields__}


async def _talk(ctx: typer.Context, app: App, talk: Conversation) -> int:
    """Reads what is typed until the end of input."""
    commands = SlashCommands(ctx, app, talk)
    lines = line_input(app.settings.home, commands, talk)
    if sys.stdin.isatty():
        talk.greet()
    if talk.run is not None:
        talk.show_state()
    while (typed := await lines.read()) is not None:
        said = typed.strip()
        if not said:
            continue
        try:
            if not said.startswith("/"):
                talk.show_end(await talk.say(said))
            elif not await commands.run(said):
                break
        except ToolgateError as error:
            complain(error.message, error.suggestion)
    if sys.stdin.isatty():
        talk.bid_farewell()
    else:
        note()
    return 0
