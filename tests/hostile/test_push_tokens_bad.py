"""Push tokens of hostile users: URLs that would reach inside, read files, use what is the operator's, or take too much."""

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.loopback import Asked, Said, site
from toolgate.conversation.push_sender import MAX_PUSH_URL_CHARS, PushSender
from toolgate.errors import Denied, InvalidInput
from toolgate.network.http_client import HttpClient
from toolgate.settings.notify import PushKind

pytestmark = [
    pytest.mark.requirement("BUILTIN-4"),
    pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning"),  # apprise looks whether it is there
]
KINDS = get_args(PushKind)
OUTSIDE = re.compile(
    r"smtplib|import socket|from socket|subprocess|paho|slixmpp|dbus|keyfile|\bdns\b|urllib\.request|import_module"
    r"|http\.client|websocket|\bssl\.|\bexec\(|\beval\("
)
"""Ways out of a plugin besides `requests`."""


def sender(*allow: str, **more: Any) -> PushSender:
    return PushSender(HttpClient(allow, **more), KINDS, 5)


@pytest.mark.parametrize(
    "url",
    [
        "json://127.0.0.1/x", "jsons://localhost/x", "json://169.254.169.254/latest/meta-data", "json://[::1]/x",
        "ntfy://10.0.0.1/topic", "gotify://router/AbCdEf123456789", "xml://db.internal/x", "form://192.168.1.1/x",
        "json://2130706433/x", "json://0x7f.1/x", "json://example.com:22/x", "json://[::ffff:127.0.0.1]/x",
        "rocket://user:pass@intranet.lan/#room", "mmost://127.0.0.1/3ccdd113474722377935511fc85d3dd4",
    ],
)  # fmt: skip
async def test_a_url_that_leads_inside_is_refused_before_it_is_kept(url: str) -> None:
    with pytest.raises((Denied, InvalidInput)):
        await sender().check(url)
    assert (await sender().send(url, "t", "m", "acme")).verdict == "failed"


async def test_a_public_name_that_resolves_inside_is_not_connected_to() -> None:
    async def inside(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    async def take(_asked: Asked) -> Said:
        return Said(200)

    async with site(take) as server:
        guarded = sender(resolve=inside, ports=(server.port,))
        url = f"json://public.example.com:{server.port}/x"
        assert await guarded.check(url) == "json"
        result = await guarded.send(url, "t", "m", "acme")
        assert (result.verdict, server.connections) == ("failed", 0)
        assert "refused" in (result.reason or "")
        assert "public.example.com" not in (result.reason or "")


async def test_a_redirect_inside_is_not_followed() -> None:
    async def take(asked: Asked) -> Said:
        return Said(302, headers={"location": f"http://localhost:{server.port}/inner"}) if asked.path == "/x" else Said(200)

    async with site(take) as server:
        result = await sender(f"127.0.0.1:{server.port}").send(f"json://127.0.0.1:{server.port}/x", "t", "m", "acme")
        assert (result.verdict, [asked.path for asked in server.asked]) == ("failed", ["/x"])


async def test_nothing_of_the_operator_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def take(_asked: Asked) -> Said:
        return Said(200)

    async with site(take) as server, site(take) as proxy:
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login operator password hidden\n")
        monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        url = f"json://127.0.0.1:{server.port}/x?+Host=inner.example.com&+X-Mine=1"
        assert (await sender(f"127.0.0.1:{server.port}").send(url, "t", "m", "acme")).verdict == "delivered"
        [asked] = server.asked
        assert (proxy.connections, "authorization" in asked.headers) == (0, False)
        assert asked.headers["host"] == f"127.0.0.1:{server.port}"
        assert asked.headers["x-mine"] == "1"


async def test_a_template_of_this_machine_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "template.json"
    secret.write_text('{"content": "file of the operator"}')
    for url in (
        f"discord://123456789012345678/abcdefghijklmnopqrstuvwxyz?template={secret}",
        f"slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?template=file://{secret}",
        f"tgram://123456789:abcdefg_hijklmnop/12315544/?template={secret}",
    ):
        with pytest.raises(InvalidInput, match="template"):
            await sender().check(url)


async def test_a_token_has_one_receiver() -> None:
    for url in ("ntfy://ntfy.example.com/a/b", "tgram://123456789:abcdefg_hijklmnop/1231/4564/"):
        with pytest.raises(InvalidInput, match="one receiver"):
            await sender().check(url)


async def test_an_answer_of_any_size_and_kind_is_no_problem() -> None:
    async def answer(asked: Asked) -> Said:
        if asked.path == "/huge":
            return Said(200, b"x" * 5_000_000)
        if asked.path == "/bomb":
            return Said(500, b"\x1f\x8b" + b"\x00" * 100, {"content-encoding": "gzip"})
        return Said(302, headers={"location": "/loop"})

    async with site(answer) as server:
        one = sender(f"127.0.0.1:{server.port}")
        results = {
            path: (await one.send(f"json://127.0.0.1:{server.port}/{path}", "t", "m", "acme")).verdict
            for path in ("huge", "bomb", "loop")
        }
        assert results == {"huge": "delivered", "bomb": "failed", "loop": "failed"}


@given(
    st.sampled_from([*KINDS, "file", "exec", "syslog", "https", "JSON", ""]),
    st.text(max_size=80) | st.from_regex(r"[a-z0-9.:@/?&=%#\[\]+-]{0,60}", fullmatch=True),
)
@at_most(60)
async def test_whatever_is_written_is_refused_or_leads_to_a_public_host(kind: str, rest: str) -> None:
    one = sender()
    try:
        assert await one.check(f"{kind}://{rest}") == kind
    except (InvalidInput, Denied):
        return


async def test_a_long_or_unprintable_url_is_refused() -> None:
    for url in ("json://example.com/" + "x" * MAX_PUSH_URL_CHARS, "json://example.com/\x00", "json://exämple.com/", "", "x"):
        with pytest.raises(InvalidInput):
            await sender().check(url)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_may_be_allowed_has_no_other_way_out(kind: str) -> None:
    """Of the pinned apprise: whoever upgrades it sees here if a plugin has grown one."""
    from apprise.manager_plugins import NotificationManager

    plugin = NotificationManager()[kind]  # type: ignore[no-untyped-call]
    source = inspect.getsource(inspect.getmodule(plugin))  # type: ignore[arg-type]
    assert not OUTSIDE.findall(source)
    assert "requests." in source
    for found in re.finditer(r"AppriseAttachment\(", source):
        given = "attach = ", "AppriseAttachment(attach,"  # what a caller of apprise hands over, which we do not
        is_given = source[: found.start()].endswith(given[0]) and source[found.start() :].startswith(given[1])
        assert is_given or source[: found.start()].endswith("self.template = ")


async def test_requests_of_others_are_not_concerned() -> None:
    import requests

    async def take(_asked: Asked) -> Said:
        return Said(200)

    async with site(take) as server:
        await sender().send("json://127.0.0.1/x", "t", "m", "acme")
        response = await asyncio.to_thread(requests.get, server.url, timeout=5)
        assert response.status_code == 200
        assert type(requests.Session().get_adapter("https://example.com")).__name__ == "HTTPAdapter"
