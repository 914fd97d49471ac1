"""The pages on agent frameworks work: their programs run with the real framework. Run by `make frameworks`.

No name of a test file, because these environments are large: `make test` goes without them.
"""

from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, Block, blocks, pages
from tests.docs.test_snippets import FRAMEWORKS, run_python

SHOWN = [block for page in pages() for block in blocks(page) if block.note in FRAMEWORKS]


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_a_program_runs_with_its_framework(block: Block, tmp_path: Path) -> None:
    done = run_python(block, tmp_path, str(ROOT / ".venv" / block.note / "bin" / "python"))
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def test_each_framework_has_programs() -> None:
    named = {block.page.stem.removeprefix("use-with-") for block in SHOWN}
    assert named == {"fastapi", "langchain", "openai-agents", "pydantic-ai"}
