"""Attempts that any jail must stop: `trial`, before a jail is relied on, and `check`, the suite that ships for all jails.

Attempts to get at something of this process or to use more than was allowed; beside them controls, the same means put to a
permitted use. What an attempt did not get counts as held only if its control worked, since in a jail that fails to start
nothing succeeds either. The trial is one process that makes the most important attempts. The suite makes at least two for
every feature, as Python in one process and as a command that may start others.
"""

import asyncio
import marshal
import os
import re
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Self

import msgspec

from toolgate.sandbox.jail import MB, Feature, Jail, JailedProcess, Profile, ResourceLimits, Spec, Stopped, Unavailable
from toolgate.sandbox.jails.inside_files import INSIDE, python
from toolgate.sandbox.jails.process_tree import read
from toolgate.sandbox.runtimes import shell
from toolgate.sandbox.runtimes.python import find_python
from toolgate.threads import to_thread

PROBE = INSIDE / "probe.py"
TRIAL_LIMITS = ResourceLimits(seconds=5, memory=128 * MB, disk=2 * MB)
TRIAL_SECONDS = 10.0
CHECK_LIMITS = ResourceLimits(seconds=10, memory=128 * MB, disk=8 * MB, files=500, processes=32, output=MB)
TOO_MUCH = {"megabytes": 192, "megabytes_of_disk": 48, "files": 4_000}
ATTEMPT_SECONDS = 30.0
"""Seconds until an attempt is given up; none needs as many, but on a machine that is busy with other things."""
MAX_KILL_SECONDS = 10.0
BURN_SECONDS = 0.6
"""Seconds of an attempt to use more than one processor."""
MAX_CONCURRENT_ATTEMPTS = 4

TRIAL: dict[str, Feature] = {
    "read_a_file": "files", "write_to_the_system": "files", "own_environment": "environment", "open_a_socket": "network",
    "fork": "processes", "make_a_namespace": "processes", "take_memory": "memory", "take_all_processors": "cpu",
    "signal_the_host": "signals", "fill_a_file": "disk",
}  # fmt: skip
"""The attempts of the trial, by what should hold them. The other features, time and output, are held by the host itself."""
TRIAL_CONTROLS = ("own_file", "start_a_thread")

IN_ONE: dict[Feature, tuple[str, ...]] = {
    "files": ("own_file", "read_a_file", "read_by_another_root", "read_by_a_link", "write_a_file"),
    "environment": ("home", "own_environment", "environment_of_others"),
    "network": ("talk_to_itself", "connect", "connect_by_path"),
    "processes": ("start_a_thread", "start_a_program", "make_a_namespace", "become_root"),
    "cpu": ("compute", "take_all_processors", "go_first"),
    "signals": ("signal_itself", "signal_another"),
}
"""The attempts of the probe in one process: a feature's control, then its attempts."""

APART: tuple[tuple[Feature, str, str], ...] = (
    ("memory", "some_memory", "take_memory"),
    ("memory", "some_memory", "take_shared_memory"),
    ("disk", "some_disk", "fill_the_disk"),
    ("disk", "some_disk", "make_many_files"),
)
"""Attempts that it may be ended for."""

COMMANDS: tuple[tuple[Feature, str, str, str], ...] = (
    ("files", "read_as_a_command", "echo x > own && cat own > /dev/null", "cat {secret}"),
    ("files", "write_as_a_command", "echo x > own", "echo x > {outside}/command"),
    (
        "environment",
        "environment_of_a_command",
        'test -n "$HOME"',
        "cat /proc/self/environ /proc/1/environ /proc/{host}/environ | grep {variable}",
    ),
    ("signals", "signal_as_a_command", "kill -0 $$", "kill -9 {victim}"),
    (
        "memory",
        "memory_of_children",
        "dd if=/dev/zero of=/dev/null bs=10M count=2",
        "for n in 1 2 3 4 5 6; do dd if=/dev/zero of=/dev/null bs=60M count=40 & done; wait",
    ),
    (
        "disk",
        "disk_of_a_command",
        "dd if=/dev/zero of=some bs=1M count=1",
        "dd if=/dev/zero of=a bs=1M count=6 && dd if=/dev/zero of=b bs=1M count=6 && sleep 5",
    ),
)
"""Name, control, attempt: each succeeds by its exit code."""

MANY_PROCESSES: tuple[Feature, str, str, str] = (
    "processes",
    "many_processes",
    "sh -c true",
    "n=0; while [ $n -lt 80 ]; do sleep 2 & n=$((n + 1)); done; test $(jobs -p | wc -l) -ge 80",
)


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one attempt."""

    feature: Feature
    name: str
    held: bool
    control: bool
    """True if the permitted use of the same means worked."""
    detail: str

    @property
    def passed(self) -> bool:
        """True if it says that the jail is sound."""
        return self.held and self.control


class Bait:
    """Something to be got of this process: a file that anybody may read, and a variable."""

    def __init__(self) -> None:
        self.marker = secrets.token_hex(16)
        self.variable = f"TOOLGATE_CHECK_{secrets.token_hex(4)}"

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="toolgate-check-")
        self.folder = Path(self._folder.name)
        # As open to others as can be: it is the jail that has to hold.
        self.folder.chmod(0o755)
        (self.folder / "secret").write_text(self.marker)
        (self.folder / "secret").chmod(0o644)
        os.environ[self.variable] = self.marker
        return self

    def __exit__(self, *_: object) -> None:
        os.environ.pop(self.variable, None)
        self._folder.cleanup()

    def words(self) -> dict[str, str | int]:
        """For whoever tries to get it."""
        return {"secret": str(self.folder / "secret"), "variable": self.variable, "host": os.getpid()}


class LiveBait(Bait):
    """And a folder that anybody may write to, sockets that answer, and a process to be killed."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.outside, self.socket = self.folder / "outside", self.folder / "socket"
        self.outside.mkdir()
        self.outside.chmod(0o777)
        self._listeners = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)]
        self._listeners[1].bind(str(self.socket))
        self.socket.chmod(0o777)
        for listener in self._listeners:
            listener.listen()
            listener.setblocking(False)
        self._victim = subprocess.Popen(("sleep", "60"))
        return self

    def __exit__(self, *_: object) -> None:
        self._victim.kill()
        self._victim.wait()
        for listener in self._listeners:
            listener.close()
        super().__exit__()

    def words(self) -> dict[str, str | int]:
        return super().words() | {
            "outside": str(self.outside),
            "socket": str(self.socket),
            "port": self._listeners[0].getsockname()[1],
            "victim": self._victim.pid,
            **TOO_MUCH,
        }

    def harm(self) -> dict[Feature, str]:
        """The harm that was done to it, whatever the attempts said."""
        found: dict[Feature, str] = {}
        if self._victim.poll() is not None:
            found["signals"] = "a process of the host was killed"
        if list(self.outside.iterdir()):
            found["files"] = "a file of the host was written"
        for listener in self._listeners:
            try:
                listener.accept()[0].close()
            except BlockingIOError:
                continue
            found["network"] = "the host was reached"
        return found


async def trial(jail: Jail) -> None:
    """Raises Unavailable if the jail cannot be started, lets something through, or lets nothing work."""
    *attempts, last = TRIAL  # the host may put an end to whoever fills the disk
    limits: dict[str, str | int] = {"megabytes": TRIAL_LIMITS.memory // MB, "megabytes_of_disk": TRIAL_LIMITS.disk // MB + 2}
    with Bait() as bait:
        argv = _probe(str(python()), bait.words() | limits, [*attempts, *TRIAL_CONTROLS, last])
        process = await jail.start(Spec(profile="python", argv=argv, limits=TRIAL_LIMITS))
        try:
            async with asyncio.timeout(TRIAL_SECONDS):
                code, said, complained = await shell.converse(process, b"", TRIAL_LIMITS)
        except TimeoutError:
            raise Unavailable(f"The trial did not end within {TRIAL_SECONDS:g} s.") from None
        finally:
            await process.close()
    found = _answers(said)
    got, held = ({name for name, what in found.items() if what.startswith(how)} for how in ("got", "held"))
    if got & TRIAL.keys():
        holes = (f"{feature}: {name.replace('_', ' ')}" for name, feature in TRIAL.items() if name in got)
        raise Unavailable(f"It does not hold: {'; '.join(holes)}")
    if process.stopped == "disk":
        held.add(last)
    if not got.issuperset(TRIAL_CONTROLS) or not held.issuperset(TRIAL):
        raise Unavailable(f"It cannot be started here: {complained.strip()[-300:] or f'exit code {code}'}.")


async def check(jail: Jail, *, python: Path | None = None) -> list[CheckResult]:
    """Try everything; takes a few seconds. `python`: the interpreter for the attempts that are in Python."""
    room = asyncio.Semaphore(MAX_CONCURRENT_ATTEMPTS)
    interpreter = str(find_python(python))

    async def in_turn(work: Awaitable[list[CheckResult]]) -> list[CheckResult]:
        async with room:
            return await work

    with LiveBait() as bait:
        attempts = EscapeAttempts(jail, bait, interpreter)
        found = await asyncio.gather(
            in_turn(attempts.in_one_process()),
            *(in_turn(attempts.apart(*each)) for each in APART),
            *(in_turn(attempts.command(*each)) for each in COMMANDS),
            in_turn(attempts.processors()),
            in_turn(attempts.deaf()),
            in_turn(attempts.left_behind()),
            in_turn(attempts.flood("flood", lambda process: process.read)),
            in_turn(attempts.flood("flood_errors", lambda process: process.read_errors)),
        )
        # Alone: where a jail counts the processes of a user, the others would find none left.
        found.append(await attempts.command(*MANY_PROCESSES))
        harm = bait.harm()
    checked = [each for some in found for each in some]
    return checked + [CheckResult(feature, "seen_by_the_host", False, True, what) for feature, what in harm.items()]


class EscapeAttempts:
    """All of them, in one jail."""

    def __init__(self, jail: Jail, bait: LiveBait, python: str) -> None:
        self._jail = jail
        self._bait = bait
        self._python = python

    async def in_one_process(self) -> list[CheckResult]:
        """All that the probe can try without being ended for it."""
        said = await self._probe([name for names in IN_ONE.values() for name in names])
        return [
            self._judged(feature, control, name, said) for feature, (control, *names) in IN_ONE.items() for name in names
        ]

    async def apart(self, feature: Feature, control: str, name: str) -> list[CheckResult]:
        return [self._judged(feature, control, name, await self._probe([control, name]))]

    def _judged(self, feature: Feature, control: str, name: str, said: str) -> CheckResult:
        words = _answers(said)
        got, permitted = words.get(name, "held: it was ended"), words.get(control, "")
        held = got.startswith("held") and self._bait.marker not in said
        return CheckResult(feature, name, held, permitted.startswith("got"), got if permitted else said[-300:])

    async def _probe(self, what: Sequence[str]) -> str:
        return await self._hear("python", self._for_probe(what))

    def _for_probe(self, what: Sequence[str]) -> tuple[str, ...]:
        return _probe(self._python, self._bait.words(), what)

    async def command(self, feature: Feature, name: str, control: str, attempt: str) -> list[CheckResult]:
        """The same as a shell would do it."""
        for word, value in self._bait.words().items():
            attempt = attempt.replace("{" + word + "}", str(value))
        said = await self._hear("shell", ("/bin/sh", "-c", f"{control} && echo control ok\n{attempt} && echo escaped"))
        lines = said.splitlines()
        held = "escaped" not in lines and self._bait.marker not in said
        return [CheckResult(feature, name, held, "control ok" in lines, said.strip()[-300:])]

    async def processors(self) -> list[CheckResult]:
        """Three that compute at once get no more than one processor."""
        burn = f'for n in 1 2 3; do (while :; do :; done) & all="$all $!"; done; sleep {BURN_SECONDS}; kill $all; wait'
        clocked = f'began=$(date +%s%N); {burn}; echo "from $began to $(date +%s%N)"; times'
        said = await self._hear("shell", ("/bin/sh", "-c", clocked))
        spent = [60 * float(minutes) + float(seconds) for minutes, seconds in re.findall(r"(\d+)m([\d.]+)s", said)]
        used = sum(spent[-2:])
        # On a busy machine a sleep takes longer than it should, and the others compute meanwhile.
        clock = re.search(r"from (\d+) to (\d+)", said)
        took = max(BURN_SECONDS, (int(clock[2]) - int(clock[1])) / 1e9) if clock else BURN_SECONDS
        detail = f"{used:.2f} s in {took:.2f} s; {said[-100:]!r}"
        return [CheckResult("cpu", "three_at_once", used < 1.5 * took, used > 0.01 * BURN_SECONDS, detail)]

    async def deaf(self) -> list[CheckResult]:
        """One that heeds no signal is ended all the same, and the reason is kept."""
        began, stopped = await self._end("python", self._for_probe(["never_end"]), _first_words, "time")
        return [CheckResult("time", "never_end", stopped == "time", b"ready" in began, f"{stopped}; {began[-300:]!r}")]

    async def left_behind(self) -> list[CheckResult]:
        """One that leaves a child in the background and goes."""
        seconds = f"61.{secrets.randbelow(10**9):09}"
        script = f"(trap '' TERM HUP INT; exec sleep {seconds}) > /dev/null 2>&1 & echo ready"
        began, _ = await self._end("shell", ("/bin/sh", "-c", script), _first_words, None)
        left = await to_thread(_runs, seconds)
        return [CheckResult("time", "left_behind", not left, b"ready" in began, f"still there: {left}")]

    async def flood(
        self, name: str, which: Callable[[JailedProcess], Callable[[int], Awaitable[bytes]]]
    ) -> list[CheckResult]:
        """One that writes for ever is heard as far as is wanted, then ended."""

        async def as_far_as_wanted(process: JailedProcess) -> bytes:
            heard = b""
            while len(heard) < CHECK_LIMITS.output and (piece := await which(process)(65_536)):
                heard += piece
            return heard

        heard, stopped = await self._end("python", self._for_probe([name]), as_far_as_wanted, "output")
        detail = f"{stopped}; {len(heard)} bytes; {heard[:200]!r}"
        return [CheckResult("output", name, stopped == "output", len(heard) >= CHECK_LIMITS.output, detail)]

    async def _end(
        self,
        profile: Profile,
        argv: tuple[str, ...],
        until: Callable[[JailedProcess], Awaitable[bytes]],
        why: Stopped | None,
    ) -> tuple[bytes, Stopped | None]:
        """Start it, wait for a sign, end it. Why it was ended is none if it is not gone soon."""
        try:
            process = await self._jail.start(Spec(profile=profile, argv=argv, limits=CHECK_LIMITS))
        except Unavailable as error:
            return str(error).encode(), None
        sign = b""
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                sign = await until(process)
            process.kill(why)
            async with asyncio.timeout(MAX_KILL_SECONDS):
                await process.wait()
            return sign, process.stopped
        except TimeoutError:
            return sign, None
        finally:
            await process.close()

    async def _hear(self, profile: Profile, argv: tuple[str, ...]) -> str:
        try:
            process = await self._jail.start(Spec(profile=profile, argv=argv, limits=CHECK_LIMITS))
        except Unavailable as error:
            return str(error)
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                _, said, complained = await shell.converse(process, b"", CHECK_LIMITS)
        except TimeoutError:
            return f"it did not end within {ATTEMPT_SECONDS:g} s"
        finally:
            await process.close()
        return f"{said}\n{complained}"


def _probe(interpreter: str, bait: dict[str, str | int], what: Sequence[str]) -> tuple[str, ...]:
    return (interpreter, str(PROBE), marshal.dumps({**bait, "what": list(what)}, 2).hex())


def _answers(said: str) -> dict[str, str]:
    return {name: what for name, _, what in (line.partition(" ") for line in said.splitlines())}


async def _first_words(process: JailedProcess) -> bytes:
    return await process.read(4096)


def _runs(argument: str) -> bool:
    """True if a process with that argument is alive on this machine."""
    commands = (read(f"/proc/{name}/cmdline") for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return any(argument.encode() in command.split(b"\0") for command in commands)
