"""`toolgate init`: a folder is ready with one command, and its settings file can be edited by removing a #."""

import re
from pathlib import Path

import pytest

from tests.terminal import Terminal
from toolgate.settings import Settings, load_settings

pytestmark = pytest.mark.requirement("DOOR-6")

SETTING = re.compile(r"^ *#(?=\w)", re.MULTILINE)


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """In a folder without anything, with nothing trusted."""
    monkeypatch.delenv("TOOLGATE_TRUST", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "project").mkdir()
    return Terminal(tmp_path / "project", monkeypatch, capsys)


def test_it_makes_a_folder_ready_says_what_it_did_and_overwrites_nothing(terminal: Terminal) -> None:
    done = terminal("init")
    assert (done.code, done.err) == (0, ""), done
    for words in (f"{terminal.folder}/toolgate.yaml", f"{terminal.home}", "toolgate trust", "toolgate doctor"):
        assert words in done.out
    assert (terminal.home / ".gitignore").read_text() == "*\n"
    assert terminal("call", "echo", "text=a").code == 0, "it is trusted"
    (terminal.folder / "toolgate.yaml").write_text("metrics: false")
    done = terminal("init")
    assert (done.code, done.out, "exists already" in done.err) == (1, "", True)
    assert terminal("init", "--json").json["error"]["code"] == "OUTPUT_ERROR"
    assert (terminal.folder / "toolgate.yaml").read_text() == "metrics: false"
    assert terminal("call", "echo", "text=a").code == 2, "what was changed is to be trusted anew"
    assert terminal("--home", "x", "init").code == 2


def test_what_was_there_before_is_not_trusted_by_it(terminal: Terminal, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    terminal.add_tools(f"from pathlib import Path; Path({str(ran)!r}).write_text('ran')")
    done = terminal("init", "--json").json
    assert done["untrusted"] == [".toolgate/tools/mine.py"]
    assert (done["trusted"], done["data"]) == (True, None)
    refused = terminal("call", "echo", "text=a")
    assert (refused.code, "mine.py is new" in refused.err) == (2, True), refused
    assert "Look at it, then run `toolgate trust`" in refused.err
    (terminal.home / "tools" / "other.py").write_text("")
    assert "Look at them, then run `toolgate trust`" in terminal("tools", "list").err
    (terminal.folder / "toolgate.yaml").unlink()
    said = terminal("init").out
    assert "because they were here already: .toolgate/tools/mine.py, .toolgate/tools/other.py." in said
    assert "Look at them, then run `toolgate trust`" in said
    assert not ran.exists()


@pytest.mark.parametrize("name", ["toolgate.yaml", ".toolgate"])
def test_links_that_were_there_are_neither_written_through_nor_trusted(
    terminal: Terminal, tmp_path: Path, name: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    if name == "toolgate.yaml":
        elsewhere.write_text("metrics: true")
    (terminal.folder / name).symlink_to(elsewhere)
    done = terminal("init")
    assert (done.code, ".toolgate" in done.out) == ((1, False) if name == "toolgate.yaml" else (0, True)), done
    assert not elsewhere.exists() or elsewhere.read_text() == "metrics: true"
    assert terminal("call", "echo", "text=a").code == 2


def test_within_a_project_it_makes_one_of_its_own_and_says_so(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    assert terminal("init").code == 0
    inner = terminal.folder / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    assert f"used the project {terminal.folder} until now" in terminal("init").out
    assert load_settings().project == inner


def test_without_a_place_for_the_record_the_file_is_written_and_the_way_out_is_named(terminal: Terminal) -> None:
    (terminal.folder.parent / "config").write_text("not a folder")
    done = terminal("init")
    assert (done.code, "TOOLGATE_TRUST" in done.err, "is trusted" in done.out) == (0, True, False), done
    terminal.set("TOOLGATE_TRUST", str(terminal.folder))
    assert terminal("call", "echo", "text=a").code == 0


def test_a_wrong_variable_is_told_before_anything_is_written(terminal: Terminal) -> None:
    terminal.set("TOOLGATE_METRICS", "perhaps")
    assert terminal("init").code == 2
    assert list(terminal.folder.iterdir()) == []


def test_each_setting_can_be_taken_into_use_alone_and_all_together(terminal: Terminal) -> None:
    assert terminal("init").code == 0
    file = terminal.folder / "toolgate.yaml"
    text = file.read_text()
    found = list(SETTING.finditer(text))
    assert len(found) >= 25
    defaults = Settings(home=terminal.home).model_dump()
    assert load_settings(file).model_dump() == Settings().model_dump(), "as written, it sets nothing"
    for match in found:
        file.write_text(text[: match.end() - 1] + text[match.end() :])
        loaded = load_settings(file).model_dump() | {"home": terminal.home}
        told = text[: match.start()].splitlines()[-1]
        assert "Default: " in told, "each says what it is, and its default"
        assert (loaded == defaults) == ("For example" not in told), f"what is shown as the default is: {told}"
    file.write_text(SETTING.sub(lambda match: match[0][:-1], text))
    everything = load_settings(file)
    assert (everything.mcp.enabled, everything.servers["files"].read) == (True, (terminal.folder / "docs",))
