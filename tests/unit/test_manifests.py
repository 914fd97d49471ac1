"""Readers of manifests and lock files, and the versions that advisories affect."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.tools.parsers.advisory_match import cvss3_score, in_range, index_folder, match, parse_version, severity_of
from toolgate.tools.parsers.manifests import read_manifest

PACKAGE = json.dumps({
    "dependencies": {"react": "^18.0.0", "@scope/ui": "2.0.0"}, "devDependencies": {"vitest": "~1.0.0"},
})  # fmt: skip
PYPROJECT = """\
[project]
dependencies = ["Requests[socks]>=2.31 ; python_version > '3.8'", "flask==3.0.0"]
[project.optional-dependencies]
docs = ["sphinx"]
[dependency-groups]
dev = ["pytest==8.1.0", {include-group = "docs"}]
[tool.poetry.dependencies]
python = "^3.11"
django = {version = "4.2.1", extras = ["x"]}
"""
NPM_LOCKS = {
    "package-lock.json": json.dumps({"lockfileVersion": 3, "packages": {
        "": {"name": "app"}, "node_modules/react": {"version": "18.2.0", "license": "MIT"},
        "node_modules/@scope/ui": {"version": "2.0.0"}, "node_modules/vitest": {"version": "1.0.4", "dev": True},
        "node_modules/vitest/node_modules/react": {"version": "17.0.0", "dev": True},
        "node_modules/local": {"link": True}, "node_modules/alias": {"name": "loose-envify", "version": "1.4.0"},
    }}),
    "npm-shrinkwrap.json": json.dumps({"lockfileVersion": 1, "dependencies": {
        "react": {"version": "18.2.0", "requires": {}}, "@scope/ui": {"version": "2.0.0"},
        "vitest": {"version": "1.0.4", "dev": True, "dependencies": {"react": {"version": "17.0.0"}}},
        "loose-envify": {"version": "1.4.0"},
    }}),
    "yarn.lock": '# yarn lockfile v1\n\n"@scope/ui@2.0.0":\n  version "2.0.0"\n\nloose-envify@^1.1.0, loose-envify@^1.4.0:\n'
    '  version "1.4.0"\n  dependencies:\n    js-tokens "^4.0.0"\n\nreact@^17:\n  version "17.0.0"\n\nreact@^18.0.0:\n'
    '  version "18.2.0"\n\nvitest@~1.0.0:\n  version "1.0.4"\n',
    "pnpm-lock.yaml": "lockfileVersion: '9.0'\nimporters:\n  .:\n    dependencies:\n      react: 1\npackages:\n\n"
    "  '@scope/ui@2.0.0':\n    resolution: {}\n  loose-envify@1.4.0:\n    resolution: {}\n  /react@18.2.0(peer@1):\n"
    "    resolution: {}\n  /react/17.0.0:\n    resolution: {}\n  vitest@1.0.4:\n    x: 1\nsnapshots:\n  no@1.0.0: {}\n",
}  # fmt: skip


def read(manifest: str, text: str, lock: str | None = None, locked: str = "") -> dict[str, Any]:
    given = None if lock is None else {"name": lock, "text": locked}
    return read_manifest({"manifest": {"name": manifest, "text": text}, "lock": given})


def versions(found: dict[str, Any]) -> set[tuple[str, str | None]]:
    return {(one["name"], one["version"]) for one in found["packages"]}


@pytest.mark.parametrize("lock", NPM_LOCKS)
def test_lock_files_of_npm_give_direct_and_transitive_packages(lock: str) -> None:
    found = read("package.json", PACKAGE, lock, NPM_LOCKS[lock])
    assert found["lock_fault"] is None
    assert versions(found) == {
        ("react", "18.2.0"), ("react", "17.0.0"), ("@scope/ui", "2.0.0"), ("vitest", "1.0.4"), ("loose-envify", "1.4.0"),
    }  # fmt: skip
    direct = {one["name"] for one in found["packages"] if one["direct"]}
    assert direct == {"react", "@scope/ui", "vitest"}


def test_a_lock_tells_licences_and_what_is_for_development() -> None:
    found = read("package.json", PACKAGE, "package-lock.json", NPM_LOCKS["package-lock.json"])
    by_name = {(one["name"], one["version"]): one for one in found["packages"]}
    assert by_name["react", "18.2.0"]["license"] == "MIT"
    assert by_name["react", "18.2.0"]["range"] == "^18.0.0"
    assert by_name["react", "17.0.0"]["direct"] is False
    assert by_name["vitest", "1.0.4"]["dev"] is True


def test_without_a_lock_only_exact_versions_are_known() -> None:
    assert versions(read("package.json", PACKAGE)) == {("react", None), ("@scope/ui", "2.0.0"), ("vitest", None)}
    found = read("pyproject.toml", PYPROJECT)
    assert versions(found) == {
        ("requests", None), ("flask", "3.0.0"), ("sphinx", None), ("pytest", "8.1.0"), ("django", "4.2.1"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lock", "text"),
    [
        ("uv.lock", '[[package]]\nname = "app"\nversion = "0"\nsource = {editable = "."}\n[[package]]\nname = "Requests"\n'
         'version = "2.31.0"\n[[package]]\nname = "idna"\nversion = "3.6"\n'),
        ("poetry.lock", '[[package]]\nname = "requests"\nversion = "2.31.0"\n[[package]]\nname = "idna"\nversion = "3.6"\n'),
        ("requirements.txt", "-r other.txt\nrequests==2.31.0 \\\n    --hash=sha256:aa\nidna==3.6 # via requests\n"
         "https://example.com/x.whl\n"),
    ],
)  # fmt: skip
def test_lock_files_of_python_are_read(lock: str, text: str) -> None:
    found = read("pyproject.toml", '[project]\ndependencies = ["requests>2"]\n', lock, text)
    assert versions(found) == {("requests", "2.31.0"), ("idna", "3.6")}
    assert [one["direct"] for one in found["packages"]] == [True, False]


@pytest.mark.parametrize(
    ("manifest", "text"),
    [("package.json", "["), ("package.json", "[]"), ("package.json", "[" * 100_000), ("pyproject.toml", "a = ["),
     ("pyproject.toml", "a = " + "[" * 5_000), ("pyproject.toml", "x")],
)  # fmt: skip
def test_a_manifest_that_is_none_is_said(manifest: str, text: str) -> None:
    assert manifest in read(manifest, text)["fault"]


@pytest.mark.parametrize("lock", ["package-lock.json", "uv.lock"])
@pytest.mark.parametrize("text", ["", "{", "[1]", '{"packages": 7}', "[" * 100_000, "package = 3", '{"packages": {"a": 1}}'])
def test_a_lock_file_that_is_none_leaves_the_manifest(lock: str, text: str) -> None:
    found = read("package.json", PACKAGE, lock, text)
    assert ("react", None) in versions(found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["dependencies", "packages", "version", "name", "node_modules/a", "license", "dev", "a"]), inner
        )
    ),
    max_leaves=20,
)


@given(JSON, JSON)
def test_any_json_is_read_or_refused(manifest: Any, lock: Any) -> None:
    found = read("package.json", json.dumps(manifest), "package-lock.json", json.dumps(lock))
    assert "fault" in found or all(isinstance(one["name"], str) for one in found["packages"])
    json.dumps(found)


@given(st.text(max_size=200), st.sampled_from(["yarn.lock", "pnpm-lock.yaml", "requirements.txt", "uv.lock"]))
def test_any_text_is_read_or_refused(text: str, lock: str) -> None:
    found = read("package.json", "{}", lock, text)
    assert isinstance(found["packages"], list)


# -- advisories


def affected(*events: dict[str, str], kind: str = "SEMVER") -> dict[str, Any]:
    return {"type": kind, "events": list(events)}


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.9.0", False), ("1.0.0", True), ("1.5.0", True), ("1.9.9", True), ("2.0.0", False), ("2.0.0-rc.1", True),
     ("3.0.0", True), ("3.1.0", True), ("3.1.1", False)],
)  # fmt: skip
def test_a_version_is_affected_between_events(version: str, expected: bool) -> None:
    one = affected({"introduced": "1.0.0"}, {"fixed": "2.0.0"}, {"introduced": "3.0.0"}, {"last_affected": "3.1.0"})
    assert in_range(one, "npm", parse_version("npm", version)) is expected


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_a_range_is_an_interval(introduced: int, fixed: int, version: int) -> None:
    one = affected({"introduced": f"1.{introduced}.0"}, {"fixed": f"1.{fixed}.0"})
    verdict = in_range(one, "npm", parse_version("npm", f"1.{version}.0"))
    if introduced != fixed:
        assert verdict is (introduced <= version < fixed if introduced < fixed else version >= introduced)


def test_python_orders_versions_by_its_own_rules() -> None:
    one = affected({"introduced": "0"}, {"fixed": "2.10"}, kind="ECOSYSTEM")
    for version, expected in (("2.9", True), ("2.10", False), ("2.10rc1", True), ("1!1.0", False)):
        assert in_range(one, "PyPI", parse_version("PyPI", version)) is expected


def test_what_cannot_be_compared_is_not_decided() -> None:
    assert parse_version("npm", "latest") is None
    assert parse_version("PyPI", "9" * 10_000) is None
    one = affected({"introduced": "0"}, {"fixed": "what"})
    assert in_range(one, "npm", parse_version("npm", "1.0.0")) is None


@pytest.mark.parametrize(
    ("vector", "score"),
    [("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", 9.8), ("CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N", 6.1),
     ("CVSS:3.0/AV:L/AC:H/PR:H/UI:R/S:U/C:L/I:N/A:N", 1.8), ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:C/C:H/I:H/A:H", 10.0),
     ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:N", 0.0), ("CVSS:3.1/AV:N", None), ("CVSS:4.0/AV:N", None), (7, None)],
)  # fmt: skip
def test_scores_are_those_of_the_specification(vector: Any, score: float | None) -> None:
    assert cvss3_score(vector) == score


def test_severity_is_what_the_database_says_else_by_score() -> None:
    assert severity_of({"database_specific": {"severity": "MODERATE"}}) == "moderate"
    scored = [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}]
    assert severity_of({"severity": scored}) == "critical"
    assert severity_of({"severity": "high"}) == "unknown"


@given(JSON)
def test_any_advisory_is_taken_without_a_crash(tmp_path_factory: pytest.TempPathFactory, content: Any) -> None:
    folder: Path = tmp_path_factory.mktemp("osv")
    package = {"package": {"name": "a", "ecosystem": "npm"}, "ranges": content, "versions": content}
    advisory = {"id": "X-1", "affected": [package, content], "severity": content, "database_specific": content}
    (folder / "a.json").write_text(json.dumps(advisory))
    index = index_folder(str(folder))
    assert index["packages"] == {"npm:a": ["a.json"]}
    asked = [{"name": "a", "version": "1.0.0", "files": ["a.json", "gone.json"]}]
    found = match({"folder": str(folder), "ecosystem": "npm", "packages": asked})
    assert found["unsure"] == ["a"]
