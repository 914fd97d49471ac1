"""What a machine lacks is said at the end of the tests, with how many wait for it; none of them passes without it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import THINGS, required

pytestmark = pytest.mark.requirement("DOOR-6")

ROOT = Path(__file__).resolve().parents[2]
DOCKER = "tests/behaviour/test_docker_backend.py::test_an_image_that_is_not_here_is_not_fetched"
PACKAGES = "tests/unit/test_mcp_packages.py"


def run_without_programs(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Two tests that need an engine or npm, and one that needs neither, where no program is on the path."""
    plain = f"{PACKAGES}::test_a_servers_folder_is_always_below_the_home"
    npm = f"{PACKAGES}::test_an_npm_package_is_installed_once_and_its_scripts_are_not_run"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, plain, npm, DOCKER],
        cwd=ROOT, env={**os.environ, "PATH": "/nowhere", **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.matrix("starts pytest")
def test_a_run_ends_with_what_is_missing_and_how_to_get_it() -> None:
    done = run_without_programs("-n", "1", TOOLGATE_TEST_REQUIRE="")
    assert done.returncode == 0, done.stdout
    *_, counts, docker, npm = done.stdout.splitlines()
    assert "1 passed, 2 waiting in" in counts
    assert docker.startswith("Missing: docker (1 test waits for it). To have it: apt-get install docker.io")
    assert npm == "Missing: npm (1 test waits for it). To have it: apt-get install nodejs npm"


@pytest.mark.matrix("starts pytest")
def test_what_is_required_fails_instead_of_waiting() -> None:
    done = run_without_programs(TOOLGATE_TEST_REQUIRE="landlock, npm")
    assert done.returncode == 1
    assert "1 failed, 1 passed, 1 waiting in" in done.stdout
    assert "TOOLGATE_TEST_REQUIRE requires npm. Missing: npm. To have it: apt-get install nodejs npm." in done.stdout


def test_everything_can_be_required_and_nothing_that_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_TEST_REQUIRE", "all")
    assert required() == set(THINGS)
    monkeypatch.setenv("TOOLGATE_TEST_REQUIRE", "podman")
    with pytest.raises(pytest.UsageError, match="TOOLGATE_TEST_REQUIRE names what is not known: podman"):
        required()


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_waiting_is_the_only_way_to_leave_a_test_out() -> None:
    """A test that is skipped by hand is in no count of what is missing."""
    by_hand = {"pytest.skip", "pytest.importorskip", "pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail"}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in by_hand
    ]
    assert found == []
