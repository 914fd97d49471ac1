"""Records the first five minutes: a person who sets Toolgate up in a clean clone and follows the quickstart.

Writes `first-five-minutes.cast` (`asciinema play` shows it) and `first-five-minutes.txt` beside this file. What is shown is
what the commands print; only the pauses are shortened, and the folder is called /home/you. `make recording` runs it.
"""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COLUMNS, ROWS = 110, 32
PROMPT = "\033]0;prompt\a"
"""Shown before each prompt of the shell: a terminal takes it for its title, so that nobody sees it."""
KEY_SECONDS = 0.04
LONGEST_PAUSE_SECONDS = 2.0
LONGEST_COMMAND_SECONDS = 900

SESSION: tuple[tuple[str, str], ...] = (
    # what is waited for, what is typed then
    (PROMPT, "make tour\n"),
    *((("q Enter: quit]", "\n"),) * 4),
    (PROMPT, ". .venv/bin/activate\n"),
    (PROMPT, "mkdir -p ../demo/.toolgate/tools && cd ../demo\n"),
    (PROMPT, "toolgate call calculator expression='sqrt(16)+2^3'\n"),
    (PROMPT, "cat > .toolgate/tools/post.py\n"),
    ("post.py", 'from toolgate import tool\n\n\n@tool(tier="external_api", cost=0.01)\nasync def post(text: str) -> str:\n'
         '    """Post a message."""\n    return f"posted: {text}"\n\x04'),
    (PROMPT, "toolgate trust\n"),
    (PROMPT, "toolgate call post text=hello\n"),
    ("for one hour", "y\n"),
    (PROMPT, "toolgate audit tail\n"),
    (PROMPT, "toolgate audit verify\n"),
    (PROMPT, "exit\n"),
)  # fmt: skip


class Recording:
    """A shell in a terminal, somebody who types, and what the terminal showed when."""

    def __init__(self, folder: Path) -> None:
        self.events: list[tuple[float, str]] = []
        self._start = time.monotonic()
        self._unread = ""
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(folder / "toolgate")
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile"], environment(folder))
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + LONGEST_COMMAND_SECONDS
        while words not in self._unread:
            if time.monotonic() > deadline or not self._read():
                sys.exit(f"the recording waited for {words!r} and saw {self._unread[-2000:]!r}")
        self._unread = self._unread.partition(words)[2]

    def type(self, keys: str) -> None:
        for key in keys:
            time.sleep(KEY_SECONDS)
            os.write(self._terminal, key.encode())
            self._read(0.01)

    def end(self) -> int:
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _read(self, seconds: float = 1.0) -> bool:
        """Takes what the terminal shows. False once the shell has ended."""
        if not select.select([self._terminal], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._terminal, 65_536)
        except OSError:  # the shell is gone, and its terminal with it
            return False
        text = data.decode(errors="replace")
        self._unread += text
        self.events.append((time.monotonic() - self._start, text))
        return bool(data)


def environment(folder: Path) -> dict[str, str]:
    """A person's own: nothing of whoever runs this script but what installing needs."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_")) or name == "PATH"}
    return kept | {
        "HOME": str(folder),
        "PIP_QUIET": "2",
        "PIP_CONFIG_FILE": os.environ.get("PIP_CONFIG_FILE", str(Path.home() / ".config" / "pip" / "pip.conf")),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "PS1": f"\\[{PROMPT}\\]$ ",
        "BASH_SILENCE_DEPRECATION_WARNING": "1",
        "VIRTUAL_ENV_DISABLE_PROMPT": "1",
    }


def shortened(events: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """The same with no pause longer than a reader needs."""
    told, before, now = [], 0.0, 0.0
    for at, text in events:
        now += min(at - before, LONGEST_PAUSE_SECONDS)
        before = at
        told.append((round(now, 3), text))
    return told


def plain(events: list[tuple[float, str]]) -> str:
    """What stays readable on the screen: without colours, and of a line that was written over, its last form."""
    text = "".join(text for _, text in events)
    text = re.sub(r"\033\][^\a]*\a", "", text)
    text = re.sub(r"\033\[[0-9;?]*[A-JL-Za-z]", "", text)
    lines = (re.split(r"\r|\033\[[0-9]*K", line.rstrip("\r"))[-1].rstrip() for line in text.split("\n"))
    return "\n".join(lines).strip() + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="toolgate-recording-") as name:
        folder = Path(name)
        subprocess.run(["git", "clone", "--quiet", ROOT, folder / "toolgate"], check=True)
        recording = Recording(folder)
        for words, keys in SESSION:
            recording.wait_for(words)
            recording.type(keys)
        if code := recording.end():
            sys.exit(f"the shell ended with {code}")
        events = [(at, text.replace(name, "/home/you")) for at, text in recording.events]
    shown = plain(events)
    if leaked := [word for word in (name, tempfile.gettempdir(), str(Path.home()), str(ROOT)) if word in shown]:
        sys.exit(f"the recording shows paths of this machine: {leaked}")
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "Toolgate: the first five minutes"}
    told = [json.dumps(header), *(json.dumps([at, "o", text]) for at, text in shortened(events))]
    (HERE / "first-five-minutes.cast").write_text("\n".join(told) + "\n", encoding="utf-8")
    (HERE / "first-five-minutes.txt").write_text(shown, encoding="utf-8")


if __name__ == "__main__":
    main()
