"""Questions about calls inside a call, from the command line: each command is a process of its own."""

from collections import Counter
from pathlib import Path

import pytest

from tests.teletype import Teletype
from tests.terminal import Terminal

pytestmark = pytest.mark.requirement("TIER-9", "TIER-6", "DOOR-1")

TOOLS = '''
    from pathlib import Path

    from toolgate import InvokeContext, tool

    def did(line: str) -> None:
        with Path("did.txt").open("a") as file:
            file.write(line + "\\n")

    @tool(tier="write")
    async def note(text: str) -> str:
        """Note something."""
        did(f"note {text}")
        return f"noted {text}"

    @tool(tier="execute")
    async def risky(text: str, password: str = "") -> str:
        """Do something that is asked about."""
        did(f"risky {text}")
        return f"did {text}"

    @tool(tier="write")
    async def outer(ctx: InvokeContext, text: str) -> str:
        """Call others."""
        first = await ctx.call_tool("note", text=text)
        second = await ctx.call_tool("risky", text=text, password="correct horse battery")
        third = await ctx.call_tool("risky", text="again")
        return f"{first.output}, {second.output or second.error.code}, {third.output}"
'''


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    made = Terminal(tmp_path, monkeypatch, capsys)
    made.add_tools(TOOLS)
    return made


def did(terminal: Terminal) -> Counter[str]:
    file = terminal.folder / "did.txt"
    return Counter(file.read_text().splitlines() if file.exists() else ())


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_a_call_goes_on_with_approval_and_by_being_repeated(terminal: Terminal) -> None:
    waiting = terminal.run("call", "outer", "text=x", "--json")
    assert waiting.code == 3, waiting
    first = waiting.json["pending"]["id"]
    listed, shown = terminal.run("approvals", "list"), terminal.run("approvals", "show", first)
    said = f"outer (call {waiting.json['id']})"
    assert said in " ".join(listed.out.split()) and f"asked by {said}" in shown.out and "--run" in shown.err, (
        listed.out + shown.err
    )
    assert terminal.run("approvals", "list", "--json").json["approvals"][0]["outer_tool"] == "outer"
    assert "outer goes on when it is called again" in terminal.run("approvals", "approve", first, "--user", "boss").err
    again = terminal.run("call", "outer", "--approval", first, "--json")
    assert again.code == 3 and did(terminal) == {"note x": 1, "risky x": 1}
    second = again.json["pending"]["id"]
    assert second != first
    assert terminal.run("approvals", "approve", second, "--user", "boss").code == 0
    done = terminal.run("call", "outer", "text=x")
    assert (done.code, done.out) == (0, "noted x, did x, did again\n"), done
    assert did(terminal) == {"note x": 1, "risky x": 1, "risky again": 1}


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_yes_covers_the_call_alone_and_the_grant_for_the_inner_one_is_named(terminal: Terminal) -> None:
    waiting = terminal.run("call", "outer", "text=x", "--yes")
    assert waiting.code == 3 and did(terminal) == {"note x": 1}
    assert "--yes approves outer alone" in waiting.err and "toolgate grants add risky --for 1h" in waiting.err, waiting.err
    assert terminal.run("grants", "add", "risky", "--for", "1h").code == 0
    assert terminal.run("call", "outer", "text=x", "--yes").code == 0
    assert "--yes" not in terminal.run("call", "outer", "text=y").err
    other = terminal.run("call", "outer", "text=x", "--yes", "--user", "bob").err
    assert "toolgate grants add risky --for 1h --user bob" in other


def test_an_approver_can_have_the_outer_call_go_on(terminal: Terminal) -> None:
    first = terminal.run("call", "outer", "text=x", "--json").json["pending"]["id"]
    assert terminal.run("approvals", "reject", first, "--reason", "no").code == 0
    second = terminal.run("call", "outer", "text=x", "--json").json["pending"]["id"]
    done = terminal.run("approvals", "approve", second, "--user", "boss", "--run")
    assert (done.code, done.out) == (0, "noted x, USER_CANCELLED, did again\n"), done
    assert did(terminal) == {"note x": 1, "risky again": 1}


def test_the_approval_of_an_inner_call_is_good_for_nothing_else(terminal: Terminal) -> None:
    id = terminal.run("call", "outer", "text=x", "--json").json["pending"]["id"]
    assert terminal.run("approvals", "approve", id, "--user", "boss").code == 0
    secret = "password=correct horse battery"
    for words in (
        ("risky", "text=x", secret, "--approval", id),
        ("risky", "text=x", secret),
        ("outer", "text=y", "--approval", id),
        ("outer", "--approval", id, "--user", "eve"),
        ("outer", "--approval", id, "--session", "other"),
        ("outer", "--approval", id, "--scope", "more"),
    ):
        assert terminal.run("call", *words, "--json").code != 0, words
        assert did(terminal)["risky x"] == 0, words
    assert terminal.run("call", "outer", "--approval", id, "--json").code == 3
    assert did(terminal)["risky x"] == 1 and did(terminal)["note x"] == 1


def test_a_person_at_the_terminal_is_asked_while_the_program_is_held(terminal: Terminal) -> None:
    call = Teletype(terminal, "call", "outer", "text=x")
    for _ in range(2):
        call.type(after="> ", keys="y\n")
    assert call.end() == 0, call.shown
    assert "noted x, did x, did again" in call.shown and call.shown.count("asked by outer (call") == 2
    assert did(terminal) == {"note x": 1, "risky x": 1, "risky again": 1}
