"""/v1/notifications: messages of agents to users."""

from typing import Any

from toolgate.conversation.notifications import Notification
from toolgate.serve.http.endpoint import ApiRequest, ApiView, Resource
from toolgate.serve.http.pages import Page, PageQuery, page_of, position_of
from toolgate.serve.problems import HttpProblem

resource = Resource("notifications")


class NotificationsQuery(PageQuery, frozen=True):
    """Filters of the list."""

    all_users: bool = False
    """True: those of all users of the tenant, which needs the permission read."""


class NotificationView(ApiView, frozen=True):
    """A message to a user."""

    id: str
    tenant: str
    user: str
    persona: str | None
    """Of the agent that sent it."""
    title: str | None
    message: str
    data: dict[str, Any] | None
    """For a program that shows it."""
    delivered: list[str]
    """The channels and push tokens that took it."""
    failed: list[str]
    """Those that did not."""
    call_id: str
    created_at: str


def view_of(one: Notification) -> NotificationView:
    return NotificationView(**one._asdict())


@resource.get("/v1/notifications", permission="own")
async def list_notifications(request: ApiRequest, query: NotificationsQuery) -> Page[NotificationView]:
    """List the notifications of the caller's user, latest first."""
    if query.all_users:
        request.require("read")
    position = position_of(request, query)
    found = await request.app.notifications.list(
        actor=request.actor, all_users=query.all_users, limit=query.limit + 1,
        before=None if position is None else position[0],
    )  # fmt: skip
    return page_of(request, query, [view_of(one) for one in found[::-1]], lambda one: (one.id,))


@resource.delete("/v1/notifications/{id}", permission="call")
async def dismiss_notification(request: ApiRequest, id: str) -> None:
    """Dismiss a notification of the caller's own user."""
    if not await request.app.notifications.dismiss(id, actor=request.actor):
        raise HttpProblem(404, "There is no such notification.", suggestion="GET /v1/notifications lists them.")
