"""The head of the audit log is signed with a key kept apart: what an attacker who has the database can't do any more."""

import asyncio
import http.server
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.backends.fail import Keyring as NoKeyring
from keyrings.alt.file import PlaintextKeyring  # type: ignore[import-untyped]

from tests.terminal import Terminal
from toolgate import App
from toolgate import tool as make_tool
from toolgate.gates.ledger import check_proof
from toolgate.store.chain import START, Head, link
from toolgate.store.head_keys import KeyFile
from toolgate.store.merkle import MerkleTree, leaf, path

pytestmark = pytest.mark.requirement("AUD-7", "AUD-2")


class Attacker:
    """Has the database, and `home`."""

    def __init__(self, terminal: Terminal, database: str) -> None:
        self.terminal = terminal
        self._database = database

    def sql(self, *statements: str, rows: list[tuple[Any, ...]] | None = None) -> list[tuple[Any, ...]]:
        """Run statements; `rows` are the whole log, put in place of what is there."""
        if self._database.startswith("sqlite"):
            with sqlite3.connect(self._database.removeprefix("sqlite:///")) as connection:
                found: list[tuple[Any, ...]] = []
                for statement in statements:
                    found = connection.execute(statement).fetchall()
                if rows is not None:
                    connection.execute("DELETE FROM audit_log")
                    connection.executemany("INSERT INTO audit_log VALUES (?,?,?,?,?,?,?,?,?)", rows)
            connection.close()
            return found
        return asyncio.run(self._on_postgres(statements, rows))

    async def _on_postgres(self, statements: tuple[str, ...], rows: Any) -> list[tuple[Any, ...]]:
        import asyncpg

        connection = await asyncpg.connect(self._database)
        try:
            found: list[tuple[Any, ...]] = []
            for statement in statements:
                found = [tuple(row) for row in await connection.fetch(statement)]
            if rows is not None:
                await connection.execute("DELETE FROM audit_log")
                await connection.copy_records_to_table("audit_log", records=rows)
            return found
        finally:
            await connection.close()

    def rewrite(self) -> None:
        """A chain that is whole and says something else."""
        head, rows = START, []
        for _, at, kind, call, tenant, tool, status, body, _ in self.sql("SELECT * FROM audit_log ORDER BY seq"):
            rows.append(link(head, (at, kind, call, tenant, tool, status, body.replace("hello", "howdy").encode())))
            head = Head(rows[-1][0], rows[-1][-1])
        self.sql(rows=list(rows))

    def remove_heads(self) -> None:
        (self.terminal.home / "audit.head").unlink()
        self.sql("DELETE FROM audit_heads")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What is kept apart."""
    return tmp_path / "apart"


@pytest.fixture
def terminal(
    tmp_path: Path, folder: Path, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    work = tmp_path / "work"
    work.mkdir()
    terminal = Terminal(work, monkeypatch, capsys)
    terminal.set("TOOLGATE_DATABASE_URL", database)
    terminal.set("TOOLGATE_AUDIT__FOLDER", str(folder))
    return terminal


@pytest.fixture
def attacker(terminal: Terminal, database: str) -> Attacker:
    for _ in range(3):
        assert terminal("call", "echo", "text=hello").code == 0
    return Attacker(terminal, database)


def faults(terminal: Terminal, *words: str) -> str:
    done = terminal("audit", "verify", "--json", *words)
    assert (done.code == 0) == (not done.json["faults"])
    return "\n".join(done.json["faults"])


@pytest.mark.usefixtures("attacker")
def test_verify_names_the_key_that_signed(terminal: Terminal) -> None:
    key = terminal("audit", "key", "--json").json
    done = terminal("audit", "verify")
    assert done.code == 0
    assert f"signed up to row 6 by key {key['key']}" in done.out
    assert terminal("audit", "verify", "--json").json["signed"]["key"] == key["key"]


def test_key_and_head_are_their_owners_alone(attacker: Attacker, folder: Path) -> None:
    assert not list(attacker.terminal.home.rglob("key.json"))
    assert (folder.stat().st_mode & 0o777, (folder / "key.json").stat().st_mode & 0o777) == (0o700, 0o600)
    assert all(file.stat().st_mode & 0o077 == 0 for file in folder.rglob("*"))


SWAP = (
    "UPDATE audit_log SET seq = 99 WHERE seq = 2",
    "UPDATE audit_log SET seq = 2 WHERE seq = 3",
    "UPDATE audit_log SET seq = 3 WHERE seq = 99",
)
FORGED = "INSERT INTO audit_log SELECT {}, at, kind, 'forged', tenant, tool, status, body, hash FROM audit_log WHERE seq = 1"


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.parametrize(
    ("statements", "fault"),
    [
        ((FORGED.format(0),), "row 0 (start of call forged) does not belong to the log"),
        ((FORGED.format(-5),), "row -5 (start of call forged) does not belong to the log"),
        (("DELETE FROM audit_log WHERE seq = 3",), "row 3 is missing"),
        (("DELETE FROM audit_log WHERE seq = 1",), "row 1 is missing"),
        (("DELETE FROM audit_log WHERE seq > 4",), "the tail is cut: the log ends at 4"),
        (("DELETE FROM audit_log",), "the tail is cut: the log ends at 0"),
        (SWAP, "row 2 (start of call"),
        (("UPDATE audit_log SET seq = seq + 10 WHERE seq > 4",), "row 5 to 14 is missing"),
    ],
    ids=["row 0", "negative row", "deleted", "first deleted", "cut", "emptied", "reordered", "gap"],
)
@pytest.mark.parametrize("heads", ["heads kept", "heads removed"])
@pytest.mark.sample(4)
def test_each_way_to_change_the_log_has_its_word(
    attacker: Attacker, terminal: Terminal, statements: tuple[str, ...], fault: str, heads: str
) -> None:
    attacker.sql(*statements)
    if heads == "heads removed":
        attacker.remove_heads()
    assert fault in faults(terminal)
    assert "forged" not in terminal("audit", "tail", "--json").out
    assert "forged" not in terminal("audit", "export").out
    assert terminal("audit", "show", "forged").code == 1


def test_a_row_that_is_there_twice_is_found(attacker: Attacker, terminal: Terminal, database: str) -> None:
    if database.startswith("sqlite"):
        attacker.sql(
            "DROP VIEW tool_execution_log", "DROP VIEW tool_usage", "DROP VIEW call_costs", "DROP VIEW call_requests",
            "DROP VIEW call_ends", "DROP VIEW call_parents",
            "CREATE TABLE copied AS SELECT * FROM audit_log",
            "DROP TABLE audit_log", "ALTER TABLE copied RENAME TO audit_log",
        )  # fmt: skip
    else:
        attacker.sql("ALTER TABLE audit_log DROP CONSTRAINT audit_log_pkey")
    attacker.sql(FORGED.format(2))
    assert "is there twice" in faults(terminal)


def test_a_rewritten_chain_is_found_though_every_head_in_reach_is_removed_and_also_after_the_next_call(
    attacker: Attacker, terminal: Terminal
) -> None:
    attacker.rewrite()
    attacker.remove_heads()
    assert "the log was rewritten" in faults(terminal)
    after = terminal("call", "echo", "text=hello")
    assert after.code == 0
    assert "not signed" in after.err
    assert "the log was rewritten" in faults(terminal)
    for _ in range(2):
        terminal("call", "echo", "text=hello")
    assert "the log was rewritten" in faults(terminal)


def test_a_cut_tail_is_found_though_the_log_has_grown_again(attacker: Attacker, terminal: Terminal) -> None:
    attacker.sql("DELETE FROM audit_log WHERE seq > 2")
    attacker.remove_heads()
    for _ in range(4):
        terminal("call", "echo", "text=other")
    assert "the log was rewritten" in faults(terminal)


@pytest.mark.usefixtures("attacker")
def test_a_replaced_key_is_found_and_signs_nothing(terminal: Terminal, folder: Path) -> None:
    genuine = terminal("audit", "key", "--json").json["key"]
    (folder / "key.json").unlink()
    KeyFile(folder / "key.json").rotate()
    assert f"signed by key {genuine}, which is not known here" in faults(terminal)
    assert "not known here" in terminal("call", "echo", "text=hello").err
    assert f"signed by key {genuine}, which is not known here" in faults(terminal)


def test_a_head_that_somebody_else_signed_in_the_same_name_is_found(
    attacker: Attacker, terminal: Terminal, folder: Path
) -> None:
    attacker.rewrite()
    [witness] = (folder / "heads").glob("*.json")
    held = json.loads(witness.read_text())
    tree = MerkleTree()
    for (digest,) in attacker.sql("SELECT hash FROM audit_log ORDER BY seq"):
        tree.append(leaf(digest))
    held["head"] |= {"root": tree.root(), "hash": digest}
    witness.write_text(json.dumps(held | {"peaks": [peak.hex() for peak in tree.peaks]}))
    assert "the signature of the head at row 6 is not that of key" in faults(terminal)


@pytest.mark.usefixtures("attacker")
def test_a_signed_head_that_is_gone_is_missed(terminal: Terminal, folder: Path) -> None:
    [witness] = (folder / "heads").glob("*.json")
    witness.unlink()
    assert "it was removed" in faults(terminal)
    assert "not signed" in terminal("call", "echo", "text=hello").err
    assert "it was removed" in faults(terminal)


def test_a_log_that_was_replaced_on_purpose_can_be_accepted_and_that_is_on_record(
    attacker: Attacker, terminal: Terminal
) -> None:
    attacker.rewrite()
    assert "rewritten" in faults(terminal)
    assert terminal("audit", "sign").code == 1
    assert terminal("audit", "sign", "--anew").code == 0
    assert "audit.accepted" in terminal("audit", "tail", "--json").out
    done = terminal("audit", "verify")
    assert done.code == 0
    assert "rows 1 to 6 were written before heads were signed" in done.err
    assert terminal("call", "echo", "text=hello").err.count("not signed") == 0
    assert faults(terminal) == ""


def test_a_new_key_signs_on_and_the_old_ones_heads_still_count(attacker: Attacker, terminal: Terminal) -> None:
    old = terminal("audit", "key", "--json").json
    new = terminal("audit", "key", "--rotate", "--json").json
    assert new["key"] != old["key"]
    assert terminal("audit", "verify", "--json").json["signed"]["key"] == new["key"]
    terminal("call", "echo", "text=hello")
    told = terminal("audit", "verify", "--json").json
    assert (told["ok"], told["signed"]["key"], told["signed"]["seq"]) == (True, new["key"], 9)
    kept = {row[0] for row in attacker.sql("SELECT key_id FROM audit_heads")}
    assert kept == {old["key"], new["key"]}
    attacker.rewrite()
    assert f"key {old['key']} signed" in faults(terminal)


def test_rows_from_before_heads_were_signed_are_named_so(terminal: Terminal, database: str) -> None:
    terminal.set("TOOLGATE_AUDIT__KEY", "none")
    old = terminal("call", "echo", "text=old", "--json").json["id"]
    attacker = Attacker(terminal, database)
    attacker.sql(
        "DROP TABLE change_locks", "DROP TABLE team_bundles", "DROP TABLE team_tools", "DROP TABLE team_syncs",
        "DROP TABLE openapi_documents",
        "DROP TABLE tool_registrations", "ALTER TABLE dynamic_tools DROP COLUMN registered_by_user",
        "ALTER TABLE dynamic_tools DROP COLUMN registered_door", "ALTER TABLE dynamic_tools DROP COLUMN updated_at",
        "DROP INDEX approvals_waiting", "DROP INDEX approvals_used", "DROP INDEX approvals_user_words",
        "ALTER TABLE approvals DROP COLUMN on_behalf_of", "ALTER TABLE approvals DROP COLUMN connection_id",
        "ALTER TABLE approvals DROP COLUMN user_words", "ALTER TABLE api_keys DROP COLUMN may_speak",
        "ALTER TABLE grants DROP COLUMN args_hash", "ALTER TABLE grants DROP COLUMN arguments",
        "ALTER TABLE grants DROP COLUMN max_uses", "ALTER TABLE grants DROP COLUMN run_id",
        "ALTER TABLE approvals DROP COLUMN run_id", "DROP TABLE agent_messages", "DROP TABLE agent_runs",
        "DROP TABLE tool_vectors", "DROP TABLE tenant_allow_lists", "DROP TABLE tool_limits", "DROP TABLE learning_feedback",
        "DROP TABLE tool_outcomes", "DROP TABLE flow_messages", "DROP TABLE flow_sessions", "DROP TABLE call_statistics",
        "DROP TABLE call_statistics_progress", "DROP VIEW call_ends", "DROP VIEW call_parents", "DROP INDEX audit_log_user",
        "DROP INDEX audit_log_failed", "DROP INDEX audit_log_acts", "DROP INDEX audit_log_parent",
        "DROP TABLE attachment_contents", "DROP TABLE attachments", "DROP TABLE mcp_session_messages",
        "DROP TABLE mcp_sessions", "DROP TABLE web_sessions", "DROP TABLE sign_in_links",
        "ALTER TABLE tenant_tool_flags DROP COLUMN by_operator", "ALTER TABLE processes DROP COLUMN url",
        "ALTER TABLE api_keys DROP COLUMN roles",
        "DROP VIEW call_requests", "DROP INDEX audit_log_request",
        "DROP VIEW call_costs", "DROP TABLE audit_signing", "DROP TABLE audit_heads", "DROP TABLE rate_counts",
        "DROP TABLE event_requests", "DROP TABLE schedules", "DROP TABLE workflow_invocations",
        "DROP TABLE mcp_task_answers", "DROP TABLE mcp_tasks", "DROP TABLE seen_signatures", "DROP TABLE push_tokens",
        "DROP TABLE jobs", "DROP TABLE tool_health", "DROP TABLE free_calls", "DROP TABLE behaviour_adjustments",
        "DROP TABLE notifications", "DROP TABLE canvas_blocks", "DROP TABLE canvases", "DROP TABLE document_passages",
        "DROP TABLE documents", "DROP TABLE document_libraries", "DROP TABLE memories", "DROP TABLE memory_spaces",
        "DROP INDEX api_keys_live_name", "DROP TABLE call_details", "DELETE FROM toolgate_schema WHERE number >= 9",
    )  # fmt: skip
    assert "no head is signed" not in terminal("audit", "verify").err
    terminal.set("TOOLGATE_AUDIT__KEY", "file")
    new = terminal("call", "echo", "text=new", "--json").json["id"]
    done = terminal("audit", "verify")
    assert done.code == 0
    assert "rows 1 to 2 were written before heads were signed" in done.err
    assert "before heads were signed" in terminal("audit", "prove", old).err
    assert terminal("audit", "prove", new).code == 0
    attacker.sql("DELETE FROM audit_log WHERE seq = 1")
    assert "row 1 is missing" in faults(terminal)


# -- proofs


@pytest.mark.usefixtures("attacker")
def test_one_record_is_proven_to_be_in_the_log_without_the_log(terminal: Terminal, tmp_path: Path) -> None:
    call = terminal("call", "echo", 'text="Grüße" \\ \t€', "--tenant", "größer", "--json").json["id"]
    for _ in range(2):
        terminal("call", "echo", "text=hello")
    proof, script = tmp_path / "proof.json", tmp_path / "check.py"
    assert terminal("audit", "prove", call, "-o", str(proof)).code == 0
    assert terminal("audit", "prove", "--script", "-o", str(script)).code == 0
    key = terminal("audit", "key", "--json").json["public_key"]
    assert proof.stat().st_size < 10_000
    done = _check(script, proof, key)
    assert (done.returncode, done.stdout.count("PROVEN: row")) == (0, 2)
    held = json.loads(proof.read_text())

    def changed(**what: Any) -> dict[str, Any]:
        return {**held, "records": [{**held["records"][0], **what}]}

    body = held["records"][0]["body"]
    for wrong in (
        changed(body=body.replace("echo", "evil").replace("Gr", "gr")),
        changed(seq=3),
        changed(status="failure"),
        changed(path=held["records"][0]["path"][:-1]),
        changed(path=[*held["records"][0]["path"], "00" * 32]),
        {**held, "head": {**held["head"], "seq": held["head"]["seq"] + 1}},
        {**held, "head": {**held["head"], "root": "00" * 32}},
        {**held, "records": []},
        {"format": "toolgate audit proof 1"},
        {},
    ):
        proof.write_text(json.dumps(wrong))
        refused = _check(script, proof, key)
        assert (refused.returncode, "NOT PROVEN" in refused.stdout, refused.stderr) == (1, True, ""), wrong
    proof.write_text(json.dumps(held))
    other = KeyFile(tmp_path / "other.json")
    assert "not by the key that was given" in _check(script, proof, str(other.public_key(other.rotate()))).stdout
    assert terminal("audit", "prove", "no-such-call").code == 1
    assert terminal("audit", "prove").code == 2


def _check(script: Path, proof: Path, key: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-I", "-S", str(script), str(proof), "--key", key]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_every_row_of_a_tree_of_any_size_is_proven_and_no_other() -> None:
    for size in range(1, 34):
        tree, leaves = MerkleTree(), [leaf(str(number)) for number in range(size)]
        for one in leaves:
            tree.append(one)
        for index in range(size):
            steps = path(leaves, index)
            assert check_proof.root_of(str(index), index, size, steps) == tree.root()
            assert check_proof.root_of("other", index, size, steps) != tree.root()


async def test_a_record_that_a_caller_wrote_into_its_arguments_is_not_proven(tmp_path: Path) -> None:
    """A row's hash is that of texts one after the other: whoever could cut them elsewhere would have a row of their own."""

    @make_tool(tier="read_only")
    async def remember(rows: list[Any]) -> int:
        """Remember some rows."""
        return len(rows)

    app = App.open(home=tmp_path, audit={"folder": tmp_path / "apart"}, entry_points=False)
    app.register(remember)
    async with app:
        forged = [[seq, 1_700_000_000_000_000, "end", "call-1", "bank", "pay", "success"] for seq in range(1, 9)]
        call = await app.invoke("remember", {"rows": forged})
        proof = await app.audit.prove(call.id)
        assert proof is not None
        key = proof["public_key"]
    assert check_proof.check(proof, key) == []
    names = ("seq", "at", "kind", "call_id", "tenant", "tool", "status")
    tried = 0
    for record in proof["records"]:
        header = json.dumps([record[name] for name in names], separators=(",", ":"))
        fields = forged[record["seq"] - 1]
        wanted = json.dumps(fields, separators=(",", ":"))
        before, found, after = (record["previous_hash"] + header + record["body"]).partition(wanted)
        if found:
            cut = {**dict(zip(names, fields, strict=True)), "previous_hash": before, "body": after, "path": record["path"]}
            assert check_proof.check({**proof, "records": [cut]}, key) != []
            tried += 1
    assert tried


async def test_what_a_proof_holds_does_not_write_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = App.open(home=tmp_path, audit={"folder": tmp_path / "apart"}, entry_points=False)
    async with app:
        proof = await app.audit.prove((await app.invoke("echo", {"text": "hello"})).id)
    assert proof is not None
    proof["records"][0]["kind"] = "x\x1b[2K\rPROVEN: row 1\nPROVEN: row 2"
    file = tmp_path / "proof.json"
    file.write_text(json.dumps(proof))
    assert check_proof.main([str(file), "--key", proof["public_key"]]) == 1
    shown = capsys.readouterr().out
    assert all(line.startswith("NOT PROVEN: ") for line in shown.splitlines())
    assert shown.replace("\n", "").isprintable()


# -- elsewhere


class _Taken(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append((self.command, self.path, json.loads(body)))  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    do_PUT = do_POST

    def log_message(self, *_: object) -> None:
        """Not heard."""


@pytest.fixture
def endpoint() -> Iterator[Any]:
    server = http.server.HTTPServer(("127.0.0.1", 0), _Taken)
    server.taken = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_signed_heads_go_to_other_places_too(
    terminal: Terminal, database: str, tmp_path: Path, folder: Path, endpoint: Any
) -> None:
    url = f"127.0.0.1:{endpoint.server_address[1]}"
    file = tmp_path / "elsewhere.jsonl"
    terminal.set("TOOLGATE_AUDIT__SINKS", json.dumps([str(file), f"http://{url}/heads", f"put+http://{url}/bucket/"]))
    terminal("call", "echo", "text=hello")
    terminal("call", "echo", "text=hello")
    heads = [json.loads(line) for line in file.read_text().splitlines()]
    assert [head["seq"] for head in heads] == [2, 4]
    log = heads[0]["log"]
    assert [(how, where) for how, where, _ in endpoint.taken] == [
        ("POST", "/heads"), ("PUT", f"/bucket/{log}/{2:020d}.json"),
        ("POST", "/heads"), ("PUT", f"/bucket/{log}/{4:020d}.json"),
    ]  # fmt: skip
    assert endpoint.taken[-1][2] == heads[-1]

    # Somebody has the database, home, and what is kept apart. What was sent elsewhere is out of reach.
    attacker = Attacker(terminal, database)
    attacker.rewrite()
    attacker.remove_heads()
    for held in sorted(folder.rglob("*.json")):
        held.unlink()
    terminal.set("TOOLGATE_AUDIT__SINKS", "[]")
    terminal("call", "echo", "text=forged")
    assert faults(terminal) == ""
    assert "which is not known here" in faults(terminal, "--heads", str(file))
    terminal.set("TOOLGATE_AUDIT__SINKS", json.dumps([str(file)]))
    assert "which is not known here" in faults(terminal)


def test_a_sink_that_does_not_answer_keeps_nothing_from_being_written(terminal: Terminal, tmp_path: Path) -> None:
    terminal.set("TOOLGATE_AUDIT__SINKS", json.dumps(["http://127.0.0.1:9/heads", str(tmp_path / "no" / "such" / "folder")]))
    done = terminal("call", "echo", "text=hello")
    assert done.code == 0
    assert done.err.count("could not be sent") == 2
    assert faults(terminal) in ("", "\n")


async def test_several_apps_on_one_log_sign_one_after_the_other(database: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "database_url": database, "entry_points": False, "audit": {"folder": tmp_path / "apart", "sign_seconds": 0.01},
    }  # fmt: skip

    async def work(number: int) -> None:
        async with App.open(home=tmp_path / f"home{number}", **settings) as app:
            for _ in range(50):
                await app.invoke("echo", {"text": "hello"})
                await asyncio.sleep(0.001)

    await asyncio.gather(*(work(number) for number in range(3)))
    async with App.open(home=tmp_path / "home0", **settings) as app:
        verdict = await app.audit.verify()
    assert (verdict.ok, verdict.rows, verdict.faults) == (True, 300, [])
    assert verdict.signed is not None
    assert verdict.signed["seq"] == 300


def test_processes_that_sign_their_first_head_at_once_agree_on_a_key(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from toolgate.store.head_keys import KeyFile\n"
        "print(KeyFile(Path(sys.argv[1])).key_id())\n"
    )
    words = [sys.executable, "-c", script, str(tmp_path / "apart" / "key.json")]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    assert len({process.communicate(timeout=60)[0] for process in started}) == 1


def test_a_log_that_was_exchanged_for_another_with_its_own_signed_heads_is_found(
    attacker: Attacker, terminal: Terminal, database: str, tmp_path: Path
) -> None:
    other = f"sqlite:///{tmp_path / 'other.db'}"
    terminal.set("TOOLGATE_DATABASE_URL", other)
    for _ in range(4):
        terminal("call", "echo", "text=innocent")
    theirs = Attacker(terminal, other)
    log, heads = theirs.sql("SELECT * FROM audit_log ORDER BY seq"), theirs.sql("SELECT * FROM audit_heads")
    terminal.set("TOOLGATE_DATABASE_URL", database)
    rows = (", ".join(f"'{part}'" if isinstance(part, str) else str(part) for part in head) for head in heads)
    attacker.sql("DELETE FROM audit_heads", *(f"INSERT INTO audit_heads VALUES ({row})" for row in rows), rows=log)
    assert "is that of another log" in faults(terminal)
    assert "rewritten" in faults(terminal)


async def test_the_key_may_be_in_the_keyring_of_the_system(database: str, tmp_path: Path) -> None:
    before = keyring.get_keyring()
    backend = PlaintextKeyring()  # a real keyring, in a file
    backend.file_path = str(tmp_path / "keyring.cfg")
    keyring.set_keyring(backend)
    audit: dict[str, Any] = {"folder": tmp_path / "apart", "key": "keyring"}
    named = {"keyring_backend": "keyrings.alt.file.PlaintextKeyring"}  # which does not encrypt: only because it is named
    try:
        async with App.open(home=tmp_path / "home", database_url=database, audit=audit, entry_points=False) as app:
            await app.invoke("echo", {"text": "hello"})
            assert not (tmp_path / "keyring.cfg").exists()
        for _ in range(2):
            async with App.open(
                home=tmp_path / "home", database_url=database, audit=audit, secrets=named, entry_points=False
            ) as app:
                await app.invoke("echo", {"text": "hello"})
                verdict = await app.audit.verify()
                assert verdict.ok
        assert verdict.signed is not None
        assert "[toolgate_2Daudit]" in (tmp_path / "keyring.cfg").read_text()
        keyring.set_keyring(NoKeyring())  # type: ignore[no-untyped-call]
        async with App.open(home=tmp_path / "home", database_url=database, audit=audit, entry_points=False) as app:
            assert not (await app.audit.verify()).ok  # nobody can tell who signed: silence is no proof
    finally:
        keyring.set_keyring(before)


async def test_keys_may_be_anywhere_behind_the_port(database: str, tmp_path: Path) -> None:
    """A KMS: it signs, and it alone can tell what it signed."""

    class Kms:
        place = "the KMS"

        def __init__(self) -> None:
            self.signed: dict[bytes, bytes] = {}

        def key_id(self) -> str:
            return "arn:key/1"

        def public_key(self, key_id: str) -> str | None:  # noqa: ARG002
            return None

        def sign(self, statement: bytes) -> bytes:
            return self.signed.setdefault(statement, os.urandom(8))

        def verify(self, key_id: str, statement: bytes, signature: bytes) -> bool | None:
            return self.signed.get(statement) == signature if key_id == "arn:key/1" else None

        def rotate(self) -> str:
            return self.key_id()

    kms = Kms()
    for _ in range(2):
        app = App.open(home=tmp_path, database_url=database, audit={"folder": tmp_path / "apart"}, entry_points=False)
        app.audit.sign_with(kms)
        async with app:
            await app.invoke("echo", {"text": "hello"})
            verdict = await app.audit.verify()
    assert verdict.ok
    assert verdict.signed is not None
    assert (verdict.signed["key"], len(kms.signed)) == ("arn:key/1", 2)
