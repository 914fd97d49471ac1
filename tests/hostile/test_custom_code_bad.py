"""Custom tools whose code is no good: each fails cleanly, with the reason, and the App goes on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from toolgate import App

pytestmark = pytest.mark.requirement("SBX-1", "SBX-2")

TOOL = """\
name: {name}
description: Does no good.
schema: {{type: object, properties: {{}}}}
runtime: {runtime}
permissions: {{riskLevel: low}}
timeout: {seconds}
code: |
{code}
"""
SCRIPT = "export function execute(args, context) {{ {body} }}"
BAD = {
    "typescript": {
        "does_not_compile": ("export function execute(args) {\n  return `x ${args.`;\n}", "line 2, column"),
        "prints": (SCRIPT.format(body='console.log("the result");'), "printed instead"),
        "cycle": (SCRIPT.format(body="const a: any = {}; a.a = a; return a;"), "contains itself"),
        "floods": (SCRIPT.format(body='for (;;) console.log("x".repeat(10000));'), "bytes of output"),
        "floods_errors": (SCRIPT.format(body='for (;;) console.error("x".repeat(10000));'), "bytes of output"),
        "never_ends": (SCRIPT.format(body="for (;;) {}"), "did not finish within 2 s"),
        "never_resolves": (SCRIPT.format(body="return new Promise(() => {});"), ""),
        "throws_text": (SCRIPT.format(body='throw "no error at all";'), "no error at all"),
        "throws_null": (SCRIPT.format(body="throw null;"), "null"),
        "rejects_number": (SCRIPT.format(body="return Promise.reject(42);"), "42"),
        "gives_a_function": (SCRIPT.format(body="return () => 1;"), ""),
        "gives_a_bigint": (SCRIPT.format(body="return 10n;"), ""),
        "gives_too_much": (SCRIPT.format(body='return "x".repeat(3_000_000);'), ""),
        "has_no_execute": ("export const other = 1; // not execute", "execute"),
        "leaves": (SCRIPT.format(body='process.exit(0);'), ""),
    },
    "python": {
        "does_not_compile": ("def execute(args, context):\n    return [1, 2", ""),
        "prints": ("def execute(args, context):\n    print('the result')", "printed instead"),
        "cycle": ("def execute(args, context):\n    a = []\n    a.append(a)\n    return a", ""),
        "floods": ("def execute(args, context):\n    while True: print('x' * 10000)", "bytes of output"),
        "floods_raw": ("import os\ndef execute(args, context):\n    while True: os.write(2, b'x' * 9999)", "bytes of"),
        "never_ends": ("def execute(args, context):\n    while True: pass", "did not finish within 2 s"),
        "raises_exit": ("import sys\ndef execute(args, context):\n    sys.exit('enough')", "enough"),
        "raises_no_exception": ("def execute(args, context):\n    raise KeyboardInterrupt", "KeyboardInterrupt"),
        "gives_a_set": ("def execute(args, context):\n    return {1, 2}", ""),
        "gives_nan": ("def execute(args, context):\n    return float('nan')", ""),
        "gives_too_much": ("def execute(args, context):\n    return 'x' * 3_000_000", ""),
        "takes_all_memory": ("def execute(args, context):\n    return len(bytearray(400_000_000))", "MemoryError"),
        "dies": ("import os\ndef execute(args, context):\n    os._exit(7)", "exit code 7"),
    },
}  # fmt: skip
BAD["node"] = {
    name: (code.replace("const a: any", "const a"), words)
    for name, (code, words) in BAD["typescript"].items()
    if name in ("does_not_compile", "prints", "cycle", "throws_text", "has_no_execute")
}
CASES = [(runtime, name) for runtime, programs in BAD.items() for name in programs]
OF_NODE = pytest.mark.matrix("the runtime of typescript")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    home = tmp_path_factory.mktemp("home")
    (home / "tools").mkdir()
    good = "def execute(args, context):\n    return 'fine'"
    for runtime, name in [*CASES, ("python", "good")]:
        code = good if name == "good" else BAD[runtime][name][0]
        indented = "\n".join(f"  {line}" for line in code.split("\n"))
        seconds = 2 if name == "never_ends" else 60  # a busy machine may take its time for the others
        text = TOOL.format(name=f"{name}_{runtime}", runtime=runtime, seconds=seconds, code=indented)
        Path(home, "tools", f"{name}_{runtime}.yml").write_text(text, encoding="utf-8")
    async with App.open(home=home, database_url="memory://", sandbox={"seconds": 60, "warm": 1}) as opened:
        await opened.tools.check()
        yield opened


async def test_whoever_asks_for_the_check_while_another_has_it_made_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    broken = "\n".join(f"  {line}" for line in BAD["typescript"]["does_not_compile"][0].split("\n"))
    (tmp_path / "tools" / "broken.yml").write_text(
        TOOL.format(name="broken", runtime="typescript", seconds=60, code=broken), encoding="utf-8"
    )
    async with App.open(home=tmp_path, database_url="memory://", sandbox={"warm": 0}) as app:
        first = asyncio.ensure_future(app.tools.check())
        await asyncio.sleep(0)  # it has begun
        await app.tools.check()
        assert [tool.name for tool in await app.tools.list() if tool.name == "broken"] == []
        await first


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("runtime", "name"), [pytest.param(*case, marks=OF_NODE if case[0] == "node" else ()) for case in CASES]
)
@pytest.mark.sample(4)
async def test_it_fails_with_the_reason_and_the_next_call_works(app: App, runtime: str, name: str) -> None:
    outcome = await app.invoke(f"{name}_{runtime}", {})
    if name in ("does_not_compile", "has_no_execute"):  # is seen before it is called: there is no such tool
        assert outcome.error is not None
        assert outcome.error.code == "TOOL_NOT_FOUND"
        assert any(f"{name}_{runtime}.yml:" in problem.where for problem in app.tools.problems), app.tools.problems
        return
    assert outcome.error is not None, outcome
    ended = ("timeout", "TIMEOUT") if name == "never_ends" else ("failure", "SANDBOX_ERROR")
    assert (outcome.status, outcome.error.code) == ended, outcome.error
    assert BAD[runtime][name][1] in outcome.error.message, outcome.error
    assert (await app.invoke("good_python", {})).output == "fine"
