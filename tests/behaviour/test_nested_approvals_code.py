"""Programs in the sandbox whose calls must be asked about: run_program in every language, and custom tools."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.nesting import Bench, left, waits
from toolgate import App, tool

pytestmark = pytest.mark.requirement("TIER-9", "AGENT-4")

PROGRAMS = {
    "typescript": """
        const one = await tools.note({text: 'one'});
        const [a, b, c] = await Promise.all(['a', 'b', 'a'].map((text) => tools.risky({text})));
        let said = 'nothing';
        try { await tools.risky({text: 'no'}); } catch (error) { said = error.code; }
        return [one, a, b, c, said, await tools.dear({x: 1})];
    """,
    "python": """
one = tools.note(text='one')
a, b, c = tools.parallel([('risky', {'text': 'a'}), ('risky', {'text': 'b'}), ('risky', {'text': 'a'})])
said = 'nothing'
try:
    tools.risky(text='no')
except Exception as error:
    said = 'USER_CANCELLED'
[one, a, b, c, said, tools.dear(x=1)]
""",
}
MADE = ["noted one", "did a", "did b", "did a", "USER_CANCELLED", 1]

CUSTOM = {
    "typescript": """\
name: tidy
description: Tidy up.
schema: {type: object}
runtime: typescript
permissions: {riskLevel: medium}
code: |
  export async function execute(args: any, context: any) {
    await context.platform.fs.writeFile('first.txt', 'first');
    const listed = await context.platform.executor.execute('ls', ['-1']);
    await context.platform.fs.writeFile('last.txt', 'last');
    return listed.stdout;
  }
""",
    "python": """\
name: tidy
description: Tidy up.
schema: {type: object}
runtime: python
permissions: {riskLevel: medium}
code: |
  def execute(args, context):
      context.platform.fs.write_file('first.txt', 'first')
      listed = context.platform.executor.execute('ls', ['-1'])
      context.platform.fs.write_file('last.txt', 'last')
      return listed['stdout']
""",
}


@tool(tier="read_only", cost=0.10)
async def dear(x: int) -> int:
    """Cost ten cents."""
    return x


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "did.txt")


@asynccontextmanager
async def opened(tmp_path: Path, bench: Bench, **settings: Any) -> AsyncIterator[App]:
    async with App.open(os.devnull, home=tmp_path / "home", sandbox={"seconds": 20, **settings}) as app:
        bench.move_into(app).register(dear)
        yield app


@pytest.mark.matrix("runs programs in the sandbox again and again")
@pytest.mark.parametrize(("language", "monty"), [("typescript", True), ("python", True), ("python", False)])
async def test_a_program_waits_for_each_of_its_questions_and_goes_on(
    tmp_path: Path, bench: Bench, language: str, monty: bool
) -> None:
    call = {"language": language, "code": PROGRAMS[language], "max_cost_usd": 0.15}
    async with opened(tmp_path, bench, monty=monty) as app:
        id = waits(await app.invoke("run_program", call))
        await app.approvals.answer(id, True)
        outcome = await app.invoke("run_program", call, approval=id)
    for _ in range(5):
        if outcome.status != "pending":
            break
        async with opened(tmp_path, bench, monty=monty) as app:
            for waiting in await app.approvals.list():
                assert (waiting.request.tool, waiting.request.outer_tool) == ("risky", "run_program")
                await app.approvals.answer(waiting.request.id, waiting.request.arguments["text"] != "no")
            outcome = await app.approvals.resume(waits(outcome))
            assert outcome.status == "pending" or await left(app) == 0
    assert outcome.ok, outcome
    assert outcome.output["result"] == MADE
    assert (outcome.output["calls"], outcome.output["cost_usd"]) == (6, 0.1)
    assert bench.effects == {"note one": 1, "risky a": 2, "risky b": 1}


async def test_money_spent_before_the_question_counts_after_it(tmp_path: Path, bench: Bench) -> None:
    code = "await tools.dear({x: 1}); await tools.risky({text: 'a'}); await tools.dear({x: 2}); return 1;"
    async with opened(tmp_path, bench) as app:
        first = waits(await app.invoke("run_program", {"code": code, "max_cost_usd": 0.15}))
        await app.approvals.answer(first, True)
        second = waits(await app.invoke("run_program", {"code": code, "max_cost_usd": 0.15}, approval=first))
        await app.approvals.answer(second, True)
        outcome = await app.approvals.resume(second)
        assert outcome.error is not None and "the program has $0.05 left" in outcome.error.message, outcome


@pytest.mark.matrix("runs programs in the sandbox again and again")
@pytest.mark.requirement("TIER-8")
@pytest.mark.parametrize(("language", "inside"), [("typescript", False), ("python", False), ("typescript", True)])
async def test_a_custom_tool_waits_for_its_command_and_goes_on(tmp_path: Path, language: str, inside: bool) -> None:
    """By itself, and inside a program."""
    home, work = tmp_path / "home", tmp_path / "work"
    (home / "tools").mkdir(parents=True)
    (home / "tools" / "tidy.yml").write_text(CUSTOM[language])
    work.mkdir()
    asked: list[str] = []
    id: str | None = None
    call = {"code": "return (await tools.tidy({})).trim();"} if inside else {}
    outer = "run_program" if inside else "tidy"
    while len(asked) < 4:
        async with App.open(os.devnull, home=home, commands={"allow": ["ls"]}) as app:
            app.sessions.work_in("s", work)
            if inside and id is None:
                id = waits(await app.invoke("run_program", call, session="s"))
                await app.approvals.answer(id, True)
            outcome = await app.invoke(outer, call, session="s", approval=id)
            if outcome.status != "pending":
                break
            id = waits(outcome)
            [waiting] = await app.approvals.list()
            assert waiting.request.outer_tool == outer
            asked.append(waiting.request.tool)
            await app.approvals.answer(id, True)
            if asked == ["write_file", "execute_command"]:
                (work / "first.txt").write_text("changed meanwhile")
    assert asked == ["write_file", "execute_command", "write_file"]
    assert outcome.ok and "first.txt" in str(outcome.output), outcome
    assert (work / "first.txt").read_text() == "changed meanwhile", "it is not written again"
    assert (work / "last.txt").read_text() == "last"
