"""The engine for MCP servers: they start when needed, are asked, say what they have, are looked after and stopped."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_servers import SOON, Noting, alive, bad, call, engine, has_come, standing, until, web
from toolgate.mcp.client import subscriptions
from toolgate.mcp.client.connection import Connection
from toolgate.mcp.client.errors import ConnectionLost, ErrorResponse, InputRequired, Unreachable
from toolgate.model import MASK
from toolgate.settings import ServerSettings

pytestmark = pytest.mark.requirement("MCP-1")

UPSTREAM = (sys.executable, "-m", "tests.conformance.upstream", "--stdio")
ROOT = Path(__file__).parents[2]


def modern(**settings: Any) -> ServerSettings:
    """A server of protocol 2026-07-28."""
    return ServerSettings(**{"command": UPSTREAM, "cwd": ROOT, "isolation": "none", **settings})


def told(found: list[Any]) -> Any:
    return lambda *event: found.append(event)


# -- starting and asking


async def test_nothing_is_started_before_it_is_needed() -> None:
    async with engine(one=bad()) as servers:
        assert standing(servers, "one").state == "idle"
        assert standing(servers, "one").pid is None
        assert await call(servers, "one", "echo", say="hello") == "hello"
        assert (standing(servers, "one").state, standing(servers, "one").starts) == ("up", 1)


def test_the_engine_can_be_imported_without_the_sdk() -> None:
    heavy = ("mcp", "mcp_types", "aiohttp", "httpx2", "anyio", "starlette")
    code = f"import sys, toolgate.mcp.client.servers; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


async def test_many_who_want_it_at_once_start_it_once() -> None:
    async with engine(one=bad()) as servers:
        said = await asyncio.gather(*(call(servers, "one", "echo", say=str(n)) for n in range(20)))
        assert said == [str(n) for n in range(20)]
        assert standing(servers, "one").starts == 1


async def test_an_old_server_says_what_it_is() -> None:
    async with engine(one=bad()) as servers:
        about = await servers["one"].about()
        assert about.protocol == "2025-11-25"
        assert about.info == {"name": "bad", "version": "1"}
        assert about.capabilities["tools"] == {"listChanged": True}


async def test_a_modern_server_says_what_it_is() -> None:
    async with engine(one=modern()) as servers:
        about = await servers["one"].about()
        assert about.protocol == "2026-07-28"
        assert about.info["name"] == "toolgate-fixture"
        assert await call(servers, "one", "test_simple_text") == "This is a simple text response for testing."


async def test_a_protocol_error_keeps_its_number_and_words() -> None:
    async with engine(one=bad()) as servers:
        with pytest.raises(ErrorResponse) as caught:
            await call(servers, "one", "error")
        assert caught.value.number == -32602
        assert caught.value.words == "not like this[31m", "what a terminal would obey is taken out"


async def test_a_server_that_is_not_there_is_named() -> None:
    async with engine(one=bad()) as servers:
        with pytest.raises(Unreachable, match="There is no server named 'two'"):
            await servers["two"].request("tools/call", {})


async def test_one_that_is_not_enabled_is_not_started() -> None:
    async with engine(one=bad(enabled=False)) as servers:
        with pytest.raises(Unreachable, match="Server one is not enabled"):
            await call(servers, "one", "echo")
        assert standing(servers, "one").state == "off"


async def test_a_program_has_only_the_environment_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_OWN", "not yours")
    async with engine(one=bad(env={"GIVEN": "yes", "KEY": "{{secret:KEY}}"})) as servers:
        found = json.loads(await call(servers, "one", "environment"))
        assert found["GIVEN"] == "yes"
        assert found["KEY"] == MASK, "it has it, and we don't show it"
        assert "OUR_OWN" not in found


async def test_a_modern_server_that_wants_to_know_more_is_not_answered_by_us() -> None:
    async with engine(one=modern()) as servers:
        with pytest.raises(InputRequired) as caught:
            await call(servers, "one", "test_input_required_result_elicitation", Noting())
        (asked,) = caught.value.requests.values()
        assert asked["method"] == "elicitation/create"


async def test_what_a_modern_server_is_told_of_abilities_is_what_this_caller_can() -> None:
    async with engine(one=modern()) as servers:
        able, unable = Noting(), Noting(capabilities={})
        with pytest.raises(InputRequired) as caught:
            await call(servers, "one", "test_input_required_result_capabilities", able)
        assert {one["method"] for one in caught.value.requests.values()} == {"elicitation/create", "sampling/createMessage"}
        with pytest.raises(ErrorResponse) as refused:
            await call(servers, "one", "test_missing_capability", unable)
        assert refused.value.number == -32021
        assert refused.value.data["requiredCapabilities"]


# -- what belongs to whom


async def test_progress_goes_to_the_call_that_it_is_of_in_order_and_before_the_answer() -> None:
    async with engine(one=bad()) as servers:
        first, second = Noting(), Noting()
        await asyncio.gather(call(servers, "one", "steps", first, steps=5), call(servers, "one", "steps", second, steps=3))
        assert first.steps == [(float(n), 10.0, "on") for n in range(5)]
        assert second.steps == [(float(n), 10.0, "on") for n in range(3)]


async def test_a_log_line_goes_to_the_only_caller_from_the_level_that_it_wants() -> None:
    async with engine(one=bad()) as servers:
        caller = Noting()
        caller.log_level = "warning"
        await call(servers, "one", "logs", caller, who="me")
        assert caller.logs == [("warning", {"level": "warning", "who": "me"}, "bad")]
        assert await call(servers, "one", "level") == "warning", "the server was told what is wanted"


async def test_a_log_line_that_could_be_of_two_calls_is_nobodys() -> None:
    async with engine(one=bad()) as servers:
        first, second = Noting(), Noting()
        await call(servers, "one", "level", first)  # from now on it knows which logs are wanted, and is asked nothing first
        waiting = asyncio.create_task(call(servers, "one", "slow", second, seconds=60))
        await until(lambda: standing(servers, "one").under_way == 1, "the first call is under way")
        await call(servers, "one", "logs", first, seconds=0)
        waiting.cancel()
        assert first.logs == second.logs == []


ASKS = [
    ("elicitation/create", {"message": "who?"}, {"action": "accept", "content": {"name": "ann"}}),
    (
        "sampling/createMessage",
        {"messages": []},
        {"role": "assistant", "model": "m", "content": {"type": "text", "text": "x"}},
    ),
]


@pytest.mark.parametrize(("method", "params", "reply"), ASKS)
async def test_a_question_of_an_old_server_is_put_to_the_only_caller(
    method: str, params: Mapping[str, Any], reply: Mapping[str, Any]
) -> None:
    async with engine(one=bad()) as servers:
        caller = Noting(reply)
        assert json.loads(await call(servers, "one", "ask", caller, method=method, params=params)) == reply
        assert caller.asked == [(method, params)]


async def test_a_question_that_could_be_of_two_calls_is_dismissed() -> None:
    """Be it that the other one has nobody who can be asked: the question may be its own."""
    async with engine(one=bad()) as servers:
        asking, other = Noting({"action": "accept"}), Noting({"action": "accept"})
        await call(servers, "one", "level", other)  # from now on it knows which logs are wanted, and is asked nothing first
        for beside in (other, None):
            waiting = asyncio.create_task(call(servers, "one", "slow", beside, seconds=60))
            await until(lambda: standing(servers, "one").under_way == 1, "the first call is under way")
            said = await call(servers, "one", "ask", asking, method="elicitation/create")
            assert json.loads(said) == {"action": "cancel"}
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert asking.asked == other.asked == []


@pytest.mark.parametrize(
    ("method", "code"), [("sampling/createMessage", -1), ("roots/list", -32601), ("tools/list", -32601)]
)
async def test_what_a_caller_can_not_be_asked_is_refused(method: str, code: int) -> None:
    async with engine(one=bad()) as servers:
        caller = Noting({}, capabilities={"elicitation": {}})
        assert json.loads(await call(servers, "one", "ask", caller, method=method))["code"] == code
        assert caller.asked == []


async def test_an_old_server_may_ask_whether_we_are_there() -> None:
    async with engine(one=bad()) as servers:
        assert json.loads(await call(servers, "one", "ask", method="ping")) == {}


@pytest.mark.parametrize("how", ["well", "cookies"], ids=["quick way", "the SDK's way"])
async def test_over_http_a_question_goes_to_the_caller_on_whose_stream_it_came(how: str) -> None:
    with web(how) as url:
        async with engine(one=ServerSettings(url=url)) as servers:
            callers = [Noting({"action": "accept", "content": {"who": n}}) for n in range(6)]
            said = await asyncio.gather(
                *(call(servers, "one", "ask", caller, message=f"who? {n}") for n, caller in enumerate(callers)),
                call(servers, "one", "ask", message="nobody is there"),
            )
            assert [json.loads(one) for one in said[:6]] == [{"action": "accept", "content": {"who": n}} for n in range(6)]
            assert json.loads(said[6]) == {"action": "cancel"}
            assert [caller.asked[0][1]["message"] for caller in callers] == [f"who? {n}" for n in range(6)]
            assert all(len(caller.asked) == 1 for caller in callers)


@pytest.mark.parametrize("how", ["well", "cookies"], ids=["quick way", "the SDK's way"])
async def test_a_question_on_the_stream_of_no_call_goes_to_the_only_caller_or_to_nobody(how: str) -> None:
    with web(how) as url:
        async with engine(one=ServerSettings(url=url)) as servers:
            alone = Noting({"action": "accept", "content": {}})
            assert json.loads(await call(servers, "one", "ask", alone, aside=True)) == {"action": "accept", "content": {}}
            callers = [Noting({"action": "accept", "content": {}}) for _ in range(2)]
            both = (call(servers, "one", "ask", caller, aside=True, both=True) for caller in callers)
            said = [json.loads(one) for one in await asyncio.gather(*both)]
            assert {"action": "cancel"} in said, "the first question came while two were under way"
            assert sum(len(caller.asked) for caller in callers) == said.count({"action": "accept", "content": {}})


async def test_a_session_that_the_server_has_forgotten_is_begun_anew() -> None:
    with web("forgetful") as url:
        async with engine(one=ServerSettings(url=url)) as servers:
            for _ in range(12):
                assert await call(servers, "one", "ask", plain=True) == "plain"
            assert standing(servers, "one").starts >= 3


# -- cancelling


async def test_a_caller_that_goes_away_is_told_to_the_server_and_the_connection_lives_on() -> None:
    async with engine(one=bad()) as servers:
        never = asyncio.create_task(call(servers, "one", "never"))
        await has_come(servers, "one", "never")
        never.cancel()
        await asyncio.wait({never})
        assert len(json.loads(await call(servers, "one", "cancelled"))) == 1
        assert (standing(servers, "one").starts, standing(servers, "one").under_way) == (1, 0)


async def test_a_question_is_dropped_when_its_call_is_given_up() -> None:
    async with engine(one=bad()) as servers:
        caller = Noting(None)
        waiting = asyncio.create_task(call(servers, "one", "ask", caller, method="elicitation/create"))
        await until(lambda: len(caller.asked) == 1, "it was asked")
        waiting.cancel()
        await asyncio.wait({waiting})
        assert await call(servers, "one", "echo", say="still there") == "still there"


# -- lists


async def test_a_list_is_asked_for_once_and_again_when_the_server_says_that_it_changed() -> None:
    events: list[Any] = []
    async with engine(one=bad()) as servers:
        servers.listen(told(events))
        names = [tool["name"] for tool in await servers["one"].listed("tools")]
        assert names == ["echo", "die", "never", "slow"]
        assert await servers["one"].listed("tools") is await servers["one"].listed("tools")
        await call(servers, "one", "change", tools=["echo", "new"])
        await until(lambda: ("one", "tools", None) in events, "the change is told")
        assert [tool["name"] for tool in await servers["one"].listed("tools")] == ["echo", "new"]


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_modern_server_tells_of_changes_too_and_its_list_is_kept_no_longer_than_it_says() -> None:
    events: list[Any] = []
    async with engine(one=modern()) as servers:
        servers.listen(told(events))
        before = {tool["name"] for tool in await servers["one"].listed("tools")}
        await call(servers, "one", "test_trigger_tool_change")
        await until(lambda: ("one", "tools", None) in events, "the change is told")
        after = {tool["name"] for tool in await servers["one"].listed("tools")}
        assert before ^ after == {"test_added_tool"}


async def test_all_pages_are_read() -> None:
    async with engine(one=bad("pages")) as servers:
        assert [tool["name"] for tool in await servers["one"].listed("tools")] == [f"tool_{n}" for n in range(1_000)]


async def test_a_server_without_prompts_has_none() -> None:
    async with engine(one=bad()) as servers:
        assert await servers["one"].listed("prompts") == []


async def test_those_who_say_the_same_again_and_again_are_passed_on_now_and_then() -> None:
    events: list[Any] = []
    async with engine(one=bad()) as servers:
        servers.listen(told(events))
        began = time.monotonic()
        await call(servers, "one", "change", tools=["x"], times=2_000)
        await until(lambda: ("one", "tools", None) in events, "it is told")
        await asyncio.sleep(0.6)
        assert events.count(("one", "tools", None)) <= 2 + (time.monotonic() - began) / subscriptions.MIN_NOTIFY_SECONDS


@pytest.mark.matrix("waits for notifications")
@pytest.mark.parametrize("settings", [bad(), modern()], ids=["old", "modern"])
async def test_whoever_subscribes_hears_of_a_resource_until_the_last_has_left(settings: ServerSettings) -> None:
    uri = "test://watched-resource"
    events: list[Any] = []
    touch = ("touch", {"uri": uri}) if settings.cwd is None else ("test_trigger_resource_change", {})
    async with engine(one=settings) as servers:
        servers.listen(told(events))

        async def heard(seconds: float) -> bool:
            events.clear()
            end = time.monotonic() + seconds
            while ("one", "resource", uri) not in events and time.monotonic() < end:
                await call(servers, "one", touch[0], **touch[1])
                await asyncio.sleep(0.05)
            return ("one", "resource", uri) in events

        await servers["one"].subscribe(uri)
        await servers["one"].subscribe(uri)
        assert await heard(SOON)
        await servers["one"].unsubscribe(uri)
        await asyncio.sleep(0.5)
        assert await heard(SOON), "another one wants to hear of it"
        await servers["one"].restart()
        assert await heard(SOON), "also after it was started anew"
        await servers["one"].unsubscribe(uri)
        await asyncio.sleep(0.5)
        if settings.cwd is None:  # that one says it to anybody
            assert json.loads(await call(servers, "one", "subscribed")) == []
        else:
            async with asyncio.timeout(SOON):
                while await heard(0.5):
                    pass


# -- being looked after


async def test_a_server_that_dies_is_started_anew_and_says_so() -> None:
    events: list[Any] = []
    async with engine(one=bad()) as servers:
        servers.listen(told(events))
        before = await call(servers, "one", "pid")
        with pytest.raises(ConnectionLost, match=r"It exited with code 3\.$"):
            await call(servers, "one", "die")
        assert await call(servers, "one", "pid") != before
        assert [what for _, what, _ in events if what != "step"] == ["up", "down", "up"]


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_server_that_does_not_start_is_tried_a_few_times_then_left_alone_then_tried_once() -> None:
    async with engine(one=bad("exits", restarts=2, rest_seconds=1.0)) as servers:
        with pytest.raises(Unreachable, match=r"It exited with code 1\. The end of its stderr: no such database"):
            await call(servers, "one", "echo")
        await until(lambda: standing(servers, "one").state == "resting", "it rests")
        assert standing(servers, "one").starts == 4, "one of them to find out whether it minds the new protocol"
        assert (standing(servers, "one").next_try or 0) <= 1.0
        await until(lambda: standing(servers, "one").starts == 5, "it is tried once more")
        await until(lambda: standing(servers, "one").state == "resting", "it rests again")
        assert standing(servers, "one").starts == 5


async def test_whoever_calls_a_server_that_rests_is_told_at_once_when_the_next_try_is() -> None:
    async with engine(one=bad("exits", restarts=0, rest_seconds=600)) as servers:
        with pytest.raises(Unreachable):
            await call(servers, "one", "echo")
        await until(lambda: standing(servers, "one").state == "resting", "it rests")
        began = time.monotonic()
        with pytest.raises(Unreachable, match=r"no such database The next start is in (5\d\d|600) s\."):
            await call(servers, "one", "echo")
        assert time.monotonic() - began < 60
        assert standing(servers, "one").starts == 2


async def test_a_trial_that_succeeds_makes_all_well(tmp_path: Path) -> None:
    there = tmp_path / "there"
    command = ("/bin/sh", "-c", f'test -e {there} || exit 1; exec "$0" "$@"', *bad().command)
    async with engine(one=bad(command=command, restarts=1, rest_seconds=0.3)) as servers:
        with pytest.raises(Unreachable):
            await call(servers, "one", "echo")
        await until(lambda: standing(servers, "one").state == "resting", "it rests")
        there.touch()
        await until(lambda: standing(servers, "one").state == "up", "it is up")
        assert await call(servers, "one", "echo", say="well") == "well"
        assert standing(servers, "one").failure is None


async def test_whoever_restarts_a_server_that_rests_need_not_wait(tmp_path: Path) -> None:
    there = tmp_path / "there"
    command = ("/bin/sh", "-c", f'test -e {there} || exit 1; exec "$0" "$@"', *bad().command)
    async with engine(one=bad(command=command, restarts=0, rest_seconds=600)) as servers:
        with pytest.raises(Unreachable):
            await call(servers, "one", "echo")
        await until(lambda: standing(servers, "one").state == "resting", "it rests")
        there.touch()
        await servers["one"].restart()
        assert await call(servers, "one", "echo", say="well") == "well"


async def test_one_that_starts_and_ends_at_once_again_and_again_is_left_alone() -> None:
    async with engine(one=bad("short", restarts=2, rest_seconds=60)) as servers:
        await servers["one"].about()
        await until(lambda: standing(servers, "one").state == "resting", "it rests")
        assert standing(servers, "one").starts == 3


async def test_a_server_that_does_not_answer_its_heartbeat_is_started_anew() -> None:
    async with engine(one=bad("silent", heartbeat_seconds=0.2)) as servers:
        before = await call(servers, "one", "pid")
        await until(lambda: standing(servers, "one").starts >= 2, "it is started anew")
        assert await call(servers, "one", "pid") != before


@pytest.mark.matrix("waits for heartbeats")
async def test_a_server_that_answers_its_heartbeat_is_left_in_peace() -> None:
    for _ in range(5):  # more than once only where the machine held a server up for as long as it may be silent
        async with engine(old=bad(heartbeat_seconds=0.5), new=modern(heartbeat_seconds=0.5)) as servers:
            await asyncio.gather(servers["old"].about(), servers["new"].about())
            await asyncio.sleep(1.7)
            stand = [(one.state, one.starts) for one in servers.statuses()]
        if stand == [("up", 1), ("up", 1)]:
            break
    assert stand == [("up", 1), ("up", 1)]


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_server_is_left_in_peace_whose_answer_came_while_this_process_was_held_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beat = Connection.beat

    async def held_up(connection: Connection) -> None:
        beating = asyncio.ensure_future(beat(connection))
        await asyncio.sleep(0)
        time.sleep(0.7)
        await beating

    monkeypatch.setattr(Connection, "beat", held_up)
    for _ in range(5):  # as above
        async with engine(one=bad(heartbeat_seconds=0.5)) as servers:
            await servers["one"].about()
            await asyncio.sleep(1.7)
            starts = standing(servers, "one").starts
        if starts == 1:
            break
    assert starts == 1


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_server_with_one_thread_may_work_longer_than_a_heartbeat() -> None:
    async with engine(one=bad(heartbeat_seconds=0.2, timeout=60)) as servers:
        assert await call(servers, "one", "busy", seconds=1.5) == "done"
        assert standing(servers, "one").starts == 1


async def test_a_program_that_nobody_calls_is_stopped_until_it_is_called() -> None:
    async with engine(one=bad(idle_seconds=0.3)) as servers:
        pid = int(await call(servers, "one", "pid"))
        assert await call(servers, "one", "slow", seconds=0.6, say="not while it works") == "not while it works"
        await until(lambda: not alive(pid), "it is stopped")
        await until(lambda: standing(servers, "one").state == "idle", "it is known")
        assert int(await call(servers, "one", "pid")) != pid


async def test_one_that_is_changed_is_started_anew_when_it_is_next_needed() -> None:
    async with engine(one=bad(env={"WHO": "first"})) as servers:
        pid = int(await call(servers, "one", "pid"))
        servers.set("one", bad(env={"WHO": "first"}))
        assert int(await call(servers, "one", "pid")) == pid, "nothing has changed"
        servers.set("one", bad(env={"WHO": "second"}))
        assert json.loads(await call(servers, "one", "environment"))["WHO"] == "second"
        assert not alive(pid)


async def test_one_that_is_removed_is_stopped_and_whoever_waits_is_told() -> None:
    async with engine(one=bad()) as servers:
        pid = int(await call(servers, "one", "pid"))
        waiting = asyncio.create_task(call(servers, "one", "never"))
        await until(lambda: standing(servers, "one").under_way == 1, "it is called")
        await servers.remove("one")
        with pytest.raises(ConnectionLost):
            await waiting
        assert not alive(pid)
        assert servers.names() == []


async def test_stop_and_restart() -> None:
    async with engine(one=bad()) as servers:
        first = int(await call(servers, "one", "pid"))
        await servers["one"].stop()
        assert (alive(first), standing(servers, "one").state) == (False, "idle")
        second = int(await call(servers, "one", "pid"))
        await servers["one"].restart()
        assert standing(servers, "one").state == "up"
        assert len({first, second, int(await call(servers, "one", "pid"))}) == 3
