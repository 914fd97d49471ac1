"""API keys: who a caller over HTTP is."""

import asyncio
import os
import shlex
import sqlite3
from datetime import timedelta
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serving import LAST_CHUNK, SECONDS, listening, serving
from tests.terminal import SCRIPT, Terminal
from toolgate import Actor, App, tool
from toolgate.app.keys import parse
from toolgate.errors import InvalidInput, KeyRefused
from toolgate.model import LOCAL, MASK
from toolgate.model.roles import Role
from toolgate.store import audit_log, migrate
from toolgate.store.database import Transaction
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-3")

ANALYST = Actor("acme", "analyst", "u-1", ("tool:web_search", "metrics"))


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


async def test_a_key_carries_who_its_holder_is(tmp_path: Path, database: str) -> None:
    async with App.open(home=tmp_path, database_url=database) as app:
        keys = app.keys
        key, text = await keys.create("ci", ANALYST, lasting=timedelta(days=30), may_approve=True)
        assert text.startswith(f"tg_{key.id}_")
        found = await keys.check(text.encode())
        assert found is not None
        assert (found.id, found.actor, found.may_approve) == (key.id, ANALYST, True)
        assert keys.known(text.encode()) == found, "it is known for a while without another look at the store"
        await keys.close()  # that it was used is noted by then
        [listed] = await keys.list()
        assert listed.actor == ANALYST
        assert listed.last_used_at is not None
        assert await keys.list("acme") == [listed]
        assert await keys.list("other") == []


async def test_only_the_very_key_is_taken(tmp_path: Path, database: str) -> None:
    async with App.open(home=tmp_path, database_url=database) as app:
        keys = app.keys
        key, text = await keys.create("one", ANALYST)
        _, other = await keys.create("two", Actor("other"))
        changed = text[:-1] + ("a" if text[-1] != "a" else "b")
        mixed = f"tg_{key.id}_{other.rpartition('_')[2]}"
        for wrong in (
            changed,
            mixed,
            text[:-1],
            text + "a",
            text.upper(),
            "",
            "tg_",
            f"tg_{key.id}",
            f"tg_{key.id}_",
            " " + text,
        ):
            assert await keys.check(wrong.encode()) is None, wrong
        assert await keys.check(text.encode()) is not None
        await keys.close()


async def test_a_revoked_key_is_refused_at_once_by_every_process(tmp_path: Path, database: str) -> None:
    async with (
        App.open(home=tmp_path, database_url=database) as here,
        App.open(home=tmp_path, database_url=database) as there,
    ):
        mine, theirs = here.keys, there.keys
        key, text = await mine.create("one", ANALYST)
        for keys in (mine, theirs):
            assert await keys.check(text.encode()) is not None
            assert keys.known(text.encode()) is not None
        await mine.revoke(key.id)
        assert mine.known(text.encode()) is None
        assert await mine.check(text.encode()) is None
        async with asyncio.timeout(30):  # a notice through PostgreSQL takes its time, one through a file does not
            while theirs.known(text.encode()) is not None:
                assert database.startswith("postgresql"), "the file beside SQLite says it at once"
                await asyncio.sleep(0.01)
        assert await theirs.check(text.encode()) is None
        await asyncio.gather(mine.close(), theirs.close())


async def test_a_key_ends_when_it_expires(tmp_path: Path) -> None:
    async with App.open(home=tmp_path) as app:
        keys = app.keys
        for seconds in (0.3, 3, 15):  # the longer ones only where the machine was held up for as long
            _, text = await keys.create(f"brief {seconds}", ANALYST, lasting=timedelta(seconds=seconds))
            if await keys.check(text.encode()) is not None:
                break
        else:
            raise AssertionError("no key ever held")
        async with asyncio.timeout(30):
            while keys.known(text.encode()) is not None:
                await asyncio.sleep(0.02)
        assert await keys.check(text.encode()) is None
        await keys.close()


@pytest.mark.parametrize("lasting", [timedelta(0), timedelta(days=-1), timedelta(days=4_000_000)])
async def test_a_key_that_could_not_last_is_refused(lasting: timedelta) -> None:
    async with memory_app() as app:
        with pytest.raises(KeyRefused):
            await app.keys.create("one", ANALYST, lasting=lasting)
        assert await app.keys.list() == []


@pytest.mark.parametrize(
    "name",
    ["", "x" * 251, "two\nlines", "\x1b[31m", " ci", "ci ", "a  b", "cafe\u0301", "\uff43i",
     "\u0441i", "\u0430\u0441\u0435", "c\u200bi", "$(ci)", "-ci", "ci\n"],
)  # fmt: skip
@pytest.mark.sample(4)
async def test_a_name_that_no_record_could_hold_or_that_looks_like_another_is_refused(name: str) -> None:
    async with memory_app() as app:
        with pytest.raises(KeyRefused):
            await app.keys.create(name, ANALYST)


async def test_making_and_revoking_are_on_record_and_the_secret_is_not(tmp_path: Path) -> None:
    async with App.open(home=tmp_path) as app:
        keys = app.keys
        key, text = await keys.create("ci", ANALYST)
        await keys.check(text.encode())
        await keys.revoke(key.id)
        with pytest.raises(KeyRefused, match="revoked already"):
            await keys.revoke(key.id)
        with pytest.raises(KeyRefused, match="no key"):
            await keys.revoke("nosuchkey000")
        await keys.close()
        await app.flush()
        acts = [row for row in await app.parts.store.read(audit_log.latest(10)) if row[2].startswith("key.")]
        assert [row[2] for row in acts] == ["key.created", "key.revoked"]
        assert '"for_tenant":"acme"' in acts[0][7]
    secret = text.rpartition("_")[2].encode()
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or secret not in file.read_bytes(), file


async def test_the_secret_is_masked_wherever_it_turns_up() -> None:
    async with memory_app(scan_secrets=False) as app:
        _, text = await app.keys.create("ci", ANALYST)
        assert app.parts.redactor.mask({"text": f"my key is {text}, keep it"}) == {"text": f"my key is {MASK}, keep it"}


@given(st.binary(max_size=200))
def test_what_is_no_key_is_told_by_its_form(text: bytes) -> None:
    parts = parse(text)
    assert parts is None or f"tg_{parts[0]}_{parts[1]}".encode() == text


async def test_a_crowd_of_keys_is_not_kept_in_mind_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.app.known_credentials.MAX_KNOWN", 3)
    async with memory_app() as app:
        keys = app.keys
        texts = [(await keys.create(f"k{number}", ANALYST))[1].encode() for number in range(10)]
        for text in texts:
            assert await keys.check(text) is not None
            assert len(keys._known) <= 3
        await keys.close()


# -- the command


def test_keys_are_made_listed_and_revoked_at_the_terminal(terminal: Terminal) -> None:
    made = terminal(
        "keys", "create", "laptop", "--tenant", "acme", "--persona", "analyst", "--user", "u-1",
        "--scope", "a", "--scope", "b", "--expires", "30d", "--may-approve",
    )  # fmt: skip
    assert made.code == 0, made.err
    text = made.out.strip()
    id = text.split("_")[1]
    assert "not shown again" in made.err
    assert text not in made.err
    listed = terminal("keys", "list", "--json").json["keys"]
    assert [(key["id"], key["state"], key["tenant"], key["scopes"], key["may_approve"]) for key in listed] == [
        (id, "valid", "acme", ["a", "b"], True)
    ]
    assert text.rpartition("_")[2] not in terminal("keys", "list").out
    assert terminal("keys", "list", "--tenant", "other").out == ""
    assert terminal("keys", "revoke", id[:6]).code == 0
    assert terminal("keys", "list", "--json").json["keys"][0]["state"] == "revoked"
    again = terminal("keys", "revoke", text, "--json")
    assert (again.code, again.json["error"]["code"]) == (1, "KEY_ERROR")
    assert text.rpartition("_")[2] not in again.out + again.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["create", "x", "--expires", "soon"], 2),
        (["create", "x", "--expires", "0d"], 2),
        (["create", "x", "--expires", "999999999w"], 2),
        (["create", "x", "--tenant", ""], 2),
        (["create", "x\ny"], 2),
        (["create", "l\u0430ptop"], 2),
        (["create", "x", "--user", "\u0430nn"], 2),
        (["create", "x", "--scope", "a\nb"], 2),
        (["create"], 2),
        (["revoke", "tg_"], 2),
        (["revoke", "nosuchkey"], 1),
    ],
)
def test_what_is_wrong_at_the_terminal_is_said(terminal: Terminal, words: list[str], code: int) -> None:
    done = terminal("keys", *words)
    assert done.code == code
    assert done.err
    assert done.out == ""


def test_keys_that_begin_alike_are_not_confused(terminal: Terminal) -> None:
    for name in ("one", "two"):
        terminal("keys", "create", name)
    with sqlite3.connect(terminal.home / "toolgate.db") as database:
        for number, (id,) in enumerate(database.execute("SELECT id FROM api_keys ORDER BY created_at").fetchall()):
            database.execute("UPDATE api_keys SET id = ? WHERE id = ?", (f"same{number:08}", id))
    database.close()
    done = terminal("keys", "revoke", "same")
    assert done.code == 1
    assert "2 keys match same: same00000000 (" in done.err
    assert "Give the whole id" in done.err


def test_a_name_is_one_live_keys_and_says_which_to_revoke(terminal: Terminal) -> None:
    first = terminal("keys", "create", "laptop", "--json").json
    assert terminal("keys", "create", "laptop", "--tenant", "acme").code == 0, "another tenant's names are its own"
    refused = terminal("keys", "create", "laptop", "--user", "ann", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "KEY_ERROR")
    assert f"The key {first['id']} of tenant default is named laptop already" in refused.json["error"]["message"]
    assert f"toolgate keys revoke {first['id']}" in refused.json["error"]["suggestion"]
    both = terminal("keys", "revoke", "laptop")
    assert both.code == 1
    assert first["id"] in both.err, "where the name is that of two tenants' keys, their ids are shown"
    assert "tenant acme" in both.err
    typo = terminal("keys", "revoke", "laptpo")
    assert (typo.code, "Did you mean laptop (" in typo.err) == (1, True)
    assert terminal("keys", "revoke", first["id"]).code == 0
    assert terminal("keys", "revoke", "laptop").code == 0, "one of that name is left"
    again = terminal("keys", "create", "laptop", "--expires", "1h", "--same-user", "--json").json
    assert again["id"] != first["id"]
    with sqlite3.connect(terminal.home / "toolgate.db") as database:
        database.execute("UPDATE api_keys SET expires_at = '2020-01-01 00:00:00+00:00' WHERE id = ?", (again["id"],))
    database.close()
    expired = terminal("keys", "create", "laptop")
    assert (expired.code, "already, which has expired." in expired.err) == (1, True)


@pytest.mark.matrix("starts several processes")
@pytest.mark.requirement("DOOR-3", "REG-2")
async def test_of_two_processes_that_make_a_key_of_one_name_one_does(tmp_path: Path, database: str) -> None:
    words = (SCRIPT, "--home", str(tmp_path), "keys", "create", "ci", "--json")
    environment = {**os.environ, "TOOLGATE_DATABASE_URL": database}
    async with App.open(home=tmp_path, database_url=database) as app:
        started = [
            await asyncio.create_subprocess_exec(
                *words, cwd=tmp_path, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
            )
            for _ in range(2)
        ]
        answers = await asyncio.wait_for(asyncio.gather(*(process.communicate() for process in started)), 60)
        assert sorted(process.returncode or 0 for process in started) == [0, 1], answers
        [key] = await app.keys.list()
        made = [orjson.loads(out) for out, _ in answers if "key" in orjson.loads(out)]
        assert [one["id"] for one in made] == [key.id]


@pytest.mark.requirement("DOOR-3", "REG-2")
async def test_keys_that_had_one_name_before_both_stay_and_the_later_is_renamed(tmp_path: Path, database: str) -> None:
    def as_before() -> Transaction[None]:
        yield "DROP INDEX api_keys_live_name", {}
        yield "UPDATE api_keys SET name = 'ci'", {}
        [step] = [step for step in migrate.migrations() if step.number == 10]
        dialect = migrate.POSTGRES if database.startswith("postgresql") else migrate.SQLITE
        for statement in migrate.statements(step.text, dialect):
            yield statement, {}

    async with App.open(home=tmp_path, database_url=database) as app:
        made = [await app.keys.create(name, ANALYST) for name in ("revoked", "first", "second", "third")]
        await app.keys.revoke(made[0][0].id)
        await app.keys.create("elsewhere", Actor("other"))
        await app.parts.store.transact(as_before())
        keys = app.keys
        assert [key.name for key in await keys.list("acme")] == [
            "ci", "ci", *(f"ci (renamed: {key.id})" for key, _ in made[2:])
        ]  # fmt: skip
        assert [key.name for key in await keys.list("other")] == ["ci"]
        for _, text in made[1:]:
            assert await keys.check(text.encode()) is not None, "a key that was handed out is still taken"
        await keys.close()


@pytest.mark.requirement("DOOR-3", "REG-2")
def test_the_name_of_a_revoked_key_makes_nobody_its_user_unless_that_is_said(terminal: Terminal) -> None:
    first = terminal("keys", "create", "ada's laptop", "--tenant", "acme", "--json").json
    assert terminal("keys", "revoke", first["id"]).code == 0
    refused = terminal("keys", "create", "ada's laptop", "--tenant", "acme", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "KEY_ERROR")
    assert "would act as the user key:ada's laptop" in refused.json["error"]["message"]
    assert first["id"] in refused.json["error"]["message"]
    advice = refused.json["error"]["suggestion"].partition("toolgate ")[2]
    assert advice.endswith("--same-user")
    assert terminal("keys", "create", "ada's laptop", "--tenant", "other").code == 0, "another tenant's users are its own"
    assert terminal("keys", "create", "ada's laptop", "--tenant", "acme", "--user", "bob", "--same-user").code == 2
    bob = terminal("keys", "create", "ada's laptop", "--tenant", "acme", "--user", "bob", "--json").json
    assert bob["user"] == "bob", "whoever names a user says whose grants it has"
    assert terminal("keys", "revoke", bob["id"]).code == 0
    assert terminal("keys", "create", "ada's laptop", "--tenant", "acme").code == 1, "also when others had the name since"
    again = terminal(*shlex.split(advice), "--json")
    assert (again.code, again.json["user"], again.json["tenant"]) == (0, first["user"], "acme")


@pytest.mark.requirement("DOOR-3")
async def test_a_name_or_user_that_reads_like_another_is_refused(tmp_path: Path) -> None:
    async with memory_app(home=tmp_path) as app:
        keys = app.keys
        await keys.create("laptop", Actor(user="key:laptop"))
        old, _ = await keys.create("phone", Actor(user="key:phone"))
        await keys.revoke(old.id)
        await app.parts.store.transact(_renamed("phone", "\u0440hone"))  # as names could be before there was a rule
        for name, like in (("Laptop", "laptop"), ("phone", "\\u0440hone")):
            with pytest.raises(KeyRefused, match=f"The name {name} reads like ") as refused:
                await keys.create(name, Actor(user="ann"), same_user=True)
            assert like in refused.value.message
        for user in ("\u0430nn", "\u0430\u0441\u0435"):
            with pytest.raises(KeyRefused, match="could be taken for another user"):
                await keys.create("tablet", Actor(user=user))
        await keys.create("tablet", Actor(user="\u0418\u0440\u0438\u043d\u0430"))  # a name that looks like no other
        await keys.create("laptop", Actor("other", user="key:laptop"))


@pytest.mark.requirement("DOOR-3", "POL-7")
async def test_no_tenant_persona_or_user_has_a_name_that_stands_for_all() -> None:
    for tenant, persona in (("*", None), ("acme", "*")):
        with pytest.raises(ValueError, match="stands for all of them"):
            Actor(tenant, persona)
    async with memory_app() as app:
        for user in ("*", "toolgate", "Toolgate", "schedule"):
            with pytest.raises(KeyRefused, match="a meaning of its own"):
                await app.keys.create("one", Actor(user=user))
            with pytest.raises(KeyRefused, match="a meaning of its own"):
                await app.sign_ins.create_link(Actor(user=user))
        with pytest.raises(InvalidInput, match="stands for all of them"):
            await app.tools.set_enabled("echo", False, tenant="*")


@pytest.mark.requirement("DOOR-3", "REG-2")
async def test_a_key_of_such_a_tenant_that_was_made_before_there_was_the_rule_is_gone(tmp_path: Path, database: str) -> None:
    def as_before() -> Transaction[None]:
        yield "UPDATE api_keys SET tenant_id = '*' WHERE name = 'all'", {}
        yield "UPDATE api_keys SET user_id = 'Toolgate' WHERE name = 'internal'", {}
        yield "UPDATE approvals SET persona_id = '*' WHERE user_id = 'eve'", {}
        [step] = [step for step in migrate.migrations() if step.number == 44]
        dialect = migrate.POSTGRES if database.startswith("postgresql") else migrate.SQLITE
        for statement in migrate.statements(step.text, dialect):
            yield statement, {}

    async with App.open(home=tmp_path, database_url=database) as app:
        for name in ("all", "internal", "one"):
            await app.keys.create(name, ANALYST)
        app.register(pays)
        for user in ("eve", "ann"):
            assert (await app.invoke("pays", actor=Actor("acme", user=user))).status == "pending"
        await app.parts.store.transact(as_before())
        assert [key.name for key in await app.keys.list()] == ["one"]
        assert [one.request.actor.user for one in await app.approvals.list(all_tenants=True)] == ["ann"]


@tool(tier="external_api")
async def pays() -> str:
    """Pay."""
    return "paid"


def _renamed(name: str, to: str) -> Transaction[None]:
    yield "UPDATE api_keys SET name = :to WHERE name = :name", {"to": to, "name": name}


# -- what lasts


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_who_waits_for_news_is_told_no_more_when_the_key_ends() -> None:
    async with memory_app() as app, serving(app) as site:
        keys = app.keys
        revoked, text = await keys.create("revoked", LOCAL)
        _, expiring = await keys.create("expiring", LOCAL, lasting=timedelta(seconds=2))
        _, good = await keys.create("good", LOCAL)
        async with listening(site, text) as first, listening(site, expiring) as second, listening(site, good) as staying:
            await keys.revoke(revoked.id)
            for stream in (first, second):
                await asyncio.wait_for(stream.readuntil(LAST_CHUNK), SECONDS)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(staying.readuntil(LAST_CHUNK), 0.1)
        await keys.close()


@pytest.mark.requirement("DOOR-3")
def test_a_key_without_a_user_is_nobody_elses(terminal: Terminal) -> None:
    assert "without it, key:NAME" in terminal("keys", "create", "--help").out
    assert terminal("keys", "create", "laptop", "--json").json["user"] == "key:laptop"
    assert terminal("keys", "create", "local", "--json").json["user"] == "key:local"
    assert terminal("keys", "create", "named", "--user", "ann", "--json").json["user"] == "ann"


# -- roles


@pytest.mark.requirement("DOOR-3")
def test_a_key_is_a_callers_unless_its_roles_are_named(terminal: Terminal) -> None:
    assert terminal("keys", "create", "agent", "--json").json["roles"] == ["caller"]
    made = terminal("keys", "create", "ann", "--role", "approver", "--role", "viewer", "--json").json
    assert made["roles"] == ["viewer", "approver"]
    assert [key["roles"] for key in terminal("keys", "list", "--json").json["keys"]] == [["caller"], ["viewer", "approver"]]
    refused = terminal("keys", "create", "eve", "--role", "root")
    assert refused.code == 2
    assert "Roles must be one or more of guest, viewer, caller, approver, admin, operator, not root." in refused.err


@pytest.mark.requirement("DOOR-3")
async def test_only_roles_that_may_call_reach_mcp() -> None:
    async with memory_app() as app, serving(app) as site:
        roles: tuple[Role, ...] = ("viewer", "approver", "caller", "admin")
        texts = {role: (await app.keys.create(role, LOCAL, roles=[role]))[1] for role in roles}
        statuses = {}
        for role, text in texts.items():
            site.key = text
            statuses[role] = (await site.mcp("tools/list")).status
        assert statuses == {"viewer": 403, "approver": 403, "caller": 200, "admin": 200}
        await app.keys.close()
