"""The files that the page on custom tools shows are custom tools, and it names every field."""

from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, Block, blocks
from toolgate.sandbox.custom.yaml_file import PERMISSIONS, TOOL_FILE_FIELDS, parse_tool_file

PAGE = ROOT / "docs" / "howto" / "custom-tools.md"
SHOWN = [block for block in blocks(PAGE) if block.language == "yaml"]
HEAD = "name: shown\ndescription: As shown.\nschema: {type: object}\ncode: execute\n"


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_a_file_that_is_shown_is_read(block: Block) -> None:
    whole = block.text if block.text.startswith("name:") else HEAD + block.text
    assert parse_tool_file(whole.encode(), Path("shown.yml")).entry.tool.source == "custom"


def test_every_field_is_named() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(SHOWN) == 2
    assert [name for name in (*TOOL_FILE_FIELDS, *PERMISSIONS) if f"`{name}" not in page and f"{name}:" not in page] == []
