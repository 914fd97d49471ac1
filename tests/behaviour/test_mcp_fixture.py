"""What a tool of a server does comes to whoever called through Toolgate, whichever way the server is reached.

The same calls over stdio, over streamable HTTP with requests that stand alone (2026-07-28), and over streamable HTTP with a
handshake and sessions (before that). The server is the one that the conformance suite is run against.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance.gateway import REPOSITORY, fixture_server, fixture_settings
from tests.mcp_person import Person
from tests.patience import until
from toolgate import App
from toolgate.store import audit_log

pytestmark = [pytest.mark.requirement("MCP-1"), pytest.mark.asyncio(loop_scope="module")]

PROTOCOLS = {"stdio": "2026-07-28", "http": "2026-07-28", "old": "2025-11-25"}
SECONDS = 30


@pytest.fixture(scope="module", params=["stdio", "http", "old"])
def way(request: pytest.FixtureRequest) -> str:
    way: str = request.param
    return way


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(way: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """An App with the fixture's tools, under their own names."""
    folder = tmp_path_factory.mktemp(way)
    with ExitStack() as running:
        if way == "stdio":
            settings = fixture_settings("") | {
                "url": None,
                "command": [sys.executable, "-m", "tests.conformance.upstream", "--stdio"],
                "cwd": REPOSITORY,
                "isolation": "none",
            }
        else:
            options = ["--old"] if way == "old" else []
            settings = fixture_settings(running.enter_context(fixture_server(*options, log=folder / "fixture.log")))
        async with App.open(home=folder / "home", servers={"fixture": settings}) as opened:
            await opened.servers.refresh("fixture")
            yield opened


async def output(app: App, tool: str, arguments: Mapping[str, Any] | None = None, person: Person | None = None) -> Any:
    outcome = await app.invoke(tool, dict(arguments or {}), caller=person)
    assert outcome.status == "success", outcome.error
    return outcome.output


async def test_all_kinds_of_content_come_through(app: App, way: str) -> None:
    status = await app.servers.get("fixture")
    assert status.about["protocol"] == PROTOCOLS[way]
    assert await output(app, "test_simple_text") == "This is a simple text response for testing."
    kinds = {"test_image_content": "image", "test_audio_content": "audio", "test_embedded_resource": "resource"}
    for tool, kind in kinds.items():
        assert [part["type"] for part in (await output(app, tool))["content"]] == [kind]
    mixed = (await output(app, "test_multiple_content_types"))["content"]
    assert [part["type"] for part in mixed] == ["text", "image", "resource"]


async def test_a_failure_of_the_tool_is_a_failure_of_the_call(app: App) -> None:
    outcome = await app.invoke("test_error_handling", {})
    assert outcome.error is not None
    assert (outcome.status, outcome.error.code) == ("failure", "MCP_ERROR")
    assert outcome.error.message == "This tool intentionally returns an error for testing"


async def test_failures_of_tools_do_not_make_the_server_ill(app: App) -> None:
    for _ in range(20):
        assert (await app.invoke("test_error_handling", {})).status == "failure"
    assert await output(app, "test_simple_text")


async def test_progress_and_messages_reach_whoever_called(app: App) -> None:
    person = Person(log_level="debug")
    await output(app, "test_tool_with_progress", {}, person)
    assert person.seen == [(0, 100), (50, 100), (100, 100)]
    await output(app, "test_tool_with_logging", {}, person)
    assert person.logged == ["Tool execution started", "Tool processing data", "Tool execution completed"]


async def test_whoever_wants_no_messages_gets_none(app: App) -> None:
    person = Person()
    await output(app, "test_tool_with_logging", {}, person)
    assert person.logged == []


async def test_a_person_is_asked(app: App) -> None:
    person = Person(elicitation={"action": "accept", "content": {"username": "ada", "email": "ada@example.com"}})
    said = await output(app, "test_elicitation", {"message": "Who are you?"}, person)
    assert said.startswith("User response: action=accept")
    assert [(method, params["message"]) for method, params in person.asked] == [("elicitation/create", "Who are you?")]
    await app.flush()
    [end] = [row for row in await app.parts.store.read(audit_log.latest(1)) if row[2] == "end"]
    assert "its server asked the caller: elicitation/create; it was answered" in end[7]
    assert "ada@example.com" not in end[7]


async def test_a_model_is_asked(app: App) -> None:
    person = Person(sampling={"role": "assistant", "model": "none", "content": {"type": "text", "text": "It is blue."}})
    said = await output(app, "test_sampling", {"prompt": "What colour is the sky?"}, person)
    assert said == "LLM response: It is blue."


async def test_a_tool_may_ask_again_and_again(app: App) -> None:
    person = Person(elicitation={"action": "accept", "content": {"name": "Ada", "color": "red"}})
    assert await output(app, "test_input_required_result_multi_round", {}, person) == "Ada likes red."
    assert len(person.asked) == 2


async def test_without_anybody_to_ask_the_call_says_so(app: App) -> None:
    """The call fails, or the server is told that nobody wants to answer, and goes on without."""
    outcome = await app.invoke("test_elicitation", {"message": "Who are you?"})
    if outcome.error is None:
        assert outcome.output == "User response: action=cancel, content={}"
    else:
        assert outcome.error.code == "MCP_ERROR"


async def test_a_call_that_is_given_up_is_given_up_at_the_server_too(app: App) -> None:
    outcome = await app.invoke("slow_compute", {"seconds": 60}, timeout=0.3)
    assert outcome.status == "timeout"
    assert await output(app, "slow_compute", {"seconds": 0, "label": "it"}) == "Computed it."


async def test_calls_at_once_do_not_mix(app: App) -> None:
    names = [f"number {number}" for number in range(50)]
    said = await asyncio.gather(*(output(app, "greet", {"name": name}) for name in names))
    assert said == [f"Hello, {name}!" for name in names]


@pytest.mark.requirement("MCP-5")
async def test_a_tool_that_comes_is_offered_and_one_that_goes_is_not(app: App) -> None:
    """New tools of this server are trusted; the list is looked at again when the server says that it changed."""

    def is_offered() -> bool:
        return "test_added_tool" in [entry.name for entry in app.parts.catalog.entries()]

    assert not is_offered()
    await output(app, "test_trigger_tool_change")
    await until(is_offered)
    assert await output(app, "test_added_tool") == "Done."
    await output(app, "test_trigger_tool_change")
    await until(lambda: not is_offered())


async def test_resources_and_prompts_are_read_under_governance(app: App) -> None:
    read = await output(app, "mcp_fixture_read_resource", {"uri": "test://template/7/data"})
    assert read["contents"][0]["uri"] == "test://template/7/data"
    words = {"name": "test_prompt_with_arguments", "arguments": {"arg1": "hello", "arg2": "world"}}
    prompt = await output(app, "mcp_fixture_get_prompt", words)
    assert prompt["messages"][0]["content"]["text"] == "Prompt with arguments: arg1='hello', arg2='world'"
    missing = await app.invoke("mcp_fixture_read_resource", {"uri": "test://nothing"})
    assert missing.error is not None
    assert missing.error.code == "INVALID_INPUT", "what was not accepted is not asked for"
