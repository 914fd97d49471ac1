"""Suggestions of policy data in the console: what was used, what was not, and what the suggestion would change."""

import json

import pytest
from playwright.async_api import expect

from tests.chromium import People
from toolgate import Actor, App

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.requirement("DOOR-2", "POL-9")]
ANN = Actor("acme", "analyst", "ann")


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
async def test_use_is_shown_by_persona_and_the_suggestion_tried_and_kept(app: App, people: People, scripts: bool) -> None:
    await app.invoke("echo", {"text": "one"}, actor=ANN)
    await app.invoke("calculator", {"expression": 7}, actor=ANN)
    await app.invoke("echo", {"text": "two"}, actor=Actor("globex", "spy", "eve"))
    page = await people.sign_in(Actor("acme", user="op"), "operator", path="/policy", java_script_enabled=scripts)
    await page.get_by_role("link", name="Suggestions").click()
    analyst = page.get_by_role("region", name="acme: Persona analyst")
    await expect(analyst.locator("tbody tr").first).to_contain_text("echo")
    await expect(analyst).to_contain_text("stopped each time by a person or another gate: calculator (1)")
    await expect(page.get_by_role("region", name="acme: Callers without a persona")).to_contain_text("No call of theirs ran")
    await expect(page.locator("main")).not_to_contain_text("spy")
    suggested = json.loads(await page.get_by_role("region", name="Suggested data").inner_text())
    assert suggested == {"tenant_tool_allow": {"acme": {"personas": {"analyst": ["echo"]}}}}

    await page.get_by_role("link", name="Try it on real calls").click()
    await expect(page.locator("#replay .tile", has_text="would be denied")).to_contain_text("1")
    await expect(page.locator("main")).to_contain_text("calculator is not on the allow list of tenant acme")
    async with page.expect_download() as kept:
        await page.get_by_role("link", name="Keep it as a file").click()
    file = await (await kept.value).path()
    assert json.loads(file.read_bytes()) == suggested
    assert app.policy.data.allow_lists == {}


async def test_only_operators_see_suggestions(people: People) -> None:
    for role in ("viewer", "approver", "admin"):
        page = await people.sign_in(ANN, role, path="/policy")
        await expect(page.get_by_role("link", name="Suggestions")).to_have_count(0)
        answer = await page.goto(people.url + "/policy/suggestions")
        assert answer is not None and answer.status == 403
