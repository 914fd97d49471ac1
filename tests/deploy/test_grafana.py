"""The Grafana dashboard asks for metrics that there are, by labels that they have."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.serving import serving
from toolgate import App

pytestmark = pytest.mark.requirement("AUD-5")
DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "toolgate.json"
SUFFIXES = ("_total", "_bucket", "_sum", "_count", "_created")


def queries() -> list[str]:
    document = json.loads(DASHBOARD.read_text())
    variables = [one["query"] for one in document["templating"]["list"] if one["type"] == "query"]
    return variables + [target["expr"] for panel in document["panels"] for target in panel["targets"]]


async def test_every_query_names_a_metric_and_labels_that_exist(tmp_path: Path) -> None:
    async with App.open(os.devnull, home=tmp_path, entry_points=False, metrics=True) as app, serving(app) as server:
        await server.with_key(app)
        text = (await server("GET", "/metrics", {"Authorization": ""})).body.decode()
        assert app.metrics is not None
        collectors = app.metrics.registry._collector_to_names.items()
        labels = {name: set(getattr(made, "_labelnames", ())) for made, names in collectors for name in names}
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    known = {name + suffix for name in kinds for suffix in ("", "_bucket", "_count", "_sum")}
    assert len(queries()) > 15
    for query in queries():
        for name in re.findall(r"toolgate_\w+", query):
            assert name in known, f"{query}: there is no metric {name}"
            by = re.search(r"by \(([^)]*)\)", query)
            has = labels.get(name.removesuffix("_bucket"), set()) or labels.get(name.removesuffix("_total"), set())
            wanted = {one.strip() for one in by[1].split(",")} - {"le"} if by else set()
            assert not has or wanted <= has, f"{query}: {name} has no label {wanted - has}"


async def test_every_metric_of_toolgate_is_on_the_dashboard_or_left_out_on_purpose(tmp_path: Path) -> None:
    async with App.open(os.devnull, home=tmp_path, entry_points=False, metrics=True) as app, serving(app) as server:
        await server.with_key(app)
        text = (await server("GET", "/metrics", {"Authorization": ""})).body.decode()
    left_out = {"toolgate_tool_last_check_seconds", "toolgate_tool_next_check_seconds", "toolgate_server_requests_running"}
    named = " ".join(queries())
    for name in re.findall(r"^# TYPE (toolgate_\w+) ", text, re.MULTILINE):
        assert name.endswith("_created") or name in left_out or name in named, name
