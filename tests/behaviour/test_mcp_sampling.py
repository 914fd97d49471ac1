"""Sampling: a server asks the model of whoever calls its tools, if a setting allows it, by a call of ask_model."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.gateway import REPOSITORY, fixture_server, fixture_settings
from tests.loopback import Site
from tests.mcp_person import Person
from tests.model_servers import KEY, Reply, model_server, model_settings
from tests.patience import until
from tests.services import records
from toolgate import Actor, App
from toolgate.errors import Failed, SettingsError
from toolgate.gates.approval.request import ApprovalRequest
from toolgate.mcp.sampling_requests import sampling_arguments
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("MCP-1")
SERVER = Path(__file__).parents[1] / "mcp_sampling_server.py"
ASKED = {"messages": [{"role": "user", "content": {"type": "text", "text": "the sky?"}}], "maxTokens": 100}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_MODEL_API_KEY", KEY)


@asynccontextmanager
async def sampling_app(
    home: Path, *replies: Reply, sampling: Any = True, tier: str = "write", server: Any = None, **settings: Any
) -> AsyncIterator[tuple[App, Site]]:
    """An App with a server that asks for samples, and a model on loopback."""
    own = {"command": [sys.executable, "-S", str(SERVER), str(home / "lines")], "isolation": "none", "prefix": ""}
    given = {**(server or own), "trust_first_seen": True, "tier": tier}
    if sampling is not None:
        given["sampling"] = sampling
    async with model_server("openai", *replies) as model:
        configured = model_settings("openai", model, **settings.pop("model", {}))
        async with App.open(home=home / "home", servers={"asker": given}, model=configured, **settings) as app:
            await app.servers.refresh("asker")
            yield app, model


async def asked(app: App, params: Any = None, **more: Any) -> list[dict[str, Any]]:
    """The responses that the server got."""
    times = more.pop("times", 1)
    outcome = await app.invoke("ask", {"params": params or ASKED, "times": times}, **more)
    assert outcome.ok, outcome
    found: list[dict[str, Any]] = json.loads(outcome.output) if isinstance(outcome.output, str) else outcome.output
    return found


@pytest.mark.parametrize("way", ["stdio", "http", "old"])
async def test_a_server_of_the_official_sdk_asks_the_model(way: str, tmp_path: Path) -> None:
    with ExitStack() as running:
        if way == "stdio":
            command = [sys.executable, "-m", "tests.conformance.upstream", "--stdio"]
            server = {**fixture_settings(""), "url": None, "command": command, "cwd": REPOSITORY, "isolation": "none"}
        else:
            options = ["--old"] if way == "old" else []
            server = fixture_settings(running.enter_context(fixture_server(*options, log=tmp_path / "log")))
        async with sampling_app(tmp_path, Reply("It is blue."), server=server, tier="read_only") as (app, model):
            app.approvals.add_approver(lambda _request: True)
            outcome = await app.invoke("test_sampling", {"prompt": "What colour is the sky?"})
            assert outcome.output == "LLM response: It is blue.", outcome
            assert model.asked[0].json["messages"] == [{"role": "user", "content": "What colour is the sky?"}]
            assert model.asked[0].json["max_tokens"] == 100


async def test_an_approver_sees_the_server_and_the_text_and_the_actor_is_who_called(tmp_path: Path) -> None:
    seen: list[ApprovalRequest] = []

    def agree(request: ApprovalRequest) -> bool:
        seen.append(request)
        return True

    params = {**ASKED, "systemPrompt": "Be a poet.", "maxTokens": 7, "temperature": 1, "includeContext": "allServers"}
    async with sampling_app(tmp_path, Reply("Blue.", ending="length")) as (app, model):
        app.approvals.add_approver(agree)
        answers = await asked(app, params, actor=Actor(user="ann"))
        log = await records(app)
    assert answers == [
        {
            "result": {
                "role": "assistant",
                "content": {"type": "text", "text": "Blue."},
                "model": "m-1",
                "stopReason": "maxTokens",
            }
        }
    ]
    (request,) = [one for one in seen if one.tool == "ask_model"]
    assert request.actor.user == "ann"
    shown = str(request.arguments)
    assert all(words in shown for words in ("the MCP server asker", "a call of ask", "the sky?", "Be a poet."))
    assert model.asked[0].json["max_tokens"] == 7
    assert [message["role"] for message in model.asked[0].json["messages"]] == ["system", "user"]
    assert "its server asked the caller: sampling/createMessage; it was answered" in log
    assert KEY not in log


async def test_without_the_setting_a_server_is_refused_and_the_caller_s_own_model_asked(tmp_path: Path) -> None:
    async with sampling_app(tmp_path, Reply("x"), sampling=None) as (app, model):
        app.approvals.add_approver(lambda _request: True)
        assert (await asked(app))[0]["error"]["code"] == -1
        person = Person(sampling={"role": "assistant", "model": "own", "content": {"type": "text", "text": "mine"}})
        assert (await asked(app, caller=person))[0]["result"]["model"] == "own"
        assert model.asked == []


async def test_without_a_model_for_the_actor_a_server_is_refused(tmp_path: Path) -> None:
    async with sampling_app(tmp_path, Reply("x"), model={"name": None}) as (app, model):
        app.approvals.add_approver(lambda _request: True)
        assert (await asked(app))[0]["error"]["code"] == -1
        assert model.asked == []


async def test_when_no_call_is_under_way_a_server_is_refused(tmp_path: Path) -> None:
    async with sampling_app(tmp_path, Reply("x")) as (app, model):
        app.approvals.add_approver(lambda _request: True)
        assert (await app.invoke("late", {"params": ASKED})).output == "done"
        lines = tmp_path / "lines"
        await until(lambda: '"id":"s99"' in lines.read_text().replace(": ", ":"), "the server is answered")
        (answer,) = [json.loads(line) for line in lines.read_text().splitlines() if json.loads(line).get("id") == "s99"]
        assert answer["error"]["code"] == -1
        assert model.asked == []


async def test_limits_hold_for_tokens_and_for_requests(tmp_path: Path) -> None:
    limits = {"max_tokens": 5, "requests": 2}
    async with sampling_app(tmp_path, Reply("x"), sampling=limits) as (app, model):
        app.approvals.add_approver(lambda _request: True)
        answers = await asked(app, times=3)
        assert [next(iter(answer)) for answer in answers] == ["result", "result", "error"]
        assert [one.json["max_tokens"] for one in model.asked] == [5, 5]


async def test_where_nobody_can_be_asked_now_a_tool_with_effects_is_refused_the_model(tmp_path: Path) -> None:
    async with sampling_app(tmp_path, Reply("x")) as (app, model):
        (answer,) = await asked(app)
        assert "approve" in answer["error"]["message"]
        assert await app.approvals.list() == []  # an answer to the question would come too late
        assert model.asked == []
        lines = (tmp_path / "lines").read_text()
        assert lines.count('"tools/call"') == 1


async def test_a_tool_without_effects_waits_for_the_answer_and_goes_on(tmp_path: Path) -> None:
    async with sampling_app(tmp_path, Reply("Blue."), tier="read_only") as (app, model):
        outcome = await app.invoke("ask", {"params": ASKED, "times": 1})
        assert outcome.pending is not None, outcome
        assert model.asked == []
        await app.approvals.answer(outcome.pending.id, True)
        resumed = await app.approvals.resume(outcome.pending.id)
        assert "Blue." in str(resumed.output), resumed
        assert len(model.asked) == 1


async def test_a_refusal_tells_the_server_no_more_than_its_code(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model": {"output_price": 100_000}, "budgets": {"external_api_daily": "0.01"}}
    async with sampling_app(tmp_path, Reply("x"), **settings) as (app, model):
        app.approvals.add_approver(lambda _request: True)
        (answer,) = await asked(app)
        assert answer["error"]["message"] == "The language model gave no answer (BUDGET_EXCEEDED)."
        assert model.asked == []
        assert "ask_model failed: BUDGET_EXCEEDED: " in await records(app)


@pytest.mark.parametrize(
    "params",
    [
        {"messages": [], "maxTokens": 5},
        {"messages": ASKED["messages"]},
        {"messages": ASKED["messages"], "maxTokens": -5},
        {
            "messages": [{"role": "user", "content": {"type": "image", "data": "eA==", "mimeType": "image/png"}}],
            "maxTokens": 5,
        },
        {"messages": [{"role": "system", "content": {"type": "text", "text": "x"}}], "maxTokens": 5},
        {**ASKED, "tools": [{"name": "t", "inputSchema": {}}]},
    ],
)
def test_what_cannot_be_asked_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(Failed):
        sampling_arguments(params, 100)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["messages", "role", "content", "type", "text", "maxTokens", "systemPrompt"]), inner
        )
    ),
    max_leaves=12,
)


@given(params=st.dictionaries(st.sampled_from(["messages", "maxTokens", "systemPrompt", "tools"]), JSON))
def test_whatever_a_server_asks_is_arguments_or_a_refusal(params: dict[str, Any]) -> None:
    try:
        arguments = sampling_arguments(params, 100)
    except Failed:
        return
    assert 1 <= arguments["max_tokens"] <= 100
    assert all(isinstance(message["text"], str) for message in arguments["messages"])


def test_wrong_limits_are_refused() -> None:
    for sampling in ({"max_tokens": 0}, {"everything": True}, "yes"):
        with pytest.raises(SettingsError, match="sampling"):
            memory_app(servers={"s": {"command": ["x"], "sampling": sampling}})
