"""The route of QStash, POST /jobs/{type}: a message that it signed becomes a job.

QStash takes a status of 2xx for an end, tries again after any other, and puts a message aside for a person, in its dead
letter queue, after its last try, or at once after 489 with a header that says so.
"""

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolgate.errors import Failed, StoreError
from toolgate.jobs.qstash import NotReady, NotSigned, NotTaken, QStashMessage
from toolgate.serve.authentication import check_single
from toolgate.serve.problems import HttpProblem
from toolgate.serve.request_body import read_body

if TYPE_CHECKING:
    from toolgate.serve.app import HttpApp

PATH = "/jobs/{type}"
SIGNATURE_HEADER, MESSAGE_ID_HEADER = "upstash-signature", "upstash-message-id"
NOT_RETRYABLE = 489
"""QStash's own status: the message goes to the dead letter queue, and is not tried again by itself."""
NOT_RETRYABLE_HEADERS = {"upstash-nonretryable-error": "true"}

logger = logging.getLogger("toolgate.jobs")


async def receive_job(request: Request) -> Response:
    http: HttpApp = request.app
    qstash = http.app.qstash
    most = qstash.max_bytes
    if most is None:
        raise HttpProblem(404, "There is nothing at this address.")
    pairs = request.scope["headers"]
    check_single(pairs)
    headers = dict(pairs)
    for name in (SIGNATURE_HEADER, MESSAGE_ID_HEADER):
        if sum(one == name.encode() for one, _ in pairs) > 1:
            raise HttpProblem(400, f"There is more than one {name} header.")
    if SIGNATURE_HEADER.encode() not in headers:
        raise HttpProblem(401, "The message is not signed.", suggestion="Only QStash sends messages here.")
    body = await read_body(headers, request.receive, most, "qstash.body_bytes")
    given = request.headers
    delivery = QStashMessage(request.path_params["type"], body, given.get(SIGNATURE_HEADER), given.get(MESSAGE_ID_HEADER))
    try:
        job = await qstash.receive(delivery)
    except NotSigned as error:
        raise HttpProblem(401, error.message) from None
    except NotTaken as error:
        raise HttpProblem(NOT_RETRYABLE, error.message, headers=NOT_RETRYABLE_HEADERS) from None
    except NotReady as error:
        raise HttpProblem(503, error.message) from None
    except Failed as error:
        raise _refused(error) from None
    except StoreError as error:
        logger.error("a message of QStash could not be kept: %s", error)
        raise HttpProblem(500, "The job could not be kept. Send it again.") from None
    return JSONResponse({"job": job.id, "state": job.state}, HTTPStatus.ACCEPTED)


def _refused(error: Failed) -> HttpProblem:
    """The answer to what the queue refuses."""
    if error.code == "IDEMPOTENCY_CONFLICT":
        return HttpProblem(409, "This message id has brought another payload before.")
    if error.code == "VALIDATION_ERROR":
        return HttpProblem(NOT_RETRYABLE, error.message, headers=NOT_RETRYABLE_HEADERS)
    if error.code == "CAPACITY_EXCEEDED":
        return HttpProblem(503, "There are too many jobs. Send it again later.")
    return HttpProblem(500, "The job could not be kept. Send it again.")


routes = [Route(PATH, receive_job, methods=["POST"])]
