"""The filter of system calls: what the kernel makes of it, in a process that runs under it."""

import errno
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.sandbox.jail import Network, Profile, Spec, Unavailable
from toolgate.sandbox.jails import inside_files, launch, seccomp
from toolgate.sandbox.jails.child_descriptors import ChildPipe
from toolgate.sandbox.jails.seccomp import MACHINES, NEWEST, numbers

PROFILES: tuple[Profile, ...] = ("python", "deno", "shell", "server")
ALLOWED = 0x7FFF_0000
KILLED = 0x8000_0000
FAILED = 0x0005_0000

UNDER_FILTER = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
code, calls = bytes.fromhex(sys.argv[1]), json.loads(sys.argv[2])
own = os.getpid().to_bytes(4, "little")
steps = [code[place:place + 8] for place in range(0, len(code), 8)]
code = b"".join(step[:4] + own if step[4:] == (0x7FFFFFFE).to_bytes(4, "little") else step for step in steps)
kept = ctypes.create_string_buffer(code, len(code))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(len(code) // 8, ctypes.addressof(kept))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
found = []
for number, given in calls:
    given = [os.getpid() if one == "own" else one for one in given]
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, given))
    found.append(ctypes.get_errno() if result < 0 else 0)
print(json.dumps(found))
"""

# Numbers that are the same wherever a kernel runs (asm-generic), and those of this machine.
NEWER = {"io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "pidfd_getfd": 438, "landlock": 444}
OF_X86 = {
    "socket": 41, "connect": 42, "bind": 49, "setsockopt": 54, "ptrace": 101, "setuid": 105, "setpriority": 141, "mount":
    165, "sched_setaffinity": 203, "keyctl": 250, "unshare": 272, "perf_event_open": 298, "open_by_handle_at": 304,
    "setns": 308, "process_vm_readv": 310, "kcmp": 312, "seccomp": 317, "memfd_create": 319, "bpf": 321, "userfaultfd":
    323, "shmget": 29, "semget": 64, "msgget": 68, "mq_open": 240, "kexec_load": 246, "personality": 135, "chroot": 161,
    "reboot": 169, "init_module": 175, "capset": 126, "modify_ldt": 154, "iopl": 172, "vmsplice": 278, "ioprio_set": 251,
    "mbind": 237,
}  # fmt: skip


def under(code: bytes, calls: Sequence[tuple[int, Sequence[int | str]]]) -> list[int]:
    """The errors of some calls, made one after another under a filter; 0 where one succeeded."""
    ran = subprocess.run(
        [sys.executable, "-I", "-c", UNDER_FILTER, code.hex(), json.dumps(calls)], capture_output=True, text=True, timeout=30
    )
    assert ran.returncode == 0, ran.stderr
    found: list[int] = json.loads(ran.stdout)
    return found


def call(name: str, *given: int | str) -> tuple[int, list[int | str]]:
    return numbers(platform.machine())[name], [*given, *[0] * (6 - len(given))]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("alone", [False, True])
def test_what_reaches_further_than_the_program_is_refused(profile: Profile, alone: bool) -> None:
    names = NEWER | (OF_X86 if platform.machine() == "x86_64" else {})
    found = under(seccomp.program(profile, alone=alone), [(number, [0] * 6) for number in names.values()])
    assert dict(zip(names, found, strict=True)) == dict.fromkeys(names, errno.EPERM)


@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_newer_than_the_list_does_not_exist(profile: Profile) -> None:
    found = under(seccomp.program(profile), [(NEWEST + more, [0] * 6) for more in (1, 2, 50, 500)] + [call("clone3")])
    assert found == [errno.ENOSYS] * 5


def test_arguments_decide() -> None:
    signal_to_parent, thread, namespaces = 17, 0x10000, 0x10000000
    calls = {
        "own pid": call("getpid"),
        "prlimit of itself": call("prlimit64", 0, 7),
        "prlimit of another": call("prlimit64", 1, 7),
        "fork": call("clone", signal_to_parent),
        "thread in a new namespace": call("clone", thread | namespaces),
        "pair of another family": call("socketpair", 2, 1),
        "own a descriptor's signals": call("fcntl", 0, 8, "own"),
        "take a lease": call("fcntl", 0, 1024, 0),
        "type into a terminal": call("ioctl", 0, 0x5412),
        "the console": call("ioctl", 0, 0x541C),
        "let pages be merged": call("madvise", 0, 0, 12),
        "huge pages again": call("prctl", 41, 0),
        "ask for a name": call("prctl", 3),
        "setuid": call("fchmod", 0, 0o4755),
        "setgid": call("fchmod", 0, 0o2755),
        "hold space": call("fallocate", 0),
    }
    found = dict(zip(calls, under(seccomp.program("python"), list(calls.values())), strict=True))
    assert found == {
        "own pid": 0,
        "prlimit of itself": 0,
        "prlimit of another": errno.EPERM,
        "fork": errno.EPERM,
        "thread in a new namespace": errno.EPERM,
        "pair of another family": errno.EPERM,
        "own a descriptor's signals": errno.EINVAL,
        "take a lease": errno.EINVAL,
        "type into a terminal": errno.ENOTTY,
        "the console": errno.ENOTTY,
        "let pages be merged": errno.EINVAL,
        "huge pages again": errno.EINVAL,
        "ask for a name": 0,
        "setuid": errno.EPERM,
        "setgid": errno.EPERM,
        "hold space": errno.EOPNOTSUPP,
    }


def test_alone_it_signals_only_itself() -> None:
    code = seccomp.program("python", alone=True)
    found = under(code, [call("kill", "own", 0), *(call("kill", other, 0) for other in (1, 0, -1)), call("tkill", 1, 0)])
    assert found == [0, *[errno.EPERM] * 4]


def test_calls_of_another_machine_end_the_process() -> None:
    code, getpid = seccomp.program("python", machine="x86_64"), numbers("x86_64")["getpid"]
    assert judged(code, getpid) == ALLOWED
    assert judged(code, getpid, machine="aarch64") == KILLED
    assert judged(code, 0x4000_0000 + getpid) == KILLED


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("alone", [False, True])
def test_a_filter_is_one_that_the_kernel_takes(machine: str, profile: Profile, alone: bool) -> None:
    """Every jump goes forward and stays within; every way ends in an answer; it is not too long."""
    steps = list(struct.iter_unpack("<HBBI", seccomp.program(profile, machine=machine, alone=alone)))
    assert len(steps) <= 4096
    assert steps[-1][0] == 0x06
    for place, (code, yes, no, _) in enumerate(steps):
        if code & 7 == 5:
            assert place + 1 + max(yes, no) < len(steps)


def test_no_other_machine_is_guessed_at() -> None:
    with pytest.raises(Unavailable, match="riscv64"):
        seccomp.program("python", machine="riscv64")


@given(
    number=st.integers(0, 2**32 - 1) | st.sampled_from(sorted(numbers("x86_64").values())),
    arguments=st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6),
    profile=st.sampled_from(PROFILES),
    machine=st.sampled_from(["x86_64", "aarch64"]),
)
def test_only_what_is_named_is_ever_allowed(number: int, arguments: list[int], profile: Profile, machine: str) -> None:
    answer = judged(seccomp.program(profile, machine=machine), number, arguments, machine)
    if answer == ALLOWED:
        assert number in numbers(machine).values()
    if machine == "x86_64" and number >= 0x4000_0000:
        assert answer == KILLED
    elif number > NEWEST:
        assert answer == FAILED | errno.ENOSYS


@given(flags=st.integers(0, 2**32 - 1), machine=st.sampled_from(["x86_64", "aarch64"]))
def test_no_flags_of_clone_make_a_namespace(flags: int, machine: str) -> None:
    new = 0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000
    for profile in PROFILES:
        answer = judged(seccomp.program(profile, machine=machine), numbers(machine)["clone"], [flags], machine)
        wanted = not flags & new and (profile in ("shell", "server") or flags & 0x10000)
        assert (answer == ALLOWED) == bool(wanted)


@given(
    family=st.integers(0, 50),
    kind=st.integers(0, 15),
    flags=st.sampled_from([0, 0x800, 0x80000, 0x80800]),
    protocol=st.integers(0, 300),
    network=st.sampled_from(["none", "loopback", "host"]),
    machine=st.sampled_from(["x86_64", "aarch64"]),
)
def test_a_server_has_the_sockets_of_its_network(
    family: int, kind: int, flags: int, protocol: int, network: Network, machine: str
) -> None:
    """Those of the internet, streams and datagrams; those of the machine only where none but its own can be met."""
    code = seccomp.program("server", machine=machine, network=network)
    answer = judged(code, numbers(machine)["socket"], [family, kind | flags, protocol], machine)
    families = {"none": (), "loopback": (1, 2, 10), "host": (2, 10)}[network]
    assert (answer == ALLOWED) == (family in families and kind in (1, 2) and protocol in (0, 6, 17))


@given(level=st.integers(0, 300), option=st.integers(0, 100), machine=st.sampled_from(["x86_64", "aarch64"]))
def test_no_option_of_a_socket_has_the_kernel_run_anything(level: int, option: int, machine: str) -> None:
    code = seccomp.program("server", machine=machine, network="loopback")
    answer = judged(code, numbers(machine)["setsockopt"], [3, level, option], machine)
    assert (answer == ALLOWED) == ((level, option) not in {(1, 26), (1, 50), (1, 51), (1, 52), (6, 31)})


def judged(code: bytes, number: int, arguments: list[int] | None = None, machine: str = "x86_64") -> int:
    """What a filter answers, by running it here."""
    given = [*(arguments or []), *[0] * 6][:6]
    data = struct.pack("<IIQ6Q", number, MACHINES[machine][0], 0, *given)
    steps = list(struct.iter_unpack("<HBBI", code))
    place, held = 0, 0
    while True:
        what, yes, no, operand = steps[place]
        place += 1
        match what:
            case 0x20:
                held = int.from_bytes(data[operand : operand + 4], "little")
            case 0x06:
                return int(operand)
            case 0x54:
                held &= operand
            case 0x15 | 0x25 | 0x35 | 0x45:
                true = {0x15: held == operand, 0x25: held > operand, 0x35: held >= operand, 0x45: bool(held & operand)}[what]
                place += yes if true else no


@cache
def deno() -> str:
    found = shutil.which("deno", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found, "Deno is among the development dependencies"
    return found


WORK: list[tuple[Profile, list[str], str]] = [
    ("deno", ["deno", "eval", "console.log([1, 2, 3].map((n) => n * 2).join())"], "2,4,6\n"),
    ("shell", ["/bin/sh", "-c", "echo one two | cut -d' ' -f2 > f; (cat f; rm f); ls -d ."], "two\n.\n"),
    ("shell", [sys.executable, "-c", "import asyncio; print(asyncio.run(asyncio.sleep(0, 5)))"], "5\n"),
    ("shell", [sys.executable, "-c", "import subprocess; print(subprocess.call('true'))"], "0\n"),
]


@pytest.mark.parametrize(("profile", "argv", "said"), WORK)
def test_honest_programs_work_under_it(profile: Profile, argv: list[str], said: str, tmp_path: Path) -> None:
    program = deno() if argv[0] == "deno" else argv[0]
    assert started(profile, [program, *argv[1:]], tmp_path) == (0, said, "")


TWICE = """
import errno, os
os.write(1, b"first ")
for execute in (lambda: os.execv("/bin/echo", ["echo", "second"]), lambda: os.execv("/proc/self/exe", ["python", "-V"])):
    try: execute()
    except OSError as error: os.write(1, errno.errorcode[error.errno].encode() + b" ")
"""


@pytest.mark.parametrize(("profile", "said"), [("deno", "first ENOSYS ENOSYS "), ("shell", "first second\n")])
@pytest.mark.parametrize("alone", [False, True])
def test_deno_is_the_last_program_that_is_executed(profile: Profile, said: str, alone: bool, tmp_path: Path) -> None:
    argv = [str(inside_files.python()), "-I", "-c", TWICE]
    assert started(profile, argv, tmp_path, alone=alone) == (0, said, "")


ASKED_ALREADY = """
import os, sys
sys.path.insert(0, sys.argv[1])
import kernel_calls as kernel
import starter
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
allow = bytes((6, 0, 0, 0)) + starter.ALLOW.to_bytes(4, "little")
filters = starter.prepared(allow)
told, go = os.pipe(), os.pipe()
child = os.fork()
if not child:
    call = starter.SECCOMP[os.uname().machine]
    os.write(told[1], bytes([kernel.syscall("seccomp", call, starter.SET_MODE_FILTER, starter.NEW_LISTENER, filters)]))
    os.read(go[0], 1)
    os.execv(sys.argv[2], sys.argv[2:])
listener = kernel.syscall("pidfd_getfd", 438, os.pidfd_open(child), os.read(told[0], 1)[0], 0)
os.write(go[1], b"1")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_where_somebody_else_is_asked_already_deno_runs_all_the_same(tmp_path: Path) -> None:
    """The kernel lets only one of a process's filters ask: a container's own may be that one."""
    before = [str(inside_files.python()), "-I", "-B", "-c", ASKED_ALREADY, str(inside_files.INSIDE)]
    argv = [str(inside_files.python()), "-I", "-c", TWICE]
    assert started("deno", argv, tmp_path, before=before) == (0, "first second\n", "")


def started(
    profile: Profile, argv: Sequence[str], folder: Path, *, alone: bool = False, before: Sequence[str] = ()
) -> tuple[int, str, str]:
    """What a program says that our starter began, without any other wall round it."""
    spec = Spec(profile=profile, argv=tuple(argv), workspace=folder, environment=(("NO_COLOR", "1"),))
    home = str(folder)
    code = seccomp.program(profile, alone=alone)
    order = ChildPipe.down(
        launch.packed(
            launch.order(spec, identity=None, home=home, temporary=home, work=home, filter=code, processes=100_000)
        )
    )  # fmt: skip
    try:
        ran = subprocess.run(
            [*before, *launch.start_command(spec, order)],
            pass_fds=[order.number], capture_output=True, text=True, timeout=60, env={},
        )  # fmt: skip
    finally:
        order.close_inner()
        order.close()
    return ran.returncode, ran.stdout, ran.stderr
