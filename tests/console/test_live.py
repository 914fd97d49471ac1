"""Parts that follow what happens: nothing moves under the pointer, nothing that was typed or opened is lost, and a lost
connection is said and comes back."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.chromium import People, people_of
from tests.console.held_answers import hold
from tests.serving import serving
from toolgate import Actor, App, tool
from toolgate.gates.approval.request import Answer, GrantTerms

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.requirement("DOOR-2")]

ANN, BOB, CLEO = Actor("acme", user="ann"), Actor("acme", user="bob"), Actor("acme", user="cleo")
SEEN_BY_A_TEST = """
    window.streams = [];
    window.EventSource = class extends EventSource { constructor(address) { super(address); streams.push(this); } };
    window.see = (is) => {
        Object.defineProperty(document, "hidden", {value: !is, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
    };"""
"""Keeps the streams that a page opens, and has a test say whether the page is seen: without a screen, every page is."""


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


async def point_at(page: Page, row: Locator) -> None:
    box = await row.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


async def click(page: Page) -> None:
    """Clicks where the pointer is, whatever is there."""
    await page.mouse.down()
    await page.mouse.up()


async def test_a_click_among_approvals_hits_what_was_pointed_at(app: App, people: People) -> None:
    first, second, third = [await ask(app, number) for number in (1, 2, 3)]
    page = await people.sign_in(BOB, "approver", path="/approvals")
    await point_at(page, page.locator(f"#row-{second}"))
    await app.approvals.answer(first, Answer("reject"), actor=CLEO, through="http")  # it goes, and all others move up
    await expect(page.locator("#held")).to_be_visible()
    await expect(page.locator(f"#row-{first}")).to_be_visible()
    await expect(page.locator("#waiting")).to_have_text("2")  # what does not move is not held
    await click(page)
    await expect(page).to_have_url(re.compile(second))
    await expect(page.locator("#approval")).to_be_visible()
    await expect(page.locator(f"#row-{first}")).to_have_count(0)
    await page.mouse.move(5, 5)
    fourth = await ask(app, 4)
    await expect(page.locator(f"#row-{fourth}")).to_be_visible()
    await expect(page.locator(f"#row-{third}")).to_be_visible()


async def test_a_click_among_calls_hits_what_was_pointed_at(app: App, people: People) -> None:
    calls = [await app.invoke("echo", {"text": str(number)}, actor=ANN) for number in range(3)]
    await app.flush()
    page = await people.sign_in(ANN, "viewer", path="/calls")
    row = page.locator(f"#call-{calls[1].id}")
    await point_at(page, row.get_by_role("link"))
    place = await row.bounding_box()
    late = await app.invoke("echo", {"text": "late"}, actor=ANN)
    await expect(page.locator("#held")).to_be_visible()
    assert await row.bounding_box() == place
    await page.mouse.move(5, 5)
    await expect(page.locator(f"#call-{late.id}")).to_be_visible()
    await expect(page.locator("#held")).to_be_hidden()
    await expect(page.locator(f"#call-{late.id}")).to_have_class("arrived")
    await point_at(page, row.get_by_role("link"))
    await app.invoke("echo", {"text": "later"}, actor=ANN)
    await expect(page.locator("#held")).to_be_visible()
    await click(page)
    await expect(page).to_have_url(re.compile(calls[1].id))


@pytest.mark.matrix("a pointer rests for ten seconds")
@pytest.mark.timeout(60)
async def test_a_pointer_that_rests_stops_nothing_and_its_late_click_hits_nothing(app: App, people: People) -> None:
    calls = [await app.invoke("echo", {"text": str(number)}, actor=ANN) for number in range(3)]
    await app.flush()
    page = await people.sign_in(ANN, "viewer", path="/calls")
    await point_at(page, page.locator(f"#call-{calls[2].id}").get_by_role("link"))
    late = await app.invoke("echo", {"text": "late"}, actor=ANN)
    # Though the pointer is still there. `expect` looks once a second, which may be too late for the click below.
    await page.wait_for_selector(f"#call-{late.id}", state="attached", timeout=20_000)
    await click(page)  # meant for what stood there before
    await page.wait_for_timeout(700)
    await expect(page).to_have_url(re.compile("/calls$"))
    await click(page)
    await expect(page).to_have_url(re.compile(f"/calls/{late.id}"))


async def test_what_is_open_and_focused_stays_when_a_part_is_loaded_again(app: App, people: People) -> None:
    await app.grants.create("pay", GrantTerms("user", 60), actor=ANN, by=CLEO, arguments={"amount": 5})
    page = await people.sign_in(BOB, "approver", path="/grants")
    await page.locator("#grants summary").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#grants details pre")).to_be_visible()
    await app.grants.create("pay", GrantTerms("user", 60), actor=ANN, by=CLEO)
    await expect(page.locator("#grants tbody tr")).to_have_count(2)
    await expect(page.locator("#grants details pre")).to_be_visible()
    await expect(page.locator("#grants summary")).to_be_focused()


async def test_a_row_that_goes_hands_its_focus_to_the_next(app: App, people: People) -> None:
    first, second = [await ask(app, number) for number in (1, 2)]
    page = await people.sign_in(BOB, "approver", path=f"/approvals/{second}")
    await page.locator(f"#row-{first}").focus()
    await app.approvals.answer(first, Answer("reject"), actor=CLEO, through="http")
    await expect(page.locator(f"#row-{first}")).to_have_count(0)
    await expect(page.locator(f"#row-{second}")).to_be_focused()


@pytest.mark.matrix("a browser tries again after seconds")
@pytest.mark.timeout(60)
async def test_a_lost_connection_is_said_and_comes_back_by_itself(app: App, browser: Browser) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(AsyncExitStack())
        site = await server.enter_async_context(serving(app))
        people = await stack.enter_async_context(people_of(app, site, browser))
        page = await people.sign_in(ANN, "viewer", path="/calls")
        await expect(page.locator("#lost")).to_be_hidden()
        await server.aclose()
        await expect(page.locator("#lost")).to_be_visible()
        missed = await app.invoke("echo", {"text": "meanwhile"}, actor=ANN)
        await stack.enter_async_context(serving(app, site.port))
        await expect(page.locator("#lost")).to_be_hidden(timeout=20_000)
        await expect(page.locator(f"#call-{missed.id}")).to_be_visible()
        assert all("ERR_" in fault for fault in people.faults), people.faults  # the browser's own words about it
        people.faults.clear()
        await page.goto("about:blank")


async def test_what_happens_while_a_page_is_on_its_way_is_in_it(app: App, people: People) -> None:
    page = await people.sign_in(BOB, "approver", path="/calls")
    held = await hold(page, "/approvals$")
    await page.locator("nav.rail a[href='/approvals']").click()
    await held.made.wait()
    late = await ask(app, 1)
    await expect(page.locator("#waiting")).to_have_text("1")  # the old page has heard of it
    held.release()
    await expect(page.locator(f"#row-{late}")).to_be_visible()


async def test_of_two_answers_for_a_part_the_older_is_not_shown_last(app: App, people: People) -> None:
    first = await ask(app, 1)
    page = await people.sign_in(BOB, "approver", path="/approvals")
    held = await hold(page, "/approvals$", is_boosted=False)
    second = await ask(app, 2)
    await held.made.wait()
    await app.approvals.answer(first, Answer("reject"), actor=CLEO, through="http")
    await page.evaluate("new Promise((done) => setTimeout(done, 600))")  # time for it to be asked for
    assert held.number == 1  # what came meanwhile waits for the answer
    held.release()
    await expect(page.locator(f"#row-{first}")).to_have_count(0)
    await expect(page.locator(f"#row-{second}")).to_be_visible()


async def test_a_page_that_is_not_seen_takes_no_connection_and_misses_nothing(app: App, people: People) -> None:
    page = await people.sign_in(ANN, "viewer")
    await page.add_init_script(SEEN_BY_A_TEST)
    await page.clock.install()
    await page.goto(f"{people.url}/calls")
    assert await page.evaluate("streams.length") == 1
    await page.evaluate("see(false)")
    await page.clock.run_for(10_000)
    assert await page.evaluate("streams.map((one) => one.readyState)") == [2]  # closed
    missed = await app.invoke("echo", {"text": "meanwhile"}, actor=ANN)
    await app.flush()
    await page.evaluate("see(true)")
    await page.clock.run_for(1_000)
    await expect(page.locator(f"#call-{missed.id}")).to_be_visible()
    assert await page.evaluate("streams.length") == 2
