"""/v1/sessions/{session}/words: what the user of a session typed, from a host that may speak for the user."""

from typing import Annotated

import msgspec

from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.problems import HttpProblem

resource = Resource("sessions")


class TypedText(ApiModel, frozen=True):
    """The words that the user typed."""

    text: Annotated[str, msgspec.Meta(min_length=1)]
    """One message, as it was typed; of a long one the first 100,000 characters are known."""


class KnownWords(ApiView, frozen=True):
    """The part of a message that is known from now on."""

    session: str
    tokens: int
    """The number of addresses, accounts, numbers and words in it."""
    is_whole: bool
    """False: it was too long, and only its beginning is known."""
    is_new: bool
    """False: there is nothing in it, or it is the message that came last, told again."""


@resource.post("/v1/sessions/{session}/words", permission="call")
async def say_words(request: ApiRequest, session: str, body: TypedText) -> KnownWords:
    """Tell what the user typed in one of the caller's sessions. It needs a key that was made to speak for the user.

    Whoever is asked to approve a call of the session is shown it. What a model says, or a document, is not to be told here.
    """
    if not request.credential.may_speak:
        raise HttpProblem(
            403,
            "This needs a key whose holder may speak for the user.",
            suggestion="An operator makes one: toolgate keys create NAME --may-speak-for-the-user.",
        )
    kept = await request.app.say(session, body.text, actor=request.actor, through="http")
    return KnownWords(session=session, tokens=kept.tokens, is_whole=kept.is_whole, is_new=kept.is_new)
