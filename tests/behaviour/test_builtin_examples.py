"""Every built-in tool: listed, documented, small enough for a model to read, and its examples run through the pipeline.

The examples run in one workspace with prepared files, against one server on loopback that answers as the services document.
What an example can't have here (a container engine, npm) ends with an error that its definition documents.
"""

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.builtin_tools import ALIASES, BUILTIN, INTERNAL
from tests.loopback import Asked, Said, Site, site
from tests.terminal import Terminal
from toolgate import Actor, App, Example, Outcome
from toolgate.model import Entry
from toolgate.registry.compile import DefinitionRules
from toolgate.registry.export import count_tokens, is_exact, mcp_definition
from toolgate.registry.python_source import PackageSource

ROOT = Path(__file__).parents[2]
MAX_TOKENS = 300
PUBLIC = "https://api.example.com"
"""The host that examples name; the test's own server takes its place."""
LOADED = {
    entry.name: entry
    for entry in PackageSource("toolgate.tools", "builtin", DefinitionRules()).load()
    if isinstance(entry, Entry)
}
EXAMPLES = [
    pytest.param(name, example, id=f"{name}-{number}")
    for name, entry in sorted(LOADED.items())
    for number, example in enumerate(entry.tool.examples)
]
NEVER_FAIL = {"echo", "response", "search_tools", "describe_tool"}
NOT_HERE = {"docker_run", "npm_install"}
"""Tools whose examples need what a machine may not have."""
BEFORE: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "document_query": [("document_ingest", {"path": "vacation.md"})],
}
"""Calls that an example follows on."""
PERSONAS = {"register_tool": "builder"}
"""Examples that need a persona with a permission."""
CREDENTIALS = (
    "STRIPE_SECRET_KEY", "SENDGRID_API_KEY", "VERCEL_TOKEN", "NETLIFY_AUTH_TOKEN", "SUPABASE_KEY", "SUPABASE_ACCESS_TOKEN",
    "MODEL_API_KEY",
)  # fmt: skip
AGENT = {"name": "agent", "protocolVersion": "1.0"}


async def answer(asked: Asked) -> Said:
    """What the services would say, by path."""
    where = asked.path
    if where.endswith("/agent-card.json"):
        url = f"http://{asked.headers['host']}/rpc"
        return Said(
            200, {**AGENT, "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]}
        )
    if where == "/rpc":
        message = {"role": "ROLE_AGENT", "messageId": "m", "parts": [{"text": "Anything."}]}
        return Said(200, {"jsonrpc": "2.0", "id": asked.json["id"], "result": {"message": message}})
    if where.endswith("/chat/completions"):
        content = json.dumps(
            {"summary": "short", "translation": "kurz", "entities": [], "sentiment": "neutral", "keywords": ["short"]}
        )
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return Said(200, {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage})
    if where == "/page":
        return Said(200, "<html><title>Page</title><body><p>Hello, reader.</p></body></html>", {"content-type": "text/html"})
    found: dict[str, Any] = {
        "/search": {"results": [{"title": "Kigali", "url": "https://weather.example.com", "content": "Sunny."}]},
        "/graphql": {"data": {"item": {"name": "lamp"}}},
        "/items": {"id": 1, "name": "lamp"},
        "/v1/payment_intents": {"id": "pi_1", "object": "payment_intent", "amount": 2000, "currency": "usd",
                                "status": "requires_payment_method", "client_secret": "pi_1_secret_2"},
        "/v13/deployments": {"id": "dpl_1", "url": "docs.vercel.app", "readyState": "READY", "status": "READY"},
        "/v13/deployments/dpl_1": {"id": "dpl_1", "url": "docs.vercel.app", "readyState": "READY", "status": "READY"},
        "/rest/v1/notes": [{"id": 1, "name": "first"}],
    }  # fmt: skip
    if where == "/v3/mail/send":
        return Said(202, b"", {"x-message-id": "m1"})
    if "/deploys" in where:
        made = {"id": "d1", "site_id": "s1", "state": "ready", "required": [], "ssl_url": "https://docs.example.com"}
        return Said(200, made)
    if "/sites/" in where:
        return Said(200, {"id": "s1", "name": "docs-site", "ssl_url": "https://docs.example.com"})
    if "/database/query" in where:
        return Said(201, [{"id": 1, "name": "first"}])
    if where == "/v2/files":
        return Said(200, {})
    return Said(200, found[where]) if where in found else Said(404, {"error": {"message": f"no {where}"}})


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A repository with what examples speak of."""
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    files = {
        "notes.txt": "notes\n", "vacation.md": "# Vacation\n\nThere are 30 days of vacation a year.\n",
        "src/a.ts": "export const a: number = 1;\n", "src/a.py": "def a() -> int:\n    return 1  # TODO\n",
        "src/index.html": "<h1>Docs</h1>", "tsconfig.json": "{}", "requirements.txt": "jinja2==3.1.6\n",
        "package.json": json.dumps({"name": "docs", "version": "1.0.0", "scripts": {"build": "node -e 0"},
                                    "dependencies": {"left-pad": "^1.3.0"}}),
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).write_text(text)
    for words in (("init", "-q"), ("add", "src"), ("commit", "-q", "-m", "First")):
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
        subprocess.run(["git", *identity, *words], cwd=folder, check=True, env={"PATH": "/usr/bin:/bin:/usr/local/bin"})
    return folder


@pytest.fixture
async def services() -> AsyncIterator[Site]:
    async with site(answer) as server:
        yield server


@pytest.fixture
async def app(tmp_path: Path, services: Site, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    for name in CREDENTIALS:
        monkeypatch.setenv(f"TOOLGATE_SECRET_{name}", f"value-of-{name.lower()}-0123456789")
    url = services.url
    where = {name: {"base_url": url} for name in ("stripe", "sendgrid", "vercel", "netlify")}
    supabase = {"project": {"url": url, "ref": "abcdefghijklmnopqrst"}, "management_url": url}
    settings: dict[str, Any] = {
        "services": {**where, "supabase": supabase},
        "network": {"allow": [f"127.0.0.1:{services.port}"]},
        "search": {"searxng_url": url},
        "model": {"name": "m", "base_url": f"{url}/v1"},
    }
    async with App.open(home=tmp_path / "home", entry_points=False, **settings) as app:
        app.approvals.add_approver(lambda _request: True)
        await app.policy.allow_adding_tools("builder")
        yield app


@pytest.mark.requirement("BUILTIN-1", "BUILTIN-3", "BUILTIN-4", "BUILTIN-5")
def test_the_tools_are_those_that_were_promised() -> None:
    assert set(LOADED) == BUILTIN
    assert {name: entry.tool.alias_of for name, entry in LOADED.items() if entry.tool.alias_of} == ALIASES
    assert {name for name, entry in LOADED.items() if entry.internal} == INTERNAL


@pytest.mark.parametrize("name", sorted(LOADED))
@pytest.mark.requirement("BUILTIN-1", "BUILTIN-3", "BUILTIN-4", "BUILTIN-5", "TOOL-1")
def test_every_tool_is_documented(name: str) -> None:
    tool = LOADED[name].tool
    assert tool.examples
    assert tool.errors or name in NEVER_FAIL
    assert tool.capabilities or tool.operations
    assert tool.category != "custom"
    assert tool.documentation == f"docs/reference/tools/{name}.md"
    page = (ROOT / tool.documentation).read_text(encoding="utf-8")
    assert page.startswith(f"# {name}\n")


@pytest.mark.parametrize("name", sorted(LOADED.keys() - INTERNAL))
@pytest.mark.requirement("TOOL-1")
def test_no_definition_costs_a_model_much_to_read(name: str) -> None:
    assert is_exact()
    assert count_tokens(orjson.dumps(mcp_definition(LOADED[name])).decode()) <= MAX_TOKENS


async def run(app: App, services: Site, work: Path, name: str, example: Example) -> Outcome:
    arguments = json.loads(json.dumps(example.arguments).replace(PUBLIC, services.url))
    actor = Actor(persona=PERSONAS.get(name))
    return await app.invoke(name, arguments, actor=actor, workspace=work, internal=name in INTERNAL)


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
@pytest.mark.requirement("BUILTIN-1", "BUILTIN-3", "BUILTIN-4", "BUILTIN-5")
async def test_every_example_runs(app: App, services: Site, work: Path, name: str, example: Example) -> None:
    for first, arguments in BEFORE.get(name, ()):
        assert (await app.invoke(first, arguments, workspace=work)).ok
    outcome = await run(app, services, work, name, example)
    if example.error is not None:
        assert outcome.error is not None and outcome.error.code == example.error
    elif outcome.error is not None:
        documented = {case.code for case in LOADED[name].tool.errors}
        assert name in NOT_HERE and outcome.error.code in documented, outcome.error
    elif "output" in example.model_fields_set:
        assert outcome.output == example.output


@pytest.mark.requirement("BUILTIN-1", "BUILTIN-3", "BUILTIN-4", "BUILTIN-5")
def test_the_terminal_lists_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    listed = terminal.run("tools", "list", "--source", "builtin", "--json").json["tools"]
    assert {tool["name"] for tool in listed} == BUILTIN
    told = terminal.run("tools", "info", "read_file")
    assert "Errors:" in told.out and "Examples:" in told.out and "docs/reference/tools/read_file.md" in told.out
