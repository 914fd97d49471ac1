"""A process that drives a run of an agent, for the tests of crashes: its tools have effects that are counted in files, and
one kills the process that runs it.

python -m tests.agent_process URL FOLDER MODEL [start|work]
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.agents import tools_of
from tests.job_worker import note, noted
from toolgate import App, tool

LEASE_SECONDS = 1.0
ROOT = Path(__file__).resolve().parents[1]


def settings(url: str, folder: Path, model: dict[str, Any]) -> dict[str, Any]:
    """The settings that all processes of a test have."""
    return {
        "database_url": url, "home": folder / "home", "entry_points": False, "auto_load_custom_tools": False, "model": model,
        "limits": {"lease_seconds": LEASE_SECONDS}, "jobs": {"drain_seconds": 5, "max_crashes": 20},
        "agent": {"subordinates": ["helper"]},
    }  # fmt: skip


def deadly(folder: Path) -> list[Any]:
    """Tools that end the process, after their effect, the first time that they are called."""

    def die(what: str) -> None:
        is_first = what not in noted(folder / "did")
        note(folder / "did", what)
        if is_first:
            os.kill(os.getpid(), signal.SIGKILL)

    @tool(tier="write")
    async def die_writing(text: str) -> str:
        """Have an effect, and die."""
        die(f"die_writing {text}")
        return f"wrote {text}"

    @tool(tier="read_only")
    async def die_reading(text: str) -> str:
        """Look at something, and die."""
        die(f"die_reading {text}")
        return f"read {text}"

    return [die_writing, die_reading]


@asynccontextmanager
async def opened(url: str, folder: Path, model: dict[str, Any]) -> AsyncIterator[App]:
    async with App.open(**settings(url, folder, model)) as app:
        app.tools.register_many([*tools_of(folder), *deadly(folder)])
        yield app


class AgentProcess:
    """One such process, which can be killed."""

    def __init__(self, url: str, folder: Path, model: dict[str, Any], mode: str = "start") -> None:
        words = [url, str(folder), json.dumps(model), mode]
        with (folder / "processes.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.agent_process", *words], cwd=ROOT, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """As a machine that loses its power."""
        self.process.kill()
        self.process.wait(20)

    @property
    def is_dead(self) -> bool:
        return self.process.poll() is not None


async def main(url: str, folder: str, model: str, mode: str) -> None:
    async with opened(url, Path(folder), json.loads(model)) as app:
        if mode == "start":
            run = await app.agents.start("Do it.")
            note(Path(folder) / "runs", run.id)
            await asyncio.Event().wait()
        async with app.jobs.worker(4):
            note(Path(folder) / "workers", str(os.getpid()))
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
