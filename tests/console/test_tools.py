"""The pages of tools: the list, one tool, its form, for whom it is enabled."""

import json
import re
from time import perf_counter
from typing import Any, Literal

import pytest
from playwright.async_api import Locator, Page, expect
from pydantic import BaseModel

from tests.chromium import PHONE, People
from tests.console.plain_browser import signed_in
from tests.serving import Site
from toolgate import Actor, App, tool
from toolgate.registry.compile import definition
from toolgate.store.catalog import DynamicRow, add_dynamic

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.requirement("DOOR-2")]

ANN = Actor("acme", user="ann")
BIDI, ANSI, MARKUP = "\u202e", "\x1b[31m", "<img src=x onerror=alert(1)>"


class Address(BaseModel):
    street: str
    country: Literal["DE", "FR"] = "DE"


PARCEL = {"to": {"street": "Main Street 1"}, "weight": 2.5, "contents": ["books", "tea"]}
SHIPPED: list[str] = []


@tool(tier="read_only")
async def ship(to: Address, weight: float, contents: list[str], insured: bool = False, count: int = 1) -> dict[str, Any]:
    """Tells what sending a parcel would cost."""
    SHIPPED.append(to.street)
    return {"street": to.street, "weight": weight, "contents": contents, "insured": insured, "count": count}


@tool(tier="external_api")
async def pay(amount: int) -> str:
    """Pays somebody."""
    return f"paid {amount}"


COLOURED = """(canvas) => {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let found = 0;
    for (let at = 0; at < pixels.length; at += 4) {
        const [red, green, blue, alpha] = pixels.slice(at, at + 4);
        if (alpha > 200 && Math.max(red, green, blue) - Math.min(red, green, blue) > 40) found++;
    }
    return found;
}"""
"""The pixels of a drawing that are no grey: axes and grid are."""


async def fill(page: Page) -> None:
    await page.get_by_label("street").fill("Main Street 1")
    await page.get_by_label("contents").fill("books\ntea")


async def test_a_tool_is_explained_tried_and_corrected_by_mouse(app: App, people: People) -> None:
    app.register(ship)
    app.register(pay)
    page = await people.sign_in(ANN, "operator", path="/tools?q=parcel")
    await page.get_by_role("link", name="ship", exact=True).click()
    await fill(page)
    await page.get_by_label("weight").fill("heavy")
    await page.get_by_role("button", name="Run", exact=True).click()
    await expect(page.get_by_text("This is not a number: heavy")).to_be_visible()
    await expect(page.get_by_label("street")).to_have_value("Main Street 1")
    await page.get_by_label("weight").fill("")
    await page.get_by_role("button", name="Explain").click()
    await expect(page.locator("#result")).to_contain_text("would be denied")
    await expect(page.locator(".field", has=page.get_by_label("weight")).get_by_role("alert")).to_have_text("Is required.")
    await page.get_by_label("weight").fill("2.5")
    await page.get_by_role("button", name="Explain").click()
    await expect(page.locator("#result")).to_contain_text("would run")
    await expect(page.locator("#history")).to_contain_text("It was not called yet")
    await page.get_by_role("button", name="Run", exact=True).click()
    await expect(page.locator("#result pre")).to_contain_text('"tea"')
    await expect(page.locator("#history tbody tr")).to_have_count(1)
    await page.get_by_role("button", name="As JSON").click()
    await expect(page.get_by_label("Arguments a JSON object")).to_have_value(json.dumps(PARCEL, indent=2))
    await page.goto(f"{people.url}/tools/pay?arguments=%7B%22amount%22%3A5%7D")
    await page.get_by_role("button", name="Run", exact=True).click()
    await page.get_by_role("link", name="Open its approval").click()
    await expect(page.locator("#approval")).to_contain_text("pay")


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_tool_is_tried_by_keyboard_alone_and_on_a_phone(app: App, people: People) -> None:
    app.register(ship)
    page = await people.sign_in(ANN, "operator", path="/tools/ship", viewport=PHONE)
    for _ in range(60):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.name") == "/to/street":
            break
    await page.keyboard.type("Main Street 1")
    await page.keyboard.press("Tab")
    await page.keyboard.press("f")  # France
    for text in ("2", "books"):
        await page.keyboard.press("Tab")
        await page.keyboard.type(text)
    for _ in range(4):
        await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.value") == "run"
    await page.keyboard.press("Enter")
    await expect(page.locator("#result")).to_contain_text("success")
    assert await page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    await page.keyboard.press("e")
    await expect(page.locator("#result")).to_contain_text("would run")


async def test_without_javascript_a_call_runs_once_however_often_its_page_is_loaded(app: App, people: People) -> None:
    app.register(ship)
    SHIPPED.clear()
    page = await people.sign_in(ANN, "caller", path="/tools/ship", java_script_enabled=False)
    await fill(page)
    await page.get_by_label("weight").fill("1")
    await page.get_by_role("button", name="Run", exact=True).click()
    await expect(page.locator("#result pre")).to_contain_text("Main Street 1")
    await page.reload()
    await expect(page.locator("#result pre")).to_contain_text("Main Street 1")
    assert SHIPPED == ["Main Street 1"]
    await expect(page.get_by_role("button", name="Disable")).to_have_count(0)


async def test_a_tool_that_is_disabled_for_a_tenant_is_denied_there_alone(app: App, people: People) -> None:
    other = Actor("other", user="eve")
    await app.invoke("echo", {"text": "x"}, actor=other)
    page = await people.sign_in(ANN, "admin", path="/tools?q=echo+text")
    await page.get_by_role("button", name="Disable echo").click()
    await expect(page.get_by_role("status").filter(has_text="Disabled")).to_be_visible()
    await page.goto(f"{people.url}/tools/echo")
    await expect(page.locator("#access")).to_contain_text("echo is disabled for tenant acme")
    await page.get_by_label("text required").fill("hello")
    await page.get_by_role("button", name="Run", exact=True).click()
    await expect(page.locator("#result")).to_contain_text("There is no tool named 'echo'.")
    assert (await app.invoke("echo", {"text": "x"}, actor=other)).ok
    viewer = await people.sign_in(ANN, "viewer", path="/tools/echo")
    await expect(viewer.get_by_role("heading", name="Not found")).to_be_visible()
    operator = await people.sign_in(other, "operator", path="/tools/echo")
    row = operator.locator("#access tbody tr", has=operator.get_by_role("rowheader", name="acme"))
    await expect(row).to_contain_text("echo is disabled for tenant acme")
    await operator.get_by_label("For", exact=True).select_option("persona")
    await operator.get_by_role("button", name="Disable").click()
    await expect(operator.get_by_text("Name the persona.")).to_be_visible()
    await operator.get_by_label("Persona", exact=True).fill("intern")
    await operator.get_by_label("Reason").fill("not for them")
    await operator.get_by_role("button", name="Disable").click()
    await expect(operator.locator("#access")).to_contain_text("persona intern: not for them")


async def test_an_operator_chooses_among_the_personas_of_calls_and_sees_what_each_may(app: App, site: Site) -> None:
    await app.invoke("echo", {"text": "x"}, actor=Actor("acme", "analyst", "ann"))
    await app.tools.set_enabled("echo", False, persona="intern", actor=ANN)
    await app.statistics.catch_up()
    operator = await signed_in(app, site, ANN, "operator")
    page = (await operator.get("/tools/echo")).body.decode()
    for persona in ("analyst", "intern"):
        assert f"<option>{persona}</option>" in page
        assert f'<th scope="col">{persona}</th>' in page
    assert re.search(r"may not</span><br>[^/]*persona intern", page)
    viewer = await signed_in(app, site, Actor("acme", user="vera"), "viewer")
    assert "intern" not in (await viewer.get("/tools/echo")).body.decode()


async def test_a_tool_has_plots_of_its_calls_and_says_where_there_are_none(app: App, people: People) -> None:
    app.register(ship)
    page = await people.sign_in(ANN, "operator", path="/tools/ship")
    figures = page.locator("#figures")
    await expect(figures).to_contain_text("0 calls in 30 days")
    for words in ("It was not called in this time.", "No call ended in this time.", "It did not run in this time."):
        await expect(figures).to_contain_text(words)
    await expect(page.locator("pre", has_text="toolgate call ship --args")).to_contain_text('"to": {"street": "..."}')
    await app.invoke("ship", PARCEL, actor=ANN)
    for plot in ("calls", "success", "latency"):  # by themselves, and one point is seen
        await expect(page.locator(f"#plot-{plot} canvas")).to_be_visible()
        assert await page.locator(f"#plot-{plot} canvas").evaluate(COLOURED) > 20, plot
    await expect(figures).to_contain_text("1 call in 30 days: 1 succeeded")
    await app.invoke("ship", {"to": 1}, actor=ANN)
    await expect(figures).to_contain_text("2 calls in 30 days: 1 succeeded, 1 failed")
    await page.locator("#plot-success").get_by_role("button", name="Show as table").click()
    await expect(page.locator("#plot-success tbody")).to_contain_text("50.0 %")
    await page.get_by_role("link", name="24 hours").click()
    await expect(page.get_by_role("link", name="24 hours")).to_have_attribute("aria-current", "true")
    await expect(page.locator("#plot-calls canvas")).to_be_visible()
    await drag(page, page.locator("#plot-calls .plot-canvas"))
    await expect(page).to_have_url(re.compile(r"/calls\?tool=ship&since=.*&until="))
    await expect(page.get_by_role("heading", level=1, name="Calls")).to_be_visible()
    own = await people.sign_in(Actor("acme", user="carl"), "caller", path="/tools/ship")
    await expect(own.locator("#figures")).to_contain_text("0 calls of yours in 30 days")
    await expect(own.get_by_role("link", name="24 hours")).to_have_count(0)


async def drag(page: Page, plot: Locator) -> None:
    """Draws over the right half of a plot."""
    await expect(plot).to_be_visible()
    box = await plot.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 20)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 30, steps=5)
    await page.mouse.up()


def hostile_schema() -> dict[str, Any]:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(30):
        deep = {"type": "object", "properties": {"deeper": deep}}
    many = {f"p{number}": {"type": "string", "description": "d" * 100} for number in range(500)}
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "value": {"type": "integer"}}}
    named = {f"{MARKUP}{BIDI}{ANSI}/~ x": {"enum": [MARKUP, f"{BIDI}b", 3, None], "description": MARKUP + ANSI}}
    huge = {"enum": [f"value {number}" for number in range(8_000)]}
    odd = {"odd": True, "self": {"$ref": "#"}, "types": {"type": ["string", "integer"]}}
    return {
        "type": "object", "$defs": {"node": node},
        "properties": {**named, "node": {"$ref": "#/$defs/node"}, "deep": deep, "huge": huge, **odd, **many},
    }  # fmt: skip


@pytest.mark.requirement("REG-5")
async def test_a_registered_tool_shows_who_registered_it_and_can_be_removed(app: App, people: People) -> None:
    fields = {"name": "turned", "description": "Turn a text around.", "kind": "sandbox",
              "program": {"runtime": "python", "code": "def execute(args, context):\n    return 1\n"}}  # fmt: skip
    await app.policy.allow_adding_tools("builder")
    bea = Actor("acme", "builder", "bea")
    await app.tools.add_dynamic(fields, bea, door="http")
    page = await people.sign_in(bea, "admin", path="/tools/turned")
    await expect(page.get_by_text("by bea as builder (http), runs as sandbox")).to_be_visible()
    await page.get_by_role("button", name="Remove this tool").click()
    await expect(page.get_by_text("Removed.")).to_be_visible()
    assert await app.tools.list(bea, "dynamic") == ()


async def test_hostile_definitions_are_shown_as_what_they_are_and_quickly(app: App, people: People) -> None:
    fields = {"name": "hostile", "description": f"{MARKUP}{BIDI}{ANSI}", "kind": "sandbox", "tier": "execute",
              "input_schema": hostile_schema(), "program": {"runtime": "python", "code": "return 1"}}  # fmt: skip
    # as a version that did not screen texts may have recorded it
    made = definition({**fields, "source": "dynamic", "tenant": "acme"})
    schema = json.dumps(made.input_schema)
    row = DynamicRow("hostile", "acme", "builder", "sandbox", None, schema, made.model_dump_json(), True)
    await app.parts.store_sync.change(add_dynamic(row))
    page = await people.sign_in(ANN, "operator", path="/tools/hostile")
    await expect(page.locator(".lead")).to_have_text(f"{MARKUP}U+202EU+001B[31m")
    await expect(page.locator("#content img")).to_have_count(0)
    assert await page.locator("#try [name]").count() < 100
    named = page.locator("#try select").first
    await named.select_option(label=MARKUP)
    await page.get_by_label("more arguments a JSON object").fill('{"p499": 7}')
    began = perf_counter()
    await page.get_by_role("button", name="Explain").click()
    await expect(page.locator("#result")).to_contain_text("would be denied")
    await expect(page.locator("#try")).to_contain_text("Does not fit its schema")
    assert perf_counter() - began < 5
    await expect(page.locator("#try select").first.locator("option:checked")).to_have_text(MARKUP)
    await page.goto(f"{people.url}/tools?q=hostile")
    await expect(page.locator("#tools")).to_contain_text(MARKUP)
    assert people.faults == []


async def test_pages_show_what_the_role_may_see(app: App, site: Site) -> None:
    """Over HTTP: lists as files, filters that fit nothing, wrong queries, forms that are not of this page."""
    ann, eve = await signed_in(app, site, ANN, "admin"), await signed_in(app, site, Actor("other", user="eve"), "viewer")
    listed = await ann.get("/tools?tier=read_only&format=csv")
    assert listed.body.startswith(b"name,description,category,tier")
    assert b"No tool fits" in (await ann.get("/tools?q=zzqqxxyy")).body
    assert (await ann.get("/tools?tier=harmless")).status == 422
    assert (await ann.get("/tools?state=quarantined")).status == 403
    assert b"This is not JSON" in (await ann.get("/tools/echo?form=json&arguments=%7B")).body
    assert (await ann.get("/servers")).status == 403
    assert (await ann.post("/tools/echo/flag", {"enabled": "perhaps"})).status == 422
    refused = await ann.post("/tools/echo/flag", {"enabled": "no", "whose": "everybody"})
    assert (refused.status, b"This needs the role operator" in refused.body) == (422, True)
    assert (await ann.post("/tools/echo", {"action": "run"}, csrf="wrong")).status == 403
    assert (await app.invoke("echo", {"text": "x"}, actor=ANN)).ok
    assert b"100.0 %" in (await ann.get("/learning")).body
    assert b"No call has run" in (await eve.get("/learning")).body
    shown = await eve.get("/tools/echo")
    assert b"It was not called yet" in shown.body
    assert b'value="run"' not in shown.body
    assert (await eve.post("/tools/echo", {"action": "run", "/text": "x"})).status == 403


async def test_the_twins_of_the_pages_answer_the_same(app: App, site: Site) -> None:
    ann, eve = await signed_in(app, site, ANN, "operator"), await signed_in(app, site, Actor("other", user="eve"), "caller")
    await app.tools.disable("echo", tenant="acme")
    assert [one["name"] for one in (await ann.get("/v1/tools?state=disabled")).json["items"]] == ["echo"]
    assert (await eve.get("/v1/tools?state=disabled")).status == 403
    matrix = (await ann.get("/v1/tools/echo/access?tenant=*")).json
    assert matrix["tenants"][0] == "acme"
    assert matrix["cells"][0] | {"persona": None} == {
        "tenant": "acme", "persona": None, "allow": False, "reason": "echo is disabled for tenant acme",
    }  # fmt: skip
    own = (await eve.get("/v1/tools/echo/access")).json
    assert [(one["tenant"], one["allow"]) for one in own["cells"]] == [("other", True)]
