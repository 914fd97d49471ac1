"""IO-5: a reference is filled only where the operator named that tool for that secret and that tenant."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from tests.mcp_upstream import Upstream
from tests.mcp_upstream import tool as offered
from tests.secret_use import named
from toolgate import Actor, App, InvokeContext, Outcome, tool
from toolgate.errors import DefinitionError, Denied, SettingsError
from toolgate.gates.secrets.encrypted_file import EncryptedFile
from toolgate.gates.secrets.gate import Secrets
from toolgate.gates.secrets.names import Owner, key_of
from toolgate.model import Entry
from toolgate.registry.compile import entry_of
from toolgate.settings import SecretUse, Settings
from toolgate.store.audit_log import latest
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("IO-5")
VALUE = "correct-horse-battery-7"
ANN, EVE = Actor("acme", user="ann"), Actor("evil", user="eve")
BUILDER = Actor("acme", "builder", "ann")
seen: list[Any] = []


@tool(tier="read_only")
async def send(text: str) -> str:
    """Send."""
    seen.append(text)
    return "sent"


@tool(tier="read_only")
async def other(text: str) -> str:
    """Do something else."""
    seen.append(text)
    return "done"


@tool(tier="read_only", requires_auth="KEY")
async def declares(ctx: InvokeContext) -> str:
    """Use its credential."""
    seen.append(ctx.credential)
    return "used"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    seen.clear()
    monkeypatch.setenv("TOOLGATE_SECRET_KEY", VALUE)


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with memory_app(secrets=named("KEY", "send", tenant="acme")) as app:
        app.tools.register_many([send, other, declares])
        yield app


def refused(outcome: Outcome) -> str:
    assert outcome.error is not None, outcome
    assert outcome.error.code == "PERMISSION_DENIED", outcome
    return outcome.error.suggestion or ""


async def test_the_named_tool_has_it_for_the_named_tenant(app: App) -> None:
    assert (await app.invoke("send", {"text": "{{secret:KEY}}"}, actor=ANN)).ok
    assert seen == [VALUE]


async def test_another_tenant_is_refused_though_the_secret_is_for_everybody(app: App) -> None:
    for actor in (EVE, Actor("ACME"), Actor("acme "), Actor()):
        refused(await app.invoke("send", {"text": "{{secret:KEY}}"}, actor=actor))
    assert seen == []


@pytest.mark.parametrize("actor", [ANN, EVE])
async def test_the_refusal_names_the_setting_which_then_allows_it(app: App, actor: Actor) -> None:
    suggestion = refused(await app.invoke("other", {"text": "{{secret:KEY}}"}, actor=actor))
    written = yaml.safe_load(suggestion.partition("in the settings: ")[2])
    assert written == {"secrets": named("KEY", "other", tenant=actor.tenant)}
    assert Settings.model_validate(written).secrets.use["KEY"][0].tool == "other"
    async with memory_app(**written) as allowed:
        allowed.register(other)
        assert (await allowed.invoke("other", {"text": "{{secret:KEY}}"}, actor=actor)).ok
    assert seen == [VALUE]


@pytest.mark.parametrize("tenant", ["no", "a: b", "it's", "2024", "a, tenant: '*'", "{x}", "ü"])
async def test_the_suggested_setting_names_that_tenant_however_it_is_written(app: App, tenant: str) -> None:
    suggestion = refused(await app.invoke("other", {"text": "{{secret:KEY}}"}, actor=Actor(tenant)))
    assert yaml.safe_load(suggestion.partition("in the settings: ")[2]) == {"secrets": named("KEY", "other", tenant=tenant)}


async def test_whether_a_secret_exists_is_not_told_to_those_who_may_not_use_it(app: App) -> None:
    there, missing = [await app.invoke("other", {"text": f"{{{{secret:{name}}}}}"}, actor=EVE) for name in ("KEY", "YEK")]
    assert there.error is not None
    assert missing.error is not None
    assert there.error.message == missing.error.message.replace("YEK", "KEY")
    assert there.error.details == {"reference": "KEY", "setting": "secrets.use"}


async def test_secrets_of_a_tenant_and_of_a_user_are_put_only_into_named_tools_too(tmp_path: Path) -> None:
    async with App.open(home=tmp_path, secrets=named("OWN", "send", tenant="acme")) as app:
        app.tools.register_many([send, other])
        vault = EncryptedFile(tmp_path / "secrets.enc", {})
        vault.set(key_of("OWN", Owner("acme", "ann")), "of-ann-herself")
        vault.set(key_of("OWN", Owner("evil")), "of-the-evil-ones")
        assert (await app.invoke("send", {"text": "{{secret:own}}"}, actor=ANN)).ok
        refused(await app.invoke("other", {"text": "{{secret:OWN}}"}, actor=ANN))
        refused(await app.invoke("send", {"text": "{{secret:OWN}}"}, actor=EVE))
        missing = await app.invoke("send", {"text": "{{secret:OWN}}"}, actor=Actor("acme", user="bob"))
        assert missing.error is not None
        assert missing.error.code == "MISSING_AUTH"
    assert seen == ["of-ann-herself"]


# -- tools that can't be named

PURE: list[tuple[str, dict[str, Any]]] = [
    ("datetime", {"operation": "now", "format": "{{secret:KEY}}"}),
    ("datetime", {"operation": "format", "date": "2026-01-01", "format": "{{secret:KEY}}"}),
    ("calculator", {"expression": "{{secret:KEY}}"}),
    ("echo", {"text": "{{secret:KEY}}"}),
    ("timestamp", {"format": "{{secret:KEY}}"}),
]


@pytest.mark.parametrize(("name", "arguments"), PURE)
async def test_a_pure_function_of_the_callers_text_is_given_nothing(name: str, arguments: dict[str, Any]) -> None:
    async with memory_app() as app:
        assert app.parts.catalog.resolve(name, "default").tool.pure
        outcome = await app.invoke(name, arguments)
        refused(outcome)
        await app.flush()
        everything = repr(outcome) + repr(await app.parts.store.read(latest(50)))
    assert not any(VALUE[at : at + 5] in everything for at in range(len(VALUE) - 5))


@pytest.mark.parametrize("name", ["datetime", "calculator", "echo", "timestamp"])
async def test_naming_a_pure_tool_is_an_error_of_the_settings(name: str) -> None:
    with pytest.raises(SettingsError, match=f"secrets.use names {name}"):
        async with memory_app(secrets=named("KEY", name)):
            raise AssertionError("it was opened")


async def test_a_pure_tool_that_is_registered_later_is_refused_though_it_is_named() -> None:
    @tool(tier="read_only", pure=True)
    async def shout(text: str) -> str:
        """Shout."""
        seen.append(text)
        return text.upper()

    async with memory_app(secrets=named("KEY", "shout")) as app:
        app.register(shout)
        refused(await app.invoke("shout", {"text": "{{secret:KEY}}"}))
    assert seen == []


def test_a_pure_tool_can_not_declare_a_credential() -> None:
    @tool(tier="read_only", pure=True, requires_auth="KEY")
    async def shout(text: str) -> str:
        """Shout."""
        return text.upper()

    with pytest.raises(DefinitionError, match="a pure tool is given no secret"):
        entry_of(shout)


def of_source(code: Any, **changes: Any) -> Entry:
    entry = entry_of(code)
    return replace(entry, tool=entry.tool.model_copy(update=changes))


@pytest.mark.parametrize(
    "changes",
    [{"source": "dynamic", "tenant": "evil"}, {"source": "custom"}, {"source": "openapi"}, {"source": "teams"}],
)
def test_a_tool_of_that_name_from_elsewhere_is_another_tool(changes: dict[str, Any]) -> None:
    use = {"KEY": [SecretUse(tool="send", tenant="*"), SecretUse(tool="declares", tenant="*")]}
    secrets = Secrets({"KEY": VALUE}.get, use=use)
    arguments = {"text": "{{secret:KEY}}"}
    secrets.check_present(entry_of(send), b"secret:", arguments, EVE)
    with pytest.raises(Denied, match="KEY"):
        secrets.check_present(of_source(send, **changes), b"secret:", arguments, EVE)
    assert secrets.credential(entry_of(declares), EVE) == VALUE
    with pytest.raises(Denied, match="KEY"):
        secrets.credential(of_source(declares, **changes), EVE)


def test_a_declared_credential_of_other_sources_must_be_named_for_the_tenant() -> None:
    secrets = Secrets({"KEY": VALUE}.get, use={"KEY": [SecretUse(tool="declares", tenant="acme", source="custom")]})
    custom = of_source(declares, source="custom")
    assert secrets.credential(custom, ANN) == VALUE
    with pytest.raises(Denied):
        secrets.credential(custom, EVE)


async def test_a_tenants_own_tool_is_given_nothing_whatever_it_declares() -> None:
    fields = {
        "name": "send", "description": "Mine.", "kind": "sandbox",
        "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}},
        "program": {"runtime": "python", "code": "def execute(args, context):\n    return args['text'][::-1]"},
    }  # fmt: skip
    async with memory_app(secrets=named("KEY", "send")) as app:
        await app.policy.allow_adding_tools("builder")
        with pytest.raises(DefinitionError, match="requires_auth"):
            await app.tools.add_dynamic({**fields, "requires_auth": {"config_key": "KEY"}}, BUILDER)
        await app.tools.add_dynamic(fields, BUILDER)
        outcome = await app.invoke("send", {"text": "{{secret:KEY}}"}, actor=BUILDER)
        assert "never put into send, which was registered by a tenant" in str(outcome.error)


async def test_an_mcp_tool_is_named_by_its_server_and_what_it_is_called_there(tmp_path: Path) -> None:
    """Whatever it is called here: `short` is `pays` of server one for callers, and a name that another server may take."""
    upstream = Upstream(tmp_path, offered("pays"))
    servers = upstream.settings(tools={"pays": {"name": "short", "tier": "read_only"}}, trust_first_seen=True)
    wrong = [named("KEY", "short"), named("KEY", "short", server="one"), named("KEY", "pays", server="two")]
    for use, runs in ((named("KEY", "pays", server="one"), True), *((one, False) for one in wrong)):
        async with App.open(
            home=tmp_path / "home", servers={"one": servers}, secrets=use, auto_load_custom_tools=False
        ) as app:
            await app.servers.refresh("one")
            outcome = await app.invoke("short", {"text": "{{secret:KEY}}"}, actor=ANN)
            assert outcome.ok is runs, outcome
            if not runs:
                assert "{tool: pays, tenant: acme, server: one}" in refused(outcome)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        ({"tool": "send"}, "tenant"),
        ({"tenant": "acme"}, "tool"),
        ({"tool": "send", "tenant": ""}, "tenant"),
        ({"tool": "send", "tenant": "a", "server": "s", "source": "custom"}, "server and source"),
        ({"tool": "send", "tenant": "a", "source": "dynamic"}, "source"),
        ({"tool": "*", "tenant": "a"}, "one by one"),
        ({"tool": "*", "tenant": "a", "server": "s"}, "one by one"),
        ({"tool": "send", "tenant": "a", "server": "*"}, "one by one"),
    ],
)
def test_what_the_setting_can_not_be_is_said(use: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        memory_app(secrets={"use": {"KEY": [use]}})


@pytest.mark.parametrize("name", ["a-b", "", "1A", "acme/KEY", "servers:/KEY", "*"])
def test_what_is_no_name_of_a_secret_can_not_be_allowed(name: str) -> None:
    with pytest.raises(SettingsError, match="not the name of a secret"):
        memory_app(secrets=named(name, "send"))
