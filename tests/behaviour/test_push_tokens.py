"""Push tokens: services that users add for their own notifications."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.test_tools_conversation import ANN, BOB, GUS, acts, done
from tests.loopback import Asked, Said, site
from tests.terminal import Terminal
from toolgate import App, InvalidInput, SettingsError
from toolgate.conversation.push_sender import MAX_TENANT_SENDS
from toolgate.errors import Denied
from toolgate.store import push_tokens as table

pytestmark = [
    pytest.mark.requirement("BUILTIN-4"),
    pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning"),  # apprise looks whether it is there
]
Open = Callable[..., Any]


@pytest.fixture
def open_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens an App whose users may add some kinds of tokens, also for a server on loopback."""
    for name in list(os.environ):
        if name.startswith("TOOLGATE_") and name != "TOOLGATE_TRUST":
            monkeypatch.delenv(name)

    @asynccontextmanager
    async def opened(port: int = 0, **settings: Any) -> AsyncIterator[App]:
        allow = [f"127.0.0.1:{port}"] if port else []
        push = {"kinds": ["json", "ntfy", "ntfys"], "allow": allow, **settings.pop("push", {})}
        notify = {"seconds": 5, **settings.pop("notify", {}), "push": push}
        async with App.open(os.devnull, home=tmp_path / "home", notify=notify, **settings) as app:
            app.approvals.add_approver(lambda _request: True)
            yield app

    return opened


async def take(_asked: Asked) -> Said:
    return Said(200, {"ok": True})


async def test_tokens_belong_to_their_user(open_app: Open, database: str) -> None:
    async with open_app(database_url=database) as app:
        phone = await app.push_tokens.add("ntfys://ntfy.example.com/very-secret-topic", "phone", actor=ANN)
        other = await app.push_tokens.add("ntfys://ntfy.example.com/other", actor=ANN)
        assert (phone.name, phone.kind, phone.url) == ("phone", "ntfys", "ntfys://****")
        assert other.name.startswith("ntfys-")
    async with open_app(database_url=database) as app:
        found = await app.push_tokens.list(actor=ANN)
        assert [one.name for one in found] == ["phone", other.name]
        assert "secret-topic" not in str(found)
        [row, _] = await app.parts.store.read(table.listed("acme", "ann"))
        assert "topic" not in str(row), "it is kept encrypted"
        for stranger in (BOB, GUS):
            assert await app.push_tokens.list(actor=stranger) == []
            assert await app.push_tokens.remove(phone.id, actor=stranger) is None
            assert await app.push_tokens.remove("phone", actor=stranger) is None
        await app.push_tokens.add("ntfys://ntfy.example.com/twin", phone.id, actor=ANN)
        assert (await app.push_tokens.remove(phone.id, actor=ANN)) == found[0], "an id comes before a name"
        assert (await app.push_tokens.remove(phone.id, actor=ANN)) is not None
        assert (await app.push_tokens.remove(other.id, actor=ANN)) == found[1]
        assert await app.push_tokens.list(actor=ANN) == []
        added, removed = await acts(app, "push_token.added"), await acts(app, "push_token.removed")
        names = sorted(["phone", other.name, phone.id])
        assert sorted(act["name"] for act in added) == sorted(act["name"] for act in removed) == names
        assert "topic" not in f"{added}{removed}"


async def test_a_user_has_so_many_tokens_also_if_they_are_added_at_once(open_app: Open, database: str) -> None:
    async with open_app(database_url=database, push={"tokens": 3}) as app:
        adding = (app.push_tokens.add(f"ntfys://ntfy.example.com/t{n}", actor=ANN) for n in range(8))
        results = await asyncio.gather(*adding, return_exceptions=True)
        refused = [one for one in results if isinstance(one, InvalidInput)]
        assert (len(refused), len(await app.push_tokens.list(actor=ANN))) == (5, 3)
        await app.push_tokens.add("ntfys://ntfy.example.com/x", "x", actor=BOB)
        with pytest.raises(InvalidInput, match="already"):
            await app.push_tokens.add("ntfys://ntfy.example.com/y", "x", actor=BOB)
        [first, *_] = await app.push_tokens.list(actor=ANN)
        await app.push_tokens.remove(first.id, actor=ANN)
        await app.push_tokens.add("ntfys://ntfy.example.com/again", actor=ANN)


async def test_a_notification_goes_to_the_tokens_of_its_user(open_app: Open, caplog: Any) -> None:
    caplog.set_level("INFO", "toolgate")
    async with site(take) as server, open_app(server.port) as app:
        for name in ("one", "two"):
            await app.push_tokens.add(f"json://user:s3cret-word@127.0.0.1:{server.port}/{name}", name, actor=ANN)
        await app.push_tokens.add(f"json://127.0.0.1:{server.port}/bob", actor=BOB)
        assert server.asked == [], "adding sends nothing"
        sent = await done(app, "notify_user", {"message": "The report is ready."})
        assert (sorted(sent["delivered"]), sent["failed"]) == (["push:one", "push:two"], [])
        assert sorted(asked.path for asked in server.asked) == ["/one", "/two"]
        for asked in server.asked:
            assert (asked.json["title"], asked.json["message"]) == ("Message from analyst", "The report is ready.")
            assert asked.headers["authorization"].startswith("Basic ")
        [act] = await acts(app, "notification.sent")
        assert (act["title"], act["token_count"], act["success_count"]) == ("Message from analyst", 2, 2)
        assert "The report" not in str(act)
        [kept] = await app.notifications.list(actor=ANN)
        assert sorted(kept.delivered) == ["push:one", "push:two"]
        assert all(one.delivered_at and one.last_error is None for one in await app.push_tokens.list(actor=ANN))
        assert caplog.text.count("was sent to the push token") == 2
        assert "s3cret-word" not in f"{caplog.text}{act}{sent}{kept}"


async def test_a_token_that_its_service_does_not_know_is_removed(open_app: Open) -> None:
    answers = {
        "/gone": Said(410), "/unknown": Said(404), "/invalid": Said(400, {"error": "INVALID_TOKEN"}),
        "/busy": Said(503), "/often": Said(429), "/refused": Said(403, {"error": "no"}), "/fine": Said(200),
    }  # fmt: skip

    async def answer(asked: Asked) -> Said:
        return answers[asked.path]

    async with site(answer) as server, open_app(server.port) as app:
        for path in answers:
            await app.push_tokens.add(f"json://127.0.0.1:{server.port}{path}", path[1:], actor=ANN)
        sent = await done(app, "notify_user", {"message": "x"})
        assert sent["delivered"] == ["push:fine"]
        left = {one.name: one.last_error for one in await app.push_tokens.list(actor=ANN)}
        assert left == {
            "busy": "the service answered 503", "often": "the service answered 429", "refused": "the service answered 403",
            "fine": None,
        }  # fmt: skip
        removed = await acts(app, "push_token.removed")
        assert sorted(act["name"] for act in removed) == ["gone", "invalid", "unknown"]
        assert all("the service answered" in act["why"] for act in removed)
        [act] = await acts(app, "notification.sent")
        assert (act["token_count"], act["success_count"]) == (7, 1)


async def test_a_notification_is_tried_again_only_where_it_may_be_taken_later(open_app: Open) -> None:
    state = {"/busy": 503, "/refused": 403, "/fine": 200}

    async def answer(asked: Asked) -> Said:
        return Said(state[asked.path])

    async with site(answer) as server:
        channel = {"url": f"json://127.0.0.1:{server.port}/fine", "tenant": "acme"}
        async with open_app(server.port, notify={"channels": {"team": channel}}) as app:
            for path in state:
                await app.push_tokens.add(f"json://127.0.0.1:{server.port}{path}", path[1:], actor=ANN)
            send = app.parts.notifications.send_once
            first = await send("ntf_1", ANN, "Title", "Body", {"n": 1})
            assert (sorted(first.delivered), first.passing) == (["push:fine", "team"], ("push:busy",))
            assert {asked.json["title"] for asked in server.asked} == {"Title"}
            server.asked.clear()
            state["/busy"] = 200
            again = await send("ntf_1", ANN, "Title", "Body", {"n": 1})
            assert (again.delivered, again.passing, [asked.path for asked in server.asked]) == (
                ("push:busy",),
                (),
                ["/busy"],
            )
            assert (await send("ntf_1", ANN, "Title", "Body", None)).delivered == ()
            [kept] = await app.notifications.list(actor=ANN)
            assert sorted(kept.delivered) == ["push:busy", "push:fine", "team"]
            assert (kept.failed, kept.title, kept.data) == (["push:refused"], "Title", {"n": 1})


async def test_tokens_that_hang_take_only_their_time(open_app: Open) -> None:
    hangs = asyncio.Event()

    async def answer(asked: Asked) -> Said:
        if asked.path.startswith("/slow"):
            await hangs.wait()
        return Said(200)

    async with site(answer) as server, open_app(server.port, notify={"seconds": 1}) as app:
        for n in range(MAX_TENANT_SENDS + 1):
            await app.push_tokens.add(f"json://127.0.0.1:{server.port}/slow{n}", actor=ANN)
        await app.push_tokens.add(f"json://127.0.0.1:{server.port}/good", "good", actor=GUS)
        slow, good = await asyncio.gather(
            done(app, "notify_user", {"message": "x"}), done(app, "notify_user", {"message": "x"}, GUS)
        )
        assert (slow["delivered"], len(slow["failed"])) == ([], MAX_TENANT_SENDS + 1)
        assert good["delivered"] == ["push:good"], "another tenant's tokens do not wait for them"
        hangs.set()


async def test_no_kind_is_allowed_unless_a_setting_names_it(open_app: Open) -> None:
    async with open_app(push={"kinds": []}) as app:
        with pytest.raises(Denied, match="not allowed here"):
            await app.push_tokens.add("ntfys://ntfy.example.com/x")
    for kind in ("file", "exec", "dbus", "syslog", "mailto", "mqtt", "windows", "apprise", "*"):
        with pytest.raises(SettingsError):
            App.open(os.devnull, notify={"push": {"kinds": [kind]}})


async def test_hosts_that_tools_may_reach_are_not_for_tokens(open_app: Open) -> None:
    async with open_app(network={"allow": ["127.0.0.1:8080"]}) as app:
        with pytest.raises(Denied, match="private network") as refused:
            await app.push_tokens.add("json://127.0.0.1:8080/x")
        assert refused.value.suggestion == (
            'An operator can allow it in the settings: `notify: {push: {allow: ["127.0.0.1:8080"]}}`.'
        )


async def test_a_kind_that_is_no_longer_allowed_is_not_sent_to(open_app: Open) -> None:
    async with site(take) as server:
        async with open_app(server.port) as app:
            await app.push_tokens.add(f"json://127.0.0.1:{server.port}/x", "x", actor=ANN)
        async with open_app(server.port, push={"kinds": ["ntfys"]}) as app:
            assert (await done(app, "notify_user", {"message": "x"}))["failed"] == ["push:x"]
            assert server.asked == []


async def test_without_the_extra_none_can_be_added(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.conversation.push_sender.is_installed", lambda _extra: False)
    async with open_app() as app:
        with pytest.raises(InvalidInput, match=r"toolgate\[notify\]"):
            await app.push_tokens.add("ntfys://ntfy.example.com/x")


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


def test_tokens_on_the_command_line(terminal: Terminal) -> None:
    terminal.settings("notify: {push: {kinds: [ntfys]}}")
    whose = ("--tenant", "acme", "--user", "ann")
    add = ("notifications", "tokens", "add")
    added = terminal.run(*add, "phone", *whose, stdin=b"ntfys://ntfy.example.com/topic-7\n")
    assert (added.code, "phone" in added.out) == (0, True), added
    listed = terminal("notifications", "tokens", "list", *whose, "--json")
    [token] = listed.json["tokens"]
    assert (token["name"], token["url"]) == ("phone", "ntfys://****")
    assert "topic-7" not in f"{added}{listed}{terminal('notifications', 'tokens', 'list', *whose)}"
    assert terminal("notifications", "tokens", "remove", "phone", "--tenant", "globex").code == 1
    assert terminal("notifications", "tokens", "remove", "phone", *whose).code == 0
    assert "has no push tokens" in terminal("notifications", "tokens", "list", *whose).err
    refused = terminal.run(*add, *whose, stdin=b"json://127.0.0.1/x\n")
    assert (refused.code, "notify.push.kinds" in refused.err) == (1, True)
    assert terminal.run(*add, *whose, stdin=b"\n").code == 2
