"""One-time links, and browsers that are signed in by them."""

import asyncio
import json
import os
import re
import signal
import subprocess
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from tests.browser import OPENED, PAGE, Browser
from tests.serving import SECONDS, serving
from tests.terminal import SCRIPT, Terminal
from toolgate import Actor, App
from toolgate.errors import KeyRefused, SignInRefused
from toolgate.gates.secrets.names import Owner
from toolgate.store import audit_log
from toolgate.store.database import Transaction, now
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-3")

BOB = Actor("acme", "analyst", "bob", ("tool:web_search",))


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


async def test_a_link_signs_its_opener_in_once(tmp_path: Path, database: str) -> None:
    async with App.open(home=tmp_path, database_url=database) as app, serving(app) as site:
        link, token = await app.sign_ins.create_link(BOB, roles=["approver", "viewer"])
        assert (link.actor, link.roles) == (BOB, ("viewer", "approver"))
        browser = Browser(site)
        opened = await browser.open(token)
        assert (opened.status, opened.headers["location"]) == (303, "/")
        assert opened.headers["cache-control"] == "no-store"
        assert opened.headers["referrer-policy"] == "no-referrer"
        told = (await browser("GET", "/v1/session")).json
        assert (told["kind"], told["tenant"], told["persona"], told["user"]) == ("session", "acme", "analyst", "bob")
        assert (told["roles"], told["scopes"]) == (["viewer", "approver"], ["tool:web_search"])
        assert told["permissions"] == ["answer", "own", "read"]
        assert told["expires_at"]
        again = await Browser(site).open(token)
        assert (again.status, "set-cookie" in again.headers) == (403, False)


async def test_the_local_person_is_the_operator() -> None:
    async with memory_app() as app, serving(app) as site:
        browser = Browser(site)
        await browser.open((await app.sign_ins.create_link())[1])
        told = (await browser("GET", "/v1/session")).json
        assert (told["tenant"], told["user"], told["roles"]) == ("default", "local", ["operator"])


async def test_the_cookie_has_the_flags_that_keep_it_ours() -> None:
    async with memory_app() as app, serving(app) as site:
        answer = await Browser(site).open((await app.sign_ins.create_link())[1])
        name, value, rest = re.fullmatch(r"(\w+)=([\w-]{43}); (.+)", answer.headers["set-cookie"]).groups()  # type: ignore[union-attr]
        assert name == f"toolgate_{site.port}", "other ports of the host have cookies of their own"
        assert rest.split("; ") == ["Path=/", "Max-Age=604800", "HttpOnly", "SameSite=Strict"]
        assert value


@pytest.mark.parametrize(
    ("headers", "proxies", "secure"),
    [
        ({"X-Forwarded-Proto": "https"}, ["127.0.0.1"], True),
        ({"X-Forwarded-Proto": "http, https"}, ["127.0.0.1"], True),
        ({"X-Forwarded-Proto": "https, http"}, ["127.0.0.1"], False),
        ({"Forwarded": "for=10.0.0.9;proto=https"}, ["127.0.0.1"], True),
        ({"Forwarded": "proto=https", "X-Forwarded-Proto": "http"}, ["127.0.0.1"], False),
        ({"X-Forwarded-Proto": "https"}, [], False),
    ],
)
async def test_behind_a_trusted_proxy_with_tls_the_cookie_is_secure(
    headers: dict[str, str], proxies: list[str], secure: bool
) -> None:
    async with memory_app(serve={"proxies": proxies}, mcp={"hosts": ["gate.example.com"]}) as app, serving(app) as site:
        browser = Browser(site)
        sent = {"Host": "gate.example.com", **headers}
        answer = await browser.open((await app.sign_ins.create_link())[1], headers={**OPENED, **sent})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-toolgate_443=") == secure, cookie
        assert cookie.endswith("; Secure") == secure
        assert (await browser("GET", "/v1/session", {**PAGE, **sent})).status == 200


async def test_the_public_address_says_that_it_is_encrypted() -> None:
    async with memory_app(serve={"public_url": "https://gate.example.com"}) as app, serving(app) as site:
        sent = {**OPENED, "Host": "gate.example.com"}
        cookie = (await Browser(site).open((await app.sign_ins.create_link())[1], headers=sent)).headers["set-cookie"]
        assert cookie.startswith("__Host-toolgate_443=")
        assert cookie.endswith("; Secure")
        assert await app.sign_ins.address() == "https://gate.example.com"


async def test_a_link_that_a_page_of_somebody_else_opens_goes_on_with_the_cookie() -> None:
    async with memory_app() as app, serving(app) as site:
        token = (await app.sign_ins.create_link())[1]
        sent = {**OPENED, "Sec-Fetch-Site": "cross-site"}
        answer = await Browser(site).open(token, "&next=/approvals%3Fid%3D%221%22", headers=sent)
        assert answer.status == 400, "a quotation mark is percent-encoded in an address"
        answer = await Browser(site).open(token, "&next=/approvals?a=1%26b=2", headers=sent)
        assert answer.status == 200, "a redirect would be made in the name of that page, without the cookie"
        assert answer.headers["content-type"].startswith("text/html")
        assert b'content="0;url=/approvals?a=1&amp;b=2"' in answer.body
        assert "set-cookie" in answer.headers


async def test_next_leads_to_a_page_of_ours() -> None:
    async with memory_app() as app, serving(app) as site:
        answer = await Browser(site).open((await app.sign_ins.create_link())[1], "&next=/approvals/42%3Fx%3D1")
        assert answer.headers["location"] == "/approvals/42?x=1"


# -- the end of a session


async def test_who_signs_out_is_out_in_every_process(tmp_path: Path, database: str) -> None:
    where = {"home": tmp_path, "database_url": database}
    async with App.open(**where) as here, App.open(**where) as there, serving(here) as one, serving(there) as two:
        browser = Browser(one)
        await browser.open((await here.sign_ins.create_link())[1])
        value = next(iter(browser.cookies.values()))
        other = Browser(two)
        other.cookies = {f"toolgate_{two.port}": value}  # as behind a load balancer
        for each in (browser, other):
            assert (await each("GET", "/v1/session")).status == 200
        out = await browser("DELETE", "/v1/session")
        assert out.status == 204
        assert "Max-Age=0" in out.headers["set-cookie"]
        browser.cookies = {f"toolgate_{one.port}": value}
        assert (await browser("GET", "/v1/session")).status == 401
        async with asyncio.timeout(30):  # a notice through PostgreSQL takes its time, one through a file does not
            while (await other("GET", "/v1/session")).status != 401:
                assert database.startswith("postgresql"), "the file beside SQLite says it at once"
        with pytest.raises(SignInRefused):
            await here.sign_ins.revoke((await here.sign_ins.list())[0].id)


async def test_a_session_ends_when_it_is_idle_and_at_last_in_any_case() -> None:
    async with memory_app() as app:
        _, token = await app.sign_ins.create_link()
        opened = await app.sign_ins.open_link(token)
        assert opened is not None
        session, text = opened
        idle = app.sign_ins.idle
        assert (idle, session.expires_at - session.created_at) == (timedelta(hours=12), timedelta(days=7))
        assert session.state(now() + timedelta(hours=11), idle) == "valid"
        assert session.state(now() + timedelta(hours=13), idle) == "expired"

        async def make(last_used: timedelta, left: timedelta) -> None:
            def change() -> Transaction[None]:
                yield (
                    "UPDATE web_sessions SET last_used_at = :used, expires_at = :end WHERE id = :id",
                    {"used": now() - last_used, "end": now() + left, "id": session.id},
                )

            await app.parts.store.transact(change())

        await make(timedelta(hours=11), timedelta(days=1))
        assert await app.sign_ins.check(text.encode()) is not None
        await app.sign_ins.close()
        assert now() - (await app.sign_ins.list())[0].last_used_at < timedelta(minutes=1), "its use is noted"
        await make(timedelta(hours=13), timedelta(days=1))
        assert await app.sign_ins.find(text.encode()) is None
        await make(timedelta(0), timedelta(0))
        assert await app.sign_ins.check(text.encode()) is None


async def test_signing_in_and_out_is_on_record_and_no_token_is(tmp_path: Path) -> None:
    async with App.open(home=tmp_path) as app, serving(app) as site:
        browser = Browser(site)
        _, token = await app.sign_ins.create_link(BOB, roles=["viewer"])
        await browser.open(token)
        cookie = next(iter(browser.cookies.values()))
        await browser("DELETE", "/v1/session")
        await app.flush()
        acts = [row for row in await app.parts.store.read(audit_log.latest(10)) if row[2].startswith("sign_in.")]
        assert [row[2] for row in acts] == ["sign_in.link_created", "sign_in.opened", "sign_in.revoked"]
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert token.encode() not in file.read_bytes(), file
            assert cookie.encode() not in file.read_bytes(), file


async def test_a_link_and_a_key_for_a_tenant_are_in_the_log_of_that_tenant_alone(tmp_path: Path) -> None:
    """Another tenant's people must not read who has which roles there."""
    ann = Actor("acme", user="ann")
    async with App.open(home=tmp_path) as app:
        await app.sign_ins.create_link(ann, roles=["admin"])
        opened = await app.sign_ins.open_link((await app.sign_ins.create_link(ann))[1])
        assert opened is not None
        await app.sign_ins.revoke(opened[0].id)
        key, _ = await app.keys.create("one", ann)
        await app.keys.revoke(key.id)
        await app.tools.set_flags([("acme", "echo", False)])
        await app.tools.enable("echo", tenant="acme")
        await app.policy.set_allow_list("acme", None)
        await app.policy.restrict_code("acme")
        await app.secrets.set("TOKEN", "a value of it", Owner("acme"))
        await app.flush()
        of = {tenant: {row[2] for row in await app.audit.after(0, tenant=tenant)} for tenant in ("acme", "default")}
        acts = {
            "sign_in.link_created", "sign_in.revoked", "key.created", "key.revoked", "tenant.flags", "tool.enabled",
            "policy.allow_list", "policy.code_execution", "secret.set",
        }  # fmt: skip
        assert acts <= of["acme"] and not acts & of["default"]


async def test_who_could_not_have_a_key_gets_no_link_either() -> None:
    async with memory_app() as app:
        with pytest.raises(KeyRefused):
            await app.sign_ins.create_link(Actor(user="\u0430nn"))
        for roles in ([], ["god"]):
            with pytest.raises(SignInRefused):
                await app.sign_ins.create_link(roles=roles)  # type: ignore[arg-type]


async def test_a_form_of_our_pages_is_told_by_its_hidden_field() -> None:
    async with memory_app() as app, memory_app() as other:
        made = []
        for _ in range(2):
            opened = await app.sign_ins.open_link((await app.sign_ins.create_link())[1])
            assert opened is not None
            credential = await app.sign_ins.check(opened[1].encode())
            assert credential is not None
            made.append(credential)
        mine, theirs = made
        field = await app.sign_ins.csrf_token(mine)
        assert await app.sign_ins.is_csrf_token(mine, field)
        assert field == await app.sign_ins.csrf_token(mine)
        for wrong in (
            await app.sign_ins.csrf_token(theirs),
            await other.sign_ins.csrf_token(mine),
            "",
            field[:-1],
            "\ud800",
        ):
            assert not await app.sign_ins.is_csrf_token(mine, wrong)


# -- the command


def test_the_command_needs_a_server_and_a_role(terminal: Terminal) -> None:
    done = terminal("sign-in", "--json")
    assert (done.code, done.json["error"]["code"]) == (1, "SERVE_ERROR")
    assert "toolgate serve" in done.json["error"]["suggestion"]
    assert terminal("sign-in", "--user", "bob").code == 2
    assert terminal("sign-in", "--role", "god").code == 2
    assert terminal("sign-in", "--user", "bob", "--role", "viewer", "list").code == 2
    assert terminal("sign-in", "list", "--json").json == {"sessions": []}
    assert terminal("sign-in", "revoke", "x").code == 1


async def test_serve_prints_a_link_and_sign_in_prints_another(terminal: Terminal) -> None:
    program = await asyncio.create_subprocess_exec(
        SCRIPT, "serve", "--port", "0", "--json", cwd=terminal.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert program.stdout is not None
        told = json.loads(await asyncio.wait_for(program.stdout.readline(), SECONDS))
        assert told["sign_in"].startswith(f"{told['url']}/sign-in?token=")
        made = await asyncio.to_thread(
            terminal, "sign-in", "--tenant", "acme", "--user", "bob", "--role", "approver", "--json"
        )
        assert made.code == 0, made.err
        assert made.json["url"].startswith(f"{told['url']}/sign-in?token=")
        assert made.json["url"] != told["sign_in"]
        for url in (told["sign_in"], made.json["url"]):
            fetched = await asyncio.create_subprocess_exec(
                "curl", "-s", "-o", os.devnull, "-w", "%{http_code}", url, stdout=subprocess.PIPE
            )
            assert (await fetched.communicate())[0] == b"303"
        listed = (await asyncio.to_thread(terminal, "sign-in", "list", "--json")).json["sessions"]
        assert [(one["user"], one["roles"], one["state"]) for one in listed] == [
            ("local", ["operator"], "valid"), ("bob", ["approver"], "valid"),
        ]  # fmt: skip
        assert (await asyncio.to_thread(terminal, "sign-in", "revoke", listed[1]["id"])).code == 0
        after = (await asyncio.to_thread(terminal, "sign-in", "list", "--tenant", "acme", "--json")).json["sessions"]
        assert [one["state"] for one in after] == ["revoked"]
    finally:
        with suppress(ProcessLookupError):
            program.send_signal(signal.SIGTERM)
        await asyncio.wait_for(program.wait(), SECONDS)
