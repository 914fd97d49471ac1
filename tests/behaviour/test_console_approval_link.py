"""The plain pages of people who are signed in: what waits, and one call that does."""

import re
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import pytest

from tests.serving import Answer, Site, serving
from toolgate import Actor, App, tool
from toolgate.model.roles import Role
from toolgate.testing import memory_app

ANN, BOB = Actor("acme", user="ann"), Actor("acme", user="bob")
HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"


@tool(tier="external_api")
async def pay(amount: int, note: str = "") -> str:
    """Pay somebody."""
    return f"{amount} {note}"


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app() as app:
        app.register(pay)
        yield app


@pytest.fixture
async def site(app: App) -> AsyncIterator[Site]:
    async with serving(app) as site:
        yield site


async def signed_in(app: App, site: Site, actor: Actor, *roles: Role) -> dict[str, str]:
    """The headers of a browser of this person's."""
    _, token = await app.sign_ins.create_link(actor, roles=roles)
    answer = await site("GET", f"/sign-in?token={token}")
    assert (answer.status, answer.headers["location"]) == (303, "/")
    return {"Cookie": answer.headers["set-cookie"].split(";")[0]}


async def asked(app: App) -> str:
    waiting = await app.invoke("pay", {"amount": 5, "note": HOSTILE}, actor=ANN)
    assert waiting.pending is not None
    return waiting.pending.id


async def submit(site: Site, id: str, browser: dict[str, str], **fields: str) -> Answer:
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://{site.host}"}
    return await site("POST", f"/approvals/{id}", {**browser, **form}, urlencode(fields).encode())


def csrf_of(page: Answer) -> str:
    found = re.search(rb'name="csrf" value="([0-9a-f]+)"', page.body)
    assert found is not None, page.body
    return found[1].decode()


@pytest.mark.requirement("DOOR-7", "TIER-6")
async def test_a_link_opens_exactly_the_call_and_its_form_answers_it(app: App, site: Site) -> None:
    id = await asked(app)
    browser = await signed_in(app, site, BOB, "approver")
    inbox = await site("GET", "/approvals", browser)
    assert f"/approvals/{id}".encode() in inbox.body and b"bob of acme" in inbox.body
    page = await site("GET", f"/approvals/{id}", browser)
    assert page.status == 200 and b"pay" in page.body
    assert b"<script>" not in page.body and b"\x1b" not in page.body and "\u202e".encode() not in page.body
    assert "'none'" in page.headers["content-security-policy"]
    done = await submit(site, id, browser, csrf=csrf_of(page), verdict="approve", run="on")
    assert (done.status, done.headers["location"]) == (303, f"/approvals/{id}?done=approved-run")
    after = await site("GET", f"/approvals/{id}", browser)
    assert b"Answered by bob" in after.body and b'name="verdict"' not in after.body
    approval = await app.approvals.get(id, "acme")
    assert (approval.state, approval.answered_by, approval.answered_through) == ("used", "bob", "http")


@pytest.mark.requirement("DOOR-7")
async def test_the_link_alone_answers_nothing(app: App, site: Site) -> None:
    id = await asked(app)
    stranger = await site("GET", f"/approvals/{id}")
    assert stranger.status == 401 and b"toolgate sign-in" in stranger.body and b"pay" not in stranger.body
    assert (await submit(site, id, {}, verdict="approve")).status == 401
    approver = await signed_in(app, site, BOB, "approver")
    for fields in ({}, {"csrf": "0" * 64}):
        assert (await submit(site, id, approver, verdict="approve", **fields)).status == 403
    asker = await signed_in(app, site, ANN, "approver")
    page = await site("GET", f"/approvals/{id}", asker)
    assert b"You may not answer it." in page.body and b'name="verdict"' not in page.body
    assert f"toolgate approvals approve {id}".encode() in page.body, "it says who can answer, and where"
    csrf = csrf_of(await site("GET", f"/approvals/{id}", approver))
    assert (await submit(site, id, asker, csrf=csrf, verdict="approve")).status == 403  # another session's
    viewer = await signed_in(app, site, Actor("acme", user="vera"), "viewer")
    assert (await submit(site, id, viewer, verdict="approve")).status == 403
    assert (await submit(site, id, approver, csrf=csrf, verdict="maybe")).status == 422
    elsewhere = await signed_in(app, site, Actor("other", user="eve"), "admin")
    assert (await site("GET", f"/approvals/{id}", elsewhere)).status == 404
    assert await app.approvals.state(id, "acme") == "waiting"
