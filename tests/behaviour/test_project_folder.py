"""Settings and data are looked for upwards, like `.git`, and nothing that another user put there is used."""

import os
from pathlib import Path

import pytest

from tests.terminal import Done, Terminal
from toolgate import App
from toolgate.settings import Settings, load_settings
from toolgate.trust import Untrusted

pytestmark = pytest.mark.requirement("DOOR-6")

SOMEBODY = 65_534


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """In a project, of which nothing is trusted yet."""
    monkeypatch.delenv("TOOLGATE_TRUST", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "project"
    (folder / "src" / "deep").mkdir(parents=True)
    return Terminal(folder, monkeypatch, capsys)


def within(terminal: Terminal, folder: str, *words: str) -> Done:
    """Runs a command in a folder of the project."""
    os.chdir(terminal.folder / folder)
    return terminal(*words)


# -- what is found


def test_a_command_in_a_sub_folder_uses_the_projects_settings_and_data(terminal: Terminal) -> None:
    terminal.settings("tools: {echo: {enabled: false}}")
    assert terminal("trust").code == 0
    assert terminal("call", "calculator", "expression=1+1").code == 0
    done = within(terminal, "src/deep", "call", "echo", "text=a")
    assert (done.code, "echo" in done.err) == (1, True), done
    assert (
        within(terminal, "src/deep", "audit", "verify", "--json").json["rows"]
        == within(terminal, ".", "audit", "verify", "--json").json["rows"]
    )
    assert not (terminal.folder / "src" / "deep" / ".toolgate").exists()


def test_files_are_read_and_written_where_the_command_is_run(terminal: Terminal) -> None:
    assert terminal("call", "echo", "text=a").code == 0
    (terminal.folder / "outer.txt").write_text("of the project")
    done = within(terminal, "src", "call", "write_file", "path=note.txt", "content=here", "--yes")
    assert done.code == 0, done
    assert (terminal.folder / "src" / "note.txt").read_text() == "here"
    assert within(terminal, "src", "call", "read_file", "path=../outer.txt").code == 1


def test_the_nearest_folder_wins_and_one_without_anything_in_it_does_not_count(terminal: Terminal) -> None:
    assert terminal("call", "echo", "text=a").code == 0
    inner = terminal.folder / "src" / ".toolgate"
    inner.mkdir()
    (inner / ".gitignore").write_text("*")
    (inner / "tools").mkdir()
    os.chdir(terminal.folder / "src" / "deep")
    assert load_settings().project == terminal.folder, "a clone may bring an empty one"
    (inner / "tools" / "mine").mkdir()
    assert load_settings().project == terminal.folder
    (inner / "tools" / "mine" / "__init__.py").write_text("")
    assert load_settings().project == terminal.folder / "src"


def test_a_link_to_nothing_does_not_take_a_folder_out_of_the_project(terminal: Terminal) -> None:
    terminal.settings("tools: {echo: {enabled: false}}")
    assert terminal("trust").code == 0
    (terminal.folder / "src" / "toolgate.yaml").symlink_to("nowhere")
    done = within(terminal, "src", "call", "echo", "text=a")
    assert (done.code, "link to nothing" in done.err) == (2, True), done
    assert not (terminal.folder / "src" / ".toolgate").exists(), "calls would be recorded there, under looser settings"


def test_with_nothing_above_the_data_folder_is_made_here(terminal: Terminal) -> None:
    done = within(terminal, "src/deep", "call", "echo", "text=a")
    assert done.code == 0, done
    assert (terminal.folder / "src" / "deep" / ".toolgate" / "toolgate.db").is_file()


async def test_what_is_named_wins_over_what_is_found(terminal: Terminal, tmp_path: Path) -> None:
    terminal.add_tools("")
    os.chdir(terminal.folder / "src")
    async with App.open(home="data") as app:
        assert app.settings.home == Path("data")
    terminal.set("TOOLGATE_HOME", str(tmp_path / "elsewhere"))
    assert load_settings().home == tmp_path / "elsewhere"
    assert App(Settings(database_url="memory://")).settings.home == Path(".toolgate"), "as it was made"


def test_the_doctor_shows_which_folder_and_which_file_are_used(terminal: Terminal) -> None:
    terminal.settings("token_price: 2")
    assert terminal("trust").code == 0
    shown = within(terminal, "src", "doctor").out
    assert f"{terminal.folder}, found above the working directory {terminal.folder / 'src'}" in shown
    assert f"read from {terminal.folder / 'toolgate.yaml'}" in shown


# -- trust


def test_what_is_found_above_is_obeyed_only_after_a_person_said_so(terminal: Terminal, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    terminal.add_tools(f"from pathlib import Path; Path({str(ran)!r}).write_text('ran')")
    terminal.settings("token_price: 2")
    done = within(terminal, "src/deep", "call", "echo", "text=a")
    assert (done.code, str(terminal.folder) in done.err, "toolgate trust" in done.err) == (2, True, True), done
    (terminal.folder / "toolgate.yaml").unlink()
    with pytest.raises(Untrusted, match=r"mine\.py is new"):
        App.open()
    assert not ran.exists()
    named = within(terminal, ".", "trust", "src/deep")
    assert (named.code, f"use the project {terminal.folder}" in named.err) == (1, True), "only what is named is agreed to"
    assert not list((tmp_path / "config").rglob("trust.json"))
    done = within(terminal, "src/deep", "trust", "--json")
    assert done.json["folder"] == str(terminal.folder)
    assert within(terminal, "src", "call", "echo", "text=a").code == 0
    assert ran.exists()


def test_settings_above_that_were_trusted_and_are_gone_are_missed(terminal: Terminal) -> None:
    terminal.settings("tools: {echo: {enabled: false}}")
    assert terminal("trust").code == 0
    (terminal.folder / "toolgate.yaml").unlink()
    done = within(terminal, "src/deep", "call", "echo", "text=a")
    assert (done.code, "is gone" in done.err) == (2, True), done
    assert within(terminal, "src/deep", "trust", "--remove").code == 0
    assert within(terminal, "src/deep", "call", "echo", "text=a").code == 0


def test_a_variable_that_names_the_project_trusts_it_for_its_sub_folders(terminal: Terminal) -> None:
    terminal.settings("token_price: 2")
    terminal.set("TOOLGATE_TRUST", str(terminal.folder))
    os.chdir(terminal.folder / "src")
    assert load_settings().token_price == 2


# -- where the search ends


def test_a_folder_that_every_user_may_write_is_not_searched(terminal: Terminal) -> None:
    terminal.settings("token_price: 2")
    assert terminal("trust").code == 0
    terminal.folder.chmod(0o777)
    os.chdir(terminal.folder / "src")
    assert load_settings().project == terminal.folder / "src"
    assert f"{terminal.folder / 'toolgate.yaml'} is not used: every user may write" in terminal("doctor").out
    os.chdir(terminal.folder)
    assert load_settings().token_price == 2, "where a command is run, its own folder counts as before"


def test_a_home_directory_is_not_the_project_of_all_that_is_in_it(terminal: Terminal) -> None:
    terminal.settings("token_price: 2")
    assert terminal("trust").code == 0
    terminal.set("HOME", str(terminal.folder))
    os.chdir(terminal.folder / "src" / "deep")
    assert load_settings().project == terminal.folder / "src" / "deep"


@pytest.mark.needs("root")  # to give a folder away
@pytest.mark.parametrize("theirs", [".", "toolgate.yaml", ".toolgate"])
def test_what_another_user_owns_above_is_not_used_until_it_is_trusted(terminal: Terminal, theirs: str) -> None:
    terminal.home.mkdir()
    (terminal.home / "id").write_text("theirs")
    terminal.settings("token_price: 2")
    if theirs in (".toolgate", "toolgate.yaml"):  # the one that is mine goes, the other is theirs
        mine = terminal.folder / ("toolgate.yaml" if theirs == ".toolgate" else ".toolgate")
        (mine / "id").unlink() if mine.is_dir() else mine.unlink()
    os.chown(terminal.folder / theirs, SOMEBODY, SOMEBODY)
    os.chdir(terminal.folder / "src" / "deep")
    assert load_settings().project == terminal.folder / "src" / "deep"
    if theirs == ".":
        assert f"belongs to another user, number {SOMEBODY}" in terminal("doctor").out
    assert terminal("call", "echo", "text=a").code == 0, "and it gets in nobody's way"
    assert within(terminal, ".", "trust").code == 0
    os.chdir(terminal.folder / "src")
    assert load_settings(untrusted=True).project == terminal.folder


# -- paths


def test_paths_in_a_settings_file_are_relative_to_it(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = terminal.folder / "conf"
    conf.mkdir()
    (conf / "x.yaml").write_text(
        """
        home: data
        database_url: sqlite:///data/x.db
        python_tools: [tools, /opt/tools]
        policy: {file: a.rego, observe: [b.rego]}
        secrets: {file: s.enc}
        audit_head_file: ../head
        audit: {folder: audit, sinks: [heads.log, "file://more.log", "https://x.example/y"]}
        sandbox: {python: py, deno: ~/deno, packages: [p], programs: [q], bringIn: [src/*.py]}
        paths: {sensitive: [private/*]}
        servers:
          a: {command: [./server, ./argument], read: [r], write: [w], env: {HERE: ./e}}
          b: {command: [./server], cwd: c}
          c: {command: [server]}
          d: {npm: x@1, command: [./argument]}
        """
    )
    monkeypatch.setenv("HOME", "/home/me")
    settings = load_settings("conf/x.yaml")
    assert (settings.home, settings.database_url) == (conf / "data", f"sqlite:///{conf}/data/x.db")
    assert settings.python_tools == (conf / "tools", Path("/opt/tools"))
    assert (settings.policy.file, settings.policy.observe) == (conf / "a.rego", (conf / "b.rego",))
    assert (settings.secrets.file, settings.audit_head_file) == (conf / "s.enc", conf / "../head")
    assert settings.audit.folder == conf / "audit"
    assert settings.audit.sinks == (f"{conf}/heads.log", f"{conf}/more.log", "https://x.example/y")
    sandbox = settings.sandbox
    assert (sandbox.python, sandbox.deno, sandbox.packages, sandbox.programs, sandbox.bring_in) == (
        conf / "py", Path("/home/me/deno"), (conf / "p",), (conf / "q",), ("src/*.py",),
    )  # fmt: skip
    assert settings.paths.sensitive == ("private/*",)
    a, b, c, d = (settings.servers[name] for name in "abcd")
    assert (a.command, a.read, a.write, a.env) == (
        (f"{conf}/server", "./argument"), (conf / "r",), (conf / "w",), {"HERE": "./e"},
    )  # fmt: skip
    assert (b.command, b.cwd, c.command, d.command) == (("./server",), conf / "c", ("server",), ("./argument",))


def test_paths_in_variables_and_arguments_are_relative_to_the_working_directory(terminal: Terminal) -> None:
    (terminal.folder / "conf").mkdir()
    (terminal.folder / "conf" / "x.yaml").write_text("{}")
    variables = {"TOOLGATE_POLICY__FILE": "a.rego", "TOOLGATE_PYTHON_TOOLS": '["t"]', "TOOLGATE_HOME": "~"}
    settings = load_settings("conf/x.yaml", {"secrets": {"file": "s.enc"}}, variables)
    assert (settings.policy.file, settings.python_tools) == (Path("a.rego"), (Path("t"),))
    assert (settings.secrets.file, settings.home) == (Path("s.enc"), Path.home())


def test_tools_that_a_settings_file_names_are_found_from_anywhere(terminal: Terminal) -> None:
    (terminal.folder / "helpers").mkdir()
    (terminal.folder / "helpers" / "mine.py").write_text(
        "from toolgate import tool\n@tool(tier='read_only')\ndef mine() -> str:\n    'Mine.'\n    return 'mine'\n"
    )
    terminal.settings("python_tools: [helpers]")
    assert within(terminal, "src", "trust").code == 0
    assert within(terminal, "src/deep", "call", "mine").out.startswith("mine")


async def test_a_server_that_is_added_is_kept_with_whole_paths(terminal: Terminal) -> None:
    async with App.open() as app:
        added = await app.servers.add("mine", {"command": ["./server", "x"], "read": ["data"], "cwd": "src"})
        assert (added.settings.read, added.settings.cwd) == ((terminal.folder / "data",), terminal.folder / "src")
