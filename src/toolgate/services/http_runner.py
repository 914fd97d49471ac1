"""The runner of tools that are operations of an HTTP service, as their definitions declare them."""

from collections.abc import Callable, Mapping
from typing import Any

from toolgate.errors import Denied, Failed
from toolgate.model import Auth, Entry
from toolgate.model.http_endpoint import BODILESS_METHODS, HttpCredential, HttpEndpoint
from toolgate.network.http_client import HttpClient
from toolgate.network.service_answers import CREDENTIAL, answered_value, shown_headers
from toolgate.pipeline.context import InvokeContext
from toolgate.services.call_checks import check_encrypted
from toolgate.services.http_request import make_request
from toolgate.services.service_api import ServiceApi, ServiceFault, seconds_for

MAX_ANSWER_BYTES = 2_000_000
MAX_REDIRECTS = 5
MAX_LISTED_FAULTS = 5
MESSAGE_FIELDS = ("message", "detail", "error_description", "title", "error")
MAX_ENDPOINT_SECONDS = 600.0
Lend = Callable[[InvokeContext, Auth], str]
"""Gives a secret that a call needs besides the credential that its tool declares."""
ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"status": {"type": "integer"}, "headers": {"type": "object"}, "body": {}},
    "required": ["status", "body"],
}
"""The output of every tool of this kind. The body is whatever the service answers: a description of it that the service
does not keep to would turn answers that were paid for into errors."""


class HttpRunner:
    """Runs tools of kind http."""

    def __init__(self, http: HttpClient, tenants_http: HttpClient, lend: Lend) -> None:
        """`tenants_http`: for tools that tenants registered, which do not reach the hosts that are open to other tools."""
        self._http, self._tenants_http = http, tenants_http
        self._lend = lend

    async def run(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> Any:
        """Sends the request and gives the answer. An answer that says that something went wrong is an error."""
        endpoint = entry.tool.http
        if endpoint is None:
            raise Failed("UNKNOWN_TOOL_TYPE", f"{entry.name} is to be run over HTTP, but no endpoint is declared for it.")
        request = make_request(endpoint, arguments, lambda one: self._secret(ctx, entry, one))
        http = self._tenants_http if entry.tool.source == "dynamic" else self._http
        check_encrypted(ctx, http, endpoint.origin)
        host = endpoint.address.authority
        setup_url = None if entry.auth is None else entry.auth.setup_url
        api = ServiceApi(host, endpoint.origin, http, setup_url=setup_url, read_fault=read_fault, trusted=False)
        ctx.used(host)
        response = await api.send(
            endpoint.method,
            request.target,
            headers={"Accept": "application/json, */*;q=0.5", **request.headers},
            changes=changes_something(endpoint),
            seconds=seconds_for(ctx.time_limit, MAX_ENDPOINT_SECONDS),
            max_bytes=MAX_ANSWER_BYTES,
            redirects=MAX_REDIRECTS,
            tenant=ctx.actor.tenant,
            content=request.content,
        )
        return {"status": response.status, "headers": shown_headers(response), "body": answered_value(response)}

    def _secret(self, ctx: InvokeContext, entry: Entry, one: HttpCredential) -> str | None:
        """The value of a credential. The first is the one that the tool declares."""
        declared = entry.auth
        if declared is not None and declared.config_key == one.secret:
            value = ctx.credential
        else:
            value = self._lend(ctx, Auth(config_key=one.secret))
        if value is None:
            return None
        if one.scheme != "basic" and CREDENTIAL.match(value) is None:
            raise Denied(
                "MISSING_AUTH",
                f"The secret {one.secret!r} cannot be sent: it is empty or has spaces.",
                suggestion=f"Set it again: `toolgate secrets set {one.secret}`",
            )
        return value

    async def close(self) -> list[str]:
        return []


def changes_something(endpoint: HttpEndpoint) -> bool:
    """True if a request may have an effect."""
    return endpoint.method not in BODILESS_METHODS


def read_fault(body: Any) -> ServiceFault:
    """Reads the error of a service in the shapes that services use most."""
    if isinstance(body, str):
        return ServiceFault(body)
    if not isinstance(body, Mapping):
        return ServiceFault()
    inner = body.get("error")
    if isinstance(inner, Mapping):
        return read_fault(inner)
    listed = body.get("errors")
    more = [_words(one) for one in listed[:MAX_LISTED_FAULTS]] if isinstance(listed, list) else []
    said = next((body[name] for name in MESSAGE_FIELDS if _is_text(body, name)), "")
    words = "; ".join(part for part in (said, *more) if part)
    code, kind = (body[name] if _is_text(body, name) else None for name in ("code", "type"))
    return ServiceFault(words or None, code, kind)


def _is_text(body: Mapping[str, Any], name: str) -> bool:
    return isinstance(body.get(name), str) and bool(body[name])


def _words(fault: Any) -> str:
    if isinstance(fault, Mapping):
        return next((fault[name] for name in ("message", "detail", "title", "code") if _is_text(fault, name)), "")
    return fault if isinstance(fault, str) else ""
