"""The log of `toolgate serve`: a line for each request and each call, with ids, and nothing that a client could forge."""

import json
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.serving import Site, serving
from toolgate import App
from toolgate.model import Actor
from toolgate.serve import http_server
from toolgate.serve.request_log import MAX_WAITING_LINES, ServerLog, line

pytestmark = pytest.mark.requirement("AUD-5", "DOOR-1")
SECRET = "hunter2-hunter2"


@asynccontextmanager
async def logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Any = "json", *, verbose: bool = False
) -> AsyncIterator[tuple[App, Site, Callable[[], Any]]]:
    """A server whose log goes to a file, and what is in it."""
    file = tmp_path / "log"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    log = ServerLog(form, verbose=verbose, descriptor=descriptor)
    plain = http_server.serve
    monkeypatch.setattr("tests.serving.serve", lambda app, ready: plain(app, ready, log))

    async def lines() -> list[str]:
        await log.close()
        return file.read_text().splitlines()

    async with App.open(os.devnull, home=tmp_path / "home", entry_points=False) as app, log.of(app), serving(app) as site:
        yield app, site, lines
    os.close(descriptor)


async def test_requests_and_calls_have_a_line_each_without_query_key_or_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with logged(tmp_path, monkeypatch) as (app, site, lines):
        await site.with_key(app, Actor("acme", "analyst", "ann"))
        answer = await site("GET", f"/healthz?token={SECRET}", {"X-Request-Id": "mine-7", "Cookie": f"s={SECRET}"})
        assert answer.headers["x-request-id"] == "mine-7"
        await site.mcp("tools/call", {"name": "echo", "arguments": {"text": SECRET}})
        await app.invoke("no_such_tool", {"x": SECRET}, actor=Actor("acme", user="bob"))
        found = [json.loads(one) for one in await lines()]
        text = json.dumps(found)
        assert SECRET not in text and site.key is not None and site.key not in text
        [request] = [one for one in found if one["event"] == "request"]
        assert (request["method"], request["path"], request["status"], request["request"]) == (
            "GET",
            "/healthz",
            200,
            "mine-7",
        )
        assert request["bytes"] == len(answer.body) and request["ms"] >= 0
        echoed, unknown = (one for one in found if one["event"] == "call")
        assert (echoed["tool"], echoed["tenant"], echoed["user"], echoed["status"]) == ("echo", "acme", "ann", "success")
        assert unknown["status"] != "success" and unknown["code"] and unknown["user"] == "bob"
        assert len(echoed["call"]) == 36


async def test_requests_of_mcp_have_lines_when_more_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with logged(tmp_path, monkeypatch, verbose=True) as (app, site, lines):
        await site.with_key(app)
        answer = await site.mcp("tools/call", {"name": "echo", "arguments": {"text": "x"}})
        found = [json.loads(one) for one in await lines()]
        [request] = [one for one in found if one["event"] == "request"]
        assert (request["method"], request["path"], request["status"]) == ("POST", "/mcp", 200)
        assert request["request"] and request["bytes"] > 0, answer


@pytest.mark.parametrize("given", ["", "a\x00b", "x" * 10_000, "\u202eabc", "a b\x1b[2J"])
async def test_a_request_id_that_no_record_may_hold_is_replaced(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with logged(tmp_path, monkeypatch) as (_, site, lines):
        head = f"GET /healthz HTTP/1.1\r\nHost: {site.host}\r\nConnection: close\r\nX-Request-Id: ".encode()
        answer = await site.raw(head + given.encode() + b"\r\n\r\n")
        if answer.status == 200:
            assert re.fullmatch(r"[0-9a-f-]{36}", answer.headers["x-request-id"])
        assert all(json.loads(one)["request"] != given for one in await lines())


async def test_an_id_goes_into_every_answer_also_of_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with logged(tmp_path, monkeypatch) as (_, site, _lines):
        for method, path in (("GET", "/nowhere"), ("DELETE", "/healthz"), ("POST", "/mcp")):
            answer = await site(method, path, {"X-Request-Id": "r-1"})
            assert answer.status >= 400 and answer.headers["x-request-id"] == "r-1"


@pytest.mark.parametrize("form", ["text", "json"])
async def test_nothing_that_a_client_writes_begins_a_line_or_hides_a_part_of_one(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = "/x%0A2026-01-01T00:00:00.000Z%20call%20status=success%1B%5B2J%E2%80%AE"
    async with logged(tmp_path, monkeypatch, form) as (app, site, lines):
        assert (await site("GET", forged)).status == 404
        await app.invoke('x" status=success \n\u2028', {}, actor=Actor("acme", user='a" status=success'))
        found = await lines()
        assert len(found) == 2
        for one in found:
            assert one.isprintable()
            if form == "text":
                assert len(re.findall(r'(?<!\\)(?:^|(?<=[^"\\\w])) status=', one)) <= 1
                outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', one)
                assert outside.count("status=") == 1


def test_values_are_cut_and_what_could_be_taken_for_more_is_quoted() -> None:
    text = line(0.0, {"event": "request", "path": "/" + "a" * 9_999, "user": 'a b="c\\', "code": None}, "text")
    assert len(text) < 500 and 'user="a b=\\"c\\\\"' in text and "code" not in text


async def test_a_reader_that_is_too_slow_is_told_how_many_lines_were_dropped(tmp_path: Path) -> None:
    file = tmp_path / "log"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    log = ServerLog("json", descriptor=descriptor)
    for _ in range(MAX_WAITING_LINES + 5):
        log.request({"type": "http", "method": "GET", "path": "/"}, 200, 0, 0.0)
    await log.close()
    os.close(descriptor)
    found = file.read_text().splitlines()
    assert len(found) == MAX_WAITING_LINES + 1 and json.loads(found[-1])["lines"] == 5
