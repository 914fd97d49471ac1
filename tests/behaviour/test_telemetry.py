"""Metrics and spans: there when switched on, absent when not."""

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolgate import tool
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("AUD-5")


@tool(tier="read_only", cost=0.5)
async def works() -> int:
    """Works."""
    with trace.get_tracer("test").start_as_current_span("inside the tool"):
        return 1


@tool(tier="read_only")
async def fails() -> int:
    """Fails."""
    raise ValueError("no")


async def test_calls_are_counted_by_tool_status_and_code() -> None:
    async with memory_app(metrics=True) as app:
        app.register(works)
        app.register(fails)
        for _ in range(3):
            await app.invoke("works")
        await app.invoke("fails")
        await app.invoke("no-such-tool-" + "x" * 100)
        assert app.parts.metrics is not None
        text = app.parts.metrics.text().decode()
    assert 'toolgate_calls_total{code="",status="success",tier="read_only",tool="works"} 3.0' in text
    assert 'toolgate_calls_total{code="INVOCATION_ERROR",status="failure",tier="read_only",tool="fails"} 1.0' in text
    assert 'toolgate_calls_total{code="TOOL_NOT_FOUND",status="failure",tier="",tool="(unknown)"} 1.0' in text
    assert 'toolgate_call_seconds_count{tool="works"} 3.0' in text
    assert 'toolgate_cost_usd_total{tool="works"} 1.5' in text
    assert "toolgate_calls_running 0.0" in text


async def test_a_call_is_a_span_with_one_for_each_group_of_stages() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    async with memory_app(tracing=True) as app:
        app.register(works)
        app.register(fails)
        outcome = await app.invoke("works")
        spans = {span.name: span for span in exporter.get_finished_spans()}
        groups = ["authorize", "input", "consent", "quota", "cache", "prepare", "execute", "output", "record"]
        assert list(spans) == [
            *(f"toolgate.{group}" for group in groups[:6]), "inside the tool",
            *(f"toolgate.{group}" for group in groups[6:]), "toolgate.call works",
        ]  # fmt: skip
        root = spans["toolgate.call works"]
        assert root.attributes is not None
        assert root.attributes["toolgate.call_id"] == outcome.id
        assert root.attributes["toolgate.status"] == "success"
        for name, span in spans.items():
            parent = "toolgate.execute" if name == "inside the tool" else "toolgate.call works"
            assert span is root or (span.parent is not None and span.parent.span_id == spans[parent].context.span_id)
        exporter.clear()
        await app.invoke("fails")
        failed = exporter.get_finished_spans()[-1]
        assert (failed.status.status_code.name, failed.status.description) == ("ERROR", "INVOCATION_ERROR")
        assert trace.get_current_span() is trace.INVALID_SPAN


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_switched_off_nothing_of_it_is_loaded() -> None:
    script = (
        "import asyncio, sys\n"
        "from toolgate.testing import memory_app\n"
        "async def main():\n"
        "    async with memory_app() as app:\n"
        "        assert (await app.invoke('echo', {'text': 'x'})).ok\n"
        "        assert not app.parts.hooks.common.any\n"
        "asyncio.run(main())\n"
        "assert not {'opentelemetry', 'prometheus_client'} & set(sys.modules), 'loaded'\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
