"""Lists of the console: each has a row of filters, a count, files of what it shows, and a twin that answers the same."""

import re
from datetime import timedelta

import pytest

from tests.console.plain_browser import PlainBrowser, signed_in
from tests.serving import Site
from toolgate import Actor, App
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.model import NANO

pytestmark = pytest.mark.requirement("DOOR-2")

ANN = Actor("acme", "ops", "ann")
LISTS = (
    "/approvals", "/answered", "/grants", "/calls", "/tools", "/servers", "/budgets", "/jobs", "/schedules", "/audit",
    "/keys", "/tenants",
)  # fmt: skip
TWIN = re.compile(rb'This page as <a href="([^"]+)"')


async def fill(app: App) -> None:
    """Makes two of each thing that a filter tells apart."""
    for name, cron in (("morning", "0 8 * * *"), ("evening_50", "0 20 * * *")):
        await app.schedules.add(cron, "echo", {"text": name}, name=name, actor=ANN)
    await app.schedules.pause("morning", actor=ANN)
    old, _ = await app.keys.create("Old agent", ANN)
    await app.keys.revoke(old.id, by=ANN)
    await app.keys.create("mail agent", ANN)
    await app.keys.create("brief", ANN, lasting=timedelta(milliseconds=1))
    await app.budgets.set(new_budget("day", NANO, tenant="acme"))
    await app.budgets.set(new_budget("month", NANO, tenant="acme", tool="echo"))
    await app.invoke("echo", {"text": "x"}, actor=ANN)
    await app.invoke("echo", {"text": "x"}, actor=Actor("globex", user="eve"))
    await app.enqueue("echo", {"text": "x"}, actor=ANN, delay=3600)
    await app.enqueue("echo", {"text": "x"}, actor=Actor("acme", "clerk", "bob"), delay=3600)
    await app.flush()


async def twin_of(browser: PlainBrowser, path: str) -> list[dict[str, str]]:
    """The items that the twin of a page answers."""
    found = TWIN.search((await browser.get(path)).body)
    assert found is not None, path
    answer = await browser.get(found[1].decode().replace("&amp;", "&"))
    assert answer.status == 200, (path, answer.body)
    items: list[dict[str, str]] = answer.json["items"]
    return items


async def test_every_list_has_filters_a_count_and_files_of_what_it_shows(app: App, site: Site) -> None:
    await fill(app)
    ann = await signed_in(app, site, ANN, "operator")
    for path in LISTS:
        page = (await ann.get(path)).body
        assert b'class="filters"' in page, path
        if b'class="pager"' not in page:  # nothing is there: it says what would be, and the command that makes it appear
            assert b"<code>toolgate " in page.partition(b'class="empty"')[2], path
            continue
        assert re.search(rb'class="pager">\s*<span class="muted">\d+ shown', page), path
        for form, kind in (("csv", "text/csv; charset=utf-8"), ("json", "application/json")):
            answer = await ann.get(f"{path}?format={form}")
            assert (answer.status, answer.headers["content-type"]) == (200, kind), path
            assert answer.headers["content-disposition"].endswith(f'.{form}"'), path


FILTERED: tuple[tuple[str, str, list[str]], ...] = (
    ("/schedules?state=paused", "name", ["morning"]),
    ("/schedules?q=EVEN", "name", ["evening_50"]),
    ("/schedules?q=g_5", "name", ["evening_50"]),  # no sign of a pattern
    ("/schedules?q=%25", "name", []),
    ("/keys?state=revoked", "name", ["Old agent"]),
    ("/keys?state=expired", "name", ["brief"]),
    ("/keys?state=valid&q=AGENT", "name", ["mail agent"]),
    ("/tenants?q=lobe", "name", ["globex"]),
    ("/budgets?period=month", "tool", ["echo"]),
    ("/budgets?tool=echo", "period", ["month"]),
    ("/jobs?persona=clerk", "persona", ["clerk"]),
)


async def test_a_filter_holds_for_the_page_its_file_and_its_twin(app: App, site: Site) -> None:
    await fill(app)
    ann = await signed_in(app, site, ANN, "operator")
    for path, field, expected in FILTERED:
        listed = (await ann.get(f"{path}&format=json")).json
        assert [one[field] for one in listed] == expected, path
        assert [one[field] for one in await twin_of(ann, path)] == expected, path


async def test_servers_are_found_by_what_they_run_and_in_their_state(app: App, site: Site) -> None:
    await app.servers.add("near", {"command": ["/bin/cat"]})
    await app.servers.add("far", {"url": "https://far.example/mcp"})
    ann = await signed_in(app, site, ANN, "operator")
    assert [one["name"] for one in (await ann.get("/servers?q=bin&format=json")).json] == ["near"]
    assert [one["name"] for one in await twin_of(ann, "/servers?q=FAR.example")] == ["far"]
    assert b"No server fits" in (await ann.get("/servers?state=up")).body
    assert (await ann.get("/servers?state=asleep")).status == 422


async def test_who_only_reads_filters_calls_by_persona_and_acts_as_nobody_else(app: App, site: Site) -> None:
    for persona in ("ops", "clerk"):
        await app.invoke("echo", {"text": persona}, actor=Actor("acme", persona, "ann"))
    await app.flush()
    vera = await signed_in(app, site, Actor("acme", "ops", "vera"), "viewer")
    assert [one["persona"] for one in (await vera.get("/calls?persona=clerk&format=json")).json] == ["clerk"]
    assert len((await vera.get("/calls?format=json")).json) == 2
    page = (await vera.get("/tools/echo?persona=clerk")).body
    assert b"acme / ops" in page  # who may use it, as herself
    assert b"acme / clerk" not in page
    assert (await vera.get(f"/calls?persona={'x' * 300}")).status == 422
