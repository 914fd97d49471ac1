"""The client of n8n: starts a workflow by its webhook, and reads what comes back.

n8n's answers are bounded and shortened before anybody sees them: its errors come with a stack trace of the server.
"""

import string
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from toolgate.errors import CallError, Denied, Failed, NotReached, TimedOut, ToolError
from toolgate.model import LOCAL, Actor, Call
from toolgate.network.http_client import HttpClient
from toolgate.network.http_response import HttpResponse
from toolgate.network.service_answers import CREDENTIAL, retry_after, told

EXECUTION_HEADER = "x-n8n-execution-id"
MAX_EXECUTION_ID_CHARS = 100
MAX_ANSWER_BYTES = 5_000_000
MAX_HEALTH_BYTES = 10_000
TRIGGERED_BY = "ai"
BUSY = frozenset({429, 503})
"""Statuses which say that nothing was started."""
METADATA = "_metadata"
_VISIBLE = "".join(sorted(set(string.printable) - set(string.whitespace) - {"%"}))
ADVICE = {
    401: "Set the secret {secret} to what the workflow's webhook expects in X-Webhook-Secret.",
    403: "Set the secret {secret} to what the workflow's webhook expects in X-Webhook-Secret.",
    404: "Import the workflow into n8n and publish it; its webhook must take POST at this path.",
    500: "Look at the execution in n8n: the workflow failed.",
}


class WorkflowRequest(NamedTuple):
    """The request that is sent to a workflow's webhook."""

    path: str
    arguments: Mapping[str, Any]
    request_id: str
    key: str
    """The idempotency key."""
    user: str
    session: str | None
    callback: Mapping[str, str] | None = None
    """The address and the form in which its end is to be reported; None: it is waited for."""

    def body(self) -> dict[str, Any]:
        """The arguments and the metadata; those of the caller can't take its place."""
        metadata = {
            "requestId": self.request_id,
            "userId": self.user,
            "chatId": self.session,
            "triggeredBy": TRIGGERED_BY,
            "callback": self.callback,
        }
        said = {name: value for name, value in metadata.items() if value is not None}
        return {**self.arguments, METADATA: said}


class WorkflowAnswer(NamedTuple):
    """The answer of a workflow."""

    output: Any
    execution_id: str | None


class N8nClient:
    """Starts workflows of one n8n server."""

    def __init__(self, base_url: str | None, http: HttpClient, secret_name: str) -> None:
        self._base_url = base_url
        self._http = http
        self._secret_name = secret_name

    async def invoke(self, request: WorkflowRequest, secret: str | None, seconds: float) -> WorkflowAnswer:
        """Starts a workflow and waits for its answer, which is JSON. Raises CallError: TIMEOUT, N8N_ERROR, CONNECTION_ERROR
        if nothing was sent, INVOCATION_ERROR if it is not known what became of it."""
        response = await self._send(request, secret, seconds)
        execution_id = execution_of(response)
        if not response.body.strip():
            return WorkflowAnswer(None, execution_id)
        try:
            return WorkflowAnswer(response.json(), execution_id)
        except ToolError as error:
            raise _unclear(f"The workflow ran, but its answer cannot be read: {error.message}", execution_id) from None

    async def start(self, request: WorkflowRequest, secret: str | None, seconds: float) -> str | None:
        """Starts a workflow that reports its end by itself; gives the id of its execution, if n8n says it. Raises as
        `invoke`."""
        return execution_of(await self._send(request, secret, seconds))

    async def ping(self) -> None:
        """Raises if the server does not answer; the secret is not sent."""
        if self._base_url is None:
            raise not_configured()
        url = f"{self._base_url}/healthz"
        response = await self._http.request("GET", url, max_bytes=MAX_HEALTH_BYTES, redirects=0, trusted=True, cut=True)
        if response.status >= 500:
            raise Failed("N8N_ERROR", f"it answered {response.status}")

    async def _send(self, request: WorkflowRequest, secret: str | None, seconds: float) -> HttpResponse:
        if self._base_url is None:
            raise not_configured()
        headers = {
            "Content-Type": "application/json",
            "X-Webhook-Secret": self._checked(secret),
            "X-Request-Id": header_text(request.request_id),
            "X-Idempotency-Key": header_text(request.key),
        }
        try:
            response = await self._http.request(
                "POST",
                f"{self._base_url}/webhook/{request.path}",
                headers=headers,
                json=request.body(),
                timeout=seconds,
                max_bytes=MAX_ANSWER_BYTES,
                redirects=0,  # the secret goes to the address of the settings and to no other
                trusted=True,
            )
        except TimedOut:
            raise TimedOut(
                message=f"The workflow did not answer within {seconds:g} s.",
                retryable=False,
                suggestion="It may still be running: look at its executions in n8n before you call again.",
            ) from None
        except (NotReached, Denied):
            raise
        except (CallError, ToolError) as error:
            if not error.charged:
                raise
            raise _unclear(error.message) from error
        if 200 <= response.status < 300:
            return response
        raise self._refusal(response)

    def _checked(self, secret: str | None) -> str:
        if secret is None or CREDENTIAL.match(secret) is None:
            raise Denied(
                "MISSING_AUTH",
                f"The secret {self._secret_name} cannot be sent: it is empty or has spaces.",
                suggestion=f"`toolgate secrets set {self._secret_name}`",
            )
        return secret

    def _refusal(self, response: HttpResponse) -> Failed:
        """The error of an answer that is no success, with n8n's own words, if they are short and plain."""
        status, execution_id = response.status, execution_of(response)
        details: dict[str, Any] = {"status": status}
        if execution_id is not None:
            details["execution_id"] = execution_id
        if status in BUSY:
            details["retry_after"] = retry_after(response.headers)
        words = _message(response)
        advice = ADVICE.get(status)
        if 300 <= status < 400:
            advice = "n8n answered with a redirect, which is not followed: correct the setting n8n.base_url."
        return Failed(
            "N8N_ERROR",
            f"The workflow returned {status}" + (f": {words}" if words else "."),
            retryable=status in BUSY,
            suggestion=None if advice is None else advice.format(secret=self._secret_name),
            details=details,
        )


def not_configured() -> Denied:
    """The error of a workflow where there is no n8n server."""
    return Denied(
        "MISSING_AUTH",
        "No n8n server is configured, which runs this workflow.",
        suggestion="Set n8n.base_url in the settings; docs/howto/run-workflows.md has the steps.",
        details={"missing": "n8n.base_url"},
    )


def idempotency_key(call: Call) -> str:
    """The key of a call: the caller's own, or else the call's id. Workflows are shared by tenants, so the key of anybody but
    the person at this machine begins with whose it is: nobody comes upon the effect of another."""
    if call.idempotency_key is None:
        return call.id
    return call.idempotency_key if _is_local(call.actor) else f"{_whose(call.actor)}/{call.idempotency_key}"


def header_text(text: str) -> str:
    """A text as a header can carry it: what is not visible ASCII is percent-encoded."""
    return quote(text, safe=_VISIBLE, errors="surrogatepass")


def execution_of(response: HttpResponse) -> str | None:
    """The id of the execution in n8n, if the answer has it and it looks like one."""
    found = told(response.headers.get(EXECUTION_HEADER))
    return found if found is not None and len(found) <= MAX_EXECUTION_ID_CHARS else None


def _is_local(actor: Actor) -> bool:
    return (actor.tenant, actor.user) == (LOCAL.tenant, LOCAL.user)


def _whose(actor: Actor) -> str:
    return f"{quote(actor.tenant, safe='')}/{quote(actor.user, safe='')}"


def _message(response: HttpResponse) -> str | None:
    """The message of an error: a field of JSON, or a line of plain text; never what follows it."""
    if response.headers.get("content-type", "").startswith("text/plain"):
        return told(response.text().partition("\n")[0])
    try:
        body = response.json()
    except ToolError:
        return None
    return told(body.get("message")) if isinstance(body, dict) else None


def _unclear(words: str, execution_id: str | None = None) -> Failed:
    return Failed(
        "INVOCATION_ERROR",
        words,
        suggestion="Look at its executions in n8n before you call again.",
        details=None if execution_id is None else {"execution_id": execution_id},
    )
