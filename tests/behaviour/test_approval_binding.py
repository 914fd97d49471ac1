"""A yes is for the session and the folder that a person was shown: given for `scratch`, it runs nothing in `production`."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.asking import ADA, BOSS, Workshop, approved, ask, refused
from tests.mcp_clients import ERAS, connected, key_for, meta, text_of
from tests.serving import serving
from tests.terminal import Terminal
from toolgate import App
from toolgate.gates.approval.request import Answer, ApprovalError, GrantTerms
from toolgate.model import LOCAL
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("TIER-7", "TIER-10")

LETTER = {"path": "letter.txt", "content": "hello"}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    scratch, production = tmp_path / "scratch", tmp_path / "production"
    scratch.mkdir()
    production.mkdir()
    return scratch, production


def at(tmp_path: Path, database: str | None = None, **settings: Any) -> App:
    url = {} if database is None else {"database_url": database}
    return App.open(os.devnull, home=tmp_path / "home", **url, **settings)


async def write(app: App, session: str | None, approval: str | None = None) -> Any:
    return await app.invoke("write_file", LETTER, session=session, approval=approval)


async def test_what_was_approved_for_one_session_runs_in_no_other_and_not_where_toolgate_runs(
    database: str, tmp_path: Path, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, production = folders
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    async with at(tmp_path, database) as app:
        app.sessions.work_in("scratch", scratch)
        app.sessions.work_in("production", production)
        waiting = await write(app, "scratch")
        assert waiting.pending is not None
        id = waiting.pending.id
        shown = (await app.parts.consent.questions.show(id, "default")).request
        assert shown.workspace == str(scratch)
        assert f"  Where     {scratch}" in shown.text().split("\n")
        await app.approvals.answer(id, True)
        for session in ("production", None, "other"):
            refused(await write(app, session, id), "PERMISSION_DENIED", "another session")
            unnamed = await app.invoke("write_file", None, session=session, approval=id)
            refused(unnamed, "PERMISSION_DENIED", "another session")
            assert (await write(app, session)).status == "pending", "nor is it found by itself"
        assert not [*here.iterdir(), *production.iterdir()]
        assert (await write(app, "scratch", id)).ok
        assert (scratch / "letter.txt").read_text() == "hello"
        assert not [*here.iterdir(), *production.iterdir()]


async def test_what_was_approved_where_toolgate_runs_runs_in_no_session(
    tmp_path: Path, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, production = folders
    monkeypatch.chdir(scratch)
    async with at(tmp_path) as app:
        app.sessions.work_in("production", production)
        id = (await write(app, None)).pending.id
        await app.approvals.answer(id, True)
        refused(await write(app, "production", id), "PERMISSION_DENIED", "no session's call")
        monkeypatch.chdir(production)
        refused(await write(app, None, id), "PERMISSION_DENIED", "another folder")
        assert (await write(app, None)).status == "pending"
        assert not list(production.iterdir())
        monkeypatch.chdir(scratch)
        assert (await write(app, None, id)).ok


async def test_a_session_that_is_pointed_elsewhere_voids_what_was_approved(
    tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    scratch, production = folders
    async with at(tmp_path) as app:
        app.sessions.work_in("s", scratch)
        id = (await write(app, "s")).pending.id
        await app.approvals.answer(id, True)
        app.sessions.work_in("s", production)
        refused(await write(app, "s", id), "PERMISSION_DENIED", "another folder")
        assert str(scratch) not in str((await write(app, "s", id)).error), "where it was is not the caller's to know"
        assert (await app.approvals.resume(id)).status == "denied"
        assert (await write(app, "s")).status == "pending"
        assert not list(production.iterdir())
        app.sessions.work_in("s", scratch)
        assert (await app.approvals.resume(id)).ok


async def test_a_session_that_is_pointed_elsewhere_while_a_person_thinks_does_not_run_there(
    tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    scratch, production = folders
    async with at(tmp_path) as app:
        app.sessions.work_in("s", scratch)
        asked, answered = asyncio.Event(), asyncio.Event()

        async def person(_: Any) -> bool:
            asked.set()
            await answered.wait()
            return True

        app.approvals.add_approver(person)
        calling = asyncio.ensure_future(write(app, "s"))
        async with asyncio.timeout(30):
            await asked.wait()
            app.sessions.work_in("s", production)
            answered.set()
            refused(await calling, "PERMISSION_DENIED", "another folder")
        assert not [*scratch.iterdir(), *production.iterdir()]


async def test_a_link_that_leads_elsewhere_by_now_voids_what_was_approved(
    tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    scratch, production = folders
    link = tmp_path / "link"
    link.symlink_to(scratch)
    async with at(tmp_path) as app:
        app.parts.places._here = link
        id = (await write(app, None)).pending.id
        assert (await app.parts.consent.questions.show(id, "default")).request.workspace == str(scratch)
        await app.approvals.answer(id, True)
        link.unlink()
        link.symlink_to(production)
        refused(await write(app, None, id), "PERMISSION_DENIED", "another folder")
        assert not list(production.iterdir())


async def test_an_edit_is_checked_from_the_folder_that_the_call_works_in(
    tmp_path: Path, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, production = folders
    (scratch / "notes").symlink_to(tmp_path / "home")  # seen from here it is nothing, seen from there it is Toolgate's own
    monkeypatch.chdir(production)
    async with at(tmp_path) as app:
        app.sessions.work_in("s", scratch)
        id = (await write(app, "s")).pending.id
        with pytest.raises(ApprovalError, match="no tool may open"):
            await app.approvals.answer(id, Answer("edit", arguments={**LETTER, "path": "notes/toolgate.db"}))
        assert (await app.parts.consent.questions.show(id, "default")).state == "waiting"
        await app.approvals.answer(id, Answer("edit", arguments={**LETTER, "path": "other.txt"}))
        assert (await write(app, "s")).ok
        assert (scratch / "other.txt").exists()


async def test_a_grant_of_a_session_holds_while_the_session_works_in_the_same_folder(
    database: str, tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    scratch, production = folders
    async with at(tmp_path, database) as app:
        for session in ("given", "answered"):
            app.sessions.work_in(session, scratch)
        await app.grants.create("write_file", GrantTerms("session", 60), session="given")
        id = (await write(app, "answered")).pending.id
        await app.approvals.answer(id, Answer("approve", grant=GrantTerms("session", 60)))
        assert (await app.approvals.resume(id)).ok
        for session in ("given", "answered"):
            assert (await write(app, session)).ok
            app.sessions.work_in(session, production)
            assert (await write(app, session)).status == "pending"
            assert (await app.explain("write_file", LETTER, session=session)).verdict == "ask"
            app.sessions.work_in(session, scratch)
            assert (await write(app, session)).ok
        assert not list(production.iterdir())


# -- the same call again


async def test_the_same_call_again_runs_once_it_was_approved(database: str, tmp_path: Path) -> None:
    work = Workshop()
    async with work.move_into(at(tmp_path, database)) as app:
        id = await approved(app, session="s")
        assert (await app.invoke("run", {"task": "ls"}, actor=ADA)).status == "pending", "another session"
        assert (await app.invoke("run", {"task": "ls -l"}, actor=ADA, session="s")).status == "pending"
        outcomes = await asyncio.gather(*(app.invoke("run", {"task": "ls"}, actor=ADA, session="s") for _ in range(5)))
        assert sorted(outcome.status for outcome in outcomes) == ["pending"] * 4 + ["success"]
        assert len(work.ran) == 1
        used = await app.parts.consent.questions.show(id, "acme")
        assert used.used_by == next(outcome.id for outcome in outcomes if outcome.ok)


async def test_the_same_call_again_runs_what_was_edited_or_brings_what_was_masked() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        secret = {"task": "ls", "password": "hunter2hunter2"}
        id = await ask(app, arguments=secret)
        await app.parts.consent.questions.answer(id, Answer("approve"), BOSS, "cli")
        assert (await app.invoke("run", secret, actor=ADA)).ok
        edited = await ask(app)
        await app.parts.consent.questions.answer(edited, Answer("edit", arguments={"task": "pwd"}), BOSS, "cli")
        assert (await app.invoke("run", {"task": "ls"}, actor=ADA)).output == "ran pwd"
        assert [one["task"] for one in work.ran] == ["ls", "pwd"]


@pytest.mark.requirement("DOOR-1")
def test_a_call_repeated_at_the_command_line_runs_once_it_was_approved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    call = ("call", "write_file", "path=a.txt", "content=hello", "--json")
    waiting = terminal(*call)
    assert waiting.code == 3
    assert terminal("approvals", "approve", waiting.json["pending"]["id"]).code == 0
    assert terminal(*call, "--session", "other").code == 3
    assert terminal("call", "write_file", "path=a.txt", "content=bye", "--json").code == 3
    assert terminal(*call).code == 0
    assert (terminal.folder / "a.txt").read_text() == "hello"
    assert terminal(*call).code == 3, "it was for one call"


# -- over MCP


@pytest.mark.requirement("MCP-4")
@pytest.mark.parametrize("era", ERAS)
async def test_a_client_can_not_take_an_approval_into_another_session(
    era: str, tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    scratch, production = folders
    async with at(tmp_path) as app:
        app.sessions.work_in("scratch", scratch)
        app.sessions.work_in("production", production)
        async with serving(app) as site, connected(site, await key_for(app, LOCAL), era) as client:
            scratched, producing = {"toolgate/session": "scratch"}, {"toolgate/session": "production"}
            waiting = await client.call_tool("write_file", LETTER, meta=meta(scratched))
            assert waiting.meta is not None
            named = {"toolgate/approval": waiting.meta["toolgate/approval"]}
            await app.approvals.answer(named["toolgate/approval"], True)
            for elsewhere in ({**producing, **named}, named):
                result = await client.call_tool("write_file", LETTER, meta=meta(elsewhere))
                assert text_of(result).startswith("PERMISSION_DENIED"), text_of(result)
            for elsewhere in (producing, {}):
                result = await client.call_tool("write_file", LETTER, meta=meta(elsewhere))
                assert text_of(result).startswith("APPROVAL_REQUIRED"), text_of(result)
            assert not list(production.iterdir())
            assert not (await client.call_tool("write_file", LETTER, meta=meta(scratched))).is_error
        assert json.dumps([path.name for path in scratch.iterdir()]) == '["letter.txt"]'


@pytest.mark.requirement("MCP-4")
async def test_a_call_over_http_is_resumed_where_it_was_asked_to_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    async with at(tmp_path) as app, serving(app) as site:
        async with connected(site, await key_for(app, LOCAL), "2026-07-28") as client:
            waiting = await client.call_tool("write_file", LETTER)
            assert waiting.meta is not None
        id = waiting.meta["toolgate/approval"]
        where = (await app.parts.consent.questions.show(id, "default")).request
        assert where.workspace.startswith("sessions/")
        assert "of Toolgate itself" in where.text()
        await app.approvals.answer(id, True)
        assert (await write(app, None)).status == "pending", "a call of the person at this machine works elsewhere"
        assert (await app.approvals.resume(id)).ok
        assert not list(here.iterdir())
        assert (tmp_path / "home" / where.workspace / "letter.txt").exists()
