"""A server that says far too much harms nobody but itself: the others are served as ever, and memory stays what it was."""

import asyncio
import json
import time
from typing import Any

import pytest

from tests.mcp_servers import Noting, bad, call, engine
from toolgate.jsontext import MAX_JSON_VALUES, holds_too_much
from toolgate.mcp.client.errors import ErrorResponse
from toolgate.mcp.client.stdio import decode

pytestmark = pytest.mark.requirement("MCP-1")

FLOODS = {
    "notifications that nobody knows": '{"method":"x"}',
    "log lines": '{"method":"notifications/message","params":{"level":"info","data":"x"}}',
    "resources that nobody asked about": '{"method":"notifications/resources/updated","params":{"uri":"test://1"}}',
    "pings": '{"id":7,"method":"ping"}',
    "questions": '{"id":7,"method":"elicitation/create","params":{}}',
    "answers to nothing": '{"id":77777,"result":{}}',
    "rubbish": "x",
    "almost messages": "{x",
    "lists of messages": "[" + ",".join(['{"method":"x"}'] * 100) + "]",
}
SHORT = ("rubbish", "almost messages")
"""Of these the server's connection does not last long."""
NUMBERS = ",".join("1" * (MAX_JSON_VALUES + 10))


async def stall(seconds: float) -> float:
    """The longest that the event loop kept others waiting: by its own work, not by a machine that is busy with others'."""
    worst, end = 0.0, time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        worked = time.thread_time()
        await asyncio.sleep(0.01)
        worst = max(worst, time.thread_time() - worked)
        assert time.monotonic() - began < 30
    return worst


@pytest.mark.matrix("floods for a second each")
@pytest.mark.parametrize("what", FLOODS)
async def test_a_flood_does_not_hold_up_the_others(what: str) -> None:
    async with engine(bad=bad(), well=bad()) as servers:
        await servers["well"].about()
        await call(servers, "bad", "flood", line=FLOODS[what], seconds=1.0)
        watching, began, used = asyncio.create_task(stall(1.2)), time.monotonic(), time.process_time()
        while not watching.done():
            await servers["well"].request("ping", {})
            await asyncio.sleep(0.05)
        busy = (time.process_time() - used) / (time.monotonic() - began)
        assert watching.result() < 0.5, "nobody waits for long"
        assert busy < 0.5 or what in SHORT, "it is read no faster than is sensible"
        assert await call(servers, "well", "echo", say="well") == "well"


async def test_a_call_goes_on_while_its_server_floods() -> None:
    async with engine(one=bad()) as servers:
        await call(servers, "one", "flood", line=FLOODS["log lines"], seconds=0.5)
        assert await call(servers, "one", "echo", say="still there") == "still there"


@pytest.mark.parametrize(
    "line", ["[" + ",".join(['{"method":"x"}'] * 101) + "]", "[" + " " * 1_100_000 + '{"method":"x"}]'], ids=["many", "long"]
)
def test_a_list_of_too_many_messages_is_rubbish(line: str) -> None:
    assert decode(line.encode()) == []
    assert len(decode(b'[{"method":"x"},{"method":"y"}]')) == 2


# -- answers of too many values


async def test_an_answer_of_too_many_values_is_refused_at_once_and_others_are_not_held_up() -> None:
    async with engine(one=bad()) as servers:
        await servers["one"].about()
        watching = asyncio.create_task(stall(1.0))
        line = '{"jsonrpc":"2.0","id":ID,"result":{"content":[],"x":[' + NUMBERS + "]}}"
        with pytest.raises(ErrorResponse, match=f"more than {MAX_JSON_VALUES} values"):
            await call(servers, "one", "line", line=line)
        assert await watching < 0.5
        assert await call(servers, "one", "echo", say="well") == "well"


@pytest.mark.parametrize(
    ("text", "too_much"),
    [
        ("[" + NUMBERS + "]", True),
        ("[" + ",".join(["[]"] * MAX_JSON_VALUES) + "]", True),
        ("{" + ",".join(f'"{n}":0' for n in range(MAX_JSON_VALUES + 10)) + "}", True),
        ("[" + ",".join(['"a"'] * (MAX_JSON_VALUES * 3)) + "]", True),
        (json.dumps({"text": 'a,"[{' * MAX_JSON_VALUES}), False),
        (json.dumps({"text": "\\,\\" * MAX_JSON_VALUES}), False),
        (json.dumps(["a,b"] * (MAX_JSON_VALUES // 2)), False),
    ],
    ids=["numbers", "lists", "fields", "texts", "a long text", "a text of backslashes", "many texts with commas"],
)
def test_what_counts_is_values_and_not_what_is_in_texts(text: str, too_much: bool) -> None:
    assert holds_too_much(text.encode()) is too_much


# -- answers that are almost JSON


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ('"half \\ud83d of one"', "half \ufffd of one"),
        ('"\\udc00\\ud83d\\ude00"', "\ufffd\U0001f600"),
        ('"no half: \\\\ud83d"', "no half: \\ud83d"),
        ("NaN", "None"),
    ],
)
async def test_an_answer_that_is_almost_json_is_taken(said: str, text: str) -> None:
    line = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":' + said + "}]}}"
    async with engine(one=bad()) as servers:
        assert await call(servers, "one", "line", line=line) == text


@pytest.mark.parametrize(
    "line",
    ['{"jsonrpc":"2.0","id":ID,"result":{"content":[}}', '{"result":{"content":[}},"id":ID}', '{"id":ID,"result":{"a":01}}'],
)
async def test_whoever_waits_for_an_answer_that_can_not_be_read_is_told_at_once(line: str) -> None:
    async with engine(one=bad()) as servers:
        async with asyncio.timeout(30):
            with pytest.raises(ErrorResponse, match="not valid JSON"):
                await call(servers, "one", "line", line=line)


async def test_an_id_inside_of_something_unreadable_ends_no_call() -> None:
    async with engine(one=bad()) as servers:
        caller: Any = Noting()
        slow = asyncio.create_task(call(servers, "one", "slow", caller, seconds=0.5, say="mine"))
        await asyncio.sleep(0.1)
        for id in range(1, 30):
            await servers["one"].request("ping", {})
            assert decode(b'{"result":{"id":%d,"a":[}}' % id) == []
        assert await slow == "mine"
