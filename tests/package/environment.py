"""An environment of its own for a wheel, and commands that are run in it as a person would who has activated it."""

import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

SECONDS = 600


class Environment:
    """A virtual environment, made anew, of the Python that runs this."""

    def __init__(self, place: Path) -> None:
        self.place = place
        venv.create(place, with_pip=True)

    @property
    def python(self) -> Path:
        return self.place / "bin" / "python"

    def folder(self, name: str) -> Path:
        """An empty folder to work in."""
        made = self.place.parent / "folders" / name
        made.mkdir(parents=True, exist_ok=True)
        return made

    def pip(self, *words: str) -> str:
        """What pip says."""
        pip = [str(self.python), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        done = self.run_words([*pip, *words], self.place)
        if done.returncode != 0:
            raise SystemExit(f"pip {' '.join(words)}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def install(self, requirements: Path) -> None:
        """Exactly what a file names, by hash."""
        self.pip("install", "--quiet", "--no-deps", "--require-hashes", "-r", str(requirements))

    def run(self, command: str, folder: Path, settings: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """A line in a shell, with the environment activated and nobody at the terminal."""
        return self.run_words(["sh", "-c", command], folder, settings)

    def run_words(
        self, words: list[str], folder: Path, settings: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLGATE_", "PYTHON"))}
        path = f"{self.python.parent}{os.pathsep}{_without_ours(kept.get('PATH', os.defpath))}"
        own = {"PATH": path, "HOME": str(self.folder("home")), "VIRTUAL_ENV": str(self.place), "TOOLGATE_TRUST": str(folder)}
        return subprocess.run(
            words, cwd=folder, env={**kept, **own, **(settings or {})}, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=SECONDS, check=False,
        )  # fmt: skip


def _without_ours(path: str) -> str:
    """A search path without the environment that runs this: what is missing must not be found there."""
    ours = Path(sys.executable).parent
    return os.pathsep.join(part for part in path.split(os.pathsep) if Path(part) != ours)
