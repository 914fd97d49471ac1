"""Every built-in tool with arguments that its schema allows and no honest caller sends: each gives a valid outcome, in time,
and nothing outside the workspace changes."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.from_schema import values
from toolgate import App, Outcome
from toolgate.errors import CODES
from toolgate.model import Entry
from toolgate.network.resolver import BoundedResolver
from toolgate.registry.compile import DefinitionRules
from toolgate.registry.python_source import PackageSource

pytestmark = pytest.mark.requirement("IO-1", "PIPE-6")

LOADED = [
    entry for entry in PackageSource("toolgate.tools", "builtin", DefinitionRules()).load() if isinstance(entry, Entry)
]
TOOLS = {entry.name: entry.tool.input_schema for entry in LOADED}
SLOW = {
    "parse_typescript", "validate_json", "analyze_dependencies", "code_execute", "run_program", "execute_command",
    "bash_execution", "docker_run", "type_check", "npm_install",
}  # fmt: skip
"""Tools that start a process, and so get fewer examples."""
CRASHES = ("UNEXPECTED_ERROR", "INVOCATION_ERROR", "OUTPUT_INVALID")
SECONDS = 60.0
PATHS = st.sampled_from(
    [
        "notes.txt",
        ".",
        "..",
        "/etc/passwd",
        "../outside/secret.txt",
        "link",
        "link/secret.txt",
        "src",
        "src/a.ts",
        "",
        "\0",
        "~",
    ]
)


async def nowhere(_host: str, _port: int) -> list[str]:
    """Resolves no name: no request leaves this machine."""
    return []


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace, and beside it what no call may touch; a link leads there."""
    top = tmp_path_factory.mktemp("random")
    for folder in ("work/src", "outside", "home"):
        (top / folder).mkdir(parents=True)
    (top / "work/notes.txt").write_text("notes")
    (top / "work/src/a.ts").write_text("export const a = 1;\n")
    (top / "outside/secret.txt").write_text("secret")
    (top / "work/link").symlink_to("../outside")
    return top


@pytest.fixture
async def app(tree: Path) -> AsyncIterator[App]:
    opened = App.open(
        home=tree / "home", database_url="memory://", entry_points=False, budgets={"external_api_daily": None},
        sandbox={"seconds": 5},
    )  # fmt: skip
    opened.parts.http._resolver = BoundedResolver(nowhere, 4)
    async with opened as app:
        app.approvals.add_approver(lambda _request: True)
        yield app


def outside(tree: Path) -> list[tuple[str, int, bytes]]:
    """Everything beside the workspace and Toolgate's own data."""
    files = [file for file in tree.rglob("*") if not file.is_relative_to(tree / "work") and file.parts[-1] != "home"]
    own = tree / "home"
    return sorted(
        (str(file), os.lstat(file).st_mode, b"" if file.is_dir() else file.read_bytes())
        for file in files
        if not file.is_relative_to(own)
    )


def arguments_of(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments that fit a schema; some of the paths among them lead where they should not."""

    def aimed(arguments: dict[str, Any], path: str, aims: bool) -> dict[str, Any]:
        return {**arguments, "path": path} if aims and "path" in schema["properties"] else arguments

    return st.builds(aimed, values(schema), PATHS, st.booleans())


async def outcome_of(app: App, tree: Path, name: str, arguments: dict[str, Any]) -> Outcome:
    async with asyncio.timeout(SECONDS):
        return await app.invoke(name, arguments, workspace=tree / "work")


async def check(app: App, tree: Path, name: str, arguments: dict[str, Any]) -> None:
    before = outside(tree)
    outcome = await outcome_of(app, tree, name, arguments)
    assert outcome.status in ("success", "failure", "denied", "timeout", "pending")
    if outcome.error is not None:
        assert outcome.error.code in CODES
        assert outcome.error.code not in CRASHES, (outcome.error, arguments)
        assert outcome.error.message and "Traceback" not in outcome.error.message
    outcome.to_json()
    assert outside(tree) == before


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", sorted(TOOLS.keys() - SLOW))
@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
async def test_what_the_schema_allows_gives_a_valid_outcome(app: App, tree: Path, name: str, data: st.DataObject) -> None:
    await check(app, tree, name, data.draw(arguments_of(TOOLS[name])))


@pytest.mark.matrix("the same of tools whose every call takes long")
@pytest.mark.parametrize("name", sorted(SLOW & TOOLS.keys()))
@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=8)
@given(data=st.data())
async def test_so_it_is_of_tools_that_start_a_process(app: App, tree: Path, name: str, data: st.DataObject) -> None:
    await check(app, tree, name, data.draw(arguments_of(TOOLS[name])))
