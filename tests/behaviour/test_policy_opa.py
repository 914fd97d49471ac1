"""An OPA server decides: with the answers of the engine in this process, and with a denial whenever it does not answer."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.opa_server import Opa, running
from tests.soma_policy import DATA, POLICY, policy_data
from toolgate import Actor
from toolgate.gates.policy.decisions import Guard
from toolgate.gates.policy.documents import PolicyError
from toolgate.gates.policy.embedded_rego import default_policy
from toolgate.gates.policy.engine import EVERYTHING, PolicyQuestion
from toolgate.gates.policy.opa import OpaServer
from toolgate.model import Decision

pytestmark = pytest.mark.requirement("POL-2")
ANN = Actor("tenant-2", "persona-user", "ann")
QUESTION = PolicyQuestion("tenant-2", "persona-user", "tool.request", "memory_load", "ann")
Answer = Callable[[bytes], Awaitable[bytes] | bytes]


@pytest.fixture(scope="module")
def opa() -> Iterator[Opa]:
    with running() as server:
        yield server


@asynccontextmanager
async def asking(url: str, seconds: float = 5.0, token: str | None = None) -> AsyncIterator[OpaServer]:
    server = OpaServer(url, seconds, token=token)
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[str]:
    """The URL of a server that gets a request and answers with whatever bytes it is told to."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
                given = answer(head + await reader.readexactly(length))
                text = given if isinstance(given, bytes) else await given
                if not text:
                    break
                writer.write(text)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def response(body: bytes, status: str = "200 OK", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n%s" % (status.encode(), len(body), more, body)


# -- the same answers


async def test_a_policy_that_knows_no_reasons_is_asked_for_allow(opa: Opa) -> None:
    opa.load(POLICY, DATA)
    async with asking(opa.url) as server:
        assert (await server.ask(QUESTION)).decision == Decision(True, "allowed by the policy")
        denied = PolicyQuestion("tenant-1", None, "tool.request", "code_execute", "ann")
        assert (await server.ask(denied)).decision == Decision(False, "the policy does not allow it")


async def test_what_is_pushed_is_what_decides(opa: Opa) -> None:
    opa.load("package soma.policy\n", {})
    data = policy_data(DATA)
    async with asking(opa.url) as server:
        assert not (await server.ask(QUESTION)).decision.allow
        assert server.reads == EVERYTHING, "nobody knows what the policy there looks at"
        await server.push(default_policy(), data.whole())
        assert server.reads.only_who_and_what
        assert (await server.ask(QUESTION)).decision == Decision(True, "memory_load is enabled")
        await server.push(default_policy(), policy_data({**DATA, "global_tool_deny": ["memory_load"]}).whole())
        assert not (await server.ask(QUESTION)).decision.allow


@pytest.mark.requirement("POL-4")
@pytest.mark.parametrize(
    "line", ["import data.lib", "x if data.lib.x", "x if data.lib[input.tenant]", "x if data.soma.other.x"]
)
async def test_a_pushed_policy_that_asks_others_may_read_everything(opa: Opa, line: str) -> None:
    opa.load("package soma.policy\n", {})
    async with asking(opa.url) as server:
        await server.push(f"package soma.policy\nimport rego.v1\n{line}\nallow if input.tenant\n", DATA)
        assert server.reads == EVERYTHING


async def test_after_a_push_that_failed_everything_is_denied_until_one_succeeds(opa: Opa) -> None:
    opa.load(default_policy(), DATA)
    async with asking(opa.url) as server:
        assert (await server.ask(QUESTION)).decision.allow
        with pytest.raises(PolicyError, match="status 400"):
            await server.push("package soma.policy\nallow if {", DATA)
        verdict = await server.ask(QUESTION)
        assert not verdict.decision.allow
        assert not server.is_ready
        assert "did not take policy and data" in verdict.decision.reason
        assert await server.ask_many(QUESTION, ["memory_load"]) == []
        await server.push(default_policy(), DATA)
        assert server.is_ready
        assert (await server.ask(QUESTION)).decision.allow


@pytest.mark.requirement("POL-4")
async def test_an_answer_given_during_a_push_is_not_relied_on() -> None:
    pushing, go = asyncio.Event(), asyncio.Event()

    async def answer(request: bytes) -> bytes:
        if request.startswith(b"PUT"):
            pushing.set()
            await go.wait()
            return response(b"{}")
        return response(b'{"result": {"allow": true, "reason": "as before"}}')

    async with answering(answer) as url, asking(url) as server:
        assert (await server.ask(QUESTION)).sure
        push = asyncio.create_task(server.push(default_policy(), DATA))
        await asyncio.wait_for(pushing.wait(), 30)
        during = await server.ask(QUESTION)
        assert during.decision.allow
        assert not during.sure
        go.set()
        await push
        assert (await server.ask(QUESTION)).sure


@pytest.mark.requirement("POL-7")
@pytest.mark.parametrize("policy", [default_policy(), POLICY], ids=["with a batch rule", "one by one"])
async def test_the_list_of_an_actor_is_what_the_server_lets_it_view(opa: Opa, policy: str) -> None:
    off = {f"off_{number}": {"enabled": False} for number in range(40)}
    opa.load(policy, {**DATA, "tool_catalog": {**DATA["tool_catalog"], **off}})
    async with asking(opa.url) as server:
        guard = Guard(server, monotonic=time.monotonic)
        names = [*DATA["tool_catalog"], *off]
        restricted = Actor("tenant-1", "persona-restricted")
        assert await guard.permitted(restricted, names) == ["memory_load", "memory_save"]
        assert await guard.permitted(ANN, names) == ["memory_load", "memory_save", "code_execute", "http_fetch"]


@pytest.mark.parametrize(
    "path", ["", "/", "/v1/data/soma/policy", "/v1/data/soma/policy/allow", "/v1/data/soma/policy/allow/"]
)
async def test_the_url_may_be_that_of_the_server_the_policy_or_the_rule(opa: Opa, path: str) -> None:
    opa.load(default_policy(), DATA)
    async with asking(opa.url + path) as server:
        assert server.url == opa.url
        assert (await server.ask(QUESTION)).decision.allow


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8181", "ftp://host", "http://", "http://host:port", "http://h/?q", "http://h#x"]
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(PolicyError, match="must be like http"):
        OpaServer(url)


# -- no answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (response(b"{}"), "has no policy"),
        (response(b'{"result": {}}'), "is not {allow, reason}"),
        (response(b'{"result": {"allow": "true", "reason": "x"}}'), "is not {allow, reason}"),
        (response(b'{"result": {"allow": 1}}'), "is not {allow, reason}"),
        (response(b'{"result": true}'), "is not {allow, reason}"),
        (response(b'{"result": null}'), "is not {allow, reason}"),
        (response(b'{"result": [true]}'), "is not {allow, reason}"),
        (response(b"true"), "is not an object"),
        (response(b"[]"), "is not an object"),
        (response(b""), "is not JSON"),
        (response(b'{"result": {"allow": true'), "is not JSON"),
        (response(b"\xff\xfe"), "is not JSON"),
        (response(b"<html>allow: true</html>"), "is not JSON"),
        (response(b'{"result": {"allow": true}}', "500 Internal Server Error"), "status 500"),
        (response(b'{"result": {"allow": true}}', "201 Created"), "status 201"),
        (response(b'{"result": {"allow": true}}', "401 Unauthorized"), "status 401"),
        (response(b'{"code": "invalid_parameter"}', "400 Bad Request"), "status 400"),
        (response(b"", "302 Found", b"Location: http://127.0.0.1:1/\r\n"), "status 302"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9x\r\n\r\n{}", "cannot be reached"),
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", "cannot be reached"),
        (b"", "cannot be reached"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value,
)  # fmt: skip
async def test_whatever_is_not_a_clear_yes_denies(answer: bytes, reason: str) -> None:
    async with answering(lambda _request: answer) as url, asking(url) as server:
        verdict = await server.ask(QUESTION)
        assert not verdict.decision.allow
        assert not verdict.sure
        assert reason in verdict.decision.reason


@pytest.mark.parametrize("result", [b"1", b'"true"', b"null", b"[true]", b'{"allow": true}'])
async def test_allow_must_be_true_and_nothing_like_it(result: bytes) -> None:
    def answer(request: bytes) -> bytes:
        return response(b"{}" if b"/decision " in request else b'{"result": %s}' % result)

    async with answering(answer) as url, asking(url) as server:
        assert not (await server.ask(QUESTION)).decision.allow


async def test_a_server_that_is_not_there_denies() -> None:
    async with answering(lambda _request: b"") as url:
        pass
    async with asking(url) as server:
        verdict = await server.ask(QUESTION)
        assert verdict.decision == Decision(False, "the OPA server cannot be reached (ClientConnectorError)")
        assert await server.ask_many(QUESTION, ["memory_load"]) == []


async def test_a_server_that_is_too_slow_denies() -> None:
    async def never(_request: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with answering(never) as url, asking(url, 0.05) as server:
        verdict = await server.ask(QUESTION)
        assert verdict.decision == Decision(False, "the OPA server did not answer within 0.05 s")


async def test_a_server_that_comes_back_is_asked_again() -> None:
    answers = iter([response(b"", "503 Service Unavailable")])

    def answer(_request: bytes) -> bytes:
        return next(answers, response(b'{"result": {"allow": true, "reason": "back"}}'))

    async with answering(answer) as url, asking(url) as server:
        now = [0.0]
        guard = Guard(server, monotonic=lambda: now[0])
        assert not (await guard.decide(ANN, "tool.request", "x")).allow
        now[0] += 2.0
        assert await guard.decide(ANN, "tool.request", "x") == Decision(True, "back")


async def test_an_answer_that_a_change_overtook_on_its_way_is_not_remembered() -> None:
    asked, go = asyncio.Event(), asyncio.Event()
    answers = iter([b'{"result": {"allow": true, "reason": "before"}}'])

    async def answer(_request: bytes) -> bytes:
        asked.set()
        await go.wait()
        return response(next(answers, b'{"result": {"allow": false, "reason": "after"}}'))

    async with answering(answer) as url, asking(url) as server:
        guard = Guard(server, monotonic=time.monotonic)
        waiting = asyncio.create_task(guard.decide(ANN, "tool.request", "x"))
        await asyncio.wait_for(asked.wait(), 30)
        guard.use(policy_data(DATA))
        go.set()
        await waiting
        assert await guard.decide(ANN, "tool.request", "x") == Decision(False, "after")


async def test_arguments_that_are_no_json_deny_without_asking(opa: Opa) -> None:
    opa.load("package soma.policy\nallow := true", {})
    async with asking(opa.url) as server:
        guard = Guard(server, monotonic=time.monotonic)
        assert (await guard.decide(ANN, "tool.request", "x", arguments={"a": 1})).allow
        assert not (await guard.decide(ANN, "tool.request", "x", arguments={"a": object()})).allow


@pytest.mark.parametrize(
    "body", [b'{"result": "memory_load"}', b'{"result": [1]}', b'{"result": {"memory_load": true}}', b"[]", b""]
)
async def test_a_list_that_is_malformed_lists_nothing(body: bytes) -> None:
    async with answering(lambda _request: response(body)) as url, asking(url) as server:
        assert await server.ask_many(QUESTION, ["memory_load"]) == []


async def test_a_list_holds_nothing_that_was_not_asked_for() -> None:
    async with answering(lambda _request: response(b'{"result": ["b", "z", "a"]}')) as url, asking(url) as server:
        assert await server.ask_many(QUESTION, ["a", "b", "c"]) == ["a", "b"]


async def test_a_token_is_sent_where_one_is_given() -> None:
    seen: list[bytes] = []

    def answer(request: bytes) -> bytes:
        seen.append(request)
        return response(b'{"result": {"allow": true}}')

    async with answering(answer) as url, asking(url, token="s3cret") as server:
        assert (await server.ask(QUESTION)).decision.allow
    assert b"Authorization: Bearer s3cret" in seen[0]
    assert b'"arguments":{}' in seen[0]
