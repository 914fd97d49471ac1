"""Copies of Toolgate's own keys and data that somebody left where tools work: no tool and no program reads them."""

import json
import os
import shutil
from pathlib import Path

import pytest

from toolgate import App
from toolgate.gates.secrets.encrypted_file import EncryptedFile
from toolgate.screening.paths import SensitivePaths
from toolgate.store.head_keys import KeyFile

pytestmark = [pytest.mark.requirement("TIER-1"), pytest.mark.requirement("SBX-3")]

KEYS = ("backup/config/key.json", "backup/secrets.key", "backup/id")
COPIES = (
    "key.json.bak", "audit-key.json", "Key (1).json", "key.json.2026-11-16", "pretty-key.json", "the key.txt", "id.bak",
    "backup/toolgate.db", "toolgate.db-wal", "toolgate.db.old", "toolgate.dump", "toolgate-home.tar.gz",
    ".toolgate.bak/audit.head", ".toolgate-old/tools/a.yml", ".toolgate~/id", ".toolgate (copy)/x", ".toolgate-2026-11-16/x",
    "toolgate-backups/1/config/trust.json", "toolgate-backup-2026-11-16T06:30/x",
)  # fmt: skip
INNOCENT = {
    "key.json": '{"private": false, "public": "maps", "keys": ["a", "b"]}', "i18n/keys.json": '{"private": "Privat"}',
    "keyboard.txt": "qwerty", "id": "42\n", "ids.txt": "ab" * 32, "wg-publickey": "A" * 43 + "=\n", "digest": "ab" * 32,
    "toolgate/db.py": "x", "toolgate.yml": "x", "toolgate-0.1.tar": "x", "toolgate-backup-tool/a.py": "x", "key/a.txt": "x",
}  # fmt: skip


@pytest.fixture
async def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with backups of Toolgate's keys and data in it, and with files that only have such names."""
    home, folder = tmp_path / "home", tmp_path / "work"
    folder.mkdir()
    async with App.open(os.devnull, home=home, audit={"folder": tmp_path / "audit"}) as app:
        assert (await app.invoke("echo", {"text": "hello"})).ok
    KeyFile(tmp_path / "audit" / "key.json").rotate()
    EncryptedFile(home / "secrets.enc", {}).set("A", "b")
    (home / "id").write_text("5e" * 32)
    shutil.copytree(home, folder / "backup")
    shutil.copytree(tmp_path / "audit", folder / "backup" / "config")
    signing = (folder / KEYS[0]).read_text()
    contents = dict.fromkeys(COPIES, signing) | {
        "pretty-key.json": json.dumps(json.loads(signing), indent=4), "the key.txt": (home / "secrets.key").read_text(),
        "id.bak": "5e" * 32, **INNOCENT,
    }  # fmt: skip
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    monkeypatch.chdir(folder)
    return folder


async def test_no_file_tool_reads_a_copy_and_others_files_of_that_name_stay_usable(work: Path, tmp_path: Path) -> None:
    async with App.open(os.devnull, home=tmp_path / "other home") as app:
        read = {name: await app.invoke("file_read", {"path": name}) for name in (*KEYS, *COPIES)}
        assert [name for name, outcome in read.items() if outcome.status != "denied"] == []
        outcome = read[KEYS[0]]
        assert outcome.error is not None
        assert "Toolgate's own keys" in outcome.error.message + str(outcome.error.details)
        (work / "notes.txt").symlink_to(KEYS[0])
        assert (await app.invoke("file_read", {"path": "notes.txt"})).status == "denied"
        innocent = {name: await app.invoke("file_read", {"path": name}) for name in INNOCENT}
        assert [name for name, outcome in innocent.items() if not outcome.ok] == []


@pytest.mark.usefixtures("work")
async def test_a_jailed_program_sees_no_copy(tmp_path: Path) -> None:
    async with App.open(os.devnull, home=tmp_path / "other home", commands={"allow": ["grep"]}) as app:
        app.approvals.add_approver(lambda _request: True)
        words = {"command": "grep", "args": ["-rlE", "private.{3,5}[0-9a-f]{64}|(5e){32}|[+/A-Za-z0-9]{43}=|qwerty", "."]}
        outcome = await app.invoke("execute_command", words)
        assert outcome.ok, outcome
        assert set(outcome.output["stdout"].split()) == {"./keyboard.txt", "./wg-publickey"}


def test_what_may_be_a_key_and_cannot_be_read_is_refused_and_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    guard = SensitivePaths(home=tmp_path / "nobody")
    os.mkfifo(tmp_path / "key.json")
    assert guard.reason("key.json", tmp_path) is None, "the tool refuses a pipe when it opens it; here nobody waits for it"
    (tmp_path / "loop-key").symlink_to("loop-key")
    assert guard.reason("loop-key", tmp_path) is not None
    assert guard.reason("new-key.json", tmp_path, writing=True) is None
    assert SensitivePaths(allowed=["key.json"]).reason("key.json", tmp_path) is None
