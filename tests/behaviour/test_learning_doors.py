"""Learning through its doors: suggestions that an operator answers, HTTP, the terminal, and the service that is told."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.http_people import ANN, people
from tests.loopback import Asked, Said, site
from tests.patience import until
from tests.terminal import Terminal
from toolgate import Actor, ToolError, tool
from toolgate.learning import outbound
from toolgate.learning.feedback import Feedback
from toolgate.learning.refusal import FeedbackRefused
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("AUD-4")


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


class Shaky:
    """A tool that fails every third time, and one that always does."""

    def __init__(self) -> None:
        self.runs = 0

    def tools(self) -> list[object]:
        @tool(tier="read_only", timeout=30)
        async def shaky() -> int:
            """Fail now and then."""
            self.runs += 1
            if self.runs % 3 == 0:
                raise ToolError("away", code="CONNECTION_ERROR")
            return self.runs

        @tool(tier="read_only", timeout=1)
        async def broken() -> int:
            """Fail always."""
            raise ToolError("away", code="CONNECTION_ERROR")

        @tool(tier="read_only", timeout=1, cost=0.001)
        async def paid() -> int:
            """Cost money, and fail every third time."""
            self.runs += 1
            if self.runs % 3 == 0:
                raise ToolError("away", code="CONNECTION_ERROR")
            return self.runs

        return [shaky, broken, paid]


async def test_limits_are_suggested_and_hold_once_an_operator_accepts_them(database: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"home": tmp_path / "home", "database_url": database}
    async with memory_app(**settings) as app, memory_app(**settings) as other:
        for one in (app, other):
            one.tools.register_many(Shaky().tools())
        for _ in range(60):
            await app.invoke("shaky")
        for _ in range(10):
            await app.invoke("broken")
        await app.statistics.catch_up()
        found = {one.id: one for one in await app.learning.suggestions()}
        assert found.keys() == {"timeout:shaky", "retry:shaky", "breaker:broken"}
        assert (found["timeout:shaky"].value, found["timeout:shaky"].current) == (1.0, 30)
        assert app.tools.get("shaky").timeout == 30  # nothing holds before it is accepted
        before = app.tools.get("shaky")
        for id in found:
            await app.learning.accept(id)
        await other.refresh()
        for one in (app, other):
            entry = one.tools.get("shaky")
            assert (entry.timeout, entry.retry and entry.retry.max_attempts) == (1.0, 3)
            assert (entry.tier, entry.fingerprint, entry.asks) == (before.tier, before.fingerprint, before.asks)
            assert one.tools.get("broken").target == "broken"
        assert [(await app.invoke("shaky")).status for _ in range(9)] == ["success"] * 9
        await app.learning.reject("timeout:shaky")
        assert app.tools.get("shaky").timeout == 30
        states = {one.id: one.state for one in await app.learning.suggestions()}
        assert states == {"timeout:shaky": "rejected", "retry:shaky": "accepted", "breaker:broken": "accepted"}
        with pytest.raises(FeedbackRefused):
            await app.learning.accept("timeout:echo")


async def test_many_quick_calls_of_one_tenant_suggest_no_timeout_that_is_too_short_for_another() -> None:
    @tool(tier="read_only", timeout=30)
    async def wait(seconds: float = 0.0) -> float:
        """Wait."""
        await asyncio.sleep(seconds)
        return seconds

    async with memory_app() as app:
        app.register(wait)
        for seconds in (0.6, 0.6):
            await app.invoke("wait", {"seconds": seconds}, actor=Actor("other", user="olga"))
        for _ in range(300):
            await app.invoke("wait", actor=ANN)
        await app.statistics.catch_up()
        [found] = [one for one in await app.learning.suggestions() if one.kind == "timeout"]
        assert 3 * 0.6 * 0.75 < found.value < 3 * 0.6 * 1.5  # durations are known within 23 %


async def test_failures_of_one_tenant_leave_an_accepted_breaker_closed_for_others() -> None:
    @tool(tier="read_only", timeout=1)
    async def divide(by: int) -> float:
        """Divide."""
        return 1 / by

    async with memory_app() as app:
        app.register(divide)
        for _ in range(10):
            await app.invoke("divide", {"by": 0}, actor=ANN)
        await app.statistics.catch_up()
        await app.learning.accept("breaker:divide")
        for _ in range(app.settings.breaker.failures):
            await app.invoke("divide", {"by": 0}, actor=ANN)
        refused = (await app.invoke("divide", {"by": 1}, actor=ANN)).error
        assert refused is not None and refused.code == "CIRCUIT_OPEN"
        assert (await app.invoke("divide", {"by": 1}, actor=Actor("other", user="olga"))).ok


async def test_retries_are_not_suggested_for_a_tool_that_costs_money() -> None:
    async with memory_app() as app:
        app.tools.register_many(Shaky().tools())
        for _ in range(30):
            await app.invoke("paid")
        await app.statistics.catch_up()
        [report] = await app.learning.show(tool="paid")
        assert dict(report.reasons) == {"CONNECTION_ERROR": 10}
        assert not [one for one in await app.learning.suggestions() if one.kind == "retry"]


async def test_feedback_recall_and_remember_over_http() -> None:
    async with memory_app() as app, people(app) as they:
        call = await app.invoke("echo", {"text": "hello"}, actor=ANN)
        said = {"tool_name": "echo", "success": True, "call_id": call.id, "score": 0.9, "task": "greet a customer politely"}
        given = await they.ann.post("/v1/feedback", said)
        assert (given.status, given.json["is_weighed"], given.json["tenant"]) == (201, True, "acme")
        assert (await they.ann.post("/v1/feedback", said)).status == 409
        assert (await they.bob.post("/v1/feedback", said)).status == 404
        assert (await they.eve.post("/v1/feedback", said)).status == 404
        assert (await they.ann.post("/v1/feedback", {**said, "tenant": "other"})).status == 404
        assert (await they.ann.post("/v1/feedback", {**said, "comment": "x" * 1_000_000})).status == 422
        assert (await they.ann.post("/v1/remember", {"text": "customers like greetings", "tags": ["crm"]})).status == 201
        found = (await they.ann.post("/v1/recall", {"query": "greet customers", "limit": 5})).json
        assert {one["kind"] for one in found["items"]} == {"task", "note"}
        assert [one["tool"] for one in found["recommended"]] == ["echo"]
        assert (await they.bob.post("/v1/recall", {"query": "greet customers"})).json["items"] == []
        assert (await they.eve.post("/v1/recall", {"query": "greet customers"})).json == {"items": [], "recommended": []}
        assert [one["user"] for one in (await they.of["viewer"].get("/v1/feedback")).json["items"]] == ["ann"]
        assert (await they.eve.get("/v1/feedback")).json["items"] == []
        report = (await they.ann.get("/v1/learning", task="greet a customer")).json
        assert [one["tool"] for one in report["recommended"]] == ["echo"]
        assert [(one["tool"], one["success_share"]) for one in report["tools"]] == [("echo", 1.0)]
        assert (await they.of["operator"].get("/v1/learning/suggestions")).json == {"items": []}
        missing = await they.of["operator"].post("/v1/learning/suggestions/timeout:echo", {"verdict": "accept"})
        assert (missing.status, missing.json["suggestion"]) == (404, "GET /v1/learning/suggestions lists them.")
        assert (await they.of["admin"].delete("/v1/learning?user=ann")).json["count"] == 3


def test_learning_from_the_terminal(terminal: Terminal) -> None:
    call = terminal("call", "echo", "text=hello", "--json").json["id"]
    kept = terminal("learning", "feedback", "echo", "--call", call, "--task", "greet a customer", "--json").json
    assert kept["is_weighed"] is True
    assert "Kept" in terminal("learning", "remember", "customers like greetings", "--tag", "crm").out
    recalled = terminal("learning", "recall", "greet customers", "--json").json
    assert [one["tool"] for one in recalled["recommended"]] == ["echo"]
    assert "echo" in terminal("learning", "show").out
    assert "No suggestions" in terminal("learning", "suggestions", "list").err
    refused = terminal("learning", "suggestions", "accept", "timeout:echo")
    assert (refused.code, "no such suggestion" in refused.err) == (1, True)
    unknown = terminal("learning", "feedback", "echo", "--call", "unknown").err
    assert unknown.startswith("Error: There is no such call") and "persona_id" not in unknown
    assert terminal("learning", "forget", "--json").json == {"count": 3}
    forgotten = "✓ Deleted 0 records of user local of tenant default: feedback, past tasks and notes\n"
    assert terminal("learning", "forget").out == forgotten


async def test_a_service_is_sent_the_same_with_retries_and_nothing_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "FIRST_PAUSE", 0.01)
    monkeypatch.setenv("LEARNING_TOKEN", "not-for-servers")
    taken: list[Asked] = []

    async def answer(asked: Asked) -> Said:
        taken.append(asked)
        return Said(503 if len(taken) == 1 else 200, {"ok": True})

    async with site(answer) as service, memory_app(learning={"url": f"http://127.0.0.1:{service.port}"}) as app:
        call = await app.invoke("echo", {"text": "hello"}, actor=ANN)
        await app.learning.feedback(Feedback(tool_name="echo", success=False, call_id=call.id, comment="no"), actor=ANN)
        await app.learning.remember("a note", tags=["x"], actor=ANN)
        await app.learning.recall("a note", actor=ANN)
        await until(lambda: app.parts.learning.outbound.sent == 4, "all four messages arrived")
    assert [one.path for one in taken] == ["/context/feedback"] * 3 + ["/remember", "/recall"]
    first = taken[1].json
    assert first == taken[0].json  # sent again after 503
    assert first.keys() == {"tool_name", "success", "duration_ms", "args_hash", "response_size", "tenant", "persona_id"}
    assert (first["tool_name"], first["success"], first["tenant"]) == ("echo", True, "acme")
    assert first["args_hash"].startswith("sha256:")
    assert taken[2].json["success"] is False
    assert taken[3].json == {"text": "a note", "tags": ["x"], "tenant": "acme", "persona_id": None}
    assert "authorization" not in taken[0].headers  # a variable of this process is no secret of servers


async def test_a_service_that_is_away_delays_and_fails_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "MAX_QUEUED", 5)
    monkeypatch.setattr(outbound, "CLOSE_SECONDS", 0.05)

    async def silence(_asked: Asked) -> Said:
        await asyncio.sleep(30)
        return Said()

    async with site(silence) as service, memory_app(learning={"url": f"http://127.0.0.1:{service.port}"}) as app:
        begun = asyncio.get_running_loop().time()
        outcomes = [await app.invoke("echo", {"text": str(number)}, actor=ANN) for number in range(50)]
        assert all(one.ok for one in outcomes)
        assert asyncio.get_running_loop().time() - begun < 5
        assert app.parts.learning.outbound.dropped >= 40
