"""Settings of the health checks that tools have."""

from pydantic import Field

from toolgate.settings.section import Section


class HealthSettings(Section):
    """The health checks of class-based tools, made on a schedule where an App stays open."""

    interval_seconds: float = Field(default=300, ge=0, le=86_400)
    """How often each tool that has a `health_check` is asked, a tenth more or less. 0: only `toolgate doctor` asks."""
    timeout_seconds: float = Field(default=5, gt=0, le=300)
    """The time that a tool has for its `health_check`, and to initialize if no call has had it do so."""
