"""What the documentation shows works: Python blocks run, `$ toolgate` lines run, links lead somewhere.

A block is left out by `<!-- not run -->` on the line before it. A console block whose commands end otherwise than with
success says so by `<!-- exit N -->`. Blocks that need a framework name its environment: `framework_pages` runs them.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forked
from tests.docs.markdown import ROOT, Block, anchors, blocks, links, pages
from toolgate.settings import load_settings

# Runs a file as the main module, letting it await at top level as a notebook does.
RUN = """
import ast, asyncio, inspect, pathlib, sys
__file__ = sys.argv[1]
result = eval(compile(pathlib.Path(__file__).read_text(), __file__, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), globals())
if inspect.iscoroutine(result):
    asyncio.run(result)
"""
SECONDS = 60
SHELL = re.compile(r"[|&;<>$`*?~#(]")
"""What only a shell understands."""
FRAMEWORKS = ("frameworks", "langchain-mcp")
"""The environments with agent frameworks in them, by their lock files in requirements/."""


def surroundings(at: Path) -> dict[str, str]:
    """As a reader would: in an empty folder that they trust, with `toolgate` on the path and no settings of ours."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    return {**environment, "PATH": path, "HOME": str(at), "TOOLGATE_TRUST": str(at)}


def run(command: list[str], at: Path) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        command,
        cwd=at,
        env=surroundings(at),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )


def run_python(block: Block, at: Path, python: str = sys.executable) -> "subprocess.CompletedProcess[bytes]":
    (at / "snippet.py").write_text(block.text)
    if python == sys.executable:
        return forked.run(["snippet.py"], folder=at, environment=surroundings(at), seconds=SECONDS, code=RUN)
    return run([python, "-c", RUN, "snippet.py"], at)


def run_command(command: str, at: Path) -> "subprocess.CompletedProcess[bytes]":
    if SHELL.search(command):
        return run(["sh", "-c", command], at)
    return forked.run(shlex.split(command)[1:], folder=at, environment=surroundings(at), seconds=SECONDS)


def _commands(block: Block) -> Iterator[str]:
    for line in re.sub(r"\\\n\s*", "", block.text).splitlines():
        if line.startswith("$ toolgate "):
            yield line.removeprefix("$ ")


def _expected(block: Block) -> int:
    said = re.fullmatch(r"exit (\d+)", block.note)
    return int(said[1]) if said else 0


def _shown(language: str) -> list[Block]:
    elsewhere = ("not run", *FRAMEWORKS)
    return [
        block for page in pages() for block in blocks(page) if block.language == language and block.note not in elsewhere
    ]


def _of_matrix(block: Block) -> pytest.MarkDecorator | tuple[()]:
    """The reference has a block for each command and each tool, which have tests of their own."""
    in_reference = block.page.name == "cli.md" or block.page.parent.name == "tools"
    return pytest.mark.matrix("a block for each command and tool") if in_reference else ()


@pytest.mark.parametrize("block", [pytest.param(one, marks=_of_matrix(one), id=str(one)) for one in _shown("python")])
def test_a_python_block_runs(block: Block, tmp_path: Path) -> None:
    done = run_python(block, tmp_path)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


CONSOLE = [
    pytest.param(block, marks=_of_matrix(block), id=str(block)) for block in _shown("console") if any(_commands(block))
]


@pytest.mark.sample(8)
@pytest.mark.parametrize("block", CONSOLE)
def test_a_console_block_runs(block: Block, tmp_path: Path) -> None:
    for command in _commands(block):
        done = run_command(command, tmp_path)
        assert done.returncode == _expected(block), f"$ {command}\n{(done.stdout + done.stderr).decode()}"


SETTINGS = [
    block for block in _shown("yaml") if block.page.stem != "custom-tools" and not block.text.startswith("# cases.yaml")
]


@pytest.mark.parametrize("block", SETTINGS, ids=str)
def test_settings_that_are_shown_are_valid(block: Block, tmp_path: Path) -> None:
    (tmp_path / "toolgate.yaml").write_text(block.text)
    load_settings(tmp_path / "toolgate.yaml", {}, {})


@pytest.mark.parametrize("page", pages("CONTRIBUTING.md", "CHANGELOG.md"), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    astray = [link for link in links(page) if not _resolves(page, link)]
    assert not astray


def _resolves(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target)


def test_every_page_is_reached_from_the_index() -> None:
    reached, waiting = set(), [ROOT / "docs" / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.is_relative_to(ROOT / "docs"):
            reached.add(page)
            named = (link.partition("#")[0] for link in links(page))
            waiting += [(page.parent / name).resolve() for name in named if name.endswith(".md")]
    assert sorted(set((ROOT / "docs").rglob("*.md")) - reached) == []


def test_every_how_to_is_in_the_index_itself() -> None:
    index = set(links(ROOT / "docs" / "README.md"))
    named = {
        f"{page.parent.name}/{page.name}"
        for kind in ("howto", "explanation")
        for page in (ROOT / "docs" / kind).glob("*.md")
    }
    assert sorted(named - index) == []
