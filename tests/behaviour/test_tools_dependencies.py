"""`analyze_dependencies`: packages, advisories from the operator's folder, newer versions from a registry."""

import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.loopback import Asked, Said, site
from toolgate import App, Outcome
from toolgate.sandbox.workspaces import Workspaces

pytestmark = pytest.mark.requirement("BUILTIN-3")
LOCK = {"lockfileVersion": 3, "packages": {
    "node_modules/lodash": {"version": "4.17.20", "license": "MIT"}, "node_modules/@s/ui": {"version": "1.0.0"},
    "node_modules/deep": {"version": "1.2.0"},
}}  # fmt: skip
MANIFEST = {"dependencies": {"lodash": "^4.17.0", "@s/ui": "1.0.0"}}
LODASH, UI = "/-/package/lodash/dist-tags", "/-/package/@s%2Fui/dist-tags"
Opener = Callable[..., AbstractAsyncContextManager[App]]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "package.json").write_text(json.dumps(MANIFEST))
    (tmp_path / "work" / "package-lock.json").write_text(json.dumps(LOCK))
    return tmp_path / "work"


@pytest.fixture
def opened(tmp_path: Path, work: Path) -> Opener:
    @asynccontextmanager
    async def open_app(**settings: Any) -> AsyncIterator[App]:
        async with App.open(os.devnull, home=tmp_path / "home", **settings) as app:
            app.provide(Workspaces, Workspaces(tmp_path / "home", work))
            yield app

    return open_app


def advisory(identifier: str, name: str, *events: dict[str, str], days: float = 1, **more: Any) -> dict[str, Any]:
    ecosystem = more.pop("ecosystem", "npm")
    ranges = [{"type": "SEMVER", "events": list(events)}]
    return {
        "id": identifier, "modified": (datetime.now(UTC) - timedelta(days=days)).isoformat(), "summary": f"About {name}.",
        "affected": [{"package": {"name": name, "ecosystem": ecosystem}, "ranges": ranges}],
        "database_specific": {"severity": "HIGH"}, **more,
    }  # fmt: skip


def put(folder: Path, *advisories: dict[str, Any]) -> Path:
    (folder / "npm").mkdir(parents=True, exist_ok=True)
    for one in advisories:
        (folder / "npm" / f"{one['id']}.json").write_text(json.dumps(one))
    return folder


async def analyzed(app: App, **arguments: Any) -> dict[str, Any]:
    outcome = await app.invoke("analyze_dependencies", arguments)
    assert outcome.status == "success", outcome.error
    found: dict[str, Any] = outcome.output
    return found


def failed(outcome: Outcome, code: str) -> str:
    assert outcome.error is not None, outcome
    assert outcome.error.code == code, outcome.error
    return outcome.error.message


async def test_packages_are_listed_and_without_advisories_nothing_is_known(opened: Opener) -> None:
    async with opened() as app:
        outcome = await app.invoke("analyze_dependencies", {})
    found = outcome.output
    assert (found["ecosystem"], found["lockFile"], found["totalDeps"]) == ("npm", "package-lock.json", 3)
    assert [(one["name"], one["version"], one["direct"]) for one in found["dependencies"]] == [
        ("@s/ui", "1.0.0", True), ("lodash", "4.17.20", True), ("deep", "1.2.0", False),
    ]  # fmt: skip
    assert found["dependencies"][1]["license"] == "MIT"
    assert (found["vulnerabilities"], found["vulnerabilityStatus"]) == (None, "unknown")
    assert (found["outdated"], found["outdatedStatus"]) == (None, "unknown")
    assert any("advisories.folder" in note for note in found["notes"])
    assert outcome.metrics.resources_used == ("package.json", "package-lock.json")


async def test_advisories_of_the_folder_are_matched_by_version(opened: Opener, tmp_path: Path) -> None:
    folder = put(
        tmp_path / "osv",
        advisory("GHSA-1", "lodash", {"introduced": "0"}, {"fixed": "4.17.21"}),
        advisory("GHSA-2", "lodash", {"introduced": "5.0.0"}),
        advisory("GHSA-3", "deep", {"introduced": "1.0.0"}, {"last_affected": "1.2.0"}, database_specific={}),
        advisory("GHSA-4", "lodash", {"introduced": "0"}, withdrawn="2024-01-01T00:00:00Z"),
        advisory("PYSEC-5", "lodash", {"introduced": "0"}, ecosystem="PyPI"),
    )
    async with opened(advisories={"folder": folder}) as app:
        found = await analyzed(app)
        assert found["vulnerabilityStatus"] == "known"
        assert found["vulnerabilities"] == [
            {"package": "lodash", "version": "4.17.20", "id": "GHSA-1", "severity": "high", "description": "About lodash.",
             "fixVersion": "4.17.21"},
            {"package": "deep", "version": "1.2.0", "id": "GHSA-3", "severity": "unknown", "description": "About deep."},
        ]  # fmt: skip
        put(folder, advisory("GHSA-6", "@s/ui", {"introduced": "0"}))  # the folder is read again when it changes
        assert "GHSA-6" in {one["id"] for one in (await analyzed(app))["vulnerabilities"]}


async def test_nothing_found_in_a_good_folder_is_known(opened: Opener, tmp_path: Path) -> None:
    folder = put(tmp_path / "osv", advisory("GHSA-2", "lodash", {"introduced": "5.0.0"}))
    async with opened(advisories={"folder": folder}) as app:
        found = await analyzed(app)
    assert (found["vulnerabilities"], found["vulnerabilityStatus"]) == ([], "known")


async def test_a_folder_that_is_old_empty_gone_or_of_others_leaves_it_unknown(opened: Opener, tmp_path: Path) -> None:
    old = put(tmp_path / "old", advisory("GHSA-2", "lodash", {"introduced": "5.0.0"}, days=90))
    other = put(tmp_path / "other", advisory("GHSA-2", "x", {"introduced": "0"}, ecosystem="Go"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.json").write_text("{")
    for folder, words in ((old, "days old"), (other, "nothing of npm"), (tmp_path / "empty", "none"),
                          (tmp_path / "broken", "none"), (tmp_path / "gone", "cannot be read")):  # fmt: skip
        async with opened(advisories={"folder": folder}) as app:
            found = await analyzed(app)
        assert (found["vulnerabilities"], found["vulnerabilityStatus"]) == (None, "unknown"), folder
        assert any(words in note for note in found["notes"]), found["notes"]
        assert str(tmp_path) not in json.dumps(found)


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_what_an_old_folder_does_say_is_told(opened: Opener, tmp_path: Path) -> None:
    old = put(tmp_path / "old", advisory("GHSA-1", "lodash", {"introduced": "0"}, days=90))
    async with opened(advisories={"folder": old}) as app:
        found = await analyzed(app)
    assert [one["id"] for one in found["vulnerabilities"]] == ["GHSA-1"]
    assert found["vulnerabilityStatus"] == "unknown"


async def test_what_is_not_all_known_is_partial(opened: Opener, tmp_path: Path, work: Path) -> None:
    folder = put(tmp_path / "osv", advisory("GHSA-2", "lodash", {"introduced": "5.0.0"}))
    async with opened(advisories={"folder": folder}) as app:
        (work / "package-lock.json").write_text("{")
        found = await analyzed(app)
        assert (found["vulnerabilities"], found["vulnerabilityStatus"]) == ([], "partial")
        assert "package-lock.json cannot be read" in found["notes"][0]
        (work / "package-lock.json").unlink()
        found = await analyzed(app)
        assert (found["lockFile"], found["vulnerabilityStatus"]) == (None, "partial")
        assert "no lock file" in found["notes"][0]
        (work / "package-lock.json").write_text(json.dumps({"packages": {"node_modules/lodash": {"version": "weird"}}}))
        assert (await analyzed(app))["vulnerabilityStatus"] == "partial"


async def test_python_projects_are_analyzed(opened: Opener, tmp_path: Path, work: Path) -> None:
    event = ({"introduced": "0"}, {"fixed": "2.32.0"})
    folder = put(tmp_path / "osv", advisory("PYSEC-1", "Requests", *event, ecosystem="PyPI"))
    (work / "py").mkdir()
    (work / "py" / "pyproject.toml").write_text('[project]\ndependencies = ["requests>=2"]\n')
    (work / "py" / "uv.lock").write_text('[[package]]\nname = "requests"\nversion = "2.31.0"\n')
    (work / "requirements-dev.txt").write_text("requests==2.32.0\n")
    async with opened(advisories={"folder": folder}) as app:
        found = await analyzed(app, packageJsonPath="py")
        assert (found["ecosystem"], found["lockFile"]) == ("PyPI", "uv.lock")
        assert found["vulnerabilities"][0]["fixVersion"] == "2.32.0"
        found = await analyzed(app, packageJsonPath="requirements-dev.txt")
        assert (found["vulnerabilities"], found["vulnerabilityStatus"], found["totalDeps"]) == ([], "known", 1)


# -- newer versions


async def test_the_registry_is_asked_only_on_request_and_with_consent(opened: Opener) -> None:
    async def registry(asked: Asked) -> Said:
        assert (asked.method, asked.body) == ("GET", b"")
        assert "authorization" not in asked.headers
        known = {
            "/-/package/lodash/dist-tags": {"latest": "4.17.21", "next": "5"},
            "/-/package/@s%2Fui/dist-tags": {"latest": "1.0.0"},
        }
        return Said(body=known[asked.path]) if asked.path in known else Said(status=404)

    async with site(registry) as server, opened(registries={"npm": server.url}) as app:
        await analyzed(app)
        assert server.connections == 0
        outcome = await app.invoke("analyze_dependencies", {"operation": "outdated"})
        assert outcome.status == "pending"
        assert server.connections == 0
        app.approvals.add_approver(lambda _: True)
        found = await analyzed(app, operation="outdated")
        assert found["outdated"] == [{"package": "lodash", "current": "4.17.20", "latest": "4.17.21"}]
        assert found["outdatedStatus"] == "known"
        assert sorted(asked.path for asked in server.asked) == [
            "/-/package/@s%2Fui/dist-tags",
            "/-/package/lodash/dist-tags",
        ]


async def test_pypi_is_asked_by_its_json_api(opened: Opener, work: Path) -> None:
    async def registry(asked: Asked) -> Said:
        return Said(body={"info": {"version": "3.0.0"}, "releases": {}}) if asked.path == "/pypi/flask/json" else Said(404)

    (work / "requirements.txt").write_text("Flask==2.0.0\nother==1.0\nloose>1\n")
    async with site(registry) as server, opened(registries={"pypi": server.url}) as app:
        app.approvals.add_approver(lambda _: True)
        found = await analyzed(app, packageJsonPath="requirements.txt", operation="outdated")
    assert found["outdated"] == [{"package": "flask", "current": "2.0.0", "latest": "3.0.0"}]
    assert found["outdatedStatus"] == "partial"


@pytest.mark.parametrize(
    "said",
    [Said(500), Said(200, b"no json"), Said(200, [1]), Said(200, {"latest": 7}), Said(200, {"latest": "x" * 999}),
     Said(302, headers={"location": "http://169.254.169.254/"})],
)  # fmt: skip
@pytest.mark.sample(4)
async def test_a_registry_that_does_not_tell_leaves_it_unknown(opened: Opener, said: Said) -> None:
    async def registry(_: Asked) -> Said:
        return said

    async with site(registry) as server, opened(registries={"npm": server.url}) as app:
        app.approvals.add_approver(lambda _: True)
        found = await analyzed(app, operation="outdated")
    assert (found["outdated"], found["outdatedStatus"]) == (None, "unknown")


async def test_a_registry_can_be_turned_off_or_be_down(opened: Opener) -> None:
    for url, words in ((None, "registries.npm"), ("http://127.0.0.1:9", "told nothing")):
        async with opened(registries={"npm": url}) as app:
            app.approvals.add_approver(lambda _: True)
            found = await analyzed(app, operation="outdated")
        assert (found["outdated"], found["outdatedStatus"]) == (None, "unknown")
        assert any(words in note for note in found["notes"])


# -- what is hostile, and what is not there


async def test_files_are_opened_as_read_file_opens_them(opened: Opener, work: Path, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text("{}")
    (work / "link").mkdir()
    (work / "link" / "package.json").symlink_to(tmp_path / "package.json")
    (work / "package-lock.json").unlink()
    (work / "package-lock.json").symlink_to("/etc/passwd")
    async with opened() as app:
        for path in ("../package.json", "..", "link", "link/package.json", "/etc/package.json", "package.json"):
            failed(await app.invoke("analyze_dependencies", {"packageJsonPath": path}), "SECURITY_VIOLATION")
        for path in ("none", "none/package.json"):
            assert "There is no" in failed(
                await app.invoke("analyze_dependencies", {"packageJsonPath": path}), "INVALID_INPUT"
            )


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"dependencies": ' * 50_000, "{", "[]", '{"dependencies": {"' + "a" * 900_000 + '": "1"}}',
     json.dumps({"dependencies": {f"p{n}": "1.0.0" for n in range(30_000)}}),
     json.dumps({"dependencies": {"../../etc/passwd": "1.0.0", "a b": "1.0.0", "\u202e": "1", "ok": {"a": 1}}})],
)  # fmt: skip
@pytest.mark.sample(4)
async def test_hostile_manifests_end_with_an_outcome(opened: Opener, work: Path, text: str) -> None:
    (work / "package.json").write_text(text)
    async with opened() as app:
        outcome = await app.invoke("analyze_dependencies", {})
    if outcome.error is not None:
        assert outcome.error.code in ("INVALID_INPUT", "SANDBOX_ERROR"), outcome.error
    else:
        names = {one["name"] for one in outcome.output["dependencies"]}
        assert not names & {"../../etc/passwd", "a b", "\u202e"}
        assert len(names) <= 500


async def test_a_lock_file_that_takes_too_long_is_given_up(
    opened: Opener, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolgate.tools.dependencies.READ_SECONDS", 0.5)
    (work / "pyproject.toml").write_text("[project]\ndependencies = []\n")
    (work / "uv.lock").write_text('[[package]]\nname = "a"\nversion = "1"\n' * 200_000)
    async with opened() as app:
        failed(await app.invoke("analyze_dependencies", {"packageJsonPath": "pyproject.toml"}), "TIMEOUT")


async def test_without_the_extra_the_call_says_what_to_install(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.extras.is_installed", lambda extra: extra != "code")
    async with opened() as app:
        outcome = await app.invoke("analyze_dependencies", {})
    assert outcome.error is not None
    assert "toolgate[code]" in outcome.error.message
