"""What strangers send to the route of QStash."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviour.test_qstash import BODY, WHOSE, opened, secrets
from tests.examples import at_most
from tests.loopback import site
from tests.qstash_server import CURRENT, PUBLIC, FakeQStash, delivery, signature

__all__ = ["secrets"]
pytestmark = pytest.mark.requirement("JOB-2")
URL = f"{PUBLIC}/jobs/count"


FORGED = [
    "", "nonsense", "a.b.c", "e30.e30.", "é",
    signature(BODY, URL, "another-key-" * 4),
    signature(BODY, URL, algorithm="none"),
    signature(BODY, URL, algorithm="none") + "x",
    signature(BODY, URL, "", algorithm="HS256"),
    signature(BODY, URL, algorithm="HS512"),
    signature(BODY, URL, seconds=-1),
    signature(BODY, URL, nbf=4_000_000_000),
    signature(BODY, URL, iss="Somebody"),
    signature(BODY, URL, exp=None),
    signature(BODY, URL, exp="soon"),
    signature(BODY, URL, exp=10**30),
    signature(BODY, URL, body=None),
    signature(BODY, URL, body=7),
    signature(b'{"n": 2}', URL),
    signature(BODY, f"{PUBLIC}/jobs/lost"),
    signature(BODY, "https://other.example.com/jobs/count"),
    signature(BODY, "http://toolgate.example.com/jobs/count"),
    signature(BODY, URL + "/"),
    signature(BODY, URL).rsplit(".", 1)[0] + ".",
    "x" * 20_000,
]  # fmt: skip


async def test_a_bad_signature_is_401_and_makes_no_job(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, server, _ran):
        for signed in FORGED:
            headers = [("Upstash-Message-Id", "msg_1"), *([("Upstash-Signature", signed)] if signed else [])]
            answer = await server("POST", "/jobs/count", headers, BODY)
            assert answer.status == 401, signed
            assert not any(word in answer.body.decode() for word in (CURRENT, "Traceback", "want:"))
        assert await app.jobs.list(actor=WHOSE) == []


async def test_an_empty_next_key_signs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", None):
        if value is None:
            monkeypatch.delenv("TOOLGATE_SERVER_SECRET_QSTASH_NEXT_SIGNING_KEY")
        else:
            monkeypatch.setenv("TOOLGATE_SERVER_SECRET_QSTASH_NEXT_SIGNING_KEY", value)
        async with opened(tmp_path) as (_, server, _ran):
            assert (await server("POST", "/jobs/count", delivery("count", BODY, key=""), BODY)).status == 401


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, server, _ran):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        signed = delivery("count", BODY)["Upstash-Signature"]
        writer.write(
            f"POST /jobs/count HTTP/1.1\r\nHost: {server.host}\r\nUpstash-Signature: {signed}\r\n"
            "Upstash-Message-Id: msg_1\r\nContent-Length: 100000000\r\n\r\n".encode()
        )
        async with asyncio.timeout(20):
            assert b" 413 " in await reader.readline(), "without one byte of it"
        writer.close()
        head = f"POST /jobs/count HTTP/1.1\r\nHost: {server.host}\r\nUpstash-Signature: {signed}\r\n"
        head += "Transfer-Encoding: chunked\r\n"
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        assert (await server.raw(head.encode() + b"\r\n" + chunk * 40 + b"0\r\n\r\n")).status == 413


@pytest.mark.parametrize(
    "headers",
    [
        [("Upstash-Message-Id", "msg_1"), ("Upstash-Message-Id", "msg_2")],
        [("Upstash-Signature", signature(BODY, URL)), ("Upstash-Message-Id", "msg_1")],
    ],
)
async def test_a_header_that_is_there_twice_is_refused(headers: list[tuple[str, str]], tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, server, _ran):
        both = [("Upstash-Signature", signature(BODY, URL)), *headers]
        assert (await server("POST", "/jobs/count", both, BODY)).status == 400
        assert await app.jobs.list(actor=WHOSE) == []


@pytest.mark.parametrize("id", [None, "x" * 201, "a b"])
async def test_a_message_without_a_proper_id_is_not_taken(id: str | None, tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, server, _ran):
        headers = {**delivery("count", BODY), "Upstash-Message-Id": id or ""}
        assert (await server("POST", "/jobs/count", headers, BODY)).status == 489
        assert await app.jobs.list(actor=WHOSE) == []


async def test_who_can_publish_by_qstash_cannot_speak_for_toolgate(tmp_path: Path) -> None:
    fake = FakeQStash()
    async with site(fake) as api, opened(tmp_path, qstash={"send": ["count"], "base_url": api.url}) as (app, server, ran):
        job = await app.jobs.enqueue("count", {"n": 1}, delay=1_000)
        for number, own in enumerate(("", "0" * 64, "é", None, {"a": 1})):
            body = json.dumps({"job": job.id, "toolgate_signature": own}).encode()
            assert (await server("POST", "/jobs/count", delivery("count", body, f"m{number}"), body)).status == 401
        for body in (json.dumps({"job": job.id}).encode(), json.dumps({"job": "\ud800", "toolgate_signature": ""}).encode()):
            headers = {**delivery("count", body, f"b{len(body)}"), "Toolgate-Signature": "0" * 64}
            assert (await server("POST", "/jobs/count", headers, body)).status in (401, 489)
        await app.jobs.run_all()
        assert ran == []


async def test_other_methods_and_paths_lead_nowhere(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, server, _ran):
        assert (await server("PUT", "/jobs/count")).status == 405
        assert (await server("GET", "/jobs/count")).status == 401  # a page about a job, for somebody who is signed in
        for path in ("/jobs", "/jobs/", "/jobs/count/x", "/jobs/%2e%2e", "/jobs/a%2fb", "/jobs/" + "x" * 100):
            assert (await server("POST", path, delivery("count", BODY), BODY)).status in (401, 404, 405)


@given(st.lists(st.tuples(st.binary(max_size=200), st.text(st.characters(min_codepoint=33, max_codepoint=126))), max_size=9))
@at_most(5)
async def test_no_bytes_bring_it_down(tmp_path_factory: Any, requests: list[tuple[bytes, str]]) -> None:
    async with opened(tmp_path_factory.mktemp("home")) as (_, server, _ran):
        for number, (body, signed) in enumerate(requests):
            headers = {"Upstash-Signature": signed, "Upstash-Message-Id": "m"}
            assert (await server("POST", "/jobs/count", headers, body)).status == 401
            answer = await server("POST", "/jobs/count", delivery("count", body, f"m{number}"), body)
            assert answer.status in (202, 401, 489)


@pytest.mark.parametrize("how", ["bits", "noise", "padding"])
async def test_a_signature_that_is_only_written_otherwise_brings_no_second_message(how: str, tmp_path: Path) -> None:
    """base64 has several forms of the same bytes: what the signature covers counts, and not its letters."""
    async with opened(tmp_path) as (app, server, _ran):
        recorded = delivery("count", BODY)
        assert (await server("POST", "/jobs/count", recorded, BODY)).status == 202
        signed, last = recorded["Upstash-Signature"][:-1], recorded["Upstash-Signature"][-1]
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        other = {
            "bits": signed + alphabet[alphabet.index(last) ^ 1],
            "noise": f"{signed}!{last}",
            "padding": f"{signed}{last}=",
        }[how]
        replayed = {**recorded, "Upstash-Signature": other, "Upstash-Message-Id": "msg_2"}
        assert (await server("POST", "/jobs/count", replayed, BODY)).status == 401
        assert len(await app.jobs.list(actor=WHOSE)) == 1
