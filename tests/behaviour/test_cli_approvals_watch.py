"""`toolgate approvals watch`: waiting calls as they come and go, seen across processes, and answered at the terminal."""

import json
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.behaviour.test_cli_approvals import TOOLS, pending, ran
from tests.teletype import Teletype
from tests.terminal import SCRIPT, Terminal

pytestmark = pytest.mark.requirement("DOOR-7", "DOOR-1")
SECONDS = 30.0
SEEN_WITHIN = 3.0
"""A second is promised; a machine that runs other tests besides is given more."""


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], database: str) -> Terminal:
    made = Terminal(tmp_path, monkeypatch, capsys)
    made.add_tools(TOOLS)
    made.set("TOOLGATE_DATABASE_URL", database)
    return made


@contextmanager
def watching(terminal: Terminal, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [SCRIPT, "approvals", "watch", "--tenant", "*", *words], cwd=terminal.folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(process: "subprocess.Popen[bytes]", seconds: float = SECONDS) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], seconds)[0], "no line came in time"
    return process.stdout.readline().decode()


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_a_program_is_given_a_line_for_each_change_by_whichever_process(terminal: Terminal) -> None:
    first = pending(terminal("call", "send", "to=bob", "--json"))
    with watching(terminal, "--json") as process:
        assert json.loads(line_of(process))["id"] == first
        second = pending(terminal("call", "send", "to=eve", "password=hunter2hunter2", "--tenant", "acme", "--json"))
        asked = time.monotonic()
        come = json.loads(line_of(process))
        assert time.monotonic() - asked < SEEN_WITHIN
        assert (come["event"], come["id"], come["actor"]["tenant"]) == ("waiting", second, "acme")
        assert "hunter2" not in json.dumps(come), "a list has arguments as they are on record"
        assert terminal("approvals", "reject", second).code == 0
        gone = json.loads(line_of(process))
        assert (gone["event"], gone["id"], gone["answered_by"]) == ("rejected", second, "local")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
        assert (process.returncode, out, err) == (0, b"", b"")


def test_without_a_terminal_each_change_is_a_line(terminal: Terminal) -> None:
    id = pending(terminal("call", "send", "to=bob", "--json"))
    with watching(terminal) as process:
        line = line_of(process)
        assert "waiting" in line and id in line and "default/local" in line
        assert terminal("approvals", "approve", id).code == 0
        assert "approved by local" in line_of(process)


def test_at_a_terminal_a_person_picks_a_call_and_answers_it(terminal: Terminal) -> None:
    first = pending(terminal("call", "send", "to=bob", "--json"))
    second = pending(terminal("call", "send", "to=eve", "--json"))
    shown = Teletype(terminal, "approvals", "watch", "--bell", TERM="xterm", LINES="40")
    shown.type(after="2 waiting", keys="2")
    shown.type(after="2 waiting", keys="\r")
    shown.type(after="one hour", keys="y\n")
    shown.type(after="1 waiting", keys="x\x1b[A\x1b[B1\r")
    shown.type(after="one hour", keys="n\n")
    shown.type(after="Why not?", keys="not today\n")
    shown.interrupt(after="No call waits")
    assert shown.end() == 0
    assert f"approved {second}" in shown.shown and f"rejected {first}" in shown.shown
    states = {one["id"]: one for one in terminal("approvals", "list", "--state", "all", "--json").json["approvals"]}
    assert states[second]["state"] == "approved" and states[first]["answer_reason"] == "not today"
    assert terminal("call", "send", "to=eve").code == 0 and ran(terminal) == ["eve"]


def test_what_was_answered_elsewhere_meanwhile_is_said(terminal: Terminal) -> None:
    id = pending(terminal("call", "send", "to=bob", "--json"))
    shown = Teletype(terminal, "approvals", "watch", TERM="xterm", LINES="40")
    shown.type(after="1 waiting", keys="\r")
    shown.watch(after="one hour", seconds=0.1)
    assert terminal("approvals", "reject", id).code == 0
    shown.type(after="", keys="y\n")
    shown.type(after="no longer waits", keys="")
    shown.type(after="No call waits", keys="q")
    assert shown.end() == 0 and ran(terminal) == []


def test_the_bell_rings_for_a_call_that_comes(terminal: Terminal) -> None:
    shown = Teletype(terminal, "approvals", "watch", "--bell", TERM="xterm", LINES="40")
    shown.watch(after="No call waits", seconds=0.1)
    pending(terminal("call", "send", "to=b\x1b[2Job", "--json"))
    shown.interrupt(after="\x07")
    assert shown.end() == 0
    assert "\x1b[2Job" not in shown.shown
