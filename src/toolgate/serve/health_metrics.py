"""Routes for who watches a server: /healthz (the process is alive), /readyz (it can serve calls), and /metrics (calls and
the states of MCP servers, in Prometheus' format)."""

from collections.abc import Iterator
from contextlib import suppress
from platform import python_version
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolgate.app.app import App
from toolgate.errors import StoreError
from toolgate.jobs.job import STATES as JOB_STATES
from toolgate.serve.authentication import check_single
from toolgate.serve.hosts import is_local
from toolgate.serve.problems import HttpProblem
from toolgate.version import VERSION

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from toolgate.serve.app import HttpApp

STATUS = {"ok": "ok", "warning": "degraded", "fault": "down"}
"""The word of /readyz for a check's status."""
DAY_SECONDS = 86_400.0
METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SERVER_STATES = ("off", "idle", "starting", "up", "waiting", "resting")


async def healthz(_: Request) -> Response:
    return JSONResponse({"status": "alive"})


async def readyz(request: Request) -> Response:
    """Only who runs the installation is told more than whether it is ready: what is wrong may name what others do."""
    http: HttpApp = request.app
    if http.readiness.is_stopping:
        return JSONResponse({"status": "stopping"}, 503)
    checks = await http.readiness.checks()
    found = {check.status for check in checks}
    status = "ready" if "fault" not in found else "not ready"
    told: dict[str, Any] = {"status": status}
    if await _may_see_checks(http, request):
        told = {
            "status": "degraded" if status == "ready" and "warning" in found else status,
            "checks": [{"name": one.name, "status": STATUS[one.status], "message": one.message} for one in checks],
        }
    return JSONResponse(told, 200 if status == "ready" else 503)


async def _may_see_checks(http: "HttpApp", request: Request) -> bool:
    headers = dict(request.scope["headers"])
    try:
        check_single(request.scope["headers"])
        http.authenticator.check_place(headers)
        return (await http.authenticator.check(request.scope, headers)).has("metrics")
    except HttpProblem:
        return False


async def metrics(request: Request) -> Response:
    """For this machine, and for keys with the scope metrics: they name tools and count what is done with them."""
    http: HttpApp = request.app
    headers = dict(request.scope["headers"])
    has_key = b"authorization" in headers
    if not has_key:  # Prometheus asks each process by its IP address, which no web page can do with a key
        http.authenticator.check_place(headers)
    if has_key or not is_local(request.scope, headers):
        credential = await http.authenticator.check(request.scope, headers)
        if not credential.has("metrics"):
            advice = "`toolgate keys create NAME --role guest --scope metrics` makes one that does."
            raise HttpProblem(403, "The key does not have the scope metrics.", suggestion=advice)
    if http.app.metrics is None:
        raise HttpProblem(404, "Metrics are off.", suggestion="Set metrics: true.")
    await http.collector.look()
    return Response(http.app.metrics.text(), headers={"content-type": METRICS_MEDIA_TYPE})


routes = [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]


class ServerCollector:
    """States of MCP servers, and what of the store was last read for Prometheus: collected when it asks. Nothing is while
    the setting `metrics` is off."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._waiting = 0
        self._jobs: dict[str, int] = {}
        if app.metrics is not None:
            app.metrics.registry.register(self)

    async def look(self) -> None:
        """Reads what the store knows: the same in all processes on it. What can't be read now stays as it was."""
        with suppress(StoreError):
            self._waiting = sum((await self._app.approvals.counts()).values())
            self._jobs = (await self._app.jobs.backlog(DAY_SECONDS, DAY_SECONDS)).counts

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
        for one in self._app.servers.connections.statuses():
            for name in SERVER_STATES:
                state.add_metric([one.name, name], float(one.state == name))
            starts.add_metric([one.name], one.starts)
            under_way.add_metric([one.name], one.under_way)
        waiting = GaugeMetricFamily("toolgate_approvals_waiting", "Calls that wait for a person, of all tenants")
        waiting.add_metric([], self._waiting)
        jobs = GaugeMetricFamily("toolgate_jobs_in_state", "Jobs of all tenants, by state", labels=["state"])
        for name in JOB_STATES:
            jobs.add_metric([name], self._jobs.get(name, 0))
        build = GaugeMetricFamily("toolgate_build_info", "1, with the version", labels=["version", "python"])
        build.add_metric([VERSION, python_version()], 1)
        yield from (state, starts, under_way, waiting, jobs, build)
