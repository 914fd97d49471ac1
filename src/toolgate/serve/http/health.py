"""/v1/health: the services that this installation depends on, each asked for real."""

from typing import Literal

from toolgate.serve.health_metrics import STATUS
from toolgate.serve.http.endpoint import ApiRequest, ApiView, Resource

resource = Resource("health")


class DependencyView(ApiView, frozen=True):
    """The state of one dependency."""

    name: str
    """store, policy, redis, n8n, events, or `server` and the name of an MCP server"""
    status: Literal["ok", "degraded", "down"]
    """degraded: it does not work, and calls that do not need it are served all the same. down: calls fail."""
    message: str
    advice: str | None


class HealthView(ApiView, frozen=True):
    """The state of the installation, as of the last second."""

    status: Literal["ready", "degraded", "not ready"]
    checks: list[DependencyView]


@resource.get("/v1/health", permission="operate")
async def get_health(request: ApiRequest) -> HealthView:
    """Get the state of every dependency. `toolgate doctor` looks at more."""
    checks = await request.http.readiness.checks()
    found = {check.status for check in checks}
    status = "not ready" if "fault" in found else "degraded" if "warning" in found else "ready"
    views = [
        DependencyView(name=one.name, status=STATUS[one.status], message=one.message, advice=one.advice)  # type: ignore[arg-type]
        for one in checks
    ]
    return HealthView(status=status, checks=views)  # type: ignore[arg-type]
