"""The policy in the console: its text, its data, and another policy tried on real calls."""

import pytest
from playwright.async_api import expect

from tests.chromium import People
from toolgate import Actor, App

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.requirement("DOOR-2")]

ANN = Actor("acme", user="ann")
DENIES_ECHO = """package soma.policy

import rego.v1

default allow := false

allow if input.resource != "echo"

decision := {"allow": allow, "reason": "nobody echoes <b>here</b>"}
"""


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_another_policy_is_tried_on_real_calls_and_nothing_changes(app: App, people: People) -> None:
    await app.invoke("echo", {"text": "one"}, actor=ANN)
    await app.invoke("echo", {"text": "two"}, actor=ANN)
    await app.invoke("echo", {"text": "three"}, actor=Actor("globex", user="eve"))
    page = await people.sign_in(ANN, "operator", path="/policy/what-if")
    shipped = await page.get_by_label("Policy", exact=True).input_value()
    assert shipped.startswith("# The policy that Toolgate ships")
    await page.get_by_label("Policy", exact=True).fill(DENIES_ECHO)
    await page.get_by_role("button", name="Replay").click()
    result = page.locator("#replay")
    await expect(result.locator(".tile", has_text="would be denied")).to_contain_text("2")
    changes = page.locator("#changes")
    await expect(changes.locator("tbody tr")).to_have_count(1)
    await expect(changes.locator("tbody tr")).to_contain_text("nobody echoes <b>here</b>")
    await expect(changes).not_to_contain_text("globex")
    assert (await app.invoke("echo", {"text": "still"}, actor=ANN)).status == "success"

    await page.get_by_label("Policy", exact=True).fill(DENIES_ECHO + "\nallow if {\n\tfoo(\n}\n")
    await page.get_by_role("button", name="Replay").click()
    await expect(page.locator("#fault-rego")).to_contain_text("does not compile at line 13, column 1")
    await expect(page.locator("pre .del")).to_contain_text("13")
    assert "foo(" in await page.get_by_label("Policy", exact=True).input_value()

    plain = await people.sign_in(ANN, "operator", path="/policy/what-if", java_script_enabled=False)
    await plain.get_by_label("Policy", exact=True).fill(DENIES_ECHO)
    await plain.locator("#f-days").fill("0")
    await plain.get_by_role("button", name="Replay").click()
    await expect(plain.locator("#fault-days")).to_have_text("A number of days from 1 to 366.")
    await plain.locator("#f-days").fill("1")
    await plain.get_by_role("button", name="Replay").click()
    await expect(plain.locator("#replay .tile", has_text="would be denied")).to_contain_text("3")


async def test_what_would_change_is_seen_while_one_types(app: App, people: People) -> None:
    await app.invoke("echo", {"text": "one"}, actor=ANN)
    page = await people.sign_in(ANN, "operator", path="/policy/what-if")
    policy = page.get_by_label("Policy", exact=True)
    await policy.focus()
    await page.keyboard.press("Control+a")
    await page.keyboard.insert_text(DENIES_ECHO)
    denied = page.locator("#replay .tile", has_text="would be denied")
    await expect(denied).to_contain_text("1")
    await expect(page.locator("#changes tbody tr")).to_contain_text("echo")
    await page.keyboard.insert_text("\nallow if {")
    await expect(page.locator("#said .fault")).to_contain_text("does not compile")
    await expect(denied).to_contain_text("—")
    await expect(policy).to_be_focused()
    await expect(policy).to_have_value(f"{DENIES_ECHO}\nallow if {{")
    assert page.url.endswith("/policy/what-if")


async def test_the_policy_is_coloured_for_operators_and_hidden_from_others(people: People) -> None:
    page = await people.sign_in(ANN, "operator", path="/policy")
    await expect(page.locator(".rego-keyword", has_text="package").first).to_be_visible()
    await expect(page.locator(".rego-comment").first).to_contain_text("# The policy that Toolgate ships")
    viewer = await people.sign_in(ANN, "viewer", path="/policy")
    await expect(viewer.locator("main")).to_contain_text("Only operators see its text.")
    await expect(viewer.get_by_role("link", name="What if")).to_have_count(0)


async def test_data_of_the_policy_is_changed_where_it_stands(app: App, people: People) -> None:
    page = await people.sign_in(ANN, "operator", path="/policy/data")
    denied = page.get_by_role("region", name="Denied tools")
    await denied.get_by_label("Tool", exact=True).fill("echo")
    await denied.get_by_label("Reason").fill("<i>not now</i>")
    await denied.get_by_label("Tool", exact=True).press("Enter")
    await expect(denied.locator("tr")).to_contain_text("echo")
    assert (await app.invoke("echo", {"text": "x"}, actor=ANN)).status != "success"
    await denied.get_by_role("button", name="Allow again").click()
    await expect(denied).to_contain_text("No tool is denied to everybody.")
    assert (await app.invoke("echo", {"text": "x"}, actor=ANN)).status == "success"

    admin = await people.sign_in(Actor("acme", user="adam"), "admin", path="/policy/data", java_script_enabled=False)
    await expect(admin.get_by_role("region", name="Denied tools").get_by_label("Tool", exact=True)).to_have_count(0)
    flags = admin.get_by_role("region", name="Flags")
    await flags.get_by_label("Tool").fill("echo")
    await flags.get_by_role("button", name="Set the flag").click()
    await expect(flags.locator("tbody tr")).to_contain_text("disabled")
    assert (await app.invoke("echo", {"text": "x"}, actor=ANN)).status != "success"
    assert (await app.invoke("echo", {"text": "x"}, actor=Actor("globex", user="eve"))).status == "success"
    await flags.get_by_role("button", name="Remove").click()
    await expect(flags).to_contain_text("No tool is enabled or disabled by a flag")
