"""Settings of tools that are registered at run time."""

from pydantic import Field, field_validator

from toolgate.settings.network import PrivateHosts
from toolgate.settings.section import Section
from toolgate.settings.workflows import WEBHOOK_PATH


class RegistrationSettings(Section):
    """Limits on the tools that a tenant registers at run time."""

    tools: int = Field(default=100, ge=0, le=100_000)
    """Tools that one tenant may have registered."""
    per_hour: int = Field(default=30, ge=0, le=100_000)
    """Registrations of one tenant within an hour; one that replaces a tool counts, and so does one that is removed again."""
    definition_bytes: int = Field(default=200_000, ge=1_024, le=10_000_000)
    """The longest definition, its code included, as JSON."""
    allow: PrivateHosts = ()
    """Hosts that tools of tenants may reach although their address is private, each with its port. Those of `network.allow`
    are for the operator's own tools, and not for what a tenant registers."""
    workflows: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """By tenant, the webhooks of the n8n server that it may register as tools: `{acme: [reports/weekly]}`. They are called
    with the secret of `n8n.webhook_secret`, so none is open to a tenant that is not named here."""

    @field_validator("workflows")
    @classmethod
    def _are_paths(cls, workflows: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for paths in workflows.values():
            for path in paths:
                if not WEBHOOK_PATH.match(path):
                    raise ValueError(f"{path[:80]!r} is not the path of a webhook such as reports/weekly")
        return workflows
