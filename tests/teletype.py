"""A person at a real terminal of some width, for tests of what the CLI asks and how it looks there."""

import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path

from tests import forked
from tests.terminal import SCRIPT, Terminal

SECONDS = 60


class Teletype:
    """A command with a real terminal: what it shows, and somebody who types."""

    def __init__(
        self,
        terminal: Terminal,
        *words: str,
        columns: int = 200,
        program: Sequence[str | Path] = (SCRIPT,),
        **environment: str,
    ) -> None:
        self._master, slave = pty.openpty()
        self.shown = ""
        env = {**os.environ, "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": str(columns), **environment}
        self._process: forked.Forked | subprocess.Popen[bytes]
        if program == (SCRIPT,) and forked.is_alike(env):
            streams = (slave, slave, slave)
            self._process = forked.start(words, folder=terminal.folder, environment=env, streams=streams, terminal=True)
        else:
            self._process = subprocess.Popen(
                [*program, *words],
                cwd=terminal.folder,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env=env,
                start_new_session=True,
                preexec_fn=_take_terminal,
            )
        os.close(slave)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def type(self, *, after: str, keys: str) -> None:
        """Wait for a question, then type."""
        self._read_until(after)
        os.write(self._master, keys.encode())

    def watch(self, *, after: str, seconds: float) -> None:
        """Wait for a question, and go on reading for a while: what is shown while nobody types."""
        self._read_until(after)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._read()

    def interrupt(self, *, after: str) -> None:
        """Ctrl-C, as the terminal sends it."""
        self._read_until(after)
        os.write(self._master, b"\x03")

    def end(self) -> int:
        deadline = time.monotonic() + SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            self._read()
        while self._read():
            pass
        code = self._process.wait(1)
        os.close(self._master)
        return code

    def _read_until(self, words: str) -> None:
        deadline = time.monotonic() + SECONDS
        seen = len(self.shown)
        while words not in self.shown[seen:]:
            assert time.monotonic() < deadline, self.shown
            assert self._process.poll() is None or self._read(), self.shown
            self._read()

    def _read(self) -> bool:
        if not select.select([self._master], [], [], 0.1)[0]:
            return False
        try:
            read = os.read(self._master, 65_536)
        except OSError:  # the other side is closed
            return False
        self.shown += read.decode(errors="replace")
        return bool(read)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
