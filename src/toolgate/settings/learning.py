"""Settings of learning from past calls."""

from pydantic import Field

from toolgate.settings.qstash import SecretName
from toolgate.settings.section import Section
from toolgate.settings.services import ServiceUrl


class LearningSettings(Section):
    """Learning from the outcomes of calls and from users' feedback."""

    order_search: bool = True
    """If true, past outcomes order the tools that a search finds."""
    keep_days: int = Field(default=90, ge=1, le=3_650)
    """Days after which feedback, past tasks and notes are deleted."""
    feedback_per_hour: int = Field(default=60, ge=1, le=10_000)
    """Feedback that one user may give in an hour."""
    notes_per_hour: int = Field(default=60, ge=1, le=10_000)
    """Tasks and notes that are kept of one user in an hour."""
    url: ServiceUrl | None = None
    """The address of a SomaBrain-compatible service, to which outcomes of calls, feedback, notes and queries are sent too.
    None: nothing leaves the machine."""
    token: SecretName = "LEARNING_TOKEN"
    """The name of the secret, among those of servers, that is sent to `url`; without such a secret, none is."""
    send_calls: bool = True
    """If true, the outcome of each call is sent to `url`, and not only users' feedback."""
