"""A person at a terminal, for tests of the CLI: in this process, which is quick, or through the real console script."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests import forked
from toolgate.cli.main import main

SCRIPT = forked.SCRIPT
SECONDS = 60


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one line of JSON on stdout."""
        assert self.out.count("\n") == 1, self.out
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Terminal:
    """Runs commands in a folder of its own, without settings from outside."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        monkeypatch.chdir(folder)
        for name in list(os.environ):
            if (name.startswith("TOOLGATE_") and name != "TOOLGATE_TRUST") or name in (
                "FORCE_COLOR",
                "NO_COLOR",
                "TTY_COMPATIBLE",
            ):
                monkeypatch.delenv(name)

    @property
    def home(self) -> Path:
        return self.folder / ".toolgate"

    def set(self, name: str, value: str) -> None:
        """Set an environment variable."""
        self._monkeypatch.setenv(name, value)

    def add_tools(self, source: str, name: str = "mine") -> None:
        """Put a Python file with tools where Toolgate looks for them."""
        folder = self.home / "tools"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(dedent(source), encoding="utf-8")

    def settings(self, text: str) -> None:
        (self.folder / "toolgate.yaml").write_text(dedent(text), encoding="utf-8")

    def __call__(self, *words: str) -> Done:
        """Run a command in this process."""
        self._capsys.readouterr()
        code = main(words)
        out, err = self._capsys.readouterr()
        assert "Traceback" not in out + err or "TOOLGATE_DEBUG" in os.environ or "--verbose" in words
        return Done(code, out, err)

    def run(self, *words: str | bytes, stdin: bytes = b"", environment: Mapping[str, str] | None = None) -> Done:
        """Run the console script, as a shell would."""
        env = {**os.environ, **(environment or {})}
        if forked.is_alike(env):
            done = forked.run(words, folder=self.folder, environment=env, stdin=stdin, seconds=SECONDS)
        else:
            done = subprocess.run(
                [SCRIPT, *words], cwd=self.folder, input=stdin, capture_output=True, timeout=SECONDS, env=env, check=False
            )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in out + err
        return Done(done.returncode, out, err)
