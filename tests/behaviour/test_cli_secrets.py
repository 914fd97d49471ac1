"""`toolgate secrets`: names and never values; and whether a credential works."""

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.terminal import SCRIPT, SECONDS, Done, Terminal

pytestmark = pytest.mark.requirement("TIER-4", "IO-4")
VALUE = "correct/horse+battery"
TOOLS = """
    from typing import Any
    from toolgate import Auth, InvokeContext, tool

    @tool(tier="read_only", requires_auth=Auth(config_key="SERVICE", setup_url="https://service.example/keys"), timeout=0.5)
    class Service:
        '''A service.'''
        name = "service"

        async def execute(self, ctx: InvokeContext) -> str:
            return f"with {len(ctx.credential)} characters"

        async def test_auth(self, credential: str) -> bool:
            if credential.startswith("slow"):
                import asyncio
                await asyncio.sleep(60)
            if credential.startswith("raise"):
                raise RuntimeError(f"can't use {credential}")
            return credential == "correct/horse+battery"

    @tool(tier="read_only", requires_auth="SERVICE")
    async def untested() -> str:
        '''No test.'''
        return "x"

    def works(credential: str) -> bool:
        return credential.startswith("correct")

    @tool(tier="read_only", requires_auth="SERVICE")
    async def plain() -> str:
        '''A function.'''
        return "x"

    plain.test_auth = works

    @tool(tier="read_only")
    async def free() -> str:
        '''Free.'''
        return "x"
"""


class Person(Terminal):
    """At a terminal; what they pipe in is the value."""

    def set_secret(self, *words: str, value: str | bytes = VALUE) -> Done:
        content = value.encode() if isinstance(value, str) else value
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        return self("secrets", "set", *words)


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Person:
    person = Person(tmp_path, monkeypatch, capsys)
    person.add_tools(TOOLS)
    return person


def test_a_secret_that_is_set_reaches_the_tool_and_is_never_shown(terminal: Person) -> None:
    said = terminal.set_secret("service", value=f"{VALUE}\n")
    assert said.code == 0
    assert said.out == "✓ Set SERVICE for everybody, in the encrypted file\n"
    assert terminal("call", "service").out == f"with {len(VALUE)} characters\n"
    shown = terminal("secrets", "list")
    assert shown.lines[1].startswith("SERVICE  everybody  file     20")
    everything = "".join([said.out, said.err, shown.out, shown.err, terminal("audit", "tail", "--json").out])
    assert VALUE not in everything
    assert "secret.set" in everything
    kept = [file for file in terminal.home.iterdir() if file.is_file()]
    assert {"secrets.enc", "secrets.key", "toolgate.db"} <= {file.name for file in kept}
    assert VALUE.encode() not in b"".join(file.read_bytes() for file in kept)


@pytest.mark.requirement("IO-5")
def test_a_secret_of_servers_is_kept_apart(terminal: Person) -> None:
    terminal.set_secret("A", "--servers")
    (one,) = terminal("secrets", "list", "--json").json["secrets"]
    assert (one["name"], one["tenant"], one["user"], one["servers"]) == ("A", None, None, True)
    assert "A     Toolgate itself and MCP servers  file" in terminal("secrets", "list").out
    assert terminal("secrets", "remove", "A").code == 1, "there is none for everybody"
    both = terminal("secrets", "remove", "A", "--servers", "--tenant", "acme")
    assert (both.code, "--servers cannot be combined" in both.err) == (2, True)
    assert terminal("secrets", "remove", "A", "--servers").code == 0


def test_each_owner_has_its_own_and_list_names_them_all(terminal: Person) -> None:
    terminal.set("TOOLGATE_SECRET_OF_THE_ENVIRONMENT", VALUE)
    terminal.set_secret("A")
    terminal.set_secret("A", "--tenant", "acme")
    terminal.set_secret("A", "--tenant", "acme", "--user", "ann/x")
    found = terminal("secrets", "list", "--json").json
    assert [(one["name"], one["tenant"], one["user"], one["source"]) for one in found["secrets"]] == [
        ("OF_THE_ENVIRONMENT", None, None, "environment"),
        ("A", None, None, "file"),
        ("A", "acme", None, "file"),
        ("A", "acme", "ann/x", "file"),
    ]
    assert [(one["name"], one["available"]) for one in found["sources"]] == [("environment", True), ("file", True)]
    lines = [line.partition("  20")[0].rstrip() for line in terminal("secrets", "list").out.splitlines()]
    assert lines == [
        "name                for                        kept in      set",
        "OF_THE_ENVIRONMENT  everybody                  environment",
        "A                   everybody                  file",
        "A                   tenant acme                file",
        "A                   user ann/x of tenant acme  file",
    ], "in columns, whatever is the longest"
    assert terminal("secrets", "remove", "a", "--tenant", "acme", "--json").json == {
        "name": "A", "tenant": "acme", "user": None, "servers": False, "removed_from": ["file"],
    }  # fmt: skip
    assert len(terminal("secrets", "list", "--json").json["secrets"]) == 3
    again = terminal("secrets", "remove", "A", "--tenant", "acme", "--json")
    assert (again.code, again.json["error"]["code"]) == (1, "NOT_FOUND")


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["NAME"], ""),
        (["NAME"], " \n"),
        (["NAME"], b"\xff\xfe"),
        (["NAME"], "x" * 70_000),
        (["1NAME"], VALUE),
        (["a/NAME"], VALUE),
        (["NAME", "--user", "ann"], VALUE),
        (["NAME", "--tenant", ""], VALUE),
        (["NAME", "--tenant", "*"], VALUE),
        (["NAME", "--in", "cloud"], VALUE),
        (["NAME", VALUE], VALUE),
        ([], VALUE),
    ],
)
def test_what_can_not_be_set_is_usage_and_changes_nothing(terminal: Person, words: list[str], value: str | bytes) -> None:
    done = terminal.set_secret(*words, "--json", value=value)
    assert done.code == 2
    assert done.json["error"]["code"] == "USAGE_ERROR"
    assert not (terminal.home / "secrets.enc").exists()


def test_a_wrong_key_says_so_and_loses_nothing(terminal: Person) -> None:
    terminal.set_secret("SERVICE")
    terminal.set("TOOLGATE_SECRETS_KEY", "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=")
    refused = terminal.set_secret("OTHER", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "STORE_ERROR")
    assert "another key" in refused.json["error"]["message"]
    shown = terminal("secrets", "list")
    assert shown.code == 0
    assert "file: not available: " in shown.err
    assert "There are no secrets" not in shown.err, "nobody knows"
    assert terminal("call", "service", "--json").json["error"]["code"] == "MISSING_AUTH"
    terminal._monkeypatch.delenv("TOOLGATE_SECRETS_KEY")
    assert terminal("call", "service").code == 0


def test_the_keyring_must_be_in_use(terminal: Person) -> None:
    refused = terminal.set_secret("A", "--in", "keyring")
    assert refused.code == 1
    assert "secrets.keyring" in refused.err
    assert sys.stdin.read() == VALUE, "nobody is asked for a value that can't be kept"


def test_nobody_is_asked_for_a_value_that_the_machine_can_not_keep(terminal: Person) -> None:
    terminal.settings("secrets: {keyring: true}")
    gone = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    refused = terminal.run("secrets", "set", "A", "--in", "keyring", "--json", stdin=b"", environment=gone)
    assert (refused.code, refused.json["error"]["code"]) == (1, "STORE_ERROR"), "and not that there is no value"
    assert "this machine has no keyring" in refused.json["error"]["message"]


def test_the_keyring_keeps_a_secret_between_processes(terminal: Person) -> None:
    terminal.settings("secrets: {keyring: true}")
    unencrypted = "keyrings.alt.file.PlaintextKeyring"
    backend = {
        "PYTHON_KEYRING_BACKEND": unencrypted,
        "XDG_DATA_HOME": str(terminal.folder / "data"),
        "HOME": str(terminal.folder),
    }
    refused = terminal.run("secrets", "set", "SERVICE", "--in", "keyring", stdin=VALUE.encode(), environment=backend)
    assert refused.code == 1
    assert f"{unencrypted} is not known to encrypt" in " ".join(refused.err.split())
    assert not list(terminal.folder.rglob("keyring_pass.cfg")), "nothing was written"
    terminal.settings(f"secrets: {{keyring: true, keyring_backend: {unencrypted}}}")
    said = terminal.run("secrets", "set", "SERVICE", "--in", "keyring", stdin=VALUE.encode(), environment=backend)
    assert said.code == 0, said.err
    listed = terminal.run("secrets", "list", "--json", environment=backend).json
    assert [(one["name"], one["source"]) for one in listed["secrets"]] == [("SERVICE", "keyring")]
    assert [one["available"] for one in listed["sources"]] == [True, True, True]
    assert terminal.run("call", "service", environment=backend).out == f"with {len(VALUE)} characters\n"
    gone = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    shown = terminal.run("secrets", "list", environment=gone)
    assert shown.code == 0
    assert "keyring: not available: this machine has no keyring" in shown.err


def typed(terminal: Person, keys: str) -> tuple[int, bytes, bytes]:
    """Exit code, stdout, and what the terminal showed to a person who was asked and typed this."""
    primary, secondary = pty.openpty()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_") or name == "TOOLGATE_TRUST"
    }
    process = subprocess.Popen(
        [SCRIPT, "secrets", "set", "SERVICE", "--json"],
        cwd=terminal.folder,
        stdin=secondary,
        stdout=subprocess.PIPE,
        stderr=secondary,
        env=environment,
        start_new_session=True,
    )
    os.close(secondary)
    shown = b""
    while b"Value of SERVICE: " not in shown:
        shown += os.read(primary, 1000)
    os.write(primary, keys.encode())
    out, _ = process.communicate(timeout=SECONDS)
    with contextlib.suppress(OSError):  # the other end is closed
        while more := os.read(primary, 1000):
            shown += more
    os.close(primary)
    return process.returncode, out, shown


def test_a_value_typed_at_a_terminal_is_not_echoed(terminal: Person) -> None:
    code, out, shown = typed(terminal, f"{VALUE}\n")
    assert code == 0, shown
    assert json.loads(out)["name"] == "SERVICE"
    assert VALUE.encode() not in shown
    assert terminal("secrets", "test", "service").code == 0


@pytest.mark.parametrize("keys", ["\n", "\x04"])
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_who_types_nothing_sets_nothing(terminal: Person, keys: str) -> None:
    code, out, _ = typed(terminal, keys)
    assert code == 2
    assert json.loads(out)["error"]["message"] == "There is no value."
    assert not (terminal.home / "secrets.enc").exists()


# -- whether it works


@pytest.mark.parametrize(
    ("tool", "value", "result"),
    [
        ("service", VALUE, "works"),
        ("service", "wrong horse battery", "refused"),
        ("service", "raise horse battery", "failed"),
        ("service", "slow horse battery", "failed"),
        ("plain", VALUE, "works"),
        ("plain", "wrong horse battery", "refused"),
        ("untested", VALUE, "untested"),
        ("free", VALUE, "not needed"),
        ("service", None, "missing"),
    ],
)
@pytest.mark.sample(4)
def test_a_credential_is_tested_by_the_tools_own_test(terminal: Person, tool: str, value: str | None, result: str) -> None:
    if value is not None:
        terminal.set_secret("SERVICE", value=value)
    done = terminal("secrets", "test", tool, "--json")
    assert done.json["result"] == result
    assert done.code == (0 if result in ("works", "not needed") else 1)
    shown = done.out + done.err + terminal("secrets", "test", tool).out + terminal("audit", "tail", "--json").out
    assert value is None or value not in shown
    if result == "missing":
        assert "https://service.example/keys" in done.json["advice"]
    if result == "failed" and value is not None and value.startswith("raise"):
        assert done.json["message"] == "RuntimeError: can't use [REDACTED]"


def test_a_credential_is_tested_as_a_user(terminal: Person) -> None:
    terminal.set_secret("SERVICE", "--tenant", "acme", "--user", "ann")
    assert terminal("secrets", "test", "service", "--tenant", "acme", "--user", "ann").code == 0
    assert terminal("secrets", "test", "service", "--tenant", "acme", "--user", "bob").code == 1
    missing = terminal("secrets", "test", "nothing", "--json")
    assert missing.json["error"]["code"] == "TOOL_NOT_FOUND"
