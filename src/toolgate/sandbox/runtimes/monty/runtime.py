"""The runtime for small Python: Monty, an interpreter that has no files, no network and no processes to begin with.

A worker process serves one run after another, each in a session of its own, so a run costs a tenth of a millisecond. What
Monty can't run wholly is known before (`subset`). On Linux its workers are held as well: no rights, no files but the
system's libraries, a filter of system calls, and they end with us.

Its synchronous interface is used, in threads of ours: the asynchronous one of 1.4.0 aborts the process at exit, one time in
three. Its time limit is backed by a kill, since it can't see into one long operation.
"""

import asyncio
import errno
import fcntl
import logging
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, BinaryIO

from toolgate.sandbox.jail import FEATURES, MB, Feature, ResourceLimits, Spec, Stopped, Unavailable
from toolgate.sandbox.runtimes.monty.run import MontyResult, MontyRun, MontyToolCalls
from toolgate.sandbox.runtimes.monty.subset import misfit
from toolgate.sandbox.worker_protocol import CodeFailure, Serve
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from pydantic_monty import Monty

GRACE_SECONDS = 0.25
"""The time that Monty's own limit gets to be noticed before the worker is killed."""
RUNS_OF_A_WORKER = 5_000
FOLDER_PREFIX = "toolgate-monty-"
BUSY_SECONDS = 5.0
SPARE_MEMORY = 64 * MB
"""Memory of a worker beyond what it counts as the program's."""

logger = logging.getLogger("toolgate.sandbox")


class MontyRuntime:
    """A pool of Monty's workers. Nothing is started before the first run."""

    name = "monty"

    def __init__(self, limits: ResourceLimits, at_once: int | None = None) -> None:
        self._limits = limits
        self._at_once = at_once or max(2, min(8, os.cpu_count() or 2))
        self._threads = ThreadPoolExecutor(self._at_once, "toolgate-monty")
        self._starting = Lock()
        self._pool: Monty | None = None
        self._held: ConfinedCommand | None = None
        self._turns: set[MontyRun] = set()
        self._closed = False
        self.broken: str | None = None
        """Why it does not start, once that is known."""

    def takes(self, job: Mapping[str, Any]) -> bool:
        mode = job["mode"]
        if mode not in ("script", "program") or self.broken is not None or not is_installed():
            return False
        return misfit(job["code"], mode == "program") is None

    def enforces(self) -> Mapping[Feature, str]:
        held = "Monty has no such thing" + ("" if self._held is None else ", and its worker is held by the kernel")
        means: dict[Feature, str] = dict.fromkeys(FEATURES, held)
        means["memory"] = "counted by Monty, and the kernel's limit for its worker"
        means["cpu"] = "one thread"
        means["time"] = "counted by Monty, and a kill by the host"
        means["output"] = "cut off by the host"
        return means

    async def run(
        self, job: Mapping[str, Any], serve: Serve | None, limits: ResourceLimits
    ) -> tuple[MontyResult, Stopped | None]:
        """Run a job that `takes` took, to its end or to the limit that it meets first."""
        loop = asyncio.get_running_loop()
        turn = MontyRun(job, limits, MontyToolCalls(loop, serve, job.get("tools")))
        self._turns.add(turn)
        timer = loop.call_later(limits.seconds + GRACE_SECONDS, turn.stop, "time")
        try:
            return await loop.run_in_executor(self._threads, self._run, turn)
        finally:
            timer.cancel()
            self._turns.discard(turn)
            turn.stop(None)

    def _run(self, turn: MontyRun) -> tuple[MontyResult, Stopped | None]:
        with self._starting:
            try:
                pool = self._pool or self._start()
            except Unavailable as error:
                self.broken = error.message
                logger.warning("Monty is not used: %s", error.message)
                return MontyResult(failure=CodeFailure("died", error.message), doubtful=True), None
        return turn.run(pool)

    def _start(self) -> "Monty":
        """Start a worker and see whether it works."""
        from pydantic_monty import Monty, MontyError

        if self.broken is not None:
            raise Unavailable(self.broken)
        binary = find_binary()
        self._held = ConfinedCommand.made(binary, self._limits)
        if self._held is not None:
            self._held.wait_until_closed()
        pool = Monty(
            binary_path=binary if self._held is None else self._held.path,
            min_processes=1,
            max_processes=self._at_once,
            max_checkouts_per_worker=RUNS_OF_A_WORKER,
            feed_duration_limit_grace=GRACE_SECONDS,
        )
        try:
            pool.__enter__()
            with pool.checkout() as session:
                session.feed_run("1")
        except (MontyError, OSError, RuntimeError) as error:
            said = "" if self._held is None else self._held.last_words()
            with suppress(MontyError, OSError, RuntimeError):
                pool.__exit__(None, None, None)
            self._let_go()
            raise Unavailable(f"Monty cannot be started: {said or error}") from error
        self._pool = pool
        return pool

    @property
    def busy(self) -> bool:
        """True if all its threads are taken: a program that calls tools holds one while the tool runs."""
        return len(self._turns) >= self._at_once

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for turn in list(self._turns):
            turn.stop(None)
        await to_thread(self._close)

    def _close(self) -> None:
        # The pool goes in a thread that started workers: they end with the thread that started them.
        self._threads.submit(self._close_pool).result()
        self._threads.shutdown()
        self._let_go()

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.remove()
            self._held = None

    def _close_pool(self) -> None:
        if self._pool is not None:
            self._pool.__exit__(None, None, None)
            self._pool = None


@cache
def is_installed() -> bool:
    with suppress(ImportError, FileNotFoundError):
        return find_binary().is_file()
    return False


def find_binary() -> Path:
    from pydantic_monty._binary import find_monty_binary

    return Path(find_monty_binary()).resolve()


# -- what holds its workers on Linux: the starter of all jails, without a jail around it


class ConfinedCommand:
    """A command that starts a worker without rights: the starter, which reads its order from a file beside it.

    Monty's pool starts its workers by itself, so it is given a command that confines itself first: another user, no
    capabilities, no files but the system's libraries, a filter of system calls, and an end when we end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / "monty-held"
        self._errors = folder / "errors"
        self._lock: BinaryIO | None = None
        """Held as long as we live, so that others know whose folder is nobody's."""

    @classmethod
    def made(cls, binary: Path, limits: ResourceLimits) -> "ConfinedCommand | None":
        """None where there is nothing to hold it with."""
        from toolgate.sandbox.jails.landlock import LANDLOCK_VERSION, version

        if version() < LANDLOCK_VERSION:
            return None
        _sweep()
        held = cls(Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX)))
        held._write(binary, limits)
        return held

    def _write(self, binary: Path, limits: ResourceLimits) -> None:
        from toolgate.sandbox.jails.inside_files import STARTER, python

        self._folder.chmod(0o711)
        if os.geteuid() == 0:
            binary = self._reachable(binary)
        order = self._folder / "order"
        order.write_bytes(_order(binary, limits))
        self._lock = order.open("rb")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        command = shlex.join([str(python()), "-I", "-S", "-B", str(STARTER), "9"])
        errors = shlex.quote(str(self._errors))
        self.path.write_text(f"#!/bin/sh\nexec 9<{shlex.quote(str(order))} 2>>{errors}\nexec {command}\n")
        self.path.chmod(0o700)

    def _reachable(self, binary: Path) -> Path:
        """A name by which anybody may run it: folders of root's are often closed to others."""
        own = self._folder / "monty"
        with suppress(OSError):
            own.hardlink_to(binary)
            return own
        shutil.copyfile(binary, own)
        own.chmod(0o755)
        return own

    def wait_until_closed(self) -> None:
        """Waits until nobody has the command open for writing, when the kernel would not start it. A process that another
        thread forked while it was written has it open, for the moment until it starts its own program."""
        until = monotonic() + BUSY_SECONDS
        with self.path.open("rb") as command:
            while monotonic() < until:
                try:
                    fcntl.fcntl(command, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                    return
                except OSError as error:
                    if error.errno != errno.EAGAIN:  # there is a writer; anything else: no leases on this file system
                        return
                sleep(0.01)

    def last_words(self) -> str:
        """The stderr of a worker that could not be started."""
        with suppress(OSError):
            return self._errors.read_text("utf-8", "replace").strip()[-300:]
        return ""

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


def _sweep() -> None:
    """Remove what was left by those who were killed."""
    for order in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*/order"):
        with suppress(OSError), order.open("rb") as lock:
            if order.stat().st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(order.parent, ignore_errors=True)


def _order(binary: Path, limits: ResourceLimits) -> bytes:
    """The starter's order, as for a jail's worker, but for the limits: a worker serves many runs."""
    from toolgate.sandbox.jails.identity import choose
    from toolgate.sandbox.jails.launch import order, packed, system_paths
    from toolgate.sandbox.jails.seccomp import program

    spec = Spec(profile="deno", argv=(str(binary), "subprocess"), limits=limits)
    readable = [str(view.path) for view in system_paths() if view.kind == "bind"]
    rules = [{"path": path, "write": False, "execute": True} for path in (*readable, str(binary))]
    said = order(
        spec,
        identity=choose(spec, mapped=()),
        home="/",
        temporary="/",
        work="/",
        filter=program("deno", alone=True),  # which lets the starter's place be taken once
        landlock={"rules": rules},
    )
    most = limits.memory + SPARE_MEMORY
    numbers = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_MEMLOCK": 0, "RLIMIT_NOFILE": 64, "RLIMIT_DATA": most}
    # One thread needs no core of its own, and all workers have this same order.
    said |= {"rlimits": {name: (value, value) for name, value in numbers.items()}, "environment": {}, "cpu": None}
    said["ends_with_parent"] = True
    return packed(said)
