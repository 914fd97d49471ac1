"""JSON-RPC messages that are none: each gets the protocol's own error, over HTTP and stdio, in both eras of the protocol."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.serving import ACCEPT, META, VERSION, Answer, Site, serving
from tests.terminal import SCRIPT
from toolgate import Actor
from toolgate.jsontext import MAX_JSON_VALUES
from toolgate.mcp.server.envelope import find_envelope_fault
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-3", "MCP-4")

OLD = "2025-11-25"
BEGIN = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}  # fmt: skip
LISTING = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": META}}
WRONG: dict[str, tuple[Any, int, Any]] = {
    "an object as id": ({**LISTING, "id": {"a": 1}}, -32600, None),
    "a list as id": ({**LISTING, "id": [1]}, -32600, None),
    "true as id": ({**LISTING, "id": True}, -32600, None),
    "null as id": ({**LISTING, "id": None}, -32600, None),
    "half a number as id": ({**LISTING, "id": 1.5}, -32600, None),
    "another jsonrpc": ({**LISTING, "jsonrpc": "1.0"}, -32600, 7),
    "a number as jsonrpc": ({**LISTING, "jsonrpc": 2.0}, -32600, 7),
    "no jsonrpc": ({"id": 7, "method": "tools/list"}, -32600, 7),
    "a batch": ([LISTING, LISTING], -32600, None),
    "an empty batch": ([], -32600, None),
    "a text": ("tools/list", -32600, None),
    "nothing": (None, -32600, None),
    "an empty object": ({}, -32600, None),
    "a number as method": ({**LISTING, "method": 7}, -32600, 7),
    "a list as params": ({**LISTING, "params": []}, -32600, 7),
    "no method": ({"jsonrpc": "2.0", "id": 7}, -32600, 7),
    "a request and an answer": ({**LISTING, "result": {}}, -32600, 7),
    "an answer without an object": ({"jsonrpc": "2.0", "id": 7, "result": 1}, -32600, 7),
    "an error without a code": ({"jsonrpc": "2.0", "id": 7, "error": {"message": "x"}}, -32600, 7),
}


@asynccontextmanager
async def a_site() -> AsyncIterator[tuple[Site, str]]:
    """A server, and a session of the older protocol with it."""
    async with memory_app() as app, serving(app) as site:
        await site.with_key(app, Actor("acme"))
        begun = await site("POST", "/mcp", {"Accept": ACCEPT}, json.dumps(BEGIN).encode())
        yield site, begun.headers["mcp-session-id"]


async def both_eras(site: Site, session: str, body: bytes) -> list[Answer]:
    modern = {"Accept": ACCEPT, "MCP-Protocol-Version": VERSION, "Mcp-Method": "tools/list"}
    older = {"Accept": ACCEPT, "MCP-Protocol-Version": OLD, "Mcp-Session-Id": session}
    return [await site("POST", "/mcp", headers, body) for headers in (modern, older)]


def check(answer: dict[str, Any], code: int, id: Any) -> None:
    assert answer.keys() == {"jsonrpc", "id", "error"}
    assert (answer["jsonrpc"], answer["id"], answer["error"]["code"]) == ("2.0", id, code)
    assert answer["error"].keys() == {"code", "message"}
    assert len(answer["error"]["message"]) < 200
    assert "validation" not in answer["error"]["message"].lower()


async def test_over_http_each_gets_the_protocols_own_error() -> None:
    async with a_site() as (site, session):
        for what, (message, code, id) in WRONG.items():
            for answer in await both_eras(site, session, json.dumps(message).encode()):
                assert answer.status == 400, what
                assert answer.headers["content-type"] == "application/json", what
                check(answer.json, code, id)
        for body in (b"{", b"\xff", b"[" * 100_000, b'{"id":1e999}'):
            for answer in await both_eras(site, session, body):
                assert answer.status == 400
                check(answer.json, -32700, None)
        many = b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":[' + b"0," * MAX_JSON_VALUES + b"0]}}"
        for answer in await both_eras(site, session, many):
            check(answer.json, -32600, None)


@pytest.mark.matrix("starts the program")
def test_over_stdio_each_gets_the_protocols_own_error(tmp_path: Path) -> None:
    sent = [*(json.dumps(message).encode() for message, _, _ in WRONG.values()), b"{"]
    done = subprocess.run(
        [SCRIPT, "mcp"], input=b"\n".join(sent) + b"\n", cwd=tmp_path, capture_output=True, timeout=250, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for answer, (code, id) in zip(answers, [*((code, id) for _, code, id in WRONG.values()), (-32700, None)], strict=True):
        check(answer, code, id)


values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
envelopes = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.one_of(st.just("2.0"), values),
        "id": st.one_of(st.integers(0, 9), st.text(max_size=3), values),
        "method": st.one_of(st.sampled_from(["tools/list", "ping", "notifications/x"]), values),
        "params": st.one_of(st.just({}), values),
        "result": st.one_of(st.just({}), values),
        "error": st.one_of(st.just({"code": 1, "message": "m"}), values),
        "else": values,
    },
)


@given(st.one_of(envelopes, values, st.lists(envelopes, max_size=2)))
@example({"jsonrpc": "2.0", "method": "x", "id": {}})
def test_what_passes_is_a_message_to_the_sdk_and_what_has_an_id_is_no_notification(message: Any) -> None:
    from mcp_types import JSONRPCNotification, jsonrpc_message_adapter

    text = json.dumps(message).encode()
    fault = find_envelope_fault(text)
    if fault is None:
        taken = jsonrpc_message_adapter.validate_json(text, by_name=False)
        assert not (isinstance(taken, JSONRPCNotification) and "id" in message)
    else:
        assert fault.code in (-32600, -32700)
        assert fault.id is None or fault.id == message["id"]
        assert len(fault.message) < 200


@pytest.fixture
def ask() -> Iterator[Callable[[bytes], list[Answer]]]:
    """Asks one site in both eras, from outside of its event loop: all examples share it."""
    ready: Future[Any] = Future()

    async def run() -> None:
        ended = asyncio.Event()
        async with a_site() as (site, session):
            ready.set_result((asyncio.get_running_loop(), ended, site, session))
            await ended.wait()

    with ThreadPoolExecutor(1) as pool:
        running: Future[Any] = pool.submit(lambda: asyncio.run(run()))
        if wait([ready, running], return_when=FIRST_COMPLETED).done == {running}:
            running.result()
        loop, ended, site, session = ready.result()
        yield lambda body: asyncio.run_coroutine_threadsafe(both_eras(site, session, body), loop).result()
        loop.call_soon_threadsafe(ended.set)
        running.result()


@at_most(40)
@given(
    st.lists(st.one_of(st.binary(max_size=40), envelopes.map(lambda one: json.dumps(one).encode())), min_size=5, max_size=5)
)
def test_whatever_is_sent_nothing_of_the_validator_comes_back(
    ask: Callable[[bytes], list[Answer]], bodies: list[bytes]
) -> None:
    for body in bodies:
        for answer in ask(body or b"0"):
            assert answer.status in (200, 202, 400, 404)
            assert b"alidation" not in answer.body
            assert b"pydantic" not in answer.body
