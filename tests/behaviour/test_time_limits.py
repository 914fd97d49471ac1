"""A time limit that ran out is TIMEOUT whatever runs the tool, other limits of the sandbox are SANDBOX_ERROR, and what
`tools info` shows is the limit that applies."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.matrix import others_in_matrix
from tests.mcp_upstream import Upstream
from tests.mcp_upstream import tool as offered
from tests.terminal import Terminal
from toolgate import App, tool
from toolgate.cli.catalog import listed
from toolgate.cli.tools.info import info_to_dict
from toolgate.model import LOCAL, Retry

pytestmark = [pytest.mark.requirement("PIPE-6", "PIPE-7", "SBX-2"), pytest.mark.asyncio(loop_scope="module")]

SECONDS, LONGER = 1.0, 4.0
FOREVER = "export async function execute(args: any) {{ {body} }}"
HOARD = "const a = []; for (;;) a.push('x'.repeat(1e6) + a.length);"
CUSTOM = {
    "custom_typescript": ("typescript", FOREVER.format(body="for (;;);"), ""),
    "custom_javascript": ("node", FOREVER.format(body="for (;;);").replace(": any", ""), ""),
    "custom_python": ("python", "def execute(args, context):\n    while True: pass", ""),
    "custom_longer": ("python", "def execute(args, context):\n    while True: pass", f"timeout: {LONGER}\n"),
    "custom_flood": ("python", "def execute(args, context):\n    while True: print('x' * 9_999)", "timeout: 20\n"),
    "custom_hog": ("typescript", FOREVER.format(body=HOARD), "timeout: 20\n"),
}  # fmt: skip
HANGS: dict[str, dict[str, Any]] = {
    "async_tool": {},
    "sync_tool": {},
    "ClassTool": {},
    "retried_tool": {},
    "code_execute": {"code": "while True: pass"},
    "code_execute (worker)": {"code": "import os\nwhile True: pass"},
    "code_execute (files)": {"code": "while True: pass", "session_files": True},
    "code_execute (typescript)": {"code": "for (;;);", "language": "typescript"},
    "code_execute (javascript)": {"code": "for (;;);", "language": "javascript"},
    "run_program": {"code": "for (;;);"},
    "run_program (monty)": {"code": "while True: pass", "language": "python"},
    "execute_command": {"command": "sleep 20"},
    "bash_execution": {"command": "sleep 20"},
    "custom_typescript": {},
    "custom_javascript": {},
    "custom_python": {},
    "custom_longer": {},
    "mcp_one_hangs": {},
}
QUICK = ("async_tool", "sync_tool", "code_execute", "execute_command", "custom_python", "mcp_one_hangs")
"""One of each runner."""
FLOODS: dict[str, tuple[str, dict[str, Any]]] = {
    "code_execute": ("output", {"code": "import os\nwhile True: print('x' * 9_999)"}),
    "code_execute (monty)": ("output", {"code": "while True: print('x' * 9_999)"}),
    "run_program": ("output", {"code": "for (;;) console.log('x'.repeat(9_999));"}),
    "execute_command": ("output", {"command": "yes"}),
    "custom_flood": ("output", {}),
    "custom_hog": ("memory", {}),
}
release = threading.Event()


@tool(tier="read_only", timeout=SECONDS)
async def async_tool() -> None:
    """Never end."""
    await asyncio.sleep(3_600)


@tool(tier="read_only", timeout=SECONDS)
def sync_tool() -> None:
    """Take longer than it may."""
    release.wait(60)


@tool(tier="read_only", timeout=SECONDS)
class ClassTool:
    """Never end."""

    async def execute(self) -> None:
        await asyncio.sleep(3_600)


@tool(tier="read_only", timeout=SECONDS, retry=Retry(max_attempts=2, backoff_ms=1, max_delay_ms=1))
async def retried_tool() -> None:
    """Never end, twice."""
    await asyncio.sleep(3_600)


@tool(tier="read_only")
async def unstoppable(x: int) -> int:
    """Never await."""
    return x


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    home = tmp_path_factory.mktemp("home")
    (home / "tools").mkdir()
    for name, (runtime, code, more) in CUSTOM.items():
        indented = "\n".join(f"  {line}" for line in code.split("\n"))
        head = f"name: {name}\ndescription: Never ends.\nschema: {{type: object, properties: {{}}}}\n"
        rest = f"{more}permissions: {{riskLevel: low}}\ncode: |\n{indented}\n"
        (home / "tools" / f"{name}.yml").write_text(f"{head}runtime: {runtime}\n{rest}")
    upstream = Upstream(home, offered("hangs"), silent=["hangs"])
    server = {"trust_first_seen": True, **upstream.settings(timeout=SECONDS)}
    sandbox = {"seconds": SECONDS, "warm": 0, "output_bytes": 50_000}
    commands = {"allow": ["sleep", "yes"]}
    async with App.open(os.devnull, home=home, sandbox=sandbox, servers={"one": server}, commands=commands) as opened:
        opened.tools.register_many([async_tool, sync_tool, ClassTool, retried_tool, unstoppable])
        opened.approvals.add_approver(lambda _request: True)
        await opened.servers.refresh("one")
        yield opened
        release.set()


async def shown(app: App, name: str) -> dict[str, Any]:
    [found] = [one for one in await listed(app, LOCAL) if one.name == name]
    return info_to_dict(found, enforced=False)


@pytest.mark.parametrize("case", others_in_matrix(HANGS, *QUICK, why="each waits for its time limit"))
async def test_a_time_limit_that_ran_out_is_the_same_error_for_every_runner(app: App, case: str) -> None:
    name = case.partition(" ")[0]
    limit = (await shown(app, name))["timeout"]
    assert limit == (LONGER if name == "custom_longer" else SECONDS)
    outcome = await app.invoke(name, HANGS[case])
    assert outcome.error is not None, outcome
    assert (outcome.status, outcome.error.code, outcome.error.retryable) == ("timeout", "TIMEOUT", True), outcome.error
    assert outcome.error.message == f"The tool did not finish within {limit:g} s."
    expected = "its thread goes on" if name == "sync_tool" else "Give it less to do, or more time"
    assert expected in str(outcome.error.suggestion)
    assert outcome.metrics.duration_ms >= limit * 1000 * 0.9, "it was ended before the limit that is shown"


@pytest.mark.matrix("runs into every limit of the sandbox")
@pytest.mark.parametrize("case", FLOODS)
async def test_other_limits_of_the_sandbox_are_one_error_too(app: App, case: str) -> None:
    limit, arguments = FLOODS[case]
    for _ in range(5):  # more than once only where the machine held it up for all of the time that it has
        outcome = await app.invoke(case.partition(" ")[0], arguments)
        if outcome.status != "timeout":
            break
    assert outcome.error is not None, outcome
    assert (outcome.status, outcome.error.code) == ("failure", "SANDBOX_ERROR"), outcome.error
    assert not outcome.error.retryable
    assert (outcome.error.details or {})["stopped"] == limit, outcome.error
    assert f"sandbox.{'output_bytes' if limit == 'output' else 'memory_mb'}" in str(outcome.error.suggestion)


async def test_the_time_shown_counts_attempts_and_says_where_it_is_from(app: App) -> None:
    retried = await shown(app, "retried_tool")
    assert (retried["timeout"], retried["attempts"], retried["longest"]) == (SECONDS, 2, SECONDS * 2 + 0.001)
    assert retried["timeout_from"] == "tool"
    assert (await shown(app, "code_execute"))["timeout_from"] == "sandbox.seconds"
    assert (await shown(app, "mcp_one_hangs"))["timeout_from"] == "servers.one"
    assert (await shown(app, "read_file"))["timeout_from"] == "max_execution_time"
    assert (await shown(app, "unstoppable"))["timeout"] is None


async def test_the_terminal_shows_the_limit_that_applies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    terminal.settings("max_execution_time: 20\nsandbox: {seconds: 7}\n")

    def line(name: str) -> str:
        return next(line for line in terminal.run("tools", "info", name).lines if line.startswith("Timeout: "))

    assert line("code_execute") == (
        "Timeout: 7 s in the sandbox, 20 s with the wait for a place there (setting sandbox.seconds)"
    )
    assert line("calculator") == "Timeout: none (the function never awaits, so nothing can interrupt it)"
