"""Arguments of a call changed in an editor, at the question and with `approvals approve --editor`."""

import stat
from pathlib import Path

import pytest

from tests.teletype import Teletype
from tests.terminal import Terminal

pytestmark = pytest.mark.requirement("DOOR-6")
TOOLS = '''
    from toolgate import tool

    @tool(tier="external_api")
    async def post(text: str, times: int = 1) -> str:
        """Post a message."""
        return f"posted {text} {times}"
'''
EDITOR = """#!/bin/sh
ls -ld "$(dirname "$1")" "$1" > seen
cat "$1" >> seen
%s
"""


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    made = Terminal(tmp_path, monkeypatch, capsys)
    made.add_tools(TOOLS)
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    return made


def use_editor(terminal: Terminal, does: str) -> str:
    """An editor that does something with the file that it is given."""
    file = terminal.folder / "my editor"
    file.write_text(EDITOR % does)
    file.chmod(stat.S_IRWXU)
    return f"'{file}' "


def test_what_is_changed_in_the_editor_is_shown_and_asked_about_again(terminal: Terminal) -> None:
    program = use_editor(terminal, """sed -i 's/hello/goodbye/' "$1"; touch "$1~" """)
    shown = Teletype(terminal, "call", "post", "text=hello \u202e", EDITOR=program)
    shown.type(after=" > ", keys="o\n")
    shown.type(after="[y] yes, with these arguments", keys="y\n")
    assert shown.end() == 0, shown.shown
    assert "[o] open them in my editor" in shown.shown
    assert "posted goodbye" in shown.shown
    lines = [line.strip() for line in shown.shown.splitlines()]
    assert any(line.startswith("-") and "hello" in line for line in lines), shown.shown
    assert any(line.startswith("+") and "goodbye" in line for line in lines), shown.shown
    folder, file, *content = (terminal.folder / "seen").read_text().splitlines()
    assert (folder[:10], file[:10]) == ("drwx------", "-rw-------")
    assert "\\u202e" in "".join(content), "what turns the direction of writing is written out"
    assert not Path(folder.split()[-1]).exists()


def test_no_to_what_was_changed_in_the_editor_has_a_reason_and_a_slip_is_no_answer(terminal: Terminal) -> None:
    program = use_editor(terminal, """sed -i 's/hello/goodbye/' "$1" """)
    shown = Teletype(terminal, "call", "post", "text=hello", EDITOR=program, columns=80)
    shown.type(after=" > ", keys="o\n")
    shown.type(after="[n] no > ", keys="h\n")
    shown.type(after="[n] no > ", keys="n\n")
    shown.type(after="Why not?", keys="not today\n")
    assert shown.end() == 1, shown.shown
    assert '"h" is not one of the answers. Type y, o or n' in shown.shown
    assert "rejected by local: not today" in shown.shown
    assert "posted" not in shown.shown


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("exit 3", "The editor ended with exit code 3. Nothing was changed."),
        ("true", "Nothing was changed."),
        ("""echo '{"text": 5}' > "$1" """, "text: must be of type string"),
        ("""echo '{"text"' > "$1" """, "The edited file is not JSON"),
        ("""echo '@seen' > "$1" """, "The edited file is not JSON"),
        ("""rm "$1" """, "The edited file cannot be read"),
    ],
)
@pytest.mark.sample(4)
def test_an_editor_that_fails_or_changes_nothing_changes_nothing(terminal: Terminal, does: str, told: str) -> None:
    shown = Teletype(terminal, "call", "post", "text=hello", VISUAL=use_editor(terminal, does), EDITOR="/no/such/thing")
    shown.type(after=" > ", keys="o\n")
    shown.type(after=" > ", keys="y\n")
    assert shown.end() == 0, shown.shown
    assert told in shown.shown
    assert "posted hello 1" in shown.shown


def test_arguments_that_are_all_taken_out_in_a_second_edit_are_what_runs(terminal: Terminal) -> None:
    terminal.add_tools(TOOLS.replace("text: str", 'text: str = "nothing"'))
    does = """if grep -q hello "$1"; then sed -i 's/hello/goodbye/' "$1"; else echo '{}' > "$1"; fi"""
    program = use_editor(terminal, does)
    shown = Teletype(terminal, "call", "post", "text=hello", EDITOR=program)
    shown.type(after=" > ", keys="o\n")
    shown.type(after="[y] yes, with these arguments", keys="o\n")
    shown.type(after="[y] yes, with these arguments", keys="y\n")
    assert shown.end() == 0, shown.shown
    assert "posted nothing 1" in shown.shown


def test_an_approval_is_edited_in_the_editor(terminal: Terminal) -> None:
    waiting = terminal("call", "post", "text=hello", "--json").json["pending"]["id"]
    program = use_editor(terminal, """sed -i 's/hello/goodbye/' "$1" """)
    words = ("approvals", "approve", waiting, "--editor")
    assert terminal(*words).code == 2, "nobody is there to edit"
    shown = Teletype(terminal, *words, EDITOR="/no/such/editor")
    assert shown.end() == 1
    assert "cannot be started" in shown.shown
    shown = Teletype(terminal, *words, EDITOR=program)
    shown.type(after="Approve these arguments?", keys="n\n")
    assert shown.end() == 1
    assert "Nothing was approved." in shown.shown
    shown = Teletype(terminal, *words, "--run", EDITOR=program)
    shown.type(after="Approve these arguments?", keys="y\n")
    assert shown.end() == 0, shown.shown
    assert "posted goodbye 1" in shown.shown
