"""Bundles of an organisation that are not what they should be: refused with the reason, and nothing is changed."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.http_people import person
from tests.loopback import Asked, Said, site
from tests.remote_servers import odd
from tests.serving import serving
from tests.team_bundles import ORG, Organisation
from toolgate import Actor, App, DefinitionError, tool
from toolgate.errors import BundleRefused, SettingsError
from toolgate.store.head_keys import KeyFile
from toolgate.teams import sources
from toolgate.teams.bundle import MAX_BUNDLE_BYTES, signed_statement
from toolgate.teams.pack import create_key

pytestmark = pytest.mark.requirement("REG-1")
SECONDS = 30.0
Change = Callable[[dict[str, Any], dict[str, Any]], None]


@pytest.fixture
def org(tmp_path: Path) -> Organisation:
    made = Organisation(tmp_path)
    made.write("greet", "one")
    return made


@pytest.fixture
async def app(tmp_path: Path, org: Organisation) -> AsyncIterator[App]:
    """A member that has accepted version 5, and knows of nothing newer."""
    async with App.open(None, home=tmp_path / "home", database_url="memory://", teams=org.settings(may_enforce=True)) as app:
        await app.teams.add(org.pack(version=5))
        await app.teams.accept(await app.teams.waiting())
        yield app


async def is_refused(app: App, content: bytes, words: str) -> None:
    before = (await app.teams.list(), (await app.teams.status()).version, app.tools.version)
    with pytest.raises(BundleRefused, match=words):
        await app.teams.add(content)
    assert (await app.teams.list(), (await app.teams.status()).version, app.tools.version) == before
    assert (await app.invoke("greet", {})).output == "one"
    assert "teams.bundle_refused" in [row[2] for row in await app.audit.latest(10)]


def signed_anew(content: bytes, org: Organisation, change: Change) -> bytes:
    """A bundle of somebody who has the key, with things in it that `pack` would not make."""
    document = json.loads(content)
    manifest = json.loads(document["manifest"])
    change(manifest, document)
    text = json.dumps(manifest)
    signature = KeyFile(org.key.file).sign(signed_statement(text)).hex()
    return json.dumps({**document, "manifest": text, "signature": signature}).encode()


async def test_a_bundle_signed_by_somebody_else_is_refused(app: App, org: Organisation, tmp_path: Path) -> None:
    other = create_key(tmp_path / "other.key")
    await is_refused(app, org.pack(key=other), "not signed with the key of acme")


async def test_a_manifest_that_was_changed_after_it_was_signed_is_refused(app: App, org: Organisation) -> None:
    document = json.loads(org.pack())
    document["manifest"] = document["manifest"].replace('"version":6', '"version":7')
    await is_refused(app, json.dumps(document).encode(), "does not fit its manifest")


async def test_the_signature_of_an_audit_head_is_none_of_a_bundle(app: App, org: Organisation) -> None:
    document = json.loads(org.pack())
    document["signature"] = KeyFile(org.key.file).sign(document["manifest"].encode()).hex()
    await is_refused(app, json.dumps(document).encode(), "does not fit its manifest")


async def test_the_bundle_of_another_organisation_is_refused(app: App, org: Organisation) -> None:
    await is_refused(app, org.pack(org_id="umbrella"), "of organisation umbrella")


@pytest.mark.parametrize("version", [1, 4])
async def test_an_older_version_is_refused(app: App, org: Organisation, version: int) -> None:
    org.write("greet", "old")
    await is_refused(app, org.pack(version=version), "older one is not taken")


async def test_the_same_version_with_other_content_is_refused(app: App, org: Organisation) -> None:
    org.write("greet", "other")
    await is_refused(app, org.pack(version=5), "version 5 and other content")


async def test_removing_the_tools_does_not_open_the_way_for_an_older_version(app: App, org: Organisation) -> None:
    newest, older = org.pack(version=6), org.pack(version=3)
    await app.teams.add(newest)
    await app.teams.remove()
    assert await app.teams.list() == []
    with pytest.raises(BundleRefused, match="older one"):
        await app.teams.add(older)
    assert (await app.teams.add(newest)).new == ("greet",)  # the newest may come back, and waits


async def test_an_expired_manifest_is_refused(app: App, org: Organisation) -> None:
    def expire(manifest: dict[str, Any], _: dict[str, Any]) -> None:
        manifest |= {"created": "2020-01-01T00:00:00Z", "expires": "2020-02-01T00:00:00Z"}

    await is_refused(app, signed_anew(org.pack(), org, expire), "expired at 2020-02-01")


def _another_file(_: dict[str, Any], document: dict[str, Any]) -> None:
    document["files"]["more.yml"] = "name: more"


def _another_hash(_: dict[str, Any], document: dict[str, Any]) -> None:
    document["files"]["greet.yml"] += "\n# and more"


def _a_missing_file(_: dict[str, Any], document: dict[str, Any]) -> None:
    document["files"] = {}


def _path(path: str) -> Change:
    def change(manifest: dict[str, Any], document: dict[str, Any]) -> None:
        text = document["files"].pop("greet.yml")
        document["files"][path] = text
        manifest["files"] = {path: sha256(text.encode()).hexdigest()}

    return change


def _enforces_another(manifest: dict[str, Any], _: dict[str, Any]) -> None:
    manifest["enforced"] = ["echo"]


def _unknown_field(manifest: dict[str, Any], _: dict[str, Any]) -> None:
    manifest["public_key"] = "00" * 32


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_another_file, "does not name"),
        (_another_hash, "not the one that its manifest names"),
        (_a_missing_file, "lacks the file"),
        (_path("../greet.yml"), "not a valid name of a tool's file"),
        (_path("/etc/greet.yml"), "not a valid name of a tool's file"),
        (_path("a\\..\\greet.yml"), "not a valid name of a tool's file"),
        (_path(".hidden.yml"), "not a valid name of a tool's file"),
        (_path("greet.py"), "not a valid name of a tool's file"),
        (_enforces_another, "none of its tools"),
        (_unknown_field, "manifest of the bundle is wrong"),
    ],
)
async def test_what_the_key_holder_may_not_say_is_refused(app: App, org: Organisation, change: Change, words: str) -> None:
    await is_refused(app, signed_anew(org.pack(), org, change), words)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b"x" * (MAX_BUNDLE_BYTES + 1), b'{"format": "zip"}']
)
async def test_what_is_no_bundle_is_refused(app: App, content: bytes) -> None:
    await is_refused(app, content, "not a bundle|more than")


async def test_a_tool_that_is_wrong_refuses_the_whole_bundle(app: App, org: Organisation) -> None:
    org.write("fine")
    good = org.pack()

    def broken(manifest: dict[str, Any], document: dict[str, Any]) -> None:
        document["files"]["fine.yml"] = text = "name: fine\ntier: read_only\n"
        manifest["files"]["fine.yml"] = sha256(text.encode()).hexdigest()

    await is_refused(app, signed_anew(good, org, broken), "there is no such field")


async def test_calls_of_a_bundles_tool_go_nowhere_else(app: App, org: Organisation) -> None:
    good = org.pack()

    def routed(manifest: dict[str, Any], document: dict[str, Any]) -> None:
        document["files"]["greet.yml"] += "route: events\n"
        manifest["files"]["greet.yml"] = sha256(document["files"]["greet.yml"].encode()).hexdigest()

    await is_refused(app, signed_anew(good, org, routed), "does not choose where calls go")


async def test_the_name_of_a_built_in_tool_is_not_taken(app: App, org: Organisation) -> None:
    org.write("calculator")
    org.write("fine")
    await is_refused(app, org.pack(), "taken by a tool of source builtin")
    assert "fine" not in {one.name for one in await app.teams.list()}  # nothing of it is on record


async def test_the_name_of_a_python_tool_is_not_taken(app: App, org: Organisation) -> None:
    @tool(tier="read_only", name="local_one")
    def local_one() -> str:
        """Local."""
        return "local"

    app.register(local_one)
    org.write("local_one")
    await is_refused(app, org.pack(), "taken by a tool of source python")


async def test_a_tenants_tool_keeps_its_name_and_nothing_else_of_a_bundle(app: App, org: Organisation) -> None:
    code = {"runtime": "python", "code": "def execute(args, context):\n    return 1\n"}
    fields = {"name": "theirs", "description": "Theirs.", "kind": "sandbox", "tier": "execute", "program": code}
    await app.policy.allow_adding_tools("builder")
    await app.tools.add_dynamic(fields, Actor("umbrella", persona="builder", user="u-1"))
    org.write("theirs")
    org.write("fine")
    (org.tools / "greet.yml").unlink()
    await app.teams.add(org.pack())
    assert (await app.invoke("greet", {})).error is not None  # what the organisation removes is gone
    waiting = {one.name: one for one in await app.teams.waiting()}
    with pytest.raises(BundleRefused, match="tenant umbrella registered at run time"):
        await app.teams.accept([waiting["theirs"]])
    assert [one.name for one in await app.teams.accept([waiting["fine"]])] == ["fine"]


async def test_no_tenant_registers_a_look_alike_of_a_tool_that_waits(app: App, org: Organisation) -> None:
    code = {"runtime": "python", "code": "def execute(args, context):\n    return 1\n"}
    org.write("deploy_all")
    await app.teams.add(org.pack())
    await app.policy.allow_adding_tools("builder")
    fields = {"name": "depIoy-a1l", "description": "Theirs.", "kind": "sandbox", "program": code}
    with pytest.raises(DefinitionError, match="take it for deploy_all"):
        await app.tools.add_dynamic(fields, Actor("umbrella", persona="builder", user="u-1"))


async def test_a_key_that_was_replaced_leaves_nothing_to_accept_and_no_version_in_the_way(
    tmp_path: Path, org: Organisation
) -> None:
    new = create_key(tmp_path / "new.key")
    home = tmp_path / "home"
    async with App.open(None, home=home, teams=org.settings()) as app:
        await app.teams.add(org.pack(version=2**53))
    async with App.open(None, home=home, teams={**org.settings(), "public_key": new.public_key}) as app:
        with pytest.raises(BundleRefused, match="another key"):
            await app.teams.accept(await app.teams.waiting())
        await app.teams.add(org.pack(version=6, key=new))
        assert [one.name for one in await app.teams.accept(await app.teams.list())] == ["greet"]
        with pytest.raises(BundleRefused, match="older one is not taken"):
            await app.teams.add(org.pack(version=5, key=new))


async def test_the_name_of_a_servers_tool_is_not_taken_whether_it_is_accepted_or_waits(app: App, org: Organisation) -> None:
    async with odd() as (_, server):
        await app.servers.add("far", {"url": server.url})
        await app.servers.refresh("far")
        waiting = [one for one in await app.servers.quarantined("far") if one.kind == "tool"]
        org.write(waiting[0].name)
        bundle = org.pack()
        await is_refused(app, bundle, "kept for a tool of an MCP server")
        await app.servers.accept(waiting)
        await is_refused(app, bundle, "taken by a tool of source mcp")


async def test_a_tool_is_not_harmless_because_it_says_so(app: App, org: Organisation) -> None:
    org.write("lowly", risk="low")
    commands = TOOL_WITH_COMMANDS.replace("NAME", "runner")
    (org.tools / "runner.yml").write_text(commands)
    await app.teams.add(org.pack())
    tiers = {one.name: (one.tier, one.commands, one.hosts) for one in await app.teams.waiting()}
    assert tiers["lowly"] == ("write", (), ())
    assert tiers["runner"] == ("execute", ("npm install", "make"), ("registry.npmjs.org",))


TOOL_WITH_COMMANDS = """\
name: NAME
description: Runs commands.
schema: {type: object}
runtime: python
permissions:
  riskLevel: low
  allowlist: [{command: npm install, hosts: [registry.npmjs.org]}, make]
code: |
  def execute(args, context):
      return 1
"""


async def test_a_secret_that_nobody_granted_is_not_given(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_TOKEN", "sesame-1234567890")
    outcome = await app.invoke("greet", {"who": "{{secret:TOKEN}}"})
    assert outcome.error is not None
    assert outcome.error.code == "PERMISSION_DENIED"
    assert "secrets.use" in str(outcome.error.details) + str(outcome.error.suggestion)


async def test_code_that_does_not_compile_is_not_accepted(app: App, org: Organisation) -> None:
    (org.tools / "bad.yml").write_text(
        "name: bad\ndescription: Bad.\nschema: {type: object}\ncode: |\n  export function execute(args: {) { return 1 }\n"
    )
    await app.teams.add(org.pack())
    with pytest.raises(BundleRefused, match="bad cannot be accepted"):
        await app.teams.accept(await app.teams.waiting())


# -- who packs


async def test_links_folders_and_other_files_are_not_packed(org: Organisation) -> None:
    for name in ("link.yml", "folder", "notes.txt"):
        path = org.tools / name
        if name == "folder":
            path.mkdir()
        elif name == "link.yml":
            path.symlink_to("/etc/passwd")
        else:
            path.write_text("x")
        with pytest.raises(BundleRefused, match=r"no regular file|no tool's file"):
            org.pack()
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    assert org.pack()


async def test_who_packs_a_wrong_tool_is_told_where_to_correct_it(org: Organisation) -> None:
    (org.tools / "bad.yml").write_text("name: bad\nparameters: {}\n")
    with pytest.raises(BundleRefused, match=r"bad\.yml") as caught:
        org.pack()
    assert caught.value.suggestion == f"Correct it in {org.tools}, and pack again."


async def test_a_key_file_is_not_overwritten_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    made = create_key(tmp_path / "k.key")
    assert made.file.stat().st_mode & 0o077 == 0
    with pytest.raises(BundleRefused, match="already"):
        create_key(tmp_path / "k.key")


# -- who serves


def member(tmp_path: Path, org: Organisation, url: str) -> App:
    teams = org.settings(url=url, sync_seconds=0)
    return App.open(None, home=tmp_path / "member", database_url="memory://", teams=teams)


async def test_a_server_that_redirects_to_a_private_address_is_refused(tmp_path: Path, org: Organisation) -> None:
    asked: list[Asked] = []

    async def inner(request: Asked) -> Said:
        asked.append(request)
        return Said(body=org.pack())

    async with site(inner) as private:

        async def redirect(_: Asked) -> Said:
            return Said(302, headers={"location": private.url.replace("127.0.0.1", "localhost") + "/bundle"})

        async with site(redirect) as server, member(tmp_path, org, f"{server.url}/b") as app:
            with pytest.raises(BundleRefused, match="cannot be had"):
                await app.teams.sync()
            assert asked == []
            assert (await app.teams.status()).version is None


async def test_a_server_that_hangs_is_given_up(tmp_path: Path, org: Organisation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "FETCH_SECONDS", 0.3)
    ended = asyncio.Event()

    async def hang(_: Asked) -> Said:
        await ended.wait()
        return Said()

    async with site(hang) as server, member(tmp_path, org, f"{server.url}/b") as app:
        async with asyncio.timeout(SECONDS):
            with pytest.raises(BundleRefused, match="cannot be had"):
                await app.teams.sync()
        ended.set()


async def test_a_body_that_grows_when_it_is_unpacked_is_cut_off(tmp_path: Path, org: Organisation) -> None:
    bomb = gzip.compress(b"0" * (MAX_BUNDLE_BYTES * 10))

    async def answer(_: Asked) -> Said:
        return Said(body=bomb, headers={"content-encoding": "gzip"})

    async with site(answer) as server, member(tmp_path, org, f"{server.url}/b") as app:
        with pytest.raises(BundleRefused, match="cannot be had"):
            await app.teams.sync()


async def test_a_bundle_that_is_another_at_each_download_is_refused(tmp_path: Path, org: Organisation) -> None:
    async def answer(_: Asked) -> Said:
        org.write("greet", f"words {len(bundles)}")
        bundles.append(org.pack(version=1))
        return Said(body=bundles[-1])

    bundles: list[bytes] = []
    async with site(answer) as server, member(tmp_path, org, f"{server.url}/b") as app:
        await app.teams.sync()
        shown = await app.teams.waiting()
        with pytest.raises(BundleRefused, match="other content"):
            await app.teams.sync()
        assert await app.teams.waiting() == shown


# -- who reviews


@pytest.mark.requirement("REG-4")
async def test_an_admin_of_a_tenant_does_not_review_for_all_tenants(app: App, org: Organisation) -> None:
    org.write("second")
    await app.teams.add(org.pack())
    (waiting,) = await app.teams.waiting()
    async with serving(app) as served:
        admin = await person(app, served, Actor("acme", user="admin"), "admin", "approver")
        operator = await person(app, served, Actor("acme", user="operator"), "operator")
        for path in ("accept", "reject"):
            assert (await admin.post(f"/v1/teams/{path}", {"hashes": [waiting.hash]})).status == 403
        assert (await admin.get("/v1/teams")).status == 403
        assert (await admin.delete("/v1/teams")).status == 403
        assert (await operator.get(f"/v1/teams/{ORG}/bundle")).status == 403  # without the scope, nobody
        assert (await operator.post("/v1/teams/accept", {"hashes": ["0" * 64]})).status == 409
        accepted = await operator.post("/v1/teams/accept", {"hashes": [waiting.hash]})
        assert accepted.status == 200, accepted.body
        assert {one["name"]: one["state"] for one in accepted.json["tools"]} == {"greet": "accepted", "second": "accepted"}
        await app.keys.close()
    assert (await app.invoke("second", {})).output == "hello"


def test_an_organisation_without_a_key_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="public_key"):
        App.open(None, home=tmp_path, teams={"enabled": True, "org_id": ORG})
