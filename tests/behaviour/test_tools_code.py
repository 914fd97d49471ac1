"""`code_execute`, and `run_program`: one program that calls many tools, each through the whole pipeline."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.terminal import Terminal
from toolgate import Actor, App, InvokeContext, Outcome, tool
from toolgate.gates.redaction import Redactor
from toolgate.sandbox.worker_protocol import Refusal
from toolgate.sandbox.workspaces import Workspaces
from toolgate.store.audit_log import latest
from toolgate.tools.code import ProgramCalls

ANN = Actor("acme", user="ann")
LANGUAGES = ["python", "typescript", "javascript"]


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(tier="read_only")
async def long_text(size: int) -> str:
    """Give a long text."""
    return "x" * size


@tool(tier="read_only", cost=0.10)
async def dear(x: int) -> int:
    """Cost ten cents."""
    return x


@tool(name="odd-name", tier="read_only")
async def odd_name(x: int) -> int:
    """Have an odd name."""
    return x


@tool(tier="write")
async def delete_all(what: str) -> str:
    """Delete everything."""
    return what


@tool(tier="read_only")
async def broken() -> None:
    """Fail."""
    raise RuntimeError("it is broken")


def approve_programs(request: Any) -> bool | None:
    """Somebody who lets code run, and has nothing to say of anything else."""
    return True if request.tool in ("code_execute", "run_program") else None


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    for name in list(os.environ):
        if name.startswith("TOOLGATE_") and name != "TOOLGATE_TRUST":
            monkeypatch.delenv(name)
    work = tmp_path / "work"
    work.mkdir()
    async with App.open(os.devnull, home=tmp_path / "home", sandbox={"seconds": 5}) as app:
        app.provide(Workspaces, Workspaces(tmp_path / "home", work, rules=lambda: app.parts.tiers.paths))
        app.tools.register_many([add, long_text, dear, odd_name, delete_all, broken])
        app.approvals.add_approver(approve_programs)
        yield app


def failed(outcome: Outcome, code: str = "SANDBOX_ERROR") -> dict[str, Any]:
    assert outcome.error is not None, outcome
    assert outcome.error.code == code, outcome.error
    return {"message": outcome.error.message, **(outcome.error.details or {})}


# -- code_execute

VALUES = {
    "python": ("print('out'); [1, 'two', {'three': None}]", "out\n"),
    "typescript": ("console.log('out'); const x: unknown[] = [1, 'two', {three: null}]; return x;", "out\n"),
    "javascript": ("console.log('out'); return [1, 'two', {three: null}];", "out\n"),
}


@pytest.mark.requirement("BUILTIN-4")
@pytest.mark.requirement("SBX-3")
@pytest.mark.parametrize("language", LANGUAGES)
async def test_code_gives_a_value_and_what_it_wrote(app: App, language: str) -> None:
    code, wrote = VALUES[language]
    outcome = await app.invoke("code_execute", {"language": language, "code": code})
    assert outcome.ok, outcome.error
    output = outcome.output
    assert output["result"] == [1, "two", {"three": None}]
    assert output == {"result": output["result"], "stdout": wrote, "stderr": ""}
    assert any(used.startswith("sandbox:") for used in outcome.metrics.resources_used or ())


@pytest.mark.requirement("BUILTIN-4")
async def test_python_is_what_is_run_if_nothing_is_said(app: App) -> None:
    assert (await app.invoke("code_execute", {"code": "6 * 7"})).output["result"] == 42


@pytest.mark.requirement("BUILTIN-4")
@at_most(25)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    )
)
@example({"toKEN": "0"})
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_value_comes_back_as_it_was(app: App, value: Any) -> None:
    """But for what looks like a secret, in any output."""
    text = json.dumps(json.dumps(value))
    python = await app.invoke("code_execute", {"code": f"import json\njson.loads({text})"})
    script = await app.invoke("code_execute", {"language": "javascript", "code": f"return JSON.parse({text})"})
    assert python.ok, python.error
    assert script.ok, script.error
    shown = Redactor().mask(value)
    assert (python.output["result"], script.output["result"]) == (shown, shown)


@pytest.mark.matrix("runs programs in the sandbox again and again")
@pytest.mark.requirement("SBX-3")
@pytest.mark.parametrize(
    ("language", "code", "line"),
    [
        ("python", "x = 1\ny = = 2", 2),
        ("typescript", "const x = 1;\nconst y = = 2;", 2),
        ("javascript", "const x = 1;\nlet x = 2;;;(", 2),
        ("python", "import os\nx = 1\nraise ValueError('no')", 3),
        ("typescript", "const x: number = 1;\n\nthrow new TypeError('no');", 3),
    ],
)
async def test_code_that_fails_says_where(app: App, language: str, code: str, line: int) -> None:
    found = failed(await app.invoke("code_execute", {"language": language, "code": code}))
    assert found["line"] == line, found
    assert f"line {line}" in found["message"]


@pytest.mark.matrix("runs programs in the sandbox again and again")
@pytest.mark.requirement("SBX-3")
@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "x = []\nx.append(x)\nx"),
        ("typescript", "const x: any = {}; x.x = x; return x;"),
        ("typescript", "return () => 1;"),
        ("typescript", "throw 'no error at all';"),
        ("typescript", "throw null;"),
        ("python", "raise SystemExit(3)"),
        ("python", "float('nan')"),
        ("python", "object()"),
    ],
)
async def test_what_is_no_result_is_a_clean_failure(app: App, language: str, code: str) -> None:
    assert failed(await app.invoke("code_execute", {"language": language, "code": code}))["message"]


@pytest.mark.matrix("waits for a time limit in each language")
@pytest.mark.requirement("SBX-2")
@pytest.mark.parametrize(
    ("language", "code"),
    [("python", "while True: pass"), ("python", "import os\nwhile True: pass"), ("typescript", "for(;;);")],
)
async def test_code_that_never_ends_is_ended(app: App, language: str, code: str) -> None:
    outcome = await app.invoke("code_execute", {"language": language, "code": code, "timeout": 700})
    assert "0.7 s" in failed(outcome, "TIMEOUT")["message"]
    early = await app.invoke("code_execute", {"language": language, "code": code}, timeout=0.7)
    assert early.status == "timeout"


@pytest.mark.requirement("SBX-2")
@pytest.mark.parametrize("code", ["import sys\nwhile True: sys.stdout.write('x' * 10_000)", "while True: print('x' * 1000)"])
async def test_code_that_floods_its_output_is_ended(app: App, code: str) -> None:
    failed(await app.invoke("code_execute", {"code": code}))


@pytest.mark.requirement("TIER-3")
@pytest.mark.parametrize("name", ["code_execute", "run_program"])
async def test_every_run_is_asked_about(tmp_path: Path, name: str) -> None:
    async with App.open(os.devnull, home=tmp_path / "home") as app:
        assert (await app.invoke(name, {"code": "1"})).status == "pending"


@pytest.mark.requirement("SBX-3")
async def test_code_that_speaks_of_files_and_commands_is_code(app: App) -> None:
    """The rules for paths and commands are for arguments that are such; code is held by the sandbox."""
    code = "text = 'cat /etc/passwd; rm -rf / .env'\ntext"
    assert (await app.invoke("code_execute", {"code": code})).output["result"].startswith("cat /etc/passwd")


@pytest.mark.requirement("BUILTIN-4")
async def test_the_files_of_a_session_are_there_if_that_is_asked_for(app: App, tmp_path: Path) -> None:
    async def run(code: str, **more: Any) -> Outcome:
        return await app.invoke("code_execute", {"code": code, **more}, actor=ANN, session="s")

    wrote = await run("from pathlib import Path\nPath('a.txt').write_text('kept')", session_files=True)
    assert wrote.ok, wrote.error
    read = await run("from pathlib import Path\nPath('a.txt').read_text()", session_files=True)
    assert read.output["result"] == "kept"
    assert (await app.invoke("read_file", {"path": "a.txt"}, actor=ANN, session="s")).output["content"] == "kept"
    apart = await run("from pathlib import Path\n[Path('a.txt').exists(), str(Path.cwd())]")
    assert apart.output["result"][0] is False
    assert not apart.output["result"][1].startswith(str(tmp_path))
    refused = await run("return 1", language="typescript", session_files=True)
    failed(refused, "INVALID_INPUT")


@pytest.mark.requirement("SBX-3")
async def test_secrets_of_the_working_directory_are_hidden_from_code(app: App, tmp_path: Path) -> None:
    (tmp_path / "work" / ".env").write_text("what nobody may read")
    (tmp_path / "work" / "plain.txt").write_text("fine")
    code = """
from pathlib import Path
found = []
for name in (".env", "plain.txt"):
    try:
        found.append(Path(name).read_text())
    except OSError:
        found.append(None)
found
"""
    outcome = await app.invoke("code_execute", {"code": code, "session_files": True})
    assert outcome.output["result"][1] == "fine"
    assert "nobody" not in str(outcome.output)


# -- run_program

SUMS = {
    "python": "total = 0\nfor n in range(5):\n    total += tools.add(a=n, b=1)\ntotal",
    "typescript": "let total: number = 0; for (let n = 0; n < 5; n++) total += await tools.add({a: n, b: 1}); return total;",
    "javascript": "let total = 0;\nfor (let n = 0; n < 5; n++) total += await tools.add({a: n, b: 1});\nreturn total;",
}


@pytest.mark.requirement("AGENT-4")
@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_program_calls_tools(app: App, language: str) -> None:
    outcome = await app.invoke("run_program", {"language": language, "code": SUMS[language]}, actor=ANN)
    assert outcome.ok, outcome.error
    assert outcome.output == {"result": 15, "stdout": "", "stderr": "", "calls": 5, "cost_usd": 0.0}
    await app.flush()
    ends = [row for row in await app.parts.store.read(latest(50)) if row[2] == "end" and row[5] == "add"]
    assert len(ends) == 5
    assert {row[4] for row in ends} == {"acme"}


@pytest.mark.requirement("AGENT-4")
async def test_a_program_calls_many_tools_at_once(app: App) -> None:
    typescript = "return await Promise.all([1, 2, 3, 4].map((n) => tools.add({a: n, b: n})));"
    python = "import os\ntools.parallel([('add', {'a': n, 'b': n}) for n in (1, 2, 3, 4)])"
    for language, code in (("typescript", typescript), ("python", python)):
        outcome = await app.invoke("run_program", {"language": language, "code": code})
        assert outcome.ok, outcome.error
        assert (outcome.output["result"], outcome.output["calls"]) == ([2, 4, 6, 8], 4)


@pytest.mark.requirement("AGENT-4")
async def test_names_that_are_no_identifiers_can_be_called(app: App) -> None:
    for language, code in (
        ("typescript", "return [await tools['odd-name']({x: 1}), await tools.call('odd-name', {x: 2})];"),
        ("python", "[tools['odd-name'](x=1), tools.call('odd-name', {'x': 2})]"),
    ):
        outcome = await app.invoke("run_program", {"language": language, "code": code})
        assert outcome.ok, outcome.error
        assert outcome.output["result"] == [1, 2]


@pytest.mark.requirement("AGENT-4")
async def test_what_tools_give_is_whole_for_a_program_and_never_reaches_the_model(app: App) -> None:
    code = "const text = await tools.long_text({size: 300_000}); return text.length;"
    outcome = await app.invoke("run_program", {"code": code})
    assert outcome.output["result"] == 300_000
    assert outcome.artifact is None
    assert (await app.invoke("long_text", {"size": 300_000})).artifact is not None


FAILING = {
    "typescript": "try { await tools.%s } catch (error) { return [error.name, error.code, error.message]; }",
    "python": """
import os
try:
    tools.%s
except ToolError as error:
    found = [type(error).__name__, error.code, error.message]
found""",
}


@pytest.mark.requirement("AGENT-4")
@pytest.mark.parametrize("language", ["typescript", "python"])
@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("broken", "INVOCATION_ERROR", "it is broken"),
        ("no_such_tool", "TOOL_NOT_FOUND", "no_such_tool"),
        ("add", "VALIDATION_ERROR", ""),
        ("delete_all", "VALIDATION_ERROR", ""),
        ("run_program", "PERMISSION_DENIED", "run_program"),
        ("call_tool", "PERMISSION_DENIED", "call_tool"),
    ],
)
@pytest.mark.sample(4)
async def test_a_call_that_fails_is_an_error_in_the_program(
    app: App, language: str, name: str, code: str, words: str
) -> None:
    call = f"{name}({{}})" if language == "typescript" else f"{name}()"
    outcome = await app.invoke("run_program", {"language": language, "code": FAILING[language] % call})
    assert outcome.ok, outcome.error
    told = outcome.output["result"]
    assert told[:2] == ["ToolError", code]
    assert words in told[2]


@pytest.mark.requirement("AGENT-4", "TIER-9")
@pytest.mark.parametrize("language", ["typescript", "python"])
async def test_a_program_whose_call_a_person_must_agree_to_waits_for_that(app: App, language: str) -> None:
    code = "return await tools.delete_all({what: 'x'});" if language == "typescript" else "tools.delete_all(what='x')"
    outcome = await app.invoke("run_program", {"language": language, "code": code})
    assert outcome.status == "pending" and outcome.pending is not None, outcome
    (waiting,) = await app.approvals.list()
    id = waiting.request.id
    assert (outcome.pending.id, waiting.request.outer_tool, waiting.request.outer_call) == (id, "run_program", outcome.id)
    await app.approvals.answer(id, True)
    done = await app.approvals.resume(id)
    assert done.ok and (done.output["result"], done.output["calls"]) == ("x", 1), done


@pytest.mark.requirement("AGENT-4")
async def test_an_error_that_a_program_does_not_handle_ends_it(app: App) -> None:
    found = failed(await app.invoke("run_program", {"code": "const x = 1;\nawait tools.broken({});"}))
    assert "it is broken" in found["message"]


@pytest.mark.requirement("AGENT-4")
@pytest.mark.parametrize("language", ["typescript", "python"])
async def test_a_program_makes_no_more_calls_than_it_may(app: App, language: str) -> None:
    code = {
        "typescript": "const all = await Promise.allSettled(Array.from({length: 20}, (_, n) => tools.add({a: n, b: 1})));"
        "return all.filter((one) => one.status === 'fulfilled').length;",
        "python": "made = 0\nfor n in range(20):\n    try:\n        tools.add(a=n, b=1)\n        made += 1\n"
        "    except Exception:\n        pass\nmade",
    }[language]
    outcome = await app.invoke("run_program", {"language": language, "code": code, "max_calls": 7})
    assert outcome.ok, outcome.error
    assert (outcome.output["result"], outcome.output["calls"]) == (7, 7)


@pytest.mark.requirement("AGENT-4")
async def test_a_program_spends_no_more_than_it_may(app: App) -> None:
    code = (
        "const all = await Promise.allSettled(Array.from({length: 8}, (_, n) => tools.dear({x: n})));"
        "return all.map((one) => one.status === 'fulfilled' ? 'paid' : one.reason.code);"
    )
    outcome = await app.invoke("run_program", {"code": code, "max_cost_usd": 0.3})
    assert outcome.ok, outcome.error
    assert sorted(outcome.output["result"]) == ["BUDGET_EXCEEDED"] * 5 + ["paid"] * 3
    assert outcome.output["cost_usd"] == pytest.approx(0.3)
    nothing = await app.invoke("run_program", {"code": code, "max_cost_usd": 0})
    assert (set(nothing.output["result"]), nothing.output["cost_usd"]) == ({"BUDGET_EXCEEDED"}, 0)


@pytest.mark.requirement("AGENT-4")
async def test_a_program_can_ask_for_nothing_but_tools(app: App) -> None:
    """What the tools of the sandbox are given is not here: neither files nor commands, but by tools."""
    told: list[str] = []

    @tool(tier="read_only")
    async def as_a_program(ctx: InvokeContext) -> None:
        """Ask what the code of a program could ask, were it to speak to the host by itself."""
        asked: list[tuple[str, list[Any]]] = [
            ("fs.readFile", ["a.txt"]), ("executor.execute", ["ls"]), ("tool", []), ("tool", ["add"]), ("tool", [1, {}]),
            ("tool", ["add", []]), ("tool", ["add", {"a": 1, "b": 2}, True]), ("", []),
        ]  # fmt: skip
        for wanted, words in asked:
            with pytest.raises(Refusal) as refused:
                await ProgramCalls(ctx, 5, None).serve(wanted, words)
            told.append(refused.value.code)
        assert await ProgramCalls(ctx, 5, None).serve("tool", ["add", {"a": 1, "b": 2}]) == 3

    app.register(as_a_program)
    outcome = await app.invoke("as_a_program")
    assert outcome.ok, outcome.error
    assert told == ["INVALID_INPUT"] * 8
    assert (await app.invoke("run_program", {"code": "return typeof context;"})).output["result"] == "undefined"


@pytest.mark.requirement("AGENT-4")
async def test_a_program_has_the_rights_of_its_caller(app: App) -> None:
    await app.tools.set_enabled("add", False, tenant="acme")
    outcome = await app.invoke("run_program", {"code": FAILING["typescript"] % "add({a: 1, b: 2})"}, actor=ANN)
    assert outcome.output["result"][1] == "TOOL_NOT_FOUND"
    other = await app.invoke("run_program", {"code": SUMS["typescript"]}, actor=Actor("globex", user="gus"))
    assert other.output["result"] == 15


@pytest.mark.requirement("SBX-5")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_what_code_changed_is_decided_about_also_if_it_was_stopped(app: App, tmp_path: Path) -> None:
    code = "from pathlib import Path\nPath('.vscode').mkdir()\nPath('done.csv').write_text('1')\nwhile True: pass"
    outcome = await app.invoke("code_execute", {"code": code, "session_files": True, "timeout": 2_000})
    assert outcome.error is not None
    assert outcome.status == "timeout"
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["done.csv"]
    (kept,) = app.workspace.changes()
    assert [(change.path, change.kind) for change in kept.changes] == [(".vscode", "folder")]


@pytest.mark.requirement("SBX-3", "DOOR-6")
def test_what_held_the_code_is_shown_to_whoever_wants_to_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    words = ("call", "code_execute", "code=1 + 1", "--yes")
    quiet = terminal.run(*words)
    assert "held by" not in quiet.out + quiet.err
    assert "memory by" in terminal.run(*words, "--verbose").err
    (line,) = terminal.run(*words, "--verbose", "--json").json["logs"]
    assert line["level"] == "debug" and line["message"].startswith("held by ")
