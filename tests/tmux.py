"""A program in a real terminal: tmux shows it, types for it, and says what is on the screen."""

import asyncio
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from uuid import uuid4

SECONDS = 30.0


class Tmux:
    """One terminal with one program in it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _run(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-L", self._name, *words], capture_output=True, timeout=20, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def screen(self, *, colours: bool = False) -> str:
        """All that is on the screen and above it."""
        return self._run("capture-pane", "-p", "-S", "-", *(["-e"] if colours else []), "-t", "0")

    def press(self, *keys: str) -> None:
        """Presses keys, by their names in tmux."""
        self._run("send-keys", "-t", "0", *keys)

    def type(self, text: str) -> None:
        """Types a text as it is, and Enter."""
        self._run("send-keys", "-t", "0", "-l", text)
        self._run("send-keys", "-t", "0", "Enter")

    async def until(self, *texts: str, seconds: float = SECONDS) -> str:
        """Waits until all texts are on the screen, and gives it."""
        end = monotonic() + seconds
        while True:
            shown = await asyncio.to_thread(self.screen)
            if all(text in shown for text in texts):
                return shown
            assert monotonic() < end, f"{texts} did not come:\n{shown}"
            await asyncio.sleep(0.05)

    async def ended(self, seconds: float = SECONDS) -> None:
        """Waits until the program has ended."""
        end = monotonic() + seconds
        while (await asyncio.to_thread(self._run, "display-message", "-p", "-t", "0", "#{pane_dead}")).strip() != "1":
            assert monotonic() < end, self.screen()
            await asyncio.sleep(0.05)


@contextmanager
def tmux(
    command: list[str], folder: Path, environment: Mapping[str, str], *, columns: int = 100, rows: int = 40
) -> Iterator[Tmux]:
    """Starts a program in a terminal of its own, which is gone afterwards."""
    name = f"toolgate-{uuid4().hex[:12]}"
    line = shlex.join(["env", *(f"{key}={value}" for key, value in environment.items()), *command])
    settings = ["-f", "/dev/null", "start-server", ";", "set", "-g", "remain-on-exit", "on", ";"]
    size = ["-x", str(columns), "-y", str(rows)]
    started = ["tmux", "-L", name, *settings, "new-session", "-d", *size, "-c", str(folder), line]
    subprocess.run(started, check=True, timeout=20)
    try:
        yield Tmux(name)
    finally:
        with suppress(subprocess.SubprocessError):
            subprocess.run(["tmux", "-L", name, "kill-server"], check=False, timeout=20, capture_output=True)
