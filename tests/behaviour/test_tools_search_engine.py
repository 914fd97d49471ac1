"""`search_engine`: by a SearXNG, by the tool web_search, and with neither."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.loopback import Asked, Said, Site, site
from toolgate import App, Outcome, tool
from toolgate.errors import InvalidInput, SettingsError

pytestmark = [pytest.mark.requirement("BUILTIN-4"), pytest.mark.requirement("BUILTIN-2")]
RESULTS = [
    {"title": "Kigali  weather", "url": "https://weather.example/kigali", "content": "Sunny,\n24 °C", "engine": "x"},
    {"title": None, "url": "https://other.example/", "content": None},
    {"url": "javascript:alert(1)", "title": "bad"}, {"title": "without url"}, 7, {"url": "https://x.example/" + "y" * 3_000},
    {"title": "third", "url": "http://third.example/", "content": "z" * 5_000},
]  # fmt: skip


def failed(outcome: Outcome, code: str) -> Any:
    assert outcome.error is not None, outcome
    assert outcome.error.code == code, outcome.error
    return outcome.error


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[App]:
    async with App.open(os.devnull, database_url="memory://", **settings) as app:
        app.approvals.add_approver(lambda _request: True)
        yield app


@asynccontextmanager
async def searxng(said: Said) -> AsyncIterator[tuple[Site, App]]:
    async def answer(_: Asked) -> Said:
        return said

    async with site(answer) as there, opened(search={"searxng_url": f"{there.url}/searxng/"}) as app:
        yield there, app


async def test_searxng_is_asked_as_it_documents() -> None:
    async with searxng(Said(200, {"query": "x", "results": RESULTS})) as (there, app):
        outcome = await app.invoke("search_engine", {"query": "weather in Kigali & more"})
        assert outcome.output == {
            "results": [
                {"title": "Kigali weather", "url": "https://weather.example/kigali", "snippet": "Sunny, 24 °C"},
                {"title": "", "url": "https://other.example/", "snippet": ""},
                {"title": "third", "url": "http://third.example/", "snippet": "z" * 1_000},
            ]
        }
        [asked] = there.asked
        assert (asked.method, asked.path) == ("GET", "/searxng/search")
        assert asked.query == {"q": "weather in Kigali & more", "format": "json"}
        few = await app.invoke("search_engine", {"query": "x", "count": 1})
        assert len(few.output["results"]) == 1


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (Said(403, "forbidden"), "gives no JSON"), (Said(429), "limits how often"), (Said(500), "status 500"),
        (Said(200, "<html>"), "not valid JSON"), (Said(200, []), "as SearXNG does"),
        (Said(200, {"results": {}}), "as SearXNG does"),
        (Said(200, b"[" * 100_000), "not valid JSON"),
    ],
)  # fmt: skip
async def test_what_is_no_answer_of_searxng_is_an_error(said: Said, words: str) -> None:
    async with searxng(said) as (_, app):
        error = failed(await app.invoke("search_engine", {"query": "x"}), "INVOCATION_ERROR")
        assert words in error.message
        assert error.retryable == (said.status in (429, 500))


async def test_a_search_engine_that_is_down_or_slow_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with searxng(Said(raw=hang)) as (there, app):
        monkeypatch.setattr("toolgate.tools.web_search.SEARCH_SECONDS", 0.2)
        failed(await app.invoke("search_engine", {"query": "x"}), "TIMEOUT")
        await there.stop()
        failed(await app.invoke("search_engine", {"query": "x"}), "CONNECTION_ERROR")


async def test_a_search_engine_cannot_lead_to_another_host() -> None:
    async def inside(_: Asked) -> Said:
        return Said(200, {"results": RESULTS})

    async with site(inside) as other, searxng(Said(302, b"", {"location": f"{other.url}/search"})) as (_, app):
        failed(await app.invoke("search_engine", {"query": "x"}), "SECURITY_VIOLATION")
        assert other.connections == 0


# -- by an MCP server's tool


def offering(given: Any) -> Any:
    @tool(tier="external_api", cost="0.01")
    async def web_search(query: str, count: int = 10) -> Any:
        """Search the web."""
        if query == "bad":
            raise InvalidInput("The query is not good.")
        return given(query, count) if callable(given) else given

    return web_search


@pytest.mark.parametrize(
    "given",
    [
        {"content": [{"type": "text", "text": '{"title": "A", "url": "https://a.example/", "description": "about a"}'}]},
        '{"title": "A", "url": "https://a.example/", "description": "about a"}',
        [{"title": "A", "url": "https://a.example/", "snippet": "about a"}],
        {"web": {"results": [{"title": "A", "url": "https://a.example/", "description": "about a"}]}},
    ],
)
async def test_without_searxng_the_tool_web_search_is_called(given: Any) -> None:
    async with opened() as app:
        app.register(offering(given))
        outcome = await app.invoke("search_engine", {"query": "lamps", "count": 5})
        assert outcome.output == {"results": [{"title": "A", "url": "https://a.example/", "snippet": "about a"}]}


async def test_that_call_is_governed_as_its_own() -> None:
    asked: list[str] = []

    def decide(request: Any) -> bool:
        asked.append(request.tool)
        return True

    async with App.open(os.devnull, database_url="memory://") as app:
        app.register(offering("Title: plain text"))
        app.approvals.add_approver(decide)
        outcome = await app.invoke("search_engine", {"query": "lamps"})
        assert outcome.output["results"] == [{"title": "", "url": "", "snippet": "Title: plain text"}]
        assert asked == ["search_engine", "web_search"]
        failed(await app.invoke("search_engine", {"query": "bad"}), "INVALID_INPUT")


async def test_with_neither_it_says_what_to_set_up() -> None:
    async with opened() as app:
        error = failed(await app.invoke("search_engine", {"query": "lamps"}), "MISSING_AUTH")
        assert "search.searxng_url" in error.message


async def test_with_neither_nobody_is_asked_and_explain_says_so() -> None:
    asked: list[Any] = []
    async with App.open(os.devnull, database_url="memory://") as app:
        app.approvals.add_approver(asked.append)
        failed(await app.invoke("search_engine", {"query": "lamps"}), "MISSING_AUTH")
        explained = await app.explain("search_engine", {"query": "lamps"})
        assert (explained.verdict, explained.gates[-1].gate) == ("deny", "search")
        assert "search.searxng_url" in explained.reason
        app.tools.register(offering([]))
        assert (await app.explain("search_engine", {"query": "lamps"})).verdict == "ask"
    assert asked == []


async def test_there_must_be_something_to_look_for() -> None:
    async with searxng(Said(200, {"results": []})) as (_, app):
        failed(await app.invoke("search_engine", {"query": "  "}), "INVALID_INPUT")


@pytest.mark.parametrize("url", ["searx", "ftp://searx.example.com", "http://user@searx.example.com", "http://a b"])
async def test_the_setting_must_be_a_url(url: str) -> None:
    with pytest.raises(SettingsError):
        App.open(os.devnull, database_url="memory://", search={"searxng_url": url})
    with pytest.raises(SettingsError):
        App.open(os.devnull, database_url="memory://", a2a={"agents": {"x": url}})


@pytest.mark.parametrize("host", ["wiki.example.com", "*.example.com:80", "http://wiki.example.com:80", "a:b", ":80"])
async def test_an_allowed_host_is_one_host_with_its_port(host: str) -> None:
    with pytest.raises(SettingsError):
        App.open(os.devnull, database_url="memory://", network={"allow": [host]})


@pytest.mark.parametrize("output", ["[" * 1_000 + "]" * 1_000, '{"results":' * 900 + "[]" + "}" * 900])
async def test_results_at_any_depth_are_an_answer(output: str) -> None:
    @tool(tier="read_only")
    async def web_search(query: str, count: int) -> str:  # noqa: ARG001
        """Search the web."""
        return output

    async with opened() as app:
        app.tools.register(web_search)
        outcome = await app.invoke("search_engine", {"query": "x"})
        assert outcome.ok, outcome.error
