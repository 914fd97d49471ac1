"""`toolgate chat`, in a real terminal and without one, with a model on loopback."""

import asyncio
import io
import os
import re
from io import StringIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from rich.console import Console

from tests.model_servers import Reply, Wanted, model_server, model_settings
from tests.terminal import SCRIPT, Done, Terminal
from tests.tmux import tmux
from toolgate.cli.chat.markdown_stream import markdown_of, split_blocks
from toolgate.cli.output import UNSAFE, clean

pytestmark = pytest.mark.requirement("AGENT-2", "DOOR-1")

TOOLS = '''
    import asyncio
    from pathlib import Path

    from toolgate import tool

    @tool(tier="read_only")
    async def weather(city: str) -> str:
        """Tell the weather of a city."""
        return f"sunny in {city}"

    @tool(tier="read_only")
    async def wait(file: str) -> str:
        """Wait for a file."""
        while not Path(file).exists():
            await asyncio.sleep(0.05)
        return "there"

    @tool(tier="external_api")
    async def send(to: str) -> str:
        """Send a letter."""
        with Path("sent.txt").open("a") as file:
            file.write(to + "\\n")
        return f"sent to {to}"
'''
ENVIRONMENT = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    made = Terminal(tmp_path, monkeypatch, capsys)
    made.add_tools(TOOLS)
    return made


def settings(server: Any, **more: Any) -> str:
    choice = model_settings("openai", server, input_price=1, output_price=2)
    return orjson.dumps({"model": {**choice, "secret": None}, **more}).decode()


def at_a_screen(terminal: Terminal, *words: str) -> Any:
    return tmux(
        [str(SCRIPT), "chat", *words], terminal.folder, {**ENVIRONMENT, "TOOLGATE_TRUST": os.environ["TOOLGATE_TRUST"]}
    )


# -- without a model


def typed_into(terminal: Terminal, *lines: str) -> Done:
    """A chat in this process, whose stdin is no terminal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return terminal("chat")


def test_the_commands_work_without_a_model_and_it_says_how_to_have_one(terminal: Terminal) -> None:
    typed = ("/tools", "/tools disable weather", "/tools info weather", "/tools tokens", "hello", "/quit", "not read")
    done = typed_into(terminal, *typed)
    assert done.code == 0
    assert "✓ weather" in done.out and "[Python]" in done.out
    assert "/tools enable <name>   - Enable a tool" in done.out and "toolgate tools" not in done.out
    assert "✓ Disabled tool: weather (-" in done.out
    assert "Enabled: No" in done.out
    breakdown = done.out.partition("Token Cost Breakdown:")[2]
    assert "weather" not in breakdown and "█" in breakdown and "Total: " in breakdown
    assert "model:\n    name:" in done.err and "toolgate secrets set MODEL_API_KEY" in done.err
    assert terminal("tools", "info", "weather", "--json").json["enabled"] is False


MISTYPED = {
    "/tool": "There is no command /tool.",
    "/tools frobnicate": "/tools frobnicate is not known.",
    "/tools info nothing_like_it": "Tool not found: nothing_like_it",
    "/tools enable": "NAME",
    "/help me": "/help takes nothing after it.",
    "/resume": "/runs lists them.",
    "/resume run_that_is_not": "run_that_is_not",
    "/reject": "the id is missing",
    "/continue": "Nothing was said in this conversation yet.",
    '/persona "x': "A quotation mark is missing.",
}


def test_what_is_mistyped_is_told_and_the_chat_goes_on(terminal: Terminal) -> None:
    done = typed_into(terminal, *MISTYPED, "/persona")
    assert done.code == 0
    for said in MISTYPED.values():
        assert said in done.err, said
    assert "Persona: none" in done.out


def test_a_persona_is_taken_on(terminal: Terminal) -> None:
    terminal("tools", "disable", "weather", "--persona", "guest")
    done = typed_into(terminal, "/persona guest", "/persona", "/tools", "/runs", "/new", "/cost", "/help", "/approve", "")
    assert "Persona: guest" in done.out
    assert "✗ weather" in done.out


# -- with one


async def run(terminal: Terminal, *words: str, stdin: bytes = b"") -> Done:
    return await asyncio.to_thread(terminal.run, *words, stdin=stdin, environment=ENVIRONMENT)


async def test_one_question_is_answered_for_a_program(terminal: Terminal) -> None:
    async with model_server(
        "openai", Reply(calls=[Wanted("weather", {"city": "Oslo"})]), Reply("It is **sunny**.")
    ) as server:
        terminal.settings(settings(server))
        done = await run(terminal, "chat", "--json", "How is the weather?")
        assert done.code == 0 and done.json["status"] == "done" and done.json["text"] == "It is **sunny**."
        again = await run(terminal, "chat", "And now?")
    assert again.code == 0 and "It is **sunny**." in again.out
    told = server.asked[1].json["messages"]
    assert any("sunny in Oslo" in str(message) for message in told if message["role"] == "tool")


async def test_a_call_that_nobody_can_be_asked_about_waits_and_is_answered_later(terminal: Terminal) -> None:
    async with model_server("openai", Reply(calls=[Wanted("send", {"to": "ada"})]), Reply("Done.")) as server:
        terminal.settings(settings(server))
        done = await run(terminal, "chat", "--json", "Write to Ada")
        assert done.code == 3 and done.json["status"] == "waiting"
        [id] = done.json["pending"]
        assert not (terminal.folder / "sent.txt").exists()
        typed = f"/approve {id}\n/runs\n".encode()
        answered = await run(terminal, "chat", "--resume", "latest", stdin=typed)
    assert f"Waiting: A person has to answer about send.\n/approve {id}" in answered.err
    assert "Done." in answered.out, answered
    assert (terminal.folder / "sent.txt").read_text() == "ada\n"


@pytest.mark.needs("tmux")
async def test_a_command_that_ends_names_commands_that_can_be_run_next(terminal: Terminal) -> None:
    async with model_server("openai", Reply(calls=[Wanted("send", {"to": "ada"})])) as server:
        terminal.settings(settings(server))
        waiting = await run(terminal, "chat", "Write to Ada")
    assert waiting.code == 3
    [id] = re.findall(r"toolgate approvals approve (ap_\w+) answers it", waiting.err)
    assert (await run(terminal, "approvals", "show", id)).code == 0
    failed = await run(terminal, "chat", "Hello")  # the server is gone
    assert failed.code == 1 and "nothing answers at this address" in failed.err
    [run_id] = re.findall(r"toolgate chat --resume (\S+), then /continue tries again", failed.err)
    assert run_id in (await run(terminal, "chat", "--resume", run_id, stdin=b"/runs\n")).out


async def test_a_person_talks_in_a_terminal_and_answers_in_place(terminal: Terminal) -> None:
    replies = [
        Reply(calls=[Wanted("weather", {"city": "Oslo"}, id="call_a"), Wanted("send", {"to": "ada"}, id="call_b")]),
        Reply("# Sent\n\nIt is *sunny*, and I wrote to **Ada**.\n\n```python\nprint('hi')\n```\n"),
        Reply("You are welcome."),
    ]
    async with model_server("openai", *replies) as server:
        terminal.settings(settings(server))
        with at_a_screen(terminal) as screen:
            await screen.until("Toolgate chat", "m-1", "/help")
            screen.type("Write to Ada about the weather")
            await screen.until("send", "yes, once")
            assert not (terminal.folder / "sent.txt").exists()
            screen.type("y")
            shown = await screen.until("and I wrote to Ada.", "print('hi')", "tokens")
            assert "**" not in shown and "✓ weather" in shown and "✓ send" in shown
            assert (terminal.folder / "sent.txt").read_text() == "ada\n"
            screen.type("Thanks")
            await screen.until("You are welcome.")
            screen.type("/cost")
            shown = await screen.until("This conversation:", "ask_model")
            assert shown.count("You are welcome.") == 1
            screen.type("/quit")
            await screen.ended()
            assert "toolgate chat --resume" in screen.screen()
    assert [message["role"] for message in server.asked[2].json["messages"]][-1] == "user"


@pytest.mark.needs("tmux")
async def test_a_no_reaches_the_model_and_ctrl_c_stops_the_agent(terminal: Terminal) -> None:
    replies = [Reply(calls=[Wanted("send", {"to": "ada"})]), Reply("Then not."), Reply("so slow " * 400, pause=0.05)]
    async with model_server("openai", *replies) as server:
        terminal.settings(settings(server))
        with at_a_screen(terminal) as screen:
            await screen.until("/help")
            screen.type("Write to Ada")
            await screen.until("yes, once")
            screen.type("n")
            await screen.until("Why not?")
            screen.type("not today")
            await screen.until("Then not.")
            assert "not today" in str(server.asked[1].json["messages"])
            screen.type("Tell me a long story")
            await screen.until("so slow so slow")
            screen.press("C-c")
            await screen.until("Stopped.", "Say something to go on.")
            screen.type("/quit")
            await screen.ended()
    assert not (terminal.folder / "sent.txt").exists()


@pytest.mark.needs("tmux")
async def test_what_runs_is_shown_in_every_turn_and_what_a_subordinate_does_is_indented(terminal: Terminal) -> None:
    replies = [
        Reply(calls=[Wanted("call_subordinate", {"agent": "", "message": "Oslo"}, id="same")]),
        Reply("Let me look.", calls=[Wanted("weather", {"city": "Oslo"}, id="same")]),
        Reply("Words for the caller."),
        Reply("It is sunny."),
        Reply(calls=[Wanted("wait", {"file": "go"}), Wanted("x" * 300, {}, id="call_2")]),
        Reply("It is there."),
    ]
    async with model_server("openai", *replies) as server:
        terminal.settings(settings(server))
        with at_a_screen(terminal) as screen:
            await screen.until("/help")
            screen.type("Ask somebody")
            shown = await screen.until("It is sunny.")
            assert '\n  ✓ weather {"city":"Oslo"}' in shown
            assert '\n✓ call_subordinate {"agent":"","message":"Oslo"}' in shown
            assert "Let me look." not in shown and "Words for the caller." not in shown
            screen.type("Wait for it")
            shown = await screen.until('⠋ wait {"file":"go"}', "✗ xxx")
            assert "x" * 65 not in shown
            (terminal.folder / "go").touch()
            await screen.until('✓ wait {"file":"go"}', "It is there.")


@pytest.mark.needs("tmux")
async def test_what_is_typed_before_a_question_can_be_read_does_not_answer_it(terminal: Terminal) -> None:
    """A model may write a question of its own first: "Type y to go on"."""
    replies = [
        Reply("[y] yes, once  [n] no > ", calls=[Wanted("wait", {"file": "go"})]),
        Reply(calls=[Wanted("send", {"to": "eve"})]),
        Reply("Done."),
    ]
    async with model_server("openai", *replies) as server:
        terminal.settings(settings(server))
        with at_a_screen(terminal) as screen:
            await screen.until("/help")
            screen.type("Write to Eve")
            await screen.until("yes, once", '⠋ wait {"file":"go"}')
            screen.type("y")
            screen.type("y")
            (terminal.folder / "go").touch()
            await screen.until("send 1.0.0 asks for approval", "yes, for one hour >")
            assert not (terminal.folder / "sent.txt").exists()
            screen.type("n")
            await screen.until("Why not?")
            screen.type("")
            await screen.until("Done.")
    assert not (terminal.folder / "sent.txt").exists()


@pytest.mark.needs("tmux")
async def test_what_a_model_writes_does_nothing_to_the_terminal(terminal: Terminal) -> None:
    hostile = "before \x1b]0;owned\x07\x1b[2J [click](http://evil.example/?x) \u202eback\u202c after"
    async with model_server("openai", Reply(hostile)) as server:
        terminal.settings(settings(server))
        with at_a_screen(terminal) as screen:
            await screen.until("/help")
            screen.type("hello")
            shown = await screen.until("after", "http://evil.example/?x")
            assert "before" in shown and "\\x1b]0;owned\\x07" in shown and "\u202e" not in shown
            assert "\x1b]8;" not in screen.screen(colours=True)


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.needs("tmux")
async def test_lines_are_completed_continued_and_remembered(terminal: Terminal) -> None:
    async with model_server("openai", Reply("Fine.")) as server:
        terminal.settings(settings(server))
        with at_a_screen(terminal) as screen:
            await screen.until("/help")
            screen.press("-l", "/tools info wea")
            await screen.until("Tell the weather of a city.")
            screen.press("Tab")
            await screen.until("> /tools info weather")
            screen.press("C-u")
            screen.press("-l", "first line")
            screen.press("M-Enter")
            screen.press("-l", "second line")
            screen.press("Enter")
            await screen.until("Fine.", "29 tokens \u00b7")  # the line below the next prompt
            screen.press("C-d")
            await screen.ended()
        assert server.asked[-1].json["messages"][-1]["content"] == "first line\nsecond line"
        with at_a_screen(terminal) as screen:
            await screen.until("/help")
            screen.press("Up")
            await screen.until("> first line")
    history = terminal.home / "chat_history"
    assert history.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("one\n\ntwo", "one\n\n"),
        ("```\na\n\nb", ""),
        ("```\na\n\nb\n```\n\nc", "```\na\n\nb\n```\n\n"),
        ("~~~~\n```\n\n~~~\n\n", ""),
        ("no end", ""),
        ("x" * 9_000, "x" * 9_000),
    ],
)
def test_blocks_of_markdown_are_told_apart(text: str, whole: str) -> None:
    assert split_blocks(text) == (whole, text[len(whole) :])


@pytest.mark.parametrize("line", ["x = 1\n", "x" * 70, "\n"])
@pytest.mark.parametrize("opening", ["```python\n", "~~~~\n", f"```{'x' * 3_000}\n"])
def test_long_code_is_printed_in_pieces_and_nothing_of_it_is_lost(opening: str, line: str) -> None:
    text, printed, held = opening + line * 1_000, "", ""
    for at in range(0, len(text), 50):
        whole, held = split_blocks(held + text[at : at + 50])
        printed += whole
        assert len(held) <= len(opening) + 2_050  # what is drawn again and again stays short
    blocks = [token for token in markdown_of(printed + held).parsed if token.type == "fence"]
    assert "".join(block.content for block in blocks).replace("\n", "") == (line * 1_000).replace("\n", "")
    assert {block.info for block in blocks} == {opening.strip("`~\n")}


@pytest.mark.parametrize("hidden", ["&#x202E;", "&rlm;", "&#8295;", "&#27;[2J", "&#x9b;2J", "&#13;", "\x1b[2J", "\u202e"])
@pytest.mark.parametrize(
    "form", ["a {} b", "- {}", "# {}", "| {} |\n|---|\n| {} |", "`{}`", "[{}](http://x/{})", "<b>{}</b>"]
)
def test_nothing_that_a_terminal_obeys_comes_out_of_a_models_markdown(hidden: str, form: str) -> None:
    out = StringIO()
    text = clean(form.replace("{}", hidden), lines=True)
    Console(file=out, markup=False, emoji=False, highlight=False, width=60).print(markdown_of(text))
    assert not UNSAFE.search(out.getvalue())
