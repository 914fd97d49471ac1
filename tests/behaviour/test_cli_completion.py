"""What a shell offers at Tab: tools, arguments, values and ids, and nothing that it might obey."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.teletype import Teletype
from tests.terminal import SCRIPT, Terminal

pytestmark = pytest.mark.requirement("DOOR-6")
TOOLS = '''
    from typing import Annotated, Literal
    from pydantic import Field
    from toolgate import tool

    print("loaded")

    @tool(tier="external_api")
    async def post_letter(
        text: str,
        how: Literal["air", "sea", "$(touch pwned)", "a\'b", "two words"] = "air",
        loud: bool = False,
        times: Annotated[int, Field(description="How often; `touch pwned` $(touch pwned)")] = 1,
    ) -> str:
        """Post a letter: "$(touch pwned)" `touch pwned`."""
        return text
'''


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    made = Terminal(tmp_path, monkeypatch, capsys)
    made.add_tools(TOOLS)
    return made


def ask(terminal: Terminal, **environment: str) -> list[str]:
    """What the program answers to a shell, which is nothing but what is to be offered."""
    done = terminal.run(environment=environment)
    assert (done.code, done.err) == (0, ""), done
    return done.out.split("\n")[:-1]


def bash(terminal: Terminal, *words: str) -> list[str]:
    """As the function does that `--show-completion` prints: words are taken apart at an equals sign."""
    whole = "\n".join(("toolgate", *words))
    number = str(len([word for word in words if word]) if words[-1] else len(words))
    offered = ask(terminal, _TOOLGATE_COMPLETE="complete_bash", COMP_WORDS=whole, COMP_CWORD=number)
    return [word for word in offered if word]


def zsh(terminal: Terminal, line: str) -> str:
    return "\n".join(ask(terminal, _TOOLGATE_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=line))


def test_tools_arguments_values_and_ids_are_offered(terminal: Terminal) -> None:
    waiting = terminal("call", "post_letter", "text=x", "--json").json["pending"]["id"]
    terminal("tools", "disable", "echo")
    assert bash(terminal, "call", "post") == ["post_letter"]
    assert bash(terminal, "call", "ech") == [], "what is disabled is not offered"
    offered = ["how=air", "how=sea", "loud=true", "loud=false", "times=", "times=@"]
    assert bash(terminal, "call", "post_letter", "text", "=", "x", "") == offered, "what is given is not offered again"
    assert bash(terminal, "call", "post_letter", "how", "=", "s") == ["sea"]
    assert bash(terminal, "call", "post_letter", "loud", "=") == ["true", "false"]
    assert bash(terminal, "approvals", "show", "ap") == [waiting]
    fish = ask(
        terminal,
        _TOOLGATE_COMPLETE="complete_fish",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        _TYPER_COMPLETE_ARGS="toolgate call post_letter how=s",
    )
    assert fish == ["how=sea"]


def test_nothing_is_offered_that_a_shell_might_obey(terminal: Terminal) -> None:
    for line in ("toolgate call post", "toolgate call post_letter "):
        offered = zsh(terminal, line)
        assert offered.count("post_letter" if line.endswith("post") else "how=air") == 1, offered
        assert not set("$`;|&\\") & set(offered), offered
        assert "two words" not in offered
        assert offered.count("'") == 2, offered


def test_a_folder_without_data_is_left_without(terminal: Terminal, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = terminal.folder = tmp_path_factory.mktemp("elsewhere")  # no project is above it
    assert bash(terminal, "call", "calc") == ["calculator"]
    assert list(elsewhere.iterdir()) == []
    (elsewhere / ".toolgate" / "sessions").mkdir(parents=True)  # as a clone may have it: nothing that needs trust
    assert bash(terminal, "call", "calc") == ["calculator"]
    assert [file.name for file in elsewhere.rglob("*")] == [".toolgate", "sessions"], "nothing is made, nor taken into use"
    (elsewhere / "toolgate.yaml").write_text("no: [such")
    assert bash(terminal, "call", "calc") == [], "what is wrong is not said at Tab"


@pytest.mark.matrix("starts a shell that starts the program")
def test_bash_completes_a_call(terminal: Terminal) -> None:
    setup = terminal.folder / "rc"
    shown = subprocess.run(
        [SCRIPT], env={**os.environ, "_TOOLGATE_COMPLETE": "source_bash"}, capture_output=True, text=True, check=True
    )
    assert "complete -o default -F" in shown.stdout
    setup.write_text(f"PATH={SCRIPT.parent}:$PATH\nPS1='ready> '\nbind 'set enable-bracketed-paste off'\n{shown.stdout}\n")
    person = Teletype(terminal, "--rcfile", str(setup), "-i", program=("bash", "--noprofile"))
    person.type(after="ready> ", keys="toolgate explain post\t")
    person.type(after="_letter ", keys="text=hi how=a\t")
    person.type(after="ir ", keys=" loud=t\t")
    person.type(after="rue ", keys="\n")
    person.type(after="It would wait for a person", keys="exit 0\n")
    assert person.end() == 0, person.shown
