"""A host with everything that the sandbox can have under way, for `test_sandbox_host_killed`.

    python -m tests.hostile.sandbox_host host FOLDER JAIL     an App with all kinds of workers, and code that does not end
    python -m tests.hostile.sandbox_host warden FOLDER JAIL   starts such a host, kills it, and says what outlived it
    python -m tests.hostile.sandbox_host brief FOLDER JAIL    an App that runs two small programs, and closes

The warden is the one whom orphans fall to, so whatever outlives the host is its child, whoever started it.
"""

import asyncio
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolgate import Actor, App
from toolgate.sandbox.jails.inside_files import INSIDE
from toolgate.sandbox.jails.process_tree import descendants

ROOT = Path(__file__).resolve().parents[2]
PR_SET_CHILD_SUBREAPER = 36
START_SECONDS, END_SECONDS = 120.0, 30.0
ANN = Actor("acme", user="ann")
ENDLESS = "import sys\nwhile True: pass"
TICKS = 50
"""Half a second of processor time: more than most workers need to get ready."""
KINDS = ("deno", "command", "monty", "waiting", "endless")
"""What must be there before the host is killed; of Python a worker that waits and one that never ends."""


def opened(folder: Path, jail: str) -> App:
    """An App in which everybody may do everything."""
    sandbox = {"backend": jail, "seconds": 600}
    app = App.open(os.devnull, home=folder / "home", sandbox=sandbox, commands={"allow": ["sleep"]})
    app.approvals.add_approver(lambda _request: True)
    return app


async def execute(app: App, language: str, code: str) -> None:
    outcome = await app.invoke("code_execute", {"language": language, "code": code}, actor=ANN)
    assert outcome.ok, outcome.error


async def brief(folder: Path, jail: str) -> None:
    """Start Monty and a jail, and close."""
    async with opened(folder, jail) as app:
        await execute(app, "python", "1 + 1")
        await execute(app, "python", "import sys\n1")


async def host(folder: Path, jail: str) -> None:
    """Have everything under way, and wait to be killed."""
    async with opened(folder, jail) as app:
        for language, code in (("python", "1 + 1"), ("python", "import sys\n1"), ("typescript", "return 1")):
            await execute(app, language, code)
        await asyncio.gather(
            app.invoke("execute_command", {"command": "sleep", "args": ["1000"]}, actor=ANN, session="one"),
            app.invoke("code_execute", {"code": ENDLESS}, actor=ANN),
        )


def warden(folder: Path, jail: str) -> dict[str, Any]:
    """Kill a host once it has all of that, and say what was there before and what is there afterwards."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    command = [sys.executable, "-B", "-m", "tests.hostile.sandbox_host", "host", str(folder), jail]
    started = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL)
    try:
        before: set[str] = set()

        def all_there() -> bool:
            before.clear()
            before.update(_kinds())
            return started.poll() is not None or before >= set(KINDS)

        _until(all_there, START_SECONDS)
    finally:
        started.send_signal(signal.SIGKILL)
        started.wait()
    _until(lambda: not _living(), END_SECONDS)
    left = {str(pid): " ".join(words)[:200] for pid, words in _living().items()}
    for number in left:
        with suppress(ProcessLookupError):
            os.kill(int(number), signal.SIGKILL)
    _until(lambda: not _living(), END_SECONDS)
    return {"before": sorted(before), "left": left, "files": _files()}


def _until(holds: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)


def _living() -> dict[int, list[str]]:
    """What descends from us and has not ended, with its command line."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    found: dict[int, list[str]] = {}
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            if "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text():
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return found


def _kinds() -> set[str]:
    return {kind for pid, words in _living().items() if (kind := _kind(pid, words)) is not None}


def _kind(pid: int, words: list[str]) -> str | None:
    program = words[0].rpartition("/")[2]
    if program in ("monty", "deno"):
        return program
    if program == "sleep":
        return "command"
    if not program.startswith("python") or not any(Path(word).parent == INSIDE for word in words):
        return None
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] == "R":  # whoever waits sleeps, however long it took to get ready
            return "endless" if int(fields[11]) > TICKS else None
        return "waiting"
    return None


def _files() -> list[str]:
    return sorted(path.name for path in Path(tempfile.gettempdir()).iterdir())


if __name__ == "__main__":
    what, where, holding = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    if what != "warden":
        asyncio.run((host if what == "host" else brief)(where, holding))
    else:
        print(json.dumps(warden(where, holding)))  # noqa: T201 - that is its answer
