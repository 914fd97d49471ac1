"""Servers' programs and what they are given: real ones from npm and PyPI, and small ones of the test's own."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from tests import pypi
from tests.jailed_servers import node_server, python, server, talking
from tests.npm import packages
from toolgate.errors import CallError
from toolgate.mcp.client.errors import Unreachable
from toolgate.mcp.client.launch import launch_server
from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.jail_network import proxy_variables
from toolgate.sandbox.jails.landlock import Landlock
from toolgate.sandbox.quarantine import Quarantine
from toolgate.settings import SandboxSettings, ServerSettings

pytestmark = pytest.mark.requirement("MCP-3")

Jail = Literal["bubblewrap", "namespaces"]
JAILS: tuple[Jail, ...] = ("bubblewrap", "namespaces")
"""Landlock holds less, and needs an interpreter that every user can run: `tests/hostile/test_mcp_escape` tries it."""


AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@example.com")


def asked() -> ServerSettings:
    """Any server."""
    return ServerSettings(command=(python(), "-c", "print('hi')"))


# -- real servers


@pytest.mark.matrix("runs servers of npm and PyPI")
@pytest.mark.parametrize("jail", JAILS)
async def test_servers_of_npm_and_pypi_work_in_every_jail(tmp_path: Path, jail: Jail) -> None:
    """The one in Node, the other in Python with a virtual environment of its own."""
    node = ServerSettings(command=tuple(packages().command("@modelcontextprotocol/server-everything")))
    async with talking(tmp_path, node, jail=jail) as talk:
        assert "tools" in (await talk.initialize())["capabilities"]
        assert await talk.call("echo", message="hello") == "Echo: hello"
        assert (talk.program.jail, talk.program.network) == (jail, "none")
    repository = tmp_path / "repository"
    for words in (
        ["init", "-q", str(repository)],
        ["-C", str(repository), *AUTHOR, "commit", "-q", "--allow-empty", "-m", "one"],
    ):
        subprocess.run(["git", *words], check=True)
    git = ServerSettings(command=tuple(pypi.command("git")), read=(repository,))
    async with talking(tmp_path / "home", git, jail=jail) as talk:
        await talk.initialize()
        assert "Message: one" in await talk.call("git_log", repo_path=str(repository))


@pytest.mark.matrix("runs servers of npm and PyPI")
@pytest.mark.parametrize("jail", JAILS)
async def test_the_filesystem_server_has_the_folders_that_it_is_lent(tmp_path: Path, jail: Jail) -> None:
    work, lent = tmp_path / "work", tmp_path / "lent"
    for path, text in {work / "a.txt": "a", work / ".env": "key", work / ".git/HEAD": "ref", lent / "b.txt": "b"}.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    settings = ServerSettings(
        command=(*packages().command("@modelcontextprotocol/server-filesystem"), str(work), str(lent)),
        write=(work,),
        read=(lent,),
        blocked=("*/.git/*",),
    )
    async with talking(tmp_path / "home", settings, jail=jail) as talk:
        await talk.initialize()
        assert await talk.call("read_text_file", path=str(work / "a.txt")) == "a"
        assert await talk.call("read_text_file", path=str(lent / "b.txt")) == "b"
        await talk.call("write_file", path=str(work / "c.csv"), content="c")
        await talk.call("write_file", path=str(work / "Makefile"), content="all: ; touch PWNED")
        assert "PWNED" in await talk.call("read_text_file", path=str(work / "Makefile")), "it sees its own"
        assert "key" not in await talk.call("read_text_file", path=str(work / ".env"))
        assert "ref" not in await talk.call("read_text_file", path=str(work / ".git/HEAD"))
        assert "EROFS" in await talk.call("write_file", path=str(lent / "d.txt"), content="d")
    assert (work / "c.csv").read_text() == "c"
    assert (work / "c.csv").stat().st_uid == work.stat().st_uid
    assert (work / "c.csv").stat().st_mode & 0o777 == 0o644
    assert not (work / "Makefile").exists()
    (kept,) = Quarantine(tmp_path / "home").sets()
    assert [change.path for change in kept.changes] == ["Makefile"]
    assert not (lent / "d.txt").exists()


# -- what is found inside


@pytest.mark.parametrize("isolation", ["required", "none"])
async def test_only_what_is_configured_is_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: Literal["required", "none"]
) -> None:
    monkeypatch.setenv("OUR_OWN_SECRET", "ours")
    monkeypatch.setenv("LC_TIME", "C")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    settings = server(tmp_path, code, env={"TOKEN": "Bearer {{secret:KEY}}", "PLAIN": "x"}, isolation=isolation)
    async with talking(tmp_path / "home", settings, secrets={"KEY": "k1"}) as talk:
        found = json.loads(await talk.line())
    assert found["TOKEN"] == "Bearer k1" and found["PLAIN"] == "x" and found["LC_TIME"] == "C"
    usual = {"PATH", "HOME", "TMPDIR", "LANG", "LANGUAGE", "TZ", "PWD", "TOKEN", "PLAIN"}
    assert {name for name in found if name not in usual and not name.startswith("LC_")} <= {"__CF_USER_TEXT_ENCODING"}


async def test_a_secret_that_is_not_set_is_named(tmp_path: Path) -> None:
    settings = server(tmp_path, "", env={"TOKEN": "{{secret:NOWHERE}}"})
    with pytest.raises(CallError, match="NOWHERE"):
        async with talking(tmp_path / "home", settings):
            pass


@pytest.mark.parametrize("jail", JAILS)
async def test_its_home_is_empty_and_gone_afterwards(tmp_path: Path, jail: Jail) -> None:
    code = """
import os, tempfile
assert os.listdir(os.environ["HOME"]) == []
open(os.path.join(os.environ["HOME"], ".state"), "w").write("x")
with tempfile.NamedTemporaryFile() as file: file.write(b"x")
print("fine", flush=True)
"""
    for _ in range(2):
        async with talking(tmp_path / "home", server(tmp_path, code), jail=jail) as talk:
            assert await talk.line() == "fine", await talk.errors()


async def test_a_script_brings_its_project_along_and_nothing_more(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "node_modules" / "word").mkdir(parents=True)
    (project / "package.json").write_text("{}")
    (project / "node_modules" / "word" / "index.js").write_text("module.exports = 'found';")
    (tmp_path / "beside").write_text("not for it")
    code = f"""
console.log(require('word'), process.cwd());
try {{ require('fs').readFileSync('{tmp_path}/beside'); console.log('seen'); }} catch (e) {{ console.log(e.code); }}
"""
    async with talking(tmp_path / "home", node_server(project, code)) as talk:
        assert (await talk.line()).startswith("found ")
        assert await talk.line() == "ENOENT"


async def test_it_works_where_its_settings_say(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "note").write_text("here")
    async with talking(tmp_path / "home", server(tmp_path, "print(open('note').read())", cwd=place)) as talk:
        assert await talk.line() == "here", await talk.errors()


async def test_it_may_run_for_as_long_as_it_is_wanted(tmp_path: Path) -> None:
    """No limit of time is set, of the clock or of the processor."""
    code = "import resource\nprint(resource.getrlimit(resource.RLIMIT_CPU)[0] == resource.RLIM_INFINITY)"
    async with talking(tmp_path / "home", server(tmp_path, code)) as talk:
        assert await talk.line() == "True"


# -- limits


@pytest.mark.parametrize("jail", JAILS)
async def test_all_its_processes_together_have_the_memory_of_its_settings(tmp_path: Path, jail: Jail) -> None:
    code = """
import os, sys, time
def take(megabytes):
    held = bytearray(megabytes << 20)
    for place in range(0, len(held), 4096): held[place] = 1
    return held
kept = take(40)
print("control", flush=True)
for _ in range(6):
    if not os.fork(): kept = take(60); time.sleep(30); os._exit(0)
time.sleep(30)
print("all of it", flush=True)
"""
    async with talking(tmp_path / "home", server(tmp_path, code, memory_mb=160), jail=jail) as talk:
        assert await talk.all() == "control"
        assert await talk.program.box.wait() == -9
        assert talk.program.box.stopped == "memory"


async def test_it_can_be_asked_to_end(tmp_path: Path) -> None:
    code = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("bye", flush=True), sys.exit(3)))
print("up", flush=True)
time.sleep(60)
"""
    async with talking(tmp_path / "home", server(tmp_path, code)) as talk:
        assert await talk.line() == "up"
        talk.program.terminate()
        assert await talk.line() == "bye"
        async with asyncio.timeout(30):
            assert await talk.program.box.wait() == 3


# -- the network


ECHO = """
import os, socket, sys, urllib.request
name, port = sys.argv[1], int(sys.argv[2])
with socket.create_connection((name, port), 10) as there:
    there.sendall(b"ping\\n")
    print(there.makefile().readline().strip(), there.getpeername()[0], flush=True)
"""


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((await reader.readline()).upper())
    await writer.drain()
    writer.close()


@pytest.mark.parametrize("jail", JAILS)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "database.example"])
async def test_what_speaks_no_http_is_reached_by_its_own_name_and_port(tmp_path: Path, jail: Jail, host: str) -> None:
    """As a database's driver would: with the address that stands in its URL."""
    there = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = there.sockets[0].getsockname()[1]

    async def resolve(name: str, _port: int) -> list[str]:
        assert name == host
        return ["127.0.0.1"]

    settings = server(tmp_path, ECHO, domains=(f"{host}:{port}",))
    settings = settings.model_copy(update={"command": (*settings.command, host, str(port))})
    async with there, talking(tmp_path / "home", settings, jail=jail, resolve=resolve) as talk:
        line = await talk.line()
        assert line.startswith("PING 127."), (line, await talk.errors())
        assert talk.program.network == "domains"


async def test_low_ports_are_reached_as_well(tmp_path: Path) -> None:
    """Programs that know no proxy connect to port 443 of a name."""
    code = "import socket\nfor port in (443, 80): print(socket.create_connection(('api.example', port), 5).getpeername()[1])"
    async with talking(tmp_path / "home", server(tmp_path, code, domains=("api.example",))) as talk:
        assert await talk.line() == "443", await talk.errors()
        assert await talk.line() == "80"


@pytest.mark.parametrize("jail", JAILS)
async def test_the_hosts_network_is_given_where_it_is_asked_for(tmp_path: Path, jail: Jail) -> None:
    there = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = there.sockets[0].getsockname()[1]
    settings = server(tmp_path, ECHO, network="host")
    settings = settings.model_copy(update={"command": (*settings.command, "127.0.0.1", str(port))})
    async with there, talking(tmp_path / "home", settings, jail=jail) as talk:
        assert await talk.line() == "PING 127.0.0.1", await talk.errors()
        assert talk.program.network == "host"


def test_both_spellings_of_the_proxy_are_set() -> None:
    found = proxy_variables(1234)
    assert found["HTTPS_PROXY"] == found["https_proxy"] == found["all_proxy"] == "http://127.0.0.1:1234"
    assert found["NODE_USE_ENV_PROXY"] == "1"


# -- what is refused


async def refusal(home: Path, settings: ServerSettings) -> Unreachable:
    with pytest.raises(Unreachable) as refused:
        async with talking(home, settings):
            pass
    assert refused.value.suggestion
    return refused.value


async def test_landlock_alone_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    sandbox = Sandbox(SandboxSettings(backend="landlock"))

    async def untried() -> Landlock:
        return Landlock()

    sandbox.server_jail = untried  # type: ignore[method-assign]  # the trial wants an interpreter that all can reach
    settings = asked().model_copy(update={"domains": ("api.example",)})
    with pytest.raises(Unreachable, match="some hosts and no others") as refused:
        await launch_server("some", settings, lambda _: None, sandbox, tmp_path)
    assert refused.value.code == "SANDBOX_UNAVAILABLE"


@pytest.mark.parametrize("said", [{}, {"isolation": "required"}, {"isolation": "auto"}], ids=str)
async def test_a_server_is_not_started_where_no_jail_holds_it(tmp_path: Path, said: dict[str, Any]) -> None:
    """Unless the operator wrote `none`. An older word means the same as nothing said."""
    sandbox = Sandbox(SandboxSettings(backend="docker", docker_command="no-such-program"))
    sandbox.server_jail = sandbox.jail  # type: ignore[method-assign]  # as on a machine that has none at all
    try:
        settings = ServerSettings(command=asked().command, **said)
        assert settings.isolation == "required"
        with pytest.raises(Unreachable) as refused:
            await launch_server("strict", settings, lambda _: None, sandbox, tmp_path)
        assert refused.value.code == "SANDBOX_UNAVAILABLE"
        assert "isolation: none" in (refused.value.suggestion or "")
        loose = settings.model_copy(update={"isolation": "none"})
        program = await launch_server("loose", loose, lambda _: None, sandbox, tmp_path)
        try:
            assert (program.jail, program.network) == (None, "host")
            assert await program.box.read(100) == b"hi\n"
        finally:
            await program.close()
    finally:
        await sandbox.close()


async def test_the_limits_of_a_server_are_narrow_unless_somebody_widens_them() -> None:
    settings = ServerSettings(command=("x",))
    assert (settings.timeout, settings.memory_mb, settings.output_bytes) == (30, 256, 1_048_576)


async def test_containers_do_not_hold_servers_but_something_else_does(tmp_path: Path) -> None:
    sandbox = Sandbox(SandboxSettings(backend="docker", docker_command="no-such-program"))
    try:
        program = await launch_server("held", asked(), lambda _: None, sandbox, tmp_path)
        assert program.jail in (*JAILS, "landlock")
        await program.close()
    finally:
        await sandbox.close()


@pytest.mark.parametrize(
    ("word", "says"), [("no-such-program-here", "not installed"), ("./missing", "not installed"), ("npx", "`npm`")]
)
async def test_a_program_that_cannot_be_had_is_explained(tmp_path: Path, word: str, says: str) -> None:
    assert says in str(await refusal(tmp_path, ServerSettings(command=(word, "-y", "thing"))))


@pytest.mark.parametrize("what", ["/", "~", "/proc", "missing", "~/.ssh", "toolgate"])
@pytest.mark.sample(4)
async def test_folders_that_nobody_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    person, home = tmp_path / "person", tmp_path / "toolgate"
    (person / ".ssh").mkdir(parents=True)
    (person / ".ssh" / "id_rsa").write_text("key")
    home.mkdir()
    monkeypatch.setenv("HOME", str(person))
    path = home if what == "toolgate" else Path(what if what[0] in "/~" else tmp_path / what)
    for field in ("read", "write"):
        error = await refusal(home, asked().model_copy(update={field: (path,)}))
        assert error.code in ("SECURITY_VIOLATION", "CONNECTION_ERROR")


async def test_domains_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    error = await refusal(tmp_path, asked().model_copy(update={"domains": ("https://example.com/",)}))
    assert "'https://example.com/' is not a host" in str(error)


async def test_nothing_is_left_of_one_that_was_closed(tmp_path: Path) -> None:
    """No process, no descriptor, no listener."""
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    sandbox = Sandbox(SandboxSettings())
    settings = ServerSettings(command=(sys.executable, "-c", "input()"), domains=("api.example", "db.example:5432"))
    for _ in range(3):
        program = await launch_server("closed", settings, lambda _: None, sandbox, tmp_path)
        await program.close()
        await program.close()
        assert not program.box.is_alive()
    await sandbox.close()
    await asyncio.sleep(0)
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # noqa: PTH208
