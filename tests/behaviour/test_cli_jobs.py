"""`toolgate call --async`, `toolgate jobs`, `toolgate worker`: work in the background from the terminal."""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from tests import forked
from tests.teletype import Teletype
from tests.terminal import Terminal

pytestmark = [pytest.mark.requirement("JOB-1"), pytest.mark.requirement("DOOR-1")]
SOON = 40.0
TOOLS = '''
    import asyncio
    from pathlib import Path

    from toolgate import InvokeContext, tool

    def note(line: str) -> None:
        with Path("ran.txt").open("a") as file:
            file.write(line + "\\n")

    @tool(tier="write")
    async def sell(what: str) -> str:
        """Sell something."""
        note(what)
        return f"sold {what}"

    @tool(tier="write")
    async def slow(what: str) -> str:
        """Wait until a file is there."""
        note(f"begun {what}")
        while not Path("enough").exists():
            await asyncio.sleep(0.02)
        note(f"ended {what}")
        return what

    @tool(tier="read_only")
    async def crawl(ctx: InvokeContext) -> str:
        """Say how far it is, in words that a terminal might obey."""
        for done in range(1, 6):
            await ctx.progress(done, 5, "page \\x1b[2Jof [bold]five")
            await asyncio.sleep(0.3)
        return "\\x1b[31mred\\u202e"

    @tool(tier="read_only")
    async def fail(why: str) -> None:
        """Fail."""
        raise ValueError(why)

    @tool(tier="execute")
    async def tidy(room: str) -> str:
        """Tidy a room."""
        note(room)
        return room

    @tool(tier="write", background=True)
    async def later(what: str) -> str:
        """Always run in the background."""
        note(what)
        return what
'''


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    made = Terminal(tmp_path, monkeypatch, capsys)
    made.add_tools(TOOLS)
    return made


def ran(terminal: Terminal) -> list[str]:
    file = terminal.folder / "ran.txt"
    return file.read_text().splitlines() if file.exists() else []


def queue(terminal: Terminal, *words: str) -> str:
    """Queues a call; gives the id of its job."""
    done = terminal("call", *words, "--async", "--json")
    assert done.code == 3, done
    assert done.json["pending"]["kind"] == "job"
    id: str = done.json["pending"]["id"]
    return id


def job(terminal: Terminal, id: str) -> Any:
    done = terminal("jobs", "show", id, "--json")
    assert done.code == 0, done
    return done.json


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def working(terminal: Terminal, *options: str) -> Iterator[tuple[forked.Forked, Path]]:
    """A worker as a process of its own, and what it writes."""
    said = terminal.folder / "worker.txt"
    with said.open("wb") as out, Path(os.devnull).open("rb") as nothing:
        streams = nothing.fileno(), out.fileno(), out.fileno()
        environment = dict(os.environ)
        process = forked.start(("worker", *options), folder=terminal.folder, environment=environment, streams=streams)
    try:
        until(lambda: "started" in said.read_text())
        yield process, said
    finally:
        process.kill()
        process.wait(SOON)


# -- queued by `toolgate call`


def test_a_call_is_queued_run_by_a_worker_and_shown(terminal: Terminal) -> None:
    done = terminal("call", "sell", "what=tea", "--async")
    assert done.code == 3
    found = re.fullmatch(r"Queued as job (\S+)\n", done.out)
    assert found, done
    assert f"toolgate jobs show {found[1]} --follow" in done.err and "toolgate worker" in done.err
    assert ran(terminal) == []
    listed = terminal("jobs", "list")
    assert all(word in listed.out for word in (found[1], "queued", "execute_tool", "default/local", "sell"))
    worked = terminal("worker", "--once")
    assert (worked.code, worked.out, ran(terminal)) == (0, "", ["tea"])
    assert "Worker started: 8 jobs at once, of the types agent_run, execute_tool" in worked.err
    assert re.search(rf"done  execute_tool sell  {found[1]}  default  \d+ ms", worked.err), worked.err
    assert "Worker stopped after 1 attempt" in worked.err
    shown = terminal("jobs", "show", found[1][:20])
    assert all(word in shown.out for word in ("State     done", '"what": "tea"', '"output": "sold tea"', "Ended"))
    assert terminal("jobs", "show", found[1], "--follow").code == 0


def test_delay_and_priority_are_the_jobs_and_need_async(terminal: Terminal) -> None:
    late = queue(terminal, "sell", "what=late", "--delay", "3600", "--priority", "-3")
    assert terminal("worker", "--once").code == 0 and ran(terminal) == []
    kept = job(terminal, late)
    assert (kept["state"], kept["priority"]) == ("queued", -3)
    assert "Due" in terminal("jobs", "show", late).out and "sell · due at 2" in terminal("jobs", "list").out
    none = terminal("jobs", "list", "--type", "send_notification")
    assert (none.code, none.out) == (0, "") and "has no jobs of type send_notification." in none.err
    for words, told in (
        (("--delay", "1"), "add --async"),
        (("--priority", "1"), "add --async"),
        (("--async", "--delay", "-1"), "--delay"),
        (("--async", "--delay", "nan"), "--delay"),
        (("--async", "--priority", "11"), "priority"),
    ):
        done = terminal("call", "sell", "what=x", *words)
        assert done.code == 2 and told in done.err, (words, done)
    assert len(terminal("jobs", "list", "--json").json["jobs"]) == 1


def test_the_same_key_is_the_same_job_and_then_its_outcome(terminal: Terminal) -> None:
    first = queue(terminal, "sell", "what=tea", "--idempotency-key", "k")
    assert queue(terminal, "sell", "what=tea", "--idempotency-key", "k") == first
    other = terminal("call", "sell", "what=milk", "--idempotency-key", "k", "--async")
    assert other.code == 1 and "IDEMPOTENCY_CONFLICT" in other.err
    terminal("worker", "--once")
    known = terminal("call", "sell", "what=tea", "--idempotency-key", "k", "--async")
    assert (known.code, known.out, ran(terminal)) == (0, "sold tea\n", ["tea"])


def test_what_needs_a_person_waits_as_a_job_and_goes_on_when_they_agree(terminal: Terminal) -> None:
    done = terminal("call", "tidy", "room=kitchen", "--async")
    assert done.code == 3 and "APPROVAL_REQUIRED" in done.err and "goes on by itself" in done.err
    id = done.out.split()[-1]
    approval = job(terminal, id)["approval"]
    assert f"approvals show|approve|reject {approval}" in done.err
    assert f"approvals show|approve|reject {approval}" in terminal("jobs", "show", id).err
    terminal("worker", "--once")
    assert job(terminal, id)["state"] == "waiting" and ran(terminal) == []
    assert terminal("approvals", "approve", approval).code == 0
    terminal("worker", "--once")
    assert job(terminal, id)["state"] == "done" and ran(terminal) == ["kitchen"]
    agreed = terminal("call", "tidy", "room=hall", "--async", "--yes")
    assert agreed.code == 3 and "Queued" in agreed.out
    terminal("worker", "--once")
    assert ran(terminal) == ["kitchen", "hall"]


def test_a_tool_that_always_runs_so_says_so_everywhere(terminal: Terminal) -> None:
    done = terminal("call", "later", "what=tea")
    assert done.code == 3 and "Queued as job" in done.out and ran(terminal) == []
    assert "Background: always" in terminal("tools", "info", "later").out
    assert terminal("tools", "info", "later", "--json").json["background"] is True
    assert "it runs in the background" in terminal("explain", "later", "what=tea").out


def test_a_custom_tool_can_say_so(terminal: Terminal) -> None:
    text = "name: slowly\ndescription: Take long.\nbackground: true\nruntime: python\npermissions: {riskLevel: low}\n"
    code = "schema: {type: object}\ncode: |\n  def execute(args, context):\n      return 1\n"
    (terminal.home / "tools" / "slowly.yml").write_text(text + code)
    assert terminal("tools", "info", "slowly", "--json").json["background"] is True
    assert terminal("call", "slowly", "--json").json["pending"]["kind"] == "job"
    (terminal.home / "tools" / "slowly.yml").write_text(text.replace("true", "soon") + code)
    assert "background" in terminal("tools", "list").err + terminal("tools", "list").out


# -- whose


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_jobs_of_others_are_listed_only_where_they_are_asked_for(terminal: Terminal) -> None:
    ids = {
        who: queue(terminal, "sell", f"what={who}", "--tenant", tenant, "--user", user, "--persona", persona)
        for who, tenant, user, persona in (
            ("ada", "acme", "ada", "analyst"), ("eve", "acme", "eve", "clerk"), ("bob", "other", "bob", "clerk"),
        )
    }  # fmt: skip

    def listed(*words: str) -> set[str]:
        return {one["id"] for one in terminal("jobs", "list", *words, "--json").json["jobs"]}

    assert listed() == set()
    assert listed("--tenant", "acme", "--user", "ada") == set()
    assert listed("--tenant", "acme", "--user", "ada", "--persona", "analyst") == {ids["ada"]}
    assert listed("--tenant", "acme", "--all-users") == {ids["ada"], ids["eve"]}
    assert listed("--tenant", "acme", "--all-users", "--persona", "clerk") == {ids["eve"]}
    assert listed("--tenant", "*") == set(ids.values())
    assert listed("--tenant", "*", "--type", "nothing") == set()
    assert listed("--tenant", "*", "--state", "done") == set()
    some = terminal("jobs", "list", "--tenant", "*", "--limit", "2")
    assert len(some.lines) == 3 and "There are more" in some.err
    assert terminal("jobs", "list", "--all-users", "--user", "ada").code == 2
    assert terminal("jobs", "list", "--tenant", "*", "--user", "ada").code == 2
    assert terminal("jobs", "show", ids["ada"], "--tenant", "*", "--json").json["id"] == ids["ada"]
    for act in ("show", "retry", "cancel"):
        for whose in (("--tenant", "other"), ("--user", "eve"), ("--tenant", "acme", "--user", "eve")):
            done = terminal("jobs", act, ids["ada"], *whose)
            assert done.code == 1 and "There is no job" in done.err, (act, whose, done)
        for unknown in ("01a1", "nothing", "%", "\x1b[2J", "x" * 300, ""):
            done = terminal("jobs", act, unknown)
            assert done.code == 1 and "\x1b" not in done.err, (act, unknown, done)
    assert terminal("jobs", "show", "nothing", "--json").json["error"]["code"] == "NOT_FOUND"
    assert {job(terminal, id)["state"] for id in ids.values()} == {"queued"}


# -- by hand


def test_a_job_is_cancelled_and_tried_again(terminal: Terminal) -> None:
    id = queue(terminal, "sell", "what=tea")
    assert terminal("jobs", "retry", id).code == 1
    assert terminal("jobs", "cancel", id).out == f"✓ Cancelled execute_tool ({id})\n"
    terminal("worker", "--once")
    assert ran(terminal) == []
    again = terminal("jobs", "retry", id)
    assert (again.code, again.out) == (0, f"✓ Queued again execute_tool ({id})\n")
    terminal("worker", "--once")
    assert ran(terminal) == ["tea"]
    assert "nothing left to cancel" in terminal("jobs", "cancel", id).err
    assert "only a job that failed" in terminal("jobs", "retry", id).err


def test_a_job_that_failed_is_shown_with_the_cause_and_follow_says_so(terminal: Terminal) -> None:
    id = queue(terminal, "fail", "why=no \x1b]0;title\x07 paper")
    terminal("worker", "--once")
    shown = terminal("jobs", "show", id, "--follow")
    assert shown.code == 1 and "paper" in shown.out and "\x1b" not in shown.out and "\x07" not in shown.out
    listed = terminal("jobs", "list", "--state", "failed").out
    assert "fail · INVOCATION_ERROR: The tool raised ValueError" in listed and "\x1b" not in listed


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.requirement("JOB-4")
def test_a_job_whose_worker_died_with_its_effect_is_parked_and_asked_about(terminal: Terminal) -> None:
    terminal.settings("limits: {lease_seconds: 1}")
    id = queue(terminal, "slow", "what=tea")
    with working(terminal) as (worker, _):
        until(lambda: ran(terminal) == ["begun tea"])
        worker.kill()
        worker.wait(SOON)

    def is_parked() -> bool:
        terminal("worker", "--once")
        state: str = job(terminal, id)["state"]
        return state == "parked"

    until(is_parked)
    assert ran(terminal) == ["begun tea"]
    assert "second time" in terminal("jobs", "show", id).err
    assert "parked" in terminal("doctor").out
    refused = terminal("jobs", "retry", id)
    assert refused.code == 2 and "--yes" in refused.err and "second time" in refused.err
    for keys in ("n\r", "\x04"):
        person = Teletype(terminal, "jobs", "retry", id)
        person.type(after="Run it again?", keys=keys)
        assert person.end() == 1 and "Nothing was changed" in person.shown
    assert job(terminal, id)["state"] == "parked"
    (terminal.folder / "enough").touch()
    person = Teletype(terminal, "jobs", "retry", id)
    person.type(after="Run it again?", keys="y\r")
    assert person.end() == 0
    terminal("worker", "--once")
    assert job(terminal, id)["state"] == "done" and ran(terminal) == ["begun tea", "begun tea", "ended tea"]


def test_a_parked_job_can_be_let_be(terminal: Terminal) -> None:
    terminal.settings("limits: {lease_seconds: 1}")
    id = queue(terminal, "slow", "what=tea")
    with working(terminal) as (worker, _):
        until(lambda: ran(terminal) == ["begun tea"])
        worker.kill()
        worker.wait(SOON)
    until(lambda: (terminal("worker", "--once"), job(terminal, id)["state"])[1] == "parked")
    assert terminal("jobs", "cancel", id).code == 0
    assert job(terminal, id)["state"] == "cancelled" and ran(terminal) == ["begun tea"]


# -- the worker


@pytest.mark.requirement("JOB-2")
def test_a_worker_that_is_told_to_stop_waits_for_what_runs(terminal: Terminal) -> None:
    first, second = queue(terminal, "slow", "what=one"), queue(terminal, "slow", "what=two")
    with working(terminal, "--concurrency", "1", "--json") as (worker, said):
        until(lambda: len(ran(terminal)) == 1)
        os.kill(worker.pid, signal.SIGTERM)
        until(lambda: "stopping" in said.read_text())
        (terminal.folder / "enough").touch()
        assert worker.wait(SOON) == 0
        lines = [json.loads(line) for line in said.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["started", "stopping", "attempt", "stopped"]
    assert (lines[0]["concurrency"], lines[2]["state"], lines[3]["attempts"]) == (1, "done", 1)
    assert sorted(job(terminal, id)["state"] for id in (first, second)) == ["done", "queued"]
    assert len(ran(terminal)) == 2


@pytest.mark.requirement("JOB-2")
def test_a_second_signal_interrupts_what_runs_and_leaves_it_queued(terminal: Terminal) -> None:
    id = queue(terminal, "slow", "what=one")
    with working(terminal) as (worker, said):
        until(lambda: len(ran(terminal)) == 1)
        os.kill(worker.pid, signal.SIGINT)
        until(lambda: "Stopping" in said.read_text())
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(SOON) == 0
        assert "Worker stopped" in said.read_text() and "Traceback" not in said.read_text()
    left = job(terminal, id)
    assert (left["state"], left["attempts"], left["crashes"]) == ("queued", 0, 0)
    assert ran(terminal) == ["begun one"]


def test_a_worker_leaves_alone_what_it_has_no_handler_for_and_doctor_tells(terminal: Terminal) -> None:
    code = (
        "import asyncio\nfrom toolgate import App, job_handler\n"
        "@job_handler('mine')\nasync def mine(ctx): return 1\n"
        "async def main():\n"
        "    async with App.open() as app:\n"
        "        app.jobs.add_handler(mine)\n"
        "        job = await app.jobs.enqueue('mine', {})\n"
        "        await app.parts.store.transact(past(job.id))\n"
        "def past(id):\n"
        "    yield \"UPDATE jobs SET run_at = created_at - 600 * 1000000 WHERE id = :id\", {'id': id}\n"
        "asyncio.run(main())\n"
    )
    made = forked.run((), folder=terminal.folder, environment=dict(os.environ), seconds=SOON, code=code)
    assert made.returncode == 0, made.stderr
    worked = terminal("worker", "--once")
    assert "after 0 attempts" in worked.err
    checks = {one["name"]: one for one in terminal("doctor", "--json").json["checks"]}
    assert checks["jobs"]["status"] == "warning" and "1 of type mine" in checks["jobs"]["message"]


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_doctor_counts_jobs(terminal: Terminal) -> None:
    def check() -> Any:
        return next(one for one in terminal("doctor", "--json").json["checks"] if one["name"] == "jobs")

    assert (check()["status"], check()["message"]) == ("ok", "there are none")
    queue(terminal, "sell", "what=tea")
    assert check()["message"] == "1 queued"
    queue(terminal, "fail", "why=x")
    terminal("worker", "--once")
    found = check()
    assert found["status"] == "warning" and "1 done, 1 failed" in found["message"]
    assert "failed within a day" in found["message"] and found["details"] == {"done": "1", "failed": "1"}


def test_a_worker_of_a_database_that_cannot_be_used_says_so(terminal: Terminal) -> None:
    terminal.set("TOOLGATE_DATABASE_URL", "postgresql://nobody:secret-word@127.0.0.1:1/none")
    for words in (("worker", "--once"), ("jobs", "list"), ("jobs", "show", "x")):
        done = terminal(*words)
        assert done.code == 1 and "secret-word" not in done.out + done.err, done
    assert terminal("worker", "--once", "--json").code == 1


# -- the bar


def test_a_bar_shows_progress_at_a_terminal_that_can_erase_it(terminal: Terminal) -> None:
    id = queue(terminal, "crawl")
    with working(terminal):
        person = Teletype(terminal, "jobs", "show", id, "--follow", columns=100, TERM="xterm-256color")
        assert person.end() == 0
    assert "page \\x1b[2Jof [bold]five" in person.shown and "%" in person.shown
    assert "\x1b[2J" not in person.shown and "\u202e" not in person.shown
    assert "State     done" in person.shown


def test_there_is_no_bar_where_it_could_not_be_erased(terminal: Terminal) -> None:
    id = queue(terminal, "crawl")
    with working(terminal):
        person = Teletype(terminal, "jobs", "show", id, "--follow", columns=80)
        piped = terminal.run("jobs", "show", id, "--follow")
        told = terminal.run("jobs", "show", id, "--follow", "--json")
        assert person.end() == 0
    assert "━" not in person.shown + piped.err + piped.out and "\x1b" not in person.shown
    assert all(cell_len(line) <= 80 for line in person.shown.splitlines()), person.shown
    assert piped.code == 0 and "State     done" in piped.out
    assert told.json["state"] == "done"


def test_who_stops_looking_does_not_stop_the_job(terminal: Terminal) -> None:
    id = queue(terminal, "slow", "what=tea")
    with working(terminal):
        until(lambda: ran(terminal) == ["begun tea"])
        person = Teletype(terminal, "jobs", "show", id, "--follow")
        person.interrupt(after="Ctrl-C")
        assert person.end() == 130
        (terminal.folder / "enough").touch()
        assert terminal.run("jobs", "show", id, "--follow").code == 0
    assert ran(terminal) == ["begun tea", "ended tea"]


# -- handlers of installed packages


def test_a_worker_knows_the_handlers_of_installed_packages_unless_they_are_turned_off(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = terminal.folder / "site" / "given-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: given\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[toolgate.jobs]\ngreet = given_jobs:greet\nbroken = given_jobs:missing\n")
    code = "from toolgate import job_handler\n@job_handler('greet')\nasync def greet(ctx):\n    return 'hello'\n"
    (terminal.folder / "site" / "given_jobs.py").write_text(code)
    monkeypatch.syspath_prepend(str(terminal.folder / "site"))
    assert "greet" in terminal("worker", "--once").err
    terminal.settings("entry_points: false")
    assert "greet" not in terminal("worker", "--once").err
