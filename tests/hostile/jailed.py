"""Programs that any jail must hold, and a host to hold them, run as root (if we are) and as an ordinary user."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests import needs

ROOT = Path(__file__).resolve().parents[2]
ORDINARY = 54_321 + os.getpid() % 10_000
"""A user that nobody is, and one of its own for each process that runs tests: with Landlock alone, a user's jails share one
count of processes."""
USERS = ("root", "ordinary")
"""A test for the first waits where we are not root (tests/needs.py)."""
MB = 1024 * 1024


class Case(NamedTuple):
    """A program that says `control ok` once it has done something that it may, then tries what it may not, and says `held`,
    or `ESCAPED`. One that runs into a limit says no more."""

    name: str
    code: str
    profile: str = "python"
    limits: dict[str, Any] = {}  # noqa: RUF012 - never changed
    stopped: tuple[str, ...] = ()
    """The limits of which one must have ended it; none: it must have come to its end."""
    alone: bool = False
    """Whether it takes all the processes that its user may have: with Landlock, those of the programs beside it too."""


BEGIN = """
import ctypes, errno, os, signal, socket, sys, threading, time
def control():
    print("control ok", flush=True)
def attempt(what, *given, name="", **named):
    try:
        got = what(*given, **named)
    except (OSError, MemoryError, RuntimeError, ValueError) as error:
        return error
    print("ESCAPED", name, what, given, got, flush=True)
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *given):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(one) if isinstance(one, int) else one for one in given])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
NAMESPACES = (0x10000000, 0x20000, 0x40000000, 0x20000000)
FORBIDDEN = {"io_uring_setup": 425, "open_tree": 428, "fsopen": 430, "clone3": 435, "pidfd_getfd": 438}
UNSHARE, CLONE, SIGNALLING = 97, 220, (129, 130, 138)
if os.uname().machine == "x86_64":
    UNSHARE, CLONE, SIGNALLING = 272, 56, (62, 200, 129)
    FORBIDDEN |= {"ptrace": 101, "keyctl": 250, "add_key": 248, "bpf": 321, "userfaultfd": 323, "memfd_create": 319,
        "perf_event_open": 298, "personality": 135, "open_by_handle_at": 304, "mount": 165, "setns": 308,
        "process_vm_readv": 310, "shmget": 29, "mq_open": 240, "kexec_load": 246, "pivot_root": 155, "swapon": 167,
        "init_module": 175, "iopl": 172, "modify_ldt": 154, "setuid": 105, "capset": 126, "acct": 163}
"""
END = """
print("held", flush=True)
"""

COMMON = (
    Case("files", """
own = os.path.join(os.environ["TMPDIR"], "own")
open(own, "w").write("own")
assert open(own).read() == "own" and os.getcwd()
control()
for path in ("SECRET", "/etc/passwd", "/etc/shadow", "/proc/HOST_PID/environ", "/proc/HOST_PID/root/etc/passwd",
             "/proc/1/root/SECRET", "/proc/1/mem", "/proc/1/environ", "/proc/kcore", "/dev/mem", "/dev/vda", "OUTSIDE/keep"):
    attempt(lambda: open(path, "rb").read(1), name=path)
for path in ("OUTSIDE/new", "/usr/new", "/etc/new", "/new", "/proc/sys/kernel/core_pattern", "OUTSIDE/keep"):
    attempt(lambda: open(path, "ab").write(b"x"), name=path)
attempt(os.listdir, "/root")
at = "/home"
while "REPOSITORY".startswith(at + "/"):  # the way to Toolgate's own files, if they lie there, with nothing beside it
    step = "REPOSITORY"[len(at) + 1 :].split("/")[0]
    try: beside = set(os.listdir(at)) - {step}
    except OSError: break
    if beside: print("ESCAPED", at, beside, flush=True)
    at += "/" + step
if at == "/home" and not "REPOSITORY".startswith("/home/"): attempt(os.listdir, "/home")
attempt(os.listdir, "OUTSIDE")
attempt(os.truncate, "OUTSIDE/keep", 0)
attempt(os.unlink, "OUTSIDE/keep")
attempt(os.rename, "OUTSIDE/keep", own)
attempt(os.link, "OUTSIDE/keep", own + "2")
os.symlink("SECRET", own + "3")
attempt(lambda: open(own + "3").read())
attempt(os.mknod, own + "4", 0o600 | 0o020000, os.makedev(1, 1))
attempt(os.chroot, "/")
"""),
    Case("environment", """
assert os.environ["HOME"] and os.environ["PATH"]
control()
more = set(os.environ) - {"HOME", "TMPDIR", "PATH", "LANG", "LC_CTYPE", "PWD"}
if more: print("ESCAPED", more)
for process in ("self", "1", "HOST_PID", str(os.getppid())):
    try:
        if b"TOOLGATE_TEST_SECRET" in open(f"/proc/{process}/environ", "rb").read(): print("ESCAPED", process)
    except OSError: pass
"""),
    Case("network", """
a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
control()
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
        attempt(socket.socket, family, kind)
attempt(socket.create_connection, ("127.0.0.1", 1), 1)
"""),
    Case("no_fork", """
done = []
thread = threading.Thread(target=done.append, args=(1,)); thread.start(); thread.join(); assert done
control()
attempt(os.fork)
attempt(os.posix_spawn, "/bin/true", ["true"], {})
attempt(os.execv, "/bin/true", ["true"])
"""),
    Case("fork_bomb", """
child = os.fork()
if not child: os._exit(0)
assert os.waitpid(child, 0)[1] == 0
control()
count = 0
try:
    while count < 1000:
        if not os.fork(): time.sleep(30); os._exit(0)
        count += 1
except OSError: pass
if count > 200: print("ESCAPED", count)  # Landlock counts what else the user runs, some of which may end meanwhile
""", "shell", {"processes": 40}, alone=True),
    Case("thread_bomb", """
thread = threading.Thread(target=control); thread.start(); thread.join()
threading.stack_size(65536)
count = 0
try:
    while count < 1000:
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
        count += 1
except RuntimeError: pass
if count > 200: print("ESCAPED", count)  # Landlock counts what else the user runs, some of which may end meanwhile
print("held", flush=True)
os._exit(0)
""", "python", {"processes": 40}, alone=True),
    Case("memory", """
some = bytearray(100 << 20)
for place in range(0, len(some), 4096): some[place] = 1
del some
control()
import mmap
held = []
def take(make):
    try:
        for _ in range(40):
            piece = make()
            for place in range(0, len(piece), 4096): piece[place] = 1
            held.append(piece)
        print("ESCAPED")
    except (MemoryError, OSError): held.clear()
take(lambda: bytearray(20 << 20))
take(lambda: mmap.mmap(-1, 20 << 20))
"""),
    Case("shared_memory_of_children", """
import mmap
own = mmap.mmap(-1, 50 << 20)
for place in range(0, len(own), 4096): own[place] = 1
own.close()
control()
for _ in range(5):
    if not os.fork():
        piece = mmap.mmap(-1, 120 << 20)
        for place in range(0, len(piece), 4096): piece[place] = 1
        time.sleep(100); os._exit(0)
time.sleep(100)
print("ESCAPED")
""", "shell", {"memory": 256 * MB}, ("memory",)),
    Case("disk_bytes", """
work = os.environ["TMPDIR"]
open(work + "/one", "wb").write(b"x" * (1 << 20))
control()
written = 0
try:
    for number in range(400):
        open(f"{work}/{number}", "wb").write(b"x" * (1 << 20)); written += 1
        time.sleep(0.05)  # what is polled is seen late by a busy host: 200 of them take ten seconds
except OSError: pass
if written > 200: print("ESCAPED", written)
""", "python", {"disk": 16 * MB}, ("", "disk")),
    Case("disk_one_file", """
work = os.environ["TMPDIR"]
open(work + "/one", "wb").write(b"x" * (1 << 20))
control()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = open(work + "/big", "wb", 0)
try:
    for _ in range(40): file.write(b"x" * (1 << 20))
except OSError: pass
if os.fstat(file.fileno()).st_size > (20 << 20): print("ESCAPED")
""", "python", {"disk": 16 * MB}, ("", "disk")),
    Case("disk_files", """
work = os.environ["TMPDIR"]
for number in range(100): open(f"{work}/few{number}", "w").close()
control()
made = 0
try:
    for number in range(200000):
        open(f"{work}/{number}", "w").close(); made += 1
        if not number % 10: time.sleep(0.002)
    print("ESCAPED", made)
except OSError: pass
if made > 60000: print("ESCAPED", made)
""", "python", {"files": 1000}, ("", "disk")),
    Case("output", """
control()
while True: os.write(1, b"x" * 65536)
""", "python", {}, ("output",)),
    Case("time", """
control()
while True: pass
""", "python", {"seconds": 1.0}, ("time",)),
    Case("signals", """
got = []
signal.signal(signal.SIGUSR1, lambda *_: got.append(1)); signal.raise_signal(signal.SIGUSR1); assert got
control()
for target in (HOST_PID, VICTIM_PID): attempt(os.kill, target, 0)
for number in SIGNALLING: attempt(call, number, HOST_PID, signal.SIGURG, 0)
attempt(call, 434, HOST_PID, 0)
import fcntl
a, b = os.pipe()
attempt(fcntl.fcntl, a, 8, HOST_PID)
attempt(fcntl.fcntl, a, 10, 9)
attempt(os.setpriority, os.PRIO_PROCESS, HOST_PID, 19)
attempt(os.sched_setaffinity, HOST_PID, {0})
attempt(os.sched_setscheduler, HOST_PID, os.SCHED_BATCH, os.sched_param(0))
import resource
attempt(resource.prlimit, HOST_PID, resource.RLIMIT_NOFILE, (5, 5))
"""),
    Case("signals_of_a_command", """
child = os.fork()
if not child: time.sleep(30); os._exit(0)
os.kill(child, signal.SIGTERM); assert os.waitpid(child, 0)[1] == 15
control()
for target in (HOST_PID, VICTIM_PID):
    attempt(os.kill, target, 0)
    attempt(os.kill, target, signal.SIGKILL)
attempt(call, 434, HOST_PID, 0)
for number in SIGNALLING: attempt(call, number, HOST_PID, signal.SIGURG, 0)
""", "shell"),
    Case("kernel", """
assert call(39) == os.getpid()
control()
for flag in NAMESPACES: attempt(call, UNSHARE, flag)
for name, number in FORBIDDEN.items(): attempt(call, number, 0, 0, 0, 0, 0, name=name)
"""),
    Case("kernel_of_a_command", """
child = os.fork()
if not child: os._exit(0)
os.waitpid(child, 0)
control()
for flag in NAMESPACES: attempt(call, UNSHARE, flag)
for flag in NAMESPACES: attempt(call, CLONE, flag | signal.SIGCHLD, 0, 0, 0, 0)
attempt(socket.socket)
attempt(lambda: open("/proc/sys/kernel/hostname", "w").write("x"))
""", "shell"),
)  # fmt: skip


def interpreter() -> str:
    """A Python like ours that every user can run."""
    return needs.interpreter() or sys.executable


@contextmanager
def folder_of(user: str) -> Iterator[Path]:
    """A folder that belongs to a user; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="toolgate-test-", ignore_cleanup_errors=False) as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "outside").mkdir()
        (folder / "outside" / "keep").write_text("kept")
        (folder / "secret").write_text(f"marker-{uuid.uuid4().hex}")
        if os.geteuid() == 0 and user == "ordinary":
            for path in (folder, *folder.rglob("*")):
                os.chown(path, ORDINARY, ORDINARY)
        yield folder


@contextmanager
def started(plan: dict[str, Any], user: str) -> "Iterator[subprocess.Popen[str]]":
    """The host as a process of a user; the test waits if this machine has not what the jail is made of."""
    needs.need(needs.USERS[user], *needs.needed_by_jail(plan["jail"], user))
    file = Path(plan["folder"]) / "plan.json"
    file.write_text(json.dumps(plan))
    file.chmod(0o644)
    with room_for(plan["jail"]), subprocess.Popen(
        [interpreter(), "-B", "-m", "tests.hostile.jail_main", str(file)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), **of_user(user),
    ) as host:  # fmt: skip
        try:
            yield host
        finally:
            host.kill()


@contextmanager
def room_for(jail: str) -> Iterator[None]:
    """Keeps the jails of other test processes away from one of Landlock where all of them are the same user's: it allows so
    many processes beside those that there were, and a fork bomb next door would leave it none."""
    if os.geteuid() == 0:
        yield
        return
    with (Path(tempfile.gettempdir()) / f"toolgate-tests-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if jail == "landlock" else fcntl.LOCK_SH)
        yield


def environment() -> dict[str, str]:
    """Where Toolgate and what it needs are found by the other interpreter."""
    path = (str(ROOT), str(ROOT / "src"), sysconfig.get_path("purelib"))
    return {"PYTHONPATH": os.pathsep.join(path), "PATH": os.environ["PATH"]}


def of_user(user: str) -> dict[str, Any]:
    """What makes a process a user's."""
    if os.geteuid() != 0 or user == "root":
        return {}
    return {"user": ORDINARY, "group": ORDINARY, "extra_groups": []}


def run(jail: str, user: str, folder: Path, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What came of the runs, by their names, and what the host found afterwards."""
    plan = {"jail": jail, "folder": str(folder), "runs": runs, "marker": (folder / "secret").read_text()}
    with started(plan, user) as host:
        out, errors = host.communicate(timeout=250)
    assert host.returncode == 0, errors
    said: dict[str, Any] = json.loads(out)
    said["results"] = {result["name"]: result for result in said["results"]}
    return said


def case_run(case: Case, folder: Path) -> dict[str, Any]:
    """A case as the host wants it."""
    code = BEGIN + case.code + END
    code = code.replace('"SECRET"', repr(str(folder / "secret"))).replace("/SECRET", str(folder / "secret"))
    code = code.replace("OUTSIDE", str(folder / "outside")).replace("REPOSITORY", str(ROOT))
    return {"name": case.name, "profile": case.profile, "code": code, "limits": case.limits, "alone": case.alone}


@cache
def results(jail: str, user: str) -> dict[str, Any]:
    """All common cases run once, a few at a time."""
    with folder_of(user) as folder:
        said = run(jail, user, folder, [case_run(case, folder) for case in COMMON])
        said["outside"] = {path.name: path.read_text() for path in (folder / "outside").iterdir()}
        said["marker"] = (folder / "secret").read_text()
    return said


def check(case: Case, said: dict[str, Any]) -> None:
    """The case did what it may, and no more."""
    result = said["results"][case.name]
    assert "unavailable" not in result, result["unavailable"]
    lines = result["out"][:100_000].splitlines()
    assert "control ok" in lines, result
    assert not [line for line in lines if line.startswith("ESCAPED")], result["out"][:2_000]
    assert said["marker"] not in result["out"] + result["errors"]
    if case.stopped and result["stopped"] is not None:
        assert result["stopped"] in case.stopped, result["stopped"]
    else:
        assert not case.stopped or "" in case.stopped, "it was not stopped"
        assert lines[-1] == "held", (lines[-5:], result["errors"][-2_000:], result["code"], result["stopped"])


HOLDING: list[dict[str, Any]] = [
    {"name": "sleeper", "code": "print('up', flush=True)\nimport time\nwhile True: time.sleep(1)\n"},
    {
        "name": "daemons",
        "profile": "shell",
        "code": """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
for _ in range(3):
    if not os.fork():
        try: os.setsid()
        except OSError: pass
        if os.fork(): os._exit(0)
        while True: time.sleep(1)
# One that is never where it was a moment ago.
if not os.fork():
    while True:
        try:
            if os.fork(): os._exit(0)
        except OSError: pass
if "stay" in sys.argv[0]:
    print("up", flush=True)
    while True: time.sleep(1)
""",
    },
]
HOLDING.append({**HOLDING[1], "name": "daemons_stay"})


def processes_of(folder: Path) -> list[int]:
    """Those that run a program out of a folder, and are not over yet."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def is_alive(process: int) -> bool:
    """Whether there is such a process; not one that only waits to be forgotten."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def hold(jail: str, folder: Path) -> dict[str, Any]:
    """A plan: programs that stay until they are killed."""
    runs = [run for run in HOLDING if run["name"] != "daemons"]
    return {"jail": jail, "folder": str(folder), "runs": runs, "marker": "-", "hold": True}


def in_full_swing(host: "subprocess.Popen[str]", folder: Path) -> list[int]:
    """The processes below a host that holds programs: first its launchers."""
    assert host.stdout is not None
    said = json.loads(host.stdout.readline())
    assert said["started"] == 2
    wait_until(lambda: len(processes_of(folder / "daemons_stay.py")) >= 4)
    found: list[int] = said["processes"]
    assert len(found) >= 4, "too few processes for this to prove anything"
    return found


def kill_host(jail: str, user: str, folder: Path, number: signal.Signals) -> None:
    """Kill a host whose programs are in full swing, and wait until all of them are gone."""
    with started(hold(jail, folder), user) as host:
        below = in_full_swing(host, folder)
        host.send_signal(number)
        host.wait(30)
        wait_until(lambda: not any(map(is_alive, below)) and processes_of(folder) == [])


def kill_launchers(jail: str, user: str, folder: Path) -> None:
    """Kill what the host itself started, and wait until all that came of it is gone."""
    with started(hold(jail, folder), user) as host:
        below = in_full_swing(host, folder)
        for launcher in below[:2]:
            os.kill(launcher, signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, below)) and processes_of(folder / "daemons_stay.py") == [])


def wait_until(done: Callable[[], bool]) -> None:
    """Half a minute at most: a machine with much to do takes its time."""
    until = time.monotonic() + 30
    while not done():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.01)
