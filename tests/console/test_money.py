"""Money in the console: plots, spend, budgets that are set in place, and the first page with its figures."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page, Response, expect

from tests.chromium import PHONE, People
from tests.patience import until
from toolgate import Actor, App, tool
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.model import NANO

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.requirement("DOOR-2")]

ANN, BOB, EVE = Actor("acme", user="ann"), Actor("acme", user="bob"), Actor("globex", user="eve")
FIRST_PAGE_BYTES = 150_000
SUCCESS = {"light": "27,109,68", "dark": "111,211,160"}
"""The tokens of success."""
INKED = """(plot) => {
    const canvas = document.querySelector(plot + " canvas");
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const seen = new Set();
    for (let at = 0; at < pixels.length; at += 4) if (pixels[at + 3] > 200) seen.add(pixels.slice(at, at + 3).join());
    return [...seen];
}"""
"""The colours of a plot."""


@tool(tier="read_only", cost=0.25)
async def oracle(text: str = "") -> str:
    """Ask an oracle."""
    return text


@pytest.fixture
async def app(app: App) -> AsyncIterator[App]:
    """Three paid calls and a free one in acme, one paid call in globex."""
    app.register(oracle)
    for actor in (ANN, ANN, BOB, EVE):
        await app.invoke("oracle", {}, actor=actor)
    await app.invoke("echo", {"text": "hello"}, actor=ANN)
    yield app


async def _figure(page: Page, name: str) -> str:
    return " ".join((await page.locator("a.tile", has_text=name).inner_text()).split())


async def test_the_first_page_has_the_right_figures_plots_in_both_themes_and_little_weight(app: App, people: People) -> None:
    await app.invoke("no_such_tool", {}, actor=ANN)
    await app.budgets.set(new_budget("day", NANO * 9 // 10, tenant="acme"))
    page = await people.sign_in(ANN, "operator", color_scheme="light")
    assert (await _figure(page, "Calls")).startswith("Calls 5")
    assert (await _figure(page, "Success")).startswith("Success 80.0 %")
    assert await _figure(page, "Spend") == "Spend $ 0.75 83 % of budget"
    assert await _figure(page, "Waiting") == "Waiting 0 nobody waits"
    await expect(page.locator("#plot-calls canvas")).to_be_visible()
    in_colour = f"(colour) => ({INKED})('#plot-calls').includes(colour)"
    await page.wait_for_function(in_colour, arg=SUCCESS["light"])
    await page.emulate_media(color_scheme="dark")
    await page.wait_for_function(in_colour, arg=SUCCESS["dark"])
    await page.get_by_role("link", name="83 % of the daily budget").click()
    await expect(page.locator("article.budget", has_text="All calls in tenant acme")).to_contain_text("83 % used")

    fresh = await people.sign_in(ANN, "operator")
    sizes: list[int] = []

    async def weigh(answer: Response) -> None:
        if "/v1/events" not in answer.url:
            measured = await answer.request.sizes()
            sizes.append(measured["responseBodySize"] + measured["responseHeadersSize"])

    fresh.on("response", weigh)
    client = await fresh.context.new_cdp_session(fresh)
    await client.send("Network.setCacheDisabled", {"cacheDisabled": True})
    await fresh.reload(wait_until="load")
    await expect(fresh.locator("#plot-spend canvas")).to_be_visible()
    await until(lambda: len(sizes) >= 6, "the sizes of all answers are known")
    assert sum(sizes) < FIRST_PAGE_BYTES


@pytest.mark.usefixtures("app")
async def test_a_plot_has_a_legend_that_toggles_a_tooltip_and_a_table(people: People) -> None:
    page = await people.sign_in(ANN, "operator", path="/money")
    plot = page.locator("#spend")
    await expect(plot.locator("canvas")).to_be_visible()
    before = len(await page.evaluate(INKED, "#spend"))
    assert before > 0
    key = plot.get_by_role("button", name="oracle")
    await key.focus()
    await page.keyboard.press("Enter")
    await expect(key).to_have_attribute("aria-pressed", "false")
    await page.wait_for_function(f"(before) => ({INKED})('#spend').length < before", arg=before)
    await key.click()
    await expect(key).to_have_attribute("aria-pressed", "true")
    box = await plot.locator(".u-over").bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] - 12, box["y"] + 40)
    await expect(plot.locator(".plot-tip")).to_contain_text("$ 0.75")
    await plot.get_by_role("button", name="Show as table").click()
    await expect(plot.locator("canvas")).to_have_count(0)
    await expect(plot.get_by_role("cell", name="$ 0.75")).to_be_visible()


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.usefixtures("app")
async def test_spend_is_summed_by_what_is_chosen_and_only_of_ones_own_tenant(people: People) -> None:
    page = await people.sign_in(ANN, "viewer", path="/money?by=user")
    await expect(page.locator("main")).to_contain_text("$ 0.75 in 4 calls")
    assert [" ".join(row.split()) for row in await page.locator("main .cards tbody tr").all_inner_texts()] == [
        "ann 66.7 % $ 0.50 3", "bob 33.3 % $ 0.25 1",
    ]  # fmt: skip
    await expect(page.locator("main")).not_to_contain_text("eve")
    plain = await people.sign_in(BOB, "caller", path="/money", java_script_enabled=False)
    await expect(plain.locator("main")).to_contain_text("$ 0.25 in 1 call of yours")
    await expect(plain.locator("#spend table")).to_be_visible()
    all_of_them = await people.sign_in(ANN, "operator", path="/money?tenant=*&by=tenant", viewport=PHONE)
    await expect(all_of_them.locator("main")).to_contain_text("globex")
    assert await all_of_them.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    nobody = await people.sign_in(Actor("empty", user="nora"), "viewer", path="/money")
    await expect(nobody.get_by_text("No call has cost anything in this time.")).to_be_visible()


async def test_a_budget_is_set_by_mouse_changed_by_keyboard_and_removed_without_scripts(app: App, people: People) -> None:
    page = await people.sign_in(ANN, "admin", path="/budgets")
    await expect(page.locator("main")).to_contain_text("No budget is set")
    await page.get_by_label("Dollars").fill("ten")
    await page.locator("#f-user").fill("*")
    await page.get_by_role("button", name="Set the budget").click()
    await expect(page.locator("#fault-limit_usd")).to_contain_text("'ten' is not an amount in dollars")
    await expect(page.locator("#f-user")).to_have_value("*")
    await page.get_by_label("Dollars").fill("$1")
    await page.get_by_role("button", name="Set the budget").click()
    await expect(page.get_by_role("status").first).to_have_text("The budget is set. It holds from the next call on.")
    budget = page.locator("article.budget")
    await expect(budget).to_contain_text("All calls by each user in tenant acme, each on its own")
    await expect(budget.locator(".account").first).to_contain_text("$ 0.50 spent, $ 0.50 left")

    await budget.get_by_role("link", name="Change").focus()
    await page.keyboard.press("Enter")
    await budget.get_by_label("Dollars a day").focus()
    await page.keyboard.press("Control+A")
    await page.keyboard.type("0.60")
    await page.keyboard.press("Enter")
    await expect(budget).to_contain_text("83 % used")
    assert [row.cap for row in await app.budgets.limits()] == [NANO * 6 // 10]
    refused = (await app.invoke("oracle", {}, actor=ANN)).error
    assert refused is not None and refused.code == "BUDGET_EXCEEDED"

    plain = await people.sign_in(ANN, "admin", path="/budgets", java_script_enabled=False)
    await plain.get_by_label("Dollars").fill("1")
    await plain.locator("#f-user").fill("*")
    await plain.get_by_role("button", name="Set the budget").click()
    await expect(plain.locator("#fault-form")).to_contain_text("There is a budget for this already")
    await plain.get_by_role("link", name="Remove").click()
    await plain.get_by_role("button", name="Remove the budget").click()
    await expect(plain.locator("main")).to_contain_text("The budget is removed.")
    assert await app.budgets.limits() == []


async def test_a_budget_of_another_tenant_is_neither_seen_nor_changed(app: App, people: People) -> None:
    row = new_budget("day", NANO, tenant="globex")
    await app.budgets.set(row)
    page = await people.sign_in(ANN, "admin", path="/budgets")
    await expect(page.locator("main")).to_contain_text("No budget is set")
    answer = await page.goto(f"{people.url}/budgets?change={row.id}")
    assert answer is not None and answer.status == 404
    viewer = await people.sign_in(EVE, "viewer", path="/budgets")
    await expect(viewer.locator("article.budget")).to_contain_text("All calls in tenant globex")
    await expect(viewer.get_by_role("link", name="Change")).to_have_count(0)
    assert (await app.budgets.limits())[0].cap == NANO
