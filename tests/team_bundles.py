"""An organisation for tests: a folder of tools, its key, and the bundles that it packs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from toolgate.teams.pack import create_key, pack

ORG = "acme"
TOOL = """\
name: {name}
description: Greet somebody.
schema: {{type: object, properties: {{who: {{type: string}}}}}}
runtime: python
permissions: {{riskLevel: {risk}}}
code: |
  def execute(args, context):
      return "{words}"
"""


class Organisation:
    """Packs bundles as its publisher does."""

    def __init__(self, folder: Path) -> None:
        self.tools = folder / "org-tools"
        self.tools.mkdir()
        self.key = create_key(folder / "org.key")
        self.version = 0

    def write(
        self, name: str, words: str = "hello", *, file: str | None = None, risk: str = "medium", extra: str = ""
    ) -> None:
        text = TOOL.format(name=name, words=words, risk=risk)
        (self.tools / f"{file or name}.yml").write_text(text + extra)

    def remove(self, name: str) -> None:
        (self.tools / f"{name}.yml").unlink()

    def pack(self, *, version: int | None = None, days: float = 30, org_id: str = ORG, **more: Any) -> bytes:
        self.version = version or self.version + 1
        created = datetime.now(UTC)
        packed = pack(
            self.tools, key=more.pop("key", self.key), org_id=org_id, version=self.version, created=created,
            expires=created + timedelta(days=days), **more,
        )  # fmt: skip
        return packed.encode()

    def settings(self, **more: Any) -> dict[str, Any]:
        """The settings of a member."""
        return {"enabled": True, "org_id": ORG, "public_key": self.key.public_key, **more}
