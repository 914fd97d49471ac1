"""Every command: JSON for programs, one clear line for people, never a traceback; help that says it all."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.docs.markdown import ROOT
from tests.terminal import SCRIPT, SECONDS, Terminal
from toolgate import __version__
from toolgate.app.tools import ToolsFacet
from toolgate.cli.main import with_commands


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""

    def walk(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield words, command
        for name, part in (inner or {}).items():
            yield from walk((*words, name), part)

    yield from walk((), get_command(with_commands()))


# -- help


@pytest.mark.requirement("DOOR-1")
def test_every_command_takes_json_and_has_help(terminal: Terminal) -> None:
    assert {" ".join(words) for words, _ in commands()} == {
        "call", "chat", "say", "explain", "undo", "doctor", "demo remove", "artifacts get", "costs", "budgets list",
        "budgets set",
        "policy eval", "policy check", "policy replay", "policy show", "policy data", "policy deny", "policy undeny",
        "policy restrict-code", "policy unrestrict-code", "policy permit", "policy forbid",
        "policy suggest", "policy set-allow-list", "policy remove-allow-list",
        "approvals list", "approvals show", "approvals approve", "approvals reject", "approvals watch",
        "grants list", "grants add", "grants revoke", "idempotency list", "idempotency settle",
        "secrets set", "secrets list", "secrets remove", "secrets test",
        "tools list", "tools info", "tools enable", "tools disable", "tools tokens", "tools search", "tools export",
        "tools prompt", "tools add", "tools register", "tools unregister", "tools new", "tools test", "tools accept",
        "servers list", "servers show", "servers add", "servers import", "servers refresh", "servers restart",
        "servers remove", "servers login", "servers presets", "openapi list", "openapi refresh", "openapi remove",
        "teams create-key", "teams pack", "teams publish", "teams sync", "teams add",
        "teams list", "teams show", "teams accept", "teams reject", "teams remove",
        "jobs list", "jobs show", "jobs retry", "jobs cancel", "worker",
        "mcp", "serve", "sign-in list", "sign-in revoke", "init", "trust", "keys create", "keys list", "keys revoke",
        "audit tail", "audit show", "audit verify", "audit export", "audit key", "audit prove", "audit sign",
        "policy observed", "policy test", "workspace list", "workspace show", "workspace take", "workspace drop",
        "documents list", "documents remove", "notifications list", "notifications dismiss", "canvas list", "canvas show",
        "learning show", "learning feedback", "learning remember", "learning recall", "learning forget",
        "learning suggestions list", "learning suggestions accept", "learning suggestions reject",
        "canvas clear", "behaviours list", "behaviours remove", "schedules list", "schedules add", "schedules show",
        "schedules pause", "schedules resume", "schedules remove", "schedules run", "workflows list", "workflows show",
        "notifications tokens add", "notifications tokens list", "notifications tokens remove",
    }  # fmt: skip
    for words, command in commands():
        speaks_json_anyway = words == ("mcp",)
        assert speaks_json_anyway or any("--json" in parameter.opts for parameter in command.params), words
        shown = terminal(*words, "--help")
        assert shown.code == 0
        assert shown.out.startswith(f"Usage: toolgate {' '.join(words)}")
        assert all(parameter.help for parameter in command.params), words


@pytest.mark.requirement("DOOR-1")
def test_the_reference_names_every_command_and_every_option() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    for words, command in commands():
        heading = re.search(rf"^#+ .*`toolgate {' '.join(words)}\b", page, re.MULTILINE)
        assert heading, words
        section = re.split(r"^#+ ", page[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0]
        section = page[heading.start() : heading.end()] + section
        missing = [name for parameter in command.params for name in parameter.opts if name.startswith("--")
                   and name not in ("--json", "--help") and f"{name}" not in section]  # fmt: skip
        assert not missing, (words, missing)


@pytest.mark.requirement("DOOR-1")
def test_version_and_help_of_the_whole(terminal: Terminal) -> None:
    assert terminal.run("--version").out == f"toolgate {__version__}\n"
    assert "Exit codes: 0 success, 1 failure or denied, 2 usage, 3 pending." in terminal("-h").out
    for words in ((), ("audit",)):
        bare = terminal(*words)
        assert bare.code == 2
        assert bare.err.startswith("Usage: toolgate")


@pytest.mark.requirement("DOOR-1")
def test_an_unknown_command_is_usage_with_the_nearest_known(terminal: Terminal) -> None:
    done = terminal("tools", "lits")
    assert (done.code, done.out) == (2, "")
    assert "Error: No such command 'lits'. Did you mean 'list'?" in done.err


# -- what goes wrong


@pytest.mark.requirement("DOOR-1")
def test_settings_and_home_are_global_options(terminal: Terminal) -> None:
    (terminal.folder / "other.yaml").write_text("tools: {echo: {enabled: false}}")
    found = terminal("--settings", "other.yaml", "--home", "elsewhere", "tools", "list", "--json").json
    assert [tool["name"] for tool in found["tools"] if not tool["enabled"]] == ["echo"]
    assert (terminal.folder / "elsewhere" / "toolgate.db").exists()
    assert not terminal.home.exists()


@pytest.mark.requirement("DOOR-1")
@pytest.mark.parametrize("words", [("tools",), ("call", "echo", "text=a"), ("audit", "tail"), ("artifacts", "get", "x")])
def test_wrong_settings_are_usage(terminal: Terminal, words: tuple[str, ...]) -> None:
    terminal.settings("limits: {input_byte: 5}")
    people = terminal(*words)
    assert (people.code, people.out) == (2, "")
    assert people.err.startswith("Error: There is no setting 'limits.input_byte'")
    programs = terminal(*words, "--json")
    assert (programs.code, programs.json["error"]["code"]) == (2, "SETTINGS_ERROR")
    assert terminal("--settings", "missing.yaml", *words).code == 2


def _newer_schema(folder: Path) -> None:
    folder.mkdir()
    connection = sqlite3.connect(folder / "toolgate.db")
    connection.execute("CREATE TABLE toolgate_schema (number INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    connection.execute("INSERT INTO toolgate_schema VALUES (9999, 'from the future')")
    connection.commit()
    connection.close()


def _damaged(folder: Path) -> None:
    folder.mkdir()
    (folder / "toolgate.db").write_bytes(os.urandom(8192))


def _a_file(folder: Path) -> None:
    folder.write_text("not a folder")


def _a_folder_for_a_file(folder: Path) -> None:
    (folder / "toolgate.db").mkdir(parents=True)


@pytest.mark.requirement("DOOR-1", "REG-2")
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_newer_schema, "has schema 9999"),
        (_damaged, "is damaged"),
        (_a_file, "cannot be made"),
        (_a_folder_for_a_file, "cannot be written"),
    ],
)
def test_a_store_that_cannot_be_used_is_one_line_with_advice(terminal: Terminal, spoil: Any, words: str) -> None:
    spoil(terminal.home)
    for command in (("tools",), ("call", "echo", "text=a"), ("audit", "verify")):
        people = terminal(*command)
        assert (people.code, people.out) == (1, "")
        assert people.err.startswith("Error: ")
        assert words in people.err.splitlines()[0]
        assert len(people.err.splitlines()) == 2
        programs = terminal(*command, "--json")
        assert programs.code == 1
        assert programs.json["error"]["code"] == "STORE_ERROR"
        assert programs.json["error"]["suggestion"]
        assert programs.err == ""


AS_NOBODY = """
import os, sys
from toolgate.cli.main import main
main(["tools", "--json"])  # as root, so that all is loaded and the store is there
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(main(["tools"]))
"""


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.requirement("DOOR-1", "REG-2")
@pytest.mark.needs("root", "another user")  # to become somebody who may write nowhere
def test_the_data_of_another_user_is_one_line_with_advice() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY],
            cwd=folder,
            env={**os.environ, "TOOLGATE_HOME": f"{folder}/home"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert done.returncode == 1
    assert re.fullmatch(r"Error: \S+ belongs to another user .*\nRun `chown .*\n", done.stderr), done.stderr


@pytest.mark.requirement("DOOR-1")
@pytest.mark.parametrize("url", ["mysql://somewhere/else", "sqlite:relative.db", "nonsense"])
def test_a_database_url_of_no_known_kind_is_usage(terminal: Terminal, url: str) -> None:
    terminal.set("TOOLGATE_DATABASE_URL", url)
    done = terminal("tools", "--json")
    assert (done.code, done.json["error"]["code"]) == (2, "SETTINGS_ERROR")


@pytest.mark.requirement("DOOR-1")
def test_a_database_that_does_not_answer_is_named_without_its_password(terminal: Terminal) -> None:
    terminal.set("TOOLGATE_DATABASE_URL", "postgresql://someone:hunter2@127.0.0.1:1/nowhere")
    done = terminal("tools")
    assert done.code == 1
    assert done.err.startswith("Error: The database postgresql://127.0.0.1:1/nowhere cannot be used")
    assert "hunter2" not in done.err


@pytest.mark.requirement("DOOR-1")
def test_what_nobody_expected_is_a_line_and_the_traceback_is_for_those_who_ask(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_tools: ToolsFacet) -> None:
        raise LookupError("a bug\x1b[31m")

    monkeypatch.setattr(ToolsFacet, "token_costs", broken)
    people = terminal("tools")
    assert (people.code, people.out) == (1, "")
    assert people.err == ("Unexpected error: LookupError: a bug\\x1b[31m\nSet TOOLGATE_DEBUG=1 for the traceback.\n")
    assert terminal("tools", "--json").json["error"]["code"] == "UNEXPECTED_ERROR"
    terminal.set("TOOLGATE_DEBUG", "1")
    assert "in broken" in terminal("tools").err


# -- the world outside


@pytest.mark.requirement("DOOR-1")
def test_an_interrupted_call_is_recorded_and_ends_with_130(terminal: Terminal) -> None:
    terminal.add_tools(
        """
        import asyncio
        from pathlib import Path

        from toolgate import tool


        @tool(tier="read_only")
        async def waits() -> None:
            \"\"\"Wait.\"\"\"
            Path("waiting").write_text("")
            await asyncio.sleep(60)
        """
    )
    words = [str(SCRIPT), "call", "waits"]
    with subprocess.Popen(words, cwd=terminal.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as calling:
        try:
            _wait_for(terminal.folder / "waiting")
            calling.send_signal(signal.SIGINT)
            out, err = calling.communicate(timeout=SECONDS)
        finally:
            calling.kill()
    assert (calling.returncode, out) == (130, "")
    assert err.startswith("CANCELLED: The call was interrupted")
    assert "CANCELLED" in terminal("audit", "tail", "-n", "1").out


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.matrix("starts the program in a shell")
@pytest.mark.requirement("DOOR-1")
@pytest.mark.parametrize("words", ["tools", "tools --json", "audit export", "tools export --format mcp", "call echo text=a"])
def test_a_reader_that_goes_away_is_no_news(terminal: Terminal, words: str) -> None:
    terminal("call", "echo", "text=a")
    done = subprocess.run(
        ["sh", "-c", f"{SCRIPT} {words} | true"],
        cwd=terminal.folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert "Error" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.matrix("starts the program in a shell")
@pytest.mark.requirement("DOOR-1")
@pytest.mark.parametrize("words", ["tools", "tools --json", "audit export"])
def test_a_full_disk_is_told(terminal: Terminal, words: str) -> None:
    terminal("call", "echo", "text=a")
    done = subprocess.run(
        ["sh", "-c", f"{SCRIPT} {words} > /dev/full"],
        cwd=terminal.folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "Error: The output cannot be written: No space left on device.\n")


@pytest.mark.requirement("DOOR-1")
def test_colour_is_for_terminals_that_want_it(terminal: Terminal) -> None:
    assert "\x1b" not in terminal.run("tools").out
    assert "\x1b[32m✓" in terminal.run("tools", environment={"FORCE_COLOR": "1"}).out
    assert "\x1b[32m" not in terminal.run("tools", environment={"FORCE_COLOR": "1", "NO_COLOR": "1"}).out


@pytest.mark.requirement("DOOR-1")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_a_terminal_without_unicode_gets_what_it_can_show(terminal: Terminal) -> None:
    environment = {"PYTHONIOENCODING": "ascii"}
    assert r"\u2713 calculator" in terminal.run("tools", environment=environment).out
    assert terminal.run("call", "echo", "text=é", "--json", environment=environment).json["output"] == {"text": "é"}
