"""Settings of notifications: the channels to which they are sent."""

from pydantic import Field

from toolgate.settings.section import Section


class ChannelSettings(Section):
    """A service that takes notifications, and whose."""

    url: str = Field(min_length=1)
    """An apprise URL: `ntfys://ntfy.example.com/ops`. It may refer to secrets, or be one: `{{secret:NAME}}`."""
    tenant: str = Field(min_length=1)
    """The tenant whose users it is for; `*` for all."""
    user: str | None = None
    """The user that it is for; None: every user of the tenant."""


class NotifySettings(Section):
    """Where notifications go besides Toolgate's own list."""

    channels: dict[str, ChannelSettings] = Field(default_factory=dict)
    """The channels, by name."""
    seconds: float = Field(default=15, gt=0, le=300)
    """How long a channel may take for a notification."""
