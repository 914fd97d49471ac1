"""The page of an address that nothing is at, or of a link that does not sign in, for people in a browser. Programs are
answered with a problem document."""

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope

from toolgate.errors import ToolgateError
from toolgate.mcp.server.identity import CREDENTIAL_KEY
from toolgate.serve.authentication import check_single
from toolgate.serve.console.frame import refusal_page, sign_in_page
from toolgate.serve.console.page import PageRoute
from toolgate.serve.console.site import ROUTES
from toolgate.serve.problems import HttpProblem

FOR_PROGRAMS = ("v1", "mcp", "assets", ".well-known", "metrics", "healthz", "readyz")
"""First parts of addresses that no page is at."""
HTML = b"text/html"
SIGN_IN = "/sign-in"
BY_SECTION: dict[str, PageRoute] = {route.path.split("/")[1]: route for route in reversed(ROUTES)}


async def unknown_page(scope: Scope, receive: Receive) -> Response | None:
    """Gives the page that a browser is shown in place of a problem document; None: it is no browser, or nobody who is signed
    in asks for an address of the console."""
    headers = dict(scope["headers"])
    section = scope["path"].removeprefix("/").split("/")[0]
    if scope["method"] not in ("GET", "HEAD") or HTML not in headers.get(b"accept", b"") or section in FOR_PROGRAMS:
        return None
    try:
        check_single(scope["headers"])
        scope["app"].authenticator.check_place(headers)
        scope[CREDENTIAL_KEY] = await scope["app"].authenticator.check(scope, headers)
        route = msgspec.structs.replace(BY_SECTION.get(section, BY_SECTION[""]), twin=None)
        suggestion = "It may have been moved or removed, or the address may have been typed wrongly."
        return await refusal_page(route, scope, receive, HttpProblem(404, "There is no page here.", suggestion=suggestion))
    except HttpProblem as problem:
        return sign_in_page(scope) if problem.status == 401 and section in BY_SECTION else None
    except ToolgateError:
        return None


def refused_link(scope: Scope, problem: HttpProblem) -> Response | None:
    """Gives the page that says how to get another link, where one did not sign a browser in; None: it is no browser, or
    another address."""
    is_browser = HTML in dict(scope["headers"]).get(b"accept", b"")
    return sign_in_page(scope, problem) if scope["path"] == SIGN_IN and is_browser else None
