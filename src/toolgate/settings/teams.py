"""Settings of organisation tools: whose they are, who signs them, where they come from, and what they may do here."""

import re
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from toolgate.model import TOOL_NAME
from toolgate.settings.secrets import SECRET_NAME
from toolgate.settings.section import Section
from toolgate.settings.services import ServiceUrl

ORGANISATION_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
PUBLIC_KEY = re.compile(r"[0-9a-f]{64}\Z")


class TeamFeatures(Section):
    """The parts of what an organisation offers that are used here."""

    shared_tools: bool = True
    """If true, its tools are used."""


class TeamSettings(Section):
    """The organisation that this installation belongs to, and its tools."""

    enabled: bool = False
    """If true, organisation tools are used."""
    org_id: str | None = None
    """The id of the organisation: small letters, digits, and `.`, `_`, `-`."""
    public_key: str | None = None
    """The key that signs its bundles, 64 hex digits, as `toolgate teams create-key` prints it. It is never taken from a
    bundle: another key is written here by hand."""
    url: ServiceUrl | None = None
    """The address of the bundle: `https://gate.example.com/v1/teams/{org_id}/bundle` of another Toolgate, or a file on any
    web server. `{org_id}` stands for the id."""
    folder: Path | None = None
    """A folder with the file `ORG_ID.bundle.json`, in place of a URL."""
    token_secret: str | None = None
    """The name of the secret (`toolgate secrets set NAME --servers`) that is sent to the URL as a bearer token."""
    sync_seconds: float = Field(default=3_600, ge=0, le=31_536_000)
    """The time between two looks for a newer bundle, in processes that stay. 0: only by command."""
    allowed_tools: tuple[str, ...] | None = None
    """The only tools of the organisation that may ever be used. None: all, after a person has accepted them."""
    may_enforce: bool = False
    """If true, a bundle may keep its tools from being disabled, and may refuse local tools. A person accepts that too."""
    features: TeamFeatures = TeamFeatures()

    @field_validator("org_id")
    @classmethod
    def _is_id(cls, org_id: str | None) -> str | None:
        if org_id is not None and not ORGANISATION_ID.match(org_id):
            raise ValueError("must be small letters, digits, and . _ -, at most 64 in all, with a letter or digit first")
        return org_id

    @field_validator("public_key")
    @classmethod
    def _is_key(cls, key: str | None) -> str | None:
        if key is not None and not PUBLIC_KEY.match(key):
            raise ValueError("must be the 64 hex digits that `toolgate teams create-key` prints as the public key")
        return key

    @field_validator("token_secret")
    @classmethod
    def _is_secret_name(cls, name: str | None) -> str | None:
        if name is not None and not SECRET_NAME.match(name):
            raise ValueError("must be the name of a secret, not its value: letters, digits and _, and no digit first")
        return name

    @field_validator("allowed_tools")
    @classmethod
    def _are_names(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        wrong = next((name for name in names or () if not TOOL_NAME.match(name)), None)
        if wrong is not None:
            raise ValueError(f"{wrong[:80]!r} is not the name of a tool; list them one by one, not by a pattern")
        return names

    @model_validator(mode="after")
    def _is_whole(self) -> "TeamSettings":
        if self.enabled and (self.org_id is None or self.public_key is None):
            raise ValueError(
                "needs org_id and public_key when enabled is true: a bundle of nobody in particular is not used"
            )
        if self.url is not None and self.folder is not None:
            raise ValueError("has url and folder: the bundle comes from one of them")
        return self

    @property
    def uses_tools(self) -> bool:
        """True if tools of the organisation may be used here."""
        return self.enabled and self.features.shared_tools
