"""What holds for every page of the console: whoever asks, whatever is shown on it, light or dark, on a desk or a phone."""

import re
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.chromium import COLOURS, DESKTOP, PHONE, People, inaccessible
from tests.console.hostile_world import ANN, HIDDEN, PRINTED, fill
from tests.serving import Site
from toolgate import Actor, App
from toolgate.model.roles import ROLES, permissions_of
from toolgate.serve.console.site import ROUTES

SHOWN = {route.path for route in ROUTES if route.method == "GET"}
FORMS = {route.path for route in ROUTES if route.method == "POST"}
UNSEEN = re.compile(f"[{re.escape(HIDDEN.replace('[31m', '').replace(']8;;http://x', ''))}]")
NARROW = (
    "[...document.querySelectorAll('.panel')].filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.id)"
)
"""Panels that are narrower than what is in them."""
NOT_SHOWN = {"/servers/{name}", "/calls/{id}/undo"}
"""Pages of things that this world does not have, or that are for one user alone; their own tests look at them."""


FOR_ALL_TENANTS = {"/tools/{name}", "/openapi/{name}"}
"""Pages of things that are everybody's: whoever has the permission sees them, whatever the tenant."""


STATES = (
    *(f"/approvals/{{id}}?do={one}" for one in ("edit", "grant", "reject")), "/answered?state=rejected", "/grants?all=true",
    "/learning?task=tell+it", "/policy/suggestions?replay=yes", "/search?q=tell", "/tools?q=tell",
    "/calls?range=all&user=ann",
)  # fmt: skip
"""Pages as they are with a form open or something chosen."""


def addresses(things: dict[str, str]) -> list[str]:
    missing = {path for path in SHOWN if "{" in path} - things.keys() - NOT_SHOWN
    assert not missing, f"fill() makes nothing for {missing}"
    plain = [things.get(path, path) if "{" not in path else _filled(path, things) for path in SHOWN - NOT_SHOWN]
    return sorted([*plain, *(path.replace("{id}", things["/approvals/{id}"]) for path in STATES)])


def _filled(path: str, things: dict[str, str]) -> str:
    return re.sub(r"\{\w+\}", things[path], path)


@pytest.mark.requirement("DOOR-2")
@pytest.mark.needs("chromium")
@pytest.mark.timeout(300)
async def test_nothing_that_is_shown_runs_or_hides(app: App, people: People) -> None:
    things = await fill(app)
    page = await people.sign_in(ANN, "operator", viewport=PHONE)
    wrong: dict[str, Any] = {}
    for address in addresses(things):
        answer = await page.goto(people.url + address)
        assert answer is not None
        text = await page.evaluate("document.documentElement.innerText + document.documentElement.outerHTML")
        wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        hacked = await page.evaluate("'hacked' in window")
        narrow = await page.evaluate(NARROW)
        if hacked or answer.status != 200 or wide > 0 or narrow or UNSEEN.search(text):
            found = UNSEEN.search(text)
            around = text[max(0, found.start() - 80) : found.start() + 80] if found else ""
            wrong[address] = {
                "status": answer.status,
                "hacked": hacked,
                "too wide": wide,
                "narrow": narrow,
                "unseen": around,
            }
    assert not wrong


@pytest.mark.requirement("DOOR-2")
@pytest.mark.needs("chromium")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("scheme", "rules"),
    [
        pytest.param("light", (), id="light"),
        pytest.param("dark", COLOURS, id="dark", marks=pytest.mark.matrix("it takes seconds, and only colours differ")),
    ],
)
async def test_axe_finds_nothing_serious(app: App, people: People, scheme: str, rules: tuple[str, ...]) -> None:
    things = await fill(app)
    page = await people.sign_in(ANN, "operator", viewport=DESKTOP, color_scheme=scheme)
    wrong: dict[str, Any] = {}
    for address in addresses(things):
        await page.goto(people.url + address)
        if found := (await inaccessible(page, *rules) or await page.evaluate(NARROW)):
            wrong[address] = found
    assert not wrong


@pytest.mark.requirement("DOOR-2", "DOOR-3")
async def test_pages_are_for_those_who_may_see_them(app: App, site: Site) -> None:
    """Another tenant's things look missing, a role that may not is told so, and nobody without a sign-in sees anything."""
    things = await fill(app)
    keys = {
        (role, tenant): (await app.keys.create(f"{role} {tenant}", Actor(tenant, user="bob"), roles=[role]))[1]
        for role in ROLES
        for tenant in ("acme", "other")
    }
    wrong: dict[Any, Any] = {}
    for route in (route for route in ROUTES if route.method == "GET" and route.path not in NOT_SHOWN):
        address = _filled(route.path, things) if "{" in route.path else route.path
        if (await site("GET", address)).status != 401:
            wrong[address, "nobody"] = "served"
        for (role, tenant), key in keys.items():
            answer = await site("GET", address, key=key)
            if route.permission not in permissions_of([role]):
                expected: tuple[int, ...] = (403,)
            elif "{" in route.path and route.path not in FOR_ALL_TENANTS:
                own = tenant == "acme" and "read" in permissions_of([role])
                expected = (200,) if own else (404,)
            else:
                expected = (200,)
            if answer.status not in expected:
                wrong[address, role, tenant] = answer.status
            if tenant == "other" and PRINTED.encode()[:20] in answer.body:
                wrong[address, role, "markup"] = answer.body[:200]
    assert not wrong


@pytest.mark.requirement("DOOR-2", "DOOR-3")
async def test_a_form_that_no_page_of_ours_sent_does_nothing(app: App, site: Site) -> None:
    things = await fill(app)
    _, key = await app.keys.create("operator", ANN, roles=["operator"])
    before = (await app.audit.end()).seq
    wrong = {}
    for path in sorted(FORMS):
        address = re.sub(r"\{\w+\}", "x", path) if path not in things else _filled(path, things)
        for fields in ({}, {"csrf": "0" * 64}, {"csrf": ""}):
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            answer = await site("POST", address, form, urlencode(fields).encode(), key=key)
            if answer.status != 403:
                wrong[path, str(fields)] = answer.status
    assert not wrong
    await app.flush()
    assert (await app.audit.end()).seq == before
