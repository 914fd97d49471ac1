"""Settings of what is known about packages: advisories, and the registries that name the newest versions."""

from pathlib import Path

from pydantic import Field, field_validator

from toolgate.settings.network import checked_url
from toolgate.settings.section import Section


class AdvisorySettings(Section):
    """Security advisories for the tool analyze_dependencies."""

    folder: Path | None = None
    """A folder with advisories as JSON files in the OSV schema, at any depth. None: whether packages are vulnerable is
    unknown."""
    max_age_days: float = Field(default=30, gt=0, le=3_650)
    """If the newest advisory is older, the folder is out of date, and whether packages are vulnerable is unknown."""


class RegistrySettings(Section):
    """Registries that the tool analyze_dependencies asks for the newest versions, when a call asks for them, and from which
    npm_install has its packages."""

    npm: str | None = "https://registry.npmjs.org"
    """The base URL of the npm registry, or of a mirror. null: it is asked nothing."""
    pypi: str | None = "https://pypi.org"
    """The base URL of PyPI, or of a mirror that has its JSON API. null: it is asked nothing."""

    @field_validator("npm", "pypi")
    @classmethod
    def _web_address(cls, url: str | None) -> str | None:
        return None if url is None else checked_url(url)
