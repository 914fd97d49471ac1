"""Handshake sessions of MCP clients in two servers on one database: each message goes to whichever server the test says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.asking import ADA
from tests.conformance.gateway import fixture_server, fixture_settings
from tests.mcp_clients import key_for
from tests.mcp_handshakes import Session, answer, message
from tests.serving import ACCEPT, Site, serving
from toolgate import Actor, App, tool
from toolgate.mcp.server import session_records
from toolgate.store.database import Transaction
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-5", "MCP-4")
BOB = Actor("acme", "analyst", "bob")
ASKS: dict[str, Any] = {"elicitation": {}}
SOON = 30.0
SECRET = "a very particular reason"


class Pair:
    """Two servers."""

    def __init__(self, apps: tuple[App, App], sites: tuple[Site, Site], key: str) -> None:
        self.app, self.other_app = apps
        self.one, self.two = sites
        self.key = key
        self.running = asyncio.Event()
        self.cancelled = asyncio.Event()
        for app in apps:
            for made in self._tools():
                app.register(made)

    def _tools(self) -> list[Any]:
        @tool(tier="read_only")
        async def say(text: str) -> str:
            """Say it again."""
            return text

        @tool(tier="execute")
        async def risky(text: str) -> str:
            """Do what has to be asked about."""
            return f"did {text}"

        @tool(tier="read_only")
        async def endless() -> str:
            """Never end."""
            self.running.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "never"

        return [say, risky, endless]


@asynccontextmanager
async def a_pair(database: str, folder: Path, **settings: Any) -> AsyncIterator[Pair]:
    where = {"database_url": database, "home": folder / "home", **settings}
    async with memory_app(**where) as app, memory_app(**where) as other, serving(app) as one, serving(other) as two:
        yield Pair((app, other), (one, two), await key_for(app, ADA, may_approve=True))


async def test_every_request_of_a_session_is_served_by_either_process(database: str, tmp_path: Path) -> None:
    async with a_pair(database, tmp_path) as pair:
        session = await Session.begin(pair.one, pair.key)
        for site in (pair.two, pair.one, pair.two):
            assert (await session.call(site, "say", text="x"))["content"][0]["text"] == "x"
            assert "say" in str(await session.ask(site, "tools/list"))
        assert (await session.send(pair.two, method="DELETE")).status == 200
        for site in (pair.one, pair.two):
            gone = await session.send(site, message("tools/list", id=9))
            assert gone.status == 404 and gone.json["error"]["message"] == "Session not found"


@pytest.mark.requirement("DOOR-3")
async def test_another_credential_finds_no_session_in_any_process(database: str, tmp_path: Path) -> None:
    async with a_pair(database, tmp_path) as pair:
        session = await Session.begin(pair.one, pair.key)
        for other in (await key_for(pair.app, BOB), await key_for(pair.app, ADA, may_approve=True)):
            for site in (pair.one, pair.two):
                told = await session.send(site, message("tools/list", id=2), key=other)
                unknown = await Session("0" * 32, other).send(site, message("tools/list", id=2))
                assert (told.status, told.body) == (unknown.status, unknown.body) and told.status == 404
                assert (await session.send(site, method="DELETE", key=other)).status == 404
        assert (await session.call(pair.two, "say", text="x"))["content"][0]["text"] == "x"


async def test_a_key_opens_no_more_sessions_than_it_may_over_all_processes(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_records, "MAX_CREDENTIAL_SESSIONS", 2)
    async with a_pair(database, tmp_path) as pair:
        sessions = [await Session.begin(site, pair.key) for site in (pair.one, pair.two)]
        hello = message("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}, id=1)
        for site in (pair.one, pair.two):
            assert (await site("POST", "/mcp", {"Accept": ACCEPT}, hello, key=pair.key)).status == 429
        assert (await sessions[0].send(pair.two, method="DELETE")).status == 200
        await Session.begin(pair.one, pair.key)


@pytest.mark.parametrize("answered_at", ["the other", "the same"])
@pytest.mark.requirement("TIER-6")
async def test_a_question_of_one_process_is_answered_through_either(database: str, tmp_path: Path, answered_at: str) -> None:
    """The person's words are in no table."""
    async with a_pair(database, tmp_path) as pair:
        session = await Session.begin(pair.two, pair.key, ASKS)
        body = message("tools/call", {"name": "risky", "arguments": {"text": "one"}}, id=7)
        async with session.stream(pair.one, body) as events:
            asked = await events.until("elicitation/create")
            said = {"action": "accept", "content": {"approve": True, "reason": SECRET}}
            site = pair.two if answered_at == "the other" else pair.one
            assert (await session.send(site, answer(asked["id"], said))).status == 202
            done = await events.next()
            assert done is not None and done["id"] == 7 and done["result"]["content"][0]["text"] == "did one"
        assert await pair.app.approvals.list(actor=ADA) == []

        def lying() -> Transaction[Any]:
            return (yield "SELECT body FROM mcp_session_messages", {})

        assert SECRET not in str(await pair.app.parts.store.read(lying()))


async def test_two_processes_can_ask_at_once(database: str, tmp_path: Path) -> None:
    """Each answer finds its own question, though both have asked one so far."""
    async with a_pair(database, tmp_path) as pair:
        session = await Session.begin(pair.one, pair.key, ASKS)
        bodies = [message("tools/call", {"name": "risky", "arguments": {"text": f"t{n}"}}, id=n) for n in (7, 8)]
        async with session.stream(pair.one, bodies[0]) as here, session.stream(pair.two, bodies[1]) as there:
            first, second = await here.until("elicitation/create"), await there.until("elicitation/create")
            assert first["id"] != second["id"]
            await session.send(pair.one, answer(second["id"], {"action": "accept", "content": {"approve": True}}))
            await session.send(pair.two, answer(first["id"], {"action": "decline"}))
            assert "did t8" in str(await there.next()) and "did t7" not in str(await here.next())


async def test_a_call_is_cancelled_through_another_process(database: str, tmp_path: Path) -> None:
    async with a_pair(database, tmp_path) as pair:
        session = await Session.begin(pair.two, pair.key)
        async with session.stream(pair.one, message("tools/call", {"name": "endless", "arguments": {}}, id=7)) as events:
            await asyncio.wait_for(pair.running.wait(), SOON)
            cancel = message("notifications/cancelled", {"requestId": 7})
            assert (await session.send(pair.two, cancel)).status == 202
            await asyncio.wait_for(pair.cancelled.wait(), SOON)
            ended = await events.next()
            assert ended is not None and ended["id"] == 7 and "error" in ended


async def test_the_id_that_a_client_gives_its_request_is_kept_with_the_call(tmp_path: Path) -> None:
    async with a_pair(f"sqlite:///{tmp_path / 'toolgate.db'}", tmp_path) as pair:
        session = await Session.begin(pair.one, pair.key)
        by_hand = {"name": "say", "arguments": {"text": "x"}}
        plain = await pair.one.mcp("tools/call", by_hand, headers={"X-Request-Id": "mine-1"}, key=pair.key)
        assert (plain.status, plain.headers["x-request-id"]) == (200, "mine-1")
        headers = {**session.headers, "X-Request-Id": "mine-2"}
        assert (await pair.one("POST", "/mcp", headers, message("tools/call", by_hand, id=5), key=pair.key)).status == 200
        assert (await pair.one.mcp("tools/call", by_hand, headers={"X-Request-Id": "a\tb"}, key=pair.key)).status == 200
        await pair.app.parts.store.flush()
        for id in ("mine-1", "mine-2"):
            assert len(await pair.app.audit.of_request(id, tenant=ADA.tenant)) == 1


BAD_HANDSHAKES: list[dict[str, Any]] = [
    {"nothing": "right"},
    {"protocolVersion": 5, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t" * 70_000, "version": "1"}},
]


async def test_a_bad_handshake_within_a_session_harms_neither_it_nor_others(tmp_path: Path) -> None:
    async with a_pair(f"sqlite:///{tmp_path / 'toolgate.db'}", tmp_path) as pair:
        bad = await Session.begin(pair.one, await key_for(pair.app, BOB))
        await bad.call(pair.two, "say", text="x")
        for params in BAD_HANDSHAKES:
            for site in (pair.one, pair.two):
                assert (await bad.send(site, message("initialize", params, id=8))).status in (200, 413)
                assert (await bad.call(site, "say", text="x"))["content"][0]["text"] == "x"
        session = await Session.begin(pair.two, pair.key)  # both processes still hear of what reached the other one
        for here, there in ((pair.one, pair.two), (pair.two, pair.one)):
            pair.running.clear()
            pair.cancelled.clear()
            async with session.stream(here, message("tools/call", {"name": "endless", "arguments": {}}, id=7)):
                await asyncio.wait_for(pair.running.wait(), SOON)
                await session.send(there, message("notifications/cancelled", {"requestId": 7}))
                await asyncio.wait_for(pair.cancelled.wait(), SOON / 3)


async def test_what_a_client_sets_in_one_process_holds_in_the_other(database: str, tmp_path: Path) -> None:
    with fixture_server(log=tmp_path / "fixture.log") as url:
        async with a_pair(database, tmp_path, servers={"fixture": fixture_settings(url)}) as pair:
            await _until_offered(pair, "test_tool_with_logging")
            session = await Session.begin(pair.one, pair.key)
            for turn, (site, other) in enumerate(((pair.one, pair.two), (pair.two, pair.one))):
                await session.ask(site, "logging/setLevel", level="emergency")
                assert await _logged(session, other, f"{turn} quiet") == 0
                await session.ask(other, "logging/setLevel", level="debug")
                assert await _logged(session, site, f"{turn} loud") == 3


async def _logged(session: Session, site: Site, id: str) -> int:
    """How many messages a call logs."""
    body, count = message("tools/call", {"name": "test_tool_with_logging", "arguments": {}}, id=id), 0
    async with session.stream(site, body) as events:
        while (told := await events.next()) is not None and "result" not in told:
            count += told.get("method") == "notifications/message"
    return count


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.parametrize("listens_at", ["the other", "the same"])
async def test_changes_reach_a_client_whichever_process_has_its_stream(
    database: str, tmp_path: Path, listens_at: str
) -> None:
    """Of tools, and of a resource that was subscribed to through one process and changed through the other."""
    with fixture_server(log=tmp_path / "fixture.log") as url:
        async with a_pair(database, tmp_path, servers={"fixture": fixture_settings(url)}) as pair:
            await _until_offered(pair, "test_trigger_resource_change")
            session = await Session.begin(pair.one, pair.key)
            listening = pair.two if listens_at == "the other" else pair.one
            async with session.stream(listening) as events:
                assert events.status == 200
                await session.ask(pair.one, "resources/subscribe", uri="test://watched-resource")
                await session.call(pair.one, "test_trigger_resource_change")
                updated = await events.until("notifications/resources/updated")
                assert updated["params"]["uri"] == "test://watched-resource"
                await session.call(pair.two, "test_trigger_tool_change")
                await events.until("notifications/tools/list_changed")
                await pair.app.tools.disable("say")
                await events.until("notifications/tools/list_changed")


async def _until_offered(pair: Pair, name: str) -> None:
    async with asyncio.timeout(SOON):
        for app in (pair.app, pair.other_app):
            while name not in {one.name for one in await app.tools.list(ADA)}:
                await asyncio.sleep(0.05)


async def test_the_newest_stream_of_a_session_is_the_one(database: str, tmp_path: Path) -> None:
    """In either process; the older one is ended in order."""
    async with a_pair(database, tmp_path) as pair:
        session = await Session.begin(pair.one, pair.key)
        async with session.stream(pair.one) as first, session.stream(pair.one) as second:
            assert await first.next() is None
            async with session.stream(pair.two) as third:
                assert await second.next() is None
                await pair.app.tools.disable("say")
                await third.until("notifications/tools/list_changed")


async def test_a_session_outlives_the_process_that_began_it(database: str, tmp_path: Path) -> None:
    where: dict[str, Any] = {"database_url": database, "home": tmp_path / "home"}
    async with memory_app(**where) as app:
        key = await key_for(app, ADA)
        async with serving(app) as site:
            session = await Session.begin(site, key)
    async with memory_app(**where) as app, serving(app) as site:
        assert (await session.call(site, "calculator", expression="6*7"))["structuredContent"]["result"] == 42


@pytest.mark.requirement("DOOR-3")
async def test_a_session_does_not_outlive_its_credential(database: str, tmp_path: Path) -> None:
    async with a_pair(database, tmp_path) as pair:
        session = await Session.begin(pair.one, pair.key)
        async with session.stream(pair.two) as events:
            [key] = await pair.app.keys.list()
            await pair.app.keys.revoke(key.id)
            assert await events.next() is None
            for site in (pair.one, pair.two):
                assert (await session.send(site, message("tools/list", id=9))).status == 401


async def test_a_session_that_nobody_uses_ends_everywhere(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_pair(database, tmp_path) as pair:
        session = await Session.begin(pair.one, pair.key)
        await session.call(pair.two, "say", text="x")
        monkeypatch.setattr(session_records, "IDLE_SECONDS", 0.0)
        for site in (pair.one, pair.two):
            assert (await session.send(site, message("tools/list", id=9))).status == 404
        await pair.app.mcp_sessions.prune()
        monkeypatch.undo()
        for site in (pair.one, pair.two):
            assert (await session.send(site, message("tools/list", id=9))).status == 404


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.parametrize("id", [b"null", b"{}", b'"x"', b"true", b"1e400", b"99999999999999999999", b"-4294967297"])
async def test_answers_that_nobody_asked_for_change_nothing(tmp_path: Path, id: bytes) -> None:
    async with a_pair(f"sqlite:///{tmp_path / 'toolgate.db'}", tmp_path) as pair:
        session = await Session.begin(pair.one, pair.key, ASKS)
        await session.call(pair.two, "say", text="x")
        for site in (pair.one, pair.two):
            told = await session.send(site, b'{"jsonrpc":"2.0","id":%b,"result":{}}' % id)
            assert told.status in (202, 400), told
            assert (await session.call(site, "say", text="x"))["content"][0]["text"] == "x"

        def lying() -> Transaction[Any]:
            return (yield "SELECT count(*) FROM mcp_session_messages", {})

        assert await pair.app.parts.store.read(lying()) == [(0,)]
