"""`toolgate say`: tells what the user typed, for hosts that run a command with each prompt."""

from typing import Annotated

import typer

from toolgate.cli.context import ActorOptions, Usage, argument, opened, text_option
from toolgate.cli.files import STDIN, content_of
from toolgate.cli.output import answered, note
from toolgate.errors import plural


async def say(
    ctx: typer.Context,
    whose: ActorOptions,
    session: Annotated[
        str | None, text_option("--session S", "The session; without it, the user's calls that name none.")
    ] = None,
    text: Annotated[str, argument("[TEXT]", "What was typed; without it, or for -, standard input.")] = STDIN,
) -> int:
    """Tell what the user typed in a session.

    For a host that runs a command with each prompt. Never what a model or a tool says. Whoever is asked to approve a call of
    the session is shown it.
    """
    typed = content_of(STDIN, "Standard input").decode(errors="replace") if text == STDIN else text
    if not typed.strip():
        raise Usage("Nothing was typed.", suggestion="Give TEXT, or write it to standard input.")
    async with opened(ctx) as app:
        kept = await app.say(session, typed, actor=whose.actor, through="cli")
    if answered({"session": session, **kept._asdict()}):
        return 0
    # On stderr: what a prompt hook prints on stdout, some hosts give to their model.
    where = "calls that name no session" if session is None else f"session {session}"
    if kept.is_new:
        cut = "" if kept.is_whole else ". It is too long: only its beginning is known"
        note(("✓ Known", "green"), f" {plural(kept.tokens, 'word')} of the user in {where}{cut}")
    else:
        note("It is known already: it is the message that came last." if kept.tokens else "It holds no words.")
    return 0
