"""Undocumented means a failing test."""

import re
from pathlib import Path

from tests.docs import stages, tool_index
from tests.docs.python_reference import PAGE, render, undocumented
from toolgate.errors import CODES
from toolgate.pipeline.hooks import STAGES

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def names_in(page: str) -> list[str]:
    """What a table of the page lists in its first column."""
    return re.findall(r"^\| `(\w+)`", (REFERENCE / page).read_text(encoding="utf-8"), re.MULTILINE)


def test_the_reference_of_stages_is_what_hooks_and_line_say() -> None:
    assert stages.PAGE.read_text(encoding="utf-8") == stages.render(), "run `make reference`"
    assert sorted(names_in("stages.md")) == sorted(STAGES)


def test_every_code_is_documented_with_its_status() -> None:
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    assert names_in("errors.md") == list(CODES)
    for code, meaning in CODES.items():
        assert f"| `{code}` | {meaning.status} |" in text


def test_the_python_reference_is_what_the_source_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run `make reference`"


def test_the_list_of_tools_is_what_their_definitions_say() -> None:
    assert tool_index.PAGE.read_text(encoding="utf-8") == tool_index.render(), "run `make reference`"


def test_every_public_name_is_documented() -> None:
    assert undocumented() == []
