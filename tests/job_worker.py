"""A worker process for the tests of crashes: its tools have effects that are counted outside of it, in files.

python -m tests.job_worker URL HOME CONCURRENCY PAUSE JOB_SETTINGS
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests import forked
from toolgate import App, tool
from toolgate.pipeline.context import InvokeContext

LEASE_SECONDS = 1.0
ROOT = Path(__file__).resolve().parents[1]


def settings(url: str, home: Path, **more: Any) -> dict[str, Any]:
    """The settings that all processes of a test have."""
    jobs = {"backoff_seconds": 0.01, "max_backoff_seconds": 0.05, "max_crashes": 20, "drain_seconds": 10, **more}
    return {
        "database_url": url, "home": home, "entry_points": False, "jobs": jobs, "limits": {"lease_seconds": LEASE_SECONDS},
    }  # fmt: skip


def register(app: App, home: Path, pause: float = 0.0) -> None:
    """Registers the tools, each with an effect that outlasts the process."""

    @tool(tier="write")
    async def post(key: str) -> str:
        """Appends the key to a file, which counts how often that happens."""
        note(home / "at_work", str(os.getpid()))
        note(home / "posted", key)
        await asyncio.sleep(pause)
        return key

    @tool(tier="write", annotations={"idempotentHint": True})  # type: ignore[call-overload, untyped-decorator]
    async def charge(key: str, ctx: InvokeContext) -> str:
        """Counts the idempotency key of the call once, as a service outside does that is given it."""
        note(home / "at_work", str(os.getpid()))
        note(home / "asked", key)
        (home / "charged").mkdir(exist_ok=True)
        (home / "charged" / str(ctx.call.idempotency_key).replace("/", "_")).touch()
        await asyncio.sleep(pause)
        return key

    @tool(tier="read_only")
    async def die(key: str) -> str:
        """Kills the process that runs it."""
        note(home / "died", key)
        os.kill(os.getpid(), signal.SIGKILL)
        return key

    @tool(tier="read_only")
    async def peek(key: str) -> str:
        """Notes that it was called, and has no effect that counts."""
        note(home / "at_work", str(os.getpid()))
        note(home / "asked", key)
        await asyncio.sleep(pause)
        return key

    app.tools.register_many([post, charge, die, peek])


def note(file: Path, line: str) -> None:
    """One write, which is there as a whole whatever happens to this process."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def noted(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


class Worker:
    """A worker process under way, which can be killed and started again."""

    def __init__(self, url: str, home: Path, concurrency: int = 8, pause: float = 0.01, **jobs: Any) -> None:
        self._words = [url, str(home), str(concurrency), str(pause), json.dumps(jobs)]
        self.log = home / "workers.log"
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log, Path(os.devnull).open("rb") as nothing:
            self.process = forked.start(
                self._words, folder=ROOT, environment=os.environ, code=forked.module("tests.job_worker"),
                streams=(nothing.fileno(), log.fileno(), log.fileno()),
            )  # fmt: skip

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a machine that loses its power."""
        self.process.kill()
        self.process.wait(20)

    def stop(self, seconds: float = 40) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


async def main(url: str, home: str, concurrency: str, pause: str, jobs: str) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with App.open(**settings(url, Path(home), **json.loads(jobs))) as app:
        register(app, Path(home), float(pause))
        async with app.jobs.worker(int(concurrency)):
            note(Path(home) / "started", str(os.getpid()))
            await stopping.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
