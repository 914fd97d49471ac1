"""POST /webhooks/workflows/{id}: the end of a workflow that is not waited for, as n8n reports it.

The signature alone says who may: no key, no address and no page counts. Who cannot sign is told the same of every id.
"""

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolgate.serve.authentication import check_single
from toolgate.serve.problems import HttpProblem
from toolgate.serve.request_body import read_body
from toolgate.workflow.callbacks import SIGNATURE_HEADER, TIMESTAMP_HEADER, CallbackRefused, Refusal

if TYPE_CHECKING:
    from toolgate.serve.app import HttpApp

STATUS: dict[Refusal, int] = {"unsigned": 401, "unknown": 404, "repeated": 409, "malformed": 400}
MAX_CALLBACK_BYTES = 1_000_000
MAX_ID_CHARS = 64


async def receive(request: Request) -> Response:
    http: HttpApp = request.app
    headers = dict(request.scope["headers"])
    check_single(request.scope["headers"])
    timestamp, signature = request.headers.get(TIMESTAMP_HEADER, ""), request.headers.get(SIGNATURE_HEADER, "")
    most = min(MAX_CALLBACK_BYTES, http.app.settings.serve.body_bytes)
    try:
        http.app.workflows.check_proof(timestamp=timestamp, signature=signature)  # before anything is read
        body = await read_body(headers, request.receive, most, "serve.body_bytes")
        id = request.path_params["id"][:MAX_ID_CHARS]
        await http.app.workflows.report(id, body, timestamp=timestamp, signature=signature)
    except CallbackRefused as refused:
        raise HttpProblem(STATUS[refused.refusal], refused.message, suggestion=refused.suggestion) from None
    return JSONResponse({"recorded": True})


routes = [Route("/webhooks/workflows/{id}", receive, methods=["POST"])]
