"""/v1/push-tokens: the services at which users want their notifications. A token is a credential, and never given out."""

from typing import Annotated

import msgspec

from toolgate.conversation.push_tokens import PushToken
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.pages import Page
from toolgate.serve.problems import HttpProblem

resource = Resource("push tokens")


class PushTokenView(ApiView, frozen=True):
    """All that is shown of a push token."""

    id: str
    name: str
    kind: str
    """The scheme of its URL."""
    url: str
    """Without anything that is secret."""
    created_at: str
    delivered_at: str | None
    last_error: str | None
    """The reason why the last message was not taken; null: it was, or there was none."""


class NewPushToken(ApiModel, frozen=True):
    """A push token."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]
    """An apprise URL of a kind that the setting notify.push.kinds allows. It is kept encrypted."""
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None
    """Of which the user has one; without it, one is made up."""


def view_of(token: PushToken) -> PushTokenView:
    return PushTokenView(**token._asdict())


@resource.get("/v1/push-tokens", permission="own")
async def list_push_tokens(request: ApiRequest) -> Page[PushTokenView]:
    """List the push tokens of the caller's user, oldest first: all of them, since there are few."""
    return Page([view_of(one) for one in await request.app.push_tokens.list(actor=request.actor)])


@resource.post("/v1/push-tokens", permission="call", status=201)
async def add_push_token(request: ApiRequest, body: NewPushToken) -> PushTokenView:
    """Add a push token of the caller's own user."""
    return view_of(await request.app.push_tokens.add(body.url, body.name, actor=request.actor))


@resource.delete("/v1/push-tokens/{id}", permission="call")
async def remove_push_token(request: ApiRequest, id: str) -> None:
    """Remove a push token of the caller's own user, by its id or name."""
    if await request.app.push_tokens.remove(id, actor=request.actor) is None:
        raise HttpProblem(404, "There is no such push token.", suggestion="GET /v1/push-tokens lists them.")
