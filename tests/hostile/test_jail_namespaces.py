"""The jail of namespaces: what it holds, as root and as an ordinary user."""

import marshal
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import jailed
from tests.hostile.jailed import COMMON, ORDINARY, USERS, Case
from tests.matrix import of_jail
from toolgate.sandbox.jails.namespaces import NAMESPACE_LAUNCHER

pytestmark = [pytest.mark.requirement("SBX-2", "SBX-3"), *of_jail("namespaces")]


@pytest.fixture(params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    who: str = request.param
    return who


@pytest.fixture
def folder(user: str) -> Iterator[Path]:
    with jailed.folder_of(user) as made:
        yield made


def run_one(user: str, folder: Path, code: str, **more: Any) -> dict[str, Any]:
    said = jailed.run("namespaces", user, folder, [{"name": "one", "code": jailed.BEGIN + code + jailed.END, **more}])
    result: dict[str, Any] = said["results"]["one"]
    assert said["processes"] == []
    return result


def check(result: dict[str, Any]) -> None:
    lines = result["out"].splitlines()
    assert "control ok" in lines, result
    assert lines[-1] == "held", result
    assert "ESCAPED" not in result["out"], result


@pytest.mark.parametrize("case", COMMON, ids=lambda case: case.name)
def test_it_holds(case: Case, user: str) -> None:
    jailed.check(case, jailed.results("namespaces", user))


def test_nothing_is_left_and_nobody_else_is_hit(user: str) -> None:
    said = jailed.results("namespaces", user)
    assert said["victim"], "the program beside was hit"
    assert said["processes"] == [] and said["left"] == []
    assert said["outside"] == {"keep": "kept"}
    assert set(said["enforces"]) == {
        "files", "environment", "network", "processes", "memory", "cpu", "time", "disk", "output", "signals",
    }  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_hosts_death_ends_everything(user: str, folder: Path, number: signal.Signals) -> None:
    jailed.kill_host("namespaces", user, folder, number)


def test_what_a_command_leaves_behind_ends_with_it(user: str, folder: Path) -> None:
    said = jailed.run("namespaces", user, folder, [jailed.HOLDING[1]])
    assert said["results"]["daemons"]["code"] == 0, said
    assert jailed.processes_of(folder) == []


def test_only_the_scratch_can_be_written(user: str, folder: Path) -> None:
    result = run_one(user, folder, """
lines = [line.split() for line in open("/proc/self/mountinfo")]
assert len(lines) > 5
control()
for line in lines:
    options = line[5].split(",")
    if line[4] != "/tmp" and "ro" not in options: print("ESCAPED", line)
    if "nosuid" not in options: print("ESCAPED", line)
    if not line[4].startswith("/dev/") and "nodev" not in options: print("ESCAPED", line)
have = os.statvfs("/tmp")
if have.f_files > 10000 or have.f_blocks * have.f_frsize > 64 << 20: print("ESCAPED", have)
for path in ("/", "/dev", "/proc/self/comm", "/usr", "/etc"):
    if os.access(path, os.W_OK): print("ESCAPED", path)
for path in ("cmdline", "keys", "kallsyms", "timer_list", "interrupts"):
    try:
        if open("/proc/" + path, "rb").read(): print("ESCAPED", path)
    except OSError: pass
""")  # fmt: skip
    check(result)


def test_it_sees_no_process_but_its_own(user: str, folder: Path) -> None:
    result = run_one(user, folder, """
child = os.fork()
if not child: time.sleep(5); os._exit(0)
seen = {int(name) for name in os.listdir("/proc") if name.isdigit()}
assert child in seen
control()
if seen - {1, os.getpid(), child}: print("ESCAPED", seen)
if os.getppid() != 1: print("ESCAPED", os.getppid())
for name in ("mem", "environ", "root", "cwd", "fd", "maps", "ns/mnt"):
    attempt(os.stat, f"/proc/1/{name}")
os.kill(child, signal.SIGKILL)
for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
    try: os.kill(1, number)
    except OSError: pass
time.sleep(0.1)
""", profile="shell")  # fmt: skip
    check(result)


def test_no_user_namespace_can_be_made_in_it_even_without_the_filter(folder: Path, user: str) -> None:
    """As an ordinary user the world is a user namespace, and its limit on further ones is none."""
    expected = "0" if user == "ordinary" else Path("/proc/sys/user/max_user_namespaces").read_text().strip()
    result = run_one(user, folder, """
print("most", open("/proc/sys/user/max_user_namespaces").read().strip())
control()
""")  # fmt: skip
    check(result)
    assert f"most {expected}" in result["out"].splitlines()


def test_it_has_no_rights_left(user: str, folder: Path) -> None:
    result = run_one(user, folder, """
status = dict(line.strip("\\n").split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
control()
for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
    if int(status[name], 16): print("ESCAPED", name, status[name])
if os.getuid() == 0 or os.getgid() == 0 or (os.getgroups() not in ([], [os.getgid()])): print("ESCAPED", os.getgroups())
""")  # fmt: skip
    check(result)


@pytest.mark.parametrize(
    ("code", "ending"), [("os._exit(3)", 3), ("os.kill(os.getpid(), signal.SIGSEGV)", -11), ("1 / 0", 1)]
)
def test_it_ends_as_the_program_did(user: str, folder: Path, code: str, ending: int) -> None:
    result = run_one(user, folder, f"control()\n{code}\n")
    assert result["out"] == "control ok\n"
    assert result["code"] == ending


def test_a_world_that_could_not_be_finished_is_not_run_in(user: str, folder: Path) -> None:
    """The first process fails: there is something where its own /proc belongs."""
    result = run_one(user, folder, "control()", readable=["/proc/version"])
    assert result["code"] == 125 and result["errors"].startswith("toolgate-starter:"), result
    assert result["out"] == ""


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


def test_a_workspace_is_written_by_its_owner_and_its_parts_are_kept(user: str, folder: Path, workspace: Path) -> None:
    hidden = [str(workspace / name) for name in (".env", "keys")]
    result = run_one(user, folder, """
work = os.getcwd()
assert open("free").read() == "old" and open(".git/hooks/post-commit").read() == "hook"
open("free", "w").write("new"); open(".git/HEAD", "w").write("new"); os.mkdir("made"); open("made/file", "w").write("x")
os.rename("made/file", "moved")
control()
for path in (".git/hooks/post-commit", ".git/hooks/new", ".env", "keys/new"):
    attempt(lambda: open(path, "w").write("x"), name=path)
for path in (".env", "keys/id"):
    try:
        if open(path).read(): print("ESCAPED", path)
    except OSError: pass
attempt(lambda: os.listdir("keys") and 1 or os.listdir("/nowhere"))
for path in (".git", ".git/hooks", ".env", "keys", work): attempt(os.rename, path, path + "2")
attempt(os.unlink, ".env")
attempt(os.rmdir, "keys")
attempt(os.link, ".git/hooks/post-commit", "link")
attempt(os.truncate, ".git/hooks/post-commit", 0)
attempt(os.chmod, ".git/hooks/post-commit", 0o777)
""", workspace=str(workspace), fixed=[str(workspace / ".git/hooks")], hidden=hidden)  # fmt: skip
    check(result)
    assert (workspace / "free").read_text() == "new" and (workspace / "moved").read_text() == "x"
    assert (workspace / "moved").stat().st_uid == workspace.stat().st_uid
    assert (workspace / ".git/hooks/post-commit").read_text() == "hook"
    assert (workspace / ".env").read_text() == "token" and (workspace / "keys/id").read_text() == "key"
    assert sorted(path.name for path in workspace.iterdir()) == [".env", ".git", "free", "keys", "made", "moved"]


def test_a_part_behind_a_link_is_refused(user: str, folder: Path, workspace: Path) -> None:
    (workspace / "keys").rename(folder / "real")
    (workspace / "keys").symlink_to(folder / "outside")
    result = run_one(user, folder, "control()", workspace=str(workspace), fixed=[str(workspace / "keys" / "keep")])
    assert "is a link" in result["unavailable"]


@pytest.mark.parametrize("name", ["outside", "link", "link/inner"])
def test_the_launcher_follows_no_link(user: str, folder: Path, name: str) -> None:
    """Somebody may put one there after the host has looked."""
    (folder / "outside" / "inner").mkdir()
    (folder / "link").symlink_to(folder / "outside")
    (folder / "starter.py").write_text("import os\nos.write(1, b'control ok')\nos._exit(0)")
    other = jailed.ORDINARY if user == "ordinary" and os.geteuid() == 0 else os.geteuid()
    ends = os.pipe()
    plan = {
        "host": os.getpid(), "lifeline": ends[0], "told": ends[1], "user": [other, other] if other else None,
        "world": [["bind", path, "read", path] for path in ("/usr", str(folder / "starter.py"), str(folder / name))],
        "place": "/tmp", "writes_proc": False, "starter": str(folder / "starter.py"),
    }  # fmt: skip
    command = [jailed.interpreter(), "-I", "-S", "-B", str(NAMESPACE_LAUNCHER), marshal.dumps(plan, 2).hex()]
    done = subprocess.run(command, capture_output=True, timeout=60, pass_fds=ends, text=True, **jailed.of_user(user))
    for end in ends:
        os.close(end)
    if name == "outside":
        assert (done.returncode, done.stdout) == (0, "control ok"), done.stderr
    else:
        assert (done.returncode, done.stdout) == (125, "")
        assert "symbolic link" in done.stderr


def test_the_end_of_the_launcher_ends_everything(user: str, folder: Path) -> None:
    """Whoever kills it, the kernel takes the rest along."""
    jailed.kill_launchers("namespaces", user, folder)
