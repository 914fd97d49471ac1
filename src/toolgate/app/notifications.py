"""Makes the parts of an App that tell users something."""

from typing import TYPE_CHECKING

from toolgate.conversation.channels import Channels
from toolgate.conversation.notifications import Notifications
from toolgate.conversation.push_sender import PushSender
from toolgate.conversation.push_tokens import PushTokens
from toolgate.network.http_client import HttpClient

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts


def make_push_tokens(parts: "Parts") -> PushTokens:
    """The push tokens of all users."""
    notify = parts.settings.notify
    http = HttpClient(notify.push.allow, parts.settings.network.ports, setting="notify.push.allow")
    sender = PushSender(http, notify.push.kinds, notify.seconds)
    return PushTokens(parts.store, sender, notify.push.tokens, parts.events.record)


def make_notifications(parts: "Parts") -> Notifications:
    """The notifications of all users, and the ways on which they go out."""
    notify, events = parts.settings.notify, parts.events
    channels = Channels(notify.channels, parts.server_secrets.find, notify.seconds)
    return Notifications(parts.store, channels, parts.push_tokens, parts.redactor, record=events.record, tell=events.tell)
