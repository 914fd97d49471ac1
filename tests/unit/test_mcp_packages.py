"""Packages that are servers: which names are taken, what is installed, and what does not run while it is. The registries are
the test's own, so that packages can be as bad as they like."""

import asyncio
import base64
import fcntl
import hashlib
import io
import json
import os
import socket
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mcp_servers import descriptors
from tests.needs import need
from toolgate import App
from toolgate.mcp.client import packages
from toolgate.mcp.client.errors import Unreachable
from toolgate.mcp.client.executables import LaunchCommand, find_command, find_program, package_setting, required_paths
from toolgate.mcp.client.packages import InstalledPackage, PackageSpec
from toolgate.settings import ServerSettings

pytestmark = pytest.mark.requirement("MCP-2", "MCP-3")

# -- names


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"npm": "thing"}, PackageSpec("npm", "thing", None)),
        ({"npm": "thing@1.2.3"}, PackageSpec("npm", "thing", "1.2.3")),
        ({"npm": "@scope/thing"}, PackageSpec("npm", "@scope/thing", None)),
        ({"npm": "@scope/thing@2026.8.31"}, PackageSpec("npm", "@scope/thing", "2026.8.31")),
        ({"npm": "thing@1.0.0-beta.1+build"}, PackageSpec("npm", "thing", "1.0.0-beta.1+build")),
        ({"pypi": "mcp-server-git"}, PackageSpec("pypi", "mcp-server-git", None)),
        ({"pypi": "mcp_server.git==2026.10.19"}, PackageSpec("pypi", "mcp_server.git", "2026.10.19")),
        ({"pypi": "thing[extra,more]==1.0rc1"}, PackageSpec("pypi", "thing", "1.0rc1", "[extra,more]")),
    ],
)
def test_plain_names_are_taken(settings: dict[str, str], wanted: PackageSpec) -> None:
    assert packages.wanted(ServerSettings(**settings)) == wanted


NPM_BAD = (
    "", " ", "../x", "./x", "/etc/x", "-g", "--global", "@../x", "@scope/../x", "file:x", "file:../x",
    "git+https://x/y.git", "https://x/y.tgz", "github:a/b", "a/b", "npm:other@1.0.0", "thing@npm:other@1.0.0",
    "thing@file:../x", "thing@git+ssh://x", "thing@latest", "thing@^1.0.0", "thing@1.x", "thing@*", "thing@>=1.0.0",
    "thing@1.2.3 --global", "thing other", "Thing\n", "thing@1.2.3\nother", "thing;id", "$(id)", "`id`", "thing@",
    "@scope", "@/thing", ".thing", "_thing", "thing@1.2.3@4.5.6", "x" * 300, "thing\0", "th\u0131ng",
)  # fmt: skip
PYPI_BAD = (
    "", "../x", ".", "./x", "/x", "-e .", "--index-url=http://x", "git+https://x/y", "thing @ https://x/y.whl", "file:///x",
    "thing>=1.0", "thing~=1.0", "thing!=1", "thing==1.*", "thing==1.0 --hash=x", "thing==1.0; python_version>'3'", "a b",
    "thing==", "thing==../x", "thing==1.0 other", "thing[", "thing[a b]", "-r x", "thing\nother", "x" * 300, "th\u0131ng",
    "thing-",
)  # fmt: skip


@pytest.mark.parametrize(
    "settings", [{"npm": name} for name in NPM_BAD] + [{"pypi": name} for name in PYPI_BAD], ids=lambda case: repr(case)[:40]
)
def test_whatever_else_is_refused_before_anything_is_run(settings: dict[str, str]) -> None:
    with pytest.raises(Unreachable) as refused:
        packages.wanted(ServerSettings(**settings))
    assert "Name" in (refused.value.suggestion or "")


@given(st.text(max_size=30))
def test_what_is_taken_can_only_be_a_name(text: str) -> None:
    for kind in ("npm", "pypi"):
        try:
            found = packages.wanted(ServerSettings(**{kind: text}))
        except Unreachable:
            continue
        assert found is not None and found.name.isascii()
        assert not set(found.name + (found.version or "")) & set(" \t\r\n\0:;$`'\"\\|&<>()=~^*?#")
        assert not found.name.startswith(("-", ".", "/")) and ".." not in found.name.split("/")


@given(st.text(min_size=1, max_size=80))
def test_a_servers_folder_is_always_below_the_home(name: str) -> None:
    home = Path("/home/of/toolgate")
    place = packages.place(name, home)
    assert place.parent == home / "servers"
    assert place.name not in ("", ".", "..") and len(os.fsencode(place.name)) <= 64


# -- registries


class Registry:
    """A registry for npm and an index for pip, of one folder that is served."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        (folder / "simple").mkdir()

    def npm(self, name: str, versions: dict[str, dict[str, Any]], files: dict[str, str]) -> None:
        need("npm")
        found = {}
        for version, more in versions.items():
            about = {"name": name, "version": version, **more}
            data = io.BytesIO()
            with tarfile.open(fileobj=data, mode="w:gz") as tar:
                for path, text in {**files, "package.json": json.dumps(about)}.items():
                    entry = tarfile.TarInfo(f"package/{path}")
                    entry.size = len(text)
                    tar.addfile(entry, io.BytesIO(text.encode()))
            file = f"{name.replace('/', '-').strip('@')}-{version}.tgz"
            (self.folder / file).write_bytes(data.getvalue())
            digest = "sha512-" + base64.b64encode(hashlib.sha512(data.getvalue()).digest()).decode()
            found[version] = {**about, "dist": {"tarball": f"{self.url}/{file}", "integrity": digest}}
        (self.folder / name.replace("/", "%2f")).write_text(
            json.dumps({"name": name, "versions": found, "dist-tags": {"latest": list(versions)[-1]}})
        )

    def wheel(self, name: str, version: str, files: dict[str, str], scripts: str, required_paths: str = "") -> None:
        info = f"{name}-{version}.dist-info"
        more = {
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required_paths}",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/entry_points.txt": scripts,
        }
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as wheel:
            for path, text in {**files, **more}.items():
                wheel.writestr(path, text)
            wheel.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in (*files, *more, f"{info}/RECORD")))
        self._link(name, f"{name}-{version}-py3-none-any.whl", data.getvalue())

    def source(self, name: str, version: str, files: dict[str, str]) -> None:
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as tar:
            for path, text in files.items():
                entry = tarfile.TarInfo(f"{name}-{version}/{path}")
                entry.size = len(text)
                tar.addfile(entry, io.BytesIO(text.encode()))
        self._link(name, f"{name}-{version}.tar.gz", data.getvalue())

    def _link(self, name: str, file: str, data: bytes) -> None:
        (self.folder / file).write_bytes(data)
        page = self.folder / "simple" / name.replace("_", "-") / "index.html"
        page.parent.mkdir(exist_ok=True)
        before = page.read_text() if page.exists() else "<!DOCTYPE html><html><body>"
        page.write_text(f'{before}<a href="{self.url}/{file}#sha256={hashlib.sha256(data).hexdigest()}">{file}</a>')


class Served(SimpleHTTPRequestHandler):
    def translate_path(self, path: str) -> str:
        """Names with a scope are one file here."""
        folder = self.directory
        name = path.lstrip("/").partition("?")[0]
        return str(Path(folder, name.replace("%2F", "%2f") if "%2" in name else name))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - it is called so there
        """Nobody reads it."""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    folder = tmp_path / "registry"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Served, directory=str(folder))) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{http.server_address[1]}"
        for name in [name for name in os.environ if name.lower().startswith(("pip_", "npm_config_", "uv_"))]:
            monkeypatch.delenv(name)
        for name, value in {
            "npm_config_registry": url, "npm_config_cache": str(tmp_path / "npm"), "npm_config_userconfig": os.devnull,
            "PIP_INDEX_URL": f"{url}/simple", "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        yield Registry(folder, url)
        http.shutdown()


def run(command: LaunchCommand) -> str:
    import subprocess

    return subprocess.run(command.argv, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


# -- npm

SCRIPT = "#!/usr/bin/env node\nconsole.log('started', process.argv.slice(2).join(' '));"


async def test_an_npm_package_is_installed_once_and_its_scripts_are_not_run(registry: Registry, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    scripts = {"scripts": dict.fromkeys(("preinstall", "install", "postinstall", "prepare"), f"touch {proof}")}
    registry.npm("@some/dep", {"1.0.0": scripts}, {"index.js": ""})
    about = {"bin": {"thing": "cli.js"}, "dependencies": {"@some/dep": "^1.0.0"}, **scripts}
    registry.npm("thing", {"1.0.0": about, "1.1.0": about}, {"cli.js": SCRIPT})
    settings = ServerSettings(npm="thing", command=("--stdio",))
    found = await packages.ready("mine", settings, tmp_path)
    assert isinstance(found, InstalledPackage)
    assert (found.kind, found.name, found.version) == ("npm", "thing", "1.1.0")
    assert found.digest.startswith("sha512-")
    assert packages.installed("mine", settings, tmp_path) == found
    folder = packages.folder_of("mine", PackageSpec("npm", "thing", None), tmp_path)
    lock = json.loads((folder / "package-lock.json").read_text())
    assert lock["packages"]["node_modules/@some/dep"]["integrity"].startswith("sha512-")
    assert not proof.exists()
    command = await packages.command("mine", settings, tmp_path)
    assert command is not None and run(command) == "started --stdio"
    assert folder in command.readable
    # A newer one appears; what was taken once is kept, though the registry is gone.
    for file in registry.folder.glob("thing*"):
        file.unlink()
    assert await packages.ready("mine", settings, tmp_path) == found


@pytest.mark.requirement("DOOR-6")
async def test_a_server_whose_version_nobody_named_is_shown_with_what_was_installed(
    registry: Registry, tmp_path: Path
) -> None:
    registry.npm("thing", {"1.0.0": {"bin": "cli.js"}, "2.0.0": {"bin": "cli.js"}}, {"cli.js": SCRIPT})
    async with App.open(os.devnull, home=tmp_path / "home", entry_points=False) as app:
        added = await app.servers.add("mine", {"npm": "thing"})
        assert (added.version, added.to_dict()["what"]) == (None, "npm thing")
        await packages.ready("mine", added.settings, tmp_path / "home")
        assert (await app.servers.get("mine")).to_dict()["what"] == "npm thing@2.0.0"
        named = await app.servers.add("mine", {"npm": "thing@1.0.0"}, replace=True)
        assert named.to_dict()["what"] == "npm thing@1.0.0"


@pytest.mark.matrix("installs packages")
async def test_a_named_version_is_what_is_installed(registry: Registry, tmp_path: Path) -> None:
    registry.npm("thing", {"1.0.0": {"bin": "cli.js"}, "2.0.0": {"bin": "cli.js"}}, {"cli.js": SCRIPT})
    old = await packages.ready("mine", ServerSettings(npm="thing@1.0.0"), tmp_path)
    new = await packages.ready("mine", ServerSettings(npm="thing@2.0.0"), tmp_path)
    assert old is not None and new is not None
    assert (old.version, new.version) == ("1.0.0", "2.0.0")


@pytest.mark.matrix("installs packages")
@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"bin": "../../../secret.js"}, "does not contain"),
        ({"bin": {"thing": "/etc/hostname"}}, "does not contain"),
        ({"bin": "missing.js"}, "does not contain"),
        ({}, "no program"),
        ({"bin": {"one": "cli.js", "two": "cli.js"}}, "several programs"),
    ],
)
async def test_a_package_without_an_honest_program_is_refused(
    registry: Registry, tmp_path: Path, more: dict[str, Any], says: str
) -> None:
    registry.npm("thing", {"1.0.0": more}, {"cli.js": SCRIPT})
    settings = ServerSettings(npm="thing@1.0.0")
    with pytest.raises(Unreachable, match=says):
        await packages.ready("mine", settings, tmp_path)
    assert packages.installed("mine", settings, tmp_path) is None
    assert [path.suffix for path in packages.place("mine", tmp_path).iterdir()] == [".lock"], "nothing half done is left"


async def test_one_that_is_not_there_is_explained(registry: Registry, tmp_path: Path) -> None:
    registry.npm("thing", {"1.0.0": {"bin": "cli.js"}}, {"cli.js": SCRIPT})
    with pytest.raises(Unreachable, match="could not be installed") as refused:
        await packages.ready("mine", ServerSettings(npm="thing@9.9.9"), tmp_path)
    assert "version" in (refused.value.suggestion or "")


# -- PyPI


@pytest.mark.matrix("installs packages")
async def test_a_pypi_package_has_an_environment_of_its_own(registry: Registry, tmp_path: Path) -> None:
    code = "import sys\ndef main(): print('started', *sys.argv[1:])\n"
    registry.wheel(
        "my_thing", "1.0", {"my_thing.py": code}, "[console_scripts]\nmy-thing = my_thing:main\nother = my_thing:main\n"
    )
    settings = ServerSettings(pypi="my-thing==1.0", command=("-x",))
    found = await packages.ready("mine", settings, tmp_path)
    assert found is not None
    assert (found.kind, found.version, found.entry) == ("pypi", "1.0", "venv/bin/my-thing")
    folder = packages.folder_of("mine", PackageSpec("pypi", "my-thing", "1.0"), tmp_path)
    assert found.digest.startswith("sha256:")
    assert (folder / "requirements.lock").read_text() == f"my-thing==1.0 --hash={found.digest}\n"
    command = await packages.command("mine", settings, tmp_path)
    assert command is not None and run(command) == "started -x"
    assert command.argv[0] == str(folder / "venv" / "bin" / "python")


@pytest.mark.matrix("installs packages")
async def test_one_that_would_have_to_be_built_is_not(registry: Registry, tmp_path: Path) -> None:
    """Building runs what the package says."""
    proof = tmp_path / "proof"
    registry.wheel("thing", "0.9", {}, "")
    registry.source("thing", "1.0", {"setup.py": f"open({str(proof)!r}, 'w')", "PKG-INFO": "Name: thing\nVersion: 1.0\n"})
    with pytest.raises(Unreachable, match=r"could not be installed.*from versions: 0\.9\)"):
        await packages.ready("mine", ServerSettings(pypi="thing==1.0"), tmp_path)
    assert not proof.exists()


@pytest.mark.matrix("installs packages")
@pytest.mark.parametrize("built", [False, True])
async def test_nor_is_one_that_names_another_by_its_address(registry: Registry, tmp_path: Path, built: bool) -> None:
    proof = tmp_path / "proof"
    registry.source("hidden", "1.0", {"setup.py": f"open({str(proof)!r}, 'w')", "PKG-INFO": "Name: hidden\nVersion: 1.0\n"})
    registry.wheel("hidden", "1.0", {}, "")
    file = "hidden-1.0-py3-none-any.whl" if built else "hidden-1.0.tar.gz"
    required_paths = f"Requires-Dist: hidden @ {registry.url}/{file}\n"
    registry.wheel("thing", "1.0", {"thing.py": ""}, "[console_scripts]\nthing = thing:main\n", required_paths)
    with pytest.raises(Unreachable, match="from an address of its own" if built else "could not be installed"):
        await packages.ready("mine", ServerSettings(pypi="thing==1.0"), tmp_path)
    assert not proof.exists()


# -- who waits


@contextmanager
def installed_elsewhere(settings: ServerSettings, home: Path) -> Iterator[None]:
    """Another process is installing it just now."""
    package = packages.wanted(settings)
    assert package is not None
    folder = packages.folder_of("x", package, home)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_installations_that_wait_hold_up_neither_others_nor_the_threads_that_all_share(
    registry: Registry, tmp_path: Path
) -> None:
    registry.npm("thing", {"1.0.0": {"bin": "run.js"}}, {"run.js": SCRIPT})
    waiting = [ServerSettings(pypi=f"other=={number}.0") for number in range(40)]  # more than there are threads anywhere
    with ExitStack() as held:
        for settings in waiting:
            held.enter_context(installed_elsewhere(settings, tmp_path))
        tasks = [asyncio.ensure_future(packages.ready("x", settings, tmp_path)) for settings in waiting]
        await asyncio.sleep(0.3)
        async with asyncio.timeout(30):
            assert await asyncio.to_thread(int) == 0
        async with asyncio.timeout(60):
            found = await packages.ready("x", ServerSettings(npm="thing"), tmp_path)
        assert found is not None and found.version == "1.0.0"
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.matrix("installs packages")
@pytest.mark.needs("npm")
async def test_installations_that_take_long_leave_the_threads_that_all_share_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry takes the connection, and says nothing."""
    for name in [name for name in os.environ if name.lower().startswith(("pip_", "npm_config_", "uv_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(packages, "INSTALL_STEP_SECONDS", 6.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
        settings = [ServerSettings(npm=f"thing{number}") for number in range(40)]
        tasks = [asyncio.ensure_future(packages.ready("x", one, tmp_path)) for one in settings]
        await asyncio.sleep(0.3)
        async with asyncio.timeout(30):
            assert await asyncio.to_thread(int) == 0
        assert not any(task.done() for task in tasks), "it had to wait until one of them had ended"
        for task in tasks[packages.MAX_INSTALLERS :]:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [Unreachable] * packages.MAX_INSTALLERS + [asyncio.CancelledError] * 38


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_one_that_is_being_installed_elsewhere_is_waited_for_but_not_for_ever(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.npm("thing", {"1.0.0": {"bin": "run.js"}}, {"run.js": SCRIPT})
    settings = ServerSettings(npm="thing")
    with installed_elsewhere(settings, tmp_path):
        waiting = asyncio.ensure_future(packages.ready("x", settings, tmp_path))
        await asyncio.sleep(0.3)
        assert not waiting.done()
    found = await waiting
    assert found is not None and found.version == "1.0.0"
    other = ServerSettings(npm="other")
    monkeypatch.setattr(packages, "INSTALL_LOCK_SECONDS", 0.3)
    with installed_elsewhere(other, tmp_path), pytest.raises(Unreachable, match="Another process has been installing other"):
        await packages.ready("x", other, tmp_path)


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_whoever_waited_may_go_away_and_the_next_one_is_let_in(registry: Registry, tmp_path: Path) -> None:
    registry.npm("thing", {"1.0.0": {"bin": "run.js"}}, {"run.js": SCRIPT})
    settings = ServerSettings(npm="thing")
    before = descriptors()
    for _ in range(3):
        waiting = asyncio.ensure_future(packages.ready("x", settings, tmp_path))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
    async with asyncio.timeout(60):
        found = await packages.ready("x", settings, tmp_path)
        assert found is not None and found.version == "1.0.0"
        while descriptors() > before:
            await asyncio.sleep(0.05)


def test_a_bare_name_is_found_and_a_runner_is_known(tmp_path: Path) -> None:
    found = find_command("any", ("sh", "-c", "true"), None)
    assert found.argv[0].startswith("/") and found.argv[1:] == ("-c", "true")
    assert package_setting("/usr/bin/npx") == "npm" and package_setting("uvx") == "pypi" and package_setting("node") is None
    assert find_program("./x", tmp_path) is None
    with pytest.raises(Unreachable, match="has no command"):
        find_command("any", (), None)


def test_a_script_needs_its_interpreter_and_a_virtual_environment_its_base(tmp_path: Path) -> None:
    bin_, base = tmp_path / "env" / "bin", tmp_path / "base"
    for path in (bin_, base / "bin", base / "lib" / "python3.11"):
        path.mkdir(parents=True)
    (base / "lib" / "python3.11" / "os.py").write_text("")
    (base / "bin" / "python3").write_text("")
    (base / "bin" / "python3").chmod(0o755)
    (base / "private").write_text("not needed")
    (bin_ / "python").symlink_to(base / "bin" / "python3")
    (tmp_path / "env" / "pyvenv.cfg").write_text(f"home = {base / 'bin'}\n")
    (tmp_path / "person" / "bin").mkdir(parents=True)
    script = tmp_path / "person" / "bin" / "tool"
    script.write_text(f"#!{bin_ / 'python'}\n")
    script.chmod(0o755)
    found = set(required_paths(script))
    assert {script, tmp_path / "env", base / "lib", base / "bin"} <= found
    assert not {tmp_path, tmp_path / "person", tmp_path / "person" / "bin", base} & found
