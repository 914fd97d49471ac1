"""Every flow of the console by keyboard alone: the focus is always to be seen, never lost, and nothing needs a mouse."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import expect

from tests.chromium import SEARCH_MS, People
from tests.console.keyboard import Keyboard
from tests.console.mcp_desk import READ_REPORT, desk
from toolgate import Actor, App, tool

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.requirement("DOOR-2")]

ANN, BOB = Actor("acme", "ops", "ann"), Actor("acme", user="bob")
PAID: list[int] = []
ELSEWHERE = "make test has the flow by mouse, and other flows by keyboard"
DENIES_ECHO = (
    'package soma.policy\n\nimport rego.v1\n\ndefault allow := false\n\nallow if input.resource != "echo"\n\n'
    'decision := {"allow": allow, "reason": "nobody echoes"}\n'
)


@tool(tier="external_api", cost="0.25")
async def pay(amount: int, to: str) -> str:
    """Pay somebody."""
    PAID.append(amount)
    return f"{amount} to {to}"


@pytest.fixture
async def app(app: App) -> AsyncIterator[App]:
    PAID.clear()
    app.register(pay)
    yield app


async def ask(app: App, amount: int, to: str = "shop") -> str:
    outcome = await app.invoke("pay", {"amount": amount, "to": to}, actor=ANN)
    assert outcome.pending is not None, outcome
    return outcome.pending.id


async def test_sign_in_by_the_link_look_around_and_sign_out(app: App, people: People) -> None:
    page = await people.sign_in(BOB, "operator")
    keys = Keyboard(page)
    await keys.press("Tab")
    await keys.is_at(page.get_by_role("link", name="Skip to the content"))
    await keys.press("Enter", "Tab")
    await keys.at_the_content()
    await keys.tab_to(page.get_by_role("link", name="Calls", exact=True), "Shift+Tab")
    await keys.press("Enter")
    await expect(page.get_by_role("heading", level=1, name="Calls")).to_be_visible()
    await keys.at_the_content()
    await keys.tab_to(page.locator("#who summary"), "Shift+Tab")
    await keys.press("Enter")
    await keys.tab_to(page.get_by_role("button", name="Dark"))
    await keys.press("Escape")
    await keys.is_at(page.locator("#who summary"))
    await expect(page.get_by_role("button", name="Dark")).to_be_hidden()
    await keys.press("Enter")
    await keys.choose(page.get_by_role("button", name="Sign out"))
    await expect(page.get_by_role("heading", name="You are not signed in")).to_be_visible()
    _, token = await app.sign_ins.create_link(BOB, roles=["viewer"])
    for words in ("Overview", "This link did not sign you in"):  # it works once
        await page.goto(f"{people.url}/sign-in?token={token}")
        await expect(page.get_by_role("heading", level=1, name=words)).to_be_visible()
    await keys.choose(page.get_by_role("link", name="go to the console"))
    await expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible()


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.usefixtures("app")
async def test_try_a_tool_after_a_wrong_value(people: People) -> None:
    page = await people.sign_in(ANN, "operator", path="/tools")
    keys = Keyboard(page)
    await keys.press("f")
    await page.keyboard.type("pay somebody")
    await keys.press("Enter")
    await expect(page).to_have_url(re.compile("q=pay"), timeout=SEARCH_MS)  # the link stands in the list before, too
    await keys.choose(page.get_by_role("link", name="pay", exact=True))
    await keys.fill(page.locator("#try [name='/amount']"), "many")
    await keys.fill(page.locator("#try [name='/to']"), "shop")
    await keys.choose(page.get_by_role("button", name="Run", exact=True))
    await keys.is_at(page.locator("#try [name='/amount']"))  # where it is wrong
    await expect(page.locator("#try [name='/to']")).to_have_value("shop")
    await keys.fill(page.locator("#try [name='/amount']"), "3")
    await keys.choose(page.get_by_role("button", name="Explain"))
    await expect(page.locator("#result")).to_contain_text("would ask a person")
    await keys.is_at(page.get_by_role("button", name="Explain"))  # one can go on from there
    await keys.choose(page.get_by_role("button", name="Run", exact=True))
    await keys.choose(page.get_by_role("link", name="Open its approval"))
    await expect(page.locator("#approval")).to_contain_text("pay")


async def test_what_is_chosen_as_soon_as_a_page_is_shown_loads_no_other(app: App, people: People) -> None:
    """htmx binds the forms of a new page a moment later."""
    [second] = [await ask(app, number) for number in (1, 2)][1:]
    page = await people.sign_in(BOB, "approver", path="/approvals")
    await page.evaluate(
        """() => {
            window.isSame = true;
            document.addEventListener("htmx:afterSwap", () => document.querySelector("[data-key=a]").click(), {once: true});
        }"""
    )
    keys = Keyboard(page)
    await keys.press("j")
    await expect(page.locator(f"#became-{second}")).to_contain_text("success")
    await keys.at_the_content()
    assert await page.evaluate("window.isSame") is True


async def test_answer_in_every_way(app: App, people: People) -> None:
    first, second, third, fourth = [await ask(app, number) for number in (1, 2, 3, 4)]
    page = await people.sign_in(BOB, "approver", path="/approvals")
    keys = Keyboard(page)
    await keys.press("j")
    await expect(page).to_have_url(re.compile(second))
    await keys.is_at(page.locator(f"#row-{second}"))
    await keys.press("a")
    await expect(page.locator(f"#became-{second}")).to_contain_text("success")  # it has run
    await keys.at_the_content()
    await keys.press("j")
    await expect(page).to_have_url(re.compile(first))  # the answered one is gone from the list, and the walk begins anew
    await keys.press("e")
    await keys.is_at(page.locator("#f-arg-0"))
    await keys.fill(page.locator("#f-arg-0"), "ten")
    await keys.choose(page.get_by_role("button", name="Approve as edited"))
    await expect(page.locator("#fault-arg-0")).to_contain_text("This is not JSON")
    await keys.is_at(page.locator("#f-arg-0"))
    await keys.fill(page.locator("#f-arg-0"), "10")
    await keys.choose(page.get_by_role("button", name="Approve as edited"))
    await expect(page.locator(f"#became-{first}")).to_contain_text("With other arguments")
    await page.goto(f"{people.url}/approvals/{third}")
    await keys.press("r")
    await keys.is_at(page.locator("#f-reason"))
    await keys.press("Escape", "Escape")
    await expect(page.locator("#f-reason")).to_have_count(0)
    await keys.press("r")
    await keys.is_at(page.locator("#f-reason"))
    await page.keyboard.type("not on Fridays")
    await keys.press("Enter")
    await expect(page.locator(f"#became-{third}")).to_contain_text("not on Fridays")
    await page.goto(f"{people.url}/approvals/{fourth}")
    await keys.press("g")
    await keys.is_at(page.locator("#f-scope"))
    await keys.pick(page.locator("#f-same_arguments"), "these")
    await keys.pick(page.locator("#f-seconds"), "1 hour")
    await keys.fill(page.locator("#f-max_uses"), "1")
    await keys.press("Enter")
    await expect(page.locator(f"#became-{fourth}")).to_contain_text("Answered by bob")
    assert PAID == [2, 10, 4]
    again = [(await app.invoke("pay", {"amount": 4, "to": "shop"}, actor=ANN)).status for _ in range(2)]
    assert again == ["success", "pending"]
    await keys.choose(page.get_by_role("link", name="Grants"))
    await expect(page.locator("#grants tbody tr")).to_contain_text("used up")
    await keys.choose(page.get_by_role("button", name="Revoke"))
    await expect(page.get_by_text("No grant holds")).to_be_visible()
    await keys.at_the_content()


async def test_watch_a_live_call_appear_without_losing_the_row(app: App, people: People) -> None:
    first = await app.invoke("echo", {"text": "one"}, actor=ANN)
    await app.flush()
    page = await people.sign_in(ANN, "viewer", path="/calls")
    keys = Keyboard(page)
    await keys.press("j")
    await keys.is_at(page.locator(f"#go-{first.id}"))
    second = await app.invoke("echo", {"text": "two"}, actor=ANN)
    await expect(page.locator(f"#call-{second.id}")).to_be_visible()
    await keys.is_at(page.locator(f"#go-{first.id}"))
    await keys.press("k")
    await keys.is_at(page.locator(f"#go-{second.id}"))
    await keys.press("j", "Enter")
    await expect(page).to_have_url(re.compile(f"/calls/{first.id}"))


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_filters_keep_the_focus_where_it_was(app: App, people: People) -> None:
    await app.invoke("echo", {"text": "one"}, actor=ANN)
    await app.invoke("no_such_tool", {}, actor=ANN)
    await app.flush()
    page = await people.sign_in(ANN, "viewer", path="/calls")
    keys = Keyboard(page)
    status = page.locator("select[name=status]")
    await keys.tab_to(status)
    await keys.press("ArrowDown")  # each is sent at once
    await expect(page).to_have_url(re.compile("status=success"))
    await keys.is_at(status)
    await keys.press("ArrowDown")
    await expect(page).to_have_url(re.compile("status=failure"))
    await keys.is_at(status)
    await expect(page.locator("#calls tbody tr")).to_have_count(1)


@pytest.mark.matrix(ELSEWHERE)
async def test_disable_a_tool_for_one_tenant_and_enable_it_again(app: App, people: People) -> None:
    page = await people.sign_in(BOB, "admin", path="/tools?q=echo+text")
    keys = Keyboard(page)
    await keys.choose(page.get_by_role("button", name="Disable echo"))
    await keys.is_at(page.get_by_role("button", name="Enable echo"))
    assert not (await app.invoke("echo", {"text": "x"}, actor=ANN)).ok
    assert (await app.invoke("echo", {"text": "x"}, actor=Actor("other"))).ok
    await keys.tab_to(page.get_by_role("link", name="echo", exact=True), "Shift+Tab")
    await keys.press("Enter")
    await keys.fill(page.get_by_label("Reason"), "it is mended")
    await keys.choose(page.get_by_role("button", name="Enable", exact=True))
    await expect(page.get_by_role("status").filter(has_text="Enabled")).to_be_visible()
    await keys.at_the_content()
    assert (await app.invoke("echo", {"text": "x"}, actor=ANN)).ok


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_accept_a_quarantined_tool_after_its_difference(app: App, people: People) -> None:
    async with desk() as server:
        page = await people.sign_in(BOB, "operator", path="/servers")
        keys = Keyboard(page)
        await keys.fill(page.get_by_label("Name", exact=True), "files")
        await keys.pick(page.get_by_label("Kind"), "an address")
        await keys.fill(page.get_by_label("Address, command or package"), server.url)
        await keys.press("Enter")
        await expect(page.locator("#quarantine")).to_contain_text("Reads a report of the quarter.")
        await keys.at_the_content()
        await keys.press("j")
        await keys.is_at(page.get_by_label("Accept mcp_files_read_report"))
        await keys.press("Space")
        await keys.choose(page.get_by_role("button", name="Accept what is ticked"))
        await expect(page.get_by_text("Nothing waits for review")).to_be_visible()
        await keys.at_the_content()
        server.tools = [{**READ_REPORT, "description": "Reads a report, and keeps a copy."}]
        await app.servers.refresh("files")
        await keys.press("/")
        await page.keyboard.type("files")
        await expect(page.locator("#ahead a").first).to_be_visible(timeout=SEARCH_MS)
        await keys.tab_to(page.locator("#ahead a[href='/servers/files']"), "ArrowDown")
        await keys.press("Enter")
        await expect(page.get_by_role("heading", level=1, name="files")).to_be_visible()
        difference = page.locator(".diff")
        await keys.tab_to(difference)  # a long one is scrolled by the arrow keys
        await expect(difference.locator("ins").first).to_be_visible()
        await keys.choose(page.get_by_role("button", name="Accept this one"))
        await expect(page.get_by_text("Nothing waits for review")).to_be_visible()
        assert (await app.invoke("mcp_files_read_report", {"id": 1}, actor=ANN)).status == "pending"


@pytest.mark.matrix(ELSEWHERE)
async def test_replay_a_policy_on_real_calls(app: App, people: People) -> None:
    await app.invoke("echo", {"text": "one"}, actor=ANN)
    page = await people.sign_in(BOB, "operator", path="/policy")
    keys = Keyboard(page)
    await keys.choose(page.get_by_role("link", name="What if"))
    policy = page.get_by_label("Policy", exact=True)
    await keys.fill(policy, DENIES_ECHO + "allow if {\n")
    await keys.press("Tab")  # a text of code is left by it too
    await keys.choose(page.get_by_role("button", name="Replay"))
    await expect(page.locator("#fault-rego")).to_contain_text("does not compile")
    await keys.is_at(policy)
    await keys.fill(policy, DENIES_ECHO)
    await keys.choose(page.get_by_role("button", name="Replay"))
    await expect(page.locator("#replay .tile", has_text="would be denied")).to_contain_text("1")
    await keys.press("j")
    await keys.is_at(page.locator("#changes tbody a").first)
    assert (await app.invoke("echo", {"text": "still"}, actor=ANN)).ok


@pytest.mark.matrix(ELSEWHERE)
async def test_set_a_budget_change_and_remove_it(app: App, people: People) -> None:
    page = await people.sign_in(BOB, "admin", path="/money")
    keys = Keyboard(page)
    await keys.choose(page.get_by_role("link", name="Budgets"))
    await keys.fill(page.get_by_label("Dollars", exact=True), "ten")
    await keys.press("Enter")
    await expect(page.locator("#fault-limit_usd")).to_be_visible()  # the field has the focus before, too
    await keys.is_at(page.get_by_label("Dollars", exact=True))
    await keys.fill(page.get_by_label("Dollars", exact=True), "10")
    await keys.press("Enter")
    await expect(page.locator("article.budget")).to_contain_text("All calls in tenant acme")
    await keys.press("Escape", "j")  # out of the field, for another budget
    await keys.is_at(page.get_by_role("link", name="Change"))
    await keys.press("Enter")
    await keys.fill(page.get_by_label("Dollars a day"), "12")
    await keys.press("Enter")
    await expect(page.locator("article.budget")).to_contain_text("$ 12.00")
    await keys.choose(page.get_by_role("link", name="Remove"))
    await keys.choose(page.get_by_role("button", name="Remove the budget"))
    await expect(page.get_by_text("No budget is set")).to_be_visible()
    assert await app.budgets.limits() == []


@pytest.mark.matrix(ELSEWHERE)
async def test_retry_a_job_and_cancel_another(app: App, people: People) -> None:
    is_up = False

    @tool(tier="read_only")
    async def fetch_report() -> str:
        """Fetch a report."""
        if not is_up:
            raise RuntimeError("the server of reports did not answer")
        return "done"

    app.register(fetch_report)
    failed = await app.enqueue("fetch_report", {}, actor=BOB)
    await app.jobs.run_all()
    is_up = True
    later = await app.enqueue("fetch_report", {}, actor=BOB, delay=3600)
    assert failed.pending is not None
    assert later.pending is not None
    page = await people.sign_in(BOB, "caller", path="/jobs")
    keys = Keyboard(page)
    await keys.press("j", "j", "Enter")
    await expect(page).to_have_url(re.compile(failed.pending.id))
    await keys.press("t")
    await expect(page.get_by_text("The job is queued again.")).to_be_visible()
    await app.jobs.run_all()
    await expect(page.locator("#job .badge")).to_contain_text("done")
    await page.goto(f"{people.url}/jobs/{later.pending.id}")
    await keys.press("c")
    await keys.choose(page.get_by_role("button", name="Cancel the job"))
    await expect(page.locator("#job .badge")).to_contain_text("cancelled")


@pytest.mark.matrix(ELSEWHERE)
async def test_make_a_schedule_pause_run_and_remove_it(people: People) -> None:
    page = await people.sign_in(BOB, "caller", path="/schedules")
    keys = Keyboard(page)
    await keys.press("n")
    await expect(page.get_by_label("When (cron line)")).to_be_visible()
    await keys.fill(page.get_by_label("When (cron line)"), "30 8 * * MON-FRI")
    await expect(page.locator("#times li")).to_have_count(5)
    await keys.is_at(page.get_by_label("When (cron line)"))  # though the times were loaded
    await keys.fill(page.get_by_label("Tool", exact=True), "echo")
    await keys.fill(page.get_by_label("Name", exact=True), "morning")
    await keys.fill(page.get_by_label("Arguments (JSON)"), '{"text": 1}')
    await keys.choose(page.get_by_role("button", name="Add the schedule"))
    await keys.is_at(page.get_by_label("Arguments (JSON)"))
    await keys.fill(page.get_by_label("Arguments (JSON)"), '{"text": "good morning"}')
    await keys.choose(page.get_by_role("button", name="Add the schedule"))
    await expect(page.get_by_role("heading", level=1, name="Schedule morning")).to_be_visible()
    await keys.press("p")
    await expect(page.get_by_role("status").first).to_contain_text("is paused")
    await keys.press("p")
    await expect(page.get_by_role("status").first).to_contain_text("fires again")
    await keys.choose(page.get_by_role("button", name="Run now"))
    await expect(page.get_by_role("status").first).to_contain_text("A job is queued now")
    await keys.choose(page.get_by_text("Remove…"))
    await keys.choose(page.get_by_role("button", name="Remove the schedule"))
    await expect(page.get_by_text("No call is made by the clock yet")).to_be_visible()


@pytest.mark.matrix(ELSEWHERE)
async def test_a_plot_is_read_and_switched(app: App, people: People) -> None:
    await app.invoke("echo", {"text": "one"}, actor=ANN)
    page = await people.sign_in(ANN, "viewer")
    keys = Keyboard(page)
    key: Any = page.locator("#plot-calls .plot-legend").get_by_role("button", name="success")
    await keys.choose(key)
    await expect(key).to_have_attribute("aria-pressed", "false")
    await keys.is_at(key)
    await keys.choose(page.locator("#plot-calls").get_by_role("button", name="Show as table"))
    await expect(page.locator("#plot-calls .plot-table")).to_be_visible()
    await keys.is_at(page.locator("#plot-calls").get_by_role("button", name="Show as plot"))
