"""The pages of System: health, jobs, schedules, audit, keys and tenants."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.chromium import PHONE, People, inaccessible
from tests.patience import until
from tests.serving import Site
from toolgate import Actor, App, tool

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.requirement("DOOR-2")]

ANN = Actor("acme", user="ann")
EVE = Actor("other", user="eve")
MARKUP = "<img src=x onerror=alert(1)>"
HOSTILE = f"{MARKUP}\x1b[31m\u202egnp.exe\u200b"
PLACES = ("/system", "/jobs", "/schedules", "/schedules/new", "/audit", "/keys", "/tenants")


class Report:
    """A tool whose service is down until somebody mends it."""

    def __init__(self, app: App) -> None:
        self.is_up = False

        @tool(tier="read_only")
        async def fetch_report(name: str) -> str:
            """Fetch a report."""
            if not self.is_up:
                raise RuntimeError(f"the server of reports did not answer: {HOSTILE}")
            return name

        app.register(fetch_report)
        self._app = app

    async def failed_job(self, actor: Actor = ANN) -> str:
        queued = await self._app.enqueue("fetch_report", {"name": HOSTILE}, actor=actor)
        assert queued.pending is not None
        await self._app.jobs.run_all()
        await ended(self._app, "failed", queued.pending.id, actor=actor)
        return queued.pending.id


async def ended(app: App, state: str, *ids: str, actor: Actor = ANN) -> None:
    """Waits until jobs have ended in this way: the server may have taken them before the test did."""

    async def have() -> bool:
        return {(await app.jobs.get(id, actor=actor)).state for id in ids} == {state}

    await until(have, f"they are {state}")


def in_database(app: App, statement: str, *values: object) -> None:
    """Writes to the database as somebody would who has its file."""
    with closing(sqlite3.connect(Path(app.settings.home) / "t.db", timeout=10)) as connection, connection:
        connection.execute(statement, values)


async def row_of_job(page: Page, id: str) -> None:
    """Walks to a job's row with the keyboard."""
    for _ in range(10):
        await page.keyboard.press("j")
        if await page.evaluate("document.activeElement.closest('tr')?.id") == f"job-{id}":
            return
    raise AssertionError(f"no row of job {id}")


async def test_a_failed_job_is_retried_by_mouse_by_keyboard_and_without_javascript(app: App, people: People) -> None:
    report = Report(app)
    by_mouse, by_keys, plainly = [await report.failed_job() for _ in range(3)]
    report.is_up = True

    page = await people.sign_in(ANN, "caller", path="/jobs")
    await page.locator(f"#job-{by_mouse} a").click()
    await expect(page.locator("#job .note.bad")).to_contain_text("the server of reports did not answer")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_text("The job is queued again.")).to_be_visible()
    await app.jobs.run_all()
    await expect(page.locator("#job .badge")).to_contain_text("done")  # without a reload

    await page.goto(f"{people.url}/jobs?state=failed")
    await row_of_job(page, by_keys)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Try again")).to_be_visible()
    await page.keyboard.press("t")
    await expect(page.get_by_text("The job is queued again.")).to_be_visible()

    plain = await people.sign_in(ANN, "caller", path=f"/jobs/{plainly}", java_script_enabled=False)
    await plain.get_by_role("button", name="Try again").click()
    await expect(plain.get_by_text("The job is queued again.")).to_be_visible()
    await app.jobs.run_all()
    await ended(app, "done", by_mouse, by_keys, plainly)


async def test_a_parked_job_is_explained_and_cancelled_after_a_question(app: App, people: People) -> None:
    id = await Report(app).failed_job()
    in_database(app, "UPDATE jobs SET state = 'parked' WHERE id = ?", id)
    page = await people.sign_in(ANN, "caller", path=f"/jobs/{id}", java_script_enabled=False)
    await expect(page.get_by_text("Nobody knows whether it had its effect.", exact=True)).to_be_visible()
    await expect(page.get_by_role("button", name="Try again all the same")).to_be_hidden()
    await page.get_by_text("Cancel…").click()
    await page.get_by_role("button", name="Cancel the job").click()
    await expect(page.locator("#job .badge")).to_contain_text("cancelled")


async def test_a_key_is_shown_once_and_revoked(app: App, site: Site, people: People) -> None:
    page = await people.sign_in(ANN, "admin", path="/keys")
    await page.keyboard.press("n")
    await page.get_by_role("button", name="Make the key").click()
    await expect(page.locator("#fault-name")).to_contain_text("Give it a name")
    await page.locator("#f-name").fill("mail agent")
    await page.get_by_label("With the persona").fill("analyst")
    await page.get_by_role("button", name="Make the key").click()
    text = await page.locator("#key-text").inner_text()
    assert text not in page.url
    assert (await site("GET", "/v1/tools", key=text)).status == 200
    await page.goto(f"{people.url}/keys")
    assert text not in await page.content()
    await page.locator("#new-key summary").click()
    await page.locator("#f-name").fill("mail agent")
    await page.get_by_label("Acts as user").fill("mail")
    await page.get_by_role("button", name="Make the key").click()
    await expect(page.locator("#new-key .fault")).to_contain_text("mail agent")
    await expect(page.get_by_label("Acts as user")).to_have_value("mail")
    await page.get_by_role("link", name="mail agent").click()
    await page.get_by_text("Revoke…").click()
    await page.get_by_role("button", name="Revoke the key").click()
    await expect(page.get_by_text("The key is revoked")).to_be_visible()
    assert (await site("GET", "/v1/tools", key=text)).status == 401
    await app.flush()
    assert text not in str(await app.audit.after(0))


async def test_browsers_are_signed_out_and_secrets_set_by_name(people: People) -> None:
    other = await people.sign_in(Actor("acme", user="bob"), "viewer")
    page = await people.sign_in(ANN, "admin", path="/keys", java_script_enabled=False)
    await page.get_by_role("button", name="Sign bob out").click()
    await expect(page.get_by_text("The browser is signed out.")).to_be_visible()
    await other.goto(f"{people.url}/jobs")
    await expect(other.get_by_text("You are not signed in")).to_be_visible()
    await page.get_by_text("Set a secret").click()
    await page.get_by_label("Name of the secret").fill("not a name")
    await page.get_by_label("Value").fill("s3cr3t-value")
    await page.get_by_role("button", name="Set the secret").click()
    await expect(page.locator("#fault-secret_name")).to_be_visible()
    await expect(page.get_by_label("Name of the secret")).to_have_value("not a name")
    assert "s3cr3t-value" not in await page.content()
    await page.get_by_label("Name of the secret").fill("MAIL_TOKEN")
    await page.get_by_label("Value").fill("s3cr3t-value")
    await page.get_by_role("button", name="Set the secret").click()
    await expect(page.get_by_role("cell", name="MAIL_TOKEN")).to_be_visible()
    assert "s3cr3t-value" not in await page.content()
    await page.get_by_text("Remove…").click()
    await page.get_by_role("button", name="Remove MAIL_TOKEN").click()
    await expect(page.get_by_text("No secret is set")).to_be_visible()


async def test_a_schedule_is_made_with_its_times_shown_and_wrong_fields_told(people: People) -> None:
    page = await people.sign_in(ANN, "caller", path="/schedules/new")
    await page.get_by_label("When (cron line)").fill("61 * * * *")
    await expect(page.locator("#times .fault")).to_contain_text("minute")
    await page.get_by_label("When (cron line)").fill("30 8 * * MON-FRI")
    await expect(page.locator("#times li")).to_have_count(5)
    await page.get_by_label("When (cron line)").fill("soon")
    await page.get_by_label("Time zone").fill("Mars/Base")
    await page.get_by_label("Tool", exact=True).fill("echo")
    await page.get_by_label("Arguments (JSON)").fill('{"text": ')
    await page.get_by_role("button", name="Add the schedule").click()
    for field, words in (("cron", "no cron line"), ("timezone", "no time zone"), ("arguments", "not JSON")):
        await expect(page.locator(f"#fault-{field}")).to_contain_text(words)
    await expect(page.get_by_label("When (cron line)")).to_have_value("soon")
    await expect(page.get_by_label("Arguments (JSON)")).to_have_value('{"text": ')

    plain = await people.sign_in(ANN, "caller", path="/schedules/new", java_script_enabled=False)
    await plain.get_by_label("When (cron line)").fill("0 8 * * *")
    await plain.get_by_label("Time zone").fill("Africa/Kigali")
    await plain.get_by_label("Tool", exact=True).fill("echo")
    await plain.get_by_role("button", name="Check the times").click()
    await expect(plain.locator("#times li")).to_have_count(5)
    await expect(plain.locator("#times")).to_contain_text("08:00")
    await plain.get_by_role("button", name="Add the schedule").click()
    await expect(plain.locator("#fault-arguments")).to_be_visible()  # echo needs a text
    await plain.get_by_label("Arguments (JSON)").fill('{"text": "good morning"}')
    await plain.get_by_label("Name", exact=True).fill("morning")
    await plain.get_by_role("button", name="Add the schedule").click()
    for button, words in (("Pause", "is paused"), ("Resume", "fires again"), ("Run now", "A job is queued now")):
        await plain.get_by_role("button", name=button).click()
        await expect(plain.get_by_role("status")).to_contain_text(words)
    await plain.get_by_text("Remove…").click()
    await plain.get_by_role("button", name="Remove the schedule").click()
    await expect(plain.get_by_text("No call is made by the clock yet")).to_be_visible()


async def test_the_log_is_verified_and_one_that_was_changed_is_shown_as_such(app: App, people: People) -> None:
    outcome = await app.invoke("echo", {"text": "hello"}, actor=ANN)
    await app.audit.sign()
    page = await people.sign_in(ANN, "operator", path="/audit")
    await page.keyboard.press("v")
    await expect(page.get_by_text("nothing was changed")).to_be_visible()
    await expect(page.get_by_text("Verified up to row")).to_be_visible()
    await page.goto(f"{people.url}/audit?kind=end")
    await page.locator("#rows tbody a").first.click()
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Download the proof").click()
    assert outcome.id in Path(await (await download.value).path()).read_text()
    in_database(app, "UPDATE audit_log SET body = ? WHERE call_id = ? AND kind = 'end'", HOSTILE, outcome.id)
    await page.goto(f"{people.url}/audit")
    await page.get_by_role("button", name="Verify now").click()
    await expect(page.get_by_text("Somebody has changed the log.")).to_be_visible()
    viewer = await people.sign_in(ANN, "viewer", path="/audit")
    await expect(viewer.get_by_role("button", name="Verify now")).to_have_count(0)


async def test_what_is_of_another_tenant_looks_missing(app: App, people: People) -> None:
    id = await Report(app).failed_job()
    key, _ = await app.keys.create("ours", ANN)
    schedule = await app.schedules.add("@daily", "echo", {"text": "x"}, name="ours", actor=ANN)
    await app.flush()
    page = await people.sign_in(EVE, "admin")
    for path in (f"/jobs/{id}", f"/keys/{key.id}", f"/schedules/{schedule.id}", "/audit/1", "/jobs/nothing"):
        answer = await page.goto(people.url + path)
        assert answer is not None and answer.status == 404, path
        await expect(page.get_by_role("link", name="Overview").last).to_be_visible()
    for path in PLACES:
        await page.goto(people.url + path)
        assert "acme" not in await page.content() and "ours" not in await page.locator("main").inner_text()
    answer = await page.goto(f"{people.url}/jobs?tenant=acme")
    assert answer is not None and answer.status == 403
    caller = await people.sign_in(ANN, "caller")
    for path, status in (("/system", 200), ("/jobs", 200), ("/audit", 403), ("/keys", 403), ("/tenants", 403)):
        answer = await caller.goto(people.url + path)
        assert answer is not None and answer.status == status, path


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.matrix("the other theme"))])
async def test_hostile_names_are_text_and_every_page_can_be_used_by_all(app: App, people: People, theme: str) -> None:
    crook = Actor("acme", persona=MARKUP, user=f"{MARKUP} bob")
    id = await Report(app).failed_job(crook)
    schedule = await app.schedules.add("@daily", "echo", {"text": HOSTILE}, name=MARKUP, actor=crook)
    await app.invoke(HOSTILE, {"text": HOSTILE}, actor=crook)
    await app.invoke("echo", {"text": HOSTILE}, actor=Actor(MARKUP, user=MARKUP))
    page = await people.sign_in(ANN, "operator", viewport=PHONE, color_scheme=theme)
    for path in (*PLACES, f"/jobs/{id}", f"/schedules/{schedule.id}", "/audit/1", "/jobs/no/such/page"):
        await page.goto(people.url + path)
        assert await page.locator("img").count() == 0, path
        assert not {"\x1b", "\u202e", "\u200b"}.intersection(await page.locator("main").inner_text()), path
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert await inaccessible(page) == [], path


async def test_every_route_is_on_the_page_of_the_api_with_who_may_use_it(site: Site, people: People) -> None:
    caller = await people.sign_in(ANN, "caller")
    await caller.goto(f"{people.url}/docs")
    shown = await caller.locator("tbody tr td:first-child").all_inner_texts()
    paths = site.http.openapi["paths"]
    assert sorted(shown) == sorted(f"{method.upper()} {path}" for path, ones in paths.items() for method in ones)
    rows = caller.locator("tr", has_text="/v1/teams")
    assert await rows.count() == await rows.filter(has_text="you have none of these").count() + 1  # the bundle, with a scope
    await caller.goto(f"{people.url}/docs?q=v1/feedback")
    await expect(caller.locator("tbody tr")).to_have_count(2)
    await expect(caller.locator("tbody tr").first).to_contain_text("tool_name required")
    await expect(caller.locator("tbody")).not_to_contain_text("you have none of these")
    assert b"not signed in" in (await site("GET", "/docs", {"Accept": "text/html"})).body


async def test_an_unknown_address_is_a_page_for_people_and_a_document_for_programs(site: Site, people: People) -> None:
    html = {"Accept": "text/html,*/*"}
    for headers, path in (({}, "/jobs/x/y"), ({"Accept": "application/json"}, "/jobs/x/y"), (html, "/v1/x"), (html, "/x")):
        answer = await site("GET", path, headers)
        assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json")
    assert b"not signed in" in (await site("GET", "/jobs/x/y", html)).body
    icon = await site("GET", "/favicon.ico")
    assert icon.status == 302
    assert (await site("GET", icon.headers["location"])).headers["content-type"] == "image/svg+xml"
    page = await people.sign_in(ANN, "viewer")
    for path in ("/no-such-page", "/jobs/x/y"):
        shown = await page.goto(people.url + path)
        assert shown is not None and shown.status == 404
        await expect(page.get_by_text("There is no page here.")).to_be_visible()
