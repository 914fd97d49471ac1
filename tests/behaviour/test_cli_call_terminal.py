"""`toolgate call` at a terminal: progress, interruption, why a tool is missing, and programs that fail."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_upstream import Upstream, tool
from tests.teletype import Teletype
from tests.terminal import Terminal
from toolgate import Actor, App, Outcome
from toolgate import tool as python_tool
from toolgate.cli.call import show_outcome
from toolgate.cli.output import pretty
from toolgate.model import LOCAL

pytestmark = pytest.mark.requirement("DOOR-6")
ERASE = "\r\x1b[2K"
TOOLS = '''
    import asyncio
    from typing import Any
    from toolgate import InvokeContext, tool

    @tool(tier="read_only")
    async def slow(ctx: InvokeContext, seconds: float) -> str:
        """Take long."""
        for number in range(10):
            await ctx.progress(number, 10, f"step {number}" + "\t" * 99)
            await asyncio.sleep(seconds / 10)
        print("printed by the tool")
        return "the answer"

    @tool(tier="external_api")
    async def post(ctx: InvokeContext, text: str) -> str:
        """Post slowly."""
        await ctx.progress(1, None, "posting \x1b[31m")
        await asyncio.sleep(1)
        return f"posted {text}"

    @tool(tier="read_only")
    async def program(code: int) -> dict[str, Any]:
        """Run a program."""
        return {"stdout": "", "stderr": "", "exitCode": code}
'''

PAY = '''
    from toolgate import tool

    @tool(tier="write")
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid twice"
'''


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    made = Terminal(tmp_path, monkeypatch, capsys)
    made.add_tools(TOOLS)
    return made


# -- while it runs


def test_a_terminal_shows_progress_while_the_call_runs_and_nothing_of_it_after(terminal: Terminal) -> None:
    shown = Teletype(terminal, "call", "slow", "seconds=1", columns=60, TERM="xterm")
    assert shown.end() == 0, shown.shown
    frames = shown.shown.split(ERASE)
    assert any(re.search(r"slow  \d+\.\d.*%  step ", frame) for frame in frames), shown.shown
    assert all(len(frame) < 60 and "\t" not in frame for frame in frames[1:-2]), "it must not run over its line"
    assert "printed by the tool" in shown.shown
    assert "step" not in frames[-1]
    assert "the answer" in frames[-1]


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_programs_and_terminals_that_cannot_erase_see_no_progress(terminal: Terminal) -> None:
    for words, term in ((("--json",), "xterm"), ((), "dumb")):
        shown = Teletype(terminal, "call", "slow", "seconds=0.6", *words, TERM=term)
        assert shown.end() == 0
        assert "step" not in shown.shown, shown.shown
    assert "step" not in terminal("call", "slow", "seconds=0.6").err


def test_progress_makes_way_for_a_question(terminal: Terminal) -> None:
    shown = Teletype(terminal, "call", "post", "text=x", TERM="xterm")
    shown.watch(after="[y] yes, once", seconds=0.6)
    assert shown.shown.rstrip().endswith(">"), shown.shown
    shown.type(after="", keys="y\n")
    assert shown.end() == 0, shown.shown
    answered = shown.shown.partition("[y] yes, once")[2]
    assert re.search(r"post  \d+\.\d", answered), shown.shown
    assert "posting \\x1b[31m" in answered, "what a tool says is shown, not obeyed"
    assert "posted x" in answered


def test_an_interrupted_call_is_cancelled_and_on_record(terminal: Terminal) -> None:
    shown = Teletype(terminal, "call", "slow", "seconds=60", TERM="xterm")
    shown.interrupt(after="step")
    assert shown.end() == 130, shown.shown
    assert "CANCELLED: The call was interrupted" in shown.shown.split(ERASE)[-1]
    assert "Traceback" not in shown.shown
    assert "CANCELLED" in terminal("audit", "tail", "--tool", "slow").out


async def test_a_call_that_waits_for_one_with_the_same_key_says_for_which(terminal: Terminal) -> None:
    began, goes_on = asyncio.Event(), asyncio.Event()

    @python_tool(tier="write")
    async def pay(amount: int) -> str:
        """Pay."""
        began.set()
        await goes_on.wait()
        return f"paid {amount}"

    terminal.add_tools(PAY, "pay")
    async with App.open(auto_load_custom_tools=False) as app:
        app.register(pay)
        first = asyncio.ensure_future(app.invoke("pay", {"amount": 5}, idempotency_key="k"))
        await asyncio.wait_for(began.wait(), 30)
        waiting = Teletype(terminal, "call", "pay", "amount=5", "--idempotency-key", "k", columns=200, TERM="xterm")
        await asyncio.to_thread(waiting.watch, after="has the same key and has not ended", seconds=0)
        goes_on.set()
        outcome = await asyncio.wait_for(first, 30)
        assert await asyncio.to_thread(waiting.end) == 0, waiting.shown
    assert f"Waiting for call {outcome.id}, which" in waiting.shown
    assert "If its process has died, that is known within " in waiting.shown
    assert "paid 5" in waiting.shown
    assert "paid twice" not in waiting.shown


# -- arguments from files


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_an_argument_is_the_text_of_a_file_or_of_stdin(terminal: Terminal) -> None:
    (terminal.folder / "note.txt").write_bytes(b"\xef\xbb\xbfline\nline\n")
    (terminal.folder / "picture").write_bytes(b"\x89PNG\0\xff")
    assert terminal("call", "echo", "text=@note.txt", "--json").json["output"] == {"text": "line\nline\n"}
    assert terminal("call", "echo", "text=@@note.txt", "--json").json["output"] == {"text": "@note.txt"}
    (terminal.folder / "number").write_text("7\n")
    assert terminal("call", "program", "code=@number", "--json").json["output"]["exitCode"] == 7
    for word, told in (("picture", "is not text"), ("nothing", "No such file"), (".", "Is a directory")):
        done = terminal("call", "echo", f"text=@{word}")
        assert done.code == 2, done
        assert told in done.err
    assert terminal.run("call", "echo", "text=@-", "--json", stdin=b"piped").json["output"] == {"text": "piped"}
    assert not terminal("audit", "tail", "--json", "--status", "failure").out


# -- what failed is not called a success


def test_a_program_that_failed_is_a_failure_of_the_command(terminal: Terminal) -> None:
    done = terminal("call", "program", "code=3")
    assert done.code == 1
    assert "exit code 3" in done.err
    assert "success" not in done.err
    told = terminal("call", "program", "code=3", "--json")
    assert (told.code, told.json["status"], told.json["output"]["exitCode"]) == (1, "success", 3)
    assert terminal("call", "program", "code=0").code == 0


# -- why a tool is missing


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_the_operator_is_told_why_a_tool_is_missing(terminal: Terminal, tmp_path: Path) -> None:
    terminal.add_tools("import no_such_module\n\n\ndef greet(): ...\n", "broken")
    terminal.add_tools("import asyncio\n\nasync def pay(): ...\n\nasyncio.run(pay())\n", "program")
    terminal.add_tools("def refund(amount: int) -> int:\n    return amount\n", "undecorated")
    upstream = Upstream(tmp_path, tool("say"))
    server = ("--isolation", "none", "--tier", "read_only", "--", *upstream.command)
    assert terminal("servers", "add", "plain", *server).code == 0
    terminal("tools", "disable", "timestamp")
    terminal("tools", "disable", "datetime", "--tenant", "acme")
    terminal("tools", "disable", "calculator", "--persona", "intern")
    causes = {
        ("calcultor",): "Did you mean calculator?",
        ("Echo",): "Did you mean echo?",
        ("greet",): "broken.py:1 could not be loaded: ModuleNotFoundError: No module named 'no_such_module'",
        ("pay",): "program.py:5 could not be loaded: it runs a program when it is loaded",
        ("refund",): "undecorated.py was loaded, but has no tool of this name: put `@tool`",
        ("mcp_plain_say",): "its definition is new and waits to be accepted: `toolgate tools accept mcp_plain_say`",
        ("timestamp",): "timestamp is disabled: `toolgate tools enable timestamp`",
        ("datetime", "--tenant", "acme"): "`toolgate tools enable datetime --tenant acme`",
        ("calculator", "--persona", "intern"): "`toolgate explain calculator --persona intern`",
        ("nothing_like_it",): "`toolgate tools list`",
    }
    for words, cause in causes.items():
        done = terminal("call", *words)
        assert done.code == 1
        assert "TOOL_NOT_FOUND" in done.err
        assert "RuntimeWarning" not in done.err
        assert cause in done.err, (words, done.err)
        error = terminal("call", *words, "--json").json["error"]
        assert error["message"] == f"There is no tool named '{words[0]}'."
        assert error["suggestion"] == "`toolgate tools list` shows the tools that you have.", "programs pass it on"
    assert "Did you mean calculator?" in terminal("tools", "info", "calcultor").err
    assert "is disabled" not in terminal("tools", "info", "datetime", "--tenant", "acme").err
    assert "broken.py:1 could not be loaded" in terminal("explain", "greet").err
    assert terminal("workspace", "show", "nothing", "--json").json["error"]["code"] == "INVALID_INPUT"
    assert terminal("tools", "accept", "plain", "--yes").code == 0
    upstream.offer(tool("say", "Something else."))
    assert terminal("servers", "refresh", "plain").code in (0, 1)
    assert "its definition has changed and waits to be accepted" in terminal("call", "mcp_plain_say").err


@pytest.mark.requirement("POL-7")
async def test_other_doors_tell_nobody_why_a_tool_is_missing(terminal: Terminal) -> None:
    terminal.add_tools("import no_such_module\n\n\ndef greet(): ...\n", "broken")
    async with App.open() as app:
        await app.tools.set_enabled("echo", False, tenant="acme")
        for door in ("python", "http", "mcp"):
            told = []
            for name in ("echo", "echoo", "greet"):
                outcome = await app.invoke(name, {"text": "x"}, actor=Actor("acme", user="ann"), door=door)
                assert outcome.error is not None
                told.append((outcome.error.code, outcome.error.message.replace(name, "NAME"), outcome.error.suggestion))
            assert len(set(told)) == 1, told


def test_a_refusal_says_which_scope_to_add_and_how_long_to_wait(terminal: Terminal) -> None:
    terminal.add_tools(
        """
        from toolgate import RateLimit, tool

        @tool(tier="read_only", requires_permission="tool:rare", rate_limit=RateLimit(per_hour=1))
        async def rare() -> str:
            'Do it rarely.'
            return "done"
        """,
        "rare",
    )
    refused = terminal("call", "rare")
    assert "PERMISSION_DENIED" in refused.err
    assert "add `--scope tool:rare`" in refused.err
    assert "--scope" not in terminal("call", "rare", "--json").out
    assert terminal("call", "rare", "--scope", "tool:rare").code == 0
    late = terminal("call", "rare", "--scope", "tool:rare")
    assert re.search(r"RATE_LIMITED: .*try again in (59 min \d+ s|1 h \d min)\.", late.err), late.err
    assert late.err.lower().count("try again in") == 1


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ({"content": [{"type": "text", "text": "hi"}], "structuredContent": {"result": "hi"}}, "hi"),
        ({"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}}, 3),
        (
            {
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                "structuredContent": {"result": ["a", "b"]},
            },
            ["a", "b"],
        ),
        ({"content": [{"type": "text", "text": "hi"}], "structuredContent": {"result": "other"}}, None),
        ({"content": [{"type": "text", "text": "hi"}], "structuredContent": {"name": "hi"}}, None),
        ({"content": [], "structuredContent": {"result": []}}, None),
    ],
)
def test_a_result_that_an_mcp_tool_gives_twice_is_shown_once(
    capsys: pytest.CaptureFixture[str], output: dict[str, Any], shown: Any
) -> None:
    show_outcome(Outcome("1", "say", "success", output), LOCAL)
    wanted = output if shown is None else shown
    assert capsys.readouterr().out == (wanted if isinstance(wanted, str) else pretty(wanted)) + "\n"


def test_what_is_nearly_right_is_asked_about(terminal: Terminal) -> None:
    for words, told, code in (
        (("call", "echo", "txt=a"), "Did you mean text?", 1),
        (("call", "echo", "text=a", "--jsn"), "No such option: --jsn. Did you mean --json?", 2),
        (
            ("call", "echo", "text=a", "--home", "x"),
            "--home stands before the command.\nWrite `toolgate --home DIR call …`",
            2,
        ),
        (("tools", "list", "--settings=x"), "Write `toolgate --settings FILE tools list …`", 2),
        (("cal", "echo"), "Did you mean 'call'?", 2),
        (("tools", "lsit"), "Did you mean 'list'?", 2),
    ):
        done = terminal(*words)
        assert (done.code, told in done.err) == (code, True), done
