"""Sessions belong to a tenant and a user; sharing is declared. No call that comes over the network works where Toolgate
runs, whatever its tenant and user are called."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_clients import ERAS, connected, key_for, meta, text_of
from tests.mcp_pipe import piped
from tests.serving import serving
from toolgate import Actor, App, InvokeContext, Outcome, SettingsError, tool
from toolgate.model import LOCAL
from toolgate.testing import memory_app

ANN, BOB, EVE = Actor("acme", user="ann"), Actor("acme", user="bob"), Actor("globex", user="ann")
ANN_AS_ANALYST = Actor("acme", "analyst", "ann")
SHARED = {"sessions": {"shared": [{"tenant": "acme", "name": "report", "users": ["ann", "bob"]}]}}
SECRET = "of ann alone"


@tool(tier="read_only", cache=60)
async def recall_soon(ctx: InvokeContext) -> Any:
    """What is kept for the session, and was a moment ago."""
    return ctx.try_get("kept")


@tool(tier="read_only", cache=60)
async def count_here(ctx: InvokeContext) -> Any:
    """How many files there are where the call works."""
    found = await ctx.call_tool("list_directory", {"path": "."})
    return str(found.output)


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    monkeypatch.chdir(tmp_path)
    async with App.open(os.devnull, home=tmp_path / "home", **SHARED) as app:
        app.approvals.add_approver(lambda _request: True)
        app.tools.register_many((remember, recall, recall_soon, count_here))
        yield app


@tool(tier="read_only")
async def remember(ctx: InvokeContext, value: str) -> None:
    """Keep something for the session."""
    ctx.bind("kept", value, scope="session")


@tool(tier="read_only")
async def recall(ctx: InvokeContext) -> Any:
    """What is kept for the session."""
    return ctx.try_get("kept")


async def write(app: App, actor: Actor, session: str | None, **more: Any) -> Outcome:
    wrote = await app.invoke("write_file", {"path": "a.txt", "content": SECRET}, actor=actor, session=session, **more)
    assert wrote.ok, wrote.error
    return wrote


async def read(app: App, actor: Actor, session: str | None, **more: Any) -> str | None:
    outcome = await app.invoke("read_file", {"path": "a.txt"}, actor=actor, session=session, **more)
    return outcome.output["content"] if outcome.ok else None


# -- whose a session is


@pytest.mark.requirement("PIPE-4", "SBX-1")
@pytest.mark.parametrize("session", ["s", "", None])
async def test_another_user_does_not_reach_the_files_of_a_session_by_naming_it(app: App, session: str | None) -> None:
    wrote = await write(app, ANN, session)
    assert await read(app, ANN, session) == SECRET
    assert await read(app, ANN_AS_ANALYST, session) == SECRET, "the persona is no part of it"
    for other in (BOB, EVE, Actor("acme", user="Ann"), LOCAL):
        assert await read(app, other, session) is None
        look = {"code": "import os; print(os.listdir('.'))", "session_files": True}
        if other is not LOCAL:
            listed = await app.invoke("code_execute", look, actor=other, session=session)
            assert "a.txt" not in listed.output["stdout"], listed
        with pytest.raises(Exception, match="nothing to undo"):
            await app.undo.revert(wrote.id, actor=other, force=True)
    await app.undo.revert(wrote.id, actor=ANN_AS_ANALYST)
    assert await read(app, ANN, session) is None


@pytest.mark.requirement("PIPE-4")
async def test_another_user_does_not_get_what_a_session_keeps(app: App) -> None:
    assert (await app.invoke("remember", {"value": SECRET}, actor=ANN, session="s")).ok
    app.provide("kept", "the operator's", scope="session", session="t", tenant="acme", user="ann")
    assert (await app.invoke("recall", actor=ANN_AS_ANALYST, session="s")).output == SECRET
    assert (await app.invoke("recall", actor=ANN, session="t")).output == "the operator's"
    for other in (BOB, EVE):
        assert (await app.invoke("recall", actor=other, session="s")).output is None
        assert (await app.invoke("recall", actor=other, session="t")).output is None


@pytest.mark.requirement("PIPE-4", "SBX-1")
async def test_a_cached_answer_stays_in_its_session_and_behind_its_door(app: App, tmp_path: Path) -> None:
    """A tool that sees who calls sees the session and its folder too."""
    assert (await app.invoke("remember", {"value": SECRET}, actor=ANN, session="s")).ok
    for _ in range(2):
        assert (await app.invoke("recall_soon", actor=ANN, session="s")).output == SECRET
        for session in ("t", None):
            assert (await app.invoke("recall_soon", actor=ANN, session=session)).output is None
    (tmp_path / "plans.txt").write_text("x")
    here = await app.invoke("count_here", actor=LOCAL)
    assert "plans.txt" in here.output
    assert (await app.invoke("count_here", actor=LOCAL, door="cli")).metrics.cached, "the same person, here"
    over_there = await app.invoke("count_here", actor=LOCAL, door="mcp")
    assert over_there.ok and "plans.txt" not in over_there.output


@pytest.mark.requirement("PIPE-4", "SBX-1")
async def test_an_idempotency_key_gives_out_nothing_through_another_door(app: App, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(SECRET)
    for _ in range(2):
        assert await read(app, LOCAL, None, idempotency_key="daily") == SECRET
    assert await read(app, LOCAL, None, idempotency_key="daily", door="cli") == SECRET
    again = await app.invoke("read_file", {"path": "a.txt"}, idempotency_key="daily", door="mcp")
    assert again.error is not None and again.error.code == "IDEMPOTENCY_CONFLICT", again
    assert SECRET not in str(again)


@pytest.mark.requirement("IO-3")
async def test_what_was_cut_from_an_output_is_fetched_by_its_own_user(app: App) -> None:
    outcome = await app.invoke("echo", {"text": "x" * 50_000}, actor=ANN, session="s")
    assert outcome.artifact is not None
    assert await app.audit.artifact(outcome.artifact.id, actor=ANN) is not None
    assert await app.audit.artifact(outcome.artifact.id, actor=BOB) is None


@pytest.mark.requirement("PIPE-4", "SBX-1")
async def test_what_is_declared_as_shared_is_shared_by_those_named_and_nobody_else(app: App) -> None:
    await write(app, ANN, "report")
    assert (await app.invoke("remember", {"value": SECRET}, actor=ANN, session="report")).ok
    assert await read(app, BOB, "report") == SECRET
    assert (await app.invoke("recall", actor=BOB, session="report")).output == SECRET
    for other in (Actor("acme", user="carl"), EVE, Actor("globex", user="bob"), LOCAL):
        assert await read(app, other, "report") is None
        assert (await app.invoke("recall", actor=other, session="report")).output is None
    assert await read(app, BOB, "report2") is None


@pytest.mark.requirement("PIPE-4", "SBX-1")
async def test_a_program_that_opens_an_app_shares_sessions_too(app: App, tmp_path: Path) -> None:
    await write(app, ANN, "s")
    app.sessions.share("s", ["ann", "bob"], tenant="acme")
    assert await read(app, ANN, "s") is None, "what was hers alone is not given away"
    await write(app, BOB, "s")
    assert await read(app, ANN, "s") == SECRET
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("of the project")
    app.sessions.work_in("s", project, tenant="acme", user="bob")
    assert await read(app, ANN, "s") == "of the project"
    app.sessions.share("s", [], tenant="acme")
    assert await read(app, ANN, "s") == SECRET, "her own again"
    assert await read(app, BOB, "s") is None
    with pytest.raises(TypeError):
        app.sessions.share("s", "bob")


@pytest.mark.requirement("PIPE-4")
@pytest.mark.parametrize(
    "shared", [{"name": "s"}, {"name": "s", "users": []}, {"users": ["ann"]}, {"name": "s", "user": "ann"}]
)
def test_a_sharing_that_names_nobody_is_refused(shared: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"sessions\.shared"):
        memory_app(sessions={"shared": [shared]})


@pytest.mark.requirement("MCP-4", "PIPE-4")
@pytest.mark.parametrize("era", ERAS)
async def test_a_key_of_another_user_reads_nothing_of_a_session_that_it_names(app: App, era: str) -> None:
    await write(app, ANN, "s")
    naming = meta({"toolgate/session": "s"})
    async with serving(app) as site:
        for actor, expected in ((ANN, True), (BOB, False)):
            async with connected(site, await key_for(app, actor), era) as client:
                result = await client.call_tool("read_file", {"path": "a.txt"}, meta=naming)
            assert (SECRET in text_of(result)) is expected


# -- where calls without a session work


@pytest.mark.requirement("MCP-4", "SBX-1")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("actor", [LOCAL, Actor(user="bob"), Actor("default", "local", "local")])
async def test_over_http_nobody_works_where_the_server_runs(app: App, tmp_path: Path, era: str, actor: Actor) -> None:
    (tmp_path / "a.txt").write_text(SECRET)
    assert await read(app, LOCAL, None) == SECRET
    assert await read(app, LOCAL, None, door="a door that nobody knows") is None
    async with serving(app) as site, connected(site, await key_for(app, actor), era) as client:
        for path in ("a.txt", str(tmp_path / "a.txt")):
            assert SECRET not in text_of(await client.call_tool("read_file", {"path": path}))
        assert "a.txt" not in text_of(await client.call_tool("list_directory", {}))


@pytest.mark.requirement("MCP-4", "TIER-6", "SBX-1")
async def test_a_call_that_came_over_http_does_not_move_when_it_is_approved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with App.open(os.devnull, home=tmp_path / "home") as app:
        asked = await app.invoke("write_file", {"path": "a.txt", "content": "x"}, door="mcp")
        assert asked.pending is not None
        await app.approvals.answer(asked.pending.id, True)
        assert (await app.approvals.resume(asked.pending.id)).ok
        assert not (tmp_path / "a.txt").exists()


@pytest.mark.requirement("MCP-4", "SBX-1")
@pytest.mark.parametrize("era", ERAS)
async def test_a_setting_lets_the_tenant_default_work_where_the_server_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(SECRET)
    async with App.open(os.devnull, home=tmp_path / "home", serve={"workspace": "here"}) as app, serving(app) as site:
        for actor in (LOCAL, Actor(user="bob"), Actor("acme")):
            here = actor.tenant == "default" and era != "legacy"  # whose clients have a session always
            async with connected(site, await key_for(app, actor), era) as client:
                assert (SECRET in text_of(await client.call_tool("read_file", {"path": "a.txt"}))) is here


@pytest.mark.matrix("starts the program")
@pytest.mark.requirement("MCP-4", "SBX-1")
async def test_a_client_on_a_pipe_has_the_files_of_its_own_session(tmp_path: Path) -> None:
    async with piped(tmp_path) as pipe:
        for content in ("one", "two"):
            told = await pipe.modern("tools/call", name="create_directory", arguments={"path": content})
            assert not told["result"].get("isError"), told
        listed = await pipe.modern("tools/call", name="list_directory", arguments={})
        assert "one" in str(listed) and "two" in str(listed)
        assert await pipe.end() == 0
