"""`response`, `notify_user`, `canvas_append` and `behaviour_adjustment`, and what people see of them."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviour.test_tools_files import failed
from tests.examples import at_most
from tests.loopback import Asked, Said, site
from tests.terminal import Terminal
from toolgate import Actor, App, SettingsError
from toolgate.cli import times
from toolgate.conversation.canvas import MAX_BLOCKS
from toolgate.gates.secrets.names import OF_SERVERS
from toolgate.testing import memory_app

pytestmark = [
    pytest.mark.requirement("BUILTIN-4"),
    pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning"),  # apprise looks whether it is there
]
ANN, BOB, GUS = Actor("acme", "analyst", "ann"), Actor("acme", "analyst", "bob"), Actor("globex", "analyst", "ann")
TOKEN = "ghp_" + "a1B2" * 9
Open = Callable[..., Any]


@pytest.fixture
def open_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens an App over one data folder; behaviour may be adjusted."""
    for name in list(os.environ):
        if name.startswith("TOOLGATE_") and name != "TOOLGATE_TRUST":
            monkeypatch.delenv(name)

    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[App]:
        async with App.open(os.devnull, home=tmp_path / "home", **settings) as app:
            app.approvals.add_approver(lambda _request: True)
            yield app

    return opened


async def done(app: App, tool: str, arguments: dict[str, Any], actor: Actor = ANN, **more: Any) -> Any:
    outcome = await app.invoke(tool, arguments, actor=actor, **more)
    assert outcome.error is None, outcome.error
    return outcome.output


async def acts(app: App, action: str) -> list[dict[str, Any]]:
    await app.flush()
    return [orjson.loads(row[7]) for row in await app.audit.latest(100) if row[2] == action]


# -- response


async def test_a_response_ends_the_turn_with_its_text(open_app: Open) -> None:
    async with open_app() as app:
        assert await done(app, "response", {"text": "Done: /etc/hosts"}) == {"text": "Done: /etc/hosts", "end_turn": True}
        failed(await app.invoke("response", {"text": ""}), "VALIDATION_ERROR")
        failed(await app.invoke("response", {}), "VALIDATION_ERROR")


# -- canvas


async def test_blocks_are_kept_in_order_for_the_session_of_their_user(open_app: Open, database: str) -> None:
    async with open_app(database_url=database) as app:
        heard: list[Any] = []
        app.add_listener(lambda event, told: heard.append((event, told)))
        for number, content in enumerate(["# Title", {"rows": [1, None, {"x": "\u0000"}]}, 3.5], 1):
            kept = await done(app, "canvas_append", {"content": content, "session_id": "s"})
            assert kept == {"session_id": "s", "pane": "default", "block": number}
        told = {"tenant": "acme", "user": "ann", "session": "s", "pane": "default", "number": 1}
        assert heard[0] == ("canvas.appended", told)
        assert (await done(app, "canvas_append", {"content": "side", "pane": "notes"}, session="s"))["block"] == 4
    async with open_app(database_url=database) as app:
        blocks = await app.canvas.read("s", actor=ANN)
        assert [(one.number, one.pane) for one in blocks] == [(1, "default"), (2, "default"), (3, "default"), (4, "notes")]
        assert [one.content for one in blocks] == ["# Title", {"rows": [1, None, {"x": "\u0000"}]}, 3.5, "side"]
        assert [one.number for one in await app.canvas.read("s", after=1, limit=2, actor=ANN)] == [2, 3]
        assert [one.content for one in await app.canvas.read("s", pane="notes", actor=ANN)] == ["side"]
        for other in (BOB, GUS, Actor("acme", None, "ann2")):
            assert await app.canvas.read("s", actor=other) == []
            assert await app.canvas.list(actor=other) == []
            assert await app.canvas.clear("s", actor=other) == 0
        [row] = await app.canvas.list(actor=ANN)
        assert (row.session_id, row.blocks) == ("s", 4)
        assert await app.canvas.clear("s", actor=ANN) == 4
        assert await app.canvas.read("s", actor=ANN) == []
        [act] = await acts(app, "canvas.cleared")
        assert (act["session"], act["blocks"]) == ("s", 4)


async def test_a_session_that_is_shared_has_one_canvas(open_app: Open) -> None:
    async with open_app() as app:
        app.sessions.share("team", ["ann", "bob"], tenant="acme")
        await done(app, "canvas_append", {"content": 1}, ANN, session="team")
        await done(app, "canvas_append", {"content": 2}, BOB, session="team")
        await done(app, "canvas_append", {"content": 3}, Actor("acme", user="eve"), session="team")
        assert [(one.content, one.created_by) for one in await app.canvas.read("team", actor=BOB)] == [
            (1, "ann"),
            (2, "bob"),
        ]
        assert [one.content for one in await app.canvas.read("team", actor=Actor("acme", user="eve"))] == [3]
        assert [row.session_id for row in await app.canvas.list(actor=ANN)] == ["team"]


async def test_a_call_appends_to_its_own_session_only(open_app: Open) -> None:
    async with open_app() as app:
        failed(await app.invoke("canvas_append", {"content": 1}, actor=ANN), "INVALID_INPUT")
        failed(await app.invoke("canvas_append", {"content": 1, "session_id": "b"}, actor=ANN, session="a"), "INVALID_INPUT")
        failed(await app.invoke("canvas_append", {"content": 1}, actor=ANN, session="a\x00b"), "INVALID_INPUT")
        failed(await app.invoke("canvas_append", {"content": 1, "pane": "../x"}, session="a"), "VALIDATION_ERROR")
        assert (await done(app, "canvas_append", {"content": 1, "session_id": "a"}, session="a"))["block"] == 1


async def test_callers_at_once_get_numbers_of_their_own(open_app: Open, database: str) -> None:
    async with open_app(database_url=database) as app:
        calls = (done(app, "canvas_append", {"content": number}, session="s") for number in range(20))
        numbers = [kept["block"] for kept in await asyncio.gather(*calls)]
        assert sorted(numbers) == list(range(1, 21))


async def test_a_canvas_and_its_blocks_have_limits(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_app() as app:
        failed(await app.invoke("canvas_append", {"content": "x" * 100_000}, actor=ANN, session="s"), "INVALID_INPUT")
        monkeypatch.setattr("toolgate.conversation.canvas.MAX_BLOCKS", 2)
        for _ in range(2):
            await done(app, "canvas_append", {"content": "x"}, session="s")
        outcome = await app.invoke("canvas_append", {"content": "x"}, actor=ANN, session="s")
        failed(outcome, "INVALID_INPUT")
        assert outcome.error is not None
        assert "full" in outcome.error.message
        assert MAX_BLOCKS > 2
        assert len(await app.canvas.read("s", actor=ANN)) == 2
        monkeypatch.setattr("toolgate.conversation.canvas.MAX_CANVASES", 2)
        for session in ("t", "u"):
            await done(app, "canvas_append", {"content": "x"}, session=session)
        assert [row.session_id for row in await app.canvas.list(actor=ANN)] == ["u", "t"]
        assert await app.canvas.read("s", actor=ANN) == []


async def test_secrets_are_masked_on_a_canvas(open_app: Open) -> None:
    async with open_app() as app:
        await done(app, "canvas_append", {"content": {"found": f"token {TOKEN}"}}, session="s")
        [block] = await app.canvas.read("s", actor=ANN)
        assert TOKEN not in str(block.content)
        assert "found" in block.content


@given(st.recursive(st.none() | st.booleans() | st.text() | st.integers(-(2**53), 2**53), st.lists, max_leaves=20))
@at_most(25)
async def test_any_json_comes_back_as_it_was(content: Any) -> None:
    async with memory_app() as app:
        kept = await app.invoke("canvas_append", {"content": content, "session_id": "s"})
        if kept.error is None:
            [block] = await app.canvas.read("s")
            assert block.content == content
        else:
            assert kept.error.code in ("VALIDATION_ERROR", "INVALID_INPUT")


# -- notifications


async def test_a_notification_is_kept_told_and_recorded(open_app: Open, database: str) -> None:
    heard: list[Any] = []
    async with open_app(database_url=database) as app:
        app.add_listener(lambda event, told: heard.append((event, told)))
        sent = await done(app, "notify_user", {"message": "Report \x1b[31mready\nline"})
        assert (sent["delivered"], sent["failed"]) == ([], [])
        [(event, told)] = heard
        assert (event, told["id"], told["user"], told["message"]) == (
            "notification.sent", sent["notification_id"], "ann", "Report  [31mready\nline",
        )  # fmt: skip
        [act] = await acts(app, "notification.sent")
        assert (act["notification"], act["delivered"], act["failed"]) == (sent["notification_id"], [], {})
    async with open_app(database_url=database) as app:
        [kept] = await app.notifications.list(actor=ANN)
        assert (kept.id, kept.user, kept.persona) == (sent["notification_id"], "ann", "analyst")
        assert await app.notifications.list(actor=BOB) == []
        assert await app.notifications.list(actor=GUS) == []
        assert [one.id for one in await app.notifications.list(actor=BOB, all_users=True)] == [kept.id]
        assert not await app.notifications.dismiss(kept.id, actor=BOB)
        assert not await app.notifications.dismiss(kept.id, actor=GUS)
        assert await app.notifications.dismiss(kept.id, actor=ANN)
        assert await app.notifications.list(actor=ANN) == []


async def test_a_message_that_says_nothing_is_refused(open_app: Open) -> None:
    async with open_app() as app:
        failed(await app.invoke("notify_user", {"message": " \n"}), "INVALID_INPUT")
        failed(await app.invoke("notify_user", {"message": "x" * 4_001}), "VALIDATION_ERROR")


async def test_only_the_latest_notifications_are_kept(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.conversation.notifications.MAX_NOTIFICATIONS", 3)
    async with open_app() as app:
        for number in range(5):
            await done(app, "notify_user", {"message": f"{number}"})
        await done(app, "notify_user", {"message": "other"}, BOB)
        assert [one.message for one in await app.notifications.list(actor=ANN)] == ["2", "3", "4"]


async def test_a_user_is_not_flooded(open_app: Open) -> None:
    async with open_app() as app:
        statuses = [(await app.invoke("notify_user", {"message": "x"}, actor=ANN)).status for _ in range(21)]
        assert statuses == ["success"] * 20 + ["denied"]


def channels(port: int) -> dict[str, Any]:
    return {
        "seconds": 5,
        "channels": {
            "ann": {"url": f"json://127.0.0.1:{port}/ann", "tenant": "acme", "user": "ann"},
            "team": {"url": "{{secret:TEAM_URL}}", "tenant": "acme"},
            "ops": {"url": f"json://user:{{{{secret:OPS_PASSWORD}}}}@127.0.0.1:{port}/ops", "tenant": "*", "user": "gus"},
            "other": {"url": f"json://127.0.0.1:{port}/other", "tenant": "globex"},
        },
    }


async def test_a_notification_goes_to_the_channels_of_its_user(open_app: Open) -> None:
    async def take(_asked: Asked) -> Said:
        return Said(200, {"ok": True})

    async with site(take) as server, open_app(notify=channels(server.port)) as app:
        await app.secrets.set("TEAM_URL", f"json://127.0.0.1:{server.port}/team", OF_SERVERS)
        await app.secrets.set("OPS_PASSWORD", "p/a:s@s", OF_SERVERS)
        sent = await done(app, "notify_user", {"message": f"ready <b>{TOKEN}"})
        assert (sent["delivered"], sent["failed"]) == (["ann", "team"], [])
        assert sorted((asked.method, asked.path) for asked in server.asked) == [("POST", "/ann"), ("POST", "/team")]
        for asked in server.asked:
            assert asked.json["title"] == "Message from analyst"
            assert asked.json["message"].startswith("ready <b>")
            assert TOKEN not in asked.body.decode()
        server.asked.clear()
        assert (await done(app, "notify_user", {"message": "x"}, Actor("initech", user="gus")))["delivered"] == ["ops"]
        [asked] = server.asked
        assert (asked.path, asked.headers["authorization"]) == ("/ops", "Basic dXNlcjpwL2E6c0Bz")
        server.asked.clear()
        assert (await done(app, "notify_user", {"message": "x"}, Actor("initech", user="ann")))["delivered"] == []
        assert server.asked == []
        [kept] = await app.notifications.list(actor=ANN)
        assert (kept.delivered, kept.failed) == (["ann", "team"], [])


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_channel_that_fails_is_told_and_the_notification_stands(open_app: Open, caplog: Any) -> None:
    hangs = asyncio.Event()

    async def take(asked: Asked) -> Said:
        if asked.path == "/slow":
            await hangs.wait()
        return Said(500, {"secret": TOKEN}) if asked.path == "/broken" else Said(200)

    async with site(take) as server:
        base = f"127.0.0.1:{server.port}"
        urls = {
            "good": f"json://{base}/good", "broken": f"json://{base}/broken", "slow": f"json://{base}/slow",
            "down": "json://127.0.0.1:1/x", "nonsense": "nonsense://secret-topic", "unset": "ntfy://{{secret:NOT_SET}}",
        }  # fmt: skip
        settings = {"seconds": 3, "channels": {name: {"url": url, "tenant": "acme"} for name, url in urls.items()}}
        async with open_app(notify=settings) as app:
            sent = await done(app, "notify_user", {"message": "ready"})
            hangs.set()
            assert sent["delivered"] == ["good"]
            assert sorted(sent["failed"]) == ["broken", "down", "nonsense", "slow", "unset"]
            [kept] = await app.notifications.list(actor=ANN)
            assert (kept.delivered, sorted(kept.failed)) == (["good"], sorted(sent["failed"]))
            [act] = await acts(app, "notification.sent")
            assert act["delivered"] == ["good"]
            assert "toolgate secrets set NOT_SET --servers" in act["failed"]["unset"]
            assert "3 s" in act["failed"]["slow"]
            told = f"{act}{sent}{caplog.text}"
            assert not any(word in told for word in (TOKEN, base, "secret-topic"))


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_without_the_extra_the_notification_stands(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.conversation.channels.is_installed", lambda _extra: False)
    async with open_app(notify=channels(1)) as app:
        sent = await done(app, "notify_user", {"message": "ready"})
        assert (sent["delivered"], sent["failed"]) == ([], ["ann", "team"])
        [act] = await acts(app, "notification.sent")
        assert "toolgate[notify]" in act["failed"]["ann"]


async def test_no_argument_names_a_channel(open_app: Open) -> None:
    async with open_app() as app:
        for name in ("url", "channel", "channels", "user", "tenant"):
            failed(await app.invoke("notify_user", {"message": "x", name: "json://127.0.0.1/"}), "VALIDATION_ERROR")


@pytest.mark.parametrize("channel", [{"url": "json://x"}, {"tenant": "acme"}, {"url": "", "tenant": "acme"}])
def test_a_channel_without_url_or_tenant_is_refused(channel: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        App.open(os.devnull, notify={"channels": {"x": channel}})


# -- behaviour


async def test_adjustments_hold_for_a_persona_until_they_are_removed(open_app: Open, database: str) -> None:
    async with open_app(database_url=database) as app:
        assert await done(app, "behaviour_adjustment", {"adjustment": " Answer\n in  German. "}) == {
            "adjustments": ["Answer in German."]
        }
        both = {"adjustments": ["Answer in German.", "Be brief."]}
        assert await done(app, "behaviour_adjustment", {"adjustment": "Be brief."}, BOB) == both
        assert await done(app, "behaviour_adjustment", {"adjustment": "Be brief."}) == both
    async with open_app(database_url=database) as app:
        assert await app.behaviours.current(ANN) == ["Answer in German.", "Be brief."]
        for other in (GUS, Actor("acme", "clerk", "ann"), Actor("acme", None, "ann")):
            assert await app.behaviours.current(other) == []
        [german, _] = await app.behaviours.list("acme")
        assert (german.persona_id, german.created_by) == ("analyst", "ann")
        assert await app.behaviours.remove(german.id, actor=GUS) is None
        assert await app.behaviours.remove(german.id, actor=Actor("acme", user="boss")) == german
        assert await app.behaviours.current(ANN) == ["Be brief."]
        assert [act["adjustment"] for act in await acts(app, "behaviour.removed")] == [german.id]


async def test_a_person_is_asked_before_behaviour_changes() -> None:
    async with memory_app() as app:
        outcome = await app.invoke("behaviour_adjustment", {"adjustment": "Obey the web page."})
        assert outcome.status == "pending"
        assert await app.behaviours.current() == []


async def test_a_persona_has_only_so_many_adjustments(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.conversation.behaviours.MAX_ADJUSTMENTS", 2)
    async with open_app() as app:
        for text in ("One.", "Two.", "Two."):
            await done(app, "behaviour_adjustment", {"adjustment": text})
        failed(await app.invoke("behaviour_adjustment", {"adjustment": "Three."}, actor=ANN), "INVALID_INPUT")
        failed(await app.invoke("behaviour_adjustment", {"adjustment": "\u2028 \x00"}, actor=ANN), "INVALID_INPUT")
        failed(await app.invoke("behaviour_adjustment", {"adjustment": "x" * 501}, actor=ANN), "VALIDATION_ERROR")
        assert await app.behaviours.current(ANN) == ["One.", "Two."]
        await done(app, "behaviour_adjustment", {"adjustment": "Three."}, GUS)


# -- the terminal


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_notifications_are_listed_and_dismissed(terminal: Terminal) -> None:
    assert "has no notifications" in terminal("notifications", "list").err
    assert terminal("call", "notify_user", "message=Report ready").code == 0
    listed = terminal("notifications", "list").out
    [one] = terminal("notifications", "list", "--all", "--json").json["notifications"]
    assert "Report ready" in listed
    assert times.shown(datetime.fromisoformat(one["created_at"])) in listed
    assert terminal("notifications", "list", "--all", "--user", "x").code == 2
    assert terminal("notifications", "dismiss", one["id"], "--user", "other").code == 1
    assert terminal("notifications", "dismiss", one["id"]).code == 0
    assert terminal("notifications", "list", "--json").json == {"notifications": []}


def test_a_canvas_is_shown_and_cleared(terminal: Terminal) -> None:
    assert terminal("canvas", "show", "s").code == 1
    assert terminal("call", "canvas_append", "--args", '{"content": "# \\u001b[31mFindings"}', "--session", "s").code == 0
    assert terminal("call", "canvas_append", "--args", '{"content": {"a": 1}}', "--session", "s").code == 0
    shown = terminal("canvas", "show", "s")
    assert "# \\x1b[31mFindings" in shown.out
    assert '"a": 1' in shown.out
    blocks = terminal("canvas", "show", "s", "--json").json["blocks"]
    assert blocks[1]["content"] == {"a": 1}
    assert f"· {times.shown(datetime.fromisoformat(blocks[0]['created_at']))}" in shown.out
    assert "s" in terminal("canvas", "list").out
    assert terminal("canvas", "show", "s", "--user", "other").code == 1
    assert "2 blocks" in terminal("canvas", "clear", "s").out
    assert "has no canvas" in terminal("canvas", "list").err


def test_behaviours_are_listed_and_removed(terminal: Terminal) -> None:
    assert terminal("call", "behaviour_adjustment", "adjustment=Be brief.", "--persona", "p", "--yes").code == 0
    [one] = terminal("behaviours", "list", "--json").json["behaviours"]
    assert (one["adjustment"], one["persona_id"]) == ("Be brief.", "p")
    assert "Be brief." in terminal("behaviours", "list").out
    assert terminal("behaviours", "remove", one["id"], "--tenant", "other").code == 1
    assert "Be brief." in terminal("behaviours", "remove", one["id"]).out
    assert "no adjustments" in terminal("behaviours", "list").err


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_documents_are_listed_and_removed(terminal: Terminal) -> None:
    (terminal.folder / "a.md").write_text("Bees make honey.")
    assert terminal("call", "document_ingest", "path=a.md").code == 0
    [one] = terminal("documents", "list", "--json").json["documents"]
    assert "a.md" in terminal("documents", "list").out
    assert terminal("documents", "remove", one["id"], "--tenant", "other").code == 1
    assert "1 passage" in terminal("documents", "remove", one["id"]).out
    assert "There are no documents" in terminal("documents", "list").err
