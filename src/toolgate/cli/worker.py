"""`toolgate worker`: run jobs in the background, until it is told to stop."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Annotated, Any, BinaryIO, Self

import orjson
import typer

from toolgate.cli.context import diverted, opened, option
from toolgate.cli.output import Part, as_json, note
from toolgate.cli.table import state as state_cell
from toolgate.errors import plural
from toolgate.gates.approval.request import visible
from toolgate.jobs.worker import JobWorker
from toolgate.store.jobs import JobRow


async def worker(
    ctx: typer.Context,
    once: Annotated[bool, option("--once", "Run what is due, and what that queues, then end.")] = False,
    concurrency: Annotated[
        int | None, option("--concurrency N", "Run so many at once; without it, the setting.", min=1, max=1_000)
    ] = None,
) -> int:
    """Run the jobs of all tenants until SIGTERM or Ctrl-C. Those that run then are waited for; a second signal ends it."""
    from toolgate.app.event_stream import taking_events

    with _Told() as tell:
        async with opened(ctx, serving=True) as app, nullcontext() if once else taking_events(app):
            most = concurrency or app.settings.jobs.concurrency
            types = sorted(app.jobs.types)
            async with app.jobs.worker(concurrency, once=once, observers=(tell.attempt,)) as working:
                with _signals(working, tell), diverted():
                    words = f": {plural(most, 'job')} at once, of the types {', '.join(types)}."
                    tell(
                        {"event": "started", "pid": os.getpid(), "concurrency": most, "types": types},
                        ("Worker started", "green"),
                        words if once else f"{words} Stop it with Ctrl-C.",
                    )
                    await working.wait()
                    await working.stop()
        words = f" after {plural(tell.attempts, 'attempt')} at jobs."
        tell({"event": "stopped", "attempts": tell.attempts}, ("Worker stopped", "green"), words)
    return 0


class _Told:
    """Lines for whoever watches: JSON on stdout for programs, else words on stderr. It keeps the stdout that there was: what
    tools print meanwhile goes to stderr."""

    def __init__(self) -> None:
        self.attempts = 0
        self._stdout: BinaryIO | None = None

    def __enter__(self) -> Self:
        if as_json():
            with suppress(OSError, ValueError):  # nobody reads it
                self._stdout = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._stdout is not None:
            self._stdout.close()

    def __call__(self, value: Any, *parts: Part) -> None:
        if not as_json():
            note(*parts)
        elif self._stdout is not None:
            with suppress(OSError):  # whoever read it is gone; the jobs go on
                self._stdout.write(orjson.dumps(value) + b"\n")

    def attempt(self, job: JobRow, state: str, seconds: float) -> None:
        """Tells of an attempt at a job that has ended."""
        self.attempts += 1
        told = {
            "event": "attempt", "job": job.id, "type": job.type, "tenant": job.tenant_id, "state": state,
            "attempt": job.attempts + 1, "seconds": round(seconds, 6),
        }  # fmt: skip
        again = " again" if state == "queued" else ""
        tool = orjson.loads(job.shown).get("tool")
        what = f"{job.type} {visible(tool)}" if isinstance(tool, str) else job.type
        words = f"{again}  {what}  {job.id}  {visible(job.tenant_id)}  {seconds * 1000:,.0f} ms"
        self(told, state_cell(state), words)


@contextmanager
def _signals(working: JobWorker, tell: _Told) -> Iterator[None]:
    """Has the first signal end it in order, the second at once, and any after that the process itself."""
    loop = asyncio.get_running_loop()
    handled = (signal.SIGINT, signal.SIGTERM)

    def remove() -> None:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            for one in handled:
                loop.remove_signal_handler(one)

    def told() -> None:
        if working.is_halting:
            working.hurry()
            remove()
            return
        working.halt()
        tell({"event": "stopping"}, ("Stopping", "yellow"), ": waiting for what runs. A second signal interrupts it.")

    with suppress(NotImplementedError, RuntimeError, ValueError):  # not on Windows, and not in a thread
        for one in handled:
            loop.add_signal_handler(one, told)
    try:
        yield
    finally:
        remove()
