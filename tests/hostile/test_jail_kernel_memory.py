"""Memory that no limit of a process and no sum of their own shows: it is found, and whoever hoards it is ended."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import jailed
from tests.hostile.jailed import USERS
from toolgate.sandbox.jail import MB
from toolgate.sandbox.jails import usage_counts

pytestmark = pytest.mark.requirement("SBX-2", "SBX-3")


@pytest.fixture(params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    who: str = request.param
    return who


@pytest.fixture
def folder(user: str) -> Iterator[Path]:
    with jailed.folder_of(user) as made:
        yield made


def run_one(jail: str, user: str, folder: Path, code: str, limits: dict[str, Any]) -> dict[str, Any]:
    run = {"name": "one", "code": jailed.BEGIN + code, "profile": "shell", "limits": limits}
    result: dict[str, Any] = jailed.run(jail, user, folder, [run])["results"]["one"]
    return result


def check_stopped(result: dict[str, Any]) -> None:
    """Not before it has shown that a little of the same is allowed."""
    assert result["out"] == "control ok\n", result
    assert result["stopped"] == "memory", result


LOCKS = """
import fcntl, struct
def lock(files, each):
    held = []
    for number in range(files):
        held.append(open(f"{os.getpid()}-{number}", "w"))
        for place in range(each): fcntl.lockf(held[-1], fcntl.LOCK_EX, 1, 2 * place)
    return held
"""
PIECES = """
def split(size):
    libc.mmap.restype = ctypes.c_void_p
    start = libc.mmap(None, ctypes.c_size_t(size), 1, 0x22, -1, ctypes.c_long(0))
    for place in range(0, size, 8192):
        if libc.mprotect(ctypes.c_void_p(start + place), ctypes.c_size_t(4096), 0): break
"""
WATCHES = """
import select
def watch(watchers, watched):
    files = [os.eventfd(0) for _ in range(watched)]
    kept = [select.epoll() for _ in range(watchers)]
    for one in kept:
        for file in files: one.register(file)
    return kept, files
"""
TABLES = """
def touch(size):
    libc.mmap.restype = ctypes.c_void_p
    start = libc.mmap(None, ctypes.c_size_t(size), 1, 0x4022, -1, ctypes.c_long(0))
    for place in range(0, size, 2 << 20): ctypes.c_char.from_address(start + place).value
"""
HOARDS = {
    "locks": (LOCKS, "kept = lock(2, 500)", "kept = lock(200, 400)"),
    "watches": (WATCHES, "kept = watch(10, 10)", "kept = watch(110, 110)"),
    "pieces of mappings": (PIECES, "split(8 << 20)", "split(480 << 20)"),
    "page tables": (TABLES, "touch(64 << 20)", "touch(60 << 30)"),
}


WHERE = [*(("bubblewrap", what) for what in HOARDS), ("namespaces", "locks"), ("landlock", "locks")]


@pytest.mark.matrix("fills the memory of the kernel")
@pytest.mark.parametrize(("jail", "what"), WHERE)
def test_what_the_kernel_holds_is_memory(user: str, folder: Path, jail: str, what: str) -> None:
    """Fifty processes, each with little of its own: neither a limit of theirs nor their sum shows it."""
    begin, little, much = HOARDS[what]
    code = f"""{begin}
{little}
time.sleep(2.2)
control()
for _ in range(50):
    try: child = os.fork()
    except BlockingIOError: break  # Where the user's other processes count too.
    if not child:
        {much}
        time.sleep(200); os._exit(0)
time.sleep(200)
print("ESCAPED")
"""
    check_stopped(run_one(jail, user, folder, code, {"memory": 256 * MB, "seconds": 150.0}))


def test_a_thread_that_outlives_the_first_is_counted(user: str, folder: Path) -> None:
    """Of a process whose first thread has ended, the kernel says that it has no memory."""
    code = """
own = bytearray(60 << 20)
for place in range(0, len(own), 4096): own[place] = 1
del own
control()
def fill():
    time.sleep(0.3)
    kept = bytearray(200 << 20)
    for place in range(0, len(kept), 4096): kept[place] = 1
    time.sleep(60)
    os.write(1, b"ESCAPED\\n")
    os._exit(0)
for _ in range(2):
    if not os.fork():
        threading.Thread(target=fill, daemon=True).start()
        libc.syscall(60 if os.uname().machine == "x86_64" else 93, 0)
time.sleep(60)
"""
    check_stopped(run_one("bubblewrap", user, folder, code, {"memory": 256 * MB, "seconds": 40.0}))


@pytest.mark.matrix("starts jails that are refused")
def test_whom_nobody_can_look_into_is_not_run(user: str, folder: Path) -> None:
    """A program that its owner may not read can't be looked into by that owner; by root it can."""
    code = """
def start(mode, seconds):
    with open("/bin/sleep", "rb") as file: program = file.read()
    number = os.open(f"mine{mode}", os.O_CREAT | os.O_WRONLY, mode)
    os.write(number, program); os.close(number)
    return os.posix_spawn(f"mine{mode}", ["mine", seconds], {})
assert os.waitpid(start(0o700, "2.2"), 0)[1] == 0
control()
start(0o100, "90")
time.sleep(SECONDS)
print("held", flush=True)
os._exit(0)
""".replace("SECONDS", "6" if user == "root" else "60")
    result = run_one("landlock", user, folder, code, {"seconds": 40.0})
    if user == "root":
        assert result["out"] == "control ok\nheld\n" and result["stopped"] is None, result
    else:
        check_stopped(result)


def test_the_machine_says_what_the_kernel_holds() -> None:
    assert usage_counts.machine(1e12) > MB


def test_our_own_locks_and_mappings_are_found(tmp_path: Path) -> None:
    own = f"/proc/{os.getpid()}"
    before = sum(usage_counts.held(own))
    with (tmp_path / "file").open("w") as file:
        for place in range(2000):  # twice as many: some mapping of this process may go meanwhile
            fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * place)
        assert sum(usage_counts.held(own)) - before >= 1000 * usage_counts.EACH
