"""Somebody who follows a page word for word, from its top, in one folder."""

import json
import re
from pathlib import Path

from tests.docs.markdown import Block, blocks
from tests.package.environment import Environment

APPROVAL = re.compile(r"\bap_[a-z0-9]{16}\b")
FILE = re.compile(r"# (?P<name>\S+\.py)\n")


class Reader:
    """Writes the files that a page shows, runs its Python and its `$ toolgate` lines. An approval's id that stands in a line
    is an example: the one that waits is taken."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        self._environment = environment
        self._folder = folder
        self.commands = self.snippets = self.files = 0

    def follow(self, page: Path) -> None:
        """Raises AssertionError at the first thing that does not work."""
        for block in blocks(page):
            file = FILE.match(block.text) if block.language == "python" else None
            if file is not None:
                self._write(file["name"], block)
            elif block.language == "python" and block.note != "not run":
                self._run_python(block)
            elif block.language == "console":
                for line in re.sub(r"\\\n\s*", "", block.text).splitlines():
                    if line.startswith("$ toolgate "):
                        self._run(line.removeprefix("$ "), block)

    def _write(self, name: str, block: Block) -> None:
        file = self._folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text, encoding="utf-8")
        self.files += 1

    def _run_python(self, block: Block) -> None:
        (self._folder / "snippet.py").write_text(block.text, encoding="utf-8")
        done = self._environment.run("python snippet.py", self._folder)
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        self.snippets += 1

    def _run(self, command: str, block: Block) -> None:
        if APPROVAL.search(command):
            command = APPROVAL.sub(self._waiting(), command)
        done = self._environment.run(command, self._folder)
        said = done.stdout + done.stderr
        assert done.returncode == self._expected(command, block, said), f"{block}\n$ {command}\n{said}"
        assert "not installed" not in done.stderr, f"{block}\n$ {command}\n{said}"
        self.commands += 1

    def _expected(self, command: str, block: Block, said: str) -> int:
        """Of a block that the other tests leave out: a line after which the page shows APPROVAL_REQUIRED waits."""
        noted = re.fullmatch(r"exit (\d+)", block.note)
        if noted:
            return int(noted[1])
        shown = re.search(rf"^\$ {re.escape(command)}\nAPPROVAL_REQUIRED", block.text, re.MULTILINE)
        assert shown is None or "APPROVAL_REQUIRED" in said, said
        return 3 if shown else 0

    def _waiting(self) -> str:
        listed = self._environment.run("toolgate approvals list --json", self._folder)
        return str(json.loads(listed.stdout)["approvals"][0]["id"])
