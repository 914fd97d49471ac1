"""/healthz and /readyz: is the process alive, and can it serve calls?"""

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolgate.serve.authentication import check_single
from toolgate.serve.problems import HttpProblem

if TYPE_CHECKING:
    from toolgate.serve.app import HttpApp

STATUS = {"ok": "ok", "warning": "degraded", "fault": "down"}
"""The word of /readyz for a check's status."""


async def healthz(_: Request) -> Response:
    return JSONResponse({"status": "alive"})


async def readyz(request: Request) -> Response:
    """Only who runs the installation is told more than whether it is ready: what is wrong may name what others do."""
    http: HttpApp = request.app.state.http
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


routes = [Route("/healthz", healthz), Route("/readyz", readyz)]
