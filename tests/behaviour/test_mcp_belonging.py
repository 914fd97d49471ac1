"""What a server says of one call is for whoever made it and for nobody else; and it has the time that the call was given."""

import asyncio
import time
from typing import Any

import pytest

from tests.mcp_servers import SOON, Noting, bad, call, engine, has_come, standing, until
from toolgate.mcp.client.errors import ConnectionLost, Restarted, Unreachable

pytestmark = pytest.mark.requirement("MCP-1")

GOUT = "ada's diagnosis: gout"


async def given_up(servers: Any, *, answers: bool) -> None:
    """A call of Ada's that she does not wait for, and that the server goes on with."""
    ada = Noting({"action": "accept"})
    task = asyncio.create_task(call(servers, "one", "late", ada, words=GOUT, answers=answers))
    await has_come(servers, "one", "late")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def is_late(servers: Any) -> None:
    async with asyncio.timeout(SOON):
        while await call(servers, "one", "is_late") != "True":
            await asyncio.sleep(0.01)


async def test_what_is_asked_of_a_call_that_was_given_up_is_not_asked_of_another_caller() -> None:
    async with engine(one=bad()) as servers:
        await servers["one"].about()
        bob = Noting({"action": "accept"})
        other = asyncio.create_task(call(servers, "one", "slow", bob, seconds=1.0, say="bob's"))
        await has_come(servers, "one", "slow")
        ada = asyncio.create_task(call(servers, "one", "late", Noting({"action": "accept"}), words=GOUT))
        await has_come(servers, "one", "late")
        ada.cancel()
        await is_late(servers)
        assert await other == "bob's"
        assert (bob.asked, bob.logs) == ([], [])


async def test_as_long_as_the_server_may_still_be_at_it_nobody_is_asked() -> None:
    async with engine(one=bad()) as servers:
        await given_up(servers, answers=False)
        await is_late(servers)
        bob = Noting({"action": "accept"})
        assert await call(servers, "one", "ask", bob, method="elicitation/create") == '{"action": "cancel"}'
        assert bob.asked == []


async def test_once_it_was_answered_after_all_the_next_caller_is_asked_again() -> None:
    async with engine(one=bad()) as servers:
        await given_up(servers, answers=True)
        await is_late(servers)
        bob = Noting({"action": "accept"})
        assert await call(servers, "one", "ask", bob, method="elicitation/create") == '{"action": "accept"}'


async def test_a_server_that_is_started_anew_has_forgotten_it() -> None:
    async with engine(one=bad()) as servers:
        await given_up(servers, answers=False)
        await servers["one"].restart()
        bob = Noting({"action": "accept"})
        assert await call(servers, "one", "ask", bob, method="elicitation/create") == '{"action": "accept"}'


# -- last words


async def test_the_last_words_of_a_server_that_died_in_a_call_are_for_operators(caplog: pytest.LogCaptureFixture) -> None:
    async with engine(one=bad(restarts=0, rest_seconds=60)) as servers:
        with pytest.raises(ConnectionLost, match="It exited with code 1") as hers:
            await call(servers, "one", "dies_of", words=GOUT)
        await until(lambda: standing(servers, "one").state == "resting", "it rests")
        with pytest.raises(Unreachable, match=r"It exited with code 1\..*The next start") as his:
            await call(servers, "one", "echo")
        for error in (hers.value, his.value):
            assert "gout" not in repr([error.message, error.args, error.details, error.reason, str(error)])
        assert f"The end of its stderr: {GOUT}" in str(standing(servers, "one").failure)
        assert GOUT in caplog.text


# -- which program answers


async def test_a_request_can_be_for_the_very_program_that_was_looked_at() -> None:
    async with engine(one=bad()) as servers:
        await servers["one"].about()
        start = servers["one"].starts
        said = await servers["one"].request("ping", {}, start=start)
        assert said == {}
        with pytest.raises(ConnectionLost):
            await call(servers, "one", "die")
        with pytest.raises(Restarted, match="was restarted"):
            await servers["one"].request("ping", {}, start=start)
        assert await servers["one"].request("ping", {}, start=servers["one"].starts) == {}


# -- time


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_server_has_the_time_that_a_call_was_given_however_silent_it_is() -> None:
    async with engine(one=bad(heartbeat_seconds=0.2)) as servers:
        params = {"name": "busy", "arguments": {"seconds": 2.0}}
        said = await servers["one"].request("tools/call", params, seconds=60)
        assert said["content"][0]["text"] == "done"
        assert standing(servers, "one").starts == 1


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_one_that_hangs_is_started_anew_though_calls_keep_coming() -> None:
    async with engine(one=bad(heartbeat_seconds=0.2)) as servers:
        await servers["one"].about()
        calls = []
        began = time.monotonic()
        while standing(servers, "one").starts == 1 and time.monotonic() - began < SOON:
            params = {"name": "busy", "arguments": {"seconds": 30}}
            calls.append(asyncio.create_task(servers["one"].request("tools/call", params, seconds=0.6)))
            asyncio.get_running_loop().call_later(0.6, calls[-1].cancel)
            await asyncio.sleep(0.1)
        assert standing(servers, "one").starts > 1
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
