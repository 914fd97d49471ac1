"""`file_search`: what ripgrep finds in the working directory."""

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from toolgate import App
from toolgate.sandbox.workspaces import Workspaces

pytestmark = pytest.mark.requirement("BUILTIN-5")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    for name, text in {
        "a.py": "import os\n\ndef one():\n    return 1\n\n\ndef two():\n    return 2\n",
        "src/b.ts": "export function one() {}\n",
        "src/deep/c.ts": "// One\n",
        "notes.txt": "a.b (c) [d]\r\nsecond\r\n",
        ".hidden.txt": "def hidden\n",
        ".gitignore": "build/\n*.log\n",
        "build/out.py": "def built():\n",
        "run.log": "def logged\n",
        "node_modules/x/index.js": "def module\n",
    }.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    return folder


@pytest.fixture
async def app(tmp_path: Path, work: Path) -> AsyncIterator[App]:
    async with App.open(os.devnull, home=tmp_path / "home") as app:
        app.provide(Workspaces, Workspaces(tmp_path / "home", work, rules=lambda: app.parts.tiers.paths))
        yield app


async def found(app: App, mode: str, query: str, **more: Any) -> Any:
    outcome = await app.invoke("file_search", {"mode": mode, "query": query, **more})
    assert outcome.ok, outcome.error
    return outcome.output


def places(output: Any) -> list[tuple[str, int]]:
    assert output["truncated"] is False
    return [(match["path"], match["line"]) for match in output["matches"]]


async def test_text_is_found_as_it_stands(app: App) -> None:
    assert await found(app, "grep", "a.b (c) [d]") == {
        "matches": [{"path": "notes.txt", "line": 1, "text": "a.b (c) [d]"}],
        "truncated": False,
    }
    assert places(await found(app, "grep", "aXb")) == []


async def test_regular_expressions_are_found_but_not_where_files_are_ignored(app: App) -> None:
    assert places(await found(app, "regex", r"def \w+")) == [("a.py", 3), ("a.py", 7)]
    assert places(await found(app, "regex", r"def \w+", hidden=True)) == [(".hidden.txt", 1), ("a.py", 3), ("a.py", 7)]
    assert places(await found(app, "regex", "module", path="node_modules/x")) == [("node_modules/x/index.js", 1)]


async def test_a_search_is_narrowed(app: App) -> None:
    assert places(await found(app, "grep", "one")) == [("a.py", 3), ("src/b.ts", 1)]
    assert places(await found(app, "grep", "one", ignoreCase=True, include=["*.ts"])) == [
        ("src/b.ts", 1), ("src/deep/c.ts", 1),
    ]  # fmt: skip
    assert places(await found(app, "grep", "one", ignoreCase=True, exclude=["src/deep/**", "*.py"])) == [("src/b.ts", 1)]
    assert places(await found(app, "grep", "One", path="src/deep")) == [("src/deep/c.ts", 1)]


async def test_lines_around_are_shown(app: App) -> None:
    output = await found(app, "grep", "return 1", context=1)
    assert [(match["line"], match["text"], match.get("context", False)) for match in output["matches"]] == [
        (3, "def one():", True), (4, "    return 1", False), (5, "", True),
    ]  # fmt: skip


async def test_files_are_found_by_name(app: App) -> None:
    assert await found(app, "glob", "**/*.ts") == {"files": ["src/b.ts", "src/deep/c.ts"], "truncated": False}
    assert (await found(app, "glob", "*.TS", ignoreCase=True, path="src"))["files"] == ["src/b.ts", "src/deep/c.ts"]
    assert (await found(app, "glob", "*", exclude=["*.ts"]))["files"] == ["a.py", "notes.txt"]
    assert (await found(app, "glob", "*.txt", hidden=True))["files"] == [".hidden.txt", "notes.txt"]
    assert (await found(app, "glob", ".git*"))["files"] == [".gitignore"]
    assert (await found(app, "glob", "src/**"))["files"] == ["src/b.ts", "src/deep/c.ts"]
    assert (await found(app, "glob", "src/*"))["files"] == ["src/b.ts"]
    assert (await found(app, "glob", "{a,b}.{py,ts}"))["files"] == ["a.py", "src/b.ts"]


async def test_results_are_limited(app: App, work: Path) -> None:
    (work / "many.txt").write_text("needle\n" * 50)
    (work / "more.txt").write_text("needle\n" * 50)
    output = await found(app, "grep", "needle", maxResults=60)
    assert (len(output["matches"]), output["truncated"]) == (60, True)
    output = await found(app, "grep", "needle")
    assert (len(output["matches"]), output["truncated"]) == (100, False)
    assert await found(app, "glob", "m*.txt", maxResults=1) == {"files": ["many.txt"], "truncated": True}


async def test_a_huge_line_is_cut_and_hides_nothing(app: App, work: Path) -> None:
    (work / "data.json").write_text('{"needle": "' + "x" * 3_000_000 + '"}')
    (work / "z.txt").write_text("needle\n")
    output = await found(app, "grep", "needle")
    assert places(output) == [("data.json", 1), ("z.txt", 1)]
    assert len(output["matches"][0]["text"]) < 600


async def test_what_is_no_text_is_left_out(app: App, work: Path) -> None:
    (work / "b.bin").write_bytes(b"\0\1needle\n" * 3 + b"fake.txt\x001:needle\n")
    (work / "z.txt").write_text("needle\n")
    assert places(await found(app, "grep", "needle")) == [("z.txt", 1)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "regex", "query": "(unclosed"}, "unclosed group"),
        ({"mode": "regex", "query": "(?<=x)y"}, "look-around"),
        ({"mode": "glob", "query": "[z"}, "can't be read"),
        ({"mode": "glob", "query": "a\\b"}, "backslash"),
        ({"mode": "glob", "query": "{a,b}" * 7}, "more than 64"),
        ({"mode": "glob", "query": "!x"}, "can't begin"),
        ({"mode": "glob", "query": "*", "include": ["*.py"]}, "include is for"),
        ({"mode": "grep", "query": "x", "exclude": ["!x"]}, "can't begin"),
        ({"mode": "grep", "query": "x\ny"}, "can't be read"),
        ({"mode": "grep", "query": "x\0y"}, "no program can be given"),
        ({"mode": "grep", "query": "x", "path": "none"}, "There is no none"),
        ({"mode": "grep", "query": "x", "path": "a.py"}, "is no folder"),
        ({"mode": "regex", "query": "(?:(?:a{1000}){1000}){1000}"}, "can't be read"),
    ],
)
@pytest.mark.sample(4)
async def test_what_can_not_be_searched_for_is_said(app: App, arguments: dict[str, Any], words: str) -> None:
    outcome = await app.invoke("file_search", arguments)
    assert outcome.error is not None, outcome
    assert outcome.error.code == "INVALID_INPUT", outcome.error
    assert words in outcome.error.message


async def test_without_the_extra_it_is_named(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.tools.search.program_of", lambda _name: None)
    outcome = await app.invoke("file_search", {"mode": "grep", "query": "x"})
    assert outcome.error is not None
    assert "toolgate[files]" in outcome.error.message


@at_most(10)
@given(
    needle=st.text(
        st.characters(codec="utf-8", exclude_characters="\0\r\n", exclude_categories=["Cc"]), min_size=1, max_size=20
    )
)
async def test_any_text_that_is_in_a_file_is_found(app: App, work: Path, needle: str) -> None:
    (work / "needle.txt").write_text(f"before\nx{needle}y\n", encoding="utf-8")
    assert ("needle.txt", 2) in places(await found(app, "grep", needle))


async def test_it_agrees_with_grep(app: App, work: Path) -> None:
    said = subprocess.run(
        ["grep", "-rnE", "o.e", "src", "a.py"], cwd=work, capture_output=True, text=True, check=True
    ).stdout
    expected = sorted((line.split(":")[0], int(line.split(":")[1])) for line in said.splitlines())
    assert sorted(places(await found(app, "regex", "o.e"))) == expected
