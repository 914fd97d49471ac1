"""What stands beside a call that waits: the file it would change, earlier answers, budgets, why somebody may not answer."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.desk import Desk
from tests.serving import serving
from toolgate import Actor, App, tool
from toolgate.gates.approval.request import Answer
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-1", "TIER-6")
ANN, BOB = Actor("acme", user="ann"), Actor("acme", user="bob")
SECRET = "AKIA" + "QYLPMN5HHHFPZAM2"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAtr1c0f1b4xq7\nq83jd0aa\n-----END RSA PRIVATE KEY-----\n"


@tool(tier="external_api", cost="0.50")
async def pay(amount: int) -> int:
    """Pay somebody."""
    return amount


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app(approvals={"rules": [{"tool": "file_operations", "approvers": ["bob"]}]}) as app:
        app.register(pay)
        yield app


@pytest.fixture
async def desk(app: App) -> AsyncIterator[Desk]:
    async with serving(app) as site:
        desk = Desk(app, site)
        await desk.staff()
        await desk.add("bob", BOB, "approver")
        await desk.add("ann", ANN, "caller")
        yield desk


@pytest.fixture
def work(app: App, tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    app.sessions.work_in("s", folder, tenant="acme", user="ann")
    return folder


async def ask(app: App, name: str, actor: Actor = ANN, session: str | None = "s", **arguments: Any) -> str:
    outcome = await app.invoke(name, arguments, actor=actor, session=session)
    assert outcome.pending is not None, outcome
    return outcome.pending.id


async def changes(desk: Desk, id: str, who: str = "bob") -> list[dict[str, Any]]:
    answer = await desk(who, "GET", f"/v1/approvals/{id}")
    assert answer.status == 200, answer.body
    found: list[dict[str, Any]] = answer.json["changes"]
    return found


async def test_an_approver_sees_the_difference_and_nobody_else_does(app: App, desk: Desk, work: Path) -> None:
    (work / "a.txt").write_text("one\ntwo\nthree")
    id = await ask(app, "write_file", path="a.txt", content="one\n2\r\nthree\n")
    (change,) = await changes(desk, id)
    end = "\\ no line end at the end of the file as it is now"
    assert change["lines"] == [" one", "-two", "+2\r", " three", end]
    assert (change["added"], change["removed"], change["cut"], change["is_new"]) == (1, 1, 0, False)
    assert await changes(desk, id, "ann") == [] == await changes(desk, id, "vera")
    edit: dict[str, Any] = {"operation": "edit", "path": "a.txt", "pattern": "tw", "replacement": "TW"}
    (change,) = await changes(desk, await ask(app, "file_operations", **edit))
    assert change["lines"][:3] == [" one", "-two", "+TWo"]
    (change,) = await changes(desk, await ask(app, "file_operations", **{**edit, "pattern": "e"}))
    assert change["lines"] == [] and "would fail" in change["note"]
    (change,) = await changes(desk, await ask(app, "file_operations", operation="delete", path="a.txt"))
    assert change["removed"] == 3
    (change,) = await changes(desk, await ask(app, "write_file", path="new/b.txt", content="x\n"))
    assert (change["lines"], change["is_new"]) == (["+x"], True)
    assert await changes(desk, await ask(app, "pay", amount=1)) == []


async def test_the_difference_reads_nothing_that_the_call_may_not(app: App, desk: Desk, work: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("outside words\n")
    (work / "plain.txt").write_text("x\n")
    id = await ask(app, "write_file", path="plain.txt", content="y\n")
    (work / "plain.txt").unlink()
    (work / "plain.txt").symlink_to(tmp_path / "outside.txt")  # exchanged after the question was asked
    answer = await desk("bob", "GET", f"/v1/approvals/{id}")
    assert b"outside words" not in answer.body and "not shown" in answer.json["changes"][0]["note"]
    app.sessions.work_in("s", tmp_path / "work", tenant="acme", user="ann")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "plain.txt").write_text("other folder\n")
    app.sessions.work_in("s", tmp_path / "other", tenant="acme", user="ann")  # not the folder that was named
    answer = await desk("bob", "GET", f"/v1/approvals/{id}")
    assert b"other folder" not in answer.body and answer.json["changes"][0]["lines"] == []


async def test_secrets_of_the_present_file_are_masked_and_large_ones_are_cut(app: App, desk: Desk, work: Path) -> None:
    (work / "settings.txt").write_text(f"a=1\naws = {SECRET}\nb=2\n")
    id = await ask(app, "write_file", path="settings.txt", content="a=1\nb=2\n")
    answer = await desk("bob", "GET", f"/v1/approvals/{id}")
    assert SECRET.encode() not in answer.body and answer.json["changes"][0]["removed"] == 1
    edit: dict[str, Any] = {"operation": "edit", "path": "settings.txt", "pattern": "aws", "replacement": "AWS"}
    answer = await desk("bob", "GET", f"/v1/approvals/{await ask(app, 'file_operations', **edit)}")
    assert SECRET.encode() not in answer.body and answer.json["changes"][0]["added"] == 1
    (work / "notes.txt").write_text(f"first\n{KEY}last\n")
    answer = await desk("bob", "GET", f"/v1/approvals/{await ask(app, 'write_file', path='notes.txt', content='x')}")
    assert b"q83jd0aa" not in answer.body
    (work / "long.txt").write_text("".join(f"{number}\n" for number in range(3_000)))
    id = await ask(app, "write_file", path="long.txt", content="".join(f"{number}\n" for number in range(3_000, 6_000)))
    (change,) = await changes(desk, id)
    assert (len(change["lines"]), change["cut"], change["added"]) == (2_000, 4_000, 3_000)
    (work / "bytes.txt").write_bytes(b"\xff\xfe")
    (change,) = await changes(desk, await ask(app, "write_file", path="bytes.txt", content="x"))
    assert "no text" in change["note"]


async def test_earlier_answers_budgets_and_the_reason_why_not(app: App, desk: Desk) -> None:
    budget = new_budget(
        period="day",
        tenant="acme",
        persona=None,
        user=None,
        tool="pay",
        cap=2_000_000_000,
        timezone="UTC",
        until=None,
        by="x",
    )
    await app.budgets.set(budget)
    other = await ask(app, "pay", Actor("other", user="zoe"), amount=3)
    await app.approvals.answer(other, Answer("reject", "of another tenant"), actor=Actor("other", user="eve"))
    for number in range(7):
        id = await ask(app, "pay", BOB if number % 2 else ANN, amount=number)
        await app.approvals.answer(id, Answer("reject", f"no {number}"), actor=Actor("acme", user="cleo"))
    id = await ask(app, "pay", amount=100)
    seen = (await desk("bob", "GET", f"/v1/approvals/{id}")).json
    assert [one["answer_reason"] for one in seen["history"]] == ["no 6", "no 5", "no 4", "no 3", "no 2"]
    (left,) = [one["left_usd"] for one in seen["budgets"] if one["tool"] == "pay"]
    assert (left, seen["why_not"], seen["may_answer"]) == (2.0, None, True)
    own = (await desk("ann", "GET", f"/v1/approvals/{id}")).json
    assert [one["answer_reason"] for one in own["history"]] == ["no 6", "no 4", "no 2", "no 0"]
    assert own["budgets"] == [] and "role approver" in own["why_not"]
    ruled = await ask(app, "file_operations", session=None, operation="write", path="x", content="y")
    assert "names others" in (await desk("adam", "GET", f"/v1/approvals/{ruled}")).json["why_not"]
    over = (await desk("bob", "GET", "/v1/approvals?state=over&newest=true&limit=3")).json
    assert [one["answer_reason"] for one in over["items"]] == ["no 6", "no 5", "no 4"]
    rest = (await desk("bob", "GET", f"/v1/approvals?state=over&newest=true&limit=3&cursor={over['next']}")).json
    assert [one["answer_reason"] for one in rest["items"]] == ["no 3", "no 2", "no 1"]
