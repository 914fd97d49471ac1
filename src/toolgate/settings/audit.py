"""Settings of the audit log: how its head is signed, and where signed heads go."""

import os
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from toolgate.settings.section import Section, anchored_path

HTTP = re.compile(r"(put\+)?https?://")


class AuditSettings(Section):
    """How the head of the audit log is signed, and where signed heads go."""

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
