"""Metrics of HTTP requests, and the trace that a request belongs to. Labels are bounded: the template of a route, never the
path that a client wrote, a known method, the class of the status."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from toolgate.mcp.server.trace_context import trace_context
from toolgate.serve.protected_resource import MCP_PATH

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER, NO_ROUTE, GONE = "other", "(none)", "gone"


class RequestMetrics:
    """Counts requests by route."""

    def __init__(self, registry: "CollectorRegistry", routes: Iterable[BaseRoute]) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        labels = ["route", "method", "status"]
        self._requests = Counter("toolgate_http_requests", "Requests that were answered", labels, registry=registry)
        self._seconds = Histogram(
            "toolgate_http_request_seconds", "How long requests took, streams among them", ["route"], registry=registry
        )
        self.streams = Gauge("toolgate_sse_connections", "Streams of events that clients have open", registry=registry)
        """For whoever serves one: `inc()` when it begins, `dec()` when it ends."""
        self._made: tuple[Any, ...] = (self._requests, self._seconds, self.streams)
        self._registry = registry
        self._templates = dict(_templates(routes))

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Counts a request. A status of 0: its client went away before an answer, or the hot path answered."""
        path = scope["path"]
        route = MCP_PATH if path == MCP_PATH else self._templates.get(scope.get("endpoint"), NO_ROUTE)
        method = scope["method"] if scope["method"] in KNOWN_METHODS else OTHER
        kind = f"{status // 100}xx" if status else "2xx" if path == MCP_PATH else GONE
        self._requests.labels(route, method, kind).inc()
        self._seconds.labels(route).observe(seconds)

    def close(self) -> None:
        for one in self._made:
            self._registry.unregister(one)


def _templates(routes: Iterable[BaseRoute], before: str = "") -> Iterator[tuple[Any, str]]:
    """The template of each route, by what answers it."""
    for route in routes:
        path = before + getattr(route, "path", "")
        if isinstance(route, Route):
            yield route.endpoint, path
        else:
            yield from _templates(getattr(route, "routes", None) or (), path)


@contextmanager
def current_trace(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
    """Has calls belong to the trace that a request came with."""
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carried = trace_context(headers, {})
    if carried is None:
        yield
        return
    token = context.attach(TraceContextTextMapPropagator().extract(carried))
    try:
        yield
    finally:
        context.detach(token)
