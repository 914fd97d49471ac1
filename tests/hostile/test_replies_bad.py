"""Replies that are written to take long: a model may be told to write them by what it reads."""

import json
import sys
import time

import pytest

from toolgate.agent.replies import MAX_REPLY_CHARS, read_reply

CALL = '{"thoughts": ["t"], "tool_name": "echo", "tool_args": {"text": "hi"}}'
SIZE = 1_000_000
SECONDS = 15.0 if sys.gettrace() else 4.0
"""Of processor time, on a busy machine; each takes less than one on a quiet one, and several times that where lines are
counted."""

UNITS = {
    "braces": "{", "brackets": "[", "objects that open": '{"a":', "lists that open": '[{"a":[', "empty objects": "{}\n",
    "objects": '{"a":1}\n', "short lines": "a\n", "lines of brackets": "{\n", "fences": "```\n",
    "labelled fences": "```x\n", "fences in a line": "```", "tags": "<a>\n", "closed tags": "<a></a>\n",
    "thoughts": "<think>", "ends of thoughts": "</think>\n", "whole thoughts": "<think></think>\n", "quotes": '"',
    "backslashes": "\\", "comments that open": "{/*", "comments": "{//\n", "hashes": "{#\n", "single quotes": "{'",
    "typographic quotes": "{“", "keys": "{a:", "block quotes": ">\n", "tokens": "<|a|>", "backticks": "`a",
    "keys of calls": '"tool_name":', "calls in a sentence": 'x {"tool_name": ', "labels": "json ",
    "call tags": "<tool_call>", "ends of call tags": "</tool_call>", "function tags": "<function=",
    "nested calls": '{"function":', "calls": f"{CALL}\n", "calls and text": f"{CALL}\ntext\n",
    "values before fences": '{"a":1}```', "zero-width spaces": "\u200b", "half surrogates": "\ud800",
    "block quotes and lines": ">\na\n",
    "carriage returns": "\r", "brackets and spaces": "{ ", "list of calls": f"{CALL},", "ones": "1,",
}  # fmt: skip
"""What a reply of a megabyte consists of."""
WHOLE = {
    "a list of ones": "[{},{}1]".replace("{}", "1," * (SIZE // 4), 1).replace("{}", "", 1),
    "a list of calls": f"[{f'{CALL},' * 12_000}]",
    "an object of many keys": "{" + ",".join(f'"k{n}":1' for n in range(90_000)) + "}",
    "a text of escapes": '{"tool_name": "a", "tool_args": {"b": "' + "\\n" * 490_000 + '"}}',
    "a number of a million digits": '{"tool_name": "a", "tool_args": {"b": ' + "9" * 990_000 + "}}",
    "a key a hundred thousand times": "{" + '"a":1,' * 160_000 + "}",
    "brackets in a text of arguments": json.dumps({"tool_name": "a", "tool_args": "[" * 900_000}),
    "fences of every length": "".join("`" * n + "x\n" for n in range(3, 1_400)),
    "tags of many names": "".join(f"<t{n}></t{n}>\n" for n in range(60_000)),
    "tags of many names that stay open": "".join(f"<t{n}>\n" for n in range(100_000)),
    "a name of a million letters": json.dumps({"tool_name": "x" * 900_000, "tool_args": {}}),
}


WORST = (
    "braces",
    "objects that open",
    "lines of brackets",
    "fences",
    "tags",
    "comments that open",
    "calls",
    "keys of calls",
    "block quotes and lines",
)


def megabyte(unit: str) -> str:
    return (unit * (SIZE // len(unit) + 1))[:MAX_REPLY_CHARS]


def seconds(text: str, quotable: list[str] | None = None) -> float:
    before = time.process_time()
    read_reply(text, quotable=quotable)
    return time.process_time() - before


@pytest.mark.requirement("AGENT-1")
@pytest.mark.parametrize("name", WORST)
def test_a_reply_of_a_megabyte_is_read_at_once(name: str) -> None:
    assert seconds(megabyte(UNITS[name])) < SECONDS


@pytest.mark.requirement("AGENT-1")
@pytest.mark.matrix("it reads a megabyte of each, and parts of it again")
@pytest.mark.parametrize("name", UNITS)
def test_the_time_grows_with_the_length_and_not_with_its_square(name: str) -> None:
    text = megabyte(UNITS[name])
    whole = seconds(text)
    assert whole < SECONDS
    quarter = min(seconds(text[: SIZE // 4]) for _ in range(3))
    assert whole < 10 * quarter + 0.5


@pytest.mark.requirement("AGENT-1")
@pytest.mark.matrix("the same promise is held by the replies that repeat themselves")
@pytest.mark.parametrize("name", WHOLE)
def test_a_large_reply_is_read_at_once(name: str) -> None:
    assert seconds(WHOLE[name][:MAX_REPLY_CHARS]) < SECONDS


@pytest.mark.requirement("AGENT-1")
@pytest.mark.parametrize("unit", [">\na\n", "<a></a>\n<b></b>\n", "a\n<think></think>\n"])
def test_a_call_behind_thousands_of_other_parts_is_a_problem_and_the_rest_an_answer(unit: str) -> None:
    reply = read_reply(f"{unit * 3_000}{CALL}")
    assert not reply.requests and "more than 2,000 parts" in (reply.problem or "")
    assert (read_reply(unit * 3_000).text or "").count("a") >= 1_000


@pytest.mark.requirement("AGENT-1")
def test_long_conversations_are_looked_through_at_once() -> None:
    reply = f"The page says:\n{CALL}\n" + "and so on\n" * 90_000
    assert seconds(reply, ["a" * SIZE, '{"tool_name": ' * 70_000, CALL[:-1] * 15_000]) < SECONDS
