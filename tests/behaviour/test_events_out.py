"""Tools that are sent out over the event stream, and run by whoever takes them from there."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.event_caller import signed
from toolgate import App, InvokeContext, Outcome, ToolError, tool
from toolgate.app.event_stream import taking_events
from toolgate.events.stream import DeliveredEvent, EventMessage, EventStream, open_stream
from toolgate.settings.events import EventSettings

pytestmark = pytest.mark.requirement("JOB-3")

SECRET = "g" * 40
ran: list[str] = []


@tool(tier="read_only", route="events", timeout=20)
async def render(ctx: InvokeContext, scene: str) -> str:
    """Renders a scene, which takes much."""
    ran.append(scene)
    if scene == "broken":
        raise ToolError("The scene is broken.", code="INVALID_INPUT", suggestion="Mend it.")
    return f"{scene} by {ctx.call.actor.user} of {ctx.call.actor.tenant} through {ctx.call.door}"


@tool(tier="execute", route="events", cost=0.25, timeout=20)
async def train(steps: int) -> int:
    """Trains a model."""
    ran.append(f"{steps}")
    return steps


@tool(tier="read_only")
async def film(ctx: InvokeContext) -> Any:
    """Renders two scenes, by another tool."""
    return [(await ctx.call_tool("render", {"scene": name})).output for name in ("a", "b")]


@pytest.fixture
def settings(stream_url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("TOOLGATE_SERVER_SECRET_GATE_KEY", SECRET)
    ran.clear()
    name = f"t{uuid.uuid4().hex[:12]}"
    return {
        "url": stream_url,
        "requests": f"{name}.requests",
        "results": f"{name}.results",
        "group": name,
        "keys": {"gate": {"secret": "GATE_KEY", "tenants": ["*"], "governs": True}},
        "sign_with": "gate",
        "take_requests": False,
        "redeliver_seconds": 2,
        "partitions": 2,
        "message_bytes": 100_000,
    }


@contextlib.asynccontextmanager
async def opened(home: Path, settings: dict[str, Any], **more: Any) -> AsyncIterator[App]:
    async with App.open(home=home, events=settings, **more) as app:
        for one in (render, train, film):
            app.register(one)
        async with taking_events(app):
            yield app


@contextlib.asynccontextmanager
async def gateway_and_worker(folder: Path, settings: dict[str, Any], **of_key: Any) -> AsyncIterator[tuple[App, App]]:
    key = {**settings["keys"]["gate"], **of_key}
    theirs = {**settings, "take_requests": True, "keys": {"gate": key}}
    async with opened(folder / "gateway", settings) as gateway, opened(folder / "worker", theirs) as worker:
        yield gateway, worker


@contextlib.asynccontextmanager
async def another_worker(settings: dict[str, Any], answer: Any) -> AsyncIterator[tuple[EventStream, list[dict[str, Any]]]]:
    """A worker that answers requests as a test has it."""
    stream, seen = open_stream(EventSettings.model_validate(settings), lambda _name: None), []

    async def handle(delivery: DeliveredEvent) -> None:
        request = orjson.loads(delivery.message.body)
        seen.append(request)
        for message in answer(request):
            await stream.publish(settings["results"], message)

    consumer = await stream.consume(settings["requests"], settings["group"], handle, 4)
    try:
        yield stream, seen
    finally:
        await consumer.stop(0)
        await stream.close()


def result(request: dict[str, Any], output: Any, *, id: str | None = None, **how: Any) -> EventMessage:
    outcome = Outcome("x", request["tool"], "success", output).to_dict()
    body = orjson.dumps({"id": id or request["id"], "final": True, "outcome": outcome})
    header = signed(body, **{"key": "gate", "secret": SECRET, "purpose": "result", **how})
    return EventMessage(body, "k", {"toolgate-signature": header, "toolgate-request": request["id"]})


async def test_a_tool_is_run_by_the_worker_and_not_here(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with gateway_and_worker(tmp_path, settings) as (gateway, worker):
        outcome = await gateway.invoke("render", {"scene": "sea"})
        assert (outcome.status, outcome.output) == ("success", "sea by local of default through events")
        await worker.flush()
        assert await worker.audit.latest(5, tool="render")
        assert ran == ["sea"]


async def test_explain_says_that_a_tool_is_sent_out(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with opened(tmp_path, settings) as app:
        [runner] = [gate for gate in (await app.explain("render", {"scene": "a"})).gates if gate.gate == "runner"]
        assert (runner.verdict, "event stream" in runner.reason) == ("pass", True)
        [runner] = [gate for gate in (await app.explain("film", {})).gates if gate.gate == "runner"]
        assert "event stream" not in runner.reason


async def test_the_error_of_the_worker_is_the_error_of_the_call(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with gateway_and_worker(tmp_path, settings) as (gateway, _):
        outcome = await gateway.invoke("render", {"scene": "broken"})
        assert outcome.error is not None
        assert (outcome.error.code, outcome.error.message) == ("INVALID_INPUT", "The scene is broken.")
        assert outcome.error.suggestion == "Mend it."


async def test_what_calls_inside_a_worker_stays_there(tmp_path: Path, settings: dict[str, Any]) -> None:
    """One process is both: what it sends out it takes itself, and runs; what that calls is not sent out again."""
    async with opened(tmp_path, {**settings, "take_requests": True}) as app:
        outcome = await app.invoke("film")
        assert outcome.output == [f"{name} by local of default through events" for name in ("a", "b")]
        assert ran == ["a", "b"]


async def test_it_is_asked_about_and_paid_for_once(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with gateway_and_worker(tmp_path, settings) as (gateway, worker):
        asked = await gateway.invoke("train", {"steps": 3})
        assert asked.pending is not None
        assert ran == []
        await gateway.approvals.answer(asked.pending.id, True)
        outcome = await gateway.invoke("train", {"steps": 3}, approval=asked.pending.id)
        assert (outcome.output, outcome.metrics.cost_usd) == (3, 0.25)
        assert await costs(gateway) == [250_000_000]
        assert await costs(worker) == []


async def costs(app: App) -> list[int]:
    """In nano-dollars."""
    await app.flush()
    return [line.nano for line in await app.budgets.costs("tool") if line.nano]


async def test_a_worker_that_governs_itself_asks_itself(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with gateway_and_worker(tmp_path, settings, governs=False) as (gateway, worker):
        asked = await gateway.invoke("train", {"steps": 3})
        assert asked.pending is not None
        await gateway.approvals.answer(asked.pending.id, True)
        going = asyncio.ensure_future(gateway.invoke("train", {"steps": 3}, approval=asked.pending.id))
        async with asyncio.timeout(20):
            while not (waiting := await worker.approvals.list()):
                await asyncio.sleep(0.02)
        assert ran == []
        await worker.approvals.answer(waiting[0].request.id, True)
        assert (await going).output == 3


async def test_without_a_worker_the_call_times_out_and_its_outcome_is_unknown(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    async with opened(tmp_path, settings) as gateway:
        outcome = await gateway.invoke("render", {"scene": "sea"}, timeout=0.5, idempotency_key="k-1")
        assert (outcome.status, outcome.error and outcome.error.code) == ("timeout", "TIMEOUT")
        again = await gateway.invoke("render", {"scene": "sea"}, timeout=0.5, idempotency_key="k-1")
        assert again.error is not None
        assert again.error.code == "OUTCOME_UNKNOWN"


async def test_forged_and_foreign_results_are_passed_over(tmp_path: Path, settings: dict[str, Any]) -> None:
    def answer(request: dict[str, Any]) -> list[EventMessage]:
        return [
            result(request, "forged", secret="x" * 40),
            result(request, "of another key", key="other", secret="o" * 40),
            result(request, "signed as a request", purpose="request"),
            result(request, "for another call", id="another"),
            EventMessage(b"{}", "k", {"toolgate-signature": signed(b"{}", key="gate", secret=SECRET, purpose="result"),
                                 "toolgate-request": request["id"]}),
            EventMessage(b"", "k", {"toolgate-request": request["id"]}),
            EventMessage(b"x", "k"),
            result(request, "true"),
            result(request, "late"),
        ]  # fmt: skip

    async with another_worker(settings, answer), opened(tmp_path, settings) as gateway:
        outcome = await gateway.invoke("render", {"scene": "sea"})
        assert (outcome.status, outcome.output) == ("success", "true")
        assert (await gateway.invoke("render", {"scene": "sky"})).output == "true"


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_key_of_somebody_else_cannot_answer(
    tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_SERVER_SECRET_OTHER_KEY", "o" * 40)
    settings["keys"]["other"] = {"secret": "OTHER_KEY", "tenants": ["*"]}

    def answer(request: dict[str, Any]) -> list[EventMessage]:
        return [result(request, "of a key that only asks", key="other", secret="o" * 40)]

    async with another_worker(settings, answer), opened(tmp_path, settings) as gateway:
        outcome = await gateway.invoke("render", {"scene": "sea"}, timeout=4)
        assert outcome.status == "timeout"


async def test_secrets_do_not_travel(tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_VAULT", "hunter2-hunter2")
    use = {"use": {"VAULT": [{"tool": "render", "tenant": "default"}]}}
    async with (
        another_worker(settings, lambda request: [result(request, "done")]) as (_, seen),
        opened(tmp_path, settings, secrets=use) as gateway,
    ):
        outcome = await gateway.invoke("render", {"scene": "{{secret:VAULT}}"})
        assert outcome.output == "done"
        assert seen[0]["arguments"] == {"scene": "{{secret:VAULT}}"}
        assert b"hunter2" not in orjson.dumps(seen)
        assert seen[0]["deadline"] <= time.time() + 20


@pytest.mark.parametrize("missing", ["url", "sign_with"])
async def test_what_is_not_set_up_is_named(tmp_path: Path, settings: dict[str, Any], missing: str) -> None:
    async with opened(tmp_path, {name: value for name, value in settings.items() if name != missing}) as gateway:
        outcome = await gateway.invoke("render", {"scene": "sea"})
        assert outcome.error is not None
        assert (outcome.error.code, f"events.{missing}" in outcome.error.message) == ("UNKNOWN_TOOL_TYPE", True)


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_stream_that_is_not_there_is_a_connection_error(tmp_path: Path, settings: dict[str, Any]) -> None:
    scheme = settings["url"].partition("://")[0]
    async with opened(tmp_path, {**settings, "url": f"{scheme}://127.0.0.1:1"}) as gateway:
        outcome = await gateway.invoke("render", {"scene": "sea"})
        assert outcome.error is not None
        assert (outcome.error.code, outcome.error.retryable) == ("CONNECTION_ERROR", True)
        assert "127.0.0.1" not in outcome.error.message


async def test_an_operator_can_send_a_tool_out_by_a_setting(tmp_path: Path, settings: dict[str, Any]) -> None:
    out = {"calculator": {"route": "events"}}
    async with (
        another_worker(settings, lambda request: [result(request, {"result": 4})]) as (_, seen),
        opened(tmp_path, settings, tools=out) as gateway,
    ):
        await gateway.invoke("calculator", {"expression": "2 + 2"})
        assert [one["tool"] for one in seen] == ["calculator"]


async def test_a_call_that_is_too_long_for_the_stream_is_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with opened(tmp_path, settings) as gateway:
        outcome = await gateway.invoke("render", {"scene": "x" * 200_000})
        assert outcome.error is not None
        assert outcome.error.code == "VALIDATION_ERROR"
