"""The console without JavaScript, by mouse: every page reads, every form has a button, and every flow goes through."""

import pytest
from playwright.async_api import expect

from tests.chromium import PHONE, People
from tests.console import hostile_world
from tests.console.mcp_desk import READ_REPORT, desk
from tests.console.test_every_page import addresses
from toolgate import Actor, App, tool

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.requirement("DOOR-2")]

ANN, BOB = Actor("acme", user="ann"), Actor("acme", user="bob")
UNSENDABLE = """() => {
    const sends = (one) => one.matches("button:not([type=button])") && getComputedStyle(one).display !== "none";
    const forms = [...document.querySelectorAll("form:not(.search)")].filter((form) => ![...form.elements].some(sends));
    return forms.map((form) => form.outerHTML.slice(0, 200));
}"""
"""Forms without a button that is shown. That of the search has one field, which Enter sends."""


@tool(tier="external_api", cost="0.25")
async def pay(amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount}"


async def ask(app: App, amount: int) -> str:
    outcome = await app.invoke("pay", {"amount": amount}, actor=ANN)
    assert outcome.pending is not None, outcome
    return outcome.pending.id


async def test_every_page_reads_and_every_form_can_be_sent(app: App, people: People) -> None:
    things = await hostile_world.fill(app)
    page = await people.sign_in(hostile_world.ANN, "operator", viewport=PHONE, java_script_enabled=False)
    wrong = {}
    for address in addresses(things):
        answer = await page.goto(people.url + address)
        unsendable = await page.evaluate(UNSENDABLE)
        if answer is None or answer.status != 200 or unsendable or len(await page.locator("main").inner_text()) < 40:
            wrong[address] = (answer and answer.status, unsendable)
    assert not wrong


async def test_calls_are_approved_rejected_and_granted(app: App, people: People) -> None:
    app.register(pay)
    first, second, third = [await ask(app, number) for number in (1, 2, 3)]
    page = await people.sign_in(BOB, "approver", path="/approvals", java_script_enabled=False)
    await page.locator(f"#row-{first}").click()
    await page.get_by_role("button", name="Approve once").click()
    await expect(page.locator(f"#became-{first}")).to_contain_text("success")
    await page.locator(f"#row-{second}").click()
    await page.get_by_role("link", name="Reject").click()
    await expect(page.locator("#f-reason")).to_be_focused()
    await page.locator("#f-reason").fill("not today")
    await page.get_by_role("button", name="Reject it").click()
    await expect(page.locator(f"#became-{second}")).to_contain_text("not today")
    await page.locator(f"#row-{third}").click()
    await page.get_by_role("link", name="Allow for a while").click()
    await page.locator("#f-max_uses").fill("0")
    await page.get_by_role("button", name="Approve and allow").click()
    await expect(page.locator("#fault-max_uses")).to_contain_text("A whole number")
    await page.locator("#f-max_uses").fill("5")
    await page.locator("#f-same_arguments").select_option("false")
    await page.get_by_role("button", name="Approve and allow").click()
    await expect(page.locator(f"#became-{third}")).to_contain_text("success")
    assert (await app.invoke("pay", {"amount": 9}, actor=ANN)).ok
    await page.get_by_role("link", name="Grants").click()
    await expect(page.locator("#grants tbody tr")).to_contain_text("any arguments")
    await expect(page.locator("#grants tbody tr")).to_contain_text("1 of 5")


@pytest.mark.matrix("make test has the flow with scripts")
async def test_a_tool_is_disabled_and_a_budget_set_for_one_tenant(app: App, people: People) -> None:
    page = await people.sign_in(BOB, "admin", path="/tools?q=echo+text", java_script_enabled=False)
    await page.get_by_role("button", name="Disable echo").click()
    await expect(page.get_by_role("status").filter(has_text="Disabled")).to_be_visible()
    assert not (await app.invoke("echo", {"text": "x"}, actor=ANN)).ok
    assert (await app.invoke("echo", {"text": "x"}, actor=Actor("other"))).ok
    await page.goto(f"{people.url}/budgets")
    await page.get_by_label("Dollars", exact=True).fill("5")
    await page.get_by_role("button", name="Set the budget").click()
    await expect(page.locator("article.budget")).to_contain_text("All calls in tenant acme")


@pytest.mark.matrix("make test has the flow with scripts")
async def test_a_definition_is_accepted_after_its_difference(app: App, people: People) -> None:
    async with desk() as server:
        await app.servers.add("files", {"url": server.url})
        page = await people.sign_in(BOB, "operator", path="/servers/files", java_script_enabled=False)
        await page.get_by_role("button", name="Refresh").click()
        await page.get_by_role("button", name="Accept this one").click()
        await expect(page.get_by_text("Nothing waits for review")).to_be_visible()
        server.tools = [{**READ_REPORT, "description": "Reads a report, and keeps a copy."}]
        await page.get_by_role("button", name="Refresh").click()
        await expect(page.locator(".diff .add")).to_contain_text("Reads a report, and keeps a copy.")
        await page.get_by_label("Accept mcp_files_read_report").check()
        await page.get_by_role("button", name="Accept what is ticked").click()
        await expect(page.get_by_text("Nothing waits for review")).to_be_visible()
        assert (await app.invoke("mcp_files_read_report", {"id": 1}, actor=ANN)).status == "pending"
