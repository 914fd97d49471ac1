"""The folder that a call works in, chosen by whoever runs a door or by a setting, and never by the model."""

from pathlib import Path
from typing import Any

import pytest

from tests.terminal import Terminal
from toolgate import Actor, App, InvokeContext, Outcome, tool
from toolgate.errors import SettingsError

ANN, BOB = Actor("acme", "analyst", "ann"), Actor("acme", user="bob")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("of the project")
    return folder


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    (tmp_path / "elsewhere").mkdir()
    return Terminal(tmp_path / "elsewhere", monkeypatch, capsys)


async def read(app: App, **more: Any) -> Outcome:
    return await app.invoke("read_file", {"path": "notes.txt"}, **more)


@pytest.mark.requirement("SBX-5")
async def test_a_call_works_in_the_folder_that_python_names(tmp_path: Path, project: Path) -> None:
    async with App.open(home=tmp_path / "home") as app:
        assert (await read(app, actor=BOB, workspace=project)).output["content"] == "of the project"
        assert not (await read(app, actor=BOB)).ok
        assert not (await read(app, actor=BOB, session="s")).ok
        away = await app.invoke("read_file", {"path": "../home/toolgate.db"}, actor=BOB, workspace=project)
        assert away.error is not None and away.error.code == "SECURITY_VIOLATION"


@pytest.mark.requirement("SBX-5")
@pytest.mark.parametrize("folder", ["/etc", "/", "home", "gone"])
async def test_a_folder_that_is_no_workspace_is_refused(tmp_path: Path, folder: str) -> None:
    async with App.open(home=tmp_path / "home") as app:
        outcome = await read(app, workspace=tmp_path / folder)
        assert outcome.error is not None and outcome.error.code in ("SECURITY_VIOLATION", "INVALID_INPUT")


@pytest.mark.requirement("JOB-1")
@pytest.mark.parametrize("door", ["cli", "python"])
async def test_a_call_that_is_queued_works_in_the_folder_of_its_caller_and_not_of_its_worker(
    door: str, tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a call that is made at once does: for the person at this machine, and for nobody else."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with App.open(home=tmp_path / "home") as app:
        monkeypatch.chdir(project)
        kept = await app.enqueue("read_file", {"path": "notes.txt"}, door=door)
        out = await app.enqueue("read_file", {"path": "../home/toolgate.db"}, door=door)
        assert out.error is not None and out.error.code == "SECURITY_VIOLATION"  # asked when it is queued
        strange = [await app.enqueue("read_file", {"path": "notes.txt"}, **how) for how in ({"actor": BOB}, {"door": "mcp"})]
        monkeypatch.chdir(elsewhere)
        await app.jobs.run_all()
        assert kept.pending is not None
        done = await app.jobs.get(kept.pending.id)
        assert (done.state, done.result["output"]["content"]) == ("done", "of the project")
        for one in strange:
            assert one.pending is not None
            job = await app.jobs.get(one.pending.id, actor=BOB if one is strange[0] else None)
            assert job.state == "failed" and job.payload["here"] is None


@pytest.mark.requirement("JOB-1")
async def test_a_question_about_a_queued_call_is_about_the_folder_of_its_caller(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with App.open(home=tmp_path / "home") as app:
        ran: list[Path] = []

        @tool(tier="execute")
        async def where(ctx: InvokeContext) -> str:
            """Say where it works."""
            ran.append(app.parts.places.of(ctx.call))
            return "done"

        app.register(where)
        monkeypatch.chdir(project)
        queued = await app.enqueue("where", {}, door="cli")
        [asked] = await app.approvals.list()
        assert str(asked.request.workspace).rstrip("/") == str(project)
        monkeypatch.chdir(tmp_path)
        await app.approvals.answer(asked.request.id, True)
        await app.jobs.run_all()
        assert queued.pending is not None
        assert ((await app.jobs.get(queued.pending.id)).state, ran) == ("done", [project])


@pytest.mark.requirement("SBX-5")
async def test_a_model_cannot_name_the_folder(tmp_path: Path, project: Path) -> None:
    async with App.open(home=tmp_path / "home") as app:
        outcome = await app.invoke("read_file", {"path": "notes.txt", "workspace": str(project)}, actor=BOB)
        assert outcome.error is not None and outcome.error.code == "VALIDATION_ERROR"


@pytest.mark.requirement("SBX-5")
async def test_a_setting_gives_a_folder_to_a_user_or_a_persona(tmp_path: Path, project: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("of the persona")
    folders = [
        {"tenant": "acme", "user": "bob", "folder": str(project)},
        {"tenant": "acme", "persona": "analyst", "folder": str(other)},
    ]
    async with App.open(home=tmp_path / "home", sessions={"folders": folders}) as app:
        assert (await read(app, actor=BOB)).output["content"] == "of the project"
        assert (await read(app, actor=BOB, session="any")).output["content"] == "of the project"
        assert (await read(app, actor=ANN)).output["content"] == "of the persona"
        for stranger in (Actor("other", user="bob"), Actor("acme", user="eve"), Actor("acme", "clerk", "ann")):
            assert not (await read(app, actor=stranger)).ok, stranger
    with pytest.raises(SettingsError, match="names neither a user nor a persona"):
        App.open(home=tmp_path / "home", sessions={"folders": [{"tenant": "acme", "folder": str(project)}]})


@pytest.mark.requirement("SBX-5")
async def test_sessions_of_one_name_are_different_folders_for_two_users(tmp_path: Path) -> None:
    async with App.open(home=tmp_path / "home") as app:
        app.approvals.add_approver(lambda _request: True)
        written = {"path": "notes.txt", "content": "mine"}
        assert (await app.invoke("write_file", written, actor=ANN, session="report")).ok
        assert (await read(app, actor=ANN, session="report")).output["content"] == "mine"
        assert not (await read(app, actor=BOB, session="report")).ok


@pytest.mark.requirement("TIER-3", "SBX-5")
async def test_an_approved_call_goes_on_in_the_folder_that_was_shown(tmp_path: Path, project: Path) -> None:
    async with App.open(home=tmp_path / "home") as app:
        written = {"path": "new.txt", "content": "x"}
        asked = await app.invoke("write_file", written, actor=BOB, workspace=project)
        assert asked.pending is not None
        (shown,) = await app.approvals.list(actor=Actor("acme", user="local"))
        assert shown.request.workspace == f"{project}/"
        await app.approvals.answer(asked.pending.id, True, actor=Actor("acme", user="local"))
        elsewhere = await app.invoke("write_file", written, actor=BOB, approval=asked.pending.id)
        assert not elsewhere.ok
    async with App.open(home=tmp_path / "home") as later:
        assert (await later.approvals.resume(asked.pending.id, actor=Actor("acme", user="local"))).ok
    assert (project / "new.txt").read_text() == "x"


@pytest.mark.requirement("TIER-3", "SBX-5")
async def test_a_folder_that_the_operator_took_away_is_not_worked_in_by_approval(tmp_path: Path, project: Path) -> None:
    """The question was asked while settings gave the folder to the user."""
    local = Actor("acme", user="local")
    folders = [{"tenant": "acme", "user": "bob", "folder": str(project)}]
    async with App.open(home=tmp_path / "home", sessions={"folders": folders}) as app:
        asked = await app.invoke("write_file", {"path": "new.txt", "content": "x"}, actor=BOB)
        assert asked.pending is not None
        await app.approvals.answer(asked.pending.id, True, actor=local)
    async with App.open(home=tmp_path / "home") as later:
        assert (await later.approvals.resume(asked.pending.id, actor=local)).status == "denied"
        assert not (project / "new.txt").exists()
    async with App.open(home=tmp_path / "home", sessions={"folders": folders}) as again:
        assert (await again.approvals.resume(asked.pending.id, actor=local)).ok
    assert (project / "new.txt").exists()


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.requirement("SBX-5")
def test_the_terminal_takes_the_folder(terminal: Terminal, project: Path) -> None:
    done = terminal.run("call", "read_file", "path=notes.txt", "--workspace", str(project), "--json")
    assert done.json["output"]["content"] == "of the project"
    assert terminal.run("call", "read_file", "path=notes.txt").code == 1
    assert terminal.run("explain", "read_file", "path=notes.txt", "--workspace", str(project)).code == 0
    for command in (("call", "echo", "text=a"), ("explain", "echo", "text=a"), ("mcp",)):
        gone = terminal.run(*command, "--workspace", "nowhere")
        assert (gone.code, "there is no folder nowhere" in gone.err) == (2, True), gone


@pytest.mark.requirement("SBX-5")
async def test_a_caller_from_elsewhere_is_not_told_where_the_folder_is(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folders = [{"tenant": "acme", "user": "bob", "folder": str(folder)}]
    async with App.open(home=tmp_path / "home", sessions={"folders": folders}) as app:
        told = await read(app, actor=BOB, door="mcp")
        assert told.error is not None and told.error.code == "SECURITY_VIOLATION"
        assert str(tmp_path) not in told.to_json().decode()
        here = await read(app, actor=BOB)
        assert here.error is not None and str(folder) in here.error.message
