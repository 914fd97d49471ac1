"""/v1/health: the services that this installation depends on, each asked for real."""

from datetime import datetime
from platform import python_version
from typing import Literal

from toolgate.app.checks import Check
from toolgate.app.checks.jobs import job_checks
from toolgate.errors import StoreError
from toolgate.serve.health_metrics import STATUS
from toolgate.serve.http.endpoint import ApiRequest, ApiView, Resource
from toolgate.store.live_processes import LiveProcess
from toolgate.version import VERSION

resource = Resource("health")


class DependencyView(ApiView, frozen=True):
    """The state of one dependency."""

    name: str
    """store, policy, redis, n8n, events, jobs, or `server` and the name of an MCP server"""
    status: Literal["ok", "degraded", "down"]
    """degraded: it does not work, and calls that do not need it are served all the same. down: calls fail."""
    message: str
    advice: str | None


class ProcessView(ApiView, frozen=True):
    """A process that works on the database."""

    id: str
    url: str | None
    """The address at which it serves HTTP, if it does."""
    started_at: datetime
    seen_at: datetime


class HealthView(ApiView, frozen=True):
    """The state of the installation, as of the last second."""

    status: Literal["ready", "degraded", "not ready"]
    checks: list[DependencyView]
    version: str
    python: str
    store: Literal["memory", "SQLite", "PostgreSQL"]
    metrics: bool
    """True: /metrics answers."""
    serves_jobs: bool
    """True: this server runs jobs too."""
    started_at: datetime
    """Of the process that answers."""
    processes: list[ProcessView]
    """Those that have shown that they are alive, oldest first."""


@resource.get("/v1/health", permission="operate")
async def get_health(request: ApiRequest) -> HealthView:
    """Get the state of every dependency, and the processes that work. `toolgate doctor` looks at more."""
    checks = [*await request.http.readiness.checks(), *await _jobs(request)]
    found = {check.status for check in checks}
    status = "not ready" if "fault" in found else "degraded" if "warning" in found else "ready"
    views = [
        DependencyView(name=one.name, status=STATUS[one.status], message=one.message, advice=one.advice)  # type: ignore[arg-type]
        for one in checks
    ]
    settings = request.app.settings
    database = "PostgreSQL" if settings.database.startswith("postgres") else "SQLite"
    return HealthView(
        status=status,  # type: ignore[arg-type]
        checks=views, version=VERSION, python=python_version(),
        store="memory" if settings.in_memory else database,  # type: ignore[arg-type]
        metrics=request.app.metrics is not None, serves_jobs=settings.jobs.serve, started_at=request.http.started_at,
        processes=await _processes(request),
    )  # fmt: skip


async def _jobs(request: ApiRequest) -> list[Check]:
    try:
        return [check async for check in job_checks(request.app)]
    except StoreError:  # the store's own check says so
        return []


async def _processes(request: ApiRequest) -> list[ProcessView]:
    try:
        found: list[LiveProcess] = await request.http.readiness.processes()
    except StoreError:
        return []
    return [ProcessView(id=one.id, url=one.url, started_at=one.started_at, seen_at=one.seen_at) for one in found]
