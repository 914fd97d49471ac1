"""Settings of secrets: where they are kept, and which tools may be given them."""

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from toolgate.model import TOOL_NAME
from toolgate.network.allowed_hosts import MAX_HOSTS, parse_host_rule
from toolgate.settings.section import Section

SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")


class SecretUse(Section):
    """A tool, and the tenant whose callers may refer to a secret in its arguments."""

    tool: str = Field(min_length=1)
    """Exactly one: a built-in or Python tool by its name, or with `server` the server's own name of its tool."""
    tenant: str = Field(min_length=1)
    """One tenant; `*` for all."""
    server: str | None = None
    """The MCP server whose tool it is."""
    source: Literal["custom", "openapi", "workflow", "teams"] | None = None
    """Where the tool comes from, if it is neither built in, nor of Python, nor of a server: a name that one source has not
    taken yet, another may."""
    hosts: tuple[str, ...] = Field(default=(), max_length=MAX_HOSTS)
    """The hosts that it may be sent to, by built-in tools whose callers choose the URL, and by commands that reach hosts
    (`commands.allow`): `api.example.com`, `*.example.com`, `api.example.com:8443`; or names of `a2a.agents`. Without any,
    those don't get it."""

    @field_validator("hosts")
    @classmethod
    def _real_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            parse_host_rule(host)
        return hosts

    @model_validator(mode="after")
    def _one_origin(self) -> "SecretUse":
        if self.server is not None and self.source is not None:
            raise ValueError("it has server and source: a tool comes from one of them")
        if self.server is None and not TOOL_NAME.match(self.tool):
            raise ValueError(f"{self.tool!r} is not the name of a tool; list them one by one, not by a pattern")
        if "*" in (self.tool, self.server):
            raise ValueError("list tools and servers one by one, by name: '*' is allowed for tenant only")
        return self


class SecretSettings(Section):
    """The places where secrets are kept, and the tools that may be given them."""

    use: dict[str, tuple[SecretUse, ...]] = Field(default_factory=dict)
    """By name of a secret, the tools into whose arguments callers may have it put with `{{secret:NAME}}`, and for which
    tenant. What is not named here is refused."""
    file: Path | None = None
    """The encrypted file; None: `secrets.enc` in `home`."""
    keyring: bool = False
    """Whether the system's keyring is asked as well."""
    keyring_backend: str | None = None
    """A backend of the package keyring (`module.Class`) that is used although Toolgate does not know that it encrypts. None:
    only Secret Service, libsecret, KWallet, macOS Keychain, Windows Credential Locker and keyrings.alt's encrypted files."""

    @field_validator("use")
    @classmethod
    def _named_secrets(cls, use: dict[str, tuple[SecretUse, ...]]) -> dict[str, tuple[SecretUse, ...]]:
        wrong = next((name for name in use if not SECRET_NAME.match(name)), None)
        if wrong is not None:
            raise ValueError(f"{wrong!r} is not the name of a secret: letters, digits and _, and no digit first")
        return use
