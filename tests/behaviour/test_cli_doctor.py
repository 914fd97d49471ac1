"""`toolgate doctor`: each line probes for real, and what is broken turns its own line, and only that."""

import json
import re
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.teletype import Teletype
from tests.terminal import SCRIPT, Terminal
from toolgate import App
from toolgate.app.checks import Check, installation


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


def troubles(terminal: Terminal) -> list[tuple[str, str]]:
    """Every check that is not well: its name and status."""
    done = terminal("doctor", "--json")
    found = [(check["name"], check["status"]) for check in done.json["checks"] if check["status"] in ("warning", "fault")]
    assert done.json["ok"] == (done.code == 0) == all(status != "fault" for _, status in found)
    return found


def check(terminal: Terminal, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in terminal("doctor", "--json").json["checks"] if one["name"] == name)
    return found


@pytest.mark.requirement("DOOR-4")
def test_where_all_is_well_every_line_has_its_mark(terminal: Terminal) -> None:
    done = terminal("doctor")
    assert (done.code, done.err) == (0, "")
    assert all(line.startswith(("✓ ", "- ", "  ")) for line in done.lines[:-2])
    assert max(map(len, done.lines)) < 300
    assert done.lines[-1] == "All checks passed."
    names = list(dict.fromkeys(one["name"] for one in terminal("doctor", "--json").json["checks"]))
    assert names == [
        "python", "extras", "project", "settings", "home", "database", "audit log", "tools", "policy", "redis",
        "events", "credentials", "waiting", "jobs", "sandbox", "servers", "memory", "model", "timezone",
        "n8n", "search", "services", "programs", "tokenizer", "secrets", "dates", "telemetry",
    ]  # fmt: skip


@pytest.mark.requirement("DOOR-6", "BUILTIN-1")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_the_model_its_key_and_the_time_zone_are_shown(terminal: Terminal) -> None:
    terminal.set("TOOLGATE_MODEL__NAME", "m-1")
    terminal.set("TOOLGATE_MODEL__TENANTS", '{"acme": {"name": null}}')
    terminal.set("TOOLGATE_TIMEZONES", '[{"tenant": "acme", "timezone": "Asia/Tokyo"}]')
    checks = terminal("doctor", "--json").json["checks"]
    first, second = (one for one in checks if one["name"] == "model")
    assert (first["status"], first["message"]) == ("warning", "m-1 at https://api.openai.com/v1, but its key is not set")
    assert (second["status"], second["message"].partition(":")[0]) == ("unused", "none for tenant acme")
    [zone] = [one for one in checks if one["name"] == "timezone"]
    assert zone["message"] == "UTC, and 1 other for tenants and users"
    terminal.set("TOOLGATE_SECRET_MODEL_API_KEY", "k")
    assert next(one["status"] for one in terminal("doctor", "--json").json["checks"] if one["name"] == "model") == "ok"


@pytest.mark.requirement("DOOR-6", "BUILTIN-1")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_what_built_in_tools_lack_is_shown_and_is_no_fault(terminal: Terminal) -> None:
    done = terminal("doctor", "--json")
    search, services = ({one["name"]: one for one in done.json["checks"]}[name] for name in ("search", "services"))
    assert (done.code, search["status"], services["status"]) == (0, "unused", "unused")
    assert "search.searxng_url" in search["advice"]
    assert "stripe_create_payment (STRIPE_SECRET_KEY)" in services["message"]
    assert "vercel_deploy (VERCEL_TOKEN)" in services["message"]
    terminal.set("TOOLGATE_SEARCH__SEARXNG_URL", "https://searx.example.com/")
    terminal.set("TOOLGATE_SECRET_STRIPE_SECRET_KEY", "sk_test_1")
    terminal.set("TOOLGATE_TOOLS", '{"vercel_deploy": {"enabled": false}}')
    checks = terminal("doctor", "--json").json["checks"]
    [search] = [one for one in checks if one["name"] == "search"]
    assert (search["status"], search["message"]) == ("ok", "search_engine asks the SearXNG at searx.example.com")
    ready, lacking = [one for one in checks if one["name"] == "services"]
    assert (ready["status"], ready["message"]) == ("ok", "with a key: stripe_create_payment")
    assert "vercel" not in lacking["message"]
    assert "sk_test_1" not in str(checks)


@pytest.mark.requirement("DOOR-6", "BUILTIN-1")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_programs_that_tools_run_are_looked_for(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = terminal.folder / "bin"
    monkeypatch.setattr("toolgate.sandbox.runtimes.shell.SYSTEM_PATH", ())
    folder.mkdir()
    for name in ("git", "node"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    terminal.set("TOOLGATE_SANDBOX__PROGRAMS", json.dumps([str(folder)]))
    found = check(terminal, "programs")
    assert (found["status"], found["message"]) == ("unused", "not found: npm; npm_install cannot be used")
    (folder / "node").rename(folder / "npm")
    assert check(terminal, "programs")["message"] == "not found: node; npm_install cannot be used"


@pytest.mark.requirement("DOOR-6", "SBX-2")
def test_only_what_can_be_used_has_a_tick(terminal: Terminal) -> None:
    terminal.set("TOOLGATE_SANDBOX__DOCKER_COMMAND", "/nowhere/docker")
    checks = terminal("doctor", "--json").json["checks"]
    said = {one["message"].partition(" ")[0]: one for one in checks if one["name"] == "sandbox"}
    assert (said["docker"]["status"], said["docker"]["message"][:21]) == ("unused", "docker cannot be used")
    first = next(one for one in checks if one["name"] == "sandbox")
    assert (first["status"] == "ok") == ("network" in (first["details"] or {})), "how each is limited is for programs"
    status = {one["name"]: one["status"] for one in checks}
    assert (status["redis"], status["servers"], status["telemetry"]) == ("unused",) * 3
    assert "running" not in status, "the doctor's own process has just begun"


@pytest.mark.requirement("DOOR-6", "DOOR-4")
def test_a_redis_that_is_down_is_one_line_and_the_rest_is_checked(terminal: Terminal) -> None:
    terminal.set("TOOLGATE_REDIS_URL", "redis://ann:pass-of-ann@127.0.0.1:1/0")  # where nobody listens
    done = terminal("doctor", "--json")
    (down,) = (one for one in done.json["checks"] if one["name"] == "redis")
    assert [one["name"] for one in done.json["checks"] if one["status"] == "fault"] == ["redis"]
    assert down["message"].startswith("Redis at redis://127.0.0.1:1/0 cannot be used: ")
    assert "TOOLGATE_REDIS_URL" in down["advice"]
    assert (done.code, done.json["checks"][-1]["name"]) == (1, "telemetry")
    assert "pass-of-ann" not in done.out + done.err
    assert sum("127.0.0.1:1/0" in line for line in (*done.lines, *done.err.splitlines())) == 1, "nothing besides the line"


@pytest.mark.requirement("DOOR-6", "SBX-2")
def test_a_backend_that_is_named_and_can_not_be_used_is_a_fault(terminal: Terminal) -> None:
    terminal.set("TOOLGATE_SANDBOX__BACKEND", "docker")
    terminal.set("TOOLGATE_SANDBOX__DOCKER_COMMAND", "/nowhere/docker")
    assert ("sandbox", "fault") in troubles(terminal)
    assert "sandbox.backend" in check(terminal, "sandbox")["message"]
    shown = terminal("doctor").out
    assert "bubblewrap: `apt" not in shown
    assert "apt-get install bubblewrap" not in shown
    assert "No sandbox holds" not in shown
    assert "`toolgate doctor` shows" not in shown


@pytest.mark.requirement("DOOR-6")
def test_a_reader_that_goes_away_ends_the_examination_without_a_word(terminal: Terminal) -> None:
    command = f"{SCRIPT} doctor | head -n 1"
    done = subprocess.run(command, shell=True, cwd=terminal.folder, capture_output=True, text=True, check=False)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


@pytest.mark.requirement("DOOR-6")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_on_a_terminal_no_line_is_wider_than_it(terminal: Terminal) -> None:
    teletype = Teletype(terminal, "doctor", columns=80)
    assert teletype.end() == 0, teletype.shown
    lines = teletype.shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 75


@pytest.mark.requirement("DOOR-4", "AUD-1")
def test_an_examination_leaves_no_record(terminal: Terminal) -> None:
    terminal("call", "echo", "text=a")
    terminal("doctor")
    assert terminal("audit", "verify", "--json").json["rows"] == 2
    assert check(terminal, "audit log")["message"].startswith("ends at row 2, as is noted outside the database")


ASKS = """
    import asyncio
    from toolgate import tool

    @tool(tier="execute")
    async def run() -> str:
        "Run."
        return "ran"

    @tool(tier="write", timeout=0.1)
    async def slow() -> str:
        "Takes long."
        await asyncio.sleep(60)
        return "done"
"""


@pytest.mark.requirement("DOOR-4", "TIER-6")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_what_waits_for_a_person_is_counted_in_every_tenant(terminal: Terminal) -> None:
    terminal.add_tools(ASKS)
    terminal("call", "run")
    waiting = check(terminal, "waiting")
    assert waiting["message"] == "1 approval"
    assert "`toolgate approvals list`" in waiting["advice"]
    terminal("call", "run", "--tenant", "acme")
    terminal("call", "run", "--tenant", "acme", "--user", "ann")
    assert check(terminal, "waiting")["message"] == "3 approvals (2 of tenant acme, 1 of tenant default)"
    terminal("call", "slow", "--idempotency-key", "k")
    waiting = check(terminal, "waiting")
    assert waiting["message"].endswith("tenant default), 1 idempotency key whose outcome is unknown")
    assert waiting["status"] == "warning"


@pytest.mark.matrix("examines the machine again and again")
@pytest.mark.requirement("DOOR-4", "TIER-4")
def test_a_store_of_secrets_that_can_not_be_read_is_a_fault_and_a_missing_package_a_warning(terminal: Terminal) -> None:
    assert terminal.run("secrets", "set", "A", stdin=b"correct horse battery").code == 0
    assert check(terminal, "credentials")["message"] == "file: 1 secret"
    hide = terminal.folder / "hide" / "sitecustomize.py"
    hide.parent.mkdir()
    hide.write_text("import sys; sys.modules['cryptography'] = None")
    done = terminal.run("doctor", "--json", environment={"PYTHONPATH": str(hide.parent)})
    assert [one["status"] for one in done.json["checks"] if one["name"] == "credentials"] == ["warning"]
    terminal.set("TOOLGATE_SECRETS_KEY", "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=")
    assert troubles(terminal) == [("credentials", "fault")]
    assert "another key" in check(terminal, "credentials")["message"]


@pytest.mark.matrix("examines the machine again and again")
@pytest.mark.requirement("DOOR-4", "TIER-4")
def test_a_keyring_that_is_gone_is_a_fault_if_it_held_secrets(terminal: Terminal) -> None:
    terminal.settings("secrets: {keyring: true}")
    gone = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}

    def keyring() -> tuple[str, str]:
        checks = terminal.run("doctor", "--json", environment=gone).json["checks"]
        (found,) = (one for one in checks if one["name"] == "credentials" and one["message"].startswith("keyring"))
        return found["status"], found["message"]

    assert keyring() == ("warning", "keyring: this machine has no keyring")
    there = {
        "PYTHON_KEYRING_BACKEND": "keyrings.alt.file.PlaintextKeyring",
        "XDG_DATA_HOME": str(terminal.folder / "data"),
        "HOME": str(terminal.folder),
    }
    (warned,) = (
        one for one in terminal.run("doctor", "--json", environment=there).json["checks"]
        if one["name"] == "credentials" and one["message"].startswith("keyring")
    )  # fmt: skip
    assert warned["status"] == "warning"
    assert "keyrings.alt.file.PlaintextKeyring is not known to encrypt" in warned["message"]
    there["TOOLGATE_SECRETS__KEYRING_BACKEND"] = there["PYTHON_KEYRING_BACKEND"]
    assert terminal.run("secrets", "set", "A", "--in", "keyring", stdin=b"correct horse", environment=there).code == 0
    assert keyring() == ("fault", "keyring: this machine has no keyring; its 1 secret cannot be read")


@pytest.mark.requirement("DOOR-4")
def test_a_wrong_setting_ends_the_examination_there(terminal: Terminal) -> None:
    terminal.settings("hoem: elsewhere")
    assert troubles(terminal) == [("settings", "fault")]
    done = terminal("doctor")
    assert "✗ settings     There is no setting 'hoem'" in done.out
    assert "Did you mean 'home'?" in done.out
    assert done.lines[-1] == "1 fault, 0 warnings."


@pytest.mark.requirement("DOOR-4")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_a_misspelt_variable_is_noticed(terminal: Terminal) -> None:
    terminal.set("TOOLGATE_HOEM", "elsewhere")
    terminal.set("TOOLGATE_SECRET_KEY", "not a setting, and right")
    terminal.set("TOOLGATE_SERVER_SECRET_KEY", "not one either")
    assert troubles(terminal) == [("settings", "warning")]
    assert "Did you mean TOOLGATE_HOME?" in terminal("doctor").out


@pytest.mark.requirement("DOOR-4")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_a_setting_about_a_tool_that_is_not_here_is_noticed(terminal: Terminal) -> None:
    terminal.set("TOOLGATE_TIER_OVERRIDES", '{"ecoh": "execute"}')
    assert troubles(terminal) == [("settings", "warning")]
    shown = terminal("doctor").out
    assert "tier_overrides names 'ecoh', and there is no such tool" in shown
    assert "Did you mean echo?" in shown


@pytest.mark.requirement("DOOR-4")
def test_a_home_that_cannot_be_is_a_fault_of_home_and_database(terminal: Terminal) -> None:
    (terminal.folder / "file").write_text("")
    terminal.set("TOOLGATE_HOME", str(terminal.folder / "file" / "home"))
    assert troubles(terminal) == [("home", "fault"), ("database", "fault")]


@pytest.mark.requirement("DOOR-4")
def test_a_damaged_database_is_a_fault_of_the_database_alone(terminal: Terminal) -> None:
    terminal.home.mkdir()
    (terminal.home / "toolgate.db").write_bytes(b"this is no database" * 100)
    assert troubles(terminal) == [("database", "fault")]


@pytest.mark.requirement("DOOR-4")
def test_a_database_that_does_not_answer_is_named_without_its_password(terminal: Terminal) -> None:
    terminal.set("TOOLGATE_DATABASE_URL", "postgresql://someone:hunter2@127.0.0.1:1/nowhere")
    assert troubles(terminal) == [("database", "fault")]
    assert "hunter2" not in terminal("doctor").out


@pytest.mark.requirement("DOOR-4", "AUD-2")
def test_a_cut_log_is_a_fault_of_the_log_alone(terminal: Terminal) -> None:
    terminal("call", "echo", "text=a")
    connection = sqlite3.connect(terminal.home / "toolgate.db")
    connection.execute("DELETE FROM audit_log WHERE seq = 2")
    connection.commit()
    connection.close()
    assert troubles(terminal) == [("audit log", "fault")]
    assert "toolgate audit verify" in check(terminal, "audit log")["advice"]


@pytest.mark.requirement("DOOR-4", "AUD-2")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_a_head_that_was_removed_is_a_warning(terminal: Terminal) -> None:
    terminal("call", "echo", "text=a")
    (terminal.home / "audit.head").unlink()
    assert troubles(terminal) == [("audit log", "warning")]


@pytest.mark.requirement("DOOR-4")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_a_database_in_memory_needs_no_home(terminal: Terminal) -> None:
    terminal.set("TOOLGATE_DATABASE_URL", "memory://")
    assert troubles(terminal) == []
    assert not terminal.home.exists()


@pytest.mark.requirement("DOOR-4", "TOOL-3")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_tools_that_could_not_be_loaded_are_a_warning(terminal: Terminal) -> None:
    terminal.add_tools("1/0", name="broken")
    terminal.add_tools("1/0", name="broken_too")
    assert troubles(terminal) == [("tools", "warning")] * 2, "a line for each"
    shown = terminal("doctor").out
    assert re.search(r"^✓ tools        \d+ builtin", shown, re.MULTILINE)
    assert "broken.py:1 could not be loaded: ZeroDivisionError" in shown


HEALTH = """
    import asyncio
    import time

    from toolgate import tool


    class Lifecycle:
        async def execute(self) -> None: ...

        async def initialize(self) -> None:
            self.ready = True


    @tool(name="well", description="It is well.", tier="read_only")
    class Well(Lifecycle):
        async def health_check(self) -> bool:
            return self.ready


    @tool(name="ill", description="It is not.", tier="read_only")
    class Ill(Lifecycle):
        def health_check(self) -> dict[str, object]:
            return {"healthy": False, "message": "the wire is cut"}


    @tool(name="raises", description="It raises.", tier="read_only")
    class Raises(Lifecycle):
        def health_check(self) -> bool:
            raise ConnectionError("nobody there")


    @tool(name="silent", description="It hangs.", tier="read_only")
    class Silent(Lifecycle):
        def health_check(self) -> bool:
            time.sleep(60)
            return True
"""


@pytest.mark.requirement("DOOR-4", "TOOL-2")
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_tools_are_asked_how_they_are(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_HEALTH__TIMEOUT_SECONDS", "0.2")
    terminal.add_tools(HEALTH)
    done = terminal("doctor", "--json")
    said = {one["message"].partition(":")[0]: one for one in done.json["checks"] if one["name"] == "tool"}
    assert {name: one["status"] for name, one in said.items()} == {
        "well": "ok", "ill": "fault", "raises": "fault", "silent": "fault",
    }  # fmt: skip
    assert said["ill"]["message"] == "ill: the wire is cut"
    assert said["raises"]["message"] == "raises: ConnectionError: nobody there"
    assert said["silent"]["message"] == "silent: no answer within 0.2 s"


@pytest.mark.matrix("starts interpreters without the extras")
@pytest.mark.requirement("DOOR-4")
@pytest.mark.parametrize(
    ("module", "name"), [("splintr", "tokenizer"), ("kingfisher_sdk", "secrets"), ("dateparser", "dates")]
)
def test_a_missing_extra_is_a_warning_with_the_way_to_get_it(terminal: Terminal, module: str, name: str) -> None:
    hide = terminal.folder / "hide" / "sitecustomize.py"
    hide.parent.mkdir()
    hide.write_text(f"import sys; sys.modules[{module!r}] = None")
    done = terminal.run("doctor", "--json", environment={"PYTHONPATH": str(hide.parent)})
    assert done.code == 0
    found = next(one for one in json.loads(done.out)["checks"] if one["name"] == name)
    assert found["status"] == "warning"
    assert "pip install 'toolgate[" in found["advice"]


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.requirement("JOB-3", "DOOR-6")
def test_an_event_stream_is_asked_and_only_its_own_line_turns(terminal: Terminal, nats_url: str) -> None:
    terminal.set("TOOLGATE_EVENTS__URL", nats_url)
    terminal.set("TOOLGATE_EVENTS__KEYS", '{"crm": {"secret": "CRM_KEY"}, "erp": {"secret": "ERP_KEY"}}')
    terminal.set("TOOLGATE_SERVER_SECRET_CRM_KEY", "hunter2" * 8)
    checks = [one for one in terminal("doctor", "--json").json["checks"] if one["name"] == "events"]
    assert [one["status"] for one in checks] == ["ok", "warning"]
    assert checks[0]["message"].startswith("NATS 2.")
    assert "'erp'" in checks[1]["message"]
    terminal.set("TOOLGATE_EVENTS__URL", "nats://127.0.0.1:1")  # where nobody listens
    done = terminal("doctor", "--json")
    assert [one["name"] for one in done.json["checks"] if one["status"] == "fault"] == ["events"]
    assert "hunter2" not in done.out + done.err


@pytest.mark.requirement("DOOR-4")
def test_a_check_that_breaks_hides_nothing_that_the_others_found(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_app: App) -> AsyncIterator[Check]:
        yield Check("audit log", "ok", "as far as it came")
        raise PermissionError(13, "the pipe is shut")

    rest = [(name, broken if name == "audit log" else check) for name, check in installation.CHECKS]
    monkeypatch.setattr(installation, "CHECKS", rest)
    done = terminal("doctor", "--json")
    assert done.code == 1
    said = [one for one in done.json["checks"] if one["name"] == "audit log"]
    assert [one["status"] for one in said] == ["ok", "fault"]
    assert "PermissionError" in said[1]["message"]
    assert "the pipe is shut" in said[1]["message"]
    assert done.json["checks"][-1]["name"] != "audit log"
