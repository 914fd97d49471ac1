"""Settings of the external services that built-in tools use: where each of them is reached. Credentials are secrets, not
settings."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from toolgate.network.addresses import is_loopback
from toolgate.settings.section import Section

PROJECT_REF = r"^[a-z0-9]{1,40}$"
SUPABASE_HOST = ".supabase.co"


def plain_url(url: str) -> str:
    """An address that paths can be added to."""
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError("must be an address such as https://api.example.com")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("must have no user, password, query or fragment")
    return url.rstrip("/")


def _service_url(url: str) -> str:
    """An address that a credential may be sent to: encrypted, unless it is on this machine."""
    parts = urlsplit(plain_url(url))
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ValueError("must begin with https://: a credential is sent to it, and http:// is for this machine only")
    return url.rstrip("/")


ServiceUrl = Annotated[str, AfterValidator(_service_url)]


class StripeSettings(Section):
    """Stripe, for stripe_create_payment."""

    base_url: ServiceUrl = "https://api.stripe.com"


class SendGridSettings(Section):
    """SendGrid, for sendgrid_send_email."""

    base_url: ServiceUrl = "https://api.sendgrid.com"
    """Of an account in the EU: https://api.eu.sendgrid.com."""


class VercelSettings(Section):
    """Vercel, for vercel_deploy."""

    base_url: ServiceUrl = "https://api.vercel.com"
    team: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]{1,100}$")
    """The id of the team that deployments belong to (`team_…`); None: the owner of the token."""


class NetlifySettings(Section):
    """Netlify, for netlify_deploy."""

    base_url: ServiceUrl = "https://api.netlify.com"


class SupabaseProject(Section):
    """One project of Supabase."""

    url: ServiceUrl
    """Its address: https://abcdefghijklmnopqrst.supabase.co."""
    ref: str | None = Field(default=None, pattern=PROJECT_REF)
    """Its reference id; None: the first part of the address, if that is at supabase.co."""

    @property
    def project_ref(self) -> str | None:
        """The reference id, said or read off the address."""
        host = urlsplit(self.url).hostname or ""
        return self.ref or (host.removesuffix(SUPABASE_HOST) if host.endswith(SUPABASE_HOST) else None)


class SupabaseSettings(Section):
    """Supabase, for supabase_query."""

    project: SupabaseProject | None = None
    """The project of tenants that have none of their own."""
    tenants: dict[str, SupabaseProject] = Field(default_factory=dict)
    """Projects by tenant."""
    management_url: ServiceUrl = "https://api.supabase.com"
    """Where SQL is sent."""


class ServicesSettings(Section):
    """The external services that built-in tools use."""

    stripe: StripeSettings = StripeSettings()
    sendgrid: SendGridSettings = SendGridSettings()
    vercel: VercelSettings = VercelSettings()
    netlify: NetlifySettings = NetlifySettings()
    supabase: SupabaseSettings = SupabaseSettings()
