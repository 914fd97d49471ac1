"""/v1/tools: search, export, tokens, and tools that are registered at run time."""

from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.desk import Desk
from tests.serving import serving
from toolgate import Actor, InvokeContext, tool
from toolgate.model import Entry
from toolgate.testing import memory_app

pytestmark = [pytest.mark.requirement("DOOR-1"), pytest.mark.asyncio(loop_scope="module")]
SHOUT: dict[str, Any] = {
    "name": "shout", "description": "Say it loudly.", "kind": "loud",
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}  # fmt: skip


@tool(tier="read_only", tags=("arithmetic",))
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(tier="read_only")
async def hidden_sum(a: int, b: int) -> int:
    """Add two numbers, for nobody."""
    return a + b


class LoudRunner:
    """Runs tools of the kind `loud`: gives the text in capitals."""

    def run(self, _ctx: InvokeContext, _entry: Entry, arguments: dict[str, Any]) -> Awaitable[Any]:
        return self._shout(arguments)

    async def _shout(self, arguments: dict[str, Any]) -> str:
        return str(arguments["text"]).upper()

    async def close(self) -> list[str]:
        return []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with memory_app() as app:
        app.register(add)
        app.register(hidden_sum)
        app.add_runner("loud", LoudRunner(), tier="read_only")
        await app.policy.deny("hidden_sum")
        await app.policy.allow_adding_tools("builder")
        async with serving(app) as site:
            made = Desk(app, site)
            await made.staff()
            await made.add("bea", Actor("acme", "builder", "bea"), "admin")
            await made.add("ben", Actor("other", "builder", "ben"), "admin")
            await made.add("bo", Actor("acme", "builder", "bo"), "caller")
            yield made
            await app.keys.close()


@pytest.mark.requirement("POL-7")
async def test_a_search_finds_what_the_caller_may_see(desk: Desk) -> None:
    found = (await desk("cora", "GET", "/v1/tools/search?q=add+numbers")).json["items"]
    assert found[0]["tool"]["name"] == "add" and 0 < found[0]["score"] <= 1
    assert "hidden_sum" not in {one["tool"]["name"] for one in found}
    by_tag = (await desk("cora", "GET", "/v1/tools/search?q=arithmetic")).json["items"]
    assert "add" in {one["tool"]["name"] for one in by_tag[:2]}, "beside calculator, whose description has the word"
    assert (await desk("cora", "GET", "/v1/tools/search?q=arithmetic&limit=1")).json["items"] == by_tag[:1]
    assert (await desk("cora", "GET", "/v1/tools/search?q=%3F%3F")).json["items"] == []
    for query in ("", "q=", f"q={'x' * 201}", "q=a&limit=0", "q=a&limit=101"):
        assert (await desk("cora", "GET", f"/v1/tools/search?{query}")).status == 422


@pytest.mark.requirement("TOOL-6")
@pytest.mark.parametrize(
    ("shape", "schema"), [("openai", "function"), ("anthropic", "input_schema"), ("mcp", "inputSchema")]
)
async def test_tools_in_the_shape_of_a_model(desk: Desk, shape: str, schema: str) -> None:
    found = (await desk("cora", "GET", f"/v1/tools/export?shape={shape}")).json
    names = {one.get("name") or one["function"]["name"] for one in found}
    assert "add" in names and "hidden_sum" not in names
    assert all(schema in one for one in found)


async def test_gemini_and_unknown_shapes(desk: Desk) -> None:
    assert "add" in {one["name"] for one in (await desk("cora", "GET", "/v1/tools/export?shape=gemini")).json}
    assert (await desk("cora", "GET", "/v1/tools/export?shape=other")).status == 422


async def test_tokens_of_each_tool(desk: Desk) -> None:
    report = (await desk("cora", "GET", "/v1/tools/tokens")).json
    assert report["total"] == sum(one["tokens"] for one in report["tools"])
    assert "add" in {one["name"] for one in report["tools"]}
    assert "hidden_sum" not in {one["name"] for one in report["tools"]}


@pytest.mark.requirement("REG-5")
async def test_a_tool_is_registered_called_and_removed_in_its_tenant(desk: Desk) -> None:
    made = await desk("bea", "POST", "/v1/tools", {**SHOUT, "tier": "read_only", "tags": ["loud"]})
    assert (made.status, made.json["definition"]["source"]) == (201, "dynamic")
    ran = await desk("cora", "POST", "/v1/tools/shout/invoke", {"arguments": {"text": "hi"}})
    assert (ran.status, ran.json["output"]) == (200, "HI")
    assert (await desk("eve", "GET", "/v1/tools/shout")).status == 404
    assert (await desk("ben", "DELETE", "/v1/tools/shout")).status == 404
    assert (await desk("bea", "POST", "/v1/tools", SHOUT)).status == 422
    assert (await desk("adam", "DELETE", "/v1/tools/shout")).status == 403
    assert (await desk("bea", "DELETE", "/v1/tools/shout", headers={"If-Match": '"0"'})).status == 412
    assert (await desk("bea", "DELETE", "/v1/tools/shout")).status == 204
    assert (await desk("cora", "POST", "/v1/tools/shout/invoke", {"arguments": {"text": "hi"}})).status == 404
    assert (await desk("bea", "POST", "/v1/tools", SHOUT)).status == 201
    assert (await desk("bea", "DELETE", "/v1/tools/shout")).status == 204


@pytest.mark.requirement("REG-5")
async def test_a_registered_tool_is_replaced_on_request_and_its_faults_are_named(desk: Desk) -> None:
    code = {"runtime": "python", "code": "def execute(args, context):\n    return 1\n"}
    fields = {"name": "first_version", "description": "Give a number.", "kind": "sandbox", "program": code}
    assert (await desk("bea", "POST", "/v1/tools", {**fields, "tier": "read_only"})).json["tier"] == "execute"
    assert (await desk("bea", "POST", "/v1/tools", fields)).status == 422
    again = await desk("bea", "POST", "/v1/tools", {**fields, "version": "2.0.0", "replace": True})
    assert (again.status, again.json["definition"]["version"]) == (201, "2.0.0")
    assert (await desk("bea", "DELETE", "/v1/tools/first_version")).status == 204
    inside = {"kind": "mcp", "program": None, "mcp": {"url": "http://169.254.169.254/mcp", "tool": "x"}}
    refused = await desk("bea", "POST", "/v1/tools", {k: v for k, v in {**fields, **inside}.items() if v is not None})
    assert refused.status == 422 and "private network" in str(refused.json)
    wider = await desk("bea", "POST", "/v1/tools", {**fields, "program": {**code, "allowlist": ["rm"]}})
    assert wider.status == 422 and "commands.allow" in str(wider.json)


@pytest.mark.requirement("DOOR-3")
async def test_who_may_register(desk: Desk) -> None:
    for who in ("bo", "cora", "vera", "apu", "adam"):
        refused = await desk(who, "POST", "/v1/tools", SHOUT)
        assert (refused.status, refused.json["code"]) == (403, "PERMISSION_DENIED")
    assert (await desk("bea", "DELETE", "/v1/tools/add")).status == 422
    assert (await desk("cora", "DELETE", "/v1/tools/add")).status == 403


@pytest.mark.parametrize(
    "change",
    [
        {"name": "1st"},
        {"name": "add"},
        {"description": ""},
        {"kind": "telepathy"},
        {"tier": "high"},
        {"tenant": "other"},
        {"source": "builtin"},
        {"input_schema": {"type": "nothing"}},
        {"input_schema": []},
        {"cost": {"fixed": -1}},
        {"version": "one"},
    ],
)
async def test_a_wrong_registration_is_refused(desk: Desk, change: dict[str, Any]) -> None:
    assert (await desk("bea", "POST", "/v1/tools", {**SHOUT, **change})).status == 422


@pytest.mark.requirement("AGENT-1", "TOOL-6")
async def test_an_admin_sees_what_a_model_is_told(desk: Desk) -> None:
    told = (await desk("bea", "GET", "/v1/tools/prompt?shape=anthropic")).json
    assert told["text"].startswith("You are an agent.") and told["tokens"] > 0
    assert all("input_schema" in one for one in told["definitions"])
    assert "hidden_sum" not in {one["name"] for one in told["definitions"]}
    text = (await desk("bea", "GET", "/v1/tools/prompt?style=json")).json
    assert (text["definitions"], '"name":"add"' in text["text"]) == ([], True)
    assert (await desk("cora", "GET", "/v1/tools/prompt")).status == 403
    assert (await desk("bea", "GET", "/v1/tools/prompt?style=other")).status == 422


async def test_what_is_wrong_with_prompt_files_is_for_the_operator(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "agent.system.main.md").write_text("{{secret_plan}}")
    async with memory_app(agent={"prompts": tmp_path}) as app, serving(app) as site:
        made = Desk(app, site)
        await made.add("bea", Actor("acme", "builder", "bea"), "admin")
        for path in ("/v1/tools/prompt", "/v1/tools/export"):
            answer = await made("bea", "GET", path)
            assert answer.status == 500
            assert "secret_plan" not in str(answer.json) and str(tmp_path) not in str(answer.json)
        assert "{{secret_plan}} is unknown" in caplog.text
        await app.keys.close()
