"""Organisation tools: packed and signed, served by another Toolgate, got, reviewed, called, changed and taken away."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.test_mcp_server_changes import listening
from tests.mcp_clients import connected, key_for
from tests.serving import serving
from tests.team_bundles import ORG, Organisation
from tests.terminal import Terminal
from toolgate import Actor, App, tool
from toolgate.client import AsyncClient
from toolgate.errors import BundleRefused, CallError, SettingsError
from toolgate.teams.tool_files import LOCAL_TOOLS_RULE

pytestmark = pytest.mark.requirement("REG-1")

SECONDS = 30.0
LOCAL_TOOL = """\
name: mine
description: A tool of this folder.
schema: {type: object}
runtime: python
code: |
  def execute(args, context):
      return "mine"
"""


@pytest.fixture
def org(tmp_path: Path) -> Organisation:
    return Organisation(tmp_path)


def member(home: Path, database: str, org: Organisation, *, settings: dict[str, Any] | None = None, **teams: Any) -> App:
    return App.open(None, home=home, database_url=database, teams=org.settings(**teams), **(settings or {}))


async def words_of(app: App, name: str) -> Any:
    outcome = await app.invoke(name, {})
    return outcome.output if outcome.error is None else outcome.error.code


def states(tools: list[Any]) -> dict[str, str]:
    return {one.name: one.state for one in tools}


async def test_a_bundle_goes_the_whole_way(
    tmp_path: Path, database: str, org: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    org.write("greet", "one")
    org.write("wave", "one")
    async with App.open(None, home=tmp_path / "publisher") as publisher, serving(publisher) as site:
        await publisher.teams.publish(org.pack(), org_id=ORG, public_key=org.key.public_key)
        key = (await publisher.keys.create("member", Actor("acme", user="member"), roles=("caller",)))[1]
        monkeypatch.setenv("TOOLGATE_SERVER_SECRET_TEAM_TOKEN", key)
        url = f"http://{site.host}/v1/teams/{{org_id}}/bundle"
        how: dict[str, Any] = {"url": url, "token_secret": "TEAM_TOKEN", "sync_seconds": 0}
        async with member(tmp_path / "a", database, org, **how) as app:
            with pytest.raises(BundleRefused, match="status 403"):  # its key lacks the scope
                await app.teams.sync()
            assert "403" in ((await app.teams.status()).failure or "")
            scoped = Actor("acme", user="scoped", scopes=("teams:read",))
            monkeypatch.setenv(
                "TOOLGATE_SERVER_SECRET_TEAM_TOKEN", (await publisher.keys.create("scoped", scoped, roles=("caller",)))[1]
            )
            received = await app.teams.sync()
            assert (received.version, received.new, received.changed) == (1, ("greet", "wave"), ())
            assert await words_of(app, "greet") == "TOOL_NOT_FOUND"  # nobody has reviewed it
            waiting = await app.teams.waiting()
            assert any('return "one"' in line for line in waiting[0].diff())
            assert waiting[0].consequences()[:2] == ["tier write", "runs python code in the sandbox"]
            assert await app.teams.accept([one for one in waiting if one.name == "greet"])
            assert await words_of(app, "greet") == "one"
            assert app.tools.get("greet").tool.source == "teams"
            assert await words_of(app, "wave") == "TOOL_NOT_FOUND"
            assert not (await app.teams.sync()).is_new

            org.write("greet", "two")
            org.write("third", "two")
            await publisher.teams.publish(org.pack(), org_id=ORG, public_key=org.key.public_key)
            second = await app.teams.sync()
            assert (second.new, second.changed, second.removed) == (("third",), ("greet",), ())
            assert await words_of(app, "greet") == "one"  # what was accepted goes on, and is what runs
            changed = await app.teams.get("greet")
            assert (changed.state, changed.live, changed.accepted_version, changed.version) == ("changed", True, 1, 2)
            assert '-      return "one"' in changed.diff()
            assert '+      return "two"' in changed.diff()
            await app.teams.accept([changed])
            assert await words_of(app, "greet") == "two"

            org.remove("greet")
            await publisher.teams.publish(org.pack(), org_id=ORG, public_key=org.key.public_key)
            assert (await app.teams.sync()).removed == ("greet",)
            assert await words_of(app, "greet") == "TOOL_NOT_FOUND"  # revoked by the organisation
        await publisher.keys.close()


async def test_what_was_accepted_is_there_after_a_restart_without_network(
    tmp_path: Path, database: str, org: Organisation
) -> None:
    org.write("greet")
    async with member(tmp_path / "a", database, org) as app:
        await app.teams.add(org.pack())
        await app.teams.accept(await app.teams.waiting())
    async with member(tmp_path / "a", database, org, url="http://127.0.0.1:9/bundle") as app:
        assert await words_of(app, "greet") == "hello"
    async with App.open(None, home=tmp_path / "a", database_url=database) as app:
        assert await words_of(app, "greet") == "TOOL_NOT_FOUND"  # the settings name no organisation any more
    async with member(tmp_path / "a", database, org, features={"shared_tools": False}) as app:
        assert await words_of(app, "greet") == "TOOL_NOT_FOUND"


async def test_another_process_takes_over_what_is_accepted_and_rejected(
    tmp_path: Path, database: str, org: Organisation
) -> None:
    org.write("greet")
    async with member(tmp_path / "a", database, org) as one, member(tmp_path / "a", database, org) as other:
        await one.teams.add(org.pack())
        before = other.tools.version
        await one.teams.accept(await one.teams.waiting())
        async with asyncio.timeout(SECONDS):
            while await words_of(other, "greet") != "hello":
                await asyncio.sleep(0.05)
        assert other.tools.version != before  # which is what clients of MCP are told of
        await other.teams.reject(await other.teams.list())
        async with asyncio.timeout(SECONDS):
            while await words_of(one, "greet") != "TOOL_NOT_FOUND":
                await asyncio.sleep(0.05)
        assert states(await one.teams.list()) == {"greet": "rejected"}


@pytest.mark.requirement("MCP-4")
async def test_a_client_of_mcp_is_told_of_what_another_process_accepted(tmp_path: Path, org: Organisation) -> None:
    org.write("greet")
    database, ada = f"sqlite:///{tmp_path / 't.db'}", Actor("acme", "analyst", "ada")
    async with (
        member(tmp_path / "a", database, org) as one,
        member(tmp_path / "a", database, org) as other,
        serving(other) as site,
        AsyncExitStack() as stack,
    ):
        await one.teams.add(org.pack())
        told = await listening(stack, site, await key_for(other, ada), "2026-07-28")
        await one.teams.accept(await one.teams.waiting())
        await told.once()
        client = await stack.enter_async_context(connected(site, await key_for(other, ada), "2026-07-28"))
        assert "greet" in {found.name for found in (await client.list_tools()).tools}


async def test_a_rejected_change_leaves_what_was_accepted_and_a_second_rejection_takes_it_too(
    tmp_path: Path, org: Organisation
) -> None:
    org.write("greet", "one")
    async with member(tmp_path / "a", "memory://", org) as app:
        await app.teams.add(org.pack())
        await app.teams.accept(await app.teams.waiting())
        org.write("greet", "two")
        await app.teams.add(org.pack())
        await app.teams.reject(await app.teams.waiting())
        assert await app.teams.waiting() == []
        assert await words_of(app, "greet") == "one"
        await app.teams.reject(await app.teams.list())
        assert await words_of(app, "greet") == "TOOL_NOT_FOUND"
        acts = [row[2] for row in await app.audit.latest(50)]
        assert acts.count("teams.tool_rejected") == 2


async def test_what_changed_after_it_was_shown_is_not_accepted(tmp_path: Path, org: Organisation) -> None:
    org.write("greet", "one")
    async with member(tmp_path / "a", "memory://", org) as app:
        await app.teams.add(org.pack())
        shown = await app.teams.waiting()
        org.write("greet", "two")
        await app.teams.add(org.pack())
        assert await app.teams.accept(shown) == []
        assert await words_of(app, "greet") == "TOOL_NOT_FOUND"


async def test_a_folder_is_looked_at_on_a_schedule(tmp_path: Path, org: Organisation) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    org.write("greet")
    (shared / f"{ORG}.bundle.json").write_bytes(org.pack())
    async with member(tmp_path / "a", "memory://", org, folder=shared, sync_seconds=0.2) as app:
        async with asyncio.timeout(SECONDS):
            while not await app.teams.waiting():
                await asyncio.sleep(0.02)
            org.write("greet", "later")
            (shared / f"{ORG}.bundle.json").write_bytes(org.pack())
            while (await app.teams.status()).version != 2:
                await asyncio.sleep(0.02)
        assert (await app.teams.status()).failure is None


@pytest.mark.requirement("REG-4")
async def test_an_enforced_tool_cannot_be_disabled_where_the_operator_lets_the_organisation(
    tmp_path: Path, org: Organisation
) -> None:
    org.write("scan")
    bundle = org.pack(enforced=["scan"])
    async with member(tmp_path / "a", "memory://", org, may_enforce=True) as app:
        await app.teams.add(bundle)
        await app.teams.accept(await app.teams.waiting())
        assert app.tools.is_enforced("scan")
        with pytest.raises(CallError, match="enforced"):
            await app.tools.disable("scan")
        await app.teams.reject(await app.teams.list())
        assert not app.tools.is_enforced("scan")
    async with member(tmp_path / "b", "memory://", org) as app:
        await app.teams.add(bundle)
        (waiting,) = await app.teams.waiting()
        assert not any("nobody can disable" in words for words in waiting.consequences())
        assert any("teams.may_enforce is off" in words for words in waiting.consequences())
        await app.teams.accept([waiting])
        await app.tools.disable("scan")
        assert await words_of(app, "scan") == "TOOL_NOT_FOUND"


@pytest.mark.requirement("REG-4")
async def test_becoming_enforced_is_a_change_that_waits(tmp_path: Path, org: Organisation) -> None:
    org.write("scan")
    async with member(tmp_path / "a", "memory://", org, may_enforce=True) as app:
        await app.teams.add(org.pack())
        await app.teams.accept(await app.teams.waiting())
        await app.teams.add(org.pack(enforced=["scan"]))
        assert not app.tools.is_enforced("scan")
        (waiting,) = await app.teams.waiting()
        assert "nobody can disable it" in waiting.consequences()


@pytest.mark.requirement("REG-4")
@pytest.mark.parametrize("may_enforce", [True, False])
async def test_an_organisation_refuses_local_tools_where_it_may(
    tmp_path: Path, org: Organisation, may_enforce: bool
) -> None:
    folder = tmp_path / "a" / "tools"
    folder.mkdir(parents=True)
    (folder / "mine.yml").write_text(LOCAL_TOOL)
    (folder / "own.py").write_text(
        "from toolgate import tool\n\n\n@tool(tier='read_only')\ndef own() -> str:\n    'Mine.'\n    return 'own'\n"
    )
    org.write("greet")
    bundle = org.pack(disable_local_tools=True)
    database = f"sqlite:///{tmp_path / 'a.db'}"
    async with member(tmp_path / "a", database, org, may_enforce=may_enforce) as app:
        assert (await words_of(app, "mine"), await words_of(app, "own")) == ("mine", "own")
        await app.teams.add(bundle)
        assert await words_of(app, "mine") == "mine"
        rule = await app.teams.get(LOCAL_TOOLS_RULE)
        if not may_enforce:
            with pytest.raises(BundleRefused, match="may_enforce"):
                await app.teams.accept([rule])
            assert await words_of(app, "mine") == "mine"
            return
        await app.teams.accept([rule])
        assert (await words_of(app, "mine"), await words_of(app, "own")) == ("TOOL_NOT_FOUND", "TOOL_NOT_FOUND")
        assert any("disabled by organisation acme" in problem.why for problem in app.tools.problems)
        with pytest.raises(SettingsError, match="organisation acme"):
            await app.tools.add_custom(LOCAL_TOOL.encode(), Path("mine.yml"))
    async with member(tmp_path / "a", database, org, may_enforce=True) as app:
        assert (await words_of(app, "mine"), await words_of(app, "own")) == ("TOOL_NOT_FOUND", "TOOL_NOT_FOUND")
        await app.teams.reject([await app.teams.get(LOCAL_TOOLS_RULE)])
        assert (await words_of(app, "mine"), await words_of(app, "own")) == ("mine", "own")


async def test_only_allowed_tools_are_ever_used(tmp_path: Path, org: Organisation) -> None:
    org.write("greet")
    org.write("wave")
    database = f"sqlite:///{tmp_path / 'a.db'}"
    async with member(tmp_path / "a", database, org, allowed_tools=["greet"]) as app:
        await app.teams.add(org.pack())
        with pytest.raises(BundleRefused, match="wave cannot be accepted: the setting teams"):
            await app.teams.accept(await app.teams.waiting())
        assert await words_of(app, "greet") == "TOOL_NOT_FOUND"  # all or none
        await app.teams.accept([await app.teams.get("greet")])
        assert await words_of(app, "greet") == "hello"
    async with member(tmp_path / "a", database, org, allowed_tools=[]) as app:
        assert await words_of(app, "greet") == "TOOL_NOT_FOUND"  # the list counts also for what was accepted before


async def test_a_name_of_the_organisation_is_kept_from_later_sources(tmp_path: Path, org: Organisation) -> None:
    @tool(tier="read_only", name="greet")
    def greet() -> str:
        """Greet."""
        return "python"

    org.write("greet")
    async with member(tmp_path / "a", "memory://", org) as app:
        await app.teams.add(org.pack())
        app.register(greet)
        with pytest.raises(BundleRefused, match="taken by a tool of source python"):
            await app.teams.accept(await app.teams.waiting())
        assert await words_of(app, "greet") == "python"


async def test_without_an_organisation_every_verb_says_what_to_set(tmp_path: Path) -> None:
    async with App.open(None, home=tmp_path, database_url="memory://") as app:
        with pytest.raises(SettingsError, match="not in use"):
            await app.teams.sync()
        assert not (await app.teams.status()).enabled
        assert await app.teams.waiting() == []


async def test_an_operator_reviews_with_the_typed_client(tmp_path: Path, org: Organisation) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    org.write("greet")
    (shared / f"{ORG}.bundle.json").write_bytes(org.pack())
    async with member(tmp_path / "a", "memory://", org, folder=shared, sync_seconds=0) as app, serving(app) as site:
        key = (await app.keys.create("operator", Actor("acme", user="op"), roles=("operator",)))[1]
        async with AsyncClient.open(f"http://{site.host}", key=key) as client:
            assert (await client.teams.sync()).new == ["greet"]
            (waiting,) = (await client.teams.get()).tools
            accepted = await client.teams.accept([waiting.hash])
            assert (accepted.tools[0].accepted_by, accepted.organisation.live) == ("acme/op", 1)
            rejected = await client.teams.reject([waiting.hash])
            assert (rejected.tools[0].state, rejected.organisation.live) == ("rejected", 0)
        await app.keys.close()


# -- the terminal


def test_the_terminal_packs_gets_shows_accepts_and_rejects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    tools, shared = tmp_path / "org-tools", tmp_path / "shared"
    tools.mkdir()
    shared.mkdir()
    (tools / "mine.yml").write_text(LOCAL_TOOL)
    made = terminal("teams", "create-key", "org.key", "--json").json
    bundle = str(shared / f"{ORG}.bundle.json")
    packed = ("teams", "pack", str(tools), "--key", "org.key", "--org", ORG, "--out", bundle)
    assert terminal(*packed, "--json").json["version"] == 1
    (tmp_path / "toolgate.yaml").write_text(
        f"teams: {{enabled: true, orgId: {ORG}, public_key: '{made['public_key']}', folder: shared,"
        " features: {sharedTools: true}}\nenforcement: {disableLocalTools: false}\n"
    )
    assert terminal("trust").code == 0
    assert terminal("teams", "sync", "--json").json["new"] == ["mine"]
    assert terminal("call", "mine").code == 1
    shown = terminal("teams", "show", "mine").out
    assert "tier write" in shown
    assert 'return "mine"' in shown
    assert terminal("teams", "accept").code == 2  # there is no terminal to ask at
    assert "Accepted mine" in terminal("tools", "accept", "mine", "--yes").out
    assert terminal("call", "mine").code == 0
    assert "[Teams]" in terminal("tools", "list", "--source", "teams").out
    short = terminal("teams", "publish", bundle, "--org", ORG, "--public-key", "5f0c")
    words = "Error: --public-key is not a key: 64 hexadecimal digits, as `toolgate teams create-key` prints them."
    assert (short.code, short.err.splitlines()[0]) == (2, words)
    assert terminal("teams", "publish", bundle, "--org", ORG, "--public-key", made["public_key"]).code == 0
    (tools / "mine.yml").write_text(LOCAL_TOOL.replace('"mine"', '"changed"'))
    assert terminal(*packed, "--json").json["version"] == 2
    assert terminal("teams", "add", bundle, "--json").json["changed"] == ["mine"]
    listed = terminal("teams", "list", "--json").json
    assert (listed["tools"][0]["state"], listed["organisation"]["version"]) == ("changed", 2)
    assert "version 1" in terminal("teams", "list").out
    assert terminal("teams", "reject", "mine", "mine").code == 0
    assert terminal("teams", "remove", "--json").json == {"removed": 1}
    missing = terminal("teams", "show", "mine")
    assert missing.code == 1
    assert "no tool named 'mine'" in missing.err
