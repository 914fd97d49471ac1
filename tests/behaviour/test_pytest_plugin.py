"""The pytest plugin, in runs of its own: the page about it, word for word, and the plugins that run async tests."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.requirement("DOOR-6")

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "test-a-tool.md"
TESTS = '''
import os
from pathlib import Path

import pytest
import pytest_asyncio

from toolgate import App, InvokeContext, tool
from toolgate.testing import FixtureApp


@tool(tier="read_only")
async def inner(a: int) -> int:
    """Double."""
    return 2 * a


@tool(tier="read_only", cost=0.6)
async def outer(ctx: InvokeContext, a: int) -> int:
    """Call the other."""
    return (await ctx.call_tool("inner", a=a)).output


@tool(tier="read_only")
def crashes() -> int:
    """Has a bug."""
    return 1 // 0


@pytest.fixture(autouse=True)
def tools(toolgate_app):
    toolgate_app.tools.register_many([inner, outer, crashes])


@pytest_asyncio.fixture
async def warm(toolgate_app):
    async with toolgate_app:
        await toolgate_app.invoke(inner, {"a": 1})
        yield toolgate_app


@pytest.mark.asyncio
async def test_under_pytest_asyncio(toolgate_app, toolgate_calls):
    assert (await toolgate_app.invoke(outer, {"a": 3})).output == 6
    assert [call.tool for call in toolgate_calls] == ["inner", "outer"]
    assert toolgate_calls[0].parent == toolgate_calls[1].outcome.id
    toolgate_calls.clear()
    assert not toolgate_calls


@pytest.mark.asyncio
async def test_with_an_async_fixture_that_opened_it(warm, toolgate_calls):
    assert (await warm.invoke(inner, {"a": 3})).ok
    assert len(toolgate_calls) == 2


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_under_anyio(toolgate_app, anyio_backend):
    async with toolgate_app as app:
        assert (await app.invoke(inner, {"a": 3})).output == 6
    assert (await app.invoke(inner, {"a": 3})).output == 6


class TestInAClass:
    def test_that_is_not_async(self, toolgate_app, toolgate_clock):
        assert isinstance(toolgate_app, App)
        assert toolgate_app.call(inner, {"a": 3}).output == 6
        assert toolgate_app.run(toolgate_app.tools.list(source="python"))[0].name == "crashes"

    @pytest.mark.asyncio
    async def test_that_is(self, toolgate_app):
        assert (await toolgate_app.invoke(inner, {"a": 3})).output == 6


@pytest.mark.asyncio
async def test_a_budget_follows_the_clock(toolgate_app, toolgate_clock):
    from toolgate.gates.quota.budget_accounts import new_budget

    await toolgate_app.budgets.set(new_budget("day", 10**9))
    spent = [(await toolgate_app.invoke(outer, {"a": 1})).status for _ in range(2)]
    toolgate_clock.advance(days=1)
    spent.append((await toolgate_app.invoke(outer, {"a": 1})).status)
    assert spent == ["success", "denied", "success"]


def test_it_is_apart_from_who_runs_it(toolgate_app, tmp_path):
    assert toolgate_app.call(inner, {"a": 3}).ok
    assert toolgate_app.settings.in_memory
    assert toolgate_app.settings.home.is_relative_to(tmp_path)
    assert toolgate_app.parts.project.records.path.is_relative_to(tmp_path)
    assert not Path(".toolgate").exists()
    assert [source.held() for source in toolgate_app.parts.secrets.sources] == [{}]


@pytest.mark.asyncio
async def test_shows_why(toolgate_app):
    outcome = await toolgate_app.invoke(crashes)
    assert outcome.status == "success"


@pytest.mark.asyncio
async def test_shows_the_outcome(toolgate_app):
    outcome = await toolgate_app.invoke(inner, {"a": "x"})
    assert outcome.ok


@pytest.mark.asyncio
async def test_raises_the_cause(toolgate_app):
    (await toolgate_app.invoke(crashes)).raise_for_status()
'''


def run(folder: Path, *options: str) -> str:
    """What pytest says to the tests in a folder, where every warning is an error."""
    environment = {**os.environ, "HOME": str(folder / "home"), "TOOLGATE_SECRET_TOKEN": "a person's own"}
    environment.pop("PYTEST_ADDOPTS", None)
    strict = (
        "-W",
        "error",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
        "--strict-markers",
        "-p",
        "no:cacheprovider",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, f"--rootdir={folder}", *strict, *options, str(folder)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False)
    return done.stdout + done.stderr


@pytest.mark.matrix("starts pytest")
def test_the_page_about_it_runs_word_for_word(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    tests = [block for block in blocks if "def test_" in block]
    for number, block in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(block)
    said = run(tmp_path, "-o", "asyncio_mode=auto")
    count = sum(block.count("def test_") for block in tests)
    assert count >= 9
    assert f"{count} passed" in said, said


@pytest.mark.matrix("starts pytest several times")
def test_it_works_with_either_plugin_and_with_none_and_a_failure_says_why(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text(TESTS)
    said = run(tmp_path, "-o", "asyncio_mode=strict")
    assert "3 failed, 7 passed" in said, said
    why, shows, raises = said.split("\n____")[1:]
    assert "crashes() -> Outcome(crashes: failure, INVOCATION_ERROR: The tool raised ZeroDivisionError" in why
    assert "where False = Outcome(inner: failure, VALIDATION_ERROR: Invalid arguments: a:" in shows
    assert "return 1 // 0" in raises
    assert "direct cause of the following exception" in raises


def test_it_costs_other_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\ndef test_other():\n"
        "    heavy = {'toolgate.app.app', 'toolgate.testing.app', 'pydantic', 'msgspec'} & set(sys.modules)\n"
        "    assert not heavy, heavy\n"
        "    assert 'toolgate.testing.plugin' in sys.modules\n"
    )
    said = run(tmp_path, "-p", "no:hypothesispytest", "-p", "no:anyio", "-p", "no:asyncio", "-W", "ignore")
    assert "1 passed" in said, said
