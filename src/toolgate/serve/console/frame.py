"""From a request for a page to its function, and back.

In the order of /v1: where it was sent to and by which page, who sent it, whether they may, for which tenant, what it asks
for. A form is read and its hidden field compared before its function is called. What is refused becomes a page that says so.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from toolgate.errors import StoreError, ToolgateError
from toolgate.mcp.server.identity import CREDENTIAL_KEY, Credential
from toolgate.model import Actor
from toolgate.serve.authentication import check_single
from toolgate.serve.console.export import exported
from toolgate.serve.console.page import CARRIED, OWN_FIELDS, Go, PageRequest, PageRoute, View
from toolgate.serve.console.person import THEME_COOKIE, THEMES
from toolgate.serve.console.renderer import render
from toolgate.serve.console.shell import shell_of, surroundings_of
from toolgate.serve.console.words import DONE
from toolgate.serve.http.endpoint import forbidden
from toolgate.serve.http.handler import actor_of, converted, path_parameter, query_fields
from toolgate.serve.problems import HttpProblem, problem_of
from toolgate.serve.request_body import read_body
from toolgate.serve.session_cookie import read_cookie

if TYPE_CHECKING:
    from toolgate.serve.app import HttpApp

MAX_FORM_BYTES, MAX_FORM_FIELDS = 1_000_000, 500
FORM_TYPE = b"application/x-www-form-urlencoded"
PAGE_HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "same-origin",  # with none at all, browsers send forms without saying where from
    "x-content-type-options": "nosniff",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "vary": "Cookie",
}

logger = logging.getLogger("toolgate")


class PageHandler:
    """The ASGI app of one address: a page for each of its methods."""

    def __init__(self, routes: Iterable[PageRoute], page: str) -> None:
        """`page`: where a browser is sent that asks for the address of a form, as it does when the answer to that form is
        loaded again."""
        self.routes: dict[str, PageRoute] = {route.method: route for route in routes}
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._response(scope, receive)
        await response(scope, receive, send)

    async def _response(self, scope: Scope, receive: Receive) -> Response:
        http: HttpApp = scope["app"]
        headers = dict(scope["headers"])
        check_single(scope["headers"])
        http.authenticator.check_place(headers)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        route = self.routes.get(method)
        if route is None:
            if method == "GET" and b"text/html" in headers.get(b"accept", b""):
                return self._to_page(scope)
            allowed = ", ".join(sorted(self.routes))
            raise HttpProblem(405, f"{method} is not allowed at this address: use {allowed}.", headers={"allow": allowed})
        try:
            credential = await http.authenticator.check(scope, headers)
        except HttpProblem as problem:
            if problem.status != 401:
                raise
            return sign_in_page(scope)
        scope[CREDENTIAL_KEY] = credential
        request: PageRequest | None = None
        try:
            request = await _request(scope, receive, http, credential)
            shown = await _called(route, request)
            return await _answered(route, request, shown)
        except ToolgateError as error:
            return await _refused(route, request or await _plain_request(scope, receive, http, credential), error)

    def _to_page(self, scope: Scope) -> Response:
        path = self._page.format(**{name: quote(value, safe="") for name, value in scope["path_params"].items()})
        query = scope["query_string"].decode("latin-1")
        return RedirectResponse(f"{path}?{query}" if query else path, 303, headers=PAGE_HEADERS)


async def _request(scope: Scope, receive: Receive, http: "HttpApp", credential: Credential) -> PageRequest:
    fields = query_fields(scope["query_string"])
    actor, all_tenants = actor_of(credential, fields.get("tenant") or None)
    chosen = CARRIED if credential.may("operate") else ("persona",) if credential.may("read") else ()
    persona = fields.get("persona") or None if chosen else None
    acting = _as(actor, persona)
    actor = acting if credential.may("operate") else actor  # for everybody else it is a filter of what is shown
    request = await _plain_request(scope, receive, http, credential, actor=actor, many=all_tenants)
    request.fields = {name: value for name, value in fields.items() if name not in OWN_FIELDS}
    request.carried = {name: fields[name] for name in chosen if fields.get(name)}
    request.persona = persona
    return request


async def _plain_request(
    scope: Scope, receive: Receive, http: "HttpApp", credential: Credential, actor: Actor | None = None, many: bool = False
) -> PageRequest:
    """A request of which only the sender is known."""
    headers = dict(scope["headers"])
    request = PageRequest(http, credential, actor or credential.actor, scope, receive, headers, all_tenants=many)
    request.fields, request.carried, request.form = {}, {}, {}
    request.path, request.persona = scope["path"], None
    request.csrf = await http.app.sign_ins.csrf_token(credential)
    request.theme = _theme(headers)
    request.seq = (await http.app.audit.end()).seq
    return request


def _as(actor: Actor, persona: str | None) -> Actor:
    """The actor with the persona that an operator has chosen; everybody else has that of their credential."""
    if persona is None or persona == actor.persona:
        return actor
    try:
        return Actor(actor.tenant, persona, actor.user, actor.scopes)
    except ValueError as error:
        raise HttpProblem(422, f"{error}.") from None


def _theme(headers: dict[bytes, bytes]) -> str | None:
    chosen = (read_cookie(headers, THEME_COOKIE) or b"").decode("ascii", "replace")
    return chosen if chosen in THEMES else None


async def _called(route: PageRoute, request: PageRequest) -> View | Go:
    if route.permission not in request.credential.permissions:
        raise forbidden(route.permission)
    named: dict[str, Any] = {name: path_parameter(name, request.scope) for name in route.path_parameters}
    if route.query.__struct_fields__:
        named["query"] = converted({name: text for name, text in request.fields.items() if text}, route.query)
    elif request.fields:
        raise HttpProblem(422, f"Unknown query parameter: {min(request.fields)[:80]}.")
    if route.method == "POST":
        request.form = await _form(request)
        return await route.handle(request, **named)
    shown, _ = await asyncio.gather(route.handle(request, **named), request.once(surroundings_of))
    return shown


async def _form(request: PageRequest) -> dict[str, list[str]]:
    if request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != FORM_TYPE:
        raise HttpProblem(415, "The form must be sent as a form.")
    text = await read_body(request.headers, request.receive, MAX_FORM_BYTES, "serve.body_bytes")
    try:
        fields = parse_qs(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS)
    except ValueError:
        raise HttpProblem(400, "The form cannot be read.") from None
    sent = fields.pop("csrf", [""])
    if len(sent) != 1 or not await request.app.sign_ins.is_csrf_token(request.credential, sent[0]):
        raise HttpProblem(403, "The form was not sent by a page of this sign-in.", suggestion="Load the page again.")
    return fields


async def _answered(route: PageRoute, request: PageRequest, shown: View | Go) -> Response:
    if isinstance(shown, Go):
        return RedirectResponse(_target(request, shown), 303, headers={**PAGE_HEADERS, **shown.headers})
    query = query_fields(request.scope["query_string"])
    if (form := query.get("format")) and shown.listed is not None:
        return exported(shown.title, shown.listed, form, PAGE_HEADERS)
    shell = await shell_of(request, route, done=DONE.get(query.get("done", "")), twin=shown.twin)
    return HTMLResponse(render(request, shell, shown), shown.status, PAGE_HEADERS)


def _target(request: PageRequest, go: Go) -> str:
    """The address with the chosen tenant and persona, and the name of the sentence that is shown there."""
    parts = urlsplit(go.path)
    added = {name: value for name, value in request.carried.items() if f"{name}=" not in parts.query}
    query = "&".join(one for one in (parts.query, urlencode({**added, **({"done": go.done} if go.done else {})})) if one)
    return f"{parts.path}?{query}" if query else parts.path


async def _refused(route: PageRoute, request: PageRequest, error: ToolgateError) -> Response:
    if isinstance(error, StoreError):
        logger.error("a page failed: %s", error)
    problem = error if isinstance(error, HttpProblem) else problem_of(error)
    if problem is None:
        raise error
    view = View(
        template="problem.html",
        title={403: "Not allowed", 404: "Not found", 409: "It has changed"}.get(problem.status, "That did not work"),
        values={"problem": problem},
        status=problem.status,
    )
    return HTMLResponse(render(request, await shell_of(request, route), view), problem.status, PAGE_HEADERS)


async def refusal_page(route: PageRoute, scope: Scope, receive: Receive, problem: HttpProblem) -> Response:
    """The page of a problem, for somebody whose credential is known."""
    request = await _plain_request(scope, receive, scope["app"], scope[CREDENTIAL_KEY])
    return await _refused(route, request, problem)


def sign_in_page(scope: Scope, problem: HttpProblem | None = None) -> Response:
    """The page for somebody who is not signed in; with the problem of a link that did not work."""
    view = View(template="sign_in.html", title="Sign in", values={"problem": problem})
    status, headers = (401, None) if problem is None else (problem.status, problem.headers)
    text = render(None, None, view, theme=_theme(dict(scope["headers"])))
    return HTMLResponse(text, status, {**PAGE_HEADERS, **(headers or {})})


def routes_of(declared: Sequence[PageRoute]) -> list[Route]:
    """A route for each address."""
    found: dict[str, list[PageRoute]] = {}
    for one in declared:
        found.setdefault(one.path, []).append(one)
    pages = {route.path for route in declared if route.method == "GET"}
    return [Route(path, PageHandler(routes, routes[0].page or _page_above(path, pages))) for path, routes in found.items()]


def _page_above(path: str, pages: set[str]) -> str:
    """The page that is the nearest above an address, which is that address if it has one."""
    while path not in pages:
        path = path.rpartition("/")[0] or "/"
    return path
