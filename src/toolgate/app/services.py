"""Makes the clients of external services from the settings."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from toolgate.model import Auth
from toolgate.network.http_client import HttpClient
from toolgate.network.package_registries import PackageRegistries
from toolgate.pipeline.context import InvokeContext
from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.npm.installer import NpmInstaller
from toolgate.services.advisories import AdvisoryFolder
from toolgate.services.credentials import Credentials
from toolgate.services.netlify import Netlify
from toolgate.services.sendgrid import SendGrid
from toolgate.services.stripe import Stripe
from toolgate.services.supabase import Supabase
from toolgate.services.vercel import Vercel
from toolgate.settings import Settings
from toolgate.settings.services import ServicesSettings


def make_services(
    services: ServicesSettings, http: HttpClient, lend: Callable[[InvokeContext, Auth], str]
) -> dict[type[Any], Any]:
    """The clients, each under its class, as tools ask for them. `lend` finds a credential for a call."""
    return {
        Stripe: Stripe(services.stripe.base_url, http),
        SendGrid: SendGrid(services.sendgrid.base_url, http),
        Vercel: Vercel(services.vercel.base_url, http, services.vercel.team),
        Netlify: Netlify(services.netlify.base_url, http),
        Supabase: Supabase(services.supabase, http),
        Credentials: Credentials(lend),
    }


def make_package_sources(settings: Settings, http: HttpClient, now: Callable[[], datetime]) -> dict[type[Any], Any]:
    """What is known about packages: the folder of advisories, and the registries."""
    advisories, registries = settings.advisories, settings.registries
    return {
        AdvisoryFolder: AdvisoryFolder(advisories.folder, advisories.max_age_days, now),
        PackageRegistries: PackageRegistries(http, registries.npm, registries.pypi),
    }


def make_npm_installer(sandbox: Sandbox, settings: Settings) -> NpmInstaller:
    """The installer of npm's packages."""
    return NpmInstaller(sandbox, settings.npm, settings.registries.npm, settings.home)
