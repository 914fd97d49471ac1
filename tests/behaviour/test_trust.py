"""What is found in a working directory is obeyed only after a person said so; what a person names is named."""

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from textwrap import dedent

import pytest

from tests.teletype import Teletype
from tests.terminal import Terminal
from toolgate import App
from toolgate.errors import Denied, SettingsError
from toolgate.mcp.client.packages import PackageSpec, folder_of
from toolgate.settings import Settings
from toolgate.trust import Untrusted

pytestmark = pytest.mark.requirement("SBX-5")

EVIL = dedent(
    """
    from pathlib import Path
    Path({ran!r}).write_text("ran")
    """
)
TOOL = dedent(
    """
    name: {name}
    description: Says hello.
    runtime: python
    schema: {{type: object, properties: {{}}}}
    permissions: {{riskLevel: low}}
    code: |
      def execute(args, context):
          return "hello"
    """
)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a person's trust is recorded; nothing is trusted yet."""
    monkeypatch.delenv("TOOLGATE_TRUST", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "toolgate"


@pytest.fixture
def terminal(tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    assert not config.exists()
    (tmp_path / "project").mkdir()
    return Terminal(tmp_path / "project", monkeypatch, capsys)


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """The file that hostile code makes when it runs."""
    return tmp_path / "ran"


def plant(terminal: Terminal, ran: Path, where: str) -> None:
    """Put code into the project where Toolgate would run it."""
    code = EVIL.format(ran=str(ran))
    if where == "tools":
        terminal.add_tools(code)
    elif where == "python_tools":
        (terminal.folder / "helpers").mkdir(exist_ok=True)
        (terminal.folder / "helpers" / "mine.py").write_text(code)
        terminal.settings("python_tools: [helpers]")
    elif where == "home":
        (terminal.folder / "data" / "tools").mkdir(parents=True)
        (terminal.folder / "data" / "tools" / "mine.py").write_text(code)
        terminal.settings("home: data")


# -- a folder without anything


def test_the_first_call_in_an_empty_folder_works_at_once_and_nobody_is_bothered_later(terminal: Terminal) -> None:
    for _ in range(3):
        done = terminal("call", "echo", "text=a")
        assert (done.code, len(done.err.splitlines())) == (0, 1), done.err


def test_without_a_place_for_the_record_the_first_call_works_and_says_what_to_do(terminal: Terminal, config: Path) -> None:
    config.parent.write_text("not a folder")
    done = terminal("call", "echo", "text=a")
    assert done.code == 0
    assert "TOOLGATE_TRUST" in done.err
    assert terminal("call", "echo", "text=a").code == 2


@pytest.mark.matrix("starts several processes")
def test_processes_that_make_the_folder_at_once_agree(terminal: Terminal) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(lambda _: terminal.run("call", "echo", "text=a"), range(4)))
    assert [one.code for one in done] == [0] * 4, done
    assert terminal("call", "echo", "text=a").code == 0


# -- what is found


@pytest.mark.parametrize("where", ["tools", "python_tools", "home"])
def test_code_that_is_found_does_not_run_until_a_person_trusts_it(terminal: Terminal, ran: Path, where: str) -> None:
    plant(terminal, ran, where)
    for words in (("call", "echo", "text=a"), ("tools", "list"), ("doctor",), ("serve", "--port", "0"), ("mcp",)):
        done = terminal(*words)
        assert done.code in (1, 2)
        assert "toolgate trust" in done.out + done.err, words
    assert terminal("tools", "list").code == 2
    assert terminal("tools", "list", "--json").json["error"]["code"] == "SETTINGS_ERROR"
    assert not ran.exists()
    assert terminal("trust").code == 0
    assert terminal("tools", "list").code == 0
    assert ran.exists()


@pytest.mark.usefixtures("terminal")
async def test_app_open_without_arguments_refuses_what_is_found(terminal: Terminal, ran: Path) -> None:
    terminal.settings("max_execution_time: 5")
    with pytest.raises(SettingsError, match="not trusted") as refused:
        App.open()
    assert "toolgate trust" in (refused.value.suggestion or "")
    (terminal.folder / "toolgate.yaml").unlink()
    plant(terminal, ran, "tools")
    with pytest.raises(Untrusted):
        App.open()
    with pytest.raises(Untrusted):
        App(Settings())
    assert not ran.exists()


@pytest.mark.parametrize(
    "settings",
    ["policy: {file: mine.rego}", "home: data", "python_tools: [x]", "servers: {a: {command: [sh], isolation: none}}", "["],
)
def test_settings_that_are_found_are_not_even_parsed(terminal: Terminal, settings: str) -> None:
    terminal.settings(settings)
    done = terminal("call", "echo", "text=a")
    assert (done.code, done.out) == (2, "")
    assert "toolgate.yaml" in done.err
    assert "not trusted" in done.err


@pytest.mark.parametrize("setting", ["file: mine.rego", "observe: [mine.rego]"])
def test_a_policy_in_the_project_is_trusted_with_the_settings(terminal: Terminal, setting: str) -> None:
    policy = (
        "package soma.policy\nimport rego.v1\ndefault allow := false\nallow if true\n"
        'decision := {"allow": allow, "reason": "mine"}\n'
    )
    (terminal.folder / "mine.rego").write_text(policy)
    terminal.settings(f"policy: {{{setting}}}")
    done = terminal("trust", "--json").json
    assert {(file["name"], file["state"]) for file in done["files"]} == {("toolgate.yaml", "new"), ("mine.rego", "new")}
    assert terminal("call", "echo", "text=a").code == 0
    (terminal.folder / "mine.rego").write_text(policy + "# changed by a pull\n")
    done = terminal("call", "echo", "text=a")
    assert (done.code, "mine.rego is changed" in done.err) == (2, True)


# -- what changes


def test_what_changes_or_comes_new_after_it_was_trusted_is_refused(terminal: Terminal, ran: Path) -> None:
    terminal.settings("max_execution_time: 5")
    terminal.add_tools("", "mine")
    assert terminal("trust").code == 0
    assert terminal("call", "echo", "text=a").code == 0
    terminal.settings("max_execution_time: 6")
    assert "changed since it was trusted" in terminal("call", "echo", "text=a").err
    assert terminal("trust").code == 0
    plant(terminal, ran, "tools")
    assert ".toolgate/tools/mine.py is changed" in terminal("call", "echo", "text=a").err
    terminal.add_tools("", "mine")
    assert terminal("call", "echo", "text=a").code == 0, "it is as it was trusted"
    for name in ("more", "_helper"):
        terminal.add_tools(EVIL.format(ran=str(ran)), name)
        assert f".toolgate/tools/{name}.py is new" in terminal("call", "echo", "text=a").err
        (terminal.home / "tools" / f"{name}.py").unlink()
    assert not ran.exists()


def test_settings_that_were_trusted_and_are_gone_are_missed(terminal: Terminal) -> None:
    terminal.settings("enforcement: {disable_local_tools: true}")
    assert terminal("trust").code == 0
    (terminal.folder / "toolgate.yaml").unlink()
    assert "is gone" in terminal("call", "echo", "text=a").err
    assert [file["state"] for file in terminal("trust", "--json").json["files"]] == ["gone"]
    assert terminal("call", "echo", "text=a").code == 0


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_tool_that_changes_while_toolgate_runs_is_taken_once_it_is_trusted(terminal: Terminal) -> None:
    assert terminal.run("tools", "new", "mine", "--runtime", "python").code == 0
    file = terminal.home / "tools" / "mine.yml"
    async with App.open() as app:
        assert app.parts.custom is not None
        before = app.parts.catalog.resolve("mine", "default").fingerprint
        file.write_text(file.read_text().replace("description:", "description: Changed."))
        await app.parts.custom.look()
        assert "toolgate trust" in app.tools.problems[0].why
        assert app.parts.catalog.resolve("mine", "default").fingerprint == before
        assert terminal.run("trust").code == 0
        await app.parts.custom.look()
        assert app.parts.catalog.resolve("mine", "default").fingerprint != before
        assert app.tools.problems == []


async def test_a_file_that_is_swapped_after_the_check_does_not_run(terminal: Terminal, ran: Path) -> None:
    terminal.add_tools("")
    assert terminal("trust").code == 0
    app = App.open()
    plant(terminal, ran, "tools")
    async with app:
        assert "trust" in app.tools.problems[0].why
    assert not ran.exists()


def test_compiled_code_beside_a_trusted_tool_does_not_run(terminal: Terminal, ran: Path) -> None:
    import importlib.util
    import py_compile

    terminal.add_tools("# nothing at all" + " " * 200)
    file = terminal.home / "tools" / "mine.py"
    assert terminal("trust").code == 0
    honest, evil = file.read_bytes(), EVIL.format(ran=str(ran)).encode()
    file.write_bytes(evil + b" " * (len(honest) - len(evil)))
    times = file.stat()
    py_compile.compile(str(file), importlib.util.cache_from_source(str(file)))
    file.write_bytes(honest)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert terminal("tools", "list").code == 0
    assert not ran.exists()


def test_a_folder_that_is_gone_is_a_line_with_advice(terminal: Terminal) -> None:
    (terminal.folder / "gone").mkdir()
    os.chdir(terminal.folder / "gone")
    (terminal.folder / "gone").rmdir()
    for words in (("call", "echo", "text=a"), ("trust",), ("--settings", os.devnull, "tools", "list")):
        done = terminal(*words)
        assert (done.code, "working directory" in done.err) == (2, True), done


# -- what Toolgate writes at a person's word


def test_tools_that_a_command_adds_keep_the_trust(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "hello.yml").write_text(TOOL.format(name="hello"))
    assert terminal("tools", "add", "--from-file", str(tmp_path / "hello.yml")).code == 0
    assert terminal("tools", "new", "other", "--runtime", "python").code == 0
    assert terminal("tools", "info", "hello").code == 0
    assert terminal("tools", "info", "other").code == 0


# -- what a person names


def test_what_is_named_is_trusted(terminal: Terminal, ran: Path) -> None:
    plant(terminal, ran, "python_tools")
    assert terminal("--settings", "toolgate.yaml", "tools", "list").code == 0
    assert ran.exists()
    ran.unlink()
    terminal.set("TOOLGATE_SETTINGS", "toolgate.yaml")
    assert terminal("tools", "list").code == 0
    assert ran.exists()


async def test_the_data_folder_of_named_settings_is_found_unless_it_is_named_too(terminal: Terminal, ran: Path) -> None:
    plant(terminal, ran, "tools")
    (terminal.folder / "named.yaml").write_text("max_execution_time: 5")
    with pytest.raises(Untrusted):
        App.open("named.yaml")
    async with App.open("named.yaml", home=".toolgate"):
        assert ran.exists()


@pytest.mark.parametrize(
    ("entry", "code"), [("{project}", 0), ("/nowhere:{project}", 0), ("{above}/*", 0), ("{above}", 2), ("{project}x", 2)]
)
def test_a_variable_names_trusted_folders(terminal: Terminal, config: Path, entry: str, code: int) -> None:
    terminal.settings("max_execution_time: 5")
    terminal.set("TOOLGATE_TRUST", entry.format(project=terminal.folder, above=terminal.folder.parent))
    assert terminal("call", "echo", "text=a").code == code
    assert not (config / "trust.json").exists(), "nothing is recorded for it"


def test_a_relative_folder_in_the_variable_is_a_mistake(terminal: Terminal) -> None:
    terminal.set("TOOLGATE_TRUST", ".")
    done = terminal("call", "echo", "text=a")
    assert (done.code, "not an absolute path" in done.err) == (2, True)


# -- the command


def test_an_empty_list_says_how_to_trust_a_folder(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = terminal("trust", "--list")
    assert (empty.code, empty.out) == (0, "")
    assert "No folder is trusted. `toolgate trust` trusts the files of the folder you are in." in empty.err
    assert terminal("trust", "--list", "--json").json == []
    monkeypatch.setenv("TOOLGATE_TRUST", "/srv/*")
    assert "Also trusted, by TOOLGATE_TRUST: /srv/*" in terminal("trust", "--list").err


def test_the_command_shows_records_lists_and_removes(terminal: Terminal, config: Path) -> None:
    assert "no settings, policy or tools that Toolgate would use" in terminal("trust").out
    terminal.settings("max_execution_time: 5")
    (terminal.folder / "toolgate.yaml").chmod(0o666)
    shown = terminal("trust").out
    assert "new" in shown
    assert "toolgate.yaml" in shown
    assert "can be written by other users" in shown
    assert str(terminal.folder) in terminal("trust", "--list").out
    assert [one["files"] for one in terminal("trust", "--list", "--json").json] == [["toolgate.yaml"]]
    assert (stat.S_IMODE(config.stat().st_mode), stat.S_IMODE((config / "trust.json").stat().st_mode)) == (0o700, 0o600)
    assert terminal("trust", "--remove").code == 0
    assert terminal("call", "echo", "text=a").code == 2
    assert terminal("trust", "--remove").code == 1
    assert terminal("trust", "/nowhere").code == 1


def test_the_command_takes_a_path(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.settings("max_execution_time: 5")
    monkeypatch.chdir(tmp_path)
    assert terminal("trust", "project").code == 0
    monkeypatch.chdir(terminal.folder)
    assert terminal("call", "echo", "text=a").code == 0


def test_a_link_to_the_project_is_the_project(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.settings("max_execution_time: 5")
    (tmp_path / "link").symlink_to(terminal.folder)
    assert terminal("trust", str(tmp_path / "link")).code == 0
    monkeypatch.chdir(tmp_path / "link")
    assert terminal("call", "echo", "text=a").code == 0


def test_names_of_files_do_not_reach_the_terminal_raw(terminal: Terminal) -> None:
    terminal.add_tools("", "a\x1b[2Jb")
    for done in (terminal("call", "echo", "text=a"), terminal("trust")):
        assert "\x1b" not in done.out + done.err


# -- the person at the terminal


@pytest.mark.parametrize(("keys", "code"), [("y\n", 0), ("\n", 2), ("n\n", 2), ("yes please\n", 2), ("\x04", 2)])
def test_a_person_at_a_terminal_is_asked_and_only_a_clear_yes_is_one(
    terminal: Terminal, ran: Path, keys: str, code: int
) -> None:
    plant(terminal, ran, "tools")
    teletype = Teletype(terminal, "call", "echo", "text=a")
    teletype.type(after="Trust them? [y] yes  [n] no > ", keys=keys)
    assert teletype.end() == code, teletype.shown
    assert ".toolgate/tools/mine.py" in teletype.shown
    assert ran.exists() == (code == 0)
    assert terminal("call", "echo", "text=a").code == code


# -- what comes with a clone, or by a pull


def test_a_data_folder_that_came_with_the_project_is_not_used(terminal: Terminal, tmp_path: Path) -> None:
    """Its database may name servers, which are programs that Toolgate starts."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    terminal.set("TOOLGATE_TRUST", f"{tmp_path}/*")
    home = str(theirs / ".toolgate")
    assert terminal("--home", home, "policy", "restrict-code", "acme").code == 0
    terminal.set("TOOLGATE_TRUST", "")
    shutil.copytree(home, terminal.home)
    done = terminal("call", "echo", "text=a")
    assert (done.code, ".toolgate is new" in done.err) == (2, True)
    assert terminal("trust").code == 0
    assert terminal("call", "echo", "text=a").code == 0


@pytest.mark.parametrize("what", ["toolgate.db", "id"])
def test_what_a_pull_puts_in_place_of_toolgates_own_data_is_not_used(terminal: Terminal, tmp_path: Path, what: str) -> None:
    """git replaces files that are ignored without a question."""
    assert terminal("call", "echo", "text=a").code == 0
    theirs = tmp_path / "theirs" / ".toolgate"
    theirs.mkdir(parents=True)
    assert terminal("--home", str(theirs), "call", "echo", "text=a").code == 0
    (theirs / "id").write_text("0" * 64)
    for file in terminal.home.glob("toolgate.db*"):
        if what == "toolgate.db":
            file.unlink()
    shutil.copy(theirs / what, terminal.home / what)
    done = terminal("call", "echo", "text=a")
    assert (done.code, "toolgate trust" in done.err) == (2, True)


@pytest.mark.parametrize("what", ["wal", "journal"])
def test_changes_to_the_database_that_a_pull_brings_are_not_taken_over(
    terminal: Terminal, tmp_path: Path, what: str
) -> None:
    """SQLite takes over a log that it finds beside a database, and whoever makes one leaves the mark in there as it is."""
    assert terminal("call", "echo", "text=a").code == 0
    ours = terminal.home / "toolgate.db"
    assert [path.name for path in terminal.home.glob("toolgate.db-*")] == ["toolgate.db-epoch"], "nothing is left over"
    theirs = shutil.copy(ours, tmp_path / "toolgate.db")
    mode = "WAL" if what == "wal" else "DELETE"
    with closing(sqlite3.connect(theirs, isolation_level=None)) as database:
        for line in (f"PRAGMA journal_mode={mode}", "PRAGMA cache_size=1", "BEGIN", "CREATE TABLE planted AS SELECT 1"):
            database.execute(line)
        database.execute("COMMIT" if what == "wal" else "CREATE TABLE more AS SELECT zeroblob(100000)")
        brought = shutil.copy(f"{theirs}-{what}", f"{ours}-{what}")
    assert Path(brought).stat().st_size
    for words in (("call", "echo", "text=a"), ("servers", "list")):
        done = terminal(*words)
        assert (done.code, f"toolgate.db-{what} is new" in done.err) == (2, True), done
    assert f"toolgate.db-{what}" in terminal("trust").out, "a person is shown it"
    assert terminal("call", "echo", "text=a").code == 0


def test_a_database_that_found_settings_have_in_the_project_is_trusted_too(terminal: Terminal, tmp_path: Path) -> None:
    """It comes with a clone as the data folder may, and names servers and grants."""
    theirs = tmp_path / "theirs.db"
    assert terminal("--home", str(tmp_path / "their home"), "call", "echo", "text=a").code == 0
    shutil.copy(tmp_path / "their home" / "toolgate.db", theirs)
    terminal.settings("database_url: sqlite:///data.db")
    assert "data.db" not in terminal("trust").out, "there is none"
    ours = terminal.folder / "data.db"
    for _ in range(2):
        assert terminal("call", "echo", "text=a").code == 0, "one that Toolgate makes is known"
    shutil.copy(theirs, ours)
    done = terminal("call", "echo", "text=a")
    assert (done.code, "data.db is not the one" in done.err) == (2, True), done
    assert terminal("trust", "--remove").code == 0
    assert "data.db  database" in terminal("trust").out
    for _ in range(2):
        assert terminal("call", "echo", "text=a").code == 0


@pytest.mark.parametrize("name", ["toolgate.db", "toolgate.db-epoch", "audit.head", "sessions", "set-aside"])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.sample(4)
def test_a_link_in_the_data_folder_is_not_written_through(
    terminal: Terminal, tmp_path: Path, name: str, before: bool
) -> None:
    """Whether it comes with a clone, or with a pull into a folder that is trusted."""
    if before:
        assert terminal("call", "echo", "text=a").code == 0
        for file in terminal.home.glob(f"{name}*"):
            file.unlink()
    terminal.home.mkdir(exist_ok=True)
    theirs = tmp_path / "theirs"
    if name in ("sessions", "set-aside"):
        theirs.mkdir()
    elif name == "toolgate.db":
        with closing(sqlite3.connect(theirs)) as database:
            database.execute("CREATE TABLE theirs (x)")
    else:
        theirs.write_text("what somebody needs as it is")
    content = theirs.read_bytes() if theirs.is_file() else b""
    (terminal.home / name).symlink_to(theirs)
    done = terminal("call", "echo", "text=a")
    assert (done.code, f"{name} is new" in done.err) == (2, True), done
    assert content == (theirs.read_bytes() if theirs.is_file() else b"")
    assert f"to {theirs}" in terminal("trust").out


@pytest.mark.matrix("kills processes")
def test_what_a_process_that_was_killed_left_is_taken_over(terminal: Terminal) -> None:
    code = """
        import asyncio, os
        from toolgate import App
        async def main():
            async with App.open() as app:
                await app.invoke("echo", {"text": "a"})
                await app.flush()
                os._exit(9)
        asyncio.run(main())
    """
    done = subprocess.run([sys.executable, "-c", dedent(code)], cwd=terminal.folder, check=False)
    assert done.returncode == 9
    assert (terminal.home / "toolgate.db-wal").stat().st_size
    with ThreadPoolExecutor(4) as pool:
        command = [str(Path(sys.executable).with_name("toolgate")), "call", "echo", "text=a"]
        several = [pool.submit(subprocess.run, command, cwd=terminal.folder, capture_output=True) for _ in range(4)]
    assert [done.stderr.decode() for done in (one.result() for one in several) if done.returncode] == []
    assert not list(terminal.home.glob("toolgate.db-open-*"))


def test_what_a_pull_brings_is_not_taken_for_an_installed_server(terminal: Terminal) -> None:
    """Where a package is installed depends on the mark of the folder, which nobody else knows."""
    package = PackageSpec("npm", "server", "1.0.0")
    assert terminal("call", "echo", "text=a").code == 0
    here = folder_of("mine", package, terminal.home)
    assert here == folder_of("mine", package, terminal.home)
    (terminal.home / "id").write_text("1" * 64)
    assert here != folder_of("mine", package, terminal.home)


def test_a_database_that_was_deleted_is_made_anew(terminal: Terminal) -> None:
    assert terminal("call", "echo", "text=a").code == 0
    for file in (*terminal.home.glob("toolgate.db*"), terminal.home / "audit.head"):
        file.unlink(missing_ok=True)
    for _ in range(2):
        assert terminal("call", "echo", "text=a").code == 0


def test_a_data_folder_that_is_a_link_is_asked_about(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    terminal.home.symlink_to(tmp_path / "elsewhere")
    done = terminal("call", "echo", "text=a")
    assert (done.code, ".toolgate is new" in done.err) == (2, True)
    assert "a link to" in terminal("trust").out
    assert terminal("call", "echo", "text=a").code == 0
    terminal.home.unlink()
    (tmp_path / "other").mkdir()
    terminal.home.symlink_to(tmp_path / "other")
    assert ".toolgate is changed" in terminal("call", "echo", "text=a").err


# -- the record


@pytest.mark.parametrize("open_one", ["trust.json", "."])
def test_a_record_that_others_could_write_is_not_used(terminal: Terminal, config: Path, open_one: str) -> None:
    terminal.settings("max_execution_time: 5")
    assert terminal("trust").code == 0
    (config / open_one).chmod(0o777)
    done = terminal("call", "echo", "text=a")
    assert (done.code, "other users could have written it" in done.err) == (2, True)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"folders": []}', '{"folders": {"/x": {"files": 3, "y": 1}}}'])
def test_a_damaged_record_is_a_line_with_advice(terminal: Terminal, config: Path, content: str) -> None:
    terminal.settings("max_execution_time: 5")
    config.mkdir(parents=True, mode=0o700)
    (config / "trust.json").write_text(content)
    (config / "trust.json").chmod(0o600)
    done = terminal("call", "echo", "text=a")
    assert (done.code, "is damaged" in done.err) == (2, True)


@pytest.mark.parametrize("home", [".", "relative"])
def test_a_relative_home_does_not_have_the_project_vouch_for_itself(terminal: Terminal, home: str) -> None:
    terminal.settings("budgets: {}")
    terminal.set("XDG_CONFIG_HOME", "")
    terminal.set("HOME", home)
    done = terminal("trust")
    assert (done.code, "Set HOME" in done.err) == (2, True), done
    assert not list(terminal.folder.rglob("trust.json"))
    assert terminal("call", "echo", "text=a").code == 2


def test_home_is_where_it_is_recorded_without_the_variable(terminal: Terminal, tmp_path: Path) -> None:
    terminal.set("XDG_CONFIG_HOME", "relative")
    terminal.set("HOME", str(tmp_path / "person"))
    assert terminal("call", "echo", "text=a").code == 0
    record = tmp_path / "person" / ".config" / "toolgate" / "trust.json"
    assert list(json.loads(record.read_text())["folders"]) == [str(terminal.folder)]


# -- what tools may write


@pytest.mark.parametrize(
    "path",
    [
        "toolgate.yaml", "sub/toolgate.yaml", "TOOLGATE.YAML", ".toolgate", ".toolgate/tools/x.py",
        "sub/.toolgate/tools/x.yml", ".toolgate/id", "helpers/x.py", "helpers", "mine.rego", "../config/toolgate/trust.json",
    ],
)  # fmt: skip
@pytest.mark.parametrize("tool", ["write_file", "create_directory"])
@pytest.mark.sample(4)
async def test_no_tool_makes_what_toolgate_would_obey(terminal: Terminal, path: str, tool: str) -> None:
    """None of it exists yet: OPA decides, so that the policy is not missed."""
    more = {"opa_url": "http://127.0.0.1:9", "policy": {"file": "mine.rego"}}
    async with App.open(home="../data", python_tools=["helpers"], **more) as app:
        with pytest.raises(Denied) as refused:
            app.parts.tiers.check(app.parts.catalog.resolve(tool, "default"), {"path": path, "content": "x"})
    assert refused.value.code == "SECURITY_VIOLATION"
    assert not (terminal.folder / path).exists()


async def test_a_call_that_would_make_settings_is_denied(terminal: Terminal) -> None:
    async with App.open() as app:
        outcome = await app.invoke("write_file", {"path": "toolgate.yaml", "content": "x"})
    assert outcome.error is not None
    assert outcome.error.code == "SECURITY_VIOLATION"
    assert not (terminal.folder / "toolgate.yaml").exists()
