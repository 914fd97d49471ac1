"""The jail of bubblewrap: what it holds, as root and as an ordinary user; and the traps that were found in it."""

import asyncio
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import jailed
from tests.hostile.jailed import COMMON, ORDINARY, USERS, Case
from tests.needs import needed_by_jail
from toolgate.sandbox import self_check, untrusted_files
from toolgate.sandbox.jail import MB, Feature, Spec, Unavailable
from toolgate.sandbox.jails import inside_files, launch, process, process_tree, seccomp, selection
from toolgate.sandbox.jails.bubblewrap import Bubblewrap
from toolgate.sandbox.jails.child_descriptors import ChildPipe
from toolgate.sandbox.jails.launch import Launch
from toolgate.settings import SandboxSettings

pytestmark = pytest.mark.requirement("SBX-2", "SBX-3")
HELD = pytest.mark.needs(*needed_by_jail("bubblewrap"))


@pytest.fixture(params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    who: str = request.param
    return who


@pytest.fixture
def folder(user: str) -> Iterator[Path]:
    with jailed.folder_of(user) as made:
        yield made


@pytest.fixture
def workspace(user: str, folder: Path) -> Path:
    made = folder / "work"
    texts = {"free": "old", ".git/hooks/post-commit": "hook", ".git/HEAD": "ref", ".env": "token", "keys/id": "key"}
    for path, text in texts.items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_text(text)
    if os.geteuid() == 0 and user == "ordinary":
        for one in (made, *made.rglob("*")):
            os.chown(one, ORDINARY, ORDINARY)
    return made


def run_one(user: str, folder: Path, code: str, **more: Any) -> dict[str, Any]:
    said = jailed.run("bubblewrap", user, folder, [{"name": "one", "code": jailed.BEGIN + code + jailed.END, **more}])
    result: dict[str, Any] = said["results"]["one"]
    assert said["processes"] == []
    return result


def check(result: dict[str, Any]) -> None:
    lines = result["out"].splitlines()
    assert "control ok" in lines, result
    assert lines[-1] == "held", result
    assert "ESCAPED" not in result["out"], result


def check_stopped(result: dict[str, Any], why: str) -> None:
    assert "control ok" in result["out"].splitlines(), result
    assert "ESCAPED" not in result["out"] and "held" not in result["out"], result
    assert result["stopped"] == why, result


# What any jail holds


@pytest.mark.parametrize("case", COMMON, ids=lambda case: case.name)
@pytest.mark.sample(4)
def test_it_holds(case: Case, user: str) -> None:
    jailed.check(case, jailed.results("bubblewrap", user))


def test_nothing_is_left_and_nobody_else_is_hit(user: str) -> None:
    said = jailed.results("bubblewrap", user)
    assert said["victim"], "the program beside was hit"
    assert said["processes"] == [] and said["left"] == []
    assert said["outside"] == {"keep": "kept"}
    assert set(said["enforces"]) == set(Feature.__args__)  # type: ignore[attr-defined]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_hosts_death_ends_everything(user: str, folder: Path, number: signal.Signals) -> None:
    jailed.kill_host("bubblewrap", user, folder, number)


def test_bubblewraps_own_death_ends_everything(user: str, folder: Path) -> None:
    jailed.kill_launchers("bubblewrap", user, folder)


def test_what_a_command_leaves_behind_ends_with_it(user: str, folder: Path) -> None:
    said = jailed.run("bubblewrap", user, folder, [jailed.HOLDING[1]])
    assert said["results"]["daemons"]["code"] == 0, said
    assert jailed.processes_of(folder) == []


def test_it_has_no_rights_left(user: str, folder: Path) -> None:
    result = run_one(user, folder, """
status = dict(line.strip("\\n").split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
control()
for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
    if int(status[name], 16): print("ESCAPED", name, status[name])
if os.getuid() == 0 or os.getgid() == 0 or (os.getgroups() not in ([], [os.getgid()])): print("ESCAPED", os.getgroups())
open("own", "w").close()
attempt(os.chmod, "own", 0o4755)
attempt(os.chmod, "own", 0o2755)
attempt(os.open, "other", os.O_CREAT | os.O_WRONLY, 0o4755)
seen = {int(name) for name in os.listdir("/proc/self/fd")}
if seen - {0, 1, 2, 3}: print("ESCAPED", seen)
""")  # fmt: skip
    check(result)


ENDS = [("os._exit(3)", 3), ("os.kill(os.getpid(), signal.SIGSEGV)", -11), ("1 / 0", 1)]


@pytest.mark.parametrize(("code", "ending"), ENDS)
def test_it_ends_as_the_program_did(user: str, folder: Path, code: str, ending: int) -> None:
    result = run_one(user, folder, f"control()\n{code}\n")
    assert result["out"] == "control ok\n"
    assert result["code"] == ending


# Traps, by their number in the notes


def test_trap_6_the_users_other_processes_do_not_count(user: str, folder: Path) -> None:
    """A limit that was set before bubblewrap starts would count them, and bubblewrap would not start."""
    sleepers = [subprocess.Popen(["/bin/sleep", "100"], **jailed.of_user(user)) for _ in range(60)]
    try:
        result = run_one(user, folder, """
assert os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1] == 0
control()
made = 0
try:
    while made < 200:
        if not os.fork(): time.sleep(30); os._exit(0)
        made += 1
except OSError: pass
if made >= 30: print("ESCAPED", made)
""", profile="shell", limits={"processes": 30})  # fmt: skip
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
    check(result)


@pytest.mark.parametrize("place", ["/", "/dev", "/dev/shm", "/run", "/proc/1", "/etc"])
@pytest.mark.sample(4)
def test_trap_7_no_place_in_memory_is_without_a_size(user: str, folder: Path, place: str) -> None:
    result = run_one(user, folder, f"""
open(os.environ["TMPDIR"] + "/own", "wb").write(bytes(1 << 20))
control()
made = 0
try:
    for number in range(100):
        open("{place}/" + str(number), "wb").write(bytes(1 << 20)); made += 1
except OSError: pass
if made > 8: print("ESCAPED", made)
if "{place}" != "/dev/shm": attempt(lambda: open("{place}/new", "w"))
""", limits={"disk": 8 * MB})  # fmt: skip
    check(result)


def test_trap_8_memory_is_that_of_all_processes(user: str, folder: Path) -> None:
    result = run_one(user, folder, """
own = bytearray(100 << 20)
for place in range(0, len(own), 4096): own[place] = 1
del own
control()
for _ in range(4):
    if not os.fork():
        own = bytearray(100 << 20)
        for place in range(0, len(own), 4096): own[place] = 1
        time.sleep(100); os._exit(0)
time.sleep(100)
print("ESCAPED")
""", profile="shell", limits={"memory": 256 * MB})  # fmt: skip
    check_stopped(result, "memory")


def test_trap_8_pages_that_are_shared_count_once(user: str, folder: Path) -> None:
    """Five processes with one and the same 100 MB are not 500 MB."""
    result = run_one(user, folder, """
own = bytearray(100 << 20)
for place in range(0, len(own), 4096): own[place] = 1
children = []
for _ in range(4):
    child = os.fork()
    if not child: time.sleep(0.5); os._exit(0)
    children.append(child)
for child in children: os.waitpid(child, 0)
control()
""", profile="shell", limits={"memory": 256 * MB})  # fmt: skip
    check(result)


def test_what_sockets_hold_is_memory(user: str, folder: Path) -> None:
    result = run_one(user, folder, """
control()
held = []
def fill():
    for _ in range(100):
        one, other = socket.socketpair()
        one.setblocking(False)
        held.append((one, other))
        try:
            while True: one.send(bytes(65536))
        except OSError: pass
for _ in range(20):
    if not os.fork(): fill(); time.sleep(100); os._exit(0)
time.sleep(100)
print("ESCAPED")
""", profile="shell", limits={"memory": 128 * MB})  # fmt: skip
    check_stopped(result, "memory")


@HELD
async def test_trap_9_it_does_not_die_with_a_thread() -> None:
    """bubblewrap ends when the thread that started it ends: so it must be the loop's own."""
    jail = Bubblewrap()
    await asyncio.to_thread(os.getpid)
    started = await jail.start(Spec(profile="shell", argv=("/bin/cat",)))
    try:
        await started.write(b"one\n")
        assert await started.read(10) == b"one\n"
        await asyncio.get_running_loop().shutdown_default_executor()
        await asyncio.sleep(0.1)
        await started.write(b"two\n")
        assert await started.read(10) == b"two\n"
        await started.close_stdin()
        assert await started.wait() == 0
    finally:
        await jail.close()


FILLING = ["one file", "many files", "deleted files", "little files", "links", "folders", "by children"]


@pytest.mark.matrix("fills a workspace in seven ways")
@pytest.mark.parametrize("how", FILLING)
def test_trap_10_a_workspace_is_not_filled(user: str, folder: Path, workspace: Path, how: str) -> None:
    result = run_one(user, folder, f"how = {how!r}" + """
open("own", "wb").write(bytes(1 << 20))
control()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
piece = os.urandom(1 << 20)
def write(name, size):
    with open(name, "wb", 0) as file:
        for _ in range(size): file.write(piece)
    return file
end = time.monotonic() + (3 if how == "one file" else 30)
pause = {"many files": 0.1, "deleted files": 0.1, "by children": 0.2}.get(how, 0.001)  # a busy host sees it late
number = 0
kept = []
while time.monotonic() < end:
    number += 1
    try:
        if how == "one file": write("one", 500)
        if how == "many files": write(str(number), 4)
        if how == "deleted files":
            kept.append(open("gone", "wb", 0)); os.unlink("gone")
            for _ in range(4): kept[-1].write(piece)
        if how == "little files": open(str(number), "w").close()
        if how == "links": os.symlink("x" * 1000, str(number))
        if how == "folders": os.mkdir(str(number))
        if how == "by children" and not os.fork(): write(f"{number}", 8); os._exit(0)
        time.sleep(pause)
    except OSError: time.sleep(0.01)
size = sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in os.scandir("."))
if size > 40 << 20 or len(os.listdir(".")) > 5000: print("ESCAPED", size, len(os.listdir(".")))
""", profile="shell", workspace=str(workspace), limits={"disk": 16 * MB, "files": 500})  # fmt: skip
    if how == "one file" and result["stopped"] is None:
        check(result)
    else:
        check_stopped(result, "disk")
    # Not rglob: that of older Pythons follows links, and fails at one that leads to too long a name.
    made = [Path(at, name) for at, folders, files in os.walk(workspace) for name in (*folders, *files)]
    assert sum(path.lstat().st_blocks * 512 for path in made) < 500 * MB


def test_trap_13_it_has_one_core(user: str, folder: Path) -> None:
    result = run_one(user, folder, """
mine = os.sched_getaffinity(0)
assert len(mine) == 1
control()
attempt(os.sched_setaffinity, 0, set(range(os.cpu_count())))
attempt(os.sched_setaffinity, 0, mine)
""")  # fmt: skip
    check(result)


def test_trap_20_parts_of_a_workspace_are_kept(user: str, folder: Path, workspace: Path) -> None:
    result = run_one(user, folder, """
work = os.getcwd()
assert open("free").read() == "old" and open(".git/hooks/post-commit").read() == "hook"
open("free", "w").write("new"); open(".git/HEAD", "w").write("new"); os.mkdir("made"); open("made/file", "w").write("x")
os.rename("made/file", "moved")
control()
for path in (".git/hooks/post-commit", ".git/hooks/new", ".env", "keys/new", ".vscode/tasks.json", ".mcp.json", ".vscode"):
    attempt(lambda: open(path, "w").write("x"), name=path)
for path in (".env", "keys/id"):
    attempt(lambda: open(path).read(), name=path)
attempt(os.listdir, "keys")
for path in (".git", ".git/hooks", ".env", "keys", ".vscode", ".mcp.json", work): attempt(os.rename, path, path + "2")
for path in (".env", ".mcp.json"): attempt(os.unlink, path)
for path in ("keys", ".vscode"): attempt(os.rmdir, path)
attempt(os.link, ".git/hooks/post-commit", "link")
attempt(os.truncate, ".git/hooks/post-commit", 0)
attempt(os.chmod, ".git/hooks/post-commit", 0o777)
""", workspace=str(workspace), hidden=[str(workspace / ".env"), str(workspace / "keys")],
        fixed=[str(workspace / name) for name in (".git/hooks", ".vscode", ".mcp.json")])  # fmt: skip
    check(result)
    assert (workspace / "free").read_text() == "new" and (workspace / "moved").read_text() == "x"
    assert (workspace / "moved").stat().st_uid == workspace.stat().st_uid, "it belongs to the workspace's owner"
    assert (workspace / ".git/hooks/post-commit").read_text() == "hook"
    assert (workspace / ".env").read_text() == "token" and (workspace / "keys/id").read_text() == "key"
    assert sorted(path.name for path in workspace.iterdir()) == [".env", ".git", "free", "keys", "made", "moved"]


@pytest.mark.parametrize("part", ["keys", "keys/keep"])
def test_trap_20_a_part_behind_a_link_is_refused(user: str, folder: Path, workspace: Path, part: str) -> None:
    (workspace / "keys").rename(folder / "real")
    (workspace / "keys").symlink_to(folder / "outside")
    result = run_one(user, folder, "control()", workspace=str(workspace), fixed=[str(workspace / part)])
    assert "is a link" in result["unavailable"]


def test_the_first_process_inside_is_out_of_reach(user: str, folder: Path) -> None:
    """It is bubblewrap's own, under no filter: whoever wrote to its memory would be rid of his."""
    result = run_one(user, folder, """
assert open("/proc/self/mem", "rb") and os.path.isdir("/proc/1")
control()
if os.listdir("/proc/1"): print("ESCAPED", os.listdir("/proc/1"))
for name in ("mem", "root", "environ", "cmdline", "fd", "task/1/mem"):
    attempt(lambda: open("/proc/1/" + name, "r+b"), name=name)
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
    try: os.kill(1, number)
    except PermissionError: pass
time.sleep(0.1)
""")  # fmt: skip
    check(result)


# The parts that all jails share


def in_order(argv: Sequence[str] = ("/bin/echo", "begun"), **changed: Any) -> bytes:
    spec = Spec(profile="shell", argv=tuple(argv), **changed)
    return launch.packed(
        launch.order(spec, identity=None, home="/tmp", temporary="/tmp", work="/tmp", filter=seccomp.program("shell"))
    )


def start_alone(order: ChildPipe, before: Sequence[str] = ()) -> "subprocess.CompletedProcess[str]":
    words = launch.start_command(Spec(profile="shell", argv=("/bin/echo",)), order)
    return subprocess.run([*before, *words], pass_fds=[order.number], capture_output=True, text=True, timeout=30, env={})


def test_nothing_begins_if_the_host_is_gone() -> None:
    order = ChildPipe.down(in_order())
    assert start_alone(order).stdout == "begun\n"
    order.close_inner()
    order.close()
    cut = ChildPipe.down(in_order())
    cut.close()
    ran = start_alone(cut)
    cut.close_inner()
    assert (ran.returncode, ran.stdout) == (125, "")
    assert ran.stderr.startswith("toolgate-starter: ") and "host is gone" in ran.stderr


BROKEN = [b"", b"\x04\0\0\0", b"\x04\0\0\0abcd", in_order(workspace=Path("/"), cwd=Path("/nowhere"))]


@pytest.mark.parametrize("order", BROKEN)
def test_a_start_that_fails_is_no_half_start(order: bytes) -> None:
    pipe = ChildPipe.down(order)
    if len(order) < 100:
        pipe.close()
    ran = start_alone(pipe)
    pipe.close_inner()
    pipe.close()
    assert (ran.returncode, ran.stdout) == (125, "")
    assert ran.stderr.startswith("toolgate-starter: ") and ran.stderr.count("\n") == 1


def command_of(number: int) -> bytes:
    """Nothing of one that has ended: other tests' servers start and end some at will."""
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return b""


@HELD
async def test_many_runs_leave_no_descriptor_and_no_process() -> None:
    jail = Bubblewrap()
    spec = Spec(profile="shell", argv=("/bin/sh", "-c", "sleep 100 & sleep 100"))

    async def once() -> None:
        started = await jail.start(spec)
        started.kill()
        await started.close()

    await once()
    before = len(list(Path("/proc/self/fd").iterdir()))
    await asyncio.gather(*(once() for _ in range(10)))
    for _ in range(10):
        await once()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert not [number for number in process_tree.descendants(os.getpid()) if b"bwrap" in command_of(number)]
    await jail.close()


@pytest.fixture
def subreaper() -> Iterator[None]:
    """Orphans fall to us, as they do to the first process of a container."""
    libc, option = ctypes.CDLL(None), 36
    libc.prctl(option, 1, 0, 0, 0)
    yield
    libc.prctl(option, 0, 0, 0, 0)


@pytest.mark.usefixtures("subreaper")
@HELD
async def test_what_has_ended_is_gone_and_buried() -> None:
    jail = Bubblewrap()
    for _ in range(5):
        started = await jail.start(Spec(profile="shell", argv=("/bin/sh", "-c", "sleep 100 & echo up")))
        assert await started.read(10) == b"up\n"
        first = started.init
        assert first is not None
        assert await started.wait() == 0
        await started.close()
        assert not Path(f"/proc/{first}").exists()
    await jail.close()


@pytest.mark.usefixtures("subreaper")
@HELD
async def test_what_has_ended_before_it_was_named_is_buried_too() -> None:
    """The loop is busy with others meanwhile, so it hears of the name and of the end at once."""
    jail, before = Bubblewrap(), set(process_tree.descendants(os.getpid()))
    started = await jail.start(Spec(profile="shell", argv=("/bin/true",)))
    while not Path(f"/proc/{started.pid}/stat").read_text().rpartition(")")[2].startswith(" Z"):
        time.sleep(0.01)
    assert await started.wait() == 0
    await started.close()
    others = before | {
        below for pid in before for below in process_tree.descendants(pid)
    }  # servers that other tests have here
    assert set(process_tree.descendants(os.getpid())) <= others
    await jail.close()


@pytest.mark.matrix("waits for a program that will not end")
@pytest.mark.parametrize("named", [False, True])
@HELD
async def test_who_closes_does_not_wait_for_ever(named: bool) -> None:
    """A launcher that hangs, before or after it has said who is inside, takes nobody's time but these few seconds."""
    jail = Bubblewrap()
    started = await jail.start(Spec(profile="shell", argv=("/bin/sh", "-c", "echo up; sleep 100")))
    if named:
        assert await started.read(10) == b"up\n"
    os.kill(started.pid, signal.SIGSTOP)
    below = process_tree.descendants(started.pid)
    assert bool(below) >= named
    async with asyncio.timeout(process.TOLD_SECONDS + process.END_SECONDS + process.LAST_SECONDS + 30):
        await asyncio.gather(started.close(), started.close())
    assert await started.wait() == -signal.SIGKILL
    assert not [number for number in below if process_tree.parent_of(number) == started.pid]
    await jail.close()


@HELD
async def test_a_host_that_may_have_less_gives_less() -> None:
    """A core that root's program would be given is kept from it by a limit of 1; a host that may have none has 0."""
    said = []
    for most in (None, 0):
        order = ChildPipe.down(in_order(["/bin/grep", "-E", "^Max (core file size|open files)", "/proc/self/limits"]))
        before = [] if most is None else ["/usr/bin/prlimit", f"--core={most}", "--nofile=100"]
        said.append([line.split()[-3:] for line in start_alone(order, before).stdout.splitlines()])
        order.close_inner()
        order.close()
    assert said == [[["1", "1", "bytes"], ["256", "256", "files"]], [["0", "0", "bytes"], ["100", "100", "files"]]]


@HELD
async def test_what_is_refused_leaves_no_descriptor_and_no_stand_in(tmp_path: Path) -> None:
    jail = Bubblewrap()
    (tmp_path / "link").symlink_to("/usr")
    before = len(list(Path("/proc/self/fd").iterdir()))
    refused = [
        Spec(profile="shell", argv=("/nowhere/at/all",), workspace=tmp_path, fixed=(tmp_path / ".vscode",)),
        Spec(profile="shell", argv=("/bin/true",), workspace=tmp_path, fixed=(tmp_path / ".vscode", tmp_path / "link")),
        Spec(profile="shell", argv=("/bin/true",), workspace=tmp_path, fixed=(Path("/usr/lib"),)),
        Spec(profile="shell", argv=("/bin/true",), workspace=Path("/")),
        Spec(profile="shell", argv=("/bin/echo", "x" * 2 * MB)),
    ]
    for spec in refused:
        with pytest.raises(Unavailable):
            await jail.start(spec)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert [path.name for path in tmp_path.iterdir()] == ["link"]
    await jail.close()


@HELD
async def test_a_flood_waits_until_somebody_reads() -> None:
    jail = Bubblewrap()
    started = await jail.start(Spec(profile="shell", argv=("/usr/bin/yes",)))
    try:
        assert (await started.read(2)) == b"y\n"
        await asyncio.sleep(0.2)
        taken = sum([len(await started.read(MB)) for _ in range(4)])
        assert 0 < taken <= 4 * MB
        started.kill("output")
        assert await started.wait() == -signal.SIGKILL
        assert started.stopped == "output"
    finally:
        await jail.close()


@HELD
async def test_a_flood_does_not_keep_others_from_their_turn() -> None:
    jail = Bubblewrap()
    started = await jail.start(Spec(profile="shell", argv=("/usr/bin/yes",)))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(others())
    try:
        await started.read(2)
        turns = 0
        for _ in range(50):
            assert await started.read(16)
        assert turns >= 50
    finally:
        other.cancel()
        await jail.close()


@HELD
async def test_writers_take_turns() -> None:
    jail = Bubblewrap()
    started = await jail.start(Spec(profile="shell", argv=("/bin/cat",)))
    lines = [bytes([65 + number]) * 300_000 + b"\n" for number in range(8)]
    writing = asyncio.gather(*(started.write(line) for line in lines))
    heard = b""
    try:
        async with asyncio.timeout(30):
            while len(heard) < sum(map(len, lines)):
                heard += await started.read(65_536)
            await writing
        assert heard.splitlines(keepends=True) == lines
    finally:
        await jail.close()


@HELD
async def test_what_nobody_takes_does_not_block_for_ever() -> None:
    jail = Bubblewrap()
    started = await jail.start(Spec(profile="shell", argv=("/bin/sleep", "100")))
    writing = asyncio.ensure_future(started.write(bytes(4 * MB)))
    reading = asyncio.ensure_future(started.read(1))
    await asyncio.sleep(0.1)
    assert not writing.done() and not reading.done()
    await started.close()
    async with asyncio.timeout(30):
        await writing
        assert await reading == b""
    await jail.close()


@pytest.mark.matrix("fills a workspace")
def test_a_filled_folder_is_removed_whatever_is_in_it(tmp_path: Path) -> None:
    made = tmp_path / "scratch"
    made.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "keep").write_text("kept")
    (made / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(made / "fifo")
    Path(os.fsdecode(os.fsencode(made) + b"/\xff\n")).write_text("odd")
    inner = os.open(made, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deep", dir_fd=inner)
        below = os.open("deep", os.O_RDONLY, dir_fd=inner)
        os.close(inner)
        inner = below
    os.close(inner)
    (made / "closed" / "more").mkdir(parents=True)
    (made / "closed" / "more").chmod(0)
    (made / "closed").chmod(0)
    untrusted_files.remove(made)
    assert not made.exists()
    assert (tmp_path / "outside" / "keep").read_text() == "kept"


# Which jail is taken


@HELD
async def test_bubblewrap_is_taken_where_it_holds() -> None:
    jail = await selection.choose(SandboxSettings())
    assert jail.name == "bubblewrap"
    await jail.close()
    found = {one.name: one for one in await selection.survey(SandboxSettings())}
    assert list(found) == ["bubblewrap", "namespaces", "landlock", "docker"]
    assert found["bubblewrap"].available and set(found["bubblewrap"].enforces) == set(jail.enforces())
    assert all(one.available or one.reason for one in found.values())


class Wall:
    """A jail that would be one, but for what it lacks."""

    name = "wall"

    def __init__(self, folder: Path, *, code: str | None = None) -> None:
        self.folder = folder
        self.code = code

    def enforces(self) -> dict[Feature, str]:
        return {}

    async def start(self, spec: Spec) -> process.Process:
        program = (str(inside_files.python()), *(spec.argv[1:] if self.code is None else ("-c", self.code)))
        # Processes begin at the root of the host's file system, where root could leave files.
        words = ("/bin/sh", "-c", 'cd "$0" && exec "$@"', str(self.folder), *program)
        made = Launch(argv=words, order=ChildPipe.down(b""), environment=os.environ)
        return process.begin(made, lambda child: process.Process(child, made, spec))

    async def close(self) -> None: ...


async def test_a_jail_without_walls_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"It does not hold: files: .*network: .*processes: "):
        await self_check.trial(Wall(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"own", "much"}, "what it wrote is not where the test can remove it"


def test_the_bait_can_be_read_by_the_user_of_any_jail() -> None:
    """Else it would not be the jail that keeps it, and a jail that keeps nothing would be taken."""
    before = os.umask(0o077)
    try:
        with self_check.Bait() as bait:
            secret = Path(str(bait.words()["secret"]))
            assert secret.stat().st_mode & 0o004 and secret.parent.stat().st_mode & 0o001
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit('bwrap: setting up uid map: Permission denied')", "uid map: Permission denied"),
        ("", "exit code 0"),
        ("\n".join(f"print('{name} got it')" for name in self_check.TRIAL_CONTROLS), "exit code 0"),
        ("\n".join(f"print('{name} held it')" for name in self_check.TRIAL), "exit code 0"),
    ],
)
async def test_a_jail_in_which_nothing_works_is_not_taken(tmp_path: Path, code: str, why: str) -> None:
    with pytest.raises(Unavailable, match=why):
        await self_check.trial(Wall(tmp_path, code=code))


async def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.sandbox.jails.bubblewrap.PLACES", "/nowhere")
    with pytest.raises(Unavailable, match="bubblewrap is not installed"):
        await selection.choose(SandboxSettings(backend="bubblewrap"))
