"""`toolgate serve`: what it answers, to whom, and how it starts and ends."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.wire import wired
from tests.servers import Redis
from tests.serving import ACCEPT, META, VERSION, Site, serving
from tests.terminal import SCRIPT, Terminal
from toolgate import Actor, App, tool
from toolgate.errors import NotServing, SettingsError, ToolgateError
from toolgate.serve.authentication import Authenticator
from toolgate.serve.http_server import bind
from toolgate.serve.problems import HttpProblem
from toolgate.store import audit_log
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-1", "DOOR-3")


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


WRONG = "x" * 43
"""What could be the secret of a key."""


# -- who may call


async def test_a_stranger_gets_401_and_is_told_what_is_missing() -> None:
    async with memory_app() as app, serving(app) as site:
        for method in ("POST", "GET", "DELETE"):
            answer = await site(method, "/mcp", body=b"{}" if method == "POST" else b"")
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == 'Bearer realm="toolgate"'
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json["code"] == "UNAUTHENTICATED"
            assert answer.json["status"] == 401


@pytest.mark.parametrize(
    "header",
    ["Bearer tg_aaaaaaaaaaaa_" + "x" * 43, "Bearer nonsense", "Bearer ", "Basic dXNlcjpwYXNz", "tg_x", "bearer\ttg_x"],
)
@pytest.mark.sample(4)
async def test_whoever_sends_no_valid_credential_is_told_what_is_wrong_with_it(header: str) -> None:
    async with memory_app() as app, serving(app) as site:
        answer = await site("POST", "/mcp", {"Authorization": header}, b"{}")
        assert answer.status == 401
        assert "error=" in answer.headers["www-authenticate"]


@pytest.mark.requirement("PIPE-1")
async def test_tenant_persona_and_user_come_from_the_key() -> None:
    async with memory_app() as app, serving(app) as site:
        app.register(add)
        await site.with_key(app, Actor("acme", "analyst", "u-1"))
        meta_claims = {"tenant": "other", "toolgate/tenant": "other"}
        answer = await site.mcp(
            "tools/call",
            {"name": "add", "arguments": {"a": 1, "b": 2}},
            headers={"X-Tenant": "other", "X-Toolgate-User": "x"},
        )
        assert answer.status == 200, answer.body
        assert answer.json["result"]["content"][0]["text"] == "3"
        await site.mcp("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, meta={**_meta(), **meta_claims})
        await app.flush()
        rows = [row for row in await app.parts.store.read(audit_log.latest(10)) if row[2] in ("start", "end")]
        assert {row[4] for row in rows} == {"acme"}
        assert {(json.loads(row[7])["persona"], json.loads(row[7])["user"]) for row in rows} == {("analyst", "u-1")}
        assert {json.loads(row[7])["door"] for row in rows} == {"mcp"}


def _meta() -> dict[str, Any]:
    return {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }


async def test_a_key_that_is_revoked_ends_with_the_next_request() -> None:
    async with memory_app() as app, serving(app) as site:
        await site.with_key(app)
        assert (await site.mcp("tools/list")).status == 200
        [key] = await app.keys.list()
        await app.keys.revoke(key.id)
        assert (await site.mcp("tools/list")).status == 401


async def test_nobody_calls_without_a_key_not_even_this_machine_and_no_setting_opens_it() -> None:
    """A page that a browser on this machine has open sends requests from it, too."""
    async with memory_app() as app, serving(app) as site:
        for headers in ({}, {"Origin": "http://localhost:3000"}):
            assert (await site.mcp("tools/list", headers=headers)).status == 401
    with pytest.raises(SettingsError, match=r"serve\.anonymous"):
        memory_app(serve={"anonymous": "local"})


async def test_forwarded_headers_make_nobody_local() -> None:
    async with memory_app() as app, serving(app) as site:
        assert (await site.mcp("tools/list", headers={"X-Forwarded-For": "127.0.0.1"})).status == 401


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8700",
        "127.0.0.1.evil.example",
        "",
        "[::2]:80",
        "localhost@evil",
        "[::1]evil.example",
        "[::1].evil.example",
        "[::1]:80evil",
        "local\thost",
        "localhost:0",
        "localhost:65536",
        "localhost:",
        "localhost:+1",
        "localhost/evil",
        "[::1%eth0]",
        "[localhost]",
        "::1",
        "localhost\u00a0",
    ],
)
@pytest.mark.sample(4)
async def test_a_request_that_names_another_host_is_refused_before_its_key_is_looked_at(host: str) -> None:
    async with memory_app() as app, serving(app) as site:
        await site.with_key(app)
        for path, other in (("/mcp", {}), ("/metrics", {"Authorization": ""})):  # without a key, as a page would ask
            answer = await site("GET", path, {"Host": host, **other})
            assert answer.status == 421, answer.body
            assert answer.json["code"] == "UNKNOWN_HOST"


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:8700", "gate.example", "gate.example:443"]
)
@pytest.mark.sample(4)
async def test_names_of_this_machine_and_those_that_are_set_are_known(host: str) -> None:
    async with memory_app(mcp={"hosts": ["gate.example"]}) as app, serving(app) as site:
        await site.with_key(app)
        assert (await site.mcp("tools/list", headers={"Host": host})).status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://localhost.evil.example",
        "http://x@localhost",
        "file://",
        "http://local\thost",
        "http://localhost\t.evil.example",
        "http://[::1]evil.example",
        "http://localhost:0",
        "http://localhost:65536",
        "http://localhost/",
        "http://localhost:",
        "http:localhost",
        "HTTP://[::1",
    ],
)
@pytest.mark.sample(4)
async def test_scripts_of_other_pages_may_not_call(origin: str) -> None:
    async with memory_app() as app, serving(app) as site:
        await site.with_key(app)
        answer = await site.mcp("tools/list", headers={"Origin": origin})
        assert answer.status == 403
        assert (await site("OPTIONS", "/mcp", {"Origin": origin})).status == 403


async def test_scripts_of_a_page_that_may_call_are_told_so() -> None:
    page = "https://app.example"
    async with memory_app(mcp={"origins": [page]}) as app, serving(app) as site:
        asked = {"Origin": page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        before = await site("OPTIONS", "/mcp", asked)
        assert before.status == 204
        assert before.headers["access-control-allow-origin"] == page
        assert before.headers["access-control-allow-headers"] == "authorization"
        await site.with_key(app)
        for accept in ("application/json, text/event-stream", "application/json,text/event-stream;q=0.5"):
            answer = await site.mcp("tools/list", headers={"Origin": page, "Accept": accept})
            assert answer.status == 200
            assert answer.headers["access-control-allow-origin"] == page


# -- what is wrong with a request


async def test_each_refusal_is_a_problem_document() -> None:
    async with memory_app(serve={"body_bytes": 2_000}) as app, serving(app) as site:
        await site.with_key(app, Actor(scopes=("metrics",)))
        for answer, status in (
            (await site("GET", "/nothing"), 404),
            (await site("GET", "/mcp/"), 404),
            (await site("PUT", "/mcp", body=b"{}"), 405),
            (await site("POST", "/healthz", body=b"{}"), 405),
            (await site("POST", "/mcp", body=b"x" * 2_001), 413),
            (await site("POST", "/mcp", {"Content-Type": "text/plain"}, b"{}"), 415),
            (await site("POST", "/mcp", {"Content-Type": ""}, b"{}"), 415),
            (await site("POST", "/mcp", [("Authorization", "Bearer a"), ("Authorization", "Bearer b")], b"{}"), 400),
            (await site("GET", "/metrics"), 404),
        ):
            assert answer.status == status
            assert answer.headers["content-type"] == "application/problem+json"
            assert {"title", "status", "code", "detail"} <= answer.json.keys()
            assert answer.json["status"] == status
        assert (await site("PUT", "/mcp", body=b"{}")).headers["allow"] == "POST, GET, DELETE"


async def test_a_body_in_pieces_that_grows_too_large_is_refused() -> None:
    async with memory_app(serve={"body_bytes": 2_000}) as app, serving(app) as site:
        await site.with_key(app)
        lines = ("POST /mcp HTTP/1.1", f"Host: {site.host}", "Content-Type: application/json", "Transfer-Encoding: chunked")
        head = "\r\n".join((*lines, f"Authorization: Bearer {site.key}", "", "")).encode()
        answer = await site.raw(head + b"400\r\n" + b"x" * 1024 + b"\r\n400\r\n" + b"x" * 1024 + b"\r\n0\r\n\r\n")
        assert answer.status == 413


async def test_wrong_keys_lock_no_honest_key_out() -> None:
    """All behind one proxy have one address. A key that nobody has used before is let in as well."""
    async with memory_app() as app, serving(app) as site:
        used, fresh, hammered = [(await app.keys.create(name, Actor()))[1] for name in ("used", "fresh", "hammered")]
        assert (await site.mcp("tools/list", key=used)).status == 200
        id = hammered.split("_")[1]
        wrong = [f"tg_{id}_{WRONG}", *(f"tg_{number:012}_{WRONG}" for number in range(79))]
        answers = await asyncio.gather(*(site.mcp("tools/list", key=key) for key in wrong))
        assert {answer.status for answer in answers} == {401}
        assert [(await site.mcp("tools/list", key=key)).status for key in (used, fresh, hammered)] == [200] * 3


@pytest.mark.matrix("waits as long as who guesses has to")
async def test_guesses_of_one_key_wait_and_whoever_holds_it_does_not() -> None:
    async with memory_app() as app, serving(app) as site:
        held = (await app.keys.create("held", Actor()))[1]
        other = (await app.keys.create("other", Actor()))[1]
        assert (await site.mcp("tools/list", key=held)).status == 200
        guess = f"tg_{held.split('_')[1]}_{WRONG}"
        await asyncio.gather(*(site.mcp("tools/list", key=guess) for _ in range(40)))
        await app.keys.revoke(other.split("_")[1])  # so that no key is known any more without a look
        guessing = asyncio.create_task(site.mcp("tools/list", key=guess))
        for _ in range(3):
            assert (await site.mcp("tools/list", key=held)).status == 200
        assert not guessing.done()
        assert (await guessing).status == 401


@pytest.mark.matrix("waits as long as who guesses has to")
async def test_only_a_proxy_that_is_named_says_where_a_request_came_from() -> None:
    """Clients behind it are told apart; whoever else writes such headers counts by its own address."""
    spoofed = {"X-Forwarded-For": "192.0.2.7"}
    for proxies, counted in (((), "127.0.0.1"), (("127.0.0.0/8",), "192.0.2.7")):
        async with memory_app(serve={"proxies": proxies}) as app, serving(app) as site:
            # at once: each wrong key makes the next wait longer
            await asyncio.gather(*(site.mcp("tools/list", key="tg_x", headers=spoofed) for _ in range(31)))
            counts = site.http.authenticator.attempts.by_address
            assert {address: counts.delay(address) > 0 for address in ("127.0.0.1", "192.0.2.7")} == {
                address: address == counted for address in ("127.0.0.1", "192.0.2.7")
            }


# -- how it is


@pytest.mark.requirement("DOOR-4")
async def test_health_is_told_to_everybody_and_details_only_to_who_runs_it() -> None:
    async with memory_app() as app, serving(app) as site:
        assert (await site("GET", "/healthz")).json == {"status": "alive"}
        stranger = await site("GET", "/readyz", {"Host": "10.0.0.1:8700"})
        assert (stranger.status, stranger.json) == (200, {"status": "ready"})
        await site.with_key(app, Actor("acme", None, "ada"))
        assert (await site("GET", "/readyz")).json == {"status": "ready"}, "what is wrong may name what others do"
        await site.with_key(app, Actor(scopes=("metrics",)))
        known = await site("GET", "/readyz")
        assert known.json["status"] == "ready"
        assert {part["name"]: part["status"] for part in known.json["checks"]} == {
            "store": "ok",
            "policy": "ok",
            "mcp": "ok",
        }
        elsewhere = await site("GET", "/readyz", {"Host": "evil.example"})
        assert elsewhere.json == {"status": "ready"}


@pytest.mark.matrix("needs Redis")
@pytest.mark.requirement("DOOR-4")
async def test_what_calls_need_and_is_down_makes_it_unready(own_redis: Redis) -> None:
    async with memory_app(redis_url=own_redis.url) as app, serving(app) as site:
        await site.with_key(app, Actor(scopes=("metrics",)))
        assert (await site("GET", "/readyz")).status == 200
        own_redis.stop()
        async with asyncio.timeout(30):
            while (answer := await site("GET", "/readyz")).status == 200:
                await asyncio.sleep(0.1)
        assert answer.status == 503
        assert answer.json["status"] == "not ready"
        assert [part["name"] for part in answer.json["checks"] if part["status"] == "down"] == ["redis"]


@pytest.mark.matrix("needs PostgreSQL")
@pytest.mark.requirement("DOOR-4")
async def test_a_database_that_does_not_answer_makes_it_unready(tmp_path: Path, postgres_database: str) -> None:
    async with (
        wired(postgres_database) as (wire, url),
        App.open(home=tmp_path, database_url=url) as app,
        serving(app) as site,
    ):
        assert (await site("GET", "/readyz")).status == 200
        wire.freeze()
        async with asyncio.timeout(30):
            while (answer := await site("GET", "/readyz")).status == 200:
                await asyncio.sleep(0.2)
        assert (answer.status, answer.json) == (503, {"status": "not ready"})
        assert (await site("GET", "/healthz")).status == 200, "it is alive all the same"
        wire._thawed.set()
        async with asyncio.timeout(30):
            while (await site("GET", "/readyz")).status != 200:
                await asyncio.sleep(0.2)


@pytest.mark.requirement("DOOR-4", "MCP-2")
async def test_a_dead_mcp_server_is_told_of_and_keeps_nothing_else_from_being_ready() -> None:
    dead = {"command": ["/no/such/program"], "isolation": "none"}
    async with memory_app(servers={"dead": dead}, metrics=True) as app, serving(app) as site:
        with pytest.raises(ToolgateError):
            await app.parts.servers_engine["dead"].about()
        stranger = await site("GET", "/readyz")
        assert (stranger.status, stranger.json) == (200, {"status": "ready"})
        await site.with_key(app, Actor(scopes=("metrics",)))
        answer = await site("GET", "/readyz")
        assert (answer.status, answer.json["status"]) == (200, "degraded")
        [part] = [part for part in answer.json["checks"] if part["name"] == "server dead"]
        assert part["status"] == "degraded"
        assert "/no/such/program" in part["message"]
        assert b'toolgate_server_state{server="dead",state="up"} 0.0' in (await site("GET", "/metrics")).body


@pytest.mark.requirement("AUD-5")
async def test_metrics_are_for_this_machine_and_for_keys_with_the_scope() -> None:
    async with memory_app(metrics=True) as app, serving(app) as site:
        app.register(add)
        await app.invoke("add", {"a": 1, "b": 2})
        here = await site("GET", "/metrics")
        assert here.status == 200
        assert b'toolgate_calls_total{code="",status="success",tier="read_only",tool="add"} 1.0' in here.body
        assert (await site("GET", "/metrics", {"X-Forwarded-For": "10.1.2.3"})).status == 401
        without = (await app.keys.create("a", Actor()))[1]
        with_it = (await app.keys.create("b", Actor(scopes=("metrics",))))[1]
        assert (await site("GET", "/metrics", key=without)).status == 403
        assert (await site("GET", "/metrics", {"X-Forwarded-For": "10.1.2.3"}, key=with_it)).status == 200
        # Prometheus asks each process by its IP address. A page of the web can make a browser name any host, but has no key.
        assert (await site("GET", "/metrics", {"Host": "10.0.0.7:8700"}, key=with_it)).status == 200
        assert (await site("GET", "/metrics", {"Host": "10.0.0.7:8700"})).status == 421


# -- the process


def fetch(request: urllib.request.Request) -> bytes:
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())


def made_key(terminal: Terminal) -> str:
    made = terminal.run("keys", "create", "test", "--json")
    assert made.code == 0, made.err
    return str(json.loads(made.out)["key"])


def called(url: str, key: str, tool: str, arguments: dict[str, Any]) -> Any:
    """The result of a call."""
    params = {"name": tool, "arguments": arguments, "_meta": _meta()}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {
        "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool, "Authorization": f"Bearer {key}",
    }  # fmt: skip
    return json.loads(fetch(urllib.request.Request(f"{url}/mcp", body, headers)))["result"]


@contextmanager
def server(terminal: Terminal, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The real command, and its URL once it is ready."""
    process = subprocess.Popen(
        [SCRIPT, "serve", "--port", "0", "--json", *words],
        cwd=terminal.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["url"]
    finally:
        process.kill()
        process.communicate(timeout=60)


def test_it_is_ready_soon_with_a_fresh_database_and_ends_in_order(terminal: Terminal) -> None:
    begun = time.perf_counter()
    with server(terminal) as (process, url):
        took = time.perf_counter() - begun
        assert fetch(urllib.request.Request(f"{url}/healthz")) == b'{"status":"alive"}'
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0
    assert "no API key yet" in err
    assert "Traceback" not in err
    assert took < 60, "two seconds on a machine of its own; here others are at work too"


@pytest.mark.matrix("starts the program")
def test_calls_that_run_are_let_end_when_it_is_stopped(terminal: Terminal) -> None:
    terminal.add_tools(
        """
        import asyncio, pathlib
        from toolgate import tool

        @tool(tier="read_only")
        async def slow(folder: str) -> str:
            "Takes a while."
            pathlib.Path(folder, "begun").touch()
            await asyncio.sleep(1)
            return "ended"
        """
    )
    key = made_key(terminal)
    with server(terminal) as (process, url):
        arguments = {"folder": str(terminal.folder)}

        async def call_and_stop() -> Any:
            answer = asyncio.ensure_future(asyncio.to_thread(called, url, key, "slow", arguments))
            async with asyncio.timeout(30):
                while not (terminal.folder / "begun").exists():
                    await asyncio.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            return await answer

        assert asyncio.run(call_and_stop())["content"][0]["text"] == "ended"
        assert process.wait(timeout=60) == 0


STDIO_SERVER = """
import json, os, sys

SCHEMA = {"type": "object", "properties": {}}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"error": {"code": -32601, "message": "no such method"}}
    if asked["method"] == "initialize":
        told = {"name": "pids", "version": "1"}
        answer = {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": told}}
    elif asked["method"] == "tools/list":
        answer = {"result": {"tools": [{"name": "pid", "description": "Its process.", "inputSchema": SCHEMA}]}}
    elif asked["method"] == "tools/call":
        answer = {"result": {"content": [{"type": "text", "text": str(os.getpid())}]}}
    elif asked["method"] == "ping":
        answer = {"result": {}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


@pytest.mark.matrix("starts the program and its servers")
@pytest.mark.requirement("MCP-1", "MCP-2")
def test_an_mcp_server_that_it_started_ends_with_it(terminal: Terminal) -> None:
    (terminal.folder / "pids.py").write_text(STDIO_SERVER, encoding="utf-8")
    command = json.dumps([sys.executable, str(terminal.folder / "pids.py")])
    terminal.settings(
        f"""
        servers: {{pids: {{command: {command}, isolation: none, trust_first_seen: true, tier: read_only}}}}
        """
    )
    listed = terminal.run("servers", "refresh", "pids")
    assert listed.code == 0, listed.err
    key = made_key(terminal)
    with server(terminal) as (process, url):
        pid = int(called(url, key, "mcp_pids_pid", {})["content"][0]["text"])
        assert Path(f"/proc/{pid}").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    assert not Path(f"/proc/{pid}").exists()


def test_a_port_that_is_taken_is_said(terminal: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = terminal.run("serve", "--port", str(taken.getsockname()[1]))
    assert done.code == 1
    assert "is already in use" in done.err
    assert "--port" in done.err


@pytest.mark.parametrize("host", ["no.such.host.invalid", "999.1.1.1", "192.0.2.1"])
async def test_an_address_that_is_none_of_ours_is_said(host: str) -> None:
    async with memory_app(serve={"host": host}) as app:
        with pytest.raises(NotServing) as refused:
            bind(app.settings.serve)
        assert refused.value.suggestion


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "localhost"])
async def test_it_listens_where_it_is_told_to(host: str) -> None:
    async with memory_app(serve={"host": host, "port": 0}) as app:
        bind(app.settings.serve)[0].close()


@pytest.mark.parametrize("proxy", ["proxy.example", "10.0.0.0/40", "", "10.0.0.1/8"])
def test_a_proxy_that_is_no_address_is_refused(proxy: str) -> None:
    with pytest.raises(SettingsError, match=r"serve\.proxies"):
        memory_app(serve={"proxies": [proxy]})


async def test_a_server_that_can_not_listen_leaves_the_app_as_it_was() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with memory_app(serve={"port": taken.getsockname()[1]}) as app:
            with pytest.raises(NotServing):
                bind(app.settings.serve)
            app.register(add)
            assert (await app.invoke("add", {"a": 1, "b": 2})).output == 3


async def test_a_client_that_goes_away_cancels_its_call() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    @tool(tier="read_only")
    async def endless() -> str:
        """Never ends by itself."""
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return ""

    async with memory_app() as app, serving(app) as site:
        await site.with_key(app)
        app.register(endless)
        asking = asyncio.ensure_future(site.mcp("tools/call", {"name": "endless", "arguments": {}}))
        async with asyncio.timeout(30):
            await begun.wait()
            asking.cancel()
            await ended.wait()
            while not any("CANCELLED" in row[7] for row in await app.parts.store.read(audit_log.latest(5))):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("accept", [ACCEPT, f"{ACCEPT};q=0.9"], ids=["quick", "sdk"])
@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
async def test_a_client_that_goes_away_cancels_its_call_also_if_it_sent_others_after_it(later: bool, accept: str) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    @tool(tier="read_only")
    async def endless(n: int) -> str:
        """Never ends by itself."""
        runs.append(n)
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return ""

    def request(site: Site, number: int) -> bytes:
        params = {"name": "endless", "arguments": {"n": number}, "_meta": META}
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: {site.host}\r\nAccept: {accept}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nMCP-Protocol-Version: {VERSION}\r\nMcp-Method: tools/call\r\n"
            f"Mcp-Name: endless\r\nAuthorization: Bearer {site.key}\r\n\r\n"
        )
        return head.encode() + body

    async with memory_app() as app, serving(app) as site:
        await site.with_key(app)
        app.register(endless)
        _, writer = await asyncio.open_connection("127.0.0.1", site.port)
        first, *others = (request(site, number) for number in range(4))
        writer.write(first if later else b"".join((first, *others)))
        async with asyncio.timeout(30):
            await begun.wait()
            for other in others if later else ():
                writer.write(other)
                await asyncio.sleep(0.05)  # so that each comes by itself
            writer.close()
            await ended.wait()
            while not any("CANCELLED" in row[7] for row in await app.parts.store.read(audit_log.latest(5))):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert runs == [0], "those that waited are not run for nobody"


def test_nothing_of_it_is_imported_by_who_does_not_serve() -> None:
    code = (
        "import sys, toolgate.cli.main; print([n for n in ('uvicorn', 'starlette', 'mcp', 'aiohttp') if n in sys.modules])"
    )
    done = subprocess.run(
        [SCRIPT.with_name("python"), "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "[]"


async def test_it_is_known_by_the_name_that_it_listens_on_and_by_no_wildcard() -> None:
    async with memory_app(serve={"host": "192.0.2.7"}) as app:
        Authenticator(app).check_place({b"host": b"192.0.2.7:8700"})
    for wildcard in ("0.0.0.0", "::"):
        async with memory_app(serve={"host": wildcard}) as app:
            with pytest.raises(HttpProblem):
                Authenticator(app).check_place({b"host": b"0.0.0.0:8700"})
