"""Somebody who is quicker than the server: each key and click counts once, and for what was on the page when it was made."""

import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page, Request, expect

from tests.chromium import People
from tests.console.held_answers import HeldAnswers, hold
from toolgate import Actor, App, tool

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.requirement("DOOR-2")]

ANN, BOB = Actor("acme", user="ann"), Actor("acme", user="bob")


@tool(tier="external_api")
async def pay(amount: int) -> str:
    """Pay somebody."""
    return str(amount)


@pytest.fixture
async def app(app: App) -> AsyncIterator[App]:
    app.register(pay)
    yield app


async def ask(app: App, amount: int) -> str:
    outcome = await app.invoke("pay", {"amount": amount}, actor=ANN)
    assert outcome.pending is not None, outcome
    return outcome.pending.id


async def choose(page: Page, place: str) -> None:
    await page.get_by_role("link", name=place, exact=True).click()


async def is_at(page: Page, place: str) -> None:
    await expect(page.get_by_role("heading", level=1)).to_have_text(place)


async def let_through(page: Page, held: HeldAnswers, address: str) -> None:
    """Releases an answer, and waits until the page has it."""
    async with page.expect_event("requestfinished", lambda request: request.url.endswith(address)):
        held.release()
    await page.evaluate("new Promise((done) => setTimeout(done, 100))")  # time for it to be shown


async def test_what_is_typed_into_filters_is_not_taken_for_keys(app: App, people: People) -> None:
    waiting = [await ask(app, number) for number in (1, 2)]
    page = await people.sign_in(BOB, "approver", path="/approvals")
    held = await hold(page, r"/approvals\?")
    await page.locator("form.filters [name=tool]").focus()
    await page.keyboard.type("pay")
    await page.keyboard.press("Tab")  # sends the filter; the key a approves
    await held.made.wait()
    await page.keyboard.type("an")
    held.release()
    await expect(page).to_have_url(re.compile(r"/approvals\?tool=pay$"))
    user = page.locator("form.filters [name=user]")
    await expect(user).to_be_focused()
    await page.keyboard.type("n")
    await expect(user).to_have_value("ann")
    assert [await app.approvals.state(id, "acme") for id in waiting] == ["waiting", "waiting"]
    await page.keyboard.press("Tab")
    await expect(page).to_have_url(re.compile(r"/approvals\?tool=pay&user=ann$"))
    assert [await app.approvals.state(id, "acme") for id in waiting] == ["waiting", "waiting"]


async def test_a_key_waits_for_the_call_that_was_gone_to(app: App, people: People) -> None:
    first, second = [await ask(app, number) for number in (1, 2)]
    page = await people.sign_in(BOB, "approver", path="/approvals")
    held = await hold(page, second)
    await page.keyboard.press("j")
    await held.made.wait()
    await page.keyboard.press("a")  # the button of the first is still there
    held.release()
    await expect(page).to_have_url(re.compile(second))
    await page.keyboard.press("a")
    await expect(page.locator(f"#became-{second}")).to_contain_text("success")
    assert await app.approvals.state(first, "acme") == "waiting"


async def test_a_form_is_sent_once_and_its_answer_is_shown(people: People) -> None:
    page = await people.sign_in(BOB, "operator", path="/keys")
    held = await hold(page, "/keys$", "POST")
    await page.keyboard.press("n")
    await page.locator("#f-name").fill("agent")
    await page.get_by_role("button", name="Make the key").dblclick()
    await held.made.wait()
    await expect(page.locator("#sending")).to_be_hidden()
    await choose(page, "Tools")
    await expect(page.locator("#sending")).to_be_visible()
    held.release()
    await expect(page.locator(".made")).to_contain_text("tg_")
    await expect(page.locator("#sending")).to_be_hidden()
    assert held.number == 1
    await choose(page, "Tools")
    await is_at(page, "Tools")


async def test_what_came_of_a_form_is_shown_though_a_link_was_chosen(people: People) -> None:
    page = await people.sign_in(ANN, "operator", path="/tools/echo")
    held = await hold(page, "/tools/echo$", "POST")
    await page.locator("#try [name='/text']").fill("hello")
    await page.get_by_role("button", name="Run", exact=True).click()
    await held.made.wait()
    await page.evaluate(
        """for (const name of ["Calls", "JSON"])  // the second without htmx
            [...document.links].find((one) => one.textContent === name).click()"""
    )
    held.release()
    await expect(page.locator("#result")).to_contain_text("hello")
    await expect(page).to_have_url(re.compile("/tools/echo#result$"))


async def test_who_has_read_that_a_result_will_come_can_leave_without_it(people: People) -> None:
    page = await people.sign_in(ANN, "operator", path="/tools/echo")
    held = await hold(page, "/tools/echo$", "POST")
    await page.locator("#try [name='/text']").fill("hello")
    await page.get_by_role("button", name="Run", exact=True).click()
    await held.made.wait()
    await choose(page, "Calls")
    await expect(page.locator("#sending")).to_be_visible()
    await page.evaluate("new Promise((done) => setTimeout(done, 1100))")  # time to read it
    await choose(page, "Calls")
    await is_at(page, "Calls")
    await let_through(page, held, "/tools/echo")
    await is_at(page, "Calls")


async def test_a_link_that_is_clicked_twice_does_not_come_back_later(people: People) -> None:
    page = await people.sign_in(ANN, "operator")
    calls, tools = await hold(page, "/calls$"), await hold(page, "/tools$")
    await page.get_by_role("link", name="Calls", exact=True).dblclick()
    await choose(page, "Tools")
    await tools.made.wait()
    await let_through(page, calls, "/calls")
    tools.release()
    await is_at(page, "Tools")
    assert calls.number == 1


async def test_a_page_that_is_chosen_again_is_the_one_that_is_shown(people: People) -> None:
    page = await people.sign_in(ANN, "operator")
    calls, tools = await hold(page, "/calls$"), await hold(page, "/tools$")
    await choose(page, "Calls")
    await choose(page, "Tools")
    await choose(page, "Calls")
    await tools.made.wait()
    await let_through(page, tools, "/tools")
    calls.release()
    await is_at(page, "Calls")
    assert page.url.endswith("/calls")


async def test_a_filter_that_is_changed_again_is_sent_again(people: People) -> None:
    page = await people.sign_in(ANN, "operator", path="/answered")
    held = await hold(page, r"/answered\?")
    tool = page.locator("form.filters [name=tool]")
    await tool.focus()
    await page.keyboard.type("ec")
    await page.keyboard.press("Enter")
    await held.made.wait()
    await page.keyboard.type("ho")
    await page.keyboard.press("Enter")
    held.release()
    await expect(page).to_have_url(re.compile(r"\?tool=echo$"))
    await expect(tool).to_have_value("echo")
    assert held.number == 2  # and not once more for what Enter fires twice


async def test_a_filter_that_is_taken_away_loads_no_page(people: People) -> None:
    page = await people.sign_in(ANN, "operator", path="/answered")
    loaded: list[str] = []
    held = await hold(page, "/tools$")
    await choose(page, "Tools")
    await held.made.wait()
    await page.locator("form.filters [name=user]").focus()
    await page.keyboard.type("ann")

    def note(request: Request) -> None:
        if request.is_navigation_request():
            loaded.append(request.url)

    page.on("request", note)
    held.release()
    await is_at(page, "Tools")
    await choose(page, "Calls")
    await is_at(page, "Calls")
    assert loaded == []


async def test_what_is_typed_into_the_search_while_a_page_loads_stays(people: People) -> None:
    page = await people.sign_in(ANN, "operator", path="/tools")
    held = await hold(page, "/calls$")
    await choose(page, "Calls")
    await held.made.wait()
    await page.keyboard.press("/")
    await page.keyboard.type("ech")
    held.release()
    await is_at(page, "Calls")
    await page.keyboard.type("o")
    await expect(page.locator("#search")).to_have_value("echo")
