"""Spans by OTLP to a collector, the trace context of clients, and the metrics of requests."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.otlp_collector import Collector, collector
from tests.serving import META, serving
from toolgate import App
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("AUD-5")
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


def roots(found: Collector) -> list[Any]:
    return [span for span in found.spans if span.name.startswith("toolgate.call")]


async def test_spans_go_to_the_collector_of_the_setting() -> None:
    async with collector() as found:
        async with memory_app(otlp_url=found.url) as app:
            await app.invoke("echo", {"text": "secret words"})
        [root] = roots(found)
        groups = {span.name for span in found.spans if span.parent_span_id == root.span_id}
        assert {"toolgate.authorize", "toolgate.input", "toolgate.execute", "toolgate.record"} <= groups
        assert found.service == "toolgate" and found.paths == {"/v1/traces"}
        assert "secret words" not in str(found.spans)


async def test_the_standard_variables_name_the_collector_its_headers_and_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with collector() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "gate-7")
        async with memory_app(tracing=True) as app:
            await app.invoke("echo", {"text": "x"})
        assert len(roots(found)) == 1 and found.service == "gate-7" and found.headers["x-team"] == "blue"


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_collector_that_is_away_fails_no_call(caplog: pytest.LogCaptureFixture) -> None:
    async with memory_app(otlp_url="http://127.0.0.1:9") as app:
        assert (await app.invoke("echo", {"text": "x"})).ok
    caplog.clear()  # OpenTelemetry's own complaints


@pytest.mark.parametrize("where", ["header", "header, not on the fast path", "meta"])
async def test_a_call_over_mcp_belongs_to_the_trace_of_its_client(where: str, tmp_path: Path) -> None:
    async with collector() as found:
        async with (
            App.open(os.devnull, home=tmp_path, entry_points=False, otlp_url=found.url) as app,
            serving(app) as server,
        ):
            await server.with_key(app)
            headers = {} if where == "meta" else {"traceparent": TRACEPARENT}
            extra = {"traceparent": TRACEPARENT} if where == "meta" else {"progressToken": 7} if "not" in where else {}
            meta = {**META, **extra}
            answer = await server.mcp("tools/call", {"name": "echo", "arguments": {"text": "x"}}, headers=headers, meta=meta)
            assert answer.status == 200, answer
            bad = await server.mcp(
                "tools/call", {"name": "echo", "arguments": {"text": "x"}}, headers={"traceparent": "no\u00ffnsense" * 200}
            )
            assert bad.status == 200
        child, own = sorted(roots(found), key=lambda span: span.trace_id.hex() != TRACE)
        assert (child.trace_id.hex(), child.parent_span_id.hex()) == (TRACE, PARENT)
        assert own.trace_id.hex() != TRACE and own.parent_span_id == b""


async def test_requests_are_counted_by_route_with_bounded_labels(tmp_path: Path) -> None:
    async with (
        App.open(os.devnull, home=tmp_path, entry_points=False, metrics=True) as app,
        serving(app) as server,
    ):
        await server.with_key(app)
        for path in (
            "/healthz",
            "/healthz",
            "/nowhere-1",
            "/nowhere-2",
            "/webhooks/workflows/one",
            "/webhooks/workflows/two",
        ):
            await server("GET", path)
        await server("BREW", "/healthz")
        await server.mcp("tools/call", {"name": "echo", "arguments": {"text": "x"}})
        text = (await server("GET", "/metrics", {"Authorization": ""})).body.decode()
        counted = dict(re.findall(r"^toolgate_http_requests_total\{(.*?)\} (\S+)$", text, re.MULTILINE))
        assert counted['method="GET",route="/healthz",status="2xx"'] == "2.0"
        assert counted['method="GET",route="(none)",status="4xx"'] == "2.0"
        assert counted['method="POST",route="/mcp",status="2xx"'] == "1.0"
        assert not any("nowhere" in labels or "BREW" in labels or "/one" in labels for labels in counted)
        for line in ("toolgate_approvals_waiting 0.0", 'toolgate_jobs_in_state{state="queued"} 0.0', "toolgate_build_info{"):
            assert line in text
        assert "toolgate_sse_connections 0.0" in text and 'toolgate_http_request_seconds_count{route="/mcp"} 1.0' in text
