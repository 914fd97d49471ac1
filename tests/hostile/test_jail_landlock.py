"""The jail of Landlock: what it holds, as root and as an ordinary user, and what it refuses to hold."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import jailed
from tests.hostile.jailed import COMMON, ORDINARY, USERS, Case
from tests.matrix import of_jail
from toolgate.sandbox.jail import Spec, Unavailable
from toolgate.sandbox.jails import landlock, process_tree
from toolgate.sandbox.jails.identity import Identity

pytestmark = [pytest.mark.requirement("SBX-2", "SBX-3"), *of_jail("landlock")]


@pytest.fixture(params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    who: str = request.param
    return who


@pytest.fixture
def folder(user: str) -> Iterator[Path]:
    with jailed.folder_of(user) as made:
        yield made


def run_one(user: str, folder: Path, code: str, **more: Any) -> dict[str, Any]:
    said = jailed.run("landlock", user, folder, [{"name": "one", "code": jailed.BEGIN + code + jailed.END, **more}])
    result: dict[str, Any] = said["results"]["one"]
    assert said["processes"] == [] and said["left"] == []
    return result


def check(result: dict[str, Any]) -> None:
    lines = result["out"].splitlines()
    assert "control ok" in lines, result
    assert lines[-1] == "held", result
    assert "ESCAPED" not in result["out"], result


@pytest.mark.parametrize("case", COMMON, ids=lambda case: case.name)
def test_it_holds(case: Case, user: str) -> None:
    jailed.check(case, jailed.results("landlock", user))


def test_nothing_is_left_and_nobody_else_is_hit(user: str) -> None:
    said = jailed.results("landlock", user)
    assert said["victim"], "the program beside was hit"
    assert said["processes"] == [] and said["left"] == []
    assert said["outside"] == {"keep": "kept"}
    assert "can be seen" in said["enforces"]["files"], "what it does not hold must be said"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_hosts_death_ends_everything(user: str, folder: Path, number: signal.Signals) -> None:
    jailed.kill_host("landlock", user, folder, number)


def test_what_a_command_leaves_behind_ends_with_it(user: str, folder: Path) -> None:
    """Also what forks faster than anybody can look."""
    said = jailed.run("landlock", user, folder, [jailed.HOLDING[1]])
    assert said["results"]["daemons"]["code"] == 0, said
    assert said["processes"] == [] and jailed.processes_of(folder) == []


@pytest.mark.parametrize("profile", ["python", "shell"])
def test_it_changes_nothing_about_files_that_landlock_does_not_hold(user: str, folder: Path, profile: str) -> None:
    """Modes, owners, times, attributes and watches: the host's user owns the file, so only the filter stops it."""
    keep = folder / "outside" / "keep"
    before = keep.stat()
    result = run_one(user, folder, f"""
own = os.path.join(os.environ["TMPDIR"], "own")
open(own, "w").close(); os.rename(own, own + "2"); os.stat(own + "2")
path = {str(keep)!r}
control()
for change in (lambda: os.chmod(path, 0o777), lambda: os.chown(path, os.getuid(), os.getgid()),
        lambda: os.utime(path, (1, 1)), lambda: os.setxattr(path, "user.x", b"x"),
        lambda: os.chmod("/usr/bin", 0o700), lambda: os.chmod(own + "2", 0o777)):
    attempt(change)
if libc.inotify_add_watch(libc.inotify_init1(0), path.encode(), 2) >= 0: print("ESCAPED inotify")
attempt(os.open, path, os.O_WRONLY)
attempt(lambda: open("/dev/shm/toolgate-new", "w"))
attempt(lambda: open("/proc/self/status"))
attempt(os.listdir, "/proc")
attempt(os.listdir, "/dev")
""", profile=profile)  # fmt: skip
    check(result)
    after = keep.stat()
    assert (after.st_mode, after.st_uid, after.st_mtime_ns) == (before.st_mode, before.st_uid, before.st_mtime_ns)


def test_deleted_files_count(user: str, folder: Path) -> None:
    """What has no name any more still takes room, as long as somebody has it open."""
    result = run_one(user, folder, """
import tempfile
first = tempfile.TemporaryFile(); first.write(b"x" * 100_000); first.flush(); first.close()
control()
kept = []
for number in range(200):
    kept.append(tempfile.TemporaryFile(buffering=0))
    kept[-1].write(b"x" * (4 << 20))
    time.sleep(0.05)  # what is polled is seen late by a busy host
print("ESCAPED")
""", limits={"disk": 16 * jailed.MB})  # fmt: skip
    assert result["out"] == "control ok\n", result
    assert result["stopped"] == "disk"


def test_descriptors_cannot_be_sent_out_of_sight(user: str, folder: Path) -> None:
    result = run_one(user, folder, """
a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
control()
attempt(socket.send_fds, a, [b"x"], [0])
""")  # fmt: skip
    check(result)


def test_what_it_closed_to_itself_is_removed(user: str, folder: Path) -> None:
    result = run_one(user, folder, """
os.makedirs("deep/er")
os.umask(0)
os.mkdir("deep/none", 0)
os.mkdir("deep/closed", 0o300); open("deep/closed/file", "w").write("x"); os.mkdir("deep/closed/er", 0o300)
control()
""")  # fmt: skip
    check(result)


def test_a_workspace_is_written(user: str, folder: Path) -> None:
    work = folder / "work"
    work.mkdir()
    (work / "file").write_text("old")
    (work / "link").symlink_to(folder / "secret")
    if os.geteuid() == 0 and user == "ordinary":
        for path in (work, work / "file"):
            os.chown(path, ORDINARY, ORDINARY)
    result = run_one(user, folder, """
assert open("file").read() == "old"
open("file", "w").write("new"); os.mkdir("a"); open("a/b", "w").close(); os.rename("a/b", "c")
control()
attempt(lambda: open("link").read())
attempt(lambda: open("../secret").read())
attempt(os.rename, "c", "../c")
attempt(os.link, "../outside/keep", "d")
""", workspace=str(work))  # fmt: skip
    check(result)
    assert (work / "file").read_text() == "new"
    assert sorted(path.name for path in work.iterdir()) == ["a", "c", "file", "link"]


def test_other_processes_of_the_user_do_not_count_against_it(folder: Path, user: str) -> None:
    """RLIMIT_NPROC counts them all. A limit of 40 must leave room for children beside 60 that were there before."""
    sleepers = [subprocess.Popen(["/bin/sleep", "600"], **jailed.of_user(user)) for _ in range(60)]
    try:
        result = run_one(user, folder, """
for _ in range(5):
    if not os.fork(): time.sleep(0.2); os._exit(0)
for _ in range(5): os.wait()
control()
""", profile="shell", limits={"processes": 40})  # fmt: skip
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
    check(result)


def test_the_supervisor_does_not_start_anything_if_its_own_reach_is_not_limited() -> None:
    """It ends programs with kill(-1). Here it is told that the host is a process that it can reach: itself."""
    code = f"""
import importlib.util, os
spec = importlib.util.spec_from_file_location("launcher", {str(landlock.LANDLOCK_LAUNCHER)!r})
launcher = importlib.util.module_from_spec(spec); spec.loader.exec_module(launcher)
try: launcher.reach_nobody_else(os.getppid()); print("limited")
except OSError as error: print(error)
try: launcher.reach_nobody_else(os.getpid()); print("limited")
except OSError as error: print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["limited", "Landlock does not hold signals"], done.stderr


# -- what it refuses

SPEC = Spec(profile="python", argv=(sys.executable,), workspace=Path("/work"))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_old_landlock_is_refused(version: int) -> None:
    with pytest.raises(Unavailable, match="version 3 is needed"):
        landlock.refuse_what_cannot_be_held(SPEC, version)
    landlock.refuse_what_cannot_be_held(SPEC, 3)


def test_commands_are_refused_where_signals_are_not_held() -> None:
    command = Spec(profile="shell", argv=("/bin/sh",))
    with pytest.raises(Unavailable, match="signals"):
        landlock.refuse_what_cannot_be_held(command, 5)
    landlock.refuse_what_cannot_be_held(command, 6)


@pytest.mark.parametrize("parts", [{"fixed": [".git"]}, {"hidden": [".env"]}])
def test_parts_of_a_workspace_are_refused(user: str, folder: Path, parts: dict[str, list[str]]) -> None:
    work = folder / "work"
    work.mkdir()
    named = {kind: [str(work / name) for name in names] for kind, names in parts.items()}
    result = run_one(user, folder, "control()", workspace=str(work), **named)
    assert "cannot keep parts of a workspace" in result["unavailable"]


def test_what_its_user_cannot_reach_is_refused(tmp_path: Path) -> None:
    """As root, the program becomes somebody to whom others' homes are closed."""
    closed, nobody = tmp_path / "closed", Identity(1_950_000_000, 1_950_000_000)
    program = closed / "python"
    closed.mkdir(mode=0o700)
    program.touch()
    with pytest.raises(Unavailable, match="cannot reach"):
        list(landlock.allowed(Spec(profile="python", argv=(str(program),)), nobody))
    assert landlock.is_reachable(Path("/usr/bin/env"), nobody)
    assert not landlock.is_reachable(program, nobody)
    assert (
        landlock.is_reachable(closed / "python", Identity(os.getuid(), os.getgid())) or os.getuid() != closed.stat().st_uid
    )


# -- what a dead host left


def test_folders_of_dead_hosts_are_removed_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as other:
        known, when = landlock.processes_known(), process_tree.began(other.pid)
        living = tmp_path / f"{landlock.SCRATCH_PREFIX}-{known}-{other.pid}-{when}-aa"
        earlier = tmp_path / f"{landlock.SCRATCH_PREFIX}-{known}-{other.pid}-{(when or 0) - 1}-aa"
        elsewhere = tmp_path / f"{landlock.SCRATCH_PREFIX}-{known + 1}-{other.pid}-{(when or 0) - 1}-aa"
        foreign = tmp_path / f"{landlock.SCRATCH_PREFIX}-notes"
        for made in (living, earlier, elsewhere, foreign):
            (made / "home").mkdir(parents=True)
        link = tmp_path / f"{landlock.SCRATCH_PREFIX}-{known}-1-1-aa"
        link.symlink_to(foreign)
        landlock.remove_stale(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
            path.name for path in (living, elsewhere, foreign, link)
        )
        other.kill()
        other.wait()
        landlock.remove_stale(tmp_path)
        assert not living.exists() and (foreign / "home").exists()


def test_a_killed_host_leaves_folders_that_the_next_one_removes(user: str, folder: Path) -> None:
    jailed.kill_host("landlock", user, folder, signal.SIGKILL)
    assert len(list((folder / "scratch").iterdir())) == 2
    check(run_one(user, folder, "control()"))
