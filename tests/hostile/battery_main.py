"""The driver of the battery, a program of its own: a host with something to lose, and hostile programs in its sandbox.

    python battery_main.py '{"jail": "bubblewrap", "language": "shell", "of": 4, "parts": [0, 1]}'

It prints one line of JSON for each program, and one at the end. It is run as a process of its own so that it can be run as
another user, and because what it watches for would end it: signals, memory, processes that nobody waits for.
"""

import asyncio
import ctypes
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.hostile.battery import Hostile, filled, programs
from toolgate.errors import NotReached, ToolgateError
from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.jail import MB, ProgramFolder
from toolgate.sandbox.jails.selection import make
from toolgate.sandbox.results import CodeResult, CommandResult
from toolgate.sandbox.self_check import check
from toolgate.settings import SandboxSettings

SECRET = "TOOLGATE_BATTERY_SECRET"
AT_ONCE = 6
LATE = 20.0
"""Seconds that a run may take beyond its limit: on a machine that is busy with five others, its start is among them. It is
less than what a limit that was not heeded would take: that of the sandbox is 30 s."""
PATIENCE = 30.0
"""Seconds for what has to come, and would at once on a machine with nothing else to do."""
LIMIT = 256 * MB
SLACK = 128 * MB
"""Of memory and of disk, beyond the limit: what is polled is seen a moment late."""
TURNS = 4
"""Turns of the event loop, of 20 ms at least, in which whoever polls has looked: who is over the limit before them and is
not killed after them is not held, however slow the machine."""
KILLED = 1 << (signal.SIGKILL - 1)
CAUGHT = (
    signal.SIGURG,
    signal.SIGWINCH,
    signal.SIGIO,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGHUP,
    signal.SIGTERM,
    signal.SIGINT,
)
PR_SET_CHILD_SUBREAPER = 36
NO_MORE_CHILDREN = 254
"""What bash ends with if it can start no other process."""
ENDED_BY_LIMITS = ("died",)
"""Kinds of failure: it was ended."""
ENDED_BY_NAME = ("MemoryError", "RecursionError")
"""Errors that nobody caught: there was no memory, or no stack."""


class Verdict(NamedTuple):
    """What came of one program."""

    name: str
    feature: str
    held: bool
    control: bool
    why: str
    seconds: float


class Host:
    """A process with something to lose: a secret in a file, in its environment and behind descriptors, sockets that answer,
    a folder that it may write. It notes whatever happens to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marker = f"marker-{uuid.uuid4().hex}"
        self.damage: list[str] = []
        self.under_way: set[str] = set()
        self.peaks: dict[int, tuple[int, str]] = {}
        self.turns = 0
        """How often the event loop has had its turn."""
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._descriptors: list[int] = []

    def open(self) -> None:
        """Lay everything out."""
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.secret = self.folder / "secret_of_the_host"
        self.secret.write_text(f"{self.marker}\n")
        self.outside = self.folder / "outside"
        self.outside.mkdir()
        (self.outside / "keep").write_text("kept")
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        # As open as can be: a program runs as another user where the host is root, and it is the jail that has to hold.
        self.folder.chmod(0o755)
        tempfile.tempdir = os.environ["TMPDIR"] = str(self.temporary)
        os.environ[SECRET] = self.marker
        for path in (self.secret, self.outside):
            self._descriptors.append(os.open(path, os.O_RDONLY))
            os.set_inheritable(self._descriptors[-1], True)
        self._listen()
        self._began_as = self._state()
        for number in CAUGHT:
            signal.signal(number, self._signalled)
        self._thread(self._sample)

    def _listen(self) -> None:
        tcp = self._socket(socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0))
        self.port = int(tcp.getsockname()[1])
        self._socket(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", self.port))
        with suppress(OSError):
            self._socket(socket.AF_INET6, socket.SOCK_STREAM, ("::1", self.port))
        self.socket = self.folder / "socket"
        self._socket(socket.AF_UNIX, socket.SOCK_STREAM, str(self.socket))
        self.abstract = f"toolgate-{uuid.uuid4().hex}"
        self._socket(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self.abstract}")

    def _socket(self, family: int, kind: int, address: Any) -> socket.socket:
        made = socket.socket(family, kind)
        made.bind(address)
        made.settimeout(0.2)
        if kind == socket.SOCK_STREAM:
            made.listen(16)
        self._sockets.append(made)
        self._thread(self._answer, made)
        return made

    def _thread(self, work: Any, *given: Any) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _answer(self, listener: socket.socket) -> None:
        while not self._ending.is_set():
            with suppress(TimeoutError):
                if listener.type == socket.SOCK_DGRAM:
                    listener.recv(100)
                else:
                    listener.accept()[0].close()
                self._note(f"somebody connected to {listener.getsockname()!r}")

    def _signalled(self, number: int, _frame: object) -> None:
        self._note(f"the host got {signal.Signals(number).name}")

    def _note(self, what: str) -> None:
        self.damage.append(f"{what} while there ran {', '.join(sorted(self.under_way))}")

    def places(self, link: str) -> dict[str, str]:
        """What programs may name of it."""
        return {
            "secret_file": str(self.secret),
            "secret_env": SECRET,
            "host_pid": str(os.getpid()),
            "host_port": str(self.port),
            "host_socket": str(self.socket),
            "host_abstract": self.abstract,
            "outside": str(self.outside),
            "link": link,
        }

    def _state(self) -> list[tuple[str, int, int, int, int]]:
        """What must not change: the files that are not a program's own."""
        paths = [self.secret, self.outside, *sorted(self.outside.rglob("*"))]
        return [(str(path), *_stat(path)) for path in paths]

    def look_round(self) -> list[str]:
        """What happened since it was last asked."""
        now = self._state()
        if now != self._began_as:
            self._note(f"files changed: {sorted(set(now) ^ set(self._began_as))}")
            self._began_as = now
        if self.secret.read_text() != f"{self.marker}\n":
            self._note("the secret was overwritten")
            self.secret.write_text(f"{self.marker}\n")
            self._began_as = self._state()
        found, self.damage = self.damage, []
        return found

    def _sample(self) -> None:
        """Watch the memory of each child with all that is below it, where it is over the limit for longer than it takes to
        be seen by those who look whether it is."""
        since: dict[int, int] = {}
        while not self._ending.wait(0.02):
            turns = self.turns
            for child in children(os.getpid()):
                members = (child, *descendants(child))
                taken = sum(map(memory_of, members))
                if taken > LIMIT + SLACK:
                    taken = sum(map(share_of, members))
                if taken <= LIMIT:
                    since.pop(child, None)
                elif turns - since.setdefault(child, turns) >= TURNS and taken > self.peaks.get(child, (0, ""))[0]:
                    self.peaks[child] = (taken, ", ".join(sorted(self.under_way)))

    async def turn(self) -> None:
        """Count the turns of the event loop."""
        while True:
            self.turns += 1
            await asyncio.sleep(0.02)

    def close(self) -> None:
        """Stop listening and watching."""
        self._ending.set()
        for thread in self._threads:
            thread.join()
        for listener in self._sockets:
            listener.close()
        for descriptor in self._descriptors:
            os.close(descriptor)


def _stat(path: Path) -> tuple[int, int, int, int]:
    found = path.lstat()
    return found.st_mode, found.st_uid, 0 if path.is_dir() else found.st_size, found.st_mtime_ns


def children(pid: int) -> list[int]:
    """The processes that a process waits for."""
    found: list[int] = []
    for task in _names(f"/proc/{pid}/task"):
        with suppress(OSError):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def descendants(pid: int) -> Iterator[int]:
    """They, and all below them."""
    for child in children(pid):
        yield child
        yield from descendants(child)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - gone at any moment, and often
    except OSError:
        return []


def memory_of(pid: int) -> int:
    """What is its own or shared among its like; not the programs and libraries that it maps. One that is killed has nothing
    more, though on a busy machine it takes a while to die."""
    total = 0
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) * 1024
            elif line.startswith(("SigPnd:", "ShdPnd:")) and int(line.split()[1], 16) & KILLED:
                return 0
    return total


def share_of(pid: int) -> int:
    """The same, of what it shares with others only its part."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                total += int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except PermissionError:
        return memory_of(pid)
    return min(total, memory_of(pid))


class Battery:
    """Runs programs of one language in one jail."""

    def __init__(self, host: Host, jail: str, language: str, deno: str | None) -> None:
        self.host = host
        self.language = language
        settings = {"backend": jail, "deno": deno, "monty": False, "warm": 2, "memory_mb": 256, "seconds": 30}
        self.sandbox = Sandbox(SandboxSettings.model_validate(settings))
        self._room = asyncio.Semaphore(AT_ONCE)
        self._controls: dict[tuple[str, bool], asyncio.Task[str]] = {}
        self._workspaces = 0

    async def judge(self, program: Hostile) -> Verdict:
        """Run a program and its control, and say what came of it."""
        said = await self._control(program)
        async with self._room:
            begun = time.perf_counter()
            self.host.under_way.add(program.name)
            try:
                with self._workspace(program) as workspace:
                    why = await self._provoke(program, workspace)
            finally:
                took = time.perf_counter() - begun
                damage = self.host.look_round()
                self.host.under_way.discard(program.name)
        why = "; ".join(filter(None, (why, *damage)))
        control = "control ok" in said.splitlines()
        if not control:
            why = f"{why}; the control said {said[-300:]!r}"
        return Verdict(program.name, program.feature, not why, control, why, took)

    async def _control(self, program: Hostile) -> str:
        """What the control said. Many programs have the same one."""
        kind = (program.control, program.workspace)
        if kind not in self._controls:
            self._controls[kind] = asyncio.ensure_future(self._run_control(program))
        return await self._controls[kind]

    async def _run_control(self, program: Hostile) -> str:
        async with self._room:
            with self._workspace(program) as workspace:
                try:
                    ran = await self._run(filled(program.control, self.host.places("link")), PATIENCE, workspace)
                except ToolgateError as error:
                    return error.message
        return f"{ran.stdout}\n{ran.stderr}\n{_ending(ran)}" if "control ok" not in ran.stdout.splitlines() else ran.stdout

    async def _provoke(self, program: Hostile, workspace: Path | None) -> str:
        """Run it. Gives what is wrong, or nothing."""
        try:
            ran = await self._run(filled(program.code, self.host.places("link")), program.seconds, workspace)
        except ToolgateError as error:
            return f"it was not run: {error.message}"
        said = f"{ran.stdout}\n{ran.stderr}\n{_ending(ran)}"
        wrong = [line for line in said.splitlines() if line.startswith("ESCAPED")][:5]
        if self.host.marker in said:
            wrong.append("the marker came out")
        if isinstance(ran, CodeResult) and len(repr(ran.value)) > MB + 1000:
            wrong.append("its result is too big")
        if max(len(ran.stdout), len(ran.stderr)) > MB:
            wrong.append(f"{len(ran.stdout)} and {len(ran.stderr)} characters came out")
        if ran.seconds > program.seconds + LATE:
            wrong.append(f"it took {ran.seconds:.1f} s")
        if "held" not in ran.stdout.splitlines() and not _was_ended(ran):
            wrong.append(f"it neither succeeded nor failed: {said[-500:]!r}")
        if workspace is not None and (used := disk_use(workspace)) > 64 * MB + SLACK:
            wrong.append(f"{used} bytes in its workspace")
        return "; ".join(wrong)

    async def _run(self, code: str, seconds: float, workspace: Path | None) -> CodeResult | CommandResult:
        folder = None if workspace is None else ProgramFolder(path=workspace)
        if self.language == "shell":
            return await self.sandbox.run_command(("/bin/bash", "-c", code), workspace=folder, seconds=seconds)
        if self.language == "python":
            return await self.sandbox.run_code("python", code, workspace=folder, seconds=seconds)
        return await self.sandbox.run_code("typescript", code, seconds=seconds)

    @contextmanager
    def _workspace(self, program: Hostile) -> Iterator[Path | None]:
        if not program.workspace:
            yield None
            return
        self._workspaces += 1
        made = self.host.folder / "workspaces" / str(self._workspaces) / "work"
        made.mkdir(parents=True)
        (made / "link").symlink_to(self.host.secret)
        yield made
        if (beside := [path.name for path in made.parent.iterdir()]) != ["work"]:
            self.host._note(f"beside the workspace there is {beside}")

    async def _until_alone(self) -> None:
        """What was killed a moment ago may still be dying."""
        end = time.monotonic() + PATIENCE
        while list(descendants(os.getpid())) and time.monotonic() < end:
            await asyncio.sleep(0.05)

    async def close(self) -> list[str]:
        """What is left that should not be."""
        await self.sandbox.close()
        await self._until_alone()
        wrong = self.host.look_round()
        if left := [f"{pid} {_command(pid)}" for pid in descendants(os.getpid())]:
            wrong.append(f"processes were left: {left}")
        if rubbish := [path.name for path in self.host.temporary.iterdir()]:
            wrong.append(f"files were left: {rubbish}")
        wrong += [
            f"{taken // MB} MB were taken while there ran {names}"
            for taken, names in self.host.peaks.values()
            if taken > LIMIT + SLACK
        ]
        return wrong


def _was_ended(ran: CodeResult | CommandResult) -> bool:
    if ran.stopped is not None:
        return True
    if isinstance(ran, CommandResult):
        return ran.exit_code < 0 or 128 < ran.exit_code <= 192 or ran.exit_code == NO_MORE_CHILDREN
    return ran.failure is not None and (ran.failure.kind in ENDED_BY_LIMITS or ran.failure.name in ENDED_BY_NAME)


def _ending(ran: CodeResult | CommandResult) -> str:
    if isinstance(ran, CommandResult):
        return f"exit code {ran.exit_code}, stopped {ran.stopped}"
    return f"{ran.value!r:.3000}, {ran.failure!r}, stopped {ran.stopped}"


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    except OSError:
        return "gone"


def disk_use(folder: Path) -> int:
    """Bytes on disk, of what can be seen."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118 - tens of thousands
    return total


async def main(order: dict[str, Any]) -> None:
    """Run a part of the battery: every n-th program, or those that are named."""
    if order["language"] == "self_check":
        await self_check(order["jail"])
        return
    chosen = programs(order["language"])
    if names := order.get("names"):
        chosen = [program for program in chosen if program.name in names]
    else:
        chosen = [program for number, program in enumerate(chosen) if number % order["of"] in order["parts"]]
    # Not in /tmp: a jail has a /tmp of its own, and what a program writes there it may write.
    with tempfile.TemporaryDirectory(prefix="toolgate-battery-", dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        host = Host(Path(folder))
        host.open()
        battery = Battery(host, order["jail"], order["language"], order.get("deno"))
        turning = asyncio.ensure_future(host.turn())
        try:
            jail = await battery.sandbox.jail()
        except NotReached as error:
            say({"unavailable": error.message, "code": error.code})
            return
        for judged in asyncio.as_completed([battery.judge(program) for program in chosen if not program.alone]):
            say((await judged)._asdict())
        for program in chosen:
            if program.alone:
                say((await battery.judge(program))._asdict())
        wrong = await battery.close()
        turning.cancel()
        host.close()
        grown = int(
            next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")).split()[1]
        )
        say({"done": len(chosen), "jail": jail.name, "wrong": wrong, "uid": os.getuid(), "host_mb": grown // 1024})


async def self_check(jail: str) -> None:
    """Run the suite that ships with the port."""
    made = make(jail)
    try:
        for checked in await check(made):
            say(msgspec.to_builtins(checked))
    finally:
        await made.close()


def say(what: dict[str, Any]) -> None:
    """One line, at once."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
