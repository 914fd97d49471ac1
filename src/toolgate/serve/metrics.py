"""/metrics: what the App counts of calls, and the states of MCP servers, in Prometheus' format."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolgate.app.app import App
from toolgate.serve.authentication import is_local
from toolgate.serve.problems import HttpProblem

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from toolgate.serve.app import HttpApp

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SERVER_STATES = ("off", "idle", "starting", "up", "waiting", "resting")


async def metrics(request: Request) -> Response:
    """For this machine, and for keys with the scope metrics: they name tools and count what is done with them."""
    http: HttpApp = request.app.state.http
    headers = dict(request.scope["headers"])
    http.authenticator.check_place(headers)
    if b"authorization" in headers or not is_local(request.scope, headers):
        credential = await http.authenticator.check(request.scope, headers)
        if not credential.has("metrics"):
            raise HttpProblem(403, "This key does not have the scope metrics.")
    if http.app.metrics is None:
        raise HttpProblem(404, "Metrics are off.", suggestion="Set metrics: true.")
    return Response(http.app.metrics.text(), headers={"content-type": MEDIA_TYPE})


routes = [Route("/metrics", metrics)]


class ServerCollector:
    """States of MCP servers, looked up when Prometheus asks. Nothing is collected while the setting `metrics` is off."""

    def __init__(self, app: App) -> None:
        self._app = app
        if app.metrics is not None:
            app.metrics.registry.register(self)

    def close(self) -> None:
        if self._app.metrics is not None:
            self._app.metrics.registry.unregister(self)

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        state = GaugeMetricFamily(
            "toolgate_server_state", "1 for the state that an MCP server is in", labels=["server", "state"]
        )
        starts = CounterMetricFamily("toolgate_server_starts", "How often an MCP server was started", labels=["server"])
        under_way = GaugeMetricFamily("toolgate_server_requests_running", "Requests on their way", labels=["server"])
        for one in self._app.parts.servers_engine.statuses():
            for name in SERVER_STATES:
                state.add_metric([one.name, name], float(one.state == name))
            starts.add_metric([one.name], one.starts)
            under_way.add_metric([one.name], one.under_way)
        yield from (state, starts, under_way)
