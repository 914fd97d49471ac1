"""The frame of the console: sign-in, theme, keys, what is lost and found again."""

import asyncio
import re

import pytest
from playwright.async_api import Route, expect

from tests.chromium import People
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
