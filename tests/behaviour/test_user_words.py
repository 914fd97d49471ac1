"""What the user typed is known to the pipeline and shown to whoever approves a call, whichever door it came by."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.behaviour.asking import ADA, BOSS, Workshop, ask
from tests.mcp_clients import ERAS, Person, connected, key_for, meta, text_of
from tests.mcp_pipe import piped
from tests.serving import META, serving
from tests.terminal import Terminal
from toolgate import Actor, App, InvokeContext, Outcome, tool
from toolgate.errors import InvalidInput
from toolgate.gates.approval.request import Answer, ApprovalRequest
from toolgate.gates.flow.user_words import IDLE, IDLE_UNNAMED, MAX_MESSAGE_CHARS
from toolgate.model import LOCAL, MASK, Call
from toolgate.store import audit_log
from toolgate.store.database import Rows, Transaction
from toolgate.testing import ManualClock, memory_app

pytestmark = pytest.mark.requirement("FLOW-1")

ORDER = "Pay 1,250.00 to Miller & Sons, DE89 3704 0044 0532 0130 00, and tell ann@acme.com"
IBAN = "DE89370400440532013000"


async def knows(app: App, value: str, session: str | None = "s", actor: Actor = ADA, **more: Any) -> bool:
    """True if the pipeline would find a value among the words that a call's user typed."""
    call = Call("", "run", None, actor, session, **more)
    return any(words.names(value) for words in await app.parts.user_words.of_call(call))


async def shown(app: App, id: str) -> ApprovalRequest:
    """A question as an approver is shown it."""
    return (await app.approvals.get(id, None)).request


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with Workshop().move_into(memory_app()) as app:
        yield app


# -- what is known


async def test_what_was_said_is_known_in_its_session_and_nowhere_else(app: App) -> None:
    assert not await knows(app, IBAN)
    kept = await app.say("s", ORDER, actor=ADA)
    assert (kept.is_whole, kept.is_new, kept.tokens) == (True, True, 10)
    for value in (IBAN, "ann@acme.com", "1250", "Miller & Sons"):
        assert await knows(app, value), value
    assert not await knows(app, "bob@acme.com") and not await knows(app, "Sons and")
    assert await knows(app, IBAN, actor=Actor(ADA.tenant, "another", ADA.user)), "the persona is no part of it"
    for other in (Actor("globex", user="ada"), Actor("acme", user="Ada"), BOSS, LOCAL):
        assert not await knows(app, IBAN, actor=other), other
    assert not await knows(app, IBAN, "t") and not await knows(app, IBAN, None)


async def test_users_who_share_a_session_have_their_own_words(app: App) -> None:
    """Files are shared by who is named; what one typed vouches for nothing that another's agent does."""
    app.sessions.share("s", [ADA.user, BOSS.user], tenant="acme")
    await app.say("s", ORDER, actor=ADA)
    assert await knows(app, IBAN) and not await knows(app, IBAN, actor=BOSS)


async def test_a_session_that_a_client_names_has_the_words_of_its_connection(app: App) -> None:
    """So a client cannot shed what was said, or later what was read, by naming a new session with each call."""
    await app.say("mcp-1", ORDER, actor=ADA)
    for name in ("part", "another", "mcp-2", None):
        assert await knows(app, IBAN, name, connection="mcp-1", door="mcp"), name
    assert not await knows(app, IBAN, "part", connection="mcp-2", door="mcp")
    await app.say("part", "and 77 roses", actor=ADA)
    assert await knows(app, "77 roses", "part", connection="mcp-1", door="mcp")
    assert not await knows(app, "77 roses", "another", connection="mcp-1", door="mcp"), "what is said in a part stays there"


async def test_without_a_connection_the_whole_is_the_users_own(app: App) -> None:
    await app.say(None, ORDER, actor=ADA)
    for door in ("http", "mcp", "events", "a door that nobody knows"):
        assert await knows(app, IBAN, "named by the client", door=door), door
        assert await knows(app, IBAN, None, door=door)
    for door in ("python", "cli"):
        assert not await knows(app, IBAN, "named by the operator", door=door), door
        assert await knows(app, IBAN, None, door=door)


async def test_a_call_inside_a_call_and_a_job_are_of_the_same_session(app: App) -> None:
    asked: list[ApprovalRequest] = []
    app.approvals.add_approver(lambda request: asked.append(request))

    @tool(tier="read_only")
    async def outer(ctx: InvokeContext) -> str:
        """Call another tool."""
        return str((await ctx.call_tool("run", task="inner")).status)

    app.register(outer)
    await app.say("mcp-1", "run it", actor=ADA)
    there: dict[str, Any] = {"actor": ADA, "session": "part", "connection": "mcp-1", "door": "mcp"}
    assert (await app.invoke("outer", **there)).status == "pending"
    waiting = await app.invoke("run", {"task": "later"}, **there)
    assert waiting.pending is not None
    assert [[one.text for one in request.user_messages] for request in asked] == [["run it"], ["run it"]]
    approval = await app.approvals.on_record(waiting.pending.id, "acme")
    assert approval.connection == "mcp-1", "and what is resumed later, elsewhere"


async def test_a_job_asks_with_the_words_of_the_connection_that_queued_it(app: App) -> None:
    @tool(tier="read_only", background=True)
    async def later(ctx: InvokeContext) -> str:
        """Call another tool, in the background."""
        return str((await ctx.call_tool("run", task="inner")).status)

    app.register(later)
    await app.say("mcp-1", "run it", actor=ADA)
    queued = await app.invoke("later", actor=ADA, session="part", connection="mcp-1", door="mcp")
    assert queued.pending is not None and queued.pending.kind == "job"
    await app.jobs.run_all()
    [waiting] = await app.approvals.list(actor=ADA)
    assert [one.text for one in (await shown(app, waiting.request.id)).user_messages] == ["run it"]


async def test_words_are_forgotten_when_their_session_is_over() -> None:
    clock = ManualClock()
    async with Workshop().move_into(memory_app(clock=clock)) as app:
        await app.say(None, ORDER, actor=ADA)
        await app.say("s", ORDER, actor=ADA)
        clock.advance(minutes=29)
        assert await knows(app, IBAN, None), "and this look is a use of it"
        clock.advance(minutes=29)
        assert await knows(app, IBAN, None)
        clock.advance(IDLE_UNNAMED.total_seconds() + 1)
        assert not await knows(app, IBAN, None)
        assert (await shown(app, await ask(app))).user_messages == ()
        await app.say(None, "something new", actor=ADA)
        assert await knows(app, "something new", None) and not await knows(app, IBAN, None), "it has begun anew"
        assert await knows(app, IBAN, "s"), "a session with a name lasts"
        clock.advance(IDLE.total_seconds() + 1)
        assert not await knows(app, IBAN, "s")
        await app.say("t", "x", actor=ADA)
        assert [session for session, _ in await app.parts.store.read(_kept())] == ["t"], "what is over is deleted"


def _kept() -> Transaction[Rows]:
    return (yield "SELECT session_id, words FROM flow_sessions ORDER BY session_id", {})


def _messages() -> Transaction[Rows]:
    return (yield "SELECT session_id, sealed FROM flow_messages ORDER BY id", {})


async def test_what_is_kept_is_bounded(app: App) -> None:
    for number in range(30):
        await app.say("s", " ".join(f"w{number}x{part}" for part in range(900)), actor=ADA)
    [(_, words)] = await app.parts.store.read(_kept())
    assert len(words) == 20_000 * 8 and await knows(app, "w29x899") and not await knows(app, "w0x0")
    assert len(await app.parts.store.read(_messages())) == 3
    kept = await app.say("long", "word " * 30_000, actor=ADA)
    assert (kept.is_whole, kept.tokens) == (False, 20_000)
    for number in range(250):
        await app.say(f"session {number}", "x", actor=ADA)
    assert len(await app.parts.store.read(_kept())) == 200, "of one user"
    assert await knows(app, "x", "session 249")


async def test_the_same_message_told_again_is_one(app: App) -> None:
    """A client may send its user's last message along with each call."""
    for _ in range(3):
        await app.say("s", ORDER, actor=ADA)
    assert [one.text for one in (await shown(app, await ask(app, session="s"))).user_messages] == [ORDER]
    acts = [body for row in await app.parts.store.read(audit_log.after(0)) if "user.said" in (body := str(row))]
    assert len(acts) == 1 and "Miller" not in acts[0]
    assert all(part in acts[0] for part in ('"session":"s"', '"tokens":10', '"through":"python"')), acts


async def test_what_is_no_message_is_refused_or_says_nothing(app: App) -> None:
    for session in ("", "x" * 257, "a\x00b", 7, "\ud800"):
        with pytest.raises(InvalidInput, match="name of a session"):
            await app.say(session, "x", actor=ADA)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="are text"):
        await app.say("s", b"x", actor=ADA)  # type: ignore[arg-type]
    for text in ("", "  \n", "...", "?!"):
        kept = await app.say("s", text, actor=ADA)
        assert (kept.tokens, kept.is_new) == (0, False), text
    await app.say("s", "\ud800 \x00 a\u202eb", actor=ADA)
    assert (await shown(app, await ask(app, session="s"))).text()


async def test_words_are_on_disk_and_known_to_every_process(database: str, tmp_path: Path) -> None:
    opened = {"database_url": database, "home": tmp_path}
    async with App.open(os.devnull, **opened) as one, Workshop().move_into(App.open(os.devnull, **opened)) as two:
        await one.say("s", ORDER, actor=ADA)
        assert await knows(two, IBAN)
        await asyncio.gather(*(app.say("s", f"n{number} at once", actor=ADA) for number in range(6) for app in (one, two)))
        for number in range(6):
            assert await knows(two, f"n{number} at once") and await knows(one, f"n{number} at once"), number
        id = await ask(two, session="s")
        assert [one.text[2:] for one in (await shown(one, id)).user_messages] == [" at once"] * 3
    async with App.open(os.devnull, **opened) as app:
        assert await knows(app, IBAN) and not await knows(app, IBAN, actor=BOSS)
        dumped = str(await app.parts.store.read(_kept())) + str(await app.parts.store.read(_messages()))
        assert not any(word in dumped for word in ("Miller", "DE89", "de89", "ann@", "at once"))


# -- what an approver is shown


async def test_an_approver_is_shown_what_the_user_typed_and_nobody_else_is(app: App) -> None:
    asked: list[ApprovalRequest] = []
    app.approvals.add_approver(lambda request: asked.append(request))
    for text in ("the first", "the second", ORDER, "go\non\u202e"):
        await app.say("s", text, actor=ADA)
    id = await ask(app, session="s")
    [request] = asked
    for seen in (request, await shown(app, id)):
        assert [one.text for one in seen.user_messages] == ["the second", ORDER, "go\non\u202e"]
        text = seen.text()
        assert "What the user asked for, as typed\n" in text
        assert re.search(r"\n  \d+ seconds? before the call\n  │ the second\n", text)
        assert f"  │ {ORDER}\n" in text and "  │ go\n  │ on\\u202e\n" in text
        assert text.index("Arguments") < text.index("What the user asked for") < text.index("  Cost")
    assert (await app.approvals.on_record(id, "acme")).request.user_messages == ()
    [listed] = await app.approvals.list(actor=ADA)
    assert listed.request.user_messages == ()
    kept = str(await app.parts.store.read(_approvals()))
    assert "the second" not in kept and "Miller" not in kept
    await app.approvals.answer(id, True, actor=BOSS)
    assert (await shown(app, id)).user_messages == ()
    assert await app.parts.store.read(_approvals()) == [(None,)], "answered, so forgotten"


def _approvals() -> Transaction[Rows]:
    return (yield "SELECT user_words FROM approvals", {})


async def test_a_message_says_how_old_it_is_and_where_it_was_cut() -> None:
    clock = ManualClock()
    async with Workshop().move_into(memory_app(clock=clock)) as app:
        await app.say("s", "a" * 600, actor=ADA)
        clock.advance(hours=3)
        await app.say("s", "short", actor=ADA)
        clock.advance(minutes=1)
        request = await shown(app, await ask(app, session="s"))
        assert [(len(one.text), one.is_cut) for one in request.user_messages] == [(MAX_MESSAGE_CHARS, True), (5, False)]
        assert "  3 hours before the call, its beginning\n  │ aaa" in request.text()
        assert "  1 minute before the call\n  │ short\n" in request.text()


async def test_secrets_in_a_message_are_masked(app: App) -> None:
    token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    await app.say("s", f"use {token} for it; the password is password=hunter2hunter2", actor=ADA)
    [message] = (await shown(app, await ask(app, session="s"))).user_messages
    assert token not in message.text and "hunter2" not in message.text and message.text.startswith(f"use {MASK} for it")
    await app.say("t", "x" * (MAX_MESSAGE_CHARS - 10) + f" {token}", actor=ADA)
    [message] = (await shown(app, await ask(app, session="t"))).user_messages
    assert "ghp_" not in message.text, "nor one that is cut"


async def test_what_was_typed_is_forgotten_with_a_question_that_nobody_answers() -> None:
    clock = ManualClock()
    async with Workshop().move_into(memory_app(clock=clock)) as app:
        await app.say("s", ORDER, actor=ADA)
        id = await ask(app, session="s")
        clock.advance(hours=2)
        assert (await shown(app, id)).user_messages == ()
        await ask(app, "send", {"to": "bob"}, session="s")
        kept = [words for (words,) in await app.parts.store.read(_approvals())]
        assert kept.count(None) == 1 and len(kept) == 2


async def test_a_question_holds_what_was_typed_before_it(app: App) -> None:
    await app.say("s", "before", actor=ADA)
    id = await ask(app, session="s")
    await app.say("s", "after", actor=ADA)
    assert [one.text for one in (await shown(app, id)).user_messages] == ["before"]
    assert (await ask(app, session="s")) == id, "the same call asks the same question"


# -- HTTP


async def test_over_http_only_a_key_that_may_speak_for_the_user_does(app: App) -> None:
    async with serving(app) as site:
        path, body = "/v1/sessions/s/words", orjson.dumps({"text": ORDER})
        for role in ("caller", "admin", "operator"):
            refused = await site("POST", path, {}, body, key=await key_for(app, ADA, roles=[role]))
            assert refused.status == 403 and "speak for the user" in refused.json["detail"], refused.body
        assert not await knows(app, IBAN)
        key = await key_for(app, ADA, may_speak=True)
        told = await site("POST", path, {}, body, key=key)
        assert (told.status, told.json) == (200, {"session": "s", "tokens": 10, "is_whole": True, "is_new": True})
        assert await knows(app, IBAN) and not await knows(app, IBAN, actor=BOSS)
        for wrong in ({}, {"text": ""}, {"text": 7}, {"text": "x", "user": "boss"}):
            assert (await site("POST", path, {}, orjson.dumps(wrong), key=key)).status == 422, wrong
        assert (await site("POST", f"/v1/sessions/{'x' * 290}/words", {}, body, key=key)).status == 422
        call = orjson.dumps({"arguments": {"task": "ls"}, "session": "s"})
        waiting = await site("POST", "/v1/tools/run/invoke", {}, call, key=key)
        id = waiting.json["pending"]["id"]
        boss = await key_for(app, BOSS, roles=["approver"])
        seen = (await site("GET", f"/v1/approvals/{id}", key=boss)).json
        assert [(one["text"], one["is_cut"]) for one in seen["user_messages"]] == [(ORDER, False)]
        assert "What the user asked for" in seen["text"]
        page = await site("GET", f"/approvals/{id}", {"accept": "text/html"}, key=boss)
        assert b"What the user asked for" in page.body and b"Miller &amp; Sons" in page.body
        own = (await site("GET", f"/v1/approvals/{id}", key=key)).json
        assert own["user_messages"] == [] and ORDER not in str(own), "who cannot approve it is not shown it"


async def test_a_key_that_may_speak_is_made_by_an_operator_and_told_from_others(app: App) -> None:
    async with serving(app) as site:
        for role, status in (("admin", 403), ("operator", 201)):
            key = await key_for(app, Actor("acme", user="op"), roles=[role])
            made = await site("POST", "/v1/keys", {}, b'{"name": "host", "may_speak": true}', key=key)
            assert made.status == status, made.body
        assert made.json["key"]["may_speak"] is True
        listed = (await site("GET", "/v1/keys", key=key)).json["items"]
        assert {one["name"]: one["may_speak"] for one in listed if one["name"] == "host"} == {"host": True}
        assert [one["may_speak"] for one in listed if one["name"] != "host"] == [False, False]
        page = await site("GET", f"/keys/{made.json['key']['id']}", {"accept": "text/html"}, key=key)
        assert page.status == 200 and b"may pass on what the user typed" in page.body


# -- MCP


@pytest.mark.parametrize("era", ERAS)
async def test_over_mcp_words_come_with_a_call_of_a_client_that_may_speak(app: App, era: str) -> None:
    said, elsewhere = meta({"toolgate/user_words": ORDER}), meta({"toolgate/session": "another one"})
    async with serving(app) as site:
        async with connected(site, await key_for(app, ADA), era) as client:
            with pytest.raises(Exception, match="may speak for the user"):
                await client.call_tool("run", {"task": "refused"}, meta=said)
        async with connected(site, await key_for(app, ADA, may_speak=True), era) as client:
            with pytest.raises(Exception, match="must be text"):
                await client.call_tool("run", {"task": "refused"}, meta=meta({"toolgate/user_words": [ORDER]}))
            assert "needs a person" in text_of(await client.call_tool("run", {"task": "ls"}, meta=said))
            assert "needs a person" in text_of(await client.call_tool("run", {"task": "hide"}, meta=elsewhere))
    waiting = [await shown(app, one.request.id) for one in await app.approvals.list(actor=ADA)]
    found = {request.arguments["task"]: [one.text for one in request.user_messages] for request in waiting}
    assert found == {"ls": [ORDER], "hide": [ORDER]}, "also in a session that it names to be rid of the first"


async def test_a_header_that_a_client_makes_up_is_no_connection(app: App) -> None:
    """Protocol 2026-07-28 has no sessions: a client that sends one of its own with each call does not begin anew."""
    async with serving(app) as site:
        key = await key_for(app, ADA, may_speak=True)
        words = {**META, "toolgate/user_words": ORDER}
        await site.mcp("tools/call", {"name": "run", "arguments": {"task": "said"}}, key=key, meta=words)
        call = {"name": "run", "arguments": {"task": "hide"}}
        answer = await site.mcp("tools/call", call, key=key, headers={"Mcp-Session-Id": "made-up"})
        assert answer.status == 200, answer.body
    found = [await shown(app, one.request.id) for one in await app.approvals.list(actor=ADA)]
    assert len(found) == 2
    assert all([one.text for one in request.user_messages] == [ORDER] for request in found)


@pytest.mark.parametrize("era", ERAS)
async def test_the_form_of_a_client_shows_what_its_user_typed(app: App, era: str) -> None:
    person = Person("accept", approve=True)
    async with serving(app) as site:
        key = await key_for(app, ADA, may_speak=True, may_approve=True)
        async with connected(site, key, era, elicitation_callback=person) as client:
            told = await client.call_tool("run", {"task": "ls"}, meta=meta({"toolgate/user_words": ORDER}))
    assert "ran ls" in text_of(told)
    [form] = person.shown
    assert form.count(f"│ {ORDER}") == 1


@pytest.mark.matrix("starts the program")
async def test_the_client_on_a_pipe_speaks_only_if_it_was_started_to(tmp_path: Path) -> None:
    said = {"_meta": {"toolgate/user_words": ORDER}, "name": "calculator", "arguments": {"expression": "1+1"}}
    for options, speaks in (((), False), (("--session", "work", "--may-speak-for-the-user"), True)):
        async with piped(tmp_path, *options) as pipe:
            await pipe.hello()
            told = await pipe.ask("tools/call", said)
            assert ("result" in told) is speaks, told
            assert await pipe.end() == 0
    async with App.open(os.devnull, home=tmp_path / ".toolgate") as app:
        assert await knows(app, IBAN, "work", LOCAL)


# -- the terminal


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


def test_a_hosts_hook_says_it_at_the_terminal(terminal: Terminal) -> None:
    done = terminal("say", "--session", "s", ORDER)
    assert (done.code, done.out) == (0, ""), "what is on stdout a host may give to its model"
    assert "10 words of the user in session s" in done.err
    again = terminal.run("say", "--session", "s", "--json", stdin=ORDER.encode() + b"\n")
    assert again.json == {"session": "s", "tokens": 10, "is_whole": True, "is_new": False}
    assert terminal("call", "write_file", "path=a.txt", "content=b", "--session", "s").code == 3
    [waiting] = terminal("approvals", "list", "--json").json["approvals"]
    seen = terminal("approvals", "show", waiting["id"])
    assert f"│ {ORDER}" in seen.out and "What the user asked for, as typed" in seen.out
    told = terminal("approvals", "show", waiting["id"], "--json").json
    assert [one["text"] for one in told["user_messages"]] == [ORDER]


def test_nothing_typed_is_a_usage_error(terminal: Terminal) -> None:
    for done in (terminal("say", " "), terminal.run("say", stdin=b"\n"), terminal("say", "--session", "", "x")):
        assert done.code == 2 and "Traceback" not in done.err, done


def test_a_key_that_may_speak_is_made_and_listed_at_the_terminal(terminal: Terminal) -> None:
    made = terminal("keys", "create", "host", "--may-speak-for-the-user", "--json").json
    assert made["may_speak"] is True
    assert terminal("keys", "create", "plain", "--json").json["may_speak"] is False
    listed = terminal("keys", "list").out
    assert "speaks" in listed.splitlines()[0] or "speaks" in listed


async def test_an_answer_clears_nothing_of_the_session(app: App) -> None:
    await app.say("s", ORDER, actor=ADA)
    id = await ask(app, session="s")
    await app.approvals.answer(id, Answer("reject"), actor=BOSS)
    assert await knows(app, IBAN)
    outcome: Outcome = await app.invoke("run", {"task": "ls"}, actor=ADA, session="s")
    assert outcome.pending is not None
    assert [one.text for one in (await shown(app, outcome.pending.id)).user_messages] == [ORDER]
