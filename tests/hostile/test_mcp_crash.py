"""MCP servers that crash, hang, flood, lie, and leave things behind: each fails alone, with a reason, and leaves nothing."""

import asyncio
import gc
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mcp_servers import BAD, Noting, alive, bad, call, descriptors, engine, standing, until
from toolgate.mcp.client import connection, handshake, stdio
from toolgate.mcp.client.errors import ConnectionLost, ErrorResponse, Unreachable
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.sandbox.jails.process_tree import descendants
from toolgate.settings import ServerSettings

pytestmark = pytest.mark.requirement("MCP-1")

ROOT = Path(__file__).parents[2]
MB = 1024 * 1024
HELD = {"isolation": "required", "read": (BAD,)}
"""In a jail."""
BOTH = pytest.mark.parametrize("held", [{"isolation": "none"}, HELD], ids=["plain", "jailed"])


@pytest.fixture(autouse=True)
def nothing_left() -> Any:
    """No process, and no descriptor, outlives a test."""
    before, files = set(descendants(os.getpid())), descriptors()
    yield
    gc.collect()
    end = time.monotonic() + 5  # what was killed a moment ago may still be dying
    while any(map(alive, come_since(before))) and time.monotonic() < end:
        time.sleep(0.01)
    assert [pid for pid in come_since(before) if alive(pid)] == []
    assert descriptors() <= files + 3  # what the loop and the threads of the first use keep


@pytest.fixture
def time_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, a program that is about to end does so before it is given up."""
    monkeypatch.setattr(stdio, "EXIT_SECONDS", 30.0)
    monkeypatch.setattr(connection, "REASON_SECONDS", 40.0)


def come_since(before: set[int]) -> set[int]:
    """The processes below us that are new; not those of servers that other tests have here, which start some at will."""
    return set(descendants(os.getpid())) - before - {below for pid in before for below in descendants(pid)}


# -- starting


@BOTH
@pytest.mark.usefixtures("time_to_end")
async def test_one_that_exits_on_start_says_why(held: Any) -> None:
    async with engine(one=bad("exits", **held)) as servers:
        with pytest.raises(
            Unreachable, match=r"is unavailable\. It exited with code 1\. The end of its stderr: no such database"
        ):
            await call(servers, "one", "echo")


@pytest.mark.matrix("waits for a time limit")
@BOTH
async def test_one_that_hangs_in_the_handshake_is_given_up_in_time(held: Any) -> None:
    async with engine(one=bad("hangs", start_seconds=1, restarts=1_000, **held)) as servers:
        began, said = time.monotonic(), ""
        while "waiting for Godot" not in said:  # a busy machine may not get it so far within a second
            with pytest.raises(Unreachable, match=r"within 1 s \(setting start_seconds\)") as caught:
                await call(servers, "one", "echo")
            said = str(caught.value)
            assert time.monotonic() - began < 30, said
            await asyncio.sleep(0.05)


async def test_what_it_says_of_its_secrets_is_shown_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with engine(one=bad("tells", env={"KEY": "{{secret:KEY}}"})) as servers:
        with pytest.raises(Unreachable, match="The end of its stderr: can't log in with") as caught:
            await call(servers, "one", "echo")
        shown = f"{caught.value} {standing(servers, 'one').failure} {caplog.text}"
        assert "restarted" in shown
        assert "sesame" not in shown


async def test_a_program_that_is_not_there_is_named() -> None:
    async with engine(one=ServerSettings(command=("/no/such/program",), isolation="none")) as servers:
        with pytest.raises(Unreachable, match="/no/such/program"):
            await call(servers, "one", "echo")


async def test_a_program_that_can_not_be_run_is_named(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x00 no program at all")
    program.chmod(0o755)
    async with engine(one=ServerSettings(command=(str(program),), isolation="none")) as servers:
        with pytest.raises(Unreachable, match=r"program cannot be started: Exec format error"):
            await call(servers, "one", "echo")


@pytest.mark.matrix("waits for starts that fail")
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("refuses", r"It refused the handshake: no licence \(-32603\)"),
        ("old", "It speaks protocol version '1999-12-31', which is not supported"),
        ("rubbish", "It printed more than 1 MB of output that is no JSON-RPC.*such as 'all work and no play"),
        ("does not read", "It did not complete the handshake within 1 s"),
    ],
)
async def test_a_start_that_fails_otherwise_says_why(how: str, words: str) -> None:
    async with engine(one=bad(how, start_seconds=1 if "within 1 s" in words else 30, output_bytes=MB)) as servers:
        with pytest.raises(Unreachable, match=words):
            await call(servers, "one", "echo")


@pytest.mark.matrix("waits for servers that misbehave")
@pytest.mark.parametrize("how", ["banner", "sloppy", "deaf to discover", "dies on discover"])
async def test_what_can_be_lived_with_is_lived_with(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "deaf to discover":
        monkeypatch.setattr(handshake, "DISCOVER_SECONDS", 1)
    async with engine(one=bad(how)) as servers:
        assert await call(servers, "one", "echo", say="hello") == "hello"
        assert [tool["name"] for tool in await servers["one"].listed("tools")] == ["echo", "die", "never", "slow"]


# -- in a call


@pytest.mark.matrix("starts a server anew several times")
@BOTH
@pytest.mark.usefixtures("time_to_end")
async def test_one_that_dies_in_a_call(held: Any) -> None:
    async with engine(one=bad(**held)) as servers:
        for _ in range(2):
            with pytest.raises(ConnectionLost, match=r"ended the connection before it answered\. It exited with code 3\.$"):
                await call(servers, "one", "die")
        assert await call(servers, "one", "echo", say="again") == "again"


@pytest.mark.matrix("starts a server anew several times")
@BOTH
async def test_one_that_dies_while_eight_calls_are_under_way(held: Any) -> None:
    async with engine(one=bad(**held)) as servers:
        await servers["one"].about()
        others = [asyncio.create_task(call(servers, "one", "never")) for _ in range(7)]
        await until(lambda: standing(servers, "one").under_way == 7, "all are under way")
        began = time.monotonic()
        ended = await asyncio.gather(*others, call(servers, "one", "die"), return_exceptions=True)
        assert [type(one) for one in ended] == [ConnectionLost] * 8
        assert time.monotonic() - began < 30
        said = await asyncio.gather(*(call(servers, "one", "echo", say=str(n)) for n in range(8)))
        assert said == [str(n) for n in range(8)]


@pytest.mark.matrix("waits until a stop is forced")
async def test_one_that_closes_its_output_and_lives_on_is_ended() -> None:
    async with engine(one=bad()) as servers:
        pid = int(await call(servers, "one", "pid"))
        with pytest.raises(ConnectionLost, match="It closed its output"):
            await call(servers, "one", "close_output")
        assert int(await call(servers, "one", "pid")) != pid
        await until(lambda: not alive(pid), "it is gone")


async def test_a_call_that_is_never_answered_is_cancelled_there_and_harms_no_other() -> None:
    async with engine(one=bad()) as servers:
        await servers["one"].about()
        slow = asyncio.create_task(call(servers, "one", "slow", seconds=0.5))
        arrived = asyncio.Event()

        async def never() -> None:
            async with asyncio.timeout(None) as patience:
                waiting = asyncio.create_task(call(servers, "one", "never"))
                await arrived.wait()
                patience.reschedule(asyncio.get_running_loop().time())
                await waiting

        giving_up = [asyncio.create_task(never()) for _ in range(8)]
        await until(lambda: standing(servers, "one").under_way == 9, "all are under way")
        await call(servers, "one", "echo")  # sent after them, so they have arrived
        arrived.set()
        ended = await asyncio.gather(*giving_up, return_exceptions=True)
        assert [type(one) for one in ended] == [TimeoutError] * 8
        assert await slow == "late"
        async with asyncio.timeout(30):
            while len(json.loads(await call(servers, "one", "cancelled"))) < 8:
                await asyncio.sleep(0.01)


@pytest.mark.matrix("waits for servers that misbehave")
async def test_one_that_stops_reading_holds_nobody_up() -> None:
    """What it is to be told waits; whoever gives up does so at once."""
    async with engine(one=bad(heartbeat_seconds=30, output_bytes=2 * MB)) as servers:
        pid = int(await call(servers, "one", "pid"))
        os.kill(pid, signal.SIGSTOP)
        for _ in range(3):
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await call(servers, "one", "echo", say="x" * MB)
            assert time.monotonic() - began < 25
        os.kill(pid, signal.SIGCONT)
        assert await call(servers, "one", "echo", say="awake") == "awake"


# -- what it says


@pytest.mark.matrix("waits for servers that misbehave")
@pytest.mark.parametrize(
    ("tool", "said"),
    [("garbage", "at last"), ("wrong_id", "yours"), ("text_id", "as text"), ("replay", "first")],
)
async def test_answers_that_are_none_are_passed_over(tool: str, said: str) -> None:
    async with engine(one=bad()) as servers:
        for _ in range(3):
            assert await call(servers, "one", tool) == said
        assert await call(servers, "one", "echo", say="well") == "well"
        assert standing(servers, "one").starts == 1


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("no_content", "without the required `content`"),
        ("no_object", "neither a valid result nor a valid error"),
        ("odd_error", "error has no message"),
    ],
)
async def test_answers_that_can_not_be_read_are_errors_of_that_call(tool: str, words: str) -> None:
    async with engine(one=bad()) as servers:
        with pytest.raises(ErrorResponse, match=words) as caught:
            await call(servers, "one", tool)
        assert caught.value.number == -32603
        assert await call(servers, "one", "echo", say="well") == "well"


async def test_content_of_a_kind_that_nobody_knows_is_data() -> None:
    async with engine(one=bad()) as servers:

        async def ask(tool: str) -> Any:
            return await servers["one"].request("tools/call", {"name": tool, "arguments": {}})

        assert await ask("odd_content") == {"content": [{"type": "hologram", "data": 1}], "extra": True}
        assert await ask("only_structured") == {"content": [], "structuredContent": {"n": 1}}
        assert await ask("several") == {"content": []}


@pytest.mark.matrix("sends fifty megabytes")
async def test_a_message_of_50_mb_ends_the_connection_with_a_reason() -> None:
    async with engine(one=bad(), two=bad()) as servers:
        await asyncio.gather(servers["one"].about(), servers["two"].about())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ConnectionLost, match=r"It sent a message of more than 1 MB \(setting output_bytes\)"):
            await call(servers, "one", "huge", bytes=50 * MB)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 120_000, "KB"
        assert await call(servers, "one", "echo", say="anew") == "anew"
        assert await call(servers, "two", "pid") != ""
        assert standing(servers, "two").starts == 1


async def test_a_message_just_as_long_as_it_may_be_is_taken() -> None:
    async with engine(one=bad(output_bytes=2 * MB)) as servers:
        assert len(await call(servers, "one", "huge", bytes=2 * MB - 1_000)) == 2 * MB - 1_000


async def test_a_line_without_end_is_not_waited_for() -> None:
    async with engine(one=bad(output_bytes=MB)) as servers:
        with pytest.raises(ConnectionLost, match="more than 1 MB"):
            await call(servers, "one", "endless", bytes=3 * MB)


@pytest.mark.matrix("floods for a while")
@BOTH
async def test_a_flood_on_stderr_holds_up_neither_it_nor_us(held: Any) -> None:
    async with engine(one=bad("noisy", **held), two=bad()) as servers:
        await servers["two"].about()
        for number in range(20):
            assert await call(servers, "one", "echo", say=str(number)) == str(number)
            began = time.monotonic()
            await call(servers, "two", "echo")
            assert time.monotonic() - began < 30
        assert await call(servers, "one", "stderr", lines=200_000) == "quiet"


async def test_tools_that_change_in_the_middle_of_calls_are_listed_anew() -> None:
    async with engine(one=bad()) as servers:
        for number in range(5):
            names = [f"tool_{number}_{n}" for n in range(20)]
            listing = [asyncio.create_task(servers["one"].listed("tools")) for _ in range(5)]
            await call(servers, "one", "change", tools=names)
            await asyncio.gather(*listing)
            assert [tool["name"] for tool in await servers["one"].listed("tools")] == names


@pytest.mark.parametrize(("how", "number"), [("pages", 1_000), ("many", 10_000), ("endless pages", 8)])
async def test_lists_are_bounded(how: str, number: int) -> None:
    async with engine(one=bad(how)) as servers:
        assert len(await servers["one"].listed("tools")) == number


async def test_a_list_that_is_none_is_an_error_of_the_list() -> None:
    async with engine(one=bad("no list")) as servers:
        with pytest.raises(ErrorResponse, match="answered tools/list without a list of tools"):
            await servers["one"].listed("tools")
        assert await call(servers, "one", "echo", say="well") == "well"


@pytest.mark.matrix("waits for a slow caller")
async def test_a_slow_caller_holds_up_neither_the_server_nor_others() -> None:
    class Slow(Noting):
        async def progress(self, *_: Any) -> None:
            await asyncio.sleep(30)

    async with engine(one=bad()) as servers:
        began = time.monotonic()
        assert await call(servers, "one", "steps", Slow(), steps=2_000) == "there"
        assert time.monotonic() - began < 25


async def test_log_lines_and_words_on_progress_are_bounded() -> None:
    async with engine(one=bad(output_bytes=2 * MB)) as servers:
        caller = Noting()
        await call(servers, "one", "logs", caller, who="x" * MB)
        ((level, data, _),) = caller.logs
        assert (level, type(data)) == ("warning", str)
        assert len(data) < 5_000


@pytest.mark.matrix("waits for a flood to end")
async def test_one_that_pesters_is_heard_only_so_much() -> None:
    async with engine(one=bad()) as servers:
        caller = Noting(None)
        assert await call(servers, "one", "pester", caller, times=2_000) == "pestered"
        assert len(caller.asked) == 8
        assert await call(servers, "one", "echo", say="well") == "well"


# -- one and the others


async def test_one_dead_and_one_hanging_server_never_delay_a_third() -> None:
    async with engine(dead=bad("exits"), hanging=bad("hangs", start_seconds=100), well=bad()) as servers:
        await servers["well"].about()
        lost = [asyncio.create_task(call(servers, name, "echo")) for name in ("dead", "hanging") for _ in range(20)]
        await asyncio.sleep(0.2)
        took = []
        for number in range(100):
            began = time.perf_counter()
            assert await call(servers, "well", "echo", say=str(number)) == str(number)
            took.append(time.perf_counter() - began)
        assert max(took) < 30
        assert standing(servers, "well").starts == 1
        for one in lost:
            one.cancel()
        await asyncio.gather(*lost, return_exceptions=True)


# -- what it leaves behind


@BOTH
async def test_children_that_mean_to_outlive_it_do_not(held: Any) -> None:
    async with engine(one=bad(**held)) as servers:
        before = set(descendants(os.getpid()))
        await call(servers, "one", "spawn")
        mine = come_since(before)
        assert len([pid for pid in mine if alive(pid)]) >= 3, "there is something to be ended"
        with pytest.raises(ConnectionLost):
            await call(servers, "one", "die")
        await until(lambda: not any(map(alive, mine)), "all of them are gone")


@pytest.mark.matrix("waits until a stop is forced")
@BOTH
@pytest.mark.parametrize("how", ["well", "stubborn"])
async def test_a_stop_ends_also_one_that_will_not(how: str, held: Any) -> None:
    before = set(descendants(os.getpid()))
    async with engine(one=bad(how, **held)) as servers:
        await call(servers, "one", "spawn")
        mine = come_since(before)
        assert mine
        began = time.monotonic()
        await servers["one"].stop()
        assert time.monotonic() - began < 30
        await until(lambda: not any(map(alive, mine)), "all of them are gone")


@pytest.mark.usefixtures("time_to_end")
async def test_one_that_ends_by_itself_when_its_input_ends_is_not_killed(tmp_path: Path) -> None:
    note = tmp_path / "note"
    command = ("/bin/sh", "-c", f'trap "" TERM; "$0" "$@"; echo "ended with $?" > {note}', *bad().command)
    async with engine(one=bad(command=command)) as servers:
        await servers["one"].about()
        await servers["one"].stop()
        assert note.read_text() == "ended with 0\n"


US = """
import asyncio, os, sys
from tests.mcp_servers import bad, call, engine
from tests.hostile.test_mcp_crash import HELD

async def main():
    async with engine(plain=bad(), held=bad(**(HELD if sys.argv[1] == "jailed" else {}))) as servers:
        await call(servers, "plain", "spawn")
        await call(servers, "held", "spawn")
        print("up", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.matrix("kills processes and waits for theirs")
@pytest.mark.parametrize("way", ["plain", "jailed"])
def test_kill_9_of_ours_leaves_none_alive(way: str) -> None:
    ours = subprocess.Popen([sys.executable, "-c", US, way], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert ours.stdout is not None
        assert ours.stdout.readline() == "up\n"
        theirs = descendants(ours.pid)
        assert len(theirs) >= 8
    finally:
        ours.kill()
        ours.communicate()
    end = time.monotonic() + 30
    while any(map(alive, theirs)) and time.monotonic() < end:
        time.sleep(0.02)
    assert [pid for pid in theirs if alive(pid)] == []


@pytest.mark.matrix("kills processes and waits for theirs")
def test_a_program_whose_keeper_is_killed_ends_too() -> None:
    async def main() -> list[int]:
        async with engine(one=bad()) as servers:
            program = int(await call(servers, "one", "pid"))
            keeper = standing(servers, "one").pid
            assert keeper is not None
            os.kill(keeper, signal.SIGKILL)
            await until(lambda: not alive(program), "the program is gone")
            return [program, keeper]

    assert not any(map(alive, asyncio.run(main())))


# -- all at once


@pytest.mark.matrix("many random interleavings of real processes")
@pytest.mark.parametrize("seed", range(2))
async def test_whatever_happens_at_the_same_time_every_call_ends(seed: int) -> None:
    """Calls, lists, deaths, callers that go away, stops, restarts and changes, in any order."""
    chance = random.Random(seed)
    async with engine(one=bad(restarts=1_000), two=bad(restarts=1_000)) as servers:

        async def act(number: int) -> None:
            name = chance.choice(("one", "two"))
            await asyncio.sleep(chance.random() * 2)
            what = chance.choice(("call",) * 10 + ("list", "die", "stop", "restart", "change", "leave", "never"))
            if what == "call":
                assert await call(servers, name, "slow", seconds=chance.random() / 5, say=str(number)) == str(number)
            elif what == "list":
                await servers[name].listed("tools", fresh=True)
            elif what == "die":
                await call(servers, name, "die")
            elif what == "stop":
                await servers[name].stop()
            elif what == "restart":
                await servers[name].restart()
            elif what == "change":
                servers.set(name, bad(restarts=1_000, env={"NUMBER": str(number)}))
            else:
                async with asyncio.timeout(chance.random() / 3):
                    await call(servers, name, "never" if what == "never" else "echo")

        async with asyncio.timeout(90):
            ended = await asyncio.gather(*(act(number) for number in range(150)), return_exceptions=True)
        unexpected = [
            one for one in ended if one is not None and not isinstance(one, ConnectionLost | Unreachable | TimeoutError)
        ]
        assert unexpected == []
        assert ended.count(None) > 20
        assert [await call(servers, name, "echo", say="well") for name in ("one", "two")] == ["well", "well"]
        assert [one.under_way for one in servers.statuses()] == [0, 0]


# -- again and again


async def cycles(servers: UpstreamServers, number: int) -> None:
    """Start and stop, now and then in a bad way."""
    for turn in range(number):
        assert await call(servers, "one", "echo", say=str(turn)) == str(turn)
        await servers["one"].listed("tools")
        if turn % 5 == 4:
            with pytest.raises(ConnectionLost):
                await call(servers, "one", "die")
        else:
            await servers["one"].stop()


async def repeat(number: int, **held: Any) -> None:
    async with engine(one=bad(restarts=1_000, **held)) as servers:
        await cycles(servers, 5)
        gc.collect()
        files, tasks, things = descriptors(), len(asyncio.all_tasks()), len(gc.get_objects())
        memory = _memory()
        await cycles(servers, number)
        await servers["one"].stop()
        gc.collect()
        await until(lambda: descriptors() <= files, "no descriptor is left")
        await until(lambda: len(asyncio.all_tasks()) <= tasks, "no task is left")
        assert len(gc.get_objects()) - things < 1_000 + 10 * number
        assert _memory() - memory < 20 * MB
        assert [pid for pid in descendants(os.getpid()) if b"server.py" in _command(pid)] == []


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.matrix("starts and stops servers many times")
@BOTH
async def test_starting_and_stopping_leaves_nothing(held: Any) -> None:
    await repeat(25, **held)


@pytest.mark.slow
@pytest.mark.timeout(600)
@BOTH
async def test_starting_and_stopping_500_times_leaves_nothing(held: Any) -> None:
    await repeat(500, **held)


# -- what is read and written


MESSAGES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "code", "message"]), inner
        )
    ),
    max_leaves=12,
)


@given(value=MESSAGES)
def test_whatever_json_a_server_prints_is_a_message_with_sound_fields_or_none(value: Any) -> None:
    from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

    from toolgate.mcp.client.stdio import decode

    for message in decode(json.dumps(value).encode()):
        if isinstance(message, JSONRPCRequest | JSONRPCNotification):
            assert isinstance(message.method, str)
            assert message.params is None or isinstance(message.params, dict)
        if isinstance(message, JSONRPCResponse):
            assert isinstance(message.result, dict)
        if isinstance(message, JSONRPCError):
            assert isinstance(message.error.code, int)
            assert isinstance(message.error.message, str)
        if not isinstance(message, JSONRPCNotification):
            assert isinstance(message.id, str | int)
            assert not isinstance(message.id, bool)


@given(line=st.binary(max_size=200))
def test_whatever_bytes_a_server_prints_nothing_breaks(line: bytes) -> None:
    from toolgate.mcp.client.stdio import decode

    assert isinstance(decode(line), list)


@given(arguments=st.dictionaries(st.text(), MESSAGES))
def test_what_is_sent_is_one_line_that_says_the_same(arguments: dict[str, Any]) -> None:
    from mcp_types import JSONRPCRequest

    from toolgate.mcp.client.stdio import encode

    line = encode(JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params={"arguments": arguments}))
    assert line.count(b"\n") == 1
    assert json.loads(line)["params"]["arguments"] == arguments
