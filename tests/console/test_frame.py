"""The frame of the console: sign-in, theme, keys, what is lost and found again."""

import asyncio
import re

import pytest
from playwright.async_api import Route, expect

from tests.chromium import SEARCH_MS, People
from tests.serving import Site
from toolgate import Actor, App

pytestmark = pytest.mark.needs("chromium")

ANN = Actor("acme", user="ann")


@pytest.mark.requirement("DOOR-2")
async def test_calls_appear_by_themselves_and_the_theme_stays(app: App, people: People) -> None:
    page = await people.sign_in(ANN, "operator")
    await expect(page.get_by_text("No call was made yet")).to_be_visible()
    await app.invoke("echo", {"text": "hello"}, actor=ANN)
    await expect(page.get_by_role("link", name="echo")).to_be_visible()
    await page.locator("#who summary").click()
    await page.get_by_role("button", name="Dark").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await page.keyboard.press("/")
    await expect(page.locator("#search")).to_be_focused()


@pytest.mark.requirement("DOOR-2")
async def test_who_is_not_signed_in_is_told_how(people: People) -> None:
    page = await people.sign_in(ANN, "viewer")
    await page.locator("#who summary").click()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_text("toolgate sign-in", exact=True).first).to_be_visible()


@pytest.mark.requirement("DOOR-2")
async def test_a_slow_search_does_not_take_the_place_of_the_page_that_was_chosen_after_it(people: People) -> None:
    page = await people.sign_in(ANN, "operator", path="/tools")
    enough = asyncio.Event()

    async def slow(route: Route) -> None:
        await enough.wait()
        await route.continue_()

    await page.route(re.compile(r"/tools\?q="), slow)
    await page.keyboard.press("f")
    await page.keyboard.type("files")
    await page.keyboard.press("Enter")
    await page.get_by_role("link", name="echo", exact=True).click()
    heading = page.get_by_role("heading", level=1)
    await expect(heading).to_have_text("echo")
    async with page.expect_event("requestfinished", lambda request: "tools?q=" in request.url):
        enough.set()
    await page.evaluate("new Promise((done) => setTimeout(done, 200))")  # time for it to be shown
    await expect(heading).to_have_text("echo")
    assert page.url.endswith("/tools/echo")


@pytest.mark.requirement("DOOR-2")
async def test_a_part_that_could_not_be_loaded_is_loaded_again(people: People) -> None:
    page = await people.sign_in(ANN, "operator", path="/schedules/new")

    async def refuse(route: Route) -> None:
        await route.fulfill(status=429, content_type="application/json", body='{"title": "too many requests"}')

    await page.route(re.compile("/schedules/times"), refuse)
    cron = page.locator("#f-cron")
    async with page.expect_event("requestfinished", lambda request: "/schedules/times" in request.url):
        await cron.press_sequentially("0 1 * *")
    await page.unroute(re.compile("/schedules/times"))
    await cron.press_sequentially(" *")
    await expect(page.locator("#times li")).to_have_count(5)
    await cron.press_sequentially(" wrong")
    await expect(page.locator("#times li")).to_have_count(0)  # an answer of status 422 has the part, and is shown


@pytest.mark.requirement("DOOR-2")
async def test_results_that_are_shown_ahead_do_not_rename_the_page(people: People) -> None:
    page = await people.sign_in(ANN, "operator", path="/tools/echo")
    title = await page.title()
    await page.keyboard.press("/")
    await page.keyboard.type("echo")
    await expect(page.locator("#ahead a").first).to_be_visible(timeout=SEARCH_MS)
    assert await page.title() == title


@pytest.mark.requirement("DOOR-2")
async def test_a_click_that_does_not_reach_the_server_says_so(people: People) -> None:
    page = await people.sign_in(ANN, "operator", path="/tools")
    await page.route(re.compile("/calls$"), lambda route: route.abort())
    link = page.get_by_role("link", name="Calls", exact=True)
    await link.click()
    await expect(page.locator("#lost")).to_be_visible()
    await page.keyboard.press("f")  # keys act on the page that is still there
    await expect(page.get_by_role("searchbox", name="Search", exact=True)).to_be_focused()
    await page.unroute(re.compile("/calls$"))
    await link.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Calls")
    await expect(page.locator("#lost")).to_be_hidden()
    assert all("ERR_FAILED" in fault or "htmx:" in fault for fault in people.faults), people.faults
    people.faults.clear()


@pytest.mark.requirement("DOOR-2")
async def test_a_refused_form_that_is_loaded_again_is_its_page(people: People) -> None:
    page = await people.sign_in(ANN, "operator", path="/keys")
    await page.get_by_text("Set a secret").click()
    async with page.expect_response(re.compile("/secrets$")) as refused:
        await page.locator("form[action='/secrets'] button").last.click()
    assert (await refused.value).status == 422
    await expect(page).to_have_url(re.compile("/secrets$"))
    answer = await page.reload()
    assert answer is not None
    assert (answer.status, page.url) == (200, f"{people.url}/keys")


@pytest.mark.requirement("DOOR-2")
@pytest.mark.parametrize(
    ("address", "page"),
    [
        ("/tools/a%20b/flag?persona=ops", "/tools/a%20b?persona=ops"), ("/learning/feedback", "/learning"),
        ("/budgets/7", "/budgets"), ("/jobs/7/change", "/jobs/7"), ("/sign-ins/7", "/keys"), ("/theme", "/"),
    ],
)  # fmt: skip
async def test_the_address_of_a_form_leads_browsers_to_its_page(site: Site, address: str, page: str) -> None:
    answer = await site("GET", address, {"Accept": "text/html,*/*;q=0.8"})
    assert (answer.status, answer.headers["location"]) == (303, page)
    assert (await site("GET", address, {"Accept": "application/json"})).status == 405
