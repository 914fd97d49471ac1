"""A tenant's key hunts for secrets over HTTP: those of everybody, of other tenants, of servers and of Toolgate itself.

The installation is one that works: a tool that the operator named gets its secret, and a server its token. The hunter tries
every tool that it sees, in every argument, and whoever was named tries to get the value out in other forms. Nothing of a
secret is in any answer, log line, audit record, artifact, approval, or file that is not encrypted.
"""

import asyncio
import base64
import html
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.mcp_upstream import Upstream
from tests.mcp_upstream import tool as offered
from tests.serving import Answer, Site, serving
from toolgate import Actor, App, ToolError, tool
from toolgate.errors import DefinitionError
from toolgate.gates.approval.request import ApprovalRequest
from toolgate.gates.secrets.encrypted_file import EncryptedFile
from toolgate.gates.secrets.names import Owner, key_of
from toolgate.mcp.client.oauth.token_store import secret_name
from toolgate.store import audit_log

pytestmark = pytest.mark.requirement("IO-5", "IO-4", "IO-2")

SECRETS = {
    "SHARED": "shr-7Kq2vXw9Rt4Lm8Zp",
    "PIN": "4815162342108",
    "OF_ACME": "acm-3Jd6hFs1Qy5Nb0Vc",
    "OF_ANN": "ann-8Gw4kTz7Ux2Pe9Hr",
    "TRACKER_TOKEN": "trk-5Mf1cYb8Sd3Ka6Wn",
    secret_name("tracker", "TOKENS"): "tok-2Ht9pLe4Vj7Rq1Xg",
}
EVIL, ANN = Actor("evil", "builder", "eve"), Actor("acme", None, "ann")
NAMES = [*SECRETS, *map(str.lower, SECRETS), "MISSING", "TOOLGATE_SECRETS_KEY", "S_KEY"]
NAMES += ["servers:/TRACKER_TOKEN", "acme/OF_ACME", "acme/ann/OF_ANN"]
SPELLED = ("{{{{secret:{}}}}}", "{{{{ secret: {} }}}}", "x{{{{secret:{}}}}}y%Y[x]")
FORMS: dict[str, Callable[[str], Any]] = {
    "as it is": str,
    "upper case": str.upper,
    "backwards": lambda value: value[::-1],
    "spaced": " ".join,
    "base64": lambda value: base64.b64encode(f"user:{value}".encode()).decode(),
    "base64 twice": lambda value: base64.b64encode(base64.b64encode(value.encode())).decode(),
    "hexadecimal": lambda value: value.encode().hex("-"),
    "hexadecimal of base64 in JSON": lambda value: json.dumps({"v": base64.b64encode(value.encode()).hex()}),
    "url in html in json": lambda value: json.dumps(html.escape(f"<a href='/?k={quote(value + '&', safe='')}'>")),
    "bytes": lambda value: list(value.encode()),
    "characters": list,
    "number": lambda value: int(value) if value.isdigit() else value,
    "settings": lambda value: f"DB_PASSWORD={value}\nkey: {value}",
    "long": lambda value: "x" * 20_000 + value,
    "name of a field": lambda value: {value: {value: [value]}},
}


@tool(tier="read_only")
async def deliver(text: str, form: str = "") -> Any:
    """Deliver a text, and say something about it."""
    received.append(text)
    if form.startswith("error"):
        cut = int(form.removeprefix("error"))
        raise ToolError(f"can't deliver {text[:cut]!r}", suggestion=f"not {text[-cut:]}", details={"key": text[:cut]})
    if form == "crash":
        raise ValueError(f"no {text}")
    return FORMS[form](text) if form else "delivered"


@tool(tier="read_only")
async def shout(text: str) -> str:
    """Write a text in capitals: nobody named it for anything."""
    received.append(text)
    return " ".join(text.upper()[::-1])


@tool(tier="write", category="custom")
async def note_down(text: str, tags: list[str] | None = None) -> dict[str, Any]:
    """Keep a text and tags."""
    received.append(text)
    return {"text": text, "tags": tags or []}


received: list[str] = []


@dataclass
class Installation:
    """A running installation, and all that anybody was told by it."""

    app: App
    site: Site
    home: Path
    logged: pytest.LogCaptureFixture
    answers: list[Answer] = field(default_factory=list)

    async def call(self, actor_key: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = await self.site.mcp("tools/call", {"name": name, "arguments": arguments}, key=actor_key)
        self.answers.append(answer)
        said: dict[str, Any] = answer.json
        return said

    async def key(self, actor: Actor) -> str:
        await self.site.with_key(self.app, actor)
        assert self.site.key is not None
        return self.site.key

    async def everything(self) -> str:
        """All that anybody could read, but for the encrypted file itself."""
        await self.app.flush()
        told = [answer.body.decode() for answer in self.answers]
        told += [repr(row) for row in await self.app.parts.store.read(audit_log.latest(100_000))]
        told += [repr(one.request) for one in await self.app.approvals.list(state=None, actor=EVIL)]
        told += [record.getMessage() for record in self.logged.records]
        for file in self.home.rglob("*"):
            if file.is_file() and file.name not in ("secrets.enc", "secrets.key"):
                told.append((await asyncio.to_thread(file.read_bytes)).decode("latin-1"))
        return "\n".join(told)


@asynccontextmanager
async def installation(home: Path, logged: pytest.LogCaptureFixture) -> AsyncIterator[Installation]:
    received.clear()
    upstream = Upstream(home.parent, offered("create_issue"), offered("say"))
    use = {
        "SHARED": [{"tool": "deliver", "tenant": "acme"}, {"tool": "create_issue", "server": "tracker", "tenant": "acme"}],
        "PIN": [{"tool": "deliver", "tenant": "acme"}],
        "OF_ACME": [{"tool": "deliver", "tenant": "acme"}],
        # an operator who names too much gives away nothing of servers, and nothing of another tenant
        "OF_ANN": [{"tool": "deliver", "tenant": "*"}],
        "TRACKER_TOKEN": [{"tool": "deliver", "tenant": "*"}, {"tool": "shout", "tenant": "*"}],
        secret_name("tracker", "TOKENS"): [{"tool": "deliver", "tenant": "*"}],
        "TOOLGATE_SECRETS_KEY": [{"tool": "deliver", "tenant": "*"}],
    }
    app = App.open(os.devnull, home=home, secrets={"use": use}, approvals={"expire_seconds": 3_600}, entry_points=False)
    with logged.at_level(logging.DEBUG):
        async with app, serving(app) as site:
            app.tools.register_many([deliver, shout, note_down])
            vault = next(source for source in app.parts.secrets.sources if isinstance(source, EncryptedFile))
            vault.set(key_of("SHARED"), SECRETS["SHARED"])
            vault.set(key_of("PIN"), SECRETS["PIN"])
            vault.set(key_of("OF_ACME", Owner("acme")), SECRETS["OF_ACME"])
            vault.set(key_of("OF_ANN", Owner("acme", "ann")), SECRETS["OF_ANN"])
            settings = {
                "command": [sys.executable, *upstream.command[1:]], "env": {"TOKEN": "Bearer {{secret:TRACKER_TOKEN}}"},
                "isolation": "none", "tier": "read_only", "trust_first_seen": True,
            }  # fmt: skip
            await app.servers.add("tracker", settings, secrets={"TRACKER_TOKEN": SECRETS["TRACKER_TOKEN"]})
            app.parts.server_secrets.keep_login(secret_name("tracker", "TOKENS"), SECRETS[secret_name("tracker", "TOKENS")])
            await app.servers.refresh("tracker")
            yield Installation(app, site, home, logged)


def told_in(text: str) -> list[str]:
    """The secrets of which a part is in a text, in one of the forms that a hunter would look for."""
    found, low = [], text.lower()
    for name, value in SECRETS.items():
        pieces = [value[at : at + 8].lower() for at in range(len(value) - 7)]
        codes = [base64.b64encode(bytes(before) + value.encode()).decode()[4:-4] for before in range(3)]
        codes += [value.encode().hex(), base64.b64encode(base64.b64encode(value.encode())).decode()[:-4]]
        shapes = [*pieces, *(piece[::-1] for piece in pieces), *(code.lower() for code in codes), " ".join(value).lower()]
        if any(shape in low for shape in shapes) or str(list(value.encode()))[1:-1] in text.replace(",", ", "):
            found.append(name)
    return found


def filled(schema: dict[str, Any], hunted: str) -> dict[str, Any]:
    """Arguments for a tool in which every text is the reference."""
    arguments: dict[str, Any] = {}
    for name, rule in schema.get("properties", {}).items():
        kinds = json.dumps(rule)
        if "enum" in rule or "const" in rule:
            arguments[name] = (rule.get("enum") or [rule["const"]])[0]
        elif '"string"' in kinds and rule.get("type") not in ("array", "object"):
            arguments[name] = hunted
        elif rule.get("type") == "array":
            arguments[name] = [hunted]
        elif rule.get("type") in ("integer", "number") and name in schema.get("required", ()):
            arguments[name] = 1
    return arguments


@pytest.fixture
async def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Installation]:
    for name in list(os.environ):
        if name.startswith("TOOLGATE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TOOLGATE_SECRETS_KEY", base64.b64encode(bytes(range(100, 132))).decode())
    async with installation(tmp_path / "home", caplog) as place:
        yield place


async def test_the_hunter_tries_every_tool_and_learns_nothing(place: Installation) -> None:
    key = await place.key(EVIL)
    listed = (await place.site.mcp("tools/list", key=key)).json["result"]["tools"]
    assert {"datetime", "calculator", "echo", "timestamp", "deliver", "shout", "mcp_tracker_say"} <= {
        one["name"] for one in listed
    }
    for one in listed:
        for number, name in enumerate(NAMES):
            hunted = SPELLED[number % len(SPELLED)].format(name)
            said = await place.call(key, one["name"], filled(one["inputSchema"], hunted))
            assert said.get("result", {}).get("isError", True) or "{{" not in hunted, (one["name"], name, said)
    assert not set(received) & set(SECRETS.values())
    assert all(not told_in(text) for text in received), "no tool was given any"
    everything = await place.everything()
    assert told_in(everything) == []
    assert base64.b64encode(bytes(range(100, 132))).decode() not in everything


async def test_the_datetime_and_calculator_of_the_report(place: Installation) -> None:
    key = await place.key(EVIL)
    for name, arguments in (
        ("datetime", {"operation": "now", "format": "{{secret:SHARED}}"}),
        ("datetime", {"operation": "now", "format": "{{secret:TRACKER_TOKEN}}"}),
        ("calculator", {"expression": "{{secret:SHARED}}"}),
        ("timestamp", {"format": "%Y{{secret:PIN}}"}),
    ):
        said = await place.call(key, name, arguments)
        assert said["result"]["isError"] is True
        assert "only transforms what its caller writes" in json.dumps(said)
    assert told_in(await place.everything()) == []


async def test_the_named_tool_gets_it_and_can_not_say_it(place: Installation) -> None:
    """The positive control, and what comes back of it."""
    key = await place.key(ANN)
    for name in ("SHARED", "PIN", "OF_ACME", "OF_ANN"):
        received.clear()
        said = await place.call(key, "deliver", {"text": f"{{{{secret:{name}}}}}"})
        assert (received, said["result"].get("isError", False)) == ([SECRETS[name]], False), said
        for form in (*FORMS, "crash", *(f"error{cut}" for cut in (9, 12, 15, 19))):
            await place.call(key, "deliver", {"text": f"{{{{secret:{name}}}}}", "form": form})
        assert received == [SECRETS[name]] * (1 + len(FORMS) + 5), "it was there to be told each time"
    issue = await place.call(key, "mcp_tracker_create_issue", {"text": "{{secret:SHARED}}"})
    assert issue["result"].get("isError", False) is False
    assert "[REDACTED]" in json.dumps(issue)
    assert told_in(await place.everything()) == []


async def test_the_named_tenant_gets_it_in_no_other_tool_and_nobody_else_in_that_one(place: Installation) -> None:
    ann, eve, bob = [await place.key(actor) for actor in (ANN, EVIL, Actor("acme", None, "bob"))]
    for key, name, text, code in (
        (ann, "shout", "SHARED", "PERMISSION_DENIED"),
        (ann, "note_down", "OF_ANN", "PERMISSION_DENIED"),
        (ann, "mcp_tracker_say", "SHARED", "PERMISSION_DENIED"),
        (eve, "deliver", "SHARED", "PERMISSION_DENIED"),
        (eve, "mcp_tracker_create_issue", "SHARED", "PERMISSION_DENIED"),
        (eve, "deliver", "OF_ANN", "MISSING_AUTH"),
        (bob, "deliver", "OF_ANN", "MISSING_AUTH"),
        (ann, "deliver", "TRACKER_TOKEN", "MISSING_AUTH"),
        (eve, "shout", "TRACKER_TOKEN", "MISSING_AUTH"),
        (ann, "deliver", secret_name("tracker", "TOKENS"), "MISSING_AUTH"),
        (eve, "deliver", "TOOLGATE_SECRETS_KEY", "MISSING_AUTH"),
    ):
        said = await place.call(key, name, {"text": f"{{{{secret:{text}}}}}"})
        assert code in json.dumps(said), (name, text, said)
    assert received == []
    assert told_in(await place.everything()) == []


async def test_code_and_tools_of_the_hunters_own_get_nothing(place: Installation) -> None:
    app, asked = place.app, list[ApprovalRequest]()

    def agree(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    app.approvals.add_approver(agree)
    await app.policy.allow_adding_tools("builder")
    fields = {
        "name": "mine", "description": "Mine.", "kind": "sandbox",
        "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}},
        "program": {"runtime": "python", "code": "def execute(args, context):\n    return args['text'][::-1]"},
    }  # fmt: skip
    with pytest.raises(DefinitionError, match="requires_auth"):
        await app.tools.add_dynamic({**fields, "requires_auth": {"config_key": "SHARED"}}, EVIL)
    await app.tools.add_dynamic(fields, EVIL)
    key = await place.key(EVIL)
    for name, arguments in (
        ("mine", {"text": "{{secret:SHARED}}"}),
        ("code_execute", {"code": "'{{secret:SHARED}}'[::-1]"}),
        ("run_program", {"code": "tools.deliver(text='{{secret:SHARED}}')", "language": "python"}),
        ("run_program", {"code": "tools.deliver(text='{{sec' + 'ret:SHARED}}')", "language": "python"}),
    ):
        said = await place.call(key, name, arguments)
        assert said["result"]["isError"] is True, said
    assert received == []
    assert told_in(repr(asked)) == []
    assert told_in(await place.everything()) == []
