"""Programs that leave a trap in the folder that they work in, for whoever uses an editor or git there next.

The trap is a repository whose settings have git run a command. The host's own git says whether it went off.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from toolgate import Actor, App, Outcome
from toolgate.errors import Denied, InvalidInput
from toolgate.model import Call
from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.workspaces import Workspaces
from toolgate.tools import file_changes
from toolgate.tools.call_folder import CallFolder
from toolgate.tools.site_folder import read_site

pytestmark = [pytest.mark.requirement("SBX-3"), pytest.mark.requirement("TIER-1"), pytest.mark.requirement("BUILTIN-3")]
MARKER = "what nobody may read"
TRAP = """
import os
def trap(folder, more="\\tbare = false\\n\\tworktree = ..\\n"):
    for name in ("objects", "refs"):
        os.makedirs(f"{folder}/{name}", exist_ok=True)
    with open(f"{folder}/HEAD", "w") as file:
        file.write("ref: refs/heads/main\\n")
    with open(f"{folder}/config", "w") as file:
        file.write("[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \\"touch PWNED; false\\"\\n" + more)
BARE = "\\tbare = false\\n\\tworktree = .\\n"
"""
GIT = shutil.which("git") or "git"
ENVIRONMENT = {
    "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_COUNT": "3",
    "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*", "GIT_CONFIG_KEY_1": "user.name",
    "GIT_CONFIG_VALUE_1": "Ann", "GIT_CONFIG_KEY_2": "user.email", "GIT_CONFIG_VALUE_2": "ann@example.com",
}  # fmt: skip


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
async def app(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    for name in list(os.environ):
        if name.startswith("TOOLGATE_") and name != "TOOLGATE_TRUST":
            monkeypatch.delenv(name)
    allow = ("git", "cat", "ls", "tee")
    async with App.open(os.devnull, home=tmp_path / "home", commands={"allow": allow}) as app:
        app.approvals.add_approver(lambda _request: True)
        app.sessions.work_in("s", work)
        yield app


async def run(app: App, code: str) -> Outcome:
    return await app.invoke("code_execute", {"code": TRAP + code, "session_files": True}, session="s")


def goes_off(work: Path) -> bool:
    """Whether git, used in any of the folders by a person, runs the command."""
    for folder in [work, *(path for path in work.rglob("*") if path.is_dir() and not path.is_symlink())]:
        subprocess.run([GIT, "status"], cwd=folder, env=ENVIRONMENT, capture_output=True, check=False)
    return any(work.rglob("PWNED"))


def git(work: Path, *words: str) -> None:
    subprocess.run([GIT, *words], cwd=work, env=ENVIRONMENT, capture_output=True, check=True)


def give_away(work: Path) -> None:
    """Where we are root, programs are somebody else."""
    if os.geteuid() == 0:
        for path in (work, *work.rglob("*")):
            os.chown(path, 1000, 1000, follow_symlinks=False)


TRAPS = {
    "plain": 'trap(".git")',
    "link": 'trap("plain"); os.symlink("plain", ".git")',
    "chain of links": 'trap("plain"); os.symlink("plain", "next"); os.symlink("next", ".git")',
    "by any name": 'trap("sub", BARE)',
    "with its objects elsewhere": 'trap("x", BARE); os.mkdir("sub"); os.rename("x/HEAD", "sub/HEAD"); '
    'open("sub/commondir", "w").write("../x"); open("x/HEAD", "w").write("ref: refs/heads/main")',
    "the folder itself": 'trap(".", BARE)',
    "file": 'trap("plain"); open(".git", "w").write("gitdir: plain")',
    "in a folder that is not searched": 'os.mkdir("node_modules"); trap("node_modules/.git")',
    "in a folder for an editor": 'os.makedirs(".vscode/deep"); trap(".vscode/deep/.git")',
    "in a secret folder": 'os.makedirs(".aws/deep"); trap(".aws/deep/.git")',
    "in another": 'trap("sub", BARE); os.mkdir("sub/deep"); trap("sub/deep/.git")',
    "in a closed folder": 'os.mkdir("closed"); trap("closed/.git"); os.chmod("closed", 0o300)',
    "among many": 'trap(".git")\nfor i in range(520): os.makedirs(f"d{i}/.vscode")',
    "and a failure": 'trap(".git"); 1 / 0',
    "and an end": 'trap(".git"); os._exit(3)',
}


@pytest.mark.parametrize("code", TRAPS.values(), ids=TRAPS.keys())
@pytest.mark.sample(4)
async def test_no_trap_that_a_program_leaves_goes_off(app: App, work: Path, code: str) -> None:
    outcome = await run(app, f'open("data.csv", "w").write("1")\n{code}')
    if outcome.ok:
        assert "set aside" in outcome.output["stderr"]
    assert (work / "data.csv").read_text() == "1", "the control: data is brought in"
    assert not [path for path in work.rglob("*") if path.is_file() and path.name != "data.csv"]
    assert app.workspace.changes()
    assert not goes_off(work)


def test_the_control_a_trap_goes_off(work: Path) -> None:
    for number, name in enumerate(("plain", "link", "by any name", "with its objects elsewhere", "in another")):
        folder = work / str(number)
        folder.mkdir()
        subprocess.run(["python3", "-c", TRAP + TRAPS[name]], cwd=folder, check=True)
        assert goes_off(folder), name


async def test_links_of_such_names_are_set_aside(app: App, work: Path) -> None:
    names = (".vscode", ".mcp.json", ".envrc", ".claude", ".husky", "deep/.gitmodules", ".GIT")
    await run(app, f'os.makedirs("v"); os.mkdir("deep")\nfor name in {names}: os.symlink("v", name)')
    assert {str(path.relative_to(work)) for path in work.rglob("*")} == {"v"}
    (kept,) = app.workspace.changes()
    assert {change.path for change in kept.changes} == set(names)


async def test_settings_of_toolgate_are_set_aside_wherever_they_are(app: App, work: Path) -> None:
    code = 'trap("sub", BARE); os.mkdir(".vscode"); os.makedirs("a/.toolgate/tools"); os.makedirs(".config/fish/deep")\n'
    await run(app, code + 'for name in ("sub", ".vscode", "a/.toolgate/tools"): open(f"{name}/toolgate.yaml", "w").close()')
    left = {str(path.relative_to(work)) for path in work.rglob("*")}
    assert left == {"sub", "sub/objects", "sub/refs"}, "empty folders with plain names"


async def test_a_link_that_was_there_holds_what_it_leads_to(app: App, work: Path) -> None:
    (work / "v").mkdir()
    (work / "v" / "tasks.json").write_text("as it was")
    (work / "dev.txt").write_text(MARKER)
    (work / ".vscode").symlink_to("v")
    (work / ".env").symlink_to("dev.txt")
    give_away(work)
    code = """
seen = []
for act in (lambda: open("v/tasks.json", "w").write("evil"), lambda: os.rename("v", "w"), lambda: open("dev.txt").read()):
    try:
        seen.append(act())
    except OSError as error:
        seen.append(type(error).__name__)
os.unlink(".vscode"); os.mkdir("evil"); os.symlink("evil", ".vscode")
seen
"""
    outcome = await run(app, code)
    assert outcome.ok, outcome.error
    assert MARKER not in str(outcome.to_dict())
    assert (work / "v" / "tasks.json").read_text() == "as it was"
    assert "v/tasks.json" in outcome.output["stderr"]
    assert str((work / ".vscode").readlink()) == "v"


async def test_folders_too_deep_to_be_named_are_set_aside_unread(app: App, work: Path) -> None:
    outcome = await run(app, 'trap(".git")\nfor i in range(30): os.mkdir("d" * 200); os.chdir("d" * 200)')
    assert outcome.ok, outcome.error
    assert list(work.iterdir()) == []
    (kept,) = app.workspace.changes()
    assert "it is too deep" in {change.why for change in kept.changes}


HOSTILE_LAYER = """
import os, socket
os.mkfifo("pipe.csv")
os.symlink("/etc/passwd", "link.csv"); os.symlink("..", "up"); os.mkdir("sub")
open("sub/a.csv", "w").write("a"); os.link("sub/a.csv", "b.csv")
open("hole.csv", "w").truncate(60 << 20); open("hole2.csv", "w").truncate(60 << 20)
open("new\\nline.csv", "w").close(); open("x\u202egnp.csv", "w").close(); open(b"\\xff.csv", "w").close()
open("run.csv", "w").write("#!/bin/sh"); os.chmod("run.csv", 0o755)
open("closed.csv", "w").write("c"); os.chmod("closed.csv", 0)
try:
    os.setxattr("sub", "user.overlay.opaque", b"y"); os.setxattr("sub", "user.overlay.redirect", b"/etc")
except OSError:
    pass
os.remove("old.csv"); os.rename("data.csv", "moved.csv")
try:
    os.rename("folder", "folder.csv")
except OSError as error:
    print(error.errno)
import shutil; shutil.rmtree("folder"); os.mkdir("folder"); open("folder/new.csv", "w").write("n")
shutil.rmtree("mixed")
"""


@pytest.mark.requirement("SBX-5")
async def test_what_is_strange_in_a_layer_does_no_harm(app: App, work: Path) -> None:
    for name in ("old.csv", "data.csv", "folder/f.csv", "mixed/a.csv", "mixed/b.py"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(name)
    (work / "folder" / "f.csv").chmod(0o444)
    give_away(work)
    outcome = await run(app, HOSTILE_LAYER)
    assert outcome.ok, outcome.error
    left = {str(path.relative_to(work)) for path in work.rglob("*")}
    brought = {"sub", "sub/a.csv", "b.csv", "moved.csv", "folder", "folder/new.csv", "closed.csv"}
    assert left - {"closed.csv"} == (
        brought | {"mixed", "mixed/a.csv", "mixed/b.py"} | (left & {"hole.csv", "hole2.csv"})
    ) - {"closed.csv"}, outcome.output["stderr"]
    assert len(left & {"hole.csv", "hole2.csv"}) < 2, "no more than the program may write in all"
    assert (work / "moved.csv").read_text() == "data.csv"
    assert not any(path.is_symlink() for path in work.rglob("*"))
    assert not [path for path in work.rglob("*.csv") if path.stat().st_mode & 0o7111]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that an ordinary user reaches."""
    with TemporaryDirectory() as name:
        folder = Path(os.path.realpath(name))
        folder.chmod(0o755)
        yield folder


def test_a_folder_that_its_owner_closed_is_hidden(open_folder: Path) -> None:
    """For an ordinary user, whose programs may open what they own."""
    work = open_folder / "work"
    closed = work / "closed"
    (closed / ".git").mkdir(parents=True)
    closed.chmod(0o300)
    give_away(work)
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(1000, 1000, 1000)
                os.setresuid(1000, 1000, 1000)
            places = Workspaces(open_folder / "home", work)
            assert places.parts(work).hidden == (closed,)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


# -- git itself


HOOK = """#!/bin/sh
mkdir -p evil/objects evil/refs; cp -r .git/objects .git/refs evil/
printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tfsmonitor = "touch PWNED; false"\\n' > evil/config
echo ../evil > .git/commondir
cp -r .git sub/.git; cp evil/config sub/.git/config
"""


async def test_a_hook_of_the_workspace_does_not_set_up_git(app: App, work: Path) -> None:
    git(work, "init", "-q", ".")
    hook = work / ".git" / "hooks" / "pre-commit"
    hook.write_text(HOOK)
    hook.chmod(0o755)
    (work / "sub").mkdir()
    (work / "sub" / "a.txt").write_text("x")
    git(work, "config", "user.name", "Ann")
    git(work, "config", "user.email", "ann@example.com")
    give_away(work)
    for words in ("git add sub/a.txt", "git commit -m first"):
        outcome = await app.invoke("execute_command", {"command": words}, session="s")
        assert outcome.ok, outcome.error
        assert outcome.output["exitCode"] == 0, outcome.output
    (kept,) = app.workspace.changes()
    assert {".git/commondir", "sub/.git/config"} <= {change.path for change in kept.changes}
    assert not (work / "sub" / ".git").exists()
    assert not goes_off(work)
    git(work, "log")


async def test_a_repository_without_files_that_was_there_stays_as_it_is(app: App, work: Path) -> None:
    git(work, "init", "-q", "--bare", "store.any")
    git(work, "init", "-q", "store.any/inner")
    give_away(work)
    kept = {str(path) for path in work.rglob("*")}
    outcome = await run(
        app,
        """
for act in (lambda: open("store.any/config", "a"), lambda: os.mkdir("store.any/x"), lambda: os.rename("store.any", "y")):
    try:
        act()
    except OSError:
        continue
    print("done")
""",
    )
    assert outcome.ok, outcome.error
    assert (outcome.output["stdout"], outcome.output["stderr"]) == ("", "")
    assert {str(path) for path in work.rglob("*")} == kept


async def test_a_repository_that_git_makes_is_left(app: App, work: Path) -> None:
    give_away(work)
    outcome = await app.invoke("execute_command", {"command": "git init"}, session="s")
    assert outcome.output["exitCode"] == 0, outcome.output
    assert app.workspace.changes() == []
    git(work, "status")


# -- what changes while a program runs


async def meanwhile(app: App, work: Path, code: str, change: Any) -> Outcome:
    """Run code in the folder of a session; when it has begun, make a change on the host, and let it go on."""
    waits = 'import time\nopen("begun", "w").close()\nwhile not os.path.exists("go"): time.sleep(0.01)\n'
    call = app.invoke("code_execute", {"code": TRAP + waits + code, "session_files": True}, session="own")
    running = asyncio.ensure_future(call)
    async with asyncio.timeout(60):
        while not (work / "begun").exists():
            await asyncio.sleep(0.01)
        change()
        (work / "go").touch()
        return await running


@pytest.fixture
def own(app: App) -> Path:
    """The folder of a session, in which programs make their changes themselves."""
    return app.parts.places.of(Call("", "", None, session="own"))


READ = """
try:
    seen = open(".env").read()
except PermissionError:
    seen = ""
seen
"""


async def test_what_is_put_in_place_of_a_hidden_file_is_not_given_out(app: App, own: Path) -> None:
    work = own
    (work / ".env").write_text("old")
    (work / ".env.new").write_text(MARKER)
    give_away(work)
    outcome = await meanwhile(app, work, READ, lambda: (work / ".env.new").replace(work / ".env"))
    assert outcome.error is not None, outcome
    assert outcome.error.code == "SANDBOX_ERROR"
    assert "was replaced while the program ran" in outcome.error.message
    assert MARKER not in str(outcome.to_dict())


async def test_the_control_a_hidden_file_that_stays_withholds_nothing(app: App, own: Path) -> None:
    work = own
    (work / ".env").write_text(MARKER)
    give_away(work)
    outcome = await meanwhile(app, work, READ, lambda: (work / "other.txt").touch())
    assert outcome.ok, outcome.error
    assert outcome.output["result"] == ""


# -- whose folder it is


async def test_a_tenant_without_a_session_has_a_folder_of_its_own(
    app: App, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    (work / "a.txt").write_text(MARKER)
    ann, eve = Actor("acme", user="ann"), Actor("globex", user="eve")
    assert (await app.invoke("read_file", {"path": "a.txt"})).output["content"] == MARKER
    for actor in (ann, eve):
        assert not (await app.invoke("read_file", {"path": "a.txt"}, actor=actor)).ok
        assert not (await app.invoke("read_file", {"path": str(work / "a.txt")}, actor=actor)).ok
        assert (await app.invoke("execute_command", {"command": "ls"}, actor=actor)).output["stdout"] == ""
    assert (await app.invoke("write_file", {"path": "b.txt", "content": "x"}, actor=ann)).ok
    assert (await app.invoke("execute_command", {"command": "cat b.txt"}, actor=ann)).output["stdout"] == "x"
    assert not (await app.invoke("read_file", {"path": "b.txt"}, actor=eve)).ok
    assert not (work / "b.txt").exists()
    places = Workspaces(tmp_path / "home", work)
    calls = [Call("", "", None, actor, session) for actor in (ann, eve) for session in (None, "", "acme")]
    assert [places.known(call) for call in calls] == [places.of(call) for call in calls]
    assert len({places.of(call) for call in calls}) == 6
    assert places.known(Call("", "", None)) == work == places.of(Call("", "", None))


# -- the file tools make no trap either


REFUSED = (
    ".git", ".git/hooks/pre-commit", ".git/config", ".git/x", "deep/.git", ".GIT/config", ".mcp.json", ".vscode/tasks.json",
    ".husky/pre-commit", ".claude/settings.json", ".gitmodules", ".cursor/mcp.json", ".devcontainer/devcontainer.json",
    ".idea/workspace.xml", ".envrc", "node_modules/.git",
)  # fmt: skip


@pytest.mark.parametrize("path", REFUSED)
@pytest.mark.sample(4)
async def test_no_tool_writes_what_a_program_may_not_change(app: App, work: Path, path: str) -> None:
    for tool, more in (("write_file", {"content": "x"}), ("create_directory", {})):
        outcome = await app.invoke(tool, {"path": path, **more}, session="s")
        assert outcome.error is not None, (tool, outcome)
        assert (outcome.status, outcome.error.code) == ("denied", "SECURITY_VIOLATION")
        assert "a place for" in outcome.error.message
    assert list(work.iterdir()) == []


async def test_what_an_honest_project_has_is_written(app: App, tmp_path: Path) -> None:
    """Also in a folder that an agent keeps below its own."""
    work = tmp_path / ".claude" / "worktrees" / "one"
    work.mkdir(parents=True)
    app.sessions.work_in("s", work)
    for path in (
        ".gitignore",
        ".gitattributes",
        ".github/workflows/test.yml",
        "src/git.py",
        "HEAD",
        "refs/x",
        "package.json",
    ):
        outcome = await app.invoke("write_file", {"path": path, "content": "x"}, session="s")
        assert outcome.ok, (path, outcome.error)
        assert (work / path).read_text() == "x"


async def test_a_repository_is_not_put_together_file_by_file(app: App, work: Path) -> None:
    for path, fine in (("objects/x", True), ("config", True), ("HEAD", True), ("refs/x", False), ("commondir", False)):
        outcome = await app.invoke("write_file", {"path": f"sub/{path}", "content": "x"}, session="s")
        assert outcome.ok == fine, (path, outcome)
    assert not (await app.invoke("create_directory", {"path": "sub/refs"}, session="s")).ok
    at_once = [f"{number}/{name}" for number in range(8) for name in ("HEAD", "objects/x", "refs/x")]
    await asyncio.gather(*(app.invoke("write_file", {"path": path, "content": "x"}, session="s") for path in at_once))
    for number in range(8):
        assert not all((work / str(number) / name).exists() for name in ("HEAD", "objects", "refs")), number


# -- whoever goes away


async def backups(app: App) -> list[tuple[Any, Any]]:
    def rows() -> Any:
        return (yield "SELECT after_hash, undone_at FROM backups ORDER BY seq", {})

    await app.flush()
    return [(after, undone) for after, undone in await app.parts.store.read(rows())]


@pytest.mark.parametrize("tool", ["write_file", "create_directory"])
async def test_a_change_whose_caller_goes_away_is_put_back_after_it_was_made(
    app: App, work: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """The change takes its time; the caller goes in the midst of it."""
    loop, begun = asyncio.get_running_loop(), asyncio.Event()
    name = "_write" if tool == "write_file" else "_make"
    real = getattr(file_changes, name)

    def slowly(*arguments: Any) -> None:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run(asyncio.sleep(0.3))
        real(*arguments)

    monkeypatch.setattr(file_changes, name, slowly)
    (work / "a.txt").write_text("old")
    arguments = {"path": "a.txt", "content": "new"} if tool == "write_file" else {"path": "made/deep"}
    call = asyncio.ensure_future(app.invoke(tool, arguments, session="s"))
    async with asyncio.timeout(30):
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while not all(undone for _, undone in await backups(app)):
            await asyncio.sleep(0.02)
    assert [path.name for path in work.iterdir()] == ["a.txt"]
    assert (work / "a.txt").read_text() == "old"


async def test_whenever_a_caller_goes_away_the_record_and_the_disk_agree(app: App, work: Path) -> None:
    for number in range(24):
        file = work / f"{number}.txt"
        file.write_text("old")
        call = asyncio.ensure_future(app.invoke("write_file", {"path": file.name, "content": "new"}, session="s"))
        await asyncio.wait([call], timeout=number * 0.0007)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    await app.flush()

    def rows() -> Any:
        return (yield "SELECT path, after_hash FROM backups WHERE undone_at IS NULL", {})

    async with asyncio.timeout(30):
        while True:  # what goes on behind the back of who went away comes to its end
            kept = dict(await app.parts.store.read(rows()))
            now = {str(file) for file in work.iterdir() if file.read_text() == "new"}
            if {path for path, after in kept.items() if after is not None} == now == set(kept):
                break
            await asyncio.sleep(0.02)


# -- the folders of others


async def test_no_choice_of_a_folder_leads_into_the_session_of_somebody_else(tmp_path: Path) -> None:
    """Whoever embeds Toolgate may take the folder from where others can write: a session's is its own all the same."""
    ann, bob = Actor("acme", user="ann"), Actor("evil", user="bob")
    async with App.open(os.devnull, home=tmp_path / "home") as app:
        app.approvals.add_approver(lambda _request: True)
        written = await app.invoke("write_file", {"path": "a.txt", "content": MARKER}, actor=ann, session="s")
        assert written.ok
        places: Workspaces = app.parts.places
        theirs = places.of(Call("", "x", None, ann, "s"))
        (tmp_path / "way").symlink_to(theirs)
        (theirs / "sub").mkdir()
        for chosen in (theirs, theirs / "sub", tmp_path / "way"):
            for actor, session in ((bob, "s"), (ann, "other"), (ann, None)):
                for tool, arguments in (("read_file", {"path": "a.txt"}), ("list_directory", {"path": "."})):
                    outcome = await app.invoke(tool, arguments, actor=actor, session=session, workspace=chosen)
                    assert outcome.status == "denied", (tool, actor, session, outcome)
            with pytest.raises(Denied):
                places.set(bob, "s", chosen)
        own = await app.invoke("read_file", {"path": "a.txt"}, actor=ann, session="s", workspace=theirs)
        assert own.output["content"] == MARKER


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("file_search", {"mode": "grep", "query": "x"}),
        ("git", {"operation": "status"}),
        ("document_ingest", {"path": "a.html"}),
    ],
)
async def test_a_tenant_leaves_places_in_the_sandbox_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, Any]
) -> None:
    """Nobody is asked about these calls, and each can be made to take as long as a run may."""
    project, let_go, running = tmp_path / "project", asyncio.Event(), list[int]()
    project.mkdir()
    (project / "a.html").write_text("<html>x")
    git(project, "init", "-q")

    async def run(*_: Any, **__: Any) -> None:
        running.append(1)
        await let_go.wait()
        raise InvalidInput("enough")

    for name in ("run_command", "run_own"):
        monkeypatch.setattr(Sandbox, name, run)
    async with App.open(os.devnull, home=tmp_path / "home") as app:
        calls = [
            asyncio.ensure_future(app.invoke(tool, arguments, actor=Actor("greedy"), session="s", workspace=project))
            for _ in range(10)
        ]
        async with asyncio.timeout(60):
            while len(running) < 2:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        assert len(running) == 2
        let_go.set()
        await asyncio.gather(*calls)
    assert len(running) == 10


@pytest.mark.parametrize("path", [".git", ".git/refs", "sub/../.git", "way", "inner/.GIT"])
async def test_no_part_of_a_repository_is_deployed(app: App, work: Path, path: str) -> None:
    """Its settings can hold a token, and its history what was deleted."""
    git(work, "init", "-q")
    (work / ".git" / "refs" / "x").write_text(MARKER)
    for folder in ("sub", "inner/.GIT"):
        (work / folder).mkdir(parents=True)
        (work / folder / "a.txt").write_text(MARKER)
    (work / "way").symlink_to(".git")
    site = CallFolder(work.resolve(), app.parts.places)
    with pytest.raises(Denied, match="part of a repository"):
        read_site(site, path, None)
    assert [file.path for file in read_site(site, ".", None).files] == ["sub/a.txt"]
