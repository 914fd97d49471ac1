"""Commands with a network: the hosts that their entry of `commands.allow` names, and nothing else.

Everything is on loopback: `registry.test` is a name that only the test's resolver knows, so what reaches it went through
the proxy, and what does not is refused.
"""

import asyncio
import gzip
import io
import json
import os
import subprocess
import zipfile
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.certificates import trusted_certificate
from tests.loopback import Asked, Said, Site, site
from tests.npm_registry import npm_registry
from tests.terminal import Terminal
from toolgate import App, Outcome
from toolgate.errors import InvalidInput, SettingsError
from toolgate.gates.approval.request import Answer, ApprovalRequest, GrantTerms
from toolgate.model import LOCAL, Call
from toolgate.sandbox.git_credentials import git_login
from toolgate.sandbox.jails.docker import Docker
from toolgate.sandbox.jails.landlock import Landlock
from toolgate.settings.load import load_settings

QUICK = {
    "test_a_command_reaches_the_hosts_of_its_entry_and_no_others",
    "test_there_is_no_way_out_but_the_proxy",
    "test_a_jail_that_cannot_filter_refuses",
    "test_a_command_that_needs_a_network_and_has_none_is_refused_before_anybody_is_asked",
    "test_the_most_exact_entry_decides",
    "test_a_faulty_entry_is_refused_with_its_fault",
    "test_whoever_approves_sees_the_hosts",
    "test_an_approval_ends_when_other_hosts_are_named",
    "test_credentials_leave_the_arguments_of_git",
    "test_docker_is_refused_whatever_hosts_are_named",
}

pytestmark = [
    pytest.mark.requirement("BUILTIN-3"), pytest.mark.requirement("SBX-3"), pytest.mark.requirement("TIER-3"),
    pytest.mark.needs("curl"),
]  # fmt: skip
HOST, OTHER = "registry.test", "other.test"
JAILS = ("bubblewrap", "namespaces")
SESSION = "s"


async def resolve(host: str, _port: int) -> list[str]:
    if host in (HOST, OTHER):
        return ["127.0.0.1"]
    raise OSError("there is no such host")


@asynccontextmanager
async def opened(home: Path, allow: Sequence[Any], jail: str = "auto", **more: Any) -> AsyncIterator[App]:
    sandbox = {"backend": jail, **more.pop("sandbox", {})}
    settings = {"commands": {"allow": list(allow)}, "sandbox": sandbox, **more}
    async with App.open(os.devnull, home=home, **settings) as app:
        app.parts.sandbox.resolve = resolve
        app.approvals.add_approver(lambda _request: True)
        yield app


async def run(app: App, command: str, *args: str) -> Outcome:
    return await app.invoke("execute_command", {"command": command, "args": list(args)}, session=SESSION)


def session_folder(app: App) -> Path:
    return app.parts.places.of(Call("", "execute_command", {}, LOCAL, SESSION))


def failed(outcome: Outcome, code: str) -> str:
    assert outcome.error is not None, outcome
    assert outcome.error.code == code, outcome.error
    return f"{outcome.error.message} {outcome.error.suggestion}"


async def hello(asked: Asked) -> Said:
    return Said(200, f"hello from {asked.headers['host']}")


@pytest.fixture
async def server() -> AsyncIterator[Site]:
    async with site(hello) as found:
        yield found


@pytest.fixture
async def another() -> AsyncIterator[Site]:
    async with site(hello) as found:
        yield found


# -- what is reached


@pytest.mark.parametrize("jail", JAILS)
async def test_a_command_reaches_the_hosts_of_its_entry_and_no_others(
    tmp_path: Path, server: Site, another: Site, jail: str
) -> None:
    allow = [{"command": "curl", "hosts": [f"{HOST}:{server.port}"]}]
    async with opened(tmp_path / "home", allow, jail) as app:
        there = await run(app, "curl", "-sS", f"http://{HOST}:{server.port}/a")
        assert there.output == {"stdout": f"hello from {HOST}:{server.port}", "stderr": "", "exitCode": 0}
        assert f"host:{HOST}:{server.port}" in (there.metrics.resources_used or ())
        for url in (
            f"http://{OTHER}:{another.port}/",
            f"http://{HOST}:{another.port}/",
            f"http://127.0.0.1:{another.port}/",
            f"http://localhost:{another.port}/",
            f"http://[::1]:{another.port}/",
            f"http://{OTHER}:{server.port}/",
        ):
            refused = await run(app, "curl", "-sSf", "--max-time", "5", url)
            assert refused.ok and refused.output["exitCode"] != 0, url
    assert [asked.path for asked in server.asked] == ["/a"]
    assert another.asked == []


PROBE = """
import json, socket, urllib.request
found = {}
def attempt(name, do):
    try:
        found[name] = str(do())
    except Exception as error:
        found[name] = f"no: {type(error).__name__}"
attempt("dns", lambda: socket.getaddrinfo("example.com", 443))
attempt("direct", lambda: socket.create_connection(("192.0.2.1", 80), 3))
attempt("metadata", lambda: socket.create_connection(("169.254.169.254", 80), 3))
attempt("host loopback", lambda: socket.create_connection(("127.0.0.1", OTHER_PORT), 3))
attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53)))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("unix", lambda: socket.socket(socket.AF_UNIX))
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
attempt("named", lambda: urllib.request.urlopen("http://HOST:PORT/", timeout=5).read().decode())
attempt("forwarded", lambda: socket.create_connection(("HOST", PORT), 3).getpeername()[0])
print(json.dumps(found))
"""


@pytest.mark.parametrize("jail", JAILS)
async def test_there_is_no_way_out_but_the_proxy(tmp_path: Path, server: Site, another: Site, jail: str) -> None:
    allow = [{"command": "python3", "hosts": [f"{HOST}:{server.port}"]}]
    code = PROBE.replace("OTHER_PORT", str(another.port)).replace("HOST", HOST).replace("PORT", str(server.port))
    async with opened(tmp_path / "home", allow, jail) as app:
        ran = await run(app, "python3", "-c", code)
    found = json.loads(ran.output["stdout"])
    assert found.pop("named") == f"hello from {HOST}:{server.port}"
    assert found.pop("forwarded").startswith("127.77."), "a program without proxy support works as well"
    assert len(found) == 8
    assert all(answer.startswith("no: ") for answer in found.values()), found
    assert another.asked == []


async def test_a_redirect_to_another_host_is_refused(tmp_path: Path, another: Site) -> None:
    async def moved(_asked: Asked) -> Said:
        return Said(302, "", {"location": f"http://{OTHER}:{another.port}/stolen"})

    async with site(moved) as server:
        hosts = [f"{HOST}:{server.port}"]
        async with opened(tmp_path / "home", [{"command": "curl", "hosts": hosts}]) as app:
            ran = await run(app, "curl", "-sSL", f"http://{HOST}:{server.port}/")
        assert "is not in commands.allow" in ran.output["stdout"], ran
        assert [asked.path for asked in server.asked] == ["/"]
    assert another.asked == []


async def test_a_name_that_leads_to_a_private_address_is_refused_unless_its_port_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", [{"command": "curl", "hosts": [HOST]}]) as app:
        ran = await run(app, "curl", "-sS", f"http://{HOST}/")
    assert "resolves to a private address" in ran.output["stdout"]


@pytest.mark.needs("npm")
async def test_node_uses_the_proxy(tmp_path: Path, server: Site) -> None:
    code = "fetch(process.argv[1]).then(r => r.text()).then(t => console.log(t))"
    async with opened(tmp_path / "home", [{"command": "node", "hosts": [f"{HOST}:{server.port}"]}]) as app:
        ran = await run(app, "node", "-e", code, f"http://{HOST}:{server.port}/")
    assert ran.output["stdout"] == f"hello from {HOST}:{server.port}\n", ran


async def test_tls_goes_through_the_proxy_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(hello, trusted_certificate([HOST], tmp_path, monkeypatch)) as server:
        named = f"{HOST}:{server.port}"
        async with opened(tmp_path / "home", [{"command": "curl", "hosts": [named]}]) as app:
            trusting = await run(app, "curl", "-sSk", f"https://{named}/")
            assert trusting.output["stdout"] == f"hello from {named}", trusting
            wary = await run(app, "curl", "-sS", f"https://{named}/")
            assert wary.output["exitCode"] == 60, "its certificate is not trusted, and nobody stands between"


@pytest.mark.needs("npm")
async def test_npm_and_npx_fetch_packages_in_the_sandbox(tmp_path: Path) -> None:
    async with npm_registry() as registry:
        registry.add("hi", "1.0.0", {"cli.js": "#!/usr/bin/env node\nconsole.log('hi from the package')"}, bin="cli.js")
        given = f"--registry={registry.url}"
        allow = [{"command": word, "hosts": [registry.named]} for word in ("npm install", "npx")]
        async with opened(tmp_path / "home", allow, sandbox={"memory_mb": 1024, "processes": 256}) as app:
            ran = await run(app, "npx", "--yes", given, "hi")
            assert ran.output["stdout"] == "hi from the package\n", ran
            installed = await run(app, "npm install", given, "--no-audit", "hi")
            assert installed.output["exitCode"] == 0, installed
            assert (session_folder(app) / "node_modules/hi/cli.js").exists()
        assert registry.fetched == ["hi-1.0.0.tgz"] * 2


@pytest.mark.needs("pip")
async def test_pip_fetches_packages_in_the_sandbox(tmp_path: Path) -> None:
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("hi.py", "")
        archive.writestr("hi-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: hi\nVersion: 1.0\n")
        archive.writestr("hi-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("hi-1.0.dist-info/RECORD", "")

    async def index(asked: Asked) -> Said:
        if asked.path.endswith(".whl"):
            return Said(200, wheel.getvalue(), {"content-type": "application/zip"})
        return Said(200, '<a href="/hi-1.0-py3-none-any.whl">hi-1.0-py3-none-any.whl</a>')

    async with site(index) as server:
        named = f"{HOST}:{server.port}"
        allow = [{"command": "python3 -m pip", "hosts": [named]}]
        async with opened(tmp_path / "home", allow, sandbox={"memory_mb": 1024}) as app:
            words = ("download", "--no-deps", f"--index-url=http://{named}/simple", f"--trusted-host={HOST}", "hi")
            ran = await run(app, "python3 -m pip", *words)
            assert ran.output["exitCode"] == 0, ran
            assert (session_folder(app) / "hi-1.0-py3-none-any.whl").exists()
        assert {asked.path for asked in server.asked} == {"/simple/hi/", "/hi-1.0-py3-none-any.whl"}


@pytest.mark.parametrize("unfiltered", [Landlock(), Docker(image="any")], ids=["landlock", "docker"])
async def test_a_jail_that_cannot_filter_refuses(tmp_path: Path, server: Site, unfiltered: Any) -> None:
    async def untried() -> Any:
        return unfiltered  # the trial wants an interpreter that all can reach, or an engine

    async with opened(tmp_path / "home", [{"command": "curl", "hosts": [f"{HOST}:{server.port}"]}]) as app:
        app.parts.sandbox.jail = untried  # type: ignore[method-assign]
        words = failed(await run(app, "curl", f"http://{HOST}:{server.port}/"), "SANDBOX_UNAVAILABLE")
    assert "some hosts" in words and "bubblewrap" in words
    assert server.asked == []


# -- what is refused at once


FETCHING = (
    "npm install", "npm i left-pad", "npm ci", "npm update", "npm add x", "timeout 5 npm install", "npx create-thing",
    "npx -y @scope/tool@latest", "git push", "git push origin main", "git pull", "git fetch", "git clone https://x.test/y",
    "pip install x", "pip3 install x", "python3 -m pip install x", "yarn", "yarn add x", "pnpm install", "curl http://x.test/",
    "wget http://x.test/", "uv pip install x", "cargo install x", f"npx {'x' * 300}",
)  # fmt: skip


async def test_a_command_that_needs_a_network_and_has_none_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    asked: list[ApprovalRequest] = []
    async with App.open(os.devnull, home=tmp_path / "home", commands={"allow": ["*"]}) as app:
        app.approvals.add_approver(lambda request: asked.append(request))
        for command in FETCHING:
            words = failed(await run(app, command), "SECURITY_VIOLATION")
            assert "commands.allow" in words and "hosts: [HOST]" in words, (command, words)
            assert ("needs a network and has none" in words) != ("not installed here, and has no network" in words), words
    assert asked == []


@pytest.mark.parametrize("command", ["docker build .", "docker pull x", "podman run x", "docker-compose up"])
async def test_docker_is_refused_whatever_hosts_are_named(tmp_path: Path, command: str) -> None:
    allow = [{"command": command.split()[0], "hosts": ["registry.example.com"]}]
    async with opened(tmp_path / "home", allow) as app:
        words = failed(await run(app, command), "SECURITY_VIOLATION")
    assert "daemon" in words and "docker_run" in words and "has none" not in words


async def test_allowed_commands_that_lack_a_network_are_named_apart(tmp_path: Path) -> None:
    allow = ["npm run", "npm install", "docker build", {"command": "git push", "hosts": ["git.example.com"]}]
    async with opened(tmp_path / "home", allow) as app:
        words = failed(await run(app, "ls -la"), "SECURITY_VIOLATION")
    assert (
        "Allowed commands: npm run, git push; these lack a network or a daemon in the sandbox: npm install, docker build"
        in words
    )


async def test_a_package_that_is_installed_needs_no_network(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", ["npx tool", "ls", "git clone", "npm install"]) as app:
        assert (await run(app, "ls")).ok
        folder = session_folder(app)
        (folder / "node_modules/.bin").mkdir(parents=True)
        (folder / "node_modules/.bin/tool").write_text("#!/bin/sh\necho here\n")
        for command in ("npx tool", "npm install --offline", "git clone ./other"):
            outcome = await run(app, command)
            assert outcome.ok, (command, outcome.error)


async def test_an_empty_list_of_hosts_says_that_none_is_needed(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", [{"command": "curl", "hosts": []}]) as app:
        ran = await run(app, "curl", "-sS", "file:///etc/hostname-of-nobody")
    assert ran.ok and ran.output["exitCode"] != 0


async def test_the_most_exact_entry_decides(tmp_path: Path, server: Site) -> None:
    named = f"{HOST}:{server.port}"
    allow = [{"command": "curl", "hosts": [named]}, {"command": "curl -s", "hosts": []}, "timeout"]
    async with opened(tmp_path / "home", allow) as app:
        assert (await run(app, "timeout 9 curl", f"http://{named}/")).output["stdout"] == f"hello from {named}"
        assert (await run(app, "curl -s", f"http://{named}/")).output["exitCode"] != 0
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({"command": "npm install", "hosts": ["http://x"]}, "is not a host"),
        ({"command": "npm install", "hosts": ["10.0.0.1"]}, "name it with its port"),
        ({"command": "npm install", "hosts": "x"}, "hosts"),
        ({"command": " ", "hosts": []}, "no beginning of a command"),
        ({"command": "npm install"}, "hosts"),
        ({"command": "npm install", "hosts": [], "more": 1}, "more"),
        (1, "string"),
    ],
    ids=str,
)
def test_a_faulty_entry_is_refused_with_its_fault(entry: Any, fault: str) -> None:
    with pytest.raises(SettingsError, match=fault):
        load_settings(os.devnull, {"commands": {"allow": [entry]}}, {})


# -- what a person is shown


async def test_whoever_approves_sees_the_hosts(tmp_path: Path, server: Site) -> None:
    named, requests = f"{HOST}:{server.port}", list[ApprovalRequest]()

    def approve(request: ApprovalRequest) -> bool:
        requests.append(request)
        return True

    allow = ["echo", {"command": "curl", "hosts": [named]}]
    async with App.open(os.devnull, home=tmp_path / "home", commands={"allow": allow}) as app:
        app.parts.sandbox.resolve = resolve
        arguments = {"command": "curl", "args": [f"http://{named}/"]}
        waiting = await app.invoke("execute_command", arguments, session=SESSION)
        assert waiting.pending is not None
        shown = await app.approvals.get(waiting.pending.id, "default")
        assert f"it may reach {named}, and no other host" in shown.request.reason
        assert named in shown.request.text()
        explained = await app.explain("execute_command", arguments, session=SESSION)
        assert explained.verdict == "ask"
        assert f"it may reach {named}" in explained.reason
        app.approvals.add_approver(approve)
        assert (await run(app, "echo", "x")).ok
        assert "reach" not in requests[-1].reason
    assert server.asked == []


def test_the_hosts_are_shown_at_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    hosts = ["registry.example.com", "*.cdn.example.com"]
    terminal.settings(json.dumps({"commands": {"allow": ["npm ci", {"command": "npm install", "hosts": hosts}]}}))
    waiting = terminal("call", "execute_command", "command=npm install", "--session", SESSION, "--json")
    assert waiting.code == 3, waiting
    id = waiting.json["pending"]["id"]
    for words in (("approvals", "show", id), ("explain", "execute_command", "command=npm install", "--session", SESSION)):
        shown = " ".join(terminal(*words).out.split())
        assert "it may reach registry.example.com, *.cdn.example.com, and no other host" in shown, shown
    refused = terminal("call", "execute_command", "command=npm ci", "--session", SESSION)
    assert refused.code == 1 and "commands.allow" in refused.err


async def test_a_grant_for_commands_is_none_for_those_that_reach_hosts(tmp_path: Path, server: Site) -> None:
    named, asked = f"{HOST}:{server.port}", list[str]()

    def approve(request: ApprovalRequest) -> Answer:
        asked.append(request.reason)
        return Answer("approve", grant=GrantTerms("session", 600))

    async with App.open(
        os.devnull, home=tmp_path / "home", commands={"allow": ["echo", {"command": "curl", "hosts": [named]}]}
    ) as app:
        app.parts.sandbox.resolve = resolve
        app.approvals.add_approver(approve)
        for _ in range(2):
            assert (await run(app, "echo", "x")).ok
        assert len(asked) == 1
        for _ in range(2):
            assert (await run(app, "curl", f"http://{named}/")).output["exitCode"] == 0
        assert len(asked) == 2 and named in asked[1]


async def test_an_approval_ends_when_other_hosts_are_named(tmp_path: Path, server: Site, another: Site) -> None:
    arguments = {"command": "curl", "args": [f"http://{HOST}:{server.port}/"]}
    home, first, second = tmp_path / "home", f"{HOST}:{server.port}", f"{OTHER}:{another.port}"
    async with App.open(os.devnull, home=home, commands={"allow": [{"command": "curl", "hosts": [first]}]}) as app:
        waiting = await app.invoke("execute_command", arguments, session=SESSION)
        assert waiting.pending is not None
        await app.approvals.answer(waiting.pending.id, True)
    async with App.open(os.devnull, home=home, commands={"allow": [{"command": "curl", "hosts": [first, second]}]}) as app:
        words = failed(await app.approvals.resume(waiting.pending.id), "PERMISSION_DENIED")
        assert "hosts" in words
    assert server.asked == another.asked == []


async def test_an_edit_cannot_reach_what_was_not_shown(tmp_path: Path, server: Site) -> None:
    named = f"{HOST}:{server.port}"

    def edit(_request: ApprovalRequest) -> Answer:
        return Answer("edit", arguments={"command": "curl", "args": [f"http://{named}/"]})

    async with App.open(
        os.devnull, home=tmp_path / "home", commands={"allow": ["echo", {"command": "curl", "hosts": [named]}]}
    ) as app:
        app.parts.sandbox.resolve = resolve
        app.approvals.add_approver(edit)
        words = failed(await run(app, "echo", "x"), "PERMISSION_DENIED")
        assert named in words
    assert server.asked == []


CUSTOM = """\
name: look
description: Look something up.
schema: {type: object}
runtime: python
permissions: {riskLevel: high, allowlist: [{command: "curl -sS URL", hosts: ["HOSTS"]}]}
code: |
  def execute(args, context):
      return context.platform.executor.execute("curl -sS URL")["stdout"]
"""


async def test_a_custom_tool_can_name_hosts_which_whoever_agrees_to_it_sees(tmp_path: Path, server: Site) -> None:
    named, home, requests = f"{HOST}:{server.port}", tmp_path / "home", list[ApprovalRequest]()

    def approve(request: ApprovalRequest) -> bool:
        requests.append(request)
        return True

    (home / "tools").mkdir(parents=True)
    (home / "tools/look.yml").write_text(CUSTOM.replace("URL", f"http://{named}/x").replace("HOSTS", named))
    async with App.open(os.devnull, home=home, commands={"allow": []}) as app:
        app.parts.sandbox.resolve = resolve
        app.approvals.add_approver(approve)
        outcome = await app.invoke("look", {}, session=SESSION)
    assert outcome.output == f"hello from {named}", outcome
    assert [request.tool for request in requests] == ["look"]
    assert f"(may reach {named})" in requests[0].reason


# -- git over HTTP, to git's own server

TOKEN = "ghp_a-token-of-this-test"
LOGIN = "Basic " + b64encode(f"x-access-token:{TOKEN}".encode()).decode()


class GitServer:
    """git http-backend; `login`: what it wants to be told before it takes a push."""

    def __init__(self, root: Path, login: str | None = None) -> None:
        self.root, self.login = root, login

    async def __call__(self, asked: Asked) -> Said:
        service = asked.query.get("service", asked.path.rpartition("/")[2])
        if self.login and service == "git-receive-pack" and asked.headers.get("authorization") != self.login:
            return Said(401, "who are you?", {"www-authenticate": 'Basic realm="git"'})
        environment = {
            "GIT_PROJECT_ROOT": str(self.root), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": asked.path, "REMOTE_USER": "tester",
            "REQUEST_METHOD": asked.method, "QUERY_STRING": urlencode(asked.query), "PATH": os.defpath,
            "CONTENT_TYPE": asked.headers.get("content-type", ""), "CONTENT_LENGTH": str(len(asked.body)),
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
        }  # fmt: skip
        body = gzip.decompress(asked.body) if asked.headers.get("content-encoding") == "gzip" else asked.body
        environment["CONTENT_LENGTH"] = str(len(body))
        backend = await asyncio.create_subprocess_exec(
            "git", "http-backend", env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await asyncio.wait_for(backend.communicate(body), 30)
        head, _, content = said.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        return Said(int(lines.pop("Status", "200 OK").split()[0]), content, lines)


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "init.defaultBranch=main")
    done = subprocess.run(("git", "-C", str(folder), *identity, *words), capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def hosted(tmp_path: Path) -> Path:
    """A bare repository with one commit, in a folder of repositories."""
    root, made = tmp_path / "hosted", tmp_path / "made"
    root.mkdir()
    made.mkdir()
    git(made, "init", "-q")
    (made / "a.txt").write_text("one\n")
    git(made, "add", ".")
    git(made, "commit", "-qm", "First")
    git(root, "clone", "-q", "--bare", str(made), "project.git")
    git(root / "project.git", "config", "http.receivepack", "true")
    return root


@pytest.mark.parametrize("jail", JAILS)
async def test_git_clones_and_pushes_over_http(tmp_path: Path, hosted: Path, jail: str) -> None:
    async with site(GitServer(hosted)) as server:
        named = [f"{HOST}:{server.port}"]
        allow = [{"command": f"git {word}", "hosts": named} for word in ("clone", "push")]
        async with opened(tmp_path / "home", allow, jail) as app:
            url = f"http://{HOST}:{server.port}/project.git"
            cloned = await run(app, "git clone", "-q", url, "copy")
            assert cloned.output["exitCode"] == 0, cloned
            folder = session_folder(app)
            assert (folder / "copy/a.txt").read_text() == "one\n"
            (folder / "copy/a.txt").write_text("two\n")
            git(folder / "copy", "-c", "safe.directory=*", "commit", "-qam", "Second")
            pushed = await app.invoke(
                "execute_command", {"command": "git push", "args": [url, "HEAD:main"], "cwd": "copy"}, session=SESSION
            )
            assert pushed.output["exitCode"] == 0, pushed
    assert git(hosted / "project.git", "show", "main:a.txt") == "two"


async def test_a_token_for_git_push_is_given_as_a_secret(
    tmp_path: Path, hosted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the arguments of a process nor what is given out hold it, and no hook of the repository runs."""
    monkeypatch.setenv("TOOLGATE_SECRET_GIT_TOKEN", TOKEN)
    tls = trusted_certificate([HOST], tmp_path, monkeypatch)
    async with site(GitServer(hosted)) as plain, site(GitServer(hosted, LOGIN), tls) as server:
        named = f"{HOST}:{server.port}"
        allow = [{"command": "git clone", "hosts": [f"{HOST}:{plain.port}"]}, {"command": "git push", "hosts": [named]}]
        secrets = {"use": {"GIT_TOKEN": [{"tool": "execute_command", "tenant": "*", "hosts": [named]}]}}
        async with opened(tmp_path / "home", allow, secrets=secrets) as app:
            cloned = await run(app, "git clone", "-q", f"http://{HOST}:{plain.port}/project.git", "copy")
            assert cloned.output["exitCode"] == 0
            folder = session_folder(app) / "copy"
            git(folder, "-c", "safe.directory=*", "commit", "-q", "--allow-empty", "-m", "Second")
            with (folder / ".git/config").open("a") as settings:  # git would put a file of ours in its place
                settings.write("[http]\n\tsslVerify = false\n")
            hook = folder / ".git/hooks/pre-push"
            hook.write_text("#!/bin/sh\nenv; exit 1\n")
            hook.chmod(0o755)
            before = git(hosted / "project.git", "rev-parse", "main")

            async def push(url: str) -> Outcome:
                arguments = {"command": "git push", "args": [url, "HEAD:main"], "cwd": "copy"}
                return await app.invoke("execute_command", arguments, session=SESSION)

            place, secret = f"{named}/project.git", "{{secret:GIT_TOKEN}}"
            refused = await push(f"https://x-access-token:wrong@{place}")
            assert "could not read Username" in refused.output["stderr"], refused
            failed(await push(f"http://x-access-token:{secret}@{place}"), "INVALID_INPUT")
            assert git(hosted / "project.git", "rev-parse", "main") == before
            pushed = await push(f"https://x-access-token:{secret}@{place}")
            assert pushed.output["exitCode"] == 0, pushed
            assert TOKEN not in str(pushed.to_dict()) and LOGIN not in str(pushed.to_dict())
            assert git(hosted / "project.git", "rev-parse", "main") != before


async def test_a_secret_is_given_to_a_command_only_if_it_is_named_for_all_its_hosts(
    tmp_path: Path, server: Site, another: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_GIT_TOKEN", TOKEN)
    one, other = f"{HOST}:{server.port}", f"{OTHER}:{another.port}"
    for hosts, reached, fits in (
        ([one], [one], True),
        ([one], [one, other], False),
        ([], [one], False),
        ([one, other], [one], True),
    ):
        secrets = {"use": {"GIT_TOKEN": [{"tool": "execute_command", "tenant": "*", "hosts": hosts}]}}
        async with opened(tmp_path / "home", [{"command": "curl", "hosts": reached}], secrets=secrets) as app:
            outcome = await run(app, "curl", "-sS", "-H", "x-token: {{secret:GIT_TOKEN}}", f"http://{one}/")
        if fits:
            assert server.asked.pop().headers["x-token"] == TOKEN, outcome
        else:
            assert "hosts: [" in failed(outcome, "PERMISSION_DENIED")
        assert server.asked == another.asked == []


def test_credentials_leave_the_arguments_of_git() -> None:
    login = git_login(["git", "push", "https://ann:p%40ss@git.example.com:8443/a/b.git", "HEAD:main"])
    assert login.words == ["git", "push", "https://git.example.com:8443/a/b.git", "HEAD:main"]
    assert "ann" not in str(login.words) and "p@ss" in login.values
    settings = {login.environment[f"GIT_CONFIG_KEY_{n}"]: login.environment[f"GIT_CONFIG_VALUE_{n}"] for n in range(2)}
    assert settings == {
        "http.https://git.example.com:8443/.extraHeader": "Authorization: Basic " + b64encode(b"ann:p@ss").decode(),
        "core.hooksPath": "/dev/null",
    }
    assert login.environment["GIT_ALLOW_PROTOCOL"] == "https"
    with pytest.raises(InvalidInput, match="unencrypted"):
        git_login(["git", "push", "http://ann:secret@git.example.com/a.git"])
    assert git_login(["git", "push", "origin"]).environment == {"GIT_TERMINAL_PROMPT": "0"}
