"""Undo as people meet it: a tool that writes, `app.undo`, and `toolgate undo`, with the act on record."""

import json
import os
from collections.abc import AsyncIterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from tests.terminal import Terminal
from toolgate import Actor, App, InvokeContext, ToolError, tool
from toolgate.store.audit_log import latest
from toolgate.undo import Journal, NoBackup, NotUndone

pytestmark = pytest.mark.requirement("TIER-2")


@tool(tier="write")
async def save(ctx: InvokeContext, path: str, text: str) -> str:
    """Write a file."""
    async with ctx.get(Journal).changing(ctx.call, path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)
        if text == "fail":
            raise ToolError("the disk is tired")
    return "saved"


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    for name in list(os.environ):
        if name.startswith("TOOLGATE_") and name != "TOOLGATE_TRUST":
            monkeypatch.delenv(name)
    async with App.open(home=tmp_path / "home", limits={"backup_bytes": 1000}) as app:
        app.register(save)
        yield app


async def test_a_call_is_undone_and_that_is_on_record(app: App, tmp_path: Path) -> None:
    file = tmp_path / "work" / "a.txt"
    made = await app.invoke("save", {"path": str(file), "text": "first"})
    changed = await app.invoke("save", {"path": str(file), "text": "second"})
    with pytest.raises(NotUndone):
        await app.undo.revert(made.id)
    assert [one.done for one in await app.undo.revert(changed.id)] == ["restored"]
    assert file.read_text() == "first"
    assert [one.done for one in await app.undo.revert(made.id)] == ["removed", "removed"]
    assert not file.parent.exists()
    await app.flush()
    acts: list[tuple[Any, ...]] = [row for row in await app.parts.store.read(latest(20)) if row[2] == "call.undone"]
    assert [json.loads(row[7])["call"] for row in acts] == [changed.id, made.id]


async def test_a_tool_that_fails_leaves_nothing_behind(app: App, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old")
    outcome = await app.invoke("save", {"path": str(file), "text": "fail"})
    assert outcome.error is not None
    assert outcome.error.message == "the disk is tired"
    assert file.read_text() == "old"


@pytest.mark.matrix("writes a large file")
async def test_a_file_too_large_to_keep_is_not_written(app: App, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x" * 1001)
    outcome = await app.invoke("save", {"path": str(file), "text": "new"})
    assert outcome.status == "denied"
    assert outcome.error is not None
    assert outcome.error.code == "PERMISSION_DENIED"
    assert file.read_text() == "x" * 1001


async def test_another_tenant_or_user_finds_nothing_to_undo(app: App, tmp_path: Path) -> None:
    outcome = await app.invoke("save", {"path": str(tmp_path / "a.txt"), "text": "x"}, actor=Actor("acme", user="ann"))
    for other in (None, Actor("acme", user="bob"), Actor("globex", user="ann")):
        with pytest.raises(NoBackup):
            await app.undo.revert(outcome.id, actor=other, force=True)
    assert (tmp_path / "a.txt").exists()
    await app.undo.revert(outcome.id, actor=Actor("acme", "analyst", "ann"))
    assert not (tmp_path / "a.txt").exists()


# -- at the terminal

TOOLS = """
    from pathlib import Path
    from toolgate import InvokeContext, tool
    from toolgate.undo import Journal

    @tool(tier="write")
    async def save(ctx: InvokeContext, path: str, text: str) -> str:
        '''Write a file.'''
        async with ctx.get(Journal).changing(ctx.call, path):
            Path(path).write_text(text)
        return "saved"
"""


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    terminal.add_tools(TOOLS)
    (tmp_path / "a.txt").write_text("old")
    return terminal


def saved(terminal: Terminal, text: str = "new", *words: str) -> str:
    call_id: str = terminal("call", "save", "path=a.txt", f"text={text}", *words, "--json").json["id"]
    return call_id


def test_undo_puts_back_and_says_what(terminal: Terminal) -> None:
    call_id = saved(terminal)
    file = terminal.folder / "a.txt"
    tried = terminal("undo", call_id, "--dry-run")
    assert tried.out == f"restored  {file}\n"
    assert "1 of 1 paths would be put back" in tried.err
    assert file.read_text() == "new"
    done = terminal("undo", call_id, "--json")
    assert done.json == {"call_id": call_id, "dry_run": False, "paths": [{"path": str(file), "done": "restored"}]}
    assert file.read_text() == "old"
    again = terminal("undo", call_id, "--json")
    assert again.code == 1
    assert again.json["error"]["code"] == "NOT_UNDONE"
    assert "call.undone" in terminal("audit", "tail", "--json").out


def test_a_beginning_will_do_if_it_is_the_only_one(terminal: Terminal) -> None:
    first, second = saved(terminal, "1"), saved(terminal, "2")
    common = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=True)))
    several = terminal("undo", common, "--json")
    assert several.code == 1
    assert several.json["error"]["code"] == "NOT_FOUND"
    assert first in (several.json["error"]["suggestion"] or "")
    short = terminal("undo", first[:4], "--json").json["error"]
    assert short["message"] == f"2 calls begin with {first[:4]}."
    assert terminal("undo", second[: len(common) + 1], "--json").json["call_id"] == second
    assert terminal("undo", first).code == 0


def test_what_was_changed_since_is_lost_only_by_force(terminal: Terminal) -> None:
    call_id = saved(terminal)
    file = terminal.folder / "a.txt"
    file.write_text("by hand")
    refused = terminal("undo", call_id)
    assert refused.code == 1
    assert "changed since" in refused.err
    assert "--force" in refused.err
    assert file.read_text() == "by hand"
    assert terminal("undo", call_id, "--force").code == 0
    assert file.read_text() == "old"


@pytest.mark.parametrize("call_id", ["nothing", "", "../..", "é", "a' OR 1=1", "%", "x" * 300])
@pytest.mark.sample(4)
def test_what_is_no_call_is_not_found(terminal: Terminal, call_id: str) -> None:
    saved(terminal)
    done = terminal("undo", call_id, "--json")
    assert (done.code, done.json["error"]["code"]) == (1, "NOT_FOUND")
    assert (terminal.folder / "a.txt").read_text() == "new"


def test_the_call_of_another_tenant_is_not_found(terminal: Terminal) -> None:
    call_id = saved(terminal, "new", "--tenant", "acme")
    assert terminal("undo", call_id, "--json").json["error"]["code"] == "NOT_FOUND"
    assert terminal("undo", call_id, "--tenant", "acme").code == 0


def test_a_beginning_that_is_too_short_says_so(terminal: Terminal) -> None:
    call_id = saved(terminal)
    refused = terminal("undo", call_id[:4], "--json").json["error"]
    assert "too short" in refused["message"] and "6 characters" in refused["suggestion"]
    assert (terminal.folder / "a.txt").read_text() == "new"


def test_a_call_without_backups_says_how_commits_are_undone(terminal: Terminal) -> None:
    call_id = terminal("call", "echo", "text=x", "--json").json["id"]
    assert "git revert" in terminal("undo", call_id, "--json").json["error"]["suggestion"]
