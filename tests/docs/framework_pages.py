"""The pages on agent frameworks work: their programs run with the real framework. Run by `make frameworks`.

No name of a test file, because these environments are large: `make test` goes without them.
"""

import asyncio
import os
from pathlib import Path

import pytest

from tests.adapters.scripted_models import Turn, scripted
from tests.docs.markdown import ROOT, Block, blocks, pages
from tests.docs.test_snippets import FRAMEWORKS, run_python

SHOWN = [block for page in pages() for block in blocks(page) if block.note in FRAMEWORKS]
ON_CLAUDE = [block for block in SHOWN if block.page.stem == "use-with-claude-agent"]
CALLS: tuple[Turn, ...] = (
    [("toolu_0", "mcp__toolgate__balance", {"account": "main"})],
    [("toolu_1", "mcp__toolgate__pay", {"to": "bob", "amount": 10})],
    "Done.",
)
THROUGH_MCP: tuple[Turn, ...] = ([("toolu_0", "mcp__toolgate__echo", {"text": "hello"})], "Done.")


@pytest.mark.parametrize("block", [block for block in SHOWN if block not in ON_CLAUDE], ids=str)
def test_a_program_runs_with_its_framework(block: Block, tmp_path: Path) -> None:
    done = run_python(block, tmp_path, str(ROOT / ".venv" / block.note / "bin" / "python"))
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


@pytest.mark.parametrize(
    ("block", "turns", "told"),
    [*zip(ON_CLAUDE, (CALLS, THROUGH_MCP), ("paid 10.00 to bob", "hello"), strict=True)],
    ids=["in process", "through MCP"],
)
async def test_a_program_runs_with_claude_code(
    block: Block, turns: tuple[Turn, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claude Code itself runs. The environment says where its model is, and no other credential."""
    for name in list(os.environ):
        if name.upper().startswith(("ANTHROPIC", "CLAUDE", "AWS_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none-is-needed")
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
    async with scripted(*turns) as model:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        python = str(ROOT / ".venv" / block.note / "bin" / "python")
        done = await asyncio.to_thread(run_python, block, tmp_path, python)
        assert done.returncode == 0, (done.stdout + done.stderr).decode()
        assert model.turns == []
        assert told in model.told()[-1][1]


def test_each_framework_has_programs() -> None:
    named = {block.page.stem.removeprefix("use-with-") for block in SHOWN}
    assert named == {"claude-agent", "fastapi", "langchain", "openai-agents", "pydantic-ai"}
