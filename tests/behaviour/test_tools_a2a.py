"""`a2a_chat` with an agent of the official SDK, in both versions of the protocol, and with agents that misbehave."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.a2a_agent import WordyAgent, agent_server
from tests.loopback import Asked, Said, Site, site
from tests.patience import until
from toolgate import Actor, App, Outcome

pytestmark = pytest.mark.requirement("BUILTIN-4")
ACME = Actor("acme", user="ann")


def failed(outcome: Outcome, code: str) -> Any:
    assert outcome.error is not None, outcome
    assert outcome.error.code == code, outcome.error
    return outcome.error


async def opened(**settings: Any) -> App:
    app = App.open(os.devnull, database_url="memory://", **settings)
    await app.__aenter__()
    app.approvals.add_approver(lambda _request: True)
    return app


# -- an agent of the SDK


@pytest.fixture(params=["1.0", "0.3"])
async def wordy(request: pytest.FixtureRequest) -> AsyncIterator[tuple[WordyAgent, App]]:
    agent = WordyAgent()
    async with agent_server(agent, request.param) as url:
        app = await opened(a2a={"agents": {"wordy": url}})
        try:
            yield agent, app
        finally:
            agent.go_on.set()
            await app.__aexit__(None, None, None)


async def test_a_message_is_answered_by_a_message(wordy: tuple[WordyAgent, App]) -> None:
    agent, app = wordy
    outcome = await app.invoke("a2a_chat", {"agent_url": "wordy", "message": "say grüße"})
    assert outcome.status == "success", outcome.error
    assert (outcome.output["agent"], outcome.output["state"], outcome.output["text"]) == (
        "Wordy", "completed", "you said: grüße",
    )  # fmt: skip
    assert agent.heard == ["say grüße"]


async def test_a_task_is_followed_until_it_is_done(wordy: tuple[WordyAgent, App]) -> None:
    agent, app = wordy
    early = await app.invoke("a2a_chat", {"agent_url": "wordy", "message": "work on lamps", "timeout": 0.3})
    assert early.output["state"] == "working", early
    task = early.output["task_id"]
    agent.go_on.set()
    outcome = await app.invoke("a2a_chat", {"agent_url": "wordy", "message": "", "task_id": task})
    assert outcome.output["state"] == "completed"
    assert outcome.output["text"] == 'worked on on lamps\n{"done":true}'
    assert (outcome.output["task_id"], outcome.output["context_id"]) == (task, early.output["context_id"])
    assert agent.heard == ["work on lamps"]


async def test_what_an_agent_asks_can_be_answered(wordy: tuple[WordyAgent, App]) -> None:
    agent, app = wordy
    asked = (await app.invoke("a2a_chat", {"agent_url": "wordy", "message": "ask colour"})).output
    assert (asked["state"], asked["text"]) == ("input_required", "about colour")
    more = {"context_id": asked["context_id"], "task_id": asked["task_id"]}
    outcome = await app.invoke("a2a_chat", {"agent_url": "wordy", "message": "blue", **more})
    assert (outcome.output["state"], outcome.output["text"]) == ("completed", "blue")
    assert outcome.output["context_id"] == asked["context_id"]
    assert agent.heard == ["ask colour", "blue"]


async def test_a_task_that_fails_is_an_error(wordy: tuple[WordyAgent, App]) -> None:
    _, app = wordy
    error = failed(await app.invoke("a2a_chat", {"agent_url": "wordy", "message": "fail lamps"}), "INVOCATION_ERROR")
    assert "about lamps" in error.message
    failed(await app.invoke("a2a_chat", {"agent_url": "wordy", "message": "login lamps"}), "MISSING_AUTH")
    unknown = {"agent_url": "wordy", "message": "x", "task_id": "00000000-0000-0000-0000-000000000000"}
    failed(await app.invoke("a2a_chat", unknown), "INVOCATION_ERROR")


# -- agents made by hand


class Agent:
    """An agent that says what it is told: its card, and for each method a result or an error."""

    def __init__(self) -> None:
        self.card: Any = None
        self.card_status = 200
        self.results: dict[str, Any] = {}
        self.status = 200
        self.at: Site | None = None

    @property
    def url(self) -> str:
        assert self.at is not None
        return self.at.url

    @property
    def rpcs(self) -> list[Asked]:
        assert self.at is not None
        return [asked for asked in self.at.asked if asked.method == "POST"]

    async def __call__(self, asked: Asked) -> Said:
        if asked.method == "GET":
            if asked.path != "/.well-known/agent-card.json":
                return Said(404)
            card = {
                "name": "hand",
                "supportedInterfaces": [{"url": f"{self.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            }
            return Said(self.card_status, card if self.card is None else self.card)
        result = self.results[asked.json["method"]]
        if callable(result):
            return Said(self.status, result(asked.json))
        return Said(self.status, {"jsonrpc": "2.0", "id": asked.json["id"], "result": result})


@pytest.fixture
async def agent() -> AsyncIterator[Agent]:
    made = Agent()
    async with site(made) as made.at:
        yield made


@pytest.fixture
async def app(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    monkeypatch.setenv("TOOLGATE_SECRET_AGENT_TOKEN", "s3cret-agent-t0ken")
    use = {"AGENT_TOKEN": [{"tool": "a2a_chat", "tenant": "acme", "hosts": ["hand"]}]}
    app = await opened(a2a={"agents": {"hand": agent.url}}, secrets={"use": use})
    yield app
    await app.__aexit__(None, None, None)


MESSAGE = {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}], "contextId": "c"}}


async def test_the_request_is_as_the_protocol_says(app: App, agent: Agent) -> None:
    agent.results["SendMessage"] = MESSAGE
    outcome = await app.invoke("a2a_chat", {"agent_url": agent.url, "message": "hello", "context_id": "c"})
    assert outcome.output == {"agent": "hand", "state": "completed", "text": "hi", "context_id": "c", "task_id": None}
    [asked] = agent.rpcs
    assert (asked.path, asked.headers["a2a-version"], asked.headers["content-type"]) == ("/rpc", "1.0", "application/json")
    assert (asked.json["jsonrpc"], asked.json["method"]) == ("2.0", "SendMessage")
    message = asked.json["params"]["message"]
    assert (message["role"], message["parts"], message["contextId"]) == ("ROLE_USER", [{"text": "hello"}], "c")
    assert len(message["messageId"]) == 36
    assert asked.json["params"]["configuration"]["returnImmediately"] is True


async def test_an_old_card_is_spoken_to_in_the_old_way(app: App, agent: Agent) -> None:
    agent.card = {"name": "old", "url": f"{agent.url}/a2a", "protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"}
    agent.results["message/send"] = {
        "kind": "task", "id": "t1", "contextId": "c1", "status": {"state": "submitted"},
    }  # fmt: skip
    agent.results["tasks/get"] = {
        "kind": "task", "id": "t1", "contextId": "c1", "status": {"state": "completed"},
        "artifacts": [
            {"parts": [{"kind": "text", "text": "done"}, {"kind": "file", "file": {"uri": "https://x/y", "name": "y"}}]}
        ],
    }  # fmt: skip
    outcome = await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello"})
    assert outcome.output == {
        "agent": "old", "state": "completed", "text": "done\n[file: y https://x/y]", "context_id": "c1", "task_id": "t1",
    }  # fmt: skip
    message = agent.rpcs[0].json["params"]["message"]
    assert (message["kind"], message["role"], message["parts"]) == ("message", "user", [{"kind": "text", "text": "hello"}])
    assert agent.rpcs[0].json["params"]["configuration"]["blocking"] is False
    assert agent.rpcs[1].json["params"] == {"id": "t1"}


async def test_a_credential_goes_with_the_message_and_is_masked(app: App, agent: Agent) -> None:
    agent.results["SendMessage"] = {"message": {"parts": [{"text": "your token is s3cret-agent-t0ken"}]}}
    arguments = {"agent_url": "hand", "message": "hello", "authorization": "Bearer {{secret:AGENT_TOKEN}}"}
    outcome = await app.invoke("a2a_chat", arguments, actor=ACME)
    assert outcome.status == "success", outcome.error
    assert agent.rpcs[0].headers["authorization"] == "Bearer s3cret-agent-t0ken"
    assert agent.at is not None
    assert all("authorization" not in asked.headers for asked in agent.at.asked if asked.method == "GET")
    assert "s3cret" not in outcome.output["text"]
    denied = await app.invoke("a2a_chat", {**arguments, "agent_url": "https://evil.example.com"}, actor=ACME)
    failed(denied, "PERMISSION_DENIED")
    failed(await app.invoke("a2a_chat", arguments), "PERMISSION_DENIED")


async def test_a_credential_is_not_sent_without_encryption(app: App) -> None:
    arguments = {"agent_url": "http://agent.example.com", "message": "hello", "authorization": "Bearer x"}
    failed(await app.invoke("a2a_chat", arguments), "SECURITY_VIOLATION")


@pytest.mark.parametrize("status", [401, 403])
async def test_an_agent_that_wants_a_credential_says_so(app: App, agent: Agent, status: int) -> None:
    agent.results["SendMessage"], agent.status = MESSAGE, status
    failed(await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello"}), "MISSING_AUTH")


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://evil.example.com/rpc",
        "http://127.0.0.1:1/rpc",
        "http://169.254.169.254/",
        "file:///etc/passwd",
        "http://a@b/",
    ],
)
@pytest.mark.parametrize("old", [True, False])
@pytest.mark.sample(4)
async def test_a_card_cannot_send_messages_elsewhere(app: App, agent: Agent, endpoint: str, old: bool) -> None:
    interface = {"url": endpoint, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    agent.card = {"name": "x", "url": endpoint} if old else {"name": "x", "supportedInterfaces": [interface]}
    failed(await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello"}), "SECURITY_VIOLATION")
    assert agent.rpcs == []


async def test_a_card_cannot_be_elsewhere(app: App, agent: Agent) -> None:
    assert agent.at is not None
    handler = agent.at._handler

    async def lead(asked: Asked) -> Said:
        return Said(302, b"", {"location": f"{other.url}{asked.path}"}) if asked.method == "GET" else await handler(asked)

    async with site(handler) as other:
        agent.at._handler = lead
        failed(await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello"}), "SECURITY_VIOLATION")
        assert other.connections == 0  # it is not the one that was named


@pytest.mark.parametrize(
    "card",
    [
        [], "card", {}, {"supportedInterfaces": 7}, {"supportedInterfaces": [7, {}]}, {"url": 7}, {"url": "nowhere"},
        {"supportedInterfaces": [{"url": "{url}", "protocolBinding": "GRPC"}]}, {"additionalInterfaces": [{}], "url": None},
    ],
)  # fmt: skip
@pytest.mark.sample(4)
async def test_a_bad_card_is_an_error(app: App, agent: Agent, card: Any) -> None:
    agent.card = card
    failed(await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello"}), "INVOCATION_ERROR")


@pytest.mark.parametrize("status", [401, 404, 500])
async def test_an_agent_without_a_card_is_an_error(app: App, agent: Agent, status: int) -> None:
    agent.card_status = status
    error = failed(await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello"}), "INVOCATION_ERROR")
    assert error.details == {"status": status}


async def test_a_card_behind_a_login_is_read_with_the_credential(app: App, agent: Agent) -> None:
    assert agent.at is not None
    handler = agent.at._handler

    async def guarded(asked: Asked) -> Said:
        return await handler(asked) if asked.headers.get("authorization") == "Bearer x" else Said(401)

    agent.at._handler, agent.results["SendMessage"] = guarded, MESSAGE
    outcome = await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello", "authorization": "Bearer x"})
    assert outcome.output["text"] == "hi"


async def test_cards_at_the_old_place_and_in_other_forms_are_read(app: App, agent: Agent) -> None:
    assert agent.at is not None
    handler = agent.at._handler

    async def old(asked: Asked) -> Said:
        if asked.method == "GET" and asked.path != "/.well-known/agent.json":
            return Said(404)
        card = {"url": f"{agent.url}/grpc", "preferredTransport": "GRPC", "additionalInterfaces": [
            7, {"url": f"{agent.url}/other", "transport": "JSONRPC"}]}  # fmt: skip
        return Said(200, card) if asked.method == "GET" else await handler(asked)

    agent.at._handler, agent.results["message/send"] = old, {"kind": "message", "parts": [{"kind": "text", "text": "hi"}]}
    outcome = await app.invoke("a2a_chat", {"agent_url": f"{agent.url}/.well-known/agent.json", "message": "hello"})
    assert (outcome.output["agent"], outcome.output["text"]) == ("127.0.0.1", "hi")
    assert agent.rpcs[0].path == "/other"


async def test_the_tenant_of_an_interface_is_sent(app: App, agent: Agent) -> None:
    interface = {"url": f"{agent.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "t7"}
    older = {"url": f"{agent.url}/old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}
    agent.card = {"name": "x", "supportedInterfaces": [older, interface]}
    agent.results["SendMessage"] = MESSAGE
    await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello"})
    assert (agent.rpcs[0].path, agent.rpcs[0].json["params"]["tenant"]) == ("/rpc", "t7")


async def test_an_agent_that_breaks_or_stalls_is_said_to_have(app: App, agent: Agent) -> None:
    async def hang(_: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    assert agent.at is not None
    handler = agent.at._handler

    async def broken(asked: Asked) -> Said:
        return Said(502, "<h1>bad gateway</h1>") if asked.method == "POST" else await handler(asked)

    async def stalled(asked: Asked) -> Said:
        return Said(raw=hang) if b"GetTask" in asked.body else await handler(asked)

    agent.at._handler = broken
    error = failed(await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello"}), "INVOCATION_ERROR")
    assert error.retryable
    agent.at._handler = stalled
    agent.results["SendMessage"] = {"task": {"id": "t1", "status": {"state": "TASK_STATE_SUBMITTED"}}}
    outcome = await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello", "timeout": 0.3})
    assert (outcome.output["state"], outcome.output["task_id"]) == ("working", "t1")


@pytest.mark.parametrize(
    "result",
    [
        None, 7, "text", [], {}, {"task": {}}, {"task": {"id": "t"}}, {"task": {"id": 7, "status": {"state": "completed"}}},
        {"task": {"id": "x" * 500, "status": {"state": "completed"}}}, {"status": {"state": "completed"}},
        lambda _: [], lambda _: {"jsonrpc": "2.0"}, lambda _: {"id": "other", "result": MESSAGE},
        lambda asked: {"id": asked["id"], "result": MESSAGE, "error": {}}, lambda asked: {"id": asked["id"], "error": 7},
        lambda asked: {"id": asked["id"], "error": {"code": -32603, "message": ["no", "text"]}},
    ],
)  # fmt: skip
@pytest.mark.sample(4)
async def test_a_bad_answer_is_an_error(app: App, agent: Agent, result: Any) -> None:
    agent.results["SendMessage"] = result
    failed(await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello"}), "INVOCATION_ERROR")


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (
            [{"text": "a"}, {"data": {"b": 1}}, {"url": "https://x/y", "mediaType": "image/png"}],
            'a\n{"b":1}\n[file: image/png https://x/y]',
        ),
        ([7, None, {}, {"text": 7}, {"file": 7}, {"raw": "AAAA"}, {"text": "a"}], "a"), ("parts", ""), (None, ""),
    ],
)  # fmt: skip
async def test_parts_of_every_kind_are_read(app: App, agent: Agent, parts: Any, text: str) -> None:
    agent.results["SendMessage"] = {"message": {"parts": parts}}
    outcome = await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello"})
    assert outcome.output["text"] == text


async def test_an_agent_that_never_ends_is_left_working(app: App, agent: Agent) -> None:
    task = {"id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_WORKING"}}
    agent.results |= {"SendMessage": {"task": task}, "GetTask": task}
    outcome = await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello", "timeout": 0.6})
    assert (outcome.output["state"], outcome.output["task_id"]) == ("working", "t1")
    assert len(agent.rpcs) <= 4


async def test_an_error_while_waiting_names_the_task(app: App, agent: Agent) -> None:
    task = {"id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_WORKING"}}
    agent.results |= {"SendMessage": {"task": task}, "GetTask": lambda _: {"nonsense": True}}
    error = failed(await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello"}), "INVOCATION_ERROR")
    assert error.details == {"task_id": "t1", "context_id": "c1"}


async def test_a_reply_without_end_is_cut_off(app: App, agent: Agent) -> None:
    agent.results["SendMessage"] = {"message": {"parts": [{"text": "x" * 3_000_000}]}}
    failed(await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello"}), "INVOCATION_ERROR")


async def test_an_agent_that_is_down_is_not_reached(app: App, agent: Agent) -> None:
    assert agent.at is not None
    await agent.at.stop()
    await until(lambda: agent.at is not None and not agent.at.open)
    failed(await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello"}), "CONNECTION_ERROR")


@pytest.mark.parametrize("arguments", [{"message": ""}, {"message": "  "}])
async def test_there_must_be_something_to_say(app: App, arguments: dict[str, Any]) -> None:
    failed(await app.invoke("a2a_chat", {"agent_url": "hand", **arguments}), "INVALID_INPUT")


async def test_an_agent_at_a_private_address_must_be_named(agent: Agent) -> None:
    app = await opened()
    try:
        failed(await app.invoke("a2a_chat", {"agent_url": agent.url, "message": "hello"}), "SECURITY_VIOLATION")
        failed(await app.invoke("a2a_chat", {"agent_url": "hand", "message": "hello"}), "INVALID_INPUT")
    finally:
        await app.__aexit__(None, None, None)
    assert agent.at is not None
    assert agent.at.connections == 0
