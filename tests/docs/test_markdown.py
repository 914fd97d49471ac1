"""The reader of Markdown that the other tests here trust."""

from pathlib import Path

import pytest

from tests.docs.markdown import anchors, blocks, links
from tests.docs.test_snippets import _commands, _expected, run_python

PAGE = """\
# A page: with `code`

See [one](one.md), [two](<two.md#b>), [out](https://example.org), `[not](a-link.md)` and ![pic](p.png "title").

<!-- not run -->
```python
[a](b.md)
```

- item

  ```python
  if True:
      x = 1
  ```

<!-- exit 3 -->
```console
$ toolgate call add \\
    a=1
3
$ ls
```

## Twice
## Twice
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_blocks_come_with_the_note_before_them(page: Path) -> None:
    assert [(block.language, block.note, block.line) for block in blocks(page)] == [
        ("python", "not run", 6),
        ("python", "", 12),
        ("console", "exit 3", 18),
    ]


def test_an_indented_block_loses_its_indent(page: Path) -> None:
    assert list(blocks(page))[1].text == "if True:\n    x = 1\n"


def test_commands_are_joined_over_lines_and_others_are_left_alone(page: Path) -> None:
    console = list(blocks(page))[2]
    assert list(_commands(console)) == ["toolgate call add a=1"]
    assert _expected(console) == 3


def test_links_are_those_of_the_prose_that_stay_here(page: Path) -> None:
    assert list(links(page)) == ["one.md", "two.md#b", "p.png"]


def test_anchors_are_those_of_github(page: Path) -> None:
    assert anchors(page) == {"a-page-with-code", "twice", "twice-1"}


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("import asyncio\nawait asyncio.sleep(0)", 0),
        ("from __future__ import annotations\nassert __name__ == '__main__'", 0),
        ("import asyncio\nasync def main() -> None: ...\nasyncio.run(main())", 0),
        ("await nothing()", 1),
        ("raise SystemExit(4)", 4),
    ],
)
def test_python_may_await_at_top_level_and_fails_as_itself(tmp_path: Path, code: str, status: int) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```python\n{code}\n```\n")
    [block] = blocks(page)
    assert run_python(block, tmp_path).returncode == status
