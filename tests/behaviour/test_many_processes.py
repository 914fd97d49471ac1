"""Several serving processes as one: real ones, behind a plain round-robin proxy on one PostgreSQL, or as `serve --workers`.

Processes are killed and restarted while requests come. What really happened is in the audit log.
"""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.test_http_events import following
from tests.behaviour.test_mcp_server_tasks import ASKS, Client
from tests.behaviour.test_mcp_tasks_processes import Servers, eventually
from tests.conformance.run import NOT_FOR_US, ask_server, wrong
from tests.conformance.suite import Suite
from tests.mcp_clients import Person, connected, text_of
from tests.mcp_handshakes import Session
from tests.npm import packages
from tests.round_robin import RoundRobin
from tests.serving import Answer, Site
from tests.terminal import SCRIPT, Terminal

pytestmark = pytest.mark.requirement("DOOR-5", "TIER-6")
TICKED = {"action": "accept", "content": {"approve": True}}
SOON = 60.0
SAID = '"x"'
PAUSE = 0.05
"""Between the requests of a client: without it they take the cores from the processes that start meanwhile."""


@pytest.fixture
def servers(
    postgres_tables: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Servers:
    return Servers(Terminal(tmp_path, monkeypatch, capsys), postgres_tables)


@asynccontextmanager
async def behind(*sites: Site) -> AsyncIterator[tuple[Site, RoundRobin]]:
    """One address for several servers."""
    proxy = RoundRobin([f"http://{site.host}" for site in sites])
    port = await proxy.start()
    try:
        yield Site(port), proxy
    finally:
        await proxy.stop()


async def call(site: Site, key: str, text: str, tool: str = "echo") -> Answer:
    return await site.mcp("tools/call", {"name": tool, "arguments": {"text": text}}, key=key)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_gateway_conforms_with_two_processes(tmp_path: Path, revision: str) -> None:
    scenarios = list(ask_server(Suite(packages(), tmp_path, once=NOT_FOR_US), [revision], processes=2))
    assert wrong(scenarios, [("server", revision)]) == []


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_clients_of_both_eras_see_one_server(servers: Servers) -> None:
    """The SDK's own client, with calls, questions to a person, and tasks, each request to the next process."""
    key = servers.key("a", "--may-approve")
    async with servers.one() as (_, one), servers.one() as (_, two), behind(one, two) as (site, proxy):
        for era in ("legacy", "2026-07-28"):
            person = Person(approve=True)
            async with connected(site, key, era, elicitation_callback=person) as client:
                for _ in range(4):
                    assert SAID in text_of(await client.call_tool("echo", {"text": "x"}))
                assert text_of(await client.call_tool("risky", {"text": era})) == f"did {era}"
                assert len(person.shown) == 1
        client_with_tasks = Client(site, key, ASKS)
        id = (await client_with_tasks.call("risky", text="as a task"))["taskId"]
        [name] = (await client_with_tasks.until(id, "input_required"))["inputRequests"]
        await client_with_tasks("tasks/update", taskId=id, inputResponses={name: TICKED})
        done = await client_with_tasks.until(id, "completed")
        assert done["result"]["content"][0]["text"] == "did as a task"
    assert servers.did == ["risky legacy", "risky 2026-07-28", "risky as a task"] and min(proxy.served) > 4


async def test_a_killed_process_takes_nothing_with_it(servers: Servers) -> None:
    """No finished call that changes something, no waiting approval, no session: the client's next request works."""
    key = servers.key("a")
    servers.let()
    async with servers.one() as (first, one), servers.one() as (_, two), behind(one, two) as (site, _):
        session = await Session.begin(one, key)
        pending = await session.call(one, "risky", text="later")
        approval = pending["_meta"]["toolgate/approval"] if "_meta" in pending else None
        for number in range(20):
            assert "noted" in (await call(site, key, f"before {number}", "note")).body.decode()
        first.kill()
        await asyncio.to_thread(first.wait, 60)
        assert "after" in str(await session.call(site, "echo", text="after"))
        for number in range(4):
            assert "noted" in (await call(site, key, f"after {number}", "note")).body.decode()
        [waiting] = servers.waiting()
        assert approval in (None, waiting)
        servers.answer("approve", waiting)
        done = await session.ask(
            site, "tools/call", name="risky", arguments={"text": "later"}, _meta={"toolgate/approval": waiting}
        )
        assert done["content"][0]["text"] == "did later"
    assert servers.did[-1] == "risky later" and len(servers.did) == 25
    log = servers.terminal.run(
        "audit", "tail", "-n", "200", "--tenant", "acme", "--tool", "note", "--status", "success", "--json"
    )
    assert len(log.lines) == 24
    assert servers.terminal.run("audit", "verify").code == 0


async def test_events_follow_through_the_proxy_whichever_process_answers(servers: Servers) -> None:
    """Calls and waiting approvals of both processes, in one stream; after a cut or kill -9, the other process goes on with
    just what was missed."""
    key = servers.key("a")
    servers.let()
    async with servers.one() as (first, one), servers.one() as (_, two), behind(one, two) as (site, proxy):
        async with following(site, key) as stream:
            assert proxy.served == [1, 0]
            for number, place in enumerate((two, one, site, site)):
                assert "noted" in (await call(place, key, str(number), "note")).body.decode()
            seen = [await stream.ended() for _ in range(4)]
            await call(two, key, "later", "risky")
            pending = await stream.ended()
            assert (pending["tool"], pending["status"]) == ("risky", "pending")
        for place in (one, two, one):
            await call(place, key, "missed", "note")
        cut = f"Last-Event-ID: {pending['seq']}\r\n"
        streams = [following(site, key, headers=cut), following(site, key, headers=cut)]
        async with streams[0] as here, streams[1] as there:
            assert min(proxy.served) >= 2, "each process answers one of the streams"
            missed = [[await stream.ended() for _ in range(3)] for stream in (here, there)]
            assert missed[0] == missed[1]
            first.kill()
            await asyncio.to_thread(first.wait, 60)
        await call(site, key, "after", "note")
        async with following(site, key, headers=f"Last-Event-ID: {missed[0][-1]['seq']}\r\n") as stream:
            after = await stream.ended()
        told = [*seen, pending, *missed[0], after]
        assert [one["tool"] for one in told] == ["note"] * 4 + ["risky"] + ["note"] * 4
        assert len({one["call"] for one in told}) == 9
        assert [one["seq"] for one in told] == sorted(one["seq"] for one in told)


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_processes_are_replaced_one_after_another_without_a_failed_request(servers: Servers) -> None:
    key = servers.key("a")
    failed: list[Any] = []
    done = 0
    over = asyncio.Event()

    async def load(site: Site, session: Session | None) -> None:
        nonlocal done
        while not over.is_set():
            try:
                if session is None:
                    told = (await call(site, key, "x")).json["result"]
                else:
                    told = await session.call(site, "echo", text="x")
                if SAID not in told["content"][0]["text"]:
                    failed.append(told)
                done += 1
                await asyncio.sleep(PAUSE)
            except (OSError, AssertionError, KeyError, asyncio.IncompleteReadError) as error:
                failed.append(error)

    async def more_done() -> None:
        enough = done + 20
        await eventually(lambda: done > enough)

    async with AsyncExitStack() as stack:
        started = [await stack.enter_async_context(servers.one()) for _ in range(2)]
        site, proxy = await stack.enter_async_context(behind(*(one for _, one in started)))
        sessions = [None, None, *[await Session.begin(site, key) for _ in range(2)]]
        loads = [asyncio.ensure_future(load(site, session)) for session in sessions]
        for turn, (process, _) in enumerate(started):
            await more_done()
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 60) == 0
            _, fresh = await stack.enter_async_context(servers.one())
            proxy.places[turn] = ("127.0.0.1", fresh.port)
        await more_done()
        over.set()
        await asyncio.gather(*loads)
    assert failed == []


# -- serve --workers


class Workers:
    """`toolgate serve --workers 2`."""

    def __init__(self, process: "subprocess.Popen[str]", said: dict[str, Any]) -> None:
        self.process = process
        self.pids: list[int] = said["workers"]
        self.site = Site(int(said["url"].rpartition(":")[2]))


@asynccontextmanager
async def two_workers(folder: Path) -> AsyncIterator[Workers]:
    command = [str(SCRIPT), "serve", "--port", "0", "--workers", "2", "--json"]
    with (folder / "workers.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), SOON)
        assert line, (folder / "workers.log").read_text()
        yield Workers(process, json.loads(line))
        assert process.stdout.read() == "" if process.poll() is not None else True
    finally:
        process.kill()  # its workers end by themselves when it is gone
        process.wait()
        process.stdout.close()


@pytest.fixture
def workshop(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Servers:
    return Servers(Terminal(tmp_path, monkeypatch, capsys), database)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_workers_share_a_port_and_are_replaced(workshop: Servers) -> None:
    """A session goes on in whichever worker gets its requests; a signal ends all, and the exit code is 0."""
    key = workshop.key("a")
    async with two_workers(workshop.terminal.folder) as workers:
        site = workers.site
        session = await Session.begin(site, key)
        for _ in range(12):
            assert SAID in (await session.call(site, "echo", text="x"))["content"][0]["text"]
            assert (await call(site, key, "x")).status == 200
        os.kill(workers.pids[1], signal.SIGKILL)
        for _ in range(12):  # a connection may reach the socket of the one that is gone, and waits there for the next
            assert SAID in (await session.call(site, "echo", text="x"))["content"][0]["text"]
        workers.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(workers.process.wait, 60) == 0
        assert not any(map(is_alive, workers.pids))
    assert f"process id {workers.pids[1]} was ended by signal 9" in (workshop.terminal.folder / "workers.log").read_text()


@pytest.mark.matrix("the same on either database")
async def test_workers_end_with_the_process_that_started_them(workshop: Servers) -> None:
    async with two_workers(workshop.terminal.folder) as workers:
        workers.process.kill()
        workers.process.wait()
        await eventually(lambda: not any(map(is_alive, workers.pids)))


def test_workers_that_can_t_start_say_why_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").write_text("a file where a folder should be")
    ended = subprocess.run(
        [SCRIPT, "serve", "--port", "0", "--workers", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SOON,
        check=False,
    )
    assert ended.returncode != 0 and ended.stdout == "" and ended.stderr.count("Error") == 1, ended.stderr


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_port_that_another_server_shares_is_in_use(workshop: Servers) -> None:
    async with two_workers(workshop.terminal.folder) as workers:
        command = [str(SCRIPT), "serve", "--port", str(workers.site.port), "--workers", "2"]
        again = await asyncio.to_thread(
            partial(subprocess.run, command, cwd=workshop.terminal.folder, capture_output=True, text=True, timeout=SOON)
        )
        assert again.returncode != 0 and "already in use" in again.stderr
