"""A part of Toolgate that is not installed is named, with the command that installs it, at every door that needs it.

Modules are hidden from this process here; `make package` does the same with an environment that has the core alone.
"""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.terminal import Terminal
from toolgate import App
from toolgate.errors import CallError
from toolgate.extras import EXTRAS, MissingExtra, install_command, is_installed


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


@pytest.fixture
def core_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no extra were installed of which a setting or a command says that it is missing; whether the others are there
    is remembered by this process."""
    for extra in ("mcp", "serve", "postgres", "redis", "opa", "keyring", "telemetry"):
        for module in EXTRAS[extra].modules:
            monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.requirement("DOOR-6")
@pytest.mark.parametrize(
    ("extra", "settings", "words"),
    [
        ("mcp", "", ["mcp"]),
        ("mcp", "", ["servers", "add", "mine", "--", "python", "server.py"]),
        ("mcp", "", ["servers", "add", "far", "--url", "https://example.com/mcp"]),
        ("serve", "", ["serve", "--port", "0"]),
        ("postgres", "database_url: postgresql://ann:pw@127.0.0.1:1/db", ["tools", "list"]),
        ("redis", "redis_url: redis://127.0.0.1:1", ["tools", "list"]),
        ("opa", "opa_url: http://127.0.0.1:1", ["tools", "list"]),
        ("telemetry", "metrics: true", ["call", "echo", "text=a"]),
        ("telemetry", "tracing: true", ["call", "echo", "text=a"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
@pytest.mark.usefixtures("core_only")
def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    terminal: Terminal, extra: str, settings: str, words: list[str]
) -> None:
    terminal.settings(settings or "{}")
    done = terminal(*words)
    assert done.code == 1
    assert f"is not installed: install the extra toolgate[{extra}]." in done.err
    assert install_command(extra) in done.err.replace("\n", " ")
    assert done.out == ""
    if words[0] != "mcp":  # whose stdout is the client's
        at = 1 if words[0] == "serve" else 2
        error = terminal(*words[:at], "--json", *words[at:]).json["error"]
        assert (error["code"], error["suggestion"]) == ("EXTRA_MISSING", install_command(extra))


@pytest.mark.requirement("DOOR-6")
@pytest.mark.usefixtures("core_only")
def test_a_server_that_can_not_be_added_is_not_kept(terminal: Terminal) -> None:
    assert terminal("servers", "add", "mine", "--", "python", "server.py").code == 1
    assert terminal("servers", "list", "--json").json["servers"] == []


@pytest.mark.requirement("DOOR-6", "MCP-1")
@pytest.mark.usefixtures("core_only")
async def test_a_server_of_the_settings_is_not_tried_again_and_again_without_the_sdk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers = {"mine": {"command": ["python", "server.py"]}}
    async with App.open(home=tmp_path, servers=servers) as app:
        with pytest.raises(MissingExtra):
            await app.servers.refresh("mine")
        with pytest.raises(CallError, match=r"install the extra toolgate\[mcp\]") as raised:
            await app.parts.servers_engine["mine"].listed("tools")
        assert "next start" not in raised.value.message
        assert sys.executable not in str(raised.value)  # it may be a caller who is told
        assert (await app.servers.get("mine")).to_dict()["starts"] == 0
    assert "again" not in caplog.text


@pytest.mark.requirement("DOOR-6", "TIER-4")
@pytest.mark.usefixtures("core_only")
def test_a_keyring_that_is_set_but_not_installed_is_named(terminal: Terminal) -> None:
    terminal.settings("secrets: {keyring: true}")
    done = terminal("secrets", "list")
    assert install_command("keyring") in done.out.replace("\n", " ") + done.err.replace("\n", " ")


@pytest.fixture
def elsewhere(terminal: Terminal) -> dict[str, str]:
    """The environment of another process that has the core alone: what is found to be missing is remembered."""
    hide = terminal.folder / "hide" / "sitecustomize.py"
    hide.parent.mkdir()
    modules = [module for extra in EXTRAS.values() for module in extra.modules]
    hide.write_text(f"import sys; sys.modules.update(dict.fromkeys({modules!r}))")
    return {"PYTHONPATH": str(hide.parent), "PATH": "/usr/bin:/bin"}


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.requirement("DOOR-6", "SBX-1")
def test_typescript_without_deno_names_the_extra_and_not_the_jail(terminal: Terminal, elsewhere: dict[str, str]) -> None:
    words = ("call", "code_execute", "language=typescript", "code=return 1", "--yes")
    done = terminal.run(*words, environment=elsewhere)
    assert done.code == 1
    assert "install the extra toolgate[sandbox]" in done.err + done.out
    assert "bubblewrap" not in done.err + done.out


@pytest.mark.requirement("DOOR-4", "DOOR-6")
def test_the_doctor_says_which_extras_are_installed(terminal: Terminal, elsewhere: dict[str, str]) -> None:
    terminal.settings("redis_url: redis://127.0.0.1:1")
    checks = terminal.run("doctor", "--json", environment=elsewhere).json["checks"]
    *_, found, fault = (check for check in checks if check["name"] == "extras")
    assert found["message"].startswith("not installed: mcp (MCP support), serve (the HTTP server), ")
    assert found["status"] == "unused"
    assert all(f"{name} ({extra.part})" in found["message"] for name, extra in EXTRAS.items() if extra.modules)
    assert found["advice"] == f"To add one: {install_command('NAME')}"
    assert (fault["status"], fault["advice"]) == ("fault", install_command("redis"))
    assert fault["message"] == "Redis support is not installed: install the extra toolgate[redis]."


@pytest.mark.requirement("DOOR-6")
def test_a_module_that_nobody_asked_for_in_advance_is_named_by_its_extra(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What escapes the checks at the doors is still not shown as `No module named`."""

    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'httpx2'", name="httpx2._client")

    monkeypatch.setattr("toolgate.cli.tools.listed", missing)
    error = terminal("tools", "list", "--json").json["error"]
    assert (error["code"], error["message"]) == (
        "EXTRA_MISSING",
        "MCP support is not installed: install the extra toolgate[mcp].",
    )


@pytest.mark.requirement("DOOR-6")
def test_the_command_that_installs_an_extra_is_that_of_this_environment() -> None:
    """Another environment's pip would look for a package of our name in the index, where anybody may put one."""
    words = shlex.split(install_command("dates"))
    assert words[0] == sys.executable
    assert is_installed("dates")
    said = subprocess.run([*words, "--dry-run", "--no-index"], capture_output=True, text=True, check=True).stdout
    assert "Would install" not in said
