"""A real MCP server whose tools a test can change: `plain_server.py`, and the file that says what it offers."""

import json
import sys
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("plain_server.py")
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}


def tool(name: str, description: str = "Says something.", **more: Any) -> dict[str, Any]:
    """A definition as servers give it."""
    return {"name": name, "description": description, "inputSchema": TEXT, **more}


class Upstream:
    """A server, and what it offers."""

    def __init__(self, folder: Path, *tools: dict[str, Any], name: str = "offered", **more: Any) -> None:
        self.file = folder / f"{name}.json"
        self._more = more
        self.offer(*tools)

    def offer(self, *tools: Any, **more: Any) -> None:
        """From now on it has these. The file is replaced at once, so that the server never reads half of it."""
        self._more |= more
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps({"tools": tools, **self._more}), "utf-8")
        new.rename(self.file)

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-S", str(PROGRAM), str(self.file)]

    def settings(self, **more: Any) -> dict[str, Any]:
        """Its settings, without a jail: what is tested here is what becomes of its tools."""
        return {"command": self.command, "isolation": "none", "tier": "read_only", **more}
