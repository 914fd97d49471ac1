"""`toolgate tools prompt`: what a model is told before it begins, whole."""

from typing import Annotated, Any

import typer

from toolgate.agent.prompt import Style
from toolgate.cli.context import ActorOptions, Usage, opened, option
from toolgate.cli.output import answered, note, say, show
from toolgate.extras import install_command
from toolgate.registry.export import Shape, is_exact


async def prompt(
    ctx: typer.Context,
    whose: ActorOptions,
    style: Annotated[
        Style, option("--style", "How it calls tools: as its API has it, or as JSON in its text.", show_default=True)
    ] = "native",
    shape: Annotated[Shape | None, option("--format", "Whose definitions, in style native; without it, openai.")] = None,
) -> int:
    """Show what a model is told, and of which tools. It is the system prompt for an actor, with what the actor may see."""
    if style == "json" and shape is not None:
        raise Usage("--format is for --style native: with --style json the definitions are in the text.")
    async with opened(ctx) as app:
        made = await app.tools.prompt(whose.actor, style=style)
        definitions: list[dict[str, Any]] = []
        if style == "native":
            definitions = await app.tools.export(shape or "openai", whose.actor)
    told = {"style": style, "text": made.text, "definitions": definitions, "tokens": made.tokens, "tokens_exact": is_exact()}
    if answered(told):
        return 0
    say(made.text, lines=True)
    if style == "native":
        say("\nTools:", lines=True)
        show(definitions)
    say(f"\nTotal: {made.tokens} tokens", lines=True)
    if not is_exact():
        note((f"Estimated from length. To count them: {install_command('tokens')}", "dim"))
    return 0
