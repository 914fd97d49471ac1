"""GET /sign-in: a one-time link is opened, and the browser is signed in.

The link is used up only by a person who opens it as a page: not by a browser that fetches ahead, nor as the image or frame
of another page. Whoever comes signed in already is given a session of their own all the same, and the old one ends.
"""

import html
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from toolgate.serve.authentication import check_single
from toolgate.serve.hosts import Headers
from toolgate.serve.problems import HttpProblem
from toolgate.serve.session_cookie import set_cookie

if TYPE_CHECKING:
    from toolgate.serve.app import HttpApp

PATH = "/sign-in"
FETCHED_AHEAD = (b"sec-purpose", b"purpose", b"x-purpose", b"x-moz")
"""Headers with which browsers say that nobody has opened the page yet."""
MAX_QUERY_BYTES = 4_096
MAX_NEXT_CHARS = 2_048
_OWN_PATH = re.compile(r"/(?!/)[A-Za-z0-9._~!$&'()*+,;=:@%/?#-]*")
OWN_HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={next}">
<title>Toolgate</title><p>You are signed in. <a href="{next}">Go on</a>.</p></html>
"""


async def sign_in(request: Request) -> Response:
    http: HttpApp = request.app
    scope, headers = request.scope, dict(request.scope["headers"])
    check_single(scope["headers"])
    http.authenticator.check_place(headers)
    if request.method != "GET":
        raise HttpProblem(405, f"{request.method} is not allowed at this address: use GET.", headers={"allow": "GET"})
    _check_opened(headers)
    token, target = _asked(scope["query_string"])
    opened = await http.authenticator.open_link(scope, token)
    if opened is None:
        raise HttpProblem(
            403,
            "The link does not work: it was used, has expired, or is not whole.",
            suggestion="`toolgate sign-in` makes a new one.",
        )
    session, text = opened
    await http.authenticator.end_session(scope, headers)
    lasts = int((session.expires_at - session.created_at).total_seconds())
    cookie = {"set-cookie": set_cookie(http.authenticator.origin(scope, headers), text, lasts)}
    if headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site"):
        # Opened by a page of somebody else: a redirect would be made in its name, and without the cookie.
        return HTMLResponse(PAGE.format(next=html.escape(target)), headers={**OWN_HEADERS, **cookie})
    return RedirectResponse(target, 303, headers={**OWN_HEADERS, **cookie})


def _check_opened(headers: Headers) -> None:
    """Raises an HttpProblem unless a person has opened a page."""
    ahead = any(name in headers for name in FETCHED_AHEAD)
    if ahead or headers.get(b"sec-fetch-dest", b"document") != b"document":
        raise HttpProblem(403, "The link must be opened as a page.")


def _asked(query: bytes) -> tuple[str, str]:
    """The token of the link, and the page to go to. Raises an HttpProblem, before the link is used up."""
    try:
        if len(query) > MAX_QUERY_BYTES:
            raise ValueError
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=2
        )
    except ValueError:
        pairs = []
    fields = dict(pairs)
    target = fields.get("next", "/")
    if len(fields) != len(pairs) or "token" not in fields or not fields.keys() <= {"token", "next"}:
        raise HttpProblem(400, "The link is not whole.", suggestion="`toolgate sign-in` makes a new one.")
    if not is_own_page(target):
        raise HttpProblem(400, "The link leads away from this server.", suggestion="Leave `next` out.")
    return fields["token"], target


def is_own_page(target: str) -> bool:
    """Tells whether a text is the path of a page of this server, to every browser: with one slash at its beginning, and
    nothing that some of them take for a second one, or leave out."""
    return len(target) <= MAX_NEXT_CHARS and _OWN_PATH.fullmatch(target) is not None


routes = [Route(PATH, sign_in)]
