"""Settings of the tool npm_install."""

from urllib.parse import urlsplit

from pydantic import Field, field_validator

from toolgate.settings.section import Section


class NpmSettings(Section):
    """Where packages come from besides the registry (`registries.npm`), and what one installation may use."""

    hosts: tuple[str, ...] = ()
    """More hosts that packages may come from, by URLs in package.json or by a lock file: `codeload.example.com`."""
    seconds: float = Field(default=300, gt=0, le=600)
    """How long one installation may take, with the packages' scripts."""
    memory_mb: int = Field(default=1024, ge=256, le=65_536)
    """Memory of all processes of one installation together."""
    disk_mb: int = Field(default=1024, ge=1, le=65_536)
    """What one installation may write: packages as they come and as they are unpacked."""
    files: int = Field(default=100_000, ge=100, le=1_000_000)
    """Files and folders of one installation."""

    @field_validator("hosts")
    @classmethod
    def _hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        from toolgate.network.allowed_hosts import AllowedHosts

        AllowedHosts(hosts)
        return hosts

    def reach(self, registry: str | None) -> tuple[str, ...]:
        """All hosts that an installation may reach: that of the registry (`registries.npm`), and those that are named."""
        if registry is None:
            return self.hosts
        parts = urlsplit(registry)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else str(parts.hostname)
        return tuple(dict.fromkeys((host if parts.port is None else f"{host}:{parts.port}", *self.hosts)))
