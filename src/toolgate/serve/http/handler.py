"""From a request under /v1 to the function of its route, and back.

In this order: where it was sent to and by which page, who sent it, whether they may, for which tenant, what it asks for.
Only then the function is called. What a facet refuses becomes a problem document.
"""

import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from starlette.types import Receive, Scope, Send

from toolgate.errors import StoreError, ToolgateError
from toolgate.jsontext import holds_too_much
from toolgate.mcp.server.identity import CREDENTIAL_KEY, Credential
from toolgate.model import Actor, Outcome
from toolgate.serve.authentication import check_single
from toolgate.serve.http.endpoint import (
    MAX_PATH_PARAMETER_CHARS,
    ApiModel,
    ApiRequest,
    Endpoint,
    Reply,
    forbidden,
)
from toolgate.serve.http.field_faults import fault_of
from toolgate.serve.problems import HttpProblem, problem_of
from toolgate.serve.request_body import read_body

if TYPE_CHECKING:
    from toolgate.serve.app import HttpApp

MAX_QUERY_BYTES, MAX_QUERY_FIELDS = 8_192, 50
FIRST_YEAR, LAST_YEAR = 1970, 2999
"""Of instants in requests."""
JSON = "application/json"
ANSWER_HEADERS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
"""Answers are somebody's own: neither a cache nor a browser that guesses at types is to make more of them."""
ALL_TENANTS = "*"
LIST_COMMAND = re.compile(r"`toolgate ([a-z -]+) list` shows ")

logger = logging.getLogger("toolgate")


class PathHandler:
    """The ASGI app of one path: an endpoint for each of its methods."""

    def __init__(self, endpoints: Iterable[Endpoint], list_path: str | None = None) -> None:
        """`list_path`: the route that lists what is at this path, for those who name one that is not there."""
        self._list_path = list_path
        self.endpoints = {endpoint.method: endpoint for endpoint in endpoints}
        self._allowed = ", ".join(sorted(self.endpoints))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http: HttpApp = scope["app"]
        pairs, method = scope["headers"], scope["method"]
        headers = dict(pairs)
        if len(headers) != len(pairs):
            check_single(pairs)
        http.authenticator.check_place(headers)
        if b"%" in scope["raw_path"]:
            _check_path(scope["raw_path"])
        endpoint = self.endpoints.get("GET" if method == "HEAD" else method)
        if endpoint is None:
            allowed = {"allow": self._allowed}
            raise HttpProblem(405, f"{method} is not allowed at this address: use {self._allowed}.", headers=allowed)
        credential = http.authenticator.known(headers) or await http.authenticator.check(scope, headers)
        scope[CREDENTIAL_KEY] = credential
        if endpoint.permission not in credential.permissions:
            raise forbidden(endpoint.permission)
        fields = query_fields(scope["query_string"], _lists(endpoint.query))
        actor, all_tenants = actor_of(credential, fields.pop("tenant", None))
        request = ApiRequest(http, credential, actor, scope, receive, headers, all_tenants=all_tenants)
        try:
            reply = await self._answer(endpoint, request, fields)
        except ToolgateError as error:
            raise _problem(error, self._list_path) from None
        await _send(reply, scope, receive, send)

    async def _answer(self, endpoint: Endpoint, request: ApiRequest, fields: dict[str, Any]) -> Reply:
        named: dict[str, Any] = {name: path_parameter(name, request.scope) for name in endpoint.path_parameters}
        if endpoint.query.__struct_fields__:
            named["query"] = converted(fields, endpoint.query)
        elif fields:
            raise HttpProblem(422, f"Unknown query parameter: {min(fields)[:80]}.")
        if endpoint.body is not None:
            named["body"] = await _body(request, endpoint.body)
        if endpoint.method == "GET":
            return _with_etag(request, _reply(endpoint, await endpoint.handle(request, **named)))
        if b"idempotency-key" in request.headers and not endpoint.takes_key:
            raise HttpProblem(400, "This route does not take the header Idempotency-Key.", suggestion="Leave it out.")
        async with _alone(request):
            if b"if-match" in request.headers:
                await self._check_match(endpoint, request, named)
            return _reply(endpoint, await endpoint.handle(request, **named))

    async def _check_match(self, endpoint: Endpoint, request: ApiRequest, named: Mapping[str, Any]) -> None:
        current = self.endpoints.get("GET")
        if current is None:
            raise HttpProblem(412, "What is at this address has no ETag that If-Match could name.")
        request.require(current.permission)
        parts = {name: named[name] for name in current.path_parameters}
        if current.query.__struct_fields__:
            parts["query"] = named["query"] if current.query is endpoint.query else converted({}, current.query)
        found = _reply(current, await current.handle(request, **parts))
        if not _names(_tags(request.headers[b"if-match"]), _etag(found)):
            raise HttpProblem(412, "It has changed since you read it.", suggestion="Read it again, then decide.")


# -- what is asked for


def _alone(request: ApiRequest) -> AbstractAsyncContextManager[None]:
    """The lock under which a conditional change is compared and made: of two that name one ETag, one is made."""
    if b"if-match" not in request.headers:
        return nullcontext()
    tenant = ALL_TENANTS if request.all_tenants else request.actor.tenant
    return request.app.changes.alone(f"{tenant} {request.scope['path']}")


def _check_path(raw: bytes) -> None:
    """Refuses a path that means another thing to a proxy than to us: one with a slash within a name, or with no text."""
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise HttpProblem(404, "There is nothing at this address.") from None
    if b"%2f" in raw.lower():
        raise HttpProblem(404, "There is nothing at this address.")


def query_fields(text: bytes, lists: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The fields of a query. Those of `lists` may be given several times, and are lists."""
    if not text:
        return {}
    if len(text) > MAX_QUERY_BYTES:
        raise HttpProblem(400, f"The query is longer than {MAX_QUERY_BYTES:,} bytes.")
    try:
        pairs = parse_qsl(
            text.decode("ascii"), keep_blank_values=True, strict_parsing=False, errors="strict",
            max_num_fields=MAX_QUERY_FIELDS,
        )  # fmt: skip
    except ValueError:
        raise HttpProblem(400, "The query cannot be read: it must be percent-encoded UTF-8.") from None
    fields: dict[str, Any] = {name: value for name, value in pairs if name not in lists}
    if len(fields) != sum(name not in lists for name, _ in pairs):
        raise HttpProblem(400, "A query parameter is given more than once.")
    for name in lists:
        if given := [value for other, value in pairs if other == name]:
            fields[name] = given
    if any(value.lower() == "null" for _, value in pairs):  # msgspec would take the text for a value that is left out
        raise HttpProblem(422, "The query is wrong: null is no value. Leave the parameter out.")
    return fields


def actor_of(credential: Credential, tenant: str | None) -> tuple[Actor, bool]:
    """The actor of a request, and whether it is about all tenants. Only an operator may name a tenant."""
    actor = credential.actor
    if tenant is None or tenant == actor.tenant:
        return actor, False
    if not credential.may("operate"):
        raise HttpProblem(403, "The tenant is that of your credential: only an operator may name another.")
    if tenant == ALL_TENANTS:
        return actor, True
    try:
        return Actor(tenant, None, actor.user, actor.scopes), False
    except ValueError:
        raise HttpProblem(422, "The tenant must be 1 to 256 printable characters.") from None


def path_parameter(name: str, scope: Scope) -> str:
    text: str = scope["path_params"][name]
    if not 0 < len(text) <= MAX_PATH_PARAMETER_CHARS or not text.isprintable():
        raise HttpProblem(404, "There is nothing at this address.")
    return text


@cache
def _lists(kind: type[ApiModel]) -> frozenset[str]:
    """The fields of a query that may be given several times."""
    return frozenset(one.encode_name for one in msgspec.structs.fields(kind) if "list[" in str(one.type))


@cache
def _instants(kind: type[ApiModel]) -> frozenset[str]:
    """The fields of a query or body that are instants."""
    return frozenset(one.encode_name for one in msgspec.structs.fields(kind) if "datetime.datetime" in str(one.type))


def converted(fields: Mapping[str, Any], kind: type[ApiModel]) -> ApiModel:
    for name in _instants(kind).intersection(fields):
        if fields[name][4:5] != "-":  # msgspec would take a number for seconds since 1970
            raise HttpProblem(422, f"The query is wrong: {name} must be an instant such as 2026-11-01T00:00:00Z.")
    try:
        found = msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise HttpProblem(422, f"The query is wrong: {fault_of(error, kind)}.") from None
    return _checked("query", found)


def _checked(part: str, given: ApiModel) -> ApiModel:
    """Gives a query or body whose instants are of years that can be reckoned with: hours are added to them and taken off."""
    for name in _instants(type(given)):
        at = getattr(given, name)
        if at is not None and not FIRST_YEAR <= at.year <= LAST_YEAR:
            raise HttpProblem(422, f"The {part} is wrong: {name} must be of a year from {FIRST_YEAR} to {LAST_YEAR}.")
    return given


async def _body(request: ApiRequest, kind: type[ApiModel]) -> ApiModel:
    headers = request.headers
    text = await read_body(headers, request.receive, request.app.settings.serve.body_bytes, "serve.body_bytes")
    if text and headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
        raise HttpProblem(415, "The body must be JSON: send `Content-Type: application/json`.")
    if holds_too_much(text):
        raise HttpProblem(400, "The body holds too many values.")
    try:
        if not text.isascii():
            text.decode()  # a part that is not read here is not looked at by msgspec
        return _checked("body", msgspec.json.decode(text or b"{}", type=kind))
    except msgspec.ValidationError as error:
        raise HttpProblem(422, f"The body is wrong: {fault_of(error, kind)}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HttpProblem(400, f"The body is not JSON: {error}.") from None


# -- what is answered


def _reply(endpoint: Endpoint, value: Any) -> Reply:
    if isinstance(value, Reply):
        return value
    return Reply(None if endpoint.status == 204 else value, endpoint.status, media_type=endpoint.media_type)


def encoded(reply: Reply) -> bytes:
    """Gives the body of an answer."""
    if reply.status in (204, 304):
        return b""
    if reply.media_type != JSON:
        body: bytes = reply.value
        return body
    return reply.value.to_json() if isinstance(reply.value, Outcome) else msgspec.json.encode(reply.value)


def _etag(reply: Reply) -> str:
    return f'"{blake2b(encoded(reply), digest_size=16).hexdigest()}"'


def _with_etag(request: ApiRequest, reply: Reply) -> Reply:
    if reply.status != 200 or not isinstance(reply.value, (bytes, msgspec.Struct, dict, list)):
        return reply
    tag = _etag(reply)
    headers = {**(reply.headers or {}), "etag": tag}
    known = _tags(request.headers.get(b"if-none-match", b""))
    if _names(known, tag) or f"W/{tag}" in known:
        return Reply(None, 304, headers)
    return Reply(reply.value, reply.status, headers, reply.media_type)


def _tags(header: bytes) -> list[str]:
    """Gives the ETags that a header lists. None of ours is weak, so that If-Match with a weak one matches nothing."""
    return [one.strip() for one in header.decode("latin-1").split(",")]


def _names(given: list[str], tag: str) -> bool:
    """Tells whether a list of ETags names this one."""
    return tag in given or given == ["*"]


async def _send(reply: Reply, scope: Scope, receive: Receive, send: Send) -> None:
    if callable(reply.value):  # a stream, which is an ASGI app of its own
        await reply.value(scope, receive, send)
        return
    body = encoded(reply)
    headers = [*ANSWER_HEADERS, *((name.encode(), text.encode("latin-1")) for name, text in (reply.headers or {}).items())]
    if reply.status not in (204, 304):
        headers += [(b"content-type", reply.media_type.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _problem(error: ToolgateError, list_path: str | None) -> Exception:
    if isinstance(error, HttpProblem):
        return error
    if isinstance(error, StoreError):
        logger.error("a request failed: %s", error)
    problem = problem_of(error)
    if problem is None:
        return error
    command = LIST_COMMAND.match(problem.suggestion or "")
    if problem.status == 404 and command and list_path == f"/v1/{command[1].replace(' ', '/')}":
        problem.suggestion = f"GET {list_path} lists them."  # who sends requests may have no terminal
    return problem
