"""What waits is all there, page by page and for every tenant; and what a caller is told approves nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.asking import ADA, ASKING, Workshop, ask
from tests.mcp_clients import ERAS, connected, key_for
from tests.serving import serving
from tests.teletype import Teletype
from tests.terminal import Terminal
from toolgate import Actor, App
from toolgate.gates.approval.request import ApprovalError
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("TIER-6", "TIER-10")

TOOLS = '''
    from toolgate import tool

    @tool(tier="external_api")
    async def send(to: str) -> str:
        """Send a letter."""
        return f"sent to {to}"
'''


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    made = Terminal(tmp_path, monkeypatch, capsys)
    made.add_tools(TOOLS)
    return made


# -- what a caller is told


def tells_no_command(told: Any) -> None:
    text = told if isinstance(told, str) else json.dumps(told)
    assert "make the same call again" in text.lower()
    assert "A person can answer until" in text
    for word in ("toolgate ", "approvals approve", "approve ap_", "`"):
        assert word not in text.replace("toolgate/", ""), (word, text)


@pytest.mark.parametrize(("name", "arguments"), ASKING)
async def test_a_caller_is_told_what_to_do_and_not_how_to_approve(name: str, arguments: dict[str, Any]) -> None:
    async with Workshop().move_into(memory_app()) as app:
        for approval in (None, await ask(app, name, arguments)):
            outcome = await app.invoke(name, arguments, actor=ADA, approval=approval)
            tells_no_command(json.loads(outcome.to_json()))


@pytest.mark.requirement("MCP-4")
@pytest.mark.parametrize("era", ERAS)
async def test_a_model_is_told_what_to_do_and_not_how_to_approve(era: str) -> None:
    async with (
        Workshop().move_into(memory_app()) as app,
        serving(app) as site,
        connected(site, await key_for(app, ADA), era) as client,
    ):
        waiting = await client.call_tool("run", {"task": "ls"})
        tells_no_command(waiting.model_dump_json())


@pytest.mark.requirement("DOOR-1")
def test_only_a_person_at_a_terminal_is_shown_the_command(terminal: Terminal) -> None:
    waiting = terminal("call", "send", "to=bob", "--json")
    tells_no_command(waiting.out)
    id = waiting.json["pending"]["id"]
    tells_no_command(terminal("call", "send", "to=bob").err)
    teletype = Teletype(terminal, "call", "send", "to=bob", "--approval", id, columns=200)
    assert teletype.end() == 3
    assert f"toolgate approvals show|approve|reject {id}" in " ".join(teletype.shown.split())


# -- lists


async def test_a_list_comes_page_by_page_and_leaves_nothing_out(database: str, tmp_path: Path) -> None:
    work = Workshop()
    async with work.move_into(App.open(database_url=database, home=tmp_path)) as app:
        asked = [await ask(app, arguments={"task": str(number)}) for number in range(7)]
        other = await ask(app, actor=Actor("globex", user="eve"))
        for size in (1, 2, 3, 7, 8):
            found: list[str] = []
            while page := await app.approvals.list(actor=ADA, limit=size, after=found[-1] if found else None):
                assert len(page) <= size
                found += [approval.request.id for approval in page]
            assert found == asked
        whole = await app.parts.consent.questions.list(None, None)
        assert [approval.request.id for approval in whole] == [*asked, other]
        with pytest.raises(ApprovalError, match="no approval"):
            await app.approvals.list(actor=ADA, after=other)


@pytest.mark.requirement("DOOR-1")
def test_the_command_line_says_that_there_are_more(terminal: Terminal) -> None:
    asked = [terminal("call", "send", f"to={name}", "--json").json["pending"]["id"] for name in "abc"]
    first = terminal("approvals", "list", "--limit", "2")
    assert [line.split()[0] for line in first.lines[1:]] == asked[:2]
    assert f"There are more: add --after {asked[1]}" in first.err
    rest = terminal("approvals", "list", "--limit", "2", "--after", asked[1])
    assert [line.split()[0] for line in rest.lines[1:]] == asked[2:]
    assert "There are more" not in rest.err
    page = terminal("approvals", "list", "--limit", "2", "--json").json
    assert (len(page["approvals"]), page["next"]) == (2, asked[1])
    assert terminal("approvals", "list", "--json").json["next"] is None
    assert terminal("approvals", "list", "--limit", "0").code == 2
    assert terminal("approvals", "list", "--after", "ap_none").code == 1


# -- whatever the tenant


@pytest.mark.requirement("DOOR-1")
def test_the_local_operator_finds_an_approval_by_its_id_whatever_its_tenant(terminal: Terminal) -> None:
    ids = {
        tenant: terminal("call", "send", "to=bob", "--tenant", tenant, "--user", "ada", "--json").json["pending"]["id"]
        for tenant in ("default", "acme", "globex")
    }
    for tenant, id in ids.items():
        assert terminal("approvals", "show", id, "--json").json["actor"]["tenant"] == tenant
        assert terminal("approvals", "show", id, "--tenant", tenant).code == 0
        assert terminal("approvals", "show", id, "--tenant", "initech").code == 1
    listed = terminal("approvals", "list")
    assert [line.split()[0] for line in listed.lines[1:]] == [ids["default"]]
    assert "Of other tenants wait: 1 of acme, 1 of globex" in listed.err
    everywhere = terminal("approvals", "list", "--tenant", "*")
    assert [line.split()[0] for line in everywhere.lines[1:]] == list(ids.values())
    assert "Of other tenants" not in everywhere.err
    assert terminal("approvals", "reject", ids["globex"], "--reason", "no").code == 0
    done = terminal("approvals", "approve", ids["acme"], "--run")
    assert (done.code, done.out) == (0, "sent to bob\n")
    found = terminal("approvals", "list", "--tenant", "*", "--state", "all", "--json").json["approvals"]
    states = {one["actor"]["tenant"]: one["state"] for one in found}
    assert states == {"default": "waiting", "acme": "used", "globex": "rejected"}


async def test_a_tenant_sees_the_questions_of_no_other() -> None:
    async with Workshop().move_into(memory_app()) as app:
        id = await ask(app)
        other = Actor("globex", user="boss")
        assert await app.approvals.list(actor=other, state=None) == []
        with pytest.raises(ApprovalError, match="no approval"):
            await app.approvals.answer(id, True, actor=other)
