"""The user's own words, kept and recorded: one way for `app.say` and for what is said to an agent."""

from typing import TYPE_CHECKING

from toolgate.model import Actor

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts
    from toolgate.gates.flow.user_words import KeptWords


async def keep_words(parts: "Parts", actor: Actor, session: str | None, text: str, through: str) -> "KeptWords":
    """Keeps a message that a user typed, and records that there was one. Raises InvalidInput for what is no text."""
    kept = await parts.user_words.say(actor, session, text)
    if kept.is_new:
        details = {"session": session, "tokens": kept.tokens, "through": through}
        await parts.events.record("user.said", actor, "", details)
    return kept
