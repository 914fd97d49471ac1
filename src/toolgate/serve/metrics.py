"""/metrics: what the App counts of calls, and how MCP servers stand, in Prometheus' format."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from toolgate.app.app import App
from toolgate.serve.problems import HttpProblem

if TYPE_CHECKING:
    from prometheus_client.core import Metric

STATES = ("off", "idle", "starting", "up", "waiting", "resting")


class Metering:
    """The text for Prometheus, if the setting `metrics` is on."""

    media = b"text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, app: App) -> None:
        self._app = app
        self._servers = _Servers(app)
        if app.metrics is not None:
            app.metrics.registry.register(self._servers)

    def close(self) -> None:
        if self._app.metrics is not None:
            self._app.metrics.registry.unregister(self._servers)

    def text(self) -> bytes:
        if self._app.metrics is None:
            raise HttpProblem(404, "Nothing is counted.", suggestion="Set metrics: true.")
        return self._app.metrics.text()


class _Servers:
    """How MCP servers stand, asked when Prometheus asks."""

    def __init__(self, app: App) -> None:
        self._app = app

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        state = GaugeMetricFamily(
            "toolgate_server_state", "1 for the state that an MCP server is in", labels=["server", "state"]
        )
        starts = CounterMetricFamily("toolgate_server_starts", "How often an MCP server was started", labels=["server"])
        under_way = GaugeMetricFamily("toolgate_server_requests_running", "Requests on their way", labels=["server"])
        for one in self._app.servers_engine.standings():
            for name in STATES:
                state.add_metric([one.name, name], float(one.state == name))
            starts.add_metric([one.name], one.starts)
            under_way.add_metric([one.name], one.under_way)
        yield from (state, starts, under_way)
