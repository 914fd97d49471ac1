"""`http_fetch` and `rest_api_call`: what they send, what they make of the answer, and what they refuse."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loopback import Asked, Said, Site, site
from toolgate import Actor, App, Outcome, extras
from toolgate.tools.web_page import readable

pytestmark = [pytest.mark.requirement("BUILTIN-3"), pytest.mark.requirement("BUILTIN-4")]
ACME, GLOBEX = Actor("acme", user="ann"), Actor("globex", user="gus")
PAGE = """<!doctype html><html><head><title>Lamps &amp; more</title><style>p {color: red}</style></head><body>
<nav><a href="/">Home</a></nav><h1>Lamps</h1><p>A lamp gives <b>light</b>.</p><ul><li>one<li>two</ul>
<table><tr><td>a</td><td>b</td></tr></table><pre>x = 1
y = 2</pre><script>alert("no")</script><footer>imprint</footer></body></html>"""


PAGE_MARKDOWN = "# Lamps\n\nA lamp gives light.\n\n- one\n- two\n\n| a | b |\n|---|---|\n\n```\nx = 1\ny = 2\n```"


class Api:
    """A service that records what it is asked, and answers as it is told."""

    def __init__(self) -> None:
        self.says: dict[str, Said] = {}
        self.at: Site | None = None

    async def __call__(self, asked: Asked) -> Said:
        return self.says.get(asked.path, Said(200, {"ok": True}))

    @property
    def url(self) -> str:
        assert self.at is not None
        return self.at.url

    @property
    def asked(self) -> list[Asked]:
        assert self.at is not None
        return self.at.asked


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    made = Api()
    async with site(made) as made.at:
        yield made


@pytest.fixture
async def app(api: Api, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    assert api.at is not None
    host = f"127.0.0.1:{api.at.port}"
    monkeypatch.setenv("TOOLGATE_SECRET_TOKEN", "s3cret-t0ken-value")
    monkeypatch.setenv("TOOLGATE_SECRET_ELSEWHERE", "s3cret-elsewhere")
    use = {
        "TOKEN": [{"tool": "rest_api_call", "tenant": "acme", "hosts": [host]}],
        "ELSEWHERE": [
            {"tool": "rest_api_call", "tenant": "acme", "hosts": ["api.example.com"]},
            {"tool": "rest_api_call", "tenant": "globex"},
        ],
    }
    async with App.open(
        os.devnull, database_url="memory://", network={"allow": [host], "ports": [80, 443, 8443]}, secrets={"use": use}
    ) as app:
        app.approvals.add_approver(lambda _request: True)
        yield app


def failed(outcome: Outcome, code: str) -> Any:
    assert outcome.error is not None, outcome
    assert outcome.error.code == code, outcome.error
    return outcome.error


# -- http_fetch


@pytest.mark.parametrize("installed", [True, False], ids=["documents", "without the extra"])
async def test_a_page_is_given_as_text(app: App, api: Api, monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    if not installed:
        monkeypatch.setattr("toolgate.tools.web.is_installed", lambda name: name != "documents")
    api.says["/lamps"] = Said(200, PAGE)
    outcome = await app.invoke("http_fetch", {"url": f"{api.url}/lamps"})
    assert outcome.output == {
        "url": f"{api.url}/lamps", "status": 200, "content_type": "text/html", "title": "Lamps & more",
        "content": PAGE_MARKDOWN, "truncated": False,
    }  # fmt: skip
    assert outcome.metrics.resources_used == (api.url.removeprefix("http://"),)
    plain = await app.invoke("http_fetch", {"url": f"{api.url}/lamps", "format": "text"})
    assert plain.output["content"].startswith("Lamps\n\nA lamp")
    raw = await app.invoke("http_fetch", {"url": f"{api.url}/lamps", "format": "raw"})
    assert raw.output["content"] == PAGE


async def test_the_article_of_a_long_page_is_told_from_what_is_around_it(app: App, api: Api) -> None:
    article = "".join(
        f"<p>This is paragraph {number} of an article about lamps, and it says something.</p>" for number in range(40)
    )
    menu = "".join(f"<div class='menu'><a href='/{number}'>Offer {number}</a></div>" for number in range(40))
    api.says["/"] = Said(200, f"<html><body>{menu}<article><h1>Lamps</h1>{article}</article></body></html>")
    content = (await app.invoke("http_fetch", {"url": api.url})).output["content"]
    assert "paragraph 39" in content
    assert "Offer 7" not in content


@pytest.mark.parametrize(
    ("body", "kind", "content"),
    [
        (b'{"a": 1}', "application/json", '{"a": 1}'), ("grüße".encode("latin-1"), "text/plain; charset=latin-1", "grüße"),
        (b"a,b", "text/csv", "a,b"), (b"plain", "", "plain"), (b"<feed/>", "application/atom+xml", "<feed/>"),
    ],
)  # fmt: skip
async def test_other_text_is_given_as_it_is(app: App, api: Api, body: bytes, kind: str, content: str) -> None:
    api.says["/"] = Said(200, body, {"content-type": kind})
    outcome = await app.invoke("http_fetch", {"url": api.url})
    assert outcome.output["content"] == content


@pytest.mark.parametrize(("body", "kind"), [(b"\x89PNG", "image/png"), (b"\x00\x01", ""), (b"%PDF", "application/pdf")])
async def test_what_is_no_text_is_not_given(app: App, api: Api, body: bytes, kind: str) -> None:
    api.says["/"] = Said(200, body, {"content-type": kind})
    failed(await app.invoke("http_fetch", {"url": api.url}), "INVALID_INPUT")
    head = await app.invoke("http_fetch", {"url": api.url, "method": "HEAD"})
    assert (head.output["status"], head.output["content_type"], head.output["content"]) == (200, kind, "")


async def test_a_long_text_is_cut_and_says_so(app: App, api: Api) -> None:
    api.says["/"] = Said(200, b"x" * 3_000_000, {"content-type": "text/plain"})
    outcome = await app.invoke("http_fetch", {"url": api.url})
    assert outcome.output["truncated"] is True
    assert outcome.artifact is not None  # the output limits cut further, and keep what was given


@pytest.mark.parametrize(("status", "again"), [(404, False), (401, False), (429, True), (500, True), (503, True)])
async def test_an_error_status_is_an_error(app: App, api: Api, status: int, again: bool) -> None:
    api.says["/"] = Said(status, "<h1>sorry</h1>")
    for tool in ("http_fetch", "rest_api_call"):
        error = failed(await app.invoke(tool, {"url": api.url}), "INVOCATION_ERROR")
        assert (error.details, error.retryable) == ({"status": status}, again)
        assert "sorry" in error.message


async def test_a_slow_site_is_not_waited_for(app: App, api: Api) -> None:
    async def hang(_: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    api.says["/"] = Said(raw=hang)
    failed(await app.invoke("http_fetch", {"url": api.url, "timeout": 0.2}), "TIMEOUT")
    failed(await app.invoke("rest_api_call", {"url": api.url, "timeout": 200}), "TIMEOUT")


async def test_a_site_that_is_down_is_not_reached(app: App, api: Api) -> None:
    assert api.at is not None
    await api.at.stop()
    failed(await app.invoke("http_fetch", {"url": api.url}), "CONNECTION_ERROR")


@pytest.mark.parametrize(
    "html", ["<p>" * 200_000, "<!--" * 100_000, "<a " + "x=1 " * 100_000, "&" * 300_000, "<nav>" * 100_000]
)
async def test_a_hostile_page_costs_its_call_alone(app: App, api: Api, monkeypatch: pytest.MonkeyPatch, html: str) -> None:
    monkeypatch.setattr("toolgate.tools.web.READ_SECONDS", 1.0)
    api.says["/"] = Said(200, html)
    outcome = await app.invoke("http_fetch", {"url": api.url}, timeout=20)
    if outcome.status != "success":
        assert "raw" in failed(outcome, "INVOCATION_ERROR").suggestion


def test_what_a_reader_sees_of_a_page_is_read() -> None:
    asked = {"html": PAGE, "url": "https://a.example.com/", "markdown": True, "most": 1_000}
    read = readable(asked)
    assert read["title"] == "Lamps & more"
    assert not {"Home", "imprint", "alert", "color"} & set(read["text"].replace("(", " ").split())
    assert readable({**asked, "most": 10}) == {"title": "Lamps & more", "text": read["text"][:10], "truncated": True}
    long = PAGE.replace("<h1>", "<p>" + "A long sentence about lamps and light. " * 60 + "</p><h1>")
    assert "A long sentence" in readable({**asked, "html": long})["text"]


LINKED = """<h1>Lamps</h1><p>See <a href="../guide.html?a=1">the <b>guide</b></a>, <a href='javascript:alert(1)'>no</a>,
<a href="#top">up</a> and <a href="mailto:a@example.com">us</a>. Run <code>lamp on</code>.</p>
<pre><code class="hl language-python">if dark:
    lamp.on()

print("```")</code></pre>
<table><thead><tr><th>Name</th><th>Watts</th></tr></thead>
<tbody><tr><td><a href="small lamp.html">small</a></td><td>4</td></tr>
<tr><td>big</td><td>40</td></tr></tbody></table>"""
LINKED_MARKDOWN = """# Lamps

See [the guide](https://a.example.com/guide.html?a=1), no, up and [us](mailto:a@example.com). Run `lamp on`.

````python
if dark:
    lamp.on()

print("```")
````

| Name | Watts |
|---|---|
| [small](https://a.example.com/shop/small%20lamp.html) | 4 |
| big | 40 |"""


def test_links_code_and_tables_of_a_page_are_kept() -> None:
    asked = {"html": LINKED, "url": "https://a.example.com/shop/index.html", "markdown": True, "most": 9_000}
    assert readable(asked)["text"] == LINKED_MARKDOWN
    plain = readable({**asked, "markdown": False})["text"]
    assert "if dark:\n    lamp.on()\n\nprint" in plain
    assert "example.com" not in plain
    sentences = "".join(f"<p>Sentence {number} says something about lamps, in many words.</p>" for number in range(40))
    text = readable({**asked, "html": f"<html><body><article>{LINKED}{sentences}</article></body></html>"})["text"]
    assert "[the guide](https://a.example.com/guide.html?a=1)" in text.replace("**", "")
    assert "(https://a.example.com/shop/small%20lamp.html)" in text
    assert "javascript" not in text
    assert "    lamp.on()" in text
    assert "|---|---|" in text


@given(st.text(st.sampled_from("<>/=\"' \n`|[]()#aprecodtl"), max_size=300), st.booleans())
def test_any_tags_are_read(markup: str, markdown: bool) -> None:
    for html in (markup, f"<a href=x><code>{markup}</a><table><tr><td>{markup}<pre>{markup}</code></tr></pre>"):
        found = readable({"html": html, "url": "https://a.example.com/", "markdown": markdown, "most": 100})
        assert len(found["text"]) <= 100


@given(st.text(max_size=300), st.booleans())
def test_any_markup_is_read(markup: str, markdown: bool) -> None:
    found = readable({"html": f"<p>{markup}</p>", "url": "https://a.example.com/", "markdown": markdown, "most": 100})
    assert len(found["text"]) <= 100
    assert isinstance(found["title"], str)


async def test_nothing_is_fetched_unless_somebody_agrees(api: Api) -> None:
    assert api.at is not None
    async with App.open(os.devnull, database_url="memory://", network={"allow": [f"127.0.0.1:{api.at.port}"]}) as app:
        for tool in ("http_fetch", "rest_api_call"):
            outcome = await app.invoke(tool, {"url": api.url})
            assert outcome.status == "pending"
    assert api.at.connections == 0


async def test_without_the_extra_it_says_which(app: App, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    error = failed(await app.invoke("http_fetch", {"url": api.url}), "INVOCATION_ERROR")
    assert "toolgate[http]" in error.message


# -- rest_api_call


async def test_a_request_is_sent_as_it_is_said(app: App, api: Api) -> None:
    api.says["/items"] = Said(201, {"id": 7}, {"location": "", "etag": '"x"', "set-cookie": "a=b", "x-powered-by": "php"})
    outcome = await app.invoke(
        "rest_api_call",
        {
            "method": "POST", "url": f"{api.url}/items?v=2", "params": {"q": "a b", "on": True, "n": 3, "none": None},
            "headers": {"X-Trace": "1"}, "body": {"name": "lamp", "path": "/orders/7", "command": "switch on"},
        },
    )  # fmt: skip
    assert outcome.output["status"] == 201
    assert outcome.output["body"] == {"id": 7}
    assert outcome.output["headers"] == {"content-type": "application/json", "content-length": "9", "etag": '"x"'}
    assert outcome.output["duration"] >= 0
    asked = api.asked[0]
    assert (asked.method, asked.path, asked.query) == ("POST", "/items", {"v": "2", "q": "a b", "on": "true", "n": "3"})
    assert asked.json == {"name": "lamp", "path": "/orders/7", "command": "switch on"}
    assert (asked.headers["x-trace"], asked.headers["content-type"]) == ("1", "application/json")
    assert asked.headers["accept"].startswith("application/json")


@pytest.mark.parametrize(
    ("body", "sent", "kind"),
    [
        ('{"a": 1}', b'{"a": 1}', "application/json"), ("just text", b"just text", "text/plain; charset=utf-8"),
        ([1, 2], b"[1,2]", "application/json"), (7, b"7", "application/json"), (False, b"false", "application/json"),
    ],
)  # fmt: skip
async def test_a_body_is_json_or_text(app: App, api: Api, body: Any, sent: bytes, kind: str) -> None:
    await app.invoke("rest_api_call", {"method": "PUT", "url": api.url, "body": body})
    assert (api.asked[0].body, api.asked[0].headers["content-type"]) == (sent, kind)
    await app.invoke("rest_api_call", {"method": "PUT", "url": api.url, "body": body, "headers": {"Content-Type": "a/b"}})
    assert api.asked[1].headers["content-type"] == "a/b"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"])
async def test_every_method_is_sent(app: App, api: Api, method: str) -> None:
    outcome = await app.invoke("rest_api_call", {"method": method, "url": api.url})
    assert outcome.output["status"] == 200
    assert api.asked[0].method == method


@pytest.mark.parametrize(
    "wrong",
    [
        {"body": {"a": 1}}, {"method": "POST", "query": "{a}", "body": {}}, {"variables": {"a": 1}},
        {"params": {"a": {"b": 1}}}, {"headers": {"Host": "other"}}, {"headers": {"X": "a\nb"}}, {"url": "lamps"},
    ],
)  # fmt: skip
async def test_what_cannot_be_sent_is_said_to_be_wrong(app: App, api: Api, wrong: dict[str, Any]) -> None:
    failed(await app.invoke("rest_api_call", {"url": api.url, **wrong}), "INVALID_INPUT")
    assert api.asked == []


async def test_broken_json_is_an_error_and_binary_is_only_described(app: App, api: Api) -> None:
    api.says["/json"] = Said(200, b"{", {"content-type": "application/json"})
    api.says["/image"] = Said(200, b"\x89PNG\x00", {"content-type": "image/png"})
    failed(await app.invoke("rest_api_call", {"url": f"{api.url}/json"}), "INVOCATION_ERROR")
    outcome = await app.invoke("rest_api_call", {"url": f"{api.url}/image"})
    assert outcome.output["body"] == "(5 bytes of image/png)"


# -- GraphQL


async def test_a_graphql_query_is_posted_with_its_variables(app: App, api: Api) -> None:
    api.says["/graphql"] = Said(200, {"data": {"item": {"name": "lamp"}}})
    query = "query($id: ID!) { item(id: $id) { name } }"
    outcome = await app.invoke("rest_api_call", {"url": f"{api.url}/graphql", "query": query, "variables": {"id": "7"}})
    assert outcome.output["body"] == {"data": {"item": {"name": "lamp"}}}
    assert (api.asked[0].method, api.asked[0].json) == ("POST", {"query": query, "variables": {"id": "7"}})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"errors": [{"message": "no field x", "path": ["item", 0]}], "data": None}, "an error: no field x (at item.0)"),
        ({"errors": [{"message": "one"}, {"message": "two"}], "data": {"a": 1}}, "2 errors: one; two"),
        ({"errors": [{"message": "m"}] * 50}, "50 errors: m; m; m; m; m"),
        ({"errors": "oops"}, "an error: oops"), ({"errors": [7]}, "an error: 7"),
        ({"unlike": "graphql"}, "did not answer as a GraphQL API does"), ([], "did not answer as a GraphQL API does"),
    ],
)  # fmt: skip
@pytest.mark.sample(4)
async def test_errors_in_a_graphql_answer_become_an_error(app: App, api: Api, answer: Any, words: str) -> None:
    api.says["/"] = Said(200, answer)
    error = failed(await app.invoke("rest_api_call", {"url": api.url, "query": "{ item }"}), "INVOCATION_ERROR")
    assert words in error.message


# -- secrets


async def test_a_secret_is_sent_in_place_of_its_reference_and_masked_in_the_answer(app: App, api: Api) -> None:
    api.says["/"] = Said(200, {"you_sent": "s3cret-t0ken-value"})
    headers = {"Authorization": "Bearer {{secret:TOKEN}}"}
    outcome = await app.invoke("rest_api_call", {"url": api.url, "headers": headers}, actor=ACME)
    assert outcome.status == "success", outcome.error
    assert api.asked[0].headers["authorization"] == "Bearer s3cret-t0ken-value"
    assert "s3cret" not in str(outcome.output)


@pytest.mark.parametrize(
    ("actor", "name", "url"),
    [
        (GLOBEX, "TOKEN", "{api}"), (ACME, "ELSEWHERE", "{api}"), (GLOBEX, "ELSEWHERE", "{api}"),
        (ACME, "TOKEN", "https://evil.example.com/"), (ACME, "ELSEWHERE", "https://api.example.com.evil.example/"),
        (ACME, "ELSEWHERE", "https://{{{{secret:ELSEWHERE}}}}.evil.example/"),
        (ACME, "ELSEWHERE", "https://api.example.com:8443/"),
    ],
    ids=["other tenant", "other host", "no host named", "evil", "suffix", "in the host", "other port"],
)  # fmt: skip
async def test_a_secret_goes_only_where_a_setting_says(app: App, api: Api, actor: Actor, name: str, url: str) -> None:
    arguments = {"url": url.format(api=api.url), "headers": {"X-Key": f"{{{{secret:{name}}}}}"}}
    error = failed(await app.invoke("rest_api_call", arguments, actor=actor), "PERMISSION_DENIED")
    assert error.details["setting"] == "secrets.use"
    assert api.asked == []


async def test_a_secret_does_not_go_to_a_url_with_a_user_name(app: App) -> None:
    arguments = {"url": "https://api.example.com@evil.example/", "headers": {"X-Key": "{{secret:ELSEWHERE}}"}}
    error = failed(await app.invoke("rest_api_call", arguments, actor=ACME), "SECURITY_VIOLATION")
    assert "user name" in error.message


async def test_a_secret_is_not_sent_without_encryption(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any, **__: Any) -> None:
        pytest.fail("it was sent")

    monkeypatch.setattr("toolgate.network.http_client.HttpClient.request", never)
    arguments = {"url": "http://api.example.com/", "headers": {"X-Key": "{{secret:ELSEWHERE}}"}}
    failed(await app.invoke("rest_api_call", arguments, actor=ACME), "SECURITY_VIOLATION")
    in_path = {"url": "http://api.example.com/{{secret:ELSEWHERE}}"}
    failed(await app.invoke("rest_api_call", in_path, actor=ACME), "SECURITY_VIOLATION")


async def test_a_secret_can_stand_in_the_path(app: App, api: Api) -> None:
    api.says["/bot-s3cret-t0ken-value/send"] = Said(404, {"error": "no bot-s3cret-t0ken-value"})
    outcome = await app.invoke("rest_api_call", {"url": f"{api.url}/bot-{{{{secret:TOKEN}}}}/send"}, actor=ACME)
    assert api.asked[0].path == "/bot-s3cret-t0ken-value/send"
    assert "s3cret" not in str(failed(outcome, "INVOCATION_ERROR"))


# -- before a person is asked


@pytest.mark.parametrize("tool", ["http_fetch", "rest_api_call"])
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:8776/", 'network: {allow: ["127.0.0.1:8776"]}'),
        ("http://[::1]/", 'network: {allow: ["[::1]:80"]}'),
        ("http://localhost:8776/", 'network: {allow: ["localhost:8776"]}'),
        ("http://10.0.0.7/", 'network: {allow: ["10.0.0.7:80"]}'),
        ("http://wiki.internal/", 'network: {allow: ["wiki.internal:80"]}'), ("http://example.com:8776/", "network.ports"),
        ("http://93.184.216.34:8776/", "network.ports"), ("ftp://example.com/", "http"),
    ],
)  # fmt: skip
@pytest.mark.sample(4)
async def test_a_url_that_is_refused_as_it_is_written_is_not_asked_about(tool: str, url: str, words: str) -> None:
    asked: list[Any] = []
    async with App.open(os.devnull, database_url="memory://") as app:
        app.approvals.add_approver(asked.append)
        outcome = await app.invoke(tool, {"url": url})
        assert outcome.error is not None and outcome.error.code in ("SECURITY_VIOLATION", "INVALID_INPUT"), outcome
        assert words in outcome.error.message
        assert ("network.ports" in outcome.error.message) == (words == "network.ports")
        explained = await app.explain(tool, {"url": url})
        assert (explained.verdict, explained.gates[-1].gate) == ("deny", "network") and words in explained.reason
        assert (await app.explain(tool, {"url": "https://example.com/"})).verdict == "ask"
    assert asked == []


async def test_a_host_that_the_operator_allows_is_asked_about(app: App, api: Api) -> None:
    assert (await app.explain("http_fetch", {"url": api.url})).verdict == "ask"


async def test_a_refused_connection_is_told_with_its_port(app: App, api: Api) -> None:
    assert api.at is not None
    await api.at.stop()
    error = failed(await app.invoke("http_fetch", {"url": api.url}), "CONNECTION_ERROR")
    assert f"127.0.0.1:{api.at.port} cannot be reached" in error.message
