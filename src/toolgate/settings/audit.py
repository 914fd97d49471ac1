"""Settings of the audit log: how its head is signed, where signed heads go, and what is kept of calls besides records."""

import os
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from toolgate.model import Tier
from toolgate.settings.section import Section, anchored_path, matches_tool

HTTP = re.compile(r"(put\+)?https?://")


class DetailRule(Section):
    """A rule for the details that are kept of the calls that it matches, besides their records."""

    tier: Tier | None = None
    """Of the tools of this tier; None: of every tier."""
    tool: str | None = None
    """Of which tool; a `*` at the end stands for any ending. None: of every tool."""
    keep: Literal["nothing", "stages", "output"] = "stages"
    """stages: what each gate said, and how long each took. output: that, and the output as it was given out."""

    def matches(self, tool: str, tier: str) -> bool:
        return matches_tool(self.tool, tool) and self.tier in (None, tier)


class DetailSettings(Section):
    """The details that are kept of calls besides their records, and for how long."""

    rules: tuple[DetailRule, ...] = ()
    """By tier and tool: `[{tool: get_token, keep: nothing}, {tool: github_*, keep: output}, {tier: write}]`. The first that
    matches a call decides; of calls that none matches, nothing is kept."""
    output_bytes: int = Field(default=16_384, ge=64, le=10_000_000)
    """The most that is kept of one output; of a larger one its beginning."""
    days: float = Field(default=30, gt=0, le=36_500)
    """How long details are kept. The records themselves stay."""
    total_bytes: int = Field(default=100_000_000, ge=1_000)
    """The most that is kept of all calls together; beyond it the oldest go first."""


class AuditSettings(Section):
    """The signature on the head of the audit log, the places for signed heads, and the details kept of calls."""

    key: Literal["file", "keyring", "none"] = "file"
    """Where the signing key is kept: in `folder`, in the system's keyring, or nowhere: then heads are not signed."""
    folder: Path | None = None
    """Where the key and the latest signed head are kept, apart from the log; None: `toolgate/audit` in `$XDG_CONFIG_HOME`
    (`~/.config`). Whoever can write there and to the database can rewrite history."""
    sinks: tuple[str, ...] = ()
    """Where signed heads are sent besides: a file that lines are added to, an `https://` address (POST), or `put+https://`
    (PUT of an object for each head)."""
    sign_seconds: float = Field(default=60, gt=0, le=86_400)
    """How often the head is signed while records are written. It is also signed when the App closes."""
    trusted_keys: tuple[str, ...] = ()
    """Public keys, in hex, of other machines that sign the heads of the same log: `toolgate audit key` shows them."""
    details: DetailSettings = DetailSettings()
    """What is kept of calls besides their records: stages, times, verdicts, outputs."""

    @classmethod
    def anchor_texts(cls, values: dict[str, Any], base: Path | None) -> None:
        """Sinks that are files."""
        if isinstance(values.get("sinks"), list):
            values["sinks"] = [
                anchored_path(sink.removeprefix("file://"), base) if isinstance(sink, str) and not HTTP.match(sink) else sink
                for sink in values["sinks"]
            ]

    @field_validator("trusted_keys")
    @classmethod
    def _public_keys(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        for key in keys:
            if not re.fullmatch(r"[0-9a-f]{64}", key):
                raise ValueError("a public key is 64 hexadecimal digits: `toolgate audit key` shows it")
        return keys

    @property
    def place(self) -> Path:
        """The folder that is kept apart from the log."""
        if self.folder is not None:
            return self.folder
        base = os.environ.get("XDG_CONFIG_HOME", "")
        return (Path(base) if Path(base).is_absolute() else Path("~/.config").expanduser()) / "toolgate" / "audit"
