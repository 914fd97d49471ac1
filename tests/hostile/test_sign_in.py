"""Attacks on people who are signed in, and on the links that sign them in."""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.browser import OPENED, PAGE, Browser
from tests.serving import LAST_CHUNK, Site, serving
from toolgate import App, tool
from toolgate.serve.session_cookie import cookie_name, read_cookie, set_cookie
from toolgate.serve.sign_in import is_own_page
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-3")
REPOSITORY = Path(__file__).parents[2]


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@asynccontextmanager
async def signed_in(**settings: Any) -> AsyncIterator[tuple[App, Site, Browser]]:
    """A server, and the browser of its operator."""
    async with memory_app(**settings) as app, serving(app) as site:
        app.register(add)
        browser = Browser(site)
        assert (await browser.open((await app.sign_ins.create_link())[1])).status == 303
        yield app, site, browser


CALL = b'{"arguments": {"a": 1, "b": 2}}'


# -- requests that other pages make (CSRF)


async def test_a_page_of_ours_may_call_with_the_cookie() -> None:
    async with signed_in() as (_, site, browser):
        for headers in (PAGE, {"Origin": f"http://{site.host}"}, {**PAGE, "Origin": f"http://{site.host}"}):
            assert (await browser("POST", "/v1/tools/add/invoke", headers, CALL)).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://localhost:{port}"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "null"},
        {"Origin": "https://evil.example.com"},
        {"Origin": "http://127.0.0.1:{port}.evil.example.com"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "Same-Origin"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:9999", "Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:{port}"},
        {"Referer": "http://127.0.0.1:{port}/"},
    ],
)
async def test_a_request_that_another_page_makes_changes_nothing(headers: dict[str, str]) -> None:
    async with signed_in() as (_, site, browser):
        sent = {name: value.format(port=site.port) for name, value in headers.items()}
        for method, path, body in (("POST", "/v1/tools/add/invoke", CALL), ("DELETE", "/v1/session", b"")):
            answer = await browser(method, path, sent, body)
            assert answer.status == 403, (method, answer.body)
        assert (await browser("GET", "/v1/session")).status == 200, "they are signed in still"


async def test_what_another_page_loads_it_loads_without_the_sign_in() -> None:
    async with signed_in() as (_, _, browser):
        for site in ("same-site", "cross-site"):
            loaded = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}
            assert (await browser("GET", "/v1/session", loaded)).status == 403
        answer = await browser("GET", "/v1/session", {"Origin": "http://127.0.0.1:9999"})
        assert "access-control-allow-credentials" not in answer.headers
        assert (await browser("GET", "/v1/session", OPENED)).status == 200


async def test_the_cookie_counts_for_nothing_at_mcp() -> None:
    async with signed_in() as (_, site, browser):
        sent = {**PAGE, "Origin": f"http://{site.host}", "Cookie": browser.cookie}
        assert (await site.mcp("tools/call", {"name": "add", "arguments": {}}, headers=sent)).status == 401


async def test_of_a_header_and_a_cookie_the_header_alone_counts() -> None:
    async with signed_in() as (app, site, browser):
        wrong = f"tg_{'a' * 12}_{'x' * 43}"
        assert (await browser("GET", "/v1/session", key=wrong)).status == 401
        assert (await browser("GET", "/v1/session", {**PAGE, "Authorization": "Basic eDp4"})).status == 401
        await site.with_key(app)
        told = (await browser("GET", "/v1/session")).json
        assert (told["kind"], told["roles"]) == ("key", None)
        assert (await browser("DELETE", "/v1/session")).status == 404, "the session is not this request's"
        site.key = None
        assert (await browser("GET", "/v1/session")).json["kind"] == "session"


# -- cookies


async def test_a_session_that_somebody_planted_is_not_the_one_that_is_opened() -> None:
    async with memory_app() as app, serving(app) as site:
        planted = "A" * 43
        browser = Browser(site)
        browser.cookies = {f"toolgate_{site.port}": planted}
        await browser.open((await app.sign_ins.create_link())[1])
        assert browser.cookies[f"toolgate_{site.port}"] != planted
        stranger = Browser(site)
        stranger.cookies = {f"toolgate_{site.port}": planted}
        assert (await stranger("GET", "/v1/session")).status == 401


async def test_who_signs_in_again_has_a_new_session_and_the_old_one_ends() -> None:
    async with signed_in() as (app, _, browser):
        before = dict(browser.cookies)
        await browser.open((await app.sign_ins.create_link())[1])
        assert browser.cookies != before
        assert (await browser("GET", "/v1/session")).status == 200
        browser.cookies = before
        assert (await browser("GET", "/v1/session")).status == 401


@pytest.mark.parametrize(
    "cookie",
    ["{name}={value}; {name}={value}", "{name}=x; {name}={value}", "{name}={value}x", "{name}=", "{name}", "{value}",
     "other={value}", "{upper}={value}", '{name}="{value}"', "{name}={value}, x=1", ";" * 9_000],
)  # fmt: skip
async def test_only_the_very_cookie_counts(cookie: str) -> None:
    async with signed_in() as (_, site, browser):
        [(name, value)] = browser.cookies.items()
        sent = {**PAGE, "Cookie": cookie.format(name=name, value=value, upper=name.upper())}
        assert (await site("GET", "/v1/session", sent)).status == 401


async def test_two_cookie_headers_are_one_too_many() -> None:
    async with signed_in() as (_, site, browser):
        pairs = [("Cookie", "a=b"), ("Cookie", browser.cookie)]
        assert (await site("GET", "/v1/session", pairs)).status == 400


async def test_the_cookie_of_another_port_is_not_ours() -> None:
    async with signed_in() as (_, site, browser):
        [(_, value)] = browser.cookies.items()
        assert (await site("GET", "/v1/session", {**PAGE, "Cookie": f"toolgate_{site.port + 1}={value}"})).status == 401


@given(st.binary(max_size=200))
def test_every_cookie_header_is_read(sent: bytes) -> None:
    found = read_cookie({b"cookie": sent}, "toolgate_8700")
    assert found is None or b"toolgate_8700=" + found in sent


@given(st.text(max_size=100))
def test_a_path_that_is_taken_for_ours_leads_nowhere_else(target: str) -> None:
    if is_own_page(target):
        assert target.startswith("/")
        assert not target.startswith(("//", "/\\"))
        assert target.isascii()
        assert target.isprintable()


def test_a_cookie_has_the_name_of_its_port_and_scheme() -> None:
    assert cookie_name("http://127.0.0.1:8700") == "toolgate_8700"
    assert cookie_name("http://[::1]:8700") == "toolgate_8700"
    assert cookie_name("https://gate.example.com") == "__Host-toolgate_443"
    assert set_cookie("http://127.0.0.1", "", 0) == "toolgate_80=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"


async def test_the_end_of_a_session_ends_its_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.serve.streams.WATCH_SECONDS", 0.1)
    async with signed_in() as (app, site, browser):
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        head = f"GET /v1/events HTTP/1.1\r\nHost: {site.host}\r\nCookie: {browser.cookie}\r\n\r\n"
        writer.write(head.encode())
        assert (await asyncio.wait_for(reader.readline(), 30)).startswith(b"HTTP/1.1 200")
        [session] = await app.sign_ins.list()
        await app.sign_ins.revoke(session.id)
        await asyncio.wait_for(reader.readuntil(LAST_CHUNK), 30)
        writer.close()


# -- links


class Opener:
    """Another process, which opens links when it is told to."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def open(self, token: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{token}\n".encode())

    async def says(self) -> bytes:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).strip()


async def test_a_link_that_two_processes_open_at_the_same_moment_lets_one_in(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "tests.hostile.link_opener", str(tmp_path))
    pipe = asyncio.subprocess.PIPE
    async with App.open(home=tmp_path) as app, asyncio.timeout(60):
        processes = [
            await asyncio.create_subprocess_exec(*command, cwd=REPOSITORY, stdin=pipe, stdout=pipe) for _ in range(2)
        ]
        openers = [Opener(process) for process in processes]
        assert [await opener.says() for opener in openers] == [b"ready"] * 2
        for _ in range(3):
            _, token = await app.sign_ins.create_link()
            for opener in openers:
                opener.open(token)
            here = asyncio.ensure_future(app.sign_ins.open_link(token))
            said = [await opener.says() for opener in openers]
            said.append(b"in" if await here is not None else b"out")
            assert sorted(said) == [b"in", b"out", b"out"]
        for process in processes:
            await process.communicate(b"\n")
            assert process.returncode == 0
        assert len(await app.sign_ins.list()) == 3


async def test_of_a_crowd_that_opens_a_link_at_once_one_is_let_in(tmp_path: Path) -> None:
    async with App.open(home=tmp_path) as app, serving(app) as site:
        _, token = await app.sign_ins.create_link()
        answers = await asyncio.gather(*(Browser(site).open(token) for _ in range(20)))
        assert sorted(answer.status for answer in answers) == [303] + [403] * 19


async def test_a_link_that_is_too_old_opens_nothing() -> None:
    async with memory_app(auth={"link_seconds": 1}) as app, serving(app) as site:
        _, token = await app.sign_ins.create_link()
        await asyncio.sleep(1.1)
        assert (await Browser(site).open(token)).status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Purpose": "prefetch"},
        {"Sec-Purpose": "prefetch;prerender"},
        {"Purpose": "prefetch"},
        {"X-Purpose": "preview"},
        {"X-Moz": "prefetch"},
        {"Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Dest": "iframe"},
        {"Sec-Fetch-Dest": "empty"},
    ],
)
async def test_only_a_person_who_opens_a_link_uses_it_up(headers: dict[str, str]) -> None:
    async with memory_app() as app, serving(app) as site:
        _, token = await app.sign_ins.create_link()
        assert (await Browser(site).open(token, headers={**OPENED, **headers})).status == 403
        for method in ("POST", "PUT"):
            assert (await site(method, f"/sign-in?token={token}", OPENED, b"{}")).status == 405
        head = f"HEAD /sign-in?token={token} HTTP/1.1\r\nHost: {site.host}\r\nConnection: close\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(head.encode())
        assert (await asyncio.wait_for(reader.readline(), 30)).startswith(b"HTTP/1.1 405")
        writer.close()
        assert (await Browser(site).open(token)).status == 303


@pytest.mark.parametrize(
    "more",
    ["&next=//evil.example.com", "&next=https://evil.example.com", "&next=/%5Cevil.example.com", "&next=%5C%5Cevil.example",
     "&next=/%09/evil.example.com", "&next=/%0d%0aSet-Cookie:%20a=b", "&next=/%00", "&next=", "&next=evil", "&next=/%22%3E",
     "&next=/&next=//evil.example.com", "&token=x", "&other=1", f"&next=/{'a' * 3_000}", "&next=/%c3%a9",
     "&next=javascript:alert(1)", "&next=%2F%2Fevil.example.com"],
)  # fmt: skip
async def test_a_link_leads_nowhere_else_and_writes_no_headers(more: str) -> None:
    async with memory_app() as app, serving(app) as site:
        _, token = await app.sign_ins.create_link()
        answer = await Browser(site).open(token, more)
        assert (answer.status, "set-cookie" in answer.headers, "location" in answer.headers) == (400, False, False)
        assert (await Browser(site).open(token)).status == 303, "it is not used up"


@pytest.mark.parametrize(
    "query", ["", "?", "?token=", "?token", "?token=%ff", "?token=" + "x" * 5_000, "?token=x%00", "?next=/"]
)
async def test_a_link_that_is_not_whole_is_refused(query: str) -> None:
    async with memory_app() as app, serving(app) as site:
        answer = await site("GET", f"/sign-in{query}", OPENED)
        assert answer.status in (400, 403)
        assert answer.headers["content-type"] == "application/problem+json"
        assert await app.sign_ins.list() == []


async def test_a_link_counts_only_under_our_own_name() -> None:
    async with memory_app() as app, serving(app) as site:
        _, token = await app.sign_ins.create_link()
        assert (await Browser(site).open(token, headers={**OPENED, "Host": "evil.example.com"})).status == 421


async def test_guesses_of_links_and_sessions_are_slowed_down() -> None:
    async with signed_in() as (_, site, browser):
        began = time.monotonic()
        for number in range(8):
            assert (await Browser(site).open(f"{number}" * 43)).status == 403
        assert time.monotonic() - began > 0.3
        guesser = Browser(site)
        guesser.cookies = {f"toolgate_{site.port}": "z" * 43}
        began = time.monotonic()
        assert (await guesser("GET", "/v1/session")).status == 401
        assert time.monotonic() - began > 0.3
        began = time.monotonic()
        assert (await browser("GET", "/v1/session")).status == 200
        assert time.monotonic() - began < 0.3, "whoever is signed in does not wait"


async def test_no_token_stands_in_an_error_or_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "toolgate")
    async with memory_app() as app, serving(app) as site:
        _, token = await app.sign_ins.create_link()
        browser = Browser(site)
        await browser.open(token)
        await browser("GET", "/v1/session")
        again = await Browser(site).open(token)
        assert token.encode() not in again.body
        for secret in (token, *browser.cookies.values()):
            assert not any(secret in record.getMessage() or secret in str(vars(record)) for record in caplog.records)
