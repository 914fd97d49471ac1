"""The pages for people who are signed in: who they are and what waits for them (/), and one call that waits
(/approvals/{id}), which is where messages about it lead.

They are plain on purpose, need no script and load nothing. The link of a message opens a page and answers nothing: that
takes a person who is signed in, may answer, and sends the page's form, whose hidden field no other page knows.
"""

from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from toolgate.errors import ToolgateError
from toolgate.gates.approval.request import Verdict
from toolgate.mcp.server.identity import CREDENTIAL_KEY, Credential
from toolgate.serve.authentication import check_single
from toolgate.serve.http.approvals import (
    ApprovalAnswer,
    ApprovalDetail,
    ApprovalsQuery,
    answer_approval,
    get_approval,
    list_approvals,
)
from toolgate.serve.http.endpoint import ApiRequest, forbidden
from toolgate.serve.problems import HttpProblem, problem_of
from toolgate.serve.request_body import read_body

if TYPE_CHECKING:
    from toolgate.serve.app import HttpApp

MAX_FORM_BYTES, MAX_FORM_FIELDS, MAX_REASON_CHARS = 16_384, 8, 1_000
SHOWN_APPROVALS = 50
VERDICTS: dict[str, Verdict] = {"approve": "approve", "reject": "reject"}
FORM_TYPE = b"application/x-www-form-urlencoded"
PAGE_HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "same-origin",  # with none at all, browsers send forms without saying where from
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
}
DOCUMENT = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title} · Toolgate</title></head>'
    '<body><header><a href="/">Toolgate</a></header><main><h1>{title}</h1>{body}</main></body></html>\n'
)
LINKS = (
    '<p><a href="/v1/tools">Tools</a>, <a href="/v1/invocations">calls</a> and <a href="/v1/openapi.json">all routes</a>, '
    "as JSON.</p>"
)
SIGN_IN = (
    "<p>You are not signed in here. On the machine of the server, "
    "<code>toolgate sign-in</code> prints a link that does it.</p>"
)


async def home(request: Request) -> Response:
    """Who is signed in, and the calls that wait."""
    sender = await _sender(request)
    if isinstance(sender, Response):
        return sender
    actor = sender.actor
    found = await list_approvals(sender, ApprovalsQuery(state="waiting", limit=SHOWN_APPROVALS))
    rows = "".join(
        f'<li><a href="/approvals/{quote(one.id, safe="")}">{escape(one.tool)}</a> for {escape(one.asked_by.user)}, '
        f"until {one.expires_at:%Y-%m-%d %H:%M} UTC</li>"
        for one in found.items
    )
    more = "<p>There are more.</p>" if found.next is not None else ""
    waiting = f"<ul>{rows}</ul>{more}" if rows else "<p>No call waits for a person.</p>"
    persona = "" if actor.persona is None else f" as {actor.persona}"
    who = f"<p>You are {escape(actor.user)} of tenant {escape(actor.tenant)}{escape(persona)}.</p>"
    return _page("Calls that wait", who + waiting + LINKS)


async def approval(request: Request) -> Response:
    """One call that waits, with a form for whoever may answer."""
    sender = await _sender(request)
    if isinstance(sender, Response):
        return sender
    id = request.path_params["id"]
    try:
        if request.method == "POST":
            return await _answer(sender, id)
        asked = await get_approval(sender, id)
    except ToolgateError as error:
        return _refused(error)
    csrf = await sender.app.sign_ins.csrf_token(sender.credential)
    return _page(f"{asked.tool}: {asked.state}", _told(asked) + (_form(csrf) if _is_open(asked) else ""))


async def _answer(sender: ApiRequest, id: str) -> Response:
    sender.require("answer")
    fields = await _fields(sender)
    if not await sender.app.sign_ins.is_csrf_token(sender.credential, fields.get("csrf", "")):
        raise HttpProblem(403, "The form was not sent by a page of this sign-in.", suggestion="Load the page again.")
    verdict, reason = VERDICTS.get(fields.get("verdict", "")), fields.get("reason") or None
    if verdict is None or len(reason or "") > MAX_REASON_CHARS:
        raise HttpProblem(422, f"The answer is approve or reject, with at most {MAX_REASON_CHARS:,} characters of reason.")
    body = ApprovalAnswer(verdict=verdict, reason=reason, run=verdict == "approve" and "run" in fields)
    await answer_approval(sender, id, body)
    return RedirectResponse(f"/approvals/{quote(id, safe='')}", 303, headers=PAGE_HEADERS)


async def _fields(sender: ApiRequest) -> dict[str, str]:
    if sender.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != FORM_TYPE:
        raise HttpProblem(415, "The form must be sent as a form.")
    text = await read_body(sender.headers, sender.receive, MAX_FORM_BYTES, "serve.body_bytes")
    try:
        return dict(parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS))
    except ValueError:
        raise HttpProblem(400, "The form cannot be read.") from None


def _is_open(asked: ApprovalDetail) -> bool:
    return asked.state == "waiting" and asked.may_answer


def _told(asked: ApprovalDetail) -> str:
    became = "" if asked.answered_by is None else f"<p>Answered by {escape(asked.answered_by)}.</p>"
    cannot = "" if asked.state != "waiting" or asked.may_answer else "<p>You may not answer it.</p>"
    return f"<pre>{escape(asked.text)}</pre>{became}{cannot}"


def _form(csrf: str) -> str:
    return (
        f'<form method="post"><input type="hidden" name="csrf" value="{escape(csrf)}">'
        f'<p><label>Reason <input name="reason" maxlength="{MAX_REASON_CHARS}"></label></p>'
        '<p><label><input type="checkbox" name="run"> Run it now</label></p>'
        '<p><button name="verdict" value="approve">Approve</button> '
        '<button name="verdict" value="reject">Reject</button></p></form>'
    )


# -- who asks, and what they are told


async def _sender(request: Request) -> ApiRequest | Response:
    """The request of somebody who is signed in; a page that says how, for everybody else."""
    http: HttpApp = request.app
    scope = request.scope
    headers = dict(scope["headers"])
    check_single(scope["headers"])
    http.authenticator.check_place(headers)
    try:
        credential: Credential = await http.authenticator.check(scope, headers)
    except HttpProblem as problem:
        if problem.status != 401:
            raise
        return _page("Sign in", SIGN_IN, 401)
    if not credential.may("own"):
        raise forbidden("own")
    scope[CREDENTIAL_KEY] = credential
    return ApiRequest(http, credential, credential.actor, scope, request.receive, headers, all_tenants=False)


def _refused(error: ToolgateError) -> Response:
    problem = error if isinstance(error, HttpProblem) else problem_of(error)
    if problem is None:
        raise error
    advice = "" if problem.suggestion is None else f"<p>{escape(problem.suggestion)}</p>"
    title = "Not found" if problem.status == 404 else "Not done"
    return _page(title, f"<p>{escape(problem.message)}</p>{advice}", problem.status)


def _page(title: str, body: str, status: int = 200) -> Response:
    return HTMLResponse(DOCUMENT.format(title=escape(title), body=body), status, PAGE_HEADERS)


routes = [Route("/", home), Route("/approvals/{id}", approval, methods=["GET", "POST"])]
