"""Calls, one call and search: found by mouse, by keys, without JavaScript and on a phone; explained, made again, undone."""

import ast
import json
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.chromium import PHONE, SEARCH_MS, People
from tests.console.hostile_world import HIDDEN, SCRIPT
from tests.serving import Site
from toolgate import Actor, App, InvokeContext, Outcome, tool
from toolgate.model.roles import Role
from toolgate.serve.console.call_copies import command_of, program_of
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-2")

ANN, BOB = Actor("acme", user="ann"), Actor("acme", "analyst", "bob")
OTHER = Actor("other", user="olga")
SECRET = "sk-ant-api03-" + "a" * 40
BIDI = "\u202e\u2066\u200b\u200f"
HOSTILE = "<script>window.hacked=1</script>\u202e$(touch x) `y` 'z' \"\\ \n--yes"


@pytest.fixture
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("console")
    details = {"details": {"rules": [{"keep": "output"}]}}
    async with memory_app(home=folder, database_url=f"sqlite:///{folder}/t.db", audit=details) as app:

        @tool(tier="read_only")
        async def look(order: str, token: str = "") -> dict[str, Any]:
            """Look an order up."""
            return {"order": order, "signed": bool(token)}

        @tool(tier="read_only")
        async def report(day: str, ctx: InvokeContext) -> int:
            """Report a day."""
            await ctx.call_tool("middle", day=day)
            return 1

        @tool(tier="read_only")
        async def middle(day: str, ctx: InvokeContext) -> int:
            """Look a day up."""
            for number in range(2):
                await ctx.call_tool("look", order=f"{day}-{number}")
            return 2

        for one in (look, report, middle):
            app.register(one)
        yield app


async def made(app: App, name: str, arguments: dict[str, Any], actor: Actor = ANN, **terms: Any) -> Outcome:
    outcome = await app.invoke(name, arguments, actor=actor, **terms)
    await app.flush()
    return outcome


def row(page: Page, call: Outcome) -> Any:
    return page.locator(f"#call-{call.id}")


@pytest.mark.needs("chromium")
async def test_calls_are_followed_paused_filtered_and_opened(app: App, people: People) -> None:
    first = await made(app, "look", {"order": "1"}, BOB, door="mcp")
    page = await people.sign_in(ANN, "operator", path="/calls")
    await expect(row(page, first)).to_contain_text("analyst / bob")
    second = await made(app, "look", {"order": "2"})
    await expect(row(page, second)).to_be_visible()
    await expect(row(page, second)).to_have_class("arrived")
    await page.get_by_role("button", name="Pause").click()
    third = await made(app, "echo", {"text": "x"})
    failed = await made(app, "look", {"wrong": 1})
    await page.wait_for_timeout(800)  # longer than a page that follows takes
    await expect(row(page, third)).to_have_count(0)
    await page.get_by_role("button", name="Go on").click()
    await expect(row(page, third)).to_be_visible()
    await expect(row(page, failed)).to_contain_text("unknown argument")
    await expect(row(page, failed)).to_contain_text("VALIDATION_ERROR")
    await page.locator("select[name=status]").select_option("failure")
    await expect(page.locator("#calls tbody tr")).to_have_count(1)
    assert "status=failure" in page.url
    await page.get_by_role("link", name="Clear").click()
    await expect(page.locator("#calls tbody tr")).to_have_count(4)
    await page.locator("select[name=door]").select_option("mcp")
    await expect(page.locator("#calls tbody tr")).to_have_count(1)
    await row(page, first).get_by_role("link").click()
    await expect(page.get_by_role("heading", level=1, name="look")).to_be_visible()
    await expect(page.locator(".stages li").first).to_contain_text("Tool")
    await expect(page.locator(".stages")).to_contain_text("the tool answered")


@pytest.mark.needs("chromium")
async def test_brushing_a_plot_shows_the_calls_of_that_time(app: App, people: People) -> None:
    call = await made(app, "look", {"order": "1"})
    page = await people.sign_in(ANN, "operator", path="/calls?tool=look")
    plot = page.locator("#by-outcome .u-over")
    await expect(plot).to_be_visible()
    box = await plot.bounding_box()
    assert box is not None
    for first, last, is_shown in ((0.1, 0.4, False), (0.6, 0.995, True)):
        await page.goto(f"{people.url}/calls?tool=look&range=24h")
        await expect(plot).to_be_visible()
        await page.mouse.move(box["x"] + box["width"] * first, box["y"] + 20)
        await page.mouse.down()
        await page.mouse.move(box["x"] + box["width"] * last, box["y"] + 20, steps=5)
        await page.mouse.up()
        await expect(page.locator(".chip")).to_contain_text("UTC")
        assert "since=" in page.url and "until=" in page.url and "tool=look" in page.url
        await expect(row(page, call)).to_have_count(int(is_shown))
    await page.get_by_role("link", name="Any other time").click()
    await expect(page.locator("select[name=range]")).to_be_visible()


@pytest.mark.needs("chromium")
async def test_a_call_is_explained_and_made_again_by_keys_alone(app: App, people: People) -> None:
    call = await made(app, "report", {"day": "mon"})
    page = await people.sign_in(ANN, "operator", path="/calls?tool=report")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    tree = page.locator(".tree tr")
    await expect(tree).to_have_count(3)
    await expect(tree.nth(1).locator("td").first).to_have_class("mono level-1")
    await page.keyboard.press("e")
    await expect(page.locator("#explanation")).to_contain_text("Every gate would let it pass")
    await page.keyboard.press("r")
    await expect(page.get_by_text("A new call with these arguments")).to_be_visible()
    await expect(page.locator("pre").first).to_contain_text('"mon"')
    await page.keyboard.press("r")
    await expect(page.get_by_text("This is the new call")).to_be_visible()
    assert call.id not in page.url
    found = await app.audit.latest(1, tool="report")
    assert found[0][3] in page.url
    await page.get_by_role("link", name="middle").click()
    await page.get_by_role("link", name="the call that made it").click()
    await expect(page.get_by_role("heading", level=1, name="report")).to_be_visible()
    await page.get_by_role("link", name="Prove it with the signed log").click()
    await expect(page.locator("#proof")).to_contain_text("Proven")


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.needs("chromium")
async def test_without_javascript_and_on_a_phone(app: App, people: People) -> None:
    await made(app, "look", {"order": HOSTILE}, BOB)
    await made(app, "echo", {"text": "x"})
    page = await people.sign_in(ANN, "operator", path="/calls", java_script_enabled=False, viewport=PHONE)
    await page.locator("select[name=tool]").select_option("look")
    await page.locator("#filters > button").click()
    await expect(page.locator("#calls tbody tr")).to_have_count(1)
    await page.get_by_role("link", name="look").click()
    await expect(page.get_by_text("U+202E").first).to_be_visible()
    await page.get_by_role("link", name="Run again").click()
    await page.get_by_role("button", name="Run it").click()
    await expect(page.get_by_text("This is the new call")).to_be_visible()
    phone = await people.sign_in(ANN, "operator", path="/calls", viewport=PHONE)
    for path in ("/calls", page.url.removeprefix(people.url), "/search?q=look"):
        await phone.goto(people.url + path)
        assert await phone.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert not await phone.evaluate("'hacked' in window")


@pytest.mark.needs("chromium")
async def test_search_lists_as_one_types_and_goes_to_an_id_at_once(app: App, people: People) -> None:
    call = await made(app, "look", {"order": "1"}, request_id="order-4711")
    page = await people.sign_in(ANN, "operator")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("look")
    hits = page.locator("#ahead a")
    await expect(hits.first).to_contain_text("look", timeout=SEARCH_MS)
    await page.keyboard.press("ArrowDown")
    await expect(hits.first).to_be_focused()
    await page.keyboard.press("ArrowUp")
    await expect(page.locator("#search")).to_be_focused()
    await page.locator("#search").fill("order-4711")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1, name="look")).to_be_visible()
    assert call.id in page.url
    await page.locator("#search").fill("zzqqxx")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Nothing of “zzqqxx”")).to_be_visible()


async def test_what_a_call_page_says_and_to_whom(app: App, site: Site) -> None:
    masked = await made(app, "look", {"order": "1", "token": SECRET}, BOB)
    waiting = await made(app, "http_fetch", {"url": "https://example.com"}, BOB)
    assert waiting.pending is not None
    people: list[tuple[Actor, Role]] = [(ANN, "operator"), (ANN, "viewer"), (BOB, "caller"), (OTHER, "admin")]
    operator, viewer, bob, olga = [
        (await app.keys.create(f"key of {who.user} {role}", who, roles=[role]))[1] for who, role in people
    ]

    async def text(path: str, key: str, status: int = 200) -> str:
        answer = await site("GET", path, key=key)
        assert answer.status == status, (path, answer.status)
        return answer.body.decode()

    shown = await text(f"/calls/{masked.id}", operator)
    assert SECRET not in shown
    assert '<span class="badge quiet">masked</span>' in shown
    assert "verified" in shown
    assert "are masked on record" in await text(f"/calls/{masked.id}/again", operator)
    assert f"/approvals/{waiting.pending.id}" in await text(f"/calls/{waiting.id}", bob)
    assert "Run again" not in await text(f"/calls/{masked.id}", viewer)
    assert "look" not in (await text("/calls", olga)).partition('<section class="panel" id="calls"')[2]
    await text(f"/calls/{masked.id}", olga, 404)
    await text(f"/calls/{masked.id}/again", olga, 404)
    assert f"/calls/{masked.id}" not in await text(f"/search?q={masked.id}", olga)
    await text(f"/search?q={masked.id[:13]}", viewer, 303)
    wrong = await text("/calls?since=yesterday&id=short", operator, 422)
    assert "A time such as" in wrong
    assert 'value="yesterday"' in wrong
    for path in ("/calls?status=lost", "/calls?limit=0", "/calls?nothing=1", "/calls?cursor=x"):
        assert (await site("GET", path, key=operator)).status in (400, 422), path
    assert (await text("/calls?format=csv", viewer)).startswith("id,tool,status")


async def test_pages_of_calls_go_on_where_the_one_before_ended(app: App, site: Site) -> None:
    calls = [await made(app, "echo", {"text": str(number)}) for number in range(5)]
    await site.with_key(app, ANN, roles=["viewer"])
    seen: list[str] = []
    path: str | None = "/calls?limit=2&tool=echo"
    while path:
        page = (await site("GET", path)).body.decode()
        seen += [one.partition('"')[0] for one in page.split(' id="call-')[1:]]
        link = page.partition('" rel="next"')[0].rpartition('href="')[2] if 'rel="next"' in page else ""
        path = link.replace("&amp;", "&") or None
    assert seen == [call.id for call in reversed(calls)]
    listed = (await site("GET", f"/v1/invocations?id={calls[0].id}")).json
    assert [one["id"] for one in listed["items"]] == [calls[0].id]


async def test_calls_within_a_call_are_listed_by_level(app: App, site: Site) -> None:
    call = await made(app, "report", {"day": "mon"}, BOB)
    await site.with_key(app, ANN, roles=["viewer"])
    found = (await site("GET", f"/v1/invocations/{call.id}/calls")).json["items"]
    middle = next(one for one in found if one["tool"] == "middle")
    assert middle["parent"] == call.id
    assert [one["parent"] for one in found if one["tool"] == "look"] == [middle["id"]] * 2


@pytest.mark.needs("chromium")
async def test_files_that_a_call_changed_are_put_back(app: App, people: People, tmp_path: Path) -> None:
    file = tmp_path / "note.txt"
    file.write_text("before")
    change = {"operation": "write", "path": "note.txt", "content": "after"}
    asked = await made(app, "file_operations", change, workspace=tmp_path)
    assert asked.pending is not None
    await app.approvals.answer(asked.pending.id, True, actor=Actor("acme", user="boss"))
    call = await made(app, "file_operations", change, workspace=tmp_path, approval=asked.pending.id)
    assert (call.status, file.read_text()) == ("success", "after"), call
    page = await people.sign_in(ANN, "operator", path=f"/calls/{call.id}")
    await page.get_by_role("link", name="Undo").click()
    await expect(page.get_by_text("put back as it was")).to_be_visible()
    file.write_text("changed again")
    await page.get_by_role("button", name="Put them back").click()
    await expect(page.locator("#fault-force")).to_be_visible()
    assert file.read_text() == "changed again"
    await page.get_by_label("Also files that were changed again since").check()
    await page.get_by_role("button", name="Put them back").click()
    await expect(page.get_by_text("The files are as they were before the call.")).to_be_visible()
    assert file.read_text() == "before"


@pytest.mark.needs("chromium")
async def test_names_of_files_to_put_back_are_shown_as_text(app: App, people: People, tmp_path: Path) -> None:
    """Before anything is undone, and where the page says which file was changed again. Control characters are refused in
    names of files before a page could show them."""
    name = SCRIPT.replace("/", "-") + BIDI
    file = tmp_path / name
    file.write_text("before")
    change = {"operation": "write", "path": name, "content": SCRIPT + HIDDEN}
    asked = await made(app, "file_operations", change, workspace=tmp_path)
    assert asked.pending is not None, asked
    await app.approvals.answer(asked.pending.id, True, actor=Actor("acme", user="boss"))
    call = await made(app, "file_operations", change, workspace=tmp_path, approval=asked.pending.id)
    assert call.status == "success", call
    page = await people.sign_in(ANN, "operator", path=f"/calls/{call.id}/undo", viewport=PHONE)
    await _is_harmless(page)
    file.write_text("changed again")
    await page.get_by_role("button", name="Put them back").click()
    await expect(page.locator("#fault-force")).to_contain_text("onerror")
    await _is_harmless(page)
    assert file.read_text() == "changed again"


async def _is_harmless(page: Page) -> None:
    """The name is there as text, nothing of it runs, and nothing that can't be seen is in the page."""
    await expect(page.locator("td.mono")).to_contain_text("<img src=x onerror=window.hacked=1>")
    assert not await page.evaluate("'hacked' in window || document.querySelector('main img, main svg[onload]') !== null")
    text = await page.evaluate("document.documentElement.outerHTML")
    assert not [hex(ord(char)) for char in BIDI if char in text]
    assert await page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_copies_mean_the_call_and_nothing_else() -> None:
    arguments = {HOSTILE: HOSTILE, "list": [1.5, None, True, {"a": HOSTILE}]}
    actor = Actor("$(tenant)", "a b", "--user")
    line = command_of("-x; rm", json.dumps(arguments), actor)
    words = shlex.split(line)
    assert words[:2] == ["toolgate", "call"]
    assert words[2:5] == ["--tenant=$(tenant)", "--persona=a b", "--user=--user"]
    assert json.loads(words[5].removeprefix("--args=")) == arguments
    assert words[6:] == ["--", "-x; rm"]
    assert line.isascii()
    source = program_of('");import os#', arguments, actor)
    assert source.isascii()
    call = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and len(node.args) == 2)
    assert [ast.literal_eval(one) for one in call.args] == ['");import os#', arguments]
