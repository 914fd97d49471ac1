"""Custom tools in an App: the examples do what they promise, and a folder may change while it is in use."""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import sha256
from pathlib import Path

import pytest

from tests.terminal import Terminal
from toolgate import App, tool
from toolgate.gates.approval.request import Answer, ApprovalRequest
from toolgate.model import Outcome
from toolgate.version import VERSION

EXAMPLES = Path(__file__).parents[2] / "examples" / "custom_tools" / "tools"
SECONDS = 30.0
GREET = """\
name: {name}
description: Greet somebody.
schema: {{type: object}}
runtime: python
permissions: {{riskLevel: low}}
code: |
  def execute(args, context):
      return "{words}"
"""
YARN = """\
#!/bin/sh
echo "$*" > asked.csv
printf ' PASS  src/a.test.ts\\n PASS  src/b.test.ts\\n%s' "$(cat failing.txt)"
"""


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


@pytest.mark.requirement("SBX-1")
@pytest.mark.parametrize("name", sorted(file.stem for file in EXAMPLES.glob("*.yml") if "\nexamples:" in file.read_text()))
def test_an_example_does_what_it_promises(terminal: Terminal, name: str) -> None:
    assert terminal("tools", "add", "--from-file", str(EXAMPLES / f"{name}.yml")).code == 0
    done = terminal("tools", "test", name)
    assert done.code == 0, done.out + done.err


# -- a tool that runs a project's tests


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[tuple[App, Path]]:
    """An App with `run_tests` and a project that has a `yarn`."""
    home, folder, programs = tmp_path / "home", tmp_path / "project", tmp_path / "programs"
    (home / "tools").mkdir(parents=True)
    shutil.copy(EXAMPLES / "run_tests.yml", home / "tools")
    folder.mkdir()
    (folder / "failing.txt").write_text("")
    programs.mkdir()
    (programs / "yarn").write_text(YARN)
    (programs / "yarn").chmod(0o755)
    async with App.open(home=home, sandbox={"programs": [str(programs)]}) as app:
        app.sessions.work_in("s-1", folder)
        yield app, folder


@pytest.mark.requirement("SBX-1", "TIER-8")
async def test_run_tests_works_as_document_e_prints_it(project: tuple[App, Path]) -> None:
    app, folder = project
    asked: list[ApprovalRequest] = []

    def agree(request: ApprovalRequest) -> Answer:
        asked.append(request)
        return Answer("approve", by="ann")

    app.approvals.add_approver(agree)
    outcome = await app.invoke("run_tests", {"pattern": "auth", "coverage": True}, session="s-1")
    assert outcome.output == "✓ All 2 tests passed!\n\nCoverage: undefined% lines", outcome
    assert (folder / "asked.csv").read_text() == "test auth --coverage\n"
    assert asked[0].tool == "run_tests"
    assert "yarn test*" in asked[0].reason
    (folder / "failing.txt").write_text(" FAIL  src/c.test.ts\n")
    outcome = await app.invoke("run_tests", {"pattern": "auth"}, session="s-1")
    assert outcome.output == "✗ 1 tests failed (2 passed)\n\nFailures:\n", outcome


@pytest.mark.requirement("SBX-1", "TIER-8")
async def test_run_tests_asks_each_time_and_without_a_yes_runs_nothing(project: tuple[App, Path]) -> None:
    app, folder = project
    outcome = await app.invoke("run_tests", {"pattern": "auth"}, session="s-1")
    assert outcome.status == "pending"
    app.approvals.add_approver(lambda _request: False)
    outcome = await app.invoke("run_tests", {"pattern": "auth"}, session="s-1")
    assert outcome.error is not None
    assert outcome.error.code == "USER_CANCELLED"
    assert not (folder / "asked.csv").exists()


# -- a folder that changes


async def until(call: Callable[[], Awaitable[Outcome]], right: Callable[[Outcome], bool]) -> Outcome:
    """Call until the outcome is right, or too much time has passed."""
    deadline = time.monotonic() + SECONDS
    while True:
        outcome = await call()
        if right(outcome) or time.monotonic() > deadline:
            return outcome
        await asyncio.sleep(0.05)


@pytest.mark.requirement("SBX-1", "REG-1")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_file_may_come_change_break_and_go_while_an_app_is_open(tmp_path: Path) -> None:
    tools = tmp_path / "home" / "tools"
    async with App.open(home=tmp_path / "home") as app:

        async def greet() -> Outcome:
            return await app.invoke("greet", {})

        assert (await greet()).status == "failure"
        tools.mkdir(parents=True)
        (tools / "greet.yml").write_text(GREET.format(name="greet", words="hello"))
        assert (await until(greet, lambda outcome: outcome.ok)).output == "hello"
        assert [tool.name for tool in await app.tools.list(source="custom")] == ["greet"]

        (tools / "greet.yml").write_text(GREET.format(name="greet", words="welcome"))
        assert (await until(greet, lambda outcome: outcome.output == "welcome")).output == "welcome"

        (tools / "greet.yml").write_text("name: greet\ncolour: red\n")
        deadline = time.monotonic() + SECONDS
        while not app.tools.problems and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        assert [problem.where for problem in app.tools.problems] == [f"{tools / 'greet.yml'}:2:1"]
        assert (await greet()).output == "welcome"

        (tools / "greet.yml").write_text(GREET.format(name="greet", words="again"))
        assert (await until(greet, lambda outcome: outcome.output == "again")).output == "again"
        assert app.tools.problems == []

        (tools / "greet.yml").unlink()
        gone = await until(greet, lambda outcome: not outcome.ok)
        assert gone.error is not None
        assert gone.error.code == "TOOL_NOT_FOUND"


@pytest.mark.requirement("SBX-1")
async def test_code_that_stops_compiling_leaves_its_tool_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "home" / "tools" / "greet.yml"
    file.parent.mkdir(parents=True)
    text = GREET.format(name="greet", words="hello").partition("runtime:")[0]
    good = f"{text}code: |\n  export const execute = (): string => 'hello';\n"
    file.write_text(good)
    async with App.open(home=tmp_path / "home") as app:
        assert (await app.invoke("greet", {})).output == "hello"
        file.write_text(good.replace("=>", "=="))
        deadline = time.monotonic() + SECONDS
        while not app.tools.problems and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        [problem] = app.tools.problems
        assert problem.where.startswith(f"{file}:5:")
        assert problem.why.startswith("code: ")
        assert (await app.invoke("greet", {})).output == "hello"


@pytest.mark.requirement("SBX-1")
async def test_code_that_never_compiled_is_told_by_its_first_call(tmp_path: Path) -> None:
    file = tmp_path / "home" / "tools" / "greet.yml"
    file.parent.mkdir(parents=True)
    text = GREET.format(name="greet", words="hello").partition("runtime:")[0]
    file.write_text(f"{text}code: |\n  const x = 1;\n  export const execute = = x;\n")
    async with App.open(home=tmp_path / "home") as app:
        outcome = await app.invoke("greet", {})
    assert outcome.error is not None
    assert outcome.error.code == "SANDBOX_ERROR"
    assert (outcome.error.details or {})["line"] == 2


@pytest.mark.requirement("SBX-1", "DOOR-6")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_code_that_does_not_compile_is_not_listed_and_what_compiled_once_is_known(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    tools = terminal.home / "tools"
    tools.mkdir(parents=True)
    head = GREET.format(name="broken", words="hello").partition("runtime:")[0]
    (tools / "broken.yml").write_text(f"{head}code: |\n  const x = 1;\n  export const execute = = x;\n")
    good = f"{head}code: |\n  export const execute = () => 1;\n".replace("broken", "fine")
    (tools / "fine.yml").write_text(good)
    async with App.open() as app:
        await app.tools.check()
        assert [tool.name for tool in await app.tools.list(source="custom")] == ["fine"]
        outcome = await app.invoke("broken", {})
        assert outcome.error is not None
        assert outcome.error.code == "TOOL_NOT_FOUND"
    record = tmp_path / "config" / "toolgate" / "compiled.json"
    known = record.read_text()
    listed = await asyncio.to_thread(terminal, "tools", "list", "--source", "custom")
    assert "fine" in listed.out
    assert "broken" not in listed.out
    assert listed.err.count("broken.yml:6:") == 1
    assert record.read_text() == known
    code = "const x = 1;\nexport const execute = = x;\n"
    forged = json.dumps([sha256(f"{VERSION}\0typescript\0{code}".encode()).hexdigest()])
    for odd in ("{", "[1, {}]", '{"a": 1}', "[" * 100_000, forged):  # only the sandbox says what does not compile
        record.write_text(odd)
        record.chmod(0o666)  # anybody could have written it
        (terminal.home / "compiled.json").write_text(forged)  # a clone or an archive can bring this one
        async with App.open() as app:
            await app.tools.check()
            assert [problem.where.partition(":")[0] for problem in app.tools.problems] == [".toolgate/tools/broken.yml"]
    record.write_text(forged)  # for its owner alone, it is the person's own
    async with App.open() as app:
        await app.tools.check()
        assert app.tools.problems == []


@pytest.mark.requirement("SBX-1", "TOOL-4")
async def test_a_file_that_would_take_a_builtin_s_name_is_a_problem_and_the_others_load(tmp_path: Path) -> None:
    tools = tmp_path / "home" / "tools"
    tools.mkdir(parents=True)
    (tools / "a.yml").write_text(GREET.format(name="echo", words="mine"))
    (tools / "b.yml").write_text(GREET.format(name="greet", words="hello"))
    async with App.open(home=tmp_path / "home") as app:
        assert (await app.invoke("echo", {"text": "theirs"})).output == {"text": "theirs"}
        assert (await app.invoke("greet", {})).output == "hello"
        [problem] = app.tools.problems
        assert problem.where.startswith(str(tools / "a.yml"))
        assert "the name is taken by a tool of source builtin" in problem.why


@pytest.mark.requirement("SBX-1", "REG-4")
@pytest.mark.parametrize(
    "settings", [{"auto_load_custom_tools": False}, {"enforcement": {"disable_local_tools": True}}], ids=["off", "forbidden"]
)
async def test_no_file_is_loaded_where_settings_say_so(tmp_path: Path, settings: dict[str, object]) -> None:
    tools = tmp_path / "home" / "tools"
    tools.mkdir(parents=True)
    (tools / "a.yml").write_text(GREET.format(name="greet", words="hello"))
    async with App.open(home=tmp_path / "home", **settings) as app:
        assert await app.tools.list(source="custom") == ()


@pytest.mark.requirement("SBX-1", "TOOL-4")
async def test_a_file_that_goes_does_not_take_along_a_tool_of_another_source(tmp_path: Path) -> None:
    tools = tmp_path / "home" / "tools"
    tools.mkdir(parents=True)
    for file, name in (("a.yml", "greet"), ("b.yml", "other")):
        (tools / file).write_text(GREET.format(name=name, words="custom"))

    @tool(tier="read_only")
    async def greet() -> str:
        """Greet somebody."""
        return "python"

    async with App.open(home=tmp_path / "home") as app:
        app.register(greet)  # a source that comes before keeps the name
        (tools / "a.yml").unlink()
        (tools / "b.yml").unlink()
        await until(lambda: app.invoke("other", {}), lambda outcome: not outcome.ok)
        assert (await app.invoke("greet", {})).output == "python"


@pytest.mark.requirement("SBX-1", "REG-4")
async def test_a_tool_that_was_disabled_stays_so_when_its_file_changes(tmp_path: Path) -> None:
    tools = tmp_path / "home" / "tools"
    tools.mkdir(parents=True)
    for words in ("hello", "welcome"):
        (tools / "a.yml").write_text(GREET.format(name="greet", words=words))
        async with App.open(home=tmp_path / "home") as app:
            if words == "hello":
                await app.tools.set_enabled("greet", False)
            outcome = await app.invoke("greet", {})
            assert outcome.error is not None, words
