"""`npm_install`: real npm, in the sandbox, from a registry on loopback."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.npm_registry import NpmRegistry, failed, install, installing, npm_registry, session_folder
from toolgate import App
from toolgate.errors import InvalidInput
from toolgate.gates.approval.request import ApprovalRequest
from toolgate.network.allowed_hosts import AllowedHosts
from toolgate.sandbox.npm.manifest import Manifest, is_package_name, package_spec
from toolgate.sandbox.workspaces import Workspaces

QUICK = {
    "test_a_package_is_installed_and_saved",
    "test_whoever_approves_sees_the_registry_and_whether_scripts_run",
    "test_without_a_registry_nothing_is_installed",
    "test_arguments_that_contradict_each_other",
    "test_a_package_is_named_as_in_the_registry",
    "test_no_name_is_an_option_a_path_or_a_url",
    "test_any_manifest_is_taken_or_refused_in_words",
}

pytestmark = [
    pytest.mark.requirement("BUILTIN-3"), pytest.mark.requirement("TIER-3"), pytest.mark.needs("npm", "bubblewrap"),
]  # fmt: skip


@pytest.fixture
async def registry() -> AsyncIterator[NpmRegistry]:
    async with npm_registry() as found:
        found.add("left", "1.0.0", {"index.js": "module.exports = 'left 1'"})
        found.add("left", "1.1.0", {"index.js": "module.exports = 'left 1.1'"})
        found.add(
            "@scope/right", "2.0.0", {"cli.js": "#!/usr/bin/env node\n"}, dependencies={"left": "^1.0.0"}, bin="cli.js"
        )
        yield found


@pytest.fixture
async def app(tmp_path: Path, registry: NpmRegistry) -> AsyncIterator[App]:
    async with installing(tmp_path / "home", registry) as found:
        yield found


async def test_a_package_is_installed_and_saved(app: App, registry: NpmRegistry) -> None:
    folder = session_folder(app)
    (folder / "package.json").write_text('{\n    "name": "mine",\n    "scripts": {"test": "true"}\n}\n')
    outcome = await install(app, package="@scope/right")
    assert outcome.output == {
        "success": True, "installedVersion": "2.0.0", "added": 2, "removed": 0, "changed": 0, "dependencies": ["left@1.1.0"],
    }  # fmt: skip
    assert (folder / "node_modules/left/index.js").read_text() == "module.exports = 'left 1.1'"
    assert (folder / "node_modules/.bin/right").is_symlink()
    assert (folder / "package.json").read_text() == (
        '{\n    "name": "mine",\n    "scripts": {\n        "test": "true"\n    },\n    "dependencies": {\n'
        '        "@scope/right": "^2.0.0"\n    }\n}\n'
    )
    assert json.loads((folder / "package-lock.json").read_text())["packages"]["node_modules/left"]["version"] == "1.1.0"
    assert sorted(registry.fetched) == ["left-1.1.0.tgz", "right-2.0.0.tgz"]
    assert f"host:{registry.named}" in (outcome.metrics.resources_used or ())
    assert sorted(path.name for path in folder.iterdir()) == ["node_modules", "package-lock.json", "package.json"]
    assert list((app.settings.home / "npm").iterdir()) == []


async def test_what_package_json_names_is_installed_and_changes_are_counted(app: App) -> None:
    folder = session_folder(app)
    project = folder / "sub"
    project.mkdir()
    written = '{"dependencies": {"left": "1.0.0"}, "devDependencies": {"@scope/right": "2.0.0"}}'
    (project / "package.json").write_text(written)
    first = await install(app, projectPath="sub")
    assert first.output == {
        "success": True, "installedVersion": None, "added": 2, "removed": 0, "changed": 0,
        "dependencies": ["@scope/right@2.0.0", "left@1.0.0"],
    }  # fmt: skip
    assert (project / "package.json").read_text() == written, "nothing of it was asked to change"
    again = await install(app, package="left", version="^1.1.0", dev=True, projectPath="sub")
    assert again.output == {
        "success": True, "installedVersion": "1.1.0", "added": 0, "removed": 0, "changed": 1, "dependencies": [],
    }  # fmt: skip
    saved = json.loads((project / "package.json").read_text())
    assert saved == {"dependencies": {}, "devDependencies": {"@scope/right": "2.0.0", "left": "^1.1.0"}}
    (project / "package.json").write_text('{"dependencies": {"left": "1.0.0"}}')
    less = await install(app, projectPath="sub")
    assert {name: less.output[name] for name in ("added", "removed", "changed")} == {"added": 0, "removed": 1, "changed": 1}
    assert not (project / "node_modules/@scope").exists()
    assert [path.name for path in folder.iterdir()] == ["sub"]


async def test_whoever_approves_sees_the_registry_and_whether_scripts_run(tmp_path: Path, registry: NpmRegistry) -> None:
    asked: list[ApprovalRequest] = []

    def reject(request: ApprovalRequest) -> bool:
        asked.append(request)
        return False

    async with App.open(
        os.devnull, home=tmp_path / "home", registries={"npm": registry.url}, npm={"hosts": ["cdn.example"]}
    ) as app:
        explained = await app.explain("npm_install", {"package": "left"}, session="s")
        assert explained.verdict == "ask" and registry.named in explained.reason
        waiting = await install(app, package="left", scripts=True)
        assert waiting.status == "pending"
        app.approvals.add_approver(reject)
        assert (await install(app, package="left", scripts=True)).status == "denied"
    assert f"it may reach {registry.named}, cdn.example, and no other host" in asked[0].reason
    assert asked[0].arguments["scripts"] is True
    assert '"scripts": true' in asked[0].text() and registry.named in asked[0].text()
    assert registry.fetched == []


async def test_packages_go_into_a_persons_own_project_too(tmp_path: Path, registry: NpmRegistry) -> None:
    """What was approved is this very change, and it is made by Toolgate: nothing waits to be reviewed."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "package.json").write_text('{"dependencies": {"left": "^1.0.0"}}')
    (work / "node_modules/old").mkdir(parents=True)
    async with installing(tmp_path / "home", registry) as app:
        places = Workspaces(tmp_path / "home", work, rules=lambda: app.parts.tiers.paths)
        app.provide(Workspaces, places)
        outcome = await app.invoke("npm_install", {})
        assert outcome.output["added"] == 1, outcome
        assert places.quarantine().sets() == []
    assert sorted(path.name for path in work.iterdir()) == ["node_modules", "package-lock.json", "package.json"]
    assert sorted(path.name for path in (work / "node_modules").iterdir()) == [".package-lock.json", "left"]
    assert (work / "node_modules").stat().st_uid == work.stat().st_uid


@pytest.mark.parametrize("jail", ["bubblewrap", "namespaces"])
async def test_it_works_in_every_jail_that_can_filter(tmp_path: Path, registry: NpmRegistry, jail: str) -> None:
    async with installing(tmp_path / "home", registry, sandbox={"backend": jail}) as app:
        outcome = await install(app, package="left", version="1.0.0")
    assert outcome.output["installedVersion"] == "1.0.0", outcome
    assert f"sandbox:{jail}" in (outcome.metrics.resources_used or ())


async def test_its_examples_run(tmp_path: Path, registry: NpmRegistry) -> None:
    registry.add("left-pad", "1.3.0", {"index.js": "1"})
    async with installing(tmp_path / "home", registry) as app:
        (session_folder(app) / "package.json").write_text('{"dependencies": {"left-pad": "^1.3.0"}}')
        for example in app.tools.get("npm_install").tool.examples:
            outcome = await install(app, **example.arguments)
            assert outcome.ok, outcome
        assert (session_folder(app) / "node_modules/left-pad/index.js").exists()


# -- what goes wrong


async def test_what_the_registry_does_not_have(app: App) -> None:
    folder = session_folder(app)
    assert "no such package" in failed(await install(app, package="nobody-made-this"), "INVALID_INPUT")
    assert "no such version" in failed(await install(app, package="left", version="9.0.0"), "INVALID_INPUT")
    assert list(folder.iterdir()) == []


async def test_a_registry_that_does_not_answer(tmp_path: Path, registry: NpmRegistry) -> None:
    assert registry.at is not None
    await registry.at.stop()
    async with installing(tmp_path / "home", registry) as app:
        outcome = await install(app, package="left")
        assert "npm.hosts" in failed(outcome, "CONNECTION_ERROR")
        assert outcome.error is not None and outcome.error.retryable
        assert list(session_folder(app).iterdir()) == []


async def test_a_registry_at_a_private_address_is_named_with_the_setting_that_allows_it(
    tmp_path: Path, registry: NpmRegistry
) -> None:
    async with installing(tmp_path / "home", registry, registries={"npm": "http://registry.test"}) as app:
        outcome = await install(app, package="left")
        words = failed(outcome, "CONNECTION_ERROR")
        assert "registry.test:80 resolves to an address of a private network" in words
        assert "npm: {hosts: [registry.test:80]}" in words
    assert registry.fetched == []


async def test_without_a_registry_nothing_is_installed(tmp_path: Path, registry: NpmRegistry) -> None:
    async with installing(tmp_path / "home", registry, registries={"npm": None}) as app:
        assert "registries.npm" in failed(await install(app, package="left"), "CONNECTION_ERROR")


@pytest.mark.parametrize("seconds", [0.01, 0.3], ids=["before it begins", "in the middle"])
async def test_it_takes_no_longer_than_it_may(tmp_path: Path, registry: NpmRegistry, seconds: float) -> None:
    async with installing(tmp_path / "home", registry, npm={"seconds": seconds}) as app:
        outcome = await install(app, package="left")
        assert outcome.status == "timeout"
        assert list(session_folder(app).iterdir()) == []
        assert list((app.settings.home / "npm").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no package.json"),
        ("{", "is not JSON"),
        ("[]", "not a JSON object"),
        ('{"dependencies": []}', None),
        ('{"dependencies": ["left"]}', "no list of names"),
        ('{"dependencies": {"left": 1}}', "no text"),
        ('{"workspaces": ["a"]}', "workspaces"),
    ],
)
async def test_a_package_json_that_says_nothing_useful(app: App, content: str | None, words: str | None) -> None:
    if content is not None:
        (session_folder(app) / "package.json").write_text(content)
    outcome = await install(app)
    if words is None:
        assert outcome.ok, outcome
    else:
        assert words in failed(outcome, "INVALID_INPUT")


async def test_arguments_that_contradict_each_other(app: App) -> None:
    failed(await install(app, version="1.0.0"), "INVALID_INPUT")
    failed(await install(app, dev=True), "INVALID_INPUT")
    failed(await install(app, projectPath="nowhere"), "INVALID_INPUT")
    failed(await install(app, projectPath="../.."), "SECURITY_VIOLATION")


# -- names and sources

NAMES = ("left", "@scope/right", "a.b", "lodash.merge", "Legacy", "x" * 214)
NO_NAMES = (
    "", "-g", "--registry=http://x", "../left", "./left", "/left", "file:left", "left@1.0.0", "git+https://x.test/y",
    "https://x.test/y.tgz", "user/repo", "github:user/repo", "@/x", "@scope/", "@a/b/c", "a b", "a\nb", ".left", "_left",
    "node_modules", "left\0", "лeft", "x" * 215, "npm:left", "%2e%2e", "a\\b",
)  # fmt: skip


def test_a_package_is_named_as_in_the_registry() -> None:
    for name in NAMES:
        assert package_spec(name, "^1.2.3 || >=2 <3") == f"{name}@^1.2.3 || >=2 <3"
    for name in NO_NAMES:
        with pytest.raises(InvalidInput):
            package_spec(name, None)
    for version in (
        "",
        " ",
        "http://x",
        "file:x",
        "../x",
        "git+ssh://x",
        "1.0.0\n",
        "user/repo",
        "npm:left@1",
        "1@2",
        "$(x)",
    ):
        with pytest.raises(InvalidInput):
            package_spec("left", version)


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ("^1.0.0", True), ("*", True), ("", True), ("latest", True), ("1.x || >=2.5.0 <3", True), ("npm:other@^2", True),
        ("npm:@scope/other@^2", True), ("https://cdn.example/a.tgz", True), ("https://cdn.example:444/a.tgz", False),
        ("https://evil.example/a.tgz", False), ("https://ann@cdn.example/a.tgz", False), ("http://cdn.example/a.tgz", False),
        ("file:../x", False), ("link:../x", False), ("workspace:*", False), ("user/repo", False), ("github:u/r", False),
        ("git+https://cdn.example/x.git", False), ("git@github.com:u/r.git", False), ("../x", False), ("npm:../x@1", False),
        ("git://cdn.example/x", False), ("/etc", False), ("~/x", False),
    ],
)  # fmt: skip
def test_dependencies_come_from_the_registry_or_a_named_host(spec: str, fits: bool) -> None:
    for values in ({"dependencies": {"left": spec}}, {"overrides": {"left": {".": "1", "right@1": spec}}}):
        manifest = Manifest(json.dumps(values).encode())
        if fits:
            manifest.check(AllowedHosts(["cdn.example"]))
        else:
            with pytest.raises(InvalidInput, match=r"left|right"):
                manifest.check(AllowedHosts(["cdn.example"]))


@given(name=st.text(max_size=40))
def test_no_name_is_an_option_a_path_or_a_url(name: str) -> None:
    if is_package_name(name):
        assert not name.startswith(("-", ".", "/")) and ":" not in name and ".." not in name.split("/")
        assert name.count("/") == (1 if name.startswith("@") else 0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
GROUP = st.sampled_from(["dependencies", "devDependencies", "overrides", "workspaces", "name"])


@given(values=st.dictionaries(GROUP, JSON, max_size=4))
def test_any_manifest_is_taken_or_refused_in_words(values: dict[str, Any]) -> None:
    manifest = Manifest(json.dumps(values).encode())
    try:
        manifest.check(AllowedHosts(()))
    except InvalidInput as refused:
        assert "package.json" in refused.message
    else:
        json.loads(manifest.staged())
