"""Settings of notifications: the channels to which they are sent, and the push tokens that users may add."""

from typing import Literal

from pydantic import Field

from toolgate.settings.network import PrivateHosts
from toolgate.settings.section import Section

PushKind = Literal[
    "bark", "barks", "discord", "form", "forms", "gchat", "gotify", "gotifys", "json", "jsons", "line", "mmost", "mmosts",
    "ntfy", "ntfys", "onesignal", "pbul", "pover", "prowl", "pushy", "rocket", "rockets", "slack", "tgram", "threema", "xml",
    "xmls", "zulip",
]  # fmt: skip
"""Schemes of apprise whose services are asked by HTTP and by nothing else. Others run programs, read files or open
connections that nothing here could judge, so no setting allows them to users."""


class ChannelSettings(Section):
    """A service that takes notifications, and whose."""

    url: str = Field(min_length=1)
    """An apprise URL: `ntfys://ntfy.example.com/ops`. It may refer to secrets, or be one: `{{secret:NAME}}`."""
    tenant: str = Field(min_length=1)
    """The tenant whose users it is for; `*` for all."""
    user: str | None = None
    """The user that it is for; None: every user of the tenant."""


class PushSettings(Section):
    """Push tokens: services that users add for themselves."""

    kinds: tuple[PushKind, ...] = ()
    """The kinds of services, by the scheme of their apprise URLs: `[ntfys, pover]`. None: users can add no tokens."""
    allow: PrivateHosts = ()
    """Hosts that they may lead to although their address is private, each with its port: `ntfy.example.com:8443`. Those of
    `network.allow` are for tools, which a policy governs, and not for tokens."""
    tokens: int = Field(default=10, ge=1, le=100)
    """How many a user may have."""


class NotifySettings(Section):
    """Where notifications go besides Toolgate's own list."""

    channels: dict[str, ChannelSettings] = Field(default_factory=dict)
    """The channels, by name."""
    push: PushSettings = PushSettings()
    seconds: float = Field(default=15, gt=0, le=300)
    """How long a channel or a push token may take for a notification."""
