"""`execute_command`, `bash_execution` and `docker_run`: what was checked is what runs, in the sandbox."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.docker_engine import IMAGE, engine
from tests.examples import at_most
from toolgate import Actor, App, Outcome
from toolgate.sandbox.workspaces import Workspaces

pytestmark = [
    pytest.mark.requirement("BUILTIN-3"), pytest.mark.requirement("BUILTIN-5"), pytest.mark.requirement("TIER-3"),
    pytest.mark.requirement("SBX-3"),
]  # fmt: skip
ACME, GLOBEX = Actor("acme", user="ann"), Actor("globex", user="gus")
ALLOW = (
    "cat",
    "ls",
    "echo",
    "printf",
    "mkdir",
    "cp",
    "mv",
    "sleep",
    "yes",
    "false",
    "printenv",
    "tee",
    "no-such-program",
    "git",
)
MARKER = "what nobody may read"


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
    async with App.open(os.devnull, home=tmp_path / "home", commands={"allow": ALLOW}) as app:
        app.provide(Workspaces, Workspaces(tmp_path / "home", work, rules=lambda: app.parts.tiers.paths))
        app.approvals.add_approver(lambda _request: True)
        yield app


def failed(outcome: Outcome, code: str) -> str:
    assert outcome.error is not None, outcome
    assert outcome.error.code == code, outcome.error
    return outcome.error.message


@pytest.mark.parametrize("tool", ["execute_command", "bash_execution"])
async def test_a_command_runs_in_the_working_directory(app: App, work: Path, tool: str) -> None:
    (work / "a.txt").write_text("hello\n")
    outcome = await app.invoke(tool, {"command": "cat a.txt"})
    assert outcome.output == {"stdout": "hello\n", "stderr": "", "exitCode": 0}
    assert outcome.metrics.resources_used is not None
    assert outcome.metrics.resources_used[0] == "cat"


@pytest.mark.parametrize("tool", ["execute_command", "bash_execution"])
async def test_a_command_that_fails_is_a_result(app: App, tool: str) -> None:
    outcome = await app.invoke(tool, {"command": "ls", "args": ["nothing-here"]})
    assert outcome.ok
    assert outcome.output["exitCode"] != 0
    assert "nothing-here" in outcome.output["stderr"]
    assert (await app.invoke(tool, {"command": "false"})).output == {"stdout": "", "stderr": "", "exitCode": 1}


@pytest.mark.parametrize("tool", ["execute_command", "bash_execution"])
@pytest.mark.parametrize(
    "command", ["wget x", "ls; ls", "ls | cat", "ls > out", "echo $HOME", "ls && ls", "sudo ls", "bash -c ls", "/bin/ls", ""]
)
@pytest.mark.sample(4)
async def test_what_is_not_allowed_does_not_run(app: App, work: Path, tool: str, command: str) -> None:
    outcome = await app.invoke(tool, {"command": command})
    assert outcome.status == "denied"
    failed(outcome, "SECURITY_VIOLATION")
    assert list(work.iterdir()) == []


@pytest.mark.parametrize("tool", ["execute_command", "bash_execution"])
async def test_every_run_is_asked_about(tmp_path: Path, work: Path, tool: str) -> None:
    async with App.open(os.devnull, home=tmp_path / "home", commands={"allow": ALLOW}) as app:
        app.provide(Workspaces, Workspaces(tmp_path / "home", work))
        outcome = await app.invoke(tool, {"command": "mkdir made"})
        assert outcome.status == "pending"
        assert list(work.iterdir()) == []
        assert outcome.pending is not None
        await app.approvals.answer(outcome.pending.id, True)
        assert (await app.approvals.resume(outcome.pending.id)).ok
        assert [path.name for path in work.iterdir()] == ["made"]


@at_most(25)
@given(words=st.lists(st.text(st.characters(blacklist_categories=("Cs", "Cc", "Cf", "Co", "Cn")), max_size=12), max_size=5))
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_program_gets_the_words_as_they_stand(app: App, words: list[str]) -> None:
    outcome = await app.invoke("execute_command", {"command": "printf '%s\\n' -", "args": ["-", *words]})
    if outcome.status == "denied":  # one of them names a sensitive file, or is not seen where the command is shown
        failed(outcome, "SECURITY_VIOLATION")
    else:
        assert outcome.output["stdout"] == "".join(f"{word}\n" for word in ("-", "-", *words))


async def test_a_command_runs_in_a_folder_of_the_working_directory(app: App, work: Path) -> None:
    (work / "sub" / "deep").mkdir(parents=True)
    (work / "sub" / "deep" / "here.txt").touch()
    (work / "top.txt").write_text("top")
    (work / "out").symlink_to("/")
    outcome = await app.invoke("execute_command", {"command": "ls", "cwd": "sub/deep"})
    assert outcome.output["stdout"] == "here.txt\n"
    assert (await app.invoke("execute_command", {"command": "cat ../../top.txt", "cwd": "sub/deep"})).output[
        "stdout"
    ] == "top"
    for folder in ("..", "/", "out", "out/tmp", "sub/../.."):
        failed(await app.invoke("execute_command", {"command": "ls", "cwd": folder}), "SECURITY_VIOLATION")
    failed(await app.invoke("execute_command", {"command": "ls", "cwd": "none"}), "INVALID_INPUT")
    failed(await app.invoke("execute_command", {"command": "ls", "cwd": "top.txt"}), "INVALID_INPUT")


async def test_a_command_that_takes_too_long_is_ended(app: App) -> None:
    outcome = await app.invoke("bash_execution", {"command": "sleep 100", "timeout": 300})
    assert outcome.status == "timeout"
    assert "0.3 s" in failed(outcome, "TIMEOUT")
    assert outcome.metrics.duration_ms < 60_000
    assert (await app.invoke("execute_command", {"command": "sleep 20"}, timeout=0.5)).status == "timeout"


async def test_a_flood_of_output_is_stopped(app: App) -> None:
    outcome = await app.invoke("execute_command", {"command": "yes"})
    assert "bytes of output" in failed(outcome, "SANDBOX_ERROR")
    assert outcome.error is not None
    assert (outcome.error.details or {})["stopped"] == "output"


async def test_a_program_that_is_not_there_is_said_to_be_missing(app: App) -> None:
    assert "no-such-program" in failed(await app.invoke("execute_command", {"command": "no-such-program"}), "INVALID_INPUT")


async def test_nothing_of_the_host_is_seen(app: App, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", MARKER)
    outside = tmp_path / "outside.txt"
    outside.write_text(MARKER)
    (work / "link.txt").symlink_to(outside)
    for command in (f"cat {outside}", "cat link.txt", f"ls {tmp_path}", "printenv"):
        outcome = await app.invoke("execute_command", {"command": command})
        assert MARKER not in str(outcome.to_dict())
        assert "outside.txt" not in str((outcome.output or {}).get("stdout"))
    control = await app.invoke("execute_command", {"command": "printenv"})
    assert "PATH=" in control.output["stdout"]


async def test_the_files_of_a_session_stay_from_call_to_call(app: App) -> None:
    async def run(command: str, actor: Actor, session: str) -> Any:
        outcome = await app.invoke("execute_command", {"command": command}, actor=actor, session=session)
        assert outcome.ok, outcome.error
        return outcome.output["stdout"]

    await run("mkdir one", ACME, "s")
    wrote = await app.invoke("write_file", {"path": "one/a.txt", "content": "by a tool"}, actor=ACME, session="s")
    assert wrote.ok, wrote.error
    assert await run("cat one/a.txt", ACME, "s") == "by a tool"
    await run("cp one/a.txt b.txt", ACME, "s")
    read = await app.invoke("read_file", {"path": "b.txt"}, actor=ACME, session="s")
    assert read.output["content"] == "by a tool"
    assert await run("ls", ACME, "t") == ""
    assert await run("ls", GLOBEX, "s") == ""
    overwritten = await app.invoke("write_file", {"path": "b.txt", "content": "again"}, actor=ACME, session="s")
    assert overwritten.ok, overwritten.error


async def test_secrets_in_the_working_directory_are_hidden_from_programs(app: App, work: Path) -> None:
    for name in ("in/.env", "in/sub/server.pem"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(MARKER)
    os.link(work / "in" / ".env", work / "in" / "sub" / "plain.txt")
    (work / "in" / "plain.csv").write_text("fine")
    for command in ("cat in/sub/plain.txt", "cp -r in copy", "cat copy/.env", "cat copy/sub/server.pem copy/sub/plain.txt"):
        outcome = await app.invoke("execute_command", {"command": command})
        assert MARKER not in str(outcome.to_dict())
    assert (await app.invoke("execute_command", {"command": "cat copy/plain.csv"})).output["stdout"] == "fine"
    assert MARKER not in "".join(path.read_text() for path in (work / "copy").rglob("*") if path.is_file())
    assert (work / "in" / ".env").read_text() == MARKER


async def test_what_the_host_would_run_is_not_changed_by_programs(app: App, work: Path) -> None:
    for name in (".git/hooks/pre-commit", ".vscode/tasks.json", "evil"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("as it was")
    (work / "evil").write_text("evil")
    for command in ("cp evil .git/hooks/post-checkout", "mv .git other", "cp evil .vscode/tasks.json", "mv .vscode other"):
        outcome = await app.invoke("execute_command", {"command": command})
        fails = outcome.status == "denied" or outcome.output["exitCode"] != 0
        assert fails or "set aside" in outcome.output["stderr"], (command, outcome)
    assert sorted(path.name for path in work.iterdir()) == [".git", ".vscode", "evil"]
    assert (work / ".vscode/tasks.json").read_text() == "as it was"
    assert [path.name for path in (work / ".git/hooks").iterdir()] == ["pre-commit"]


async def test_what_the_host_would_run_is_set_aside_if_a_program_makes_it(app: App, work: Path) -> None:
    (work / "folder").mkdir()
    (work / "folder" / "tasks.json").write_text("evil")
    outcome = await app.invoke("execute_command", {"command": "cp -r folder .vscode"})
    assert outcome.ok
    assert ".vscode/tasks.json" in outcome.output["stderr"]
    assert "workspace take" not in outcome.output["stderr"], "the model is not handed the command that takes it"
    assert [path.name for path in work.iterdir()] == ["folder"]
    (kept,) = app.workspace.changes()
    assert await app.workspace.take(kept.id) == []
    assert (work / ".vscode" / "tasks.json").read_text() == "evil"
    assert app.workspace.changes() == []


async def test_git_works_in_its_repository_but_does_not_set_itself_up(app: App, work: Path) -> None:
    (work / ".git" / "objects").mkdir(parents=True)
    (work / ".git" / "refs").mkdir()
    (work / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (work / ".git" / "config").write_text(
        "[core]\n\trepositoryformatversion = 0\n[user]\n\tname = Ann\n\temail = ann@example.com\n"
    )
    (work / "a.txt").write_text("x")
    added = await app.invoke("execute_command", {"command": "git add a.txt"})
    assert added.output["exitCode"] == 0, added.output
    done = await app.invoke("execute_command", {"command": "git commit", "args": ["-m", "first change"]})
    assert done.output["exitCode"] == 0, done.output
    before = (work / ".git" / "config").read_text()
    await app.invoke("execute_command", {"command": "git config user.name Eve"})
    assert (work / ".git" / "config").read_text() == before


async def test_a_container_needs_an_engine(tmp_path: Path) -> None:
    async with App.open(os.devnull, home=tmp_path / "home", sandbox={"docker_command": "no-such-engine"}) as app:
        app.approvals.add_approver(lambda _request: True)
        outcome = await app.invoke("docker_run", {"image": "python:3.12", "command": ["python", "-c", "print(1)"]})
        error = failed(outcome, "SANDBOX_UNAVAILABLE")
        assert "no-such-engine" in error and "container engine cannot be reached" in error
        assert outcome.error is not None and outcome.error.suggestion is not None
        assert "start it" in outcome.error.suggestion and "bubblewrap" not in outcome.error.suggestion


@pytest.mark.matrix("starts a container")
@pytest.mark.needs("docker")
async def test_a_container_is_run(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a real engine."""
    (work / "a.txt").write_text("from the host")
    (work / ".env").write_text(MARKER)
    with engine() as answering:
        for name, value in answering.environment.items():
            monkeypatch.setenv(name, value)
        async with App.open(os.devnull, home=tmp_path / "home", sandbox={"docker_command": answering.command}) as app:
            app.provide(Workspaces, Workspaces(tmp_path / "home", work, rules=lambda: app.parts.tiers.paths))
            app.approvals.add_approver(lambda _request: True)
            seen = "if os.path.exists('.env'): print(open('.env').read())"
            code = f"import os, sys\nprint(open('a.txt').read())\n{seen}\nsys.exit(3)"
            called = {"image": IMAGE, "command": ["python3", "-c", code], "session_files": True}
            outcome = await app.invoke("docker_run", called)
            missing = await app.invoke("docker_run", {"image": "toolgate-no-such-image"})
    assert outcome.ok, outcome.error
    assert (outcome.output["stdout"].strip(), outcome.output["exitCode"]) == ("from the host", 3)
    assert MARKER not in str(outcome.to_dict())
    assert failed(missing, "SANDBOX_UNAVAILABLE")
