"""A host that is killed while its sandbox is in full swing: nothing that it started goes on or stays."""

import json
import os
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import jailed
from tests.hostile.sandbox_host import KINDS

pytestmark = pytest.mark.requirement("SBX-2", "PIPE-7")

HELD = [("bubblewrap", "ordinary"), ("namespaces", "ordinary"), ("landlock", "ordinary"), ("bubblewrap", "root"),
        ("namespaces", "root")]  # fmt: skip
MONTY, BOX = "toolgate-monty-", "toolgate-box-"
LEFT = {"bubblewrap": (MONTY,), "namespaces": (MONTY,), "landlock": (MONTY, BOX)}
"""What only the next host can remove: folders of the host, which nothing but the killed one knew of."""


@pytest.fixture
def held(jail: str, user: str) -> tuple[str, str]:
    return jail, user


@pytest.fixture
def folder(held: tuple[str, str]) -> Iterator[Path]:
    with jailed.folder_of(held[1]) as made:
        temporary = made / "temporary"
        temporary.mkdir()
        temporary.chmod(0o1777)
        yield made


def run(what: str, folder: Path, held: tuple[str, str]) -> str:
    """One of the commands of `sandbox_host`, with a folder for temporary files that nobody else has."""
    jail, user = held
    around = jailed.environment()
    programs = os.pathsep.join((sysconfig.get_path("scripts"), around["PATH"]))  # where Monty and Deno are
    with jailed.room_for(jail):
        done = subprocess.run(
            [jailed.interpreter(), "-B", "-m", "tests.hostile.sandbox_host", what, str(folder), jail],
            cwd=jailed.ROOT, capture_output=True, text=True, timeout=250, check=False, **jailed.of_user(user),
            env={**around, "PATH": programs, "HOME": str(folder), "TMPDIR": str(folder / "temporary")},
        )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
    said: str = done.stdout
    return said


@pytest.mark.matrix("a host with everything under way at once; the tests of each jail kill a smaller one")
@pytest.mark.parametrize(("jail", "user"), HELD)
def test_nothing_outlives_a_host_that_is_killed(held: tuple[str, str], folder: Path) -> None:
    said: dict[str, Any] = json.loads(run("warden", folder, held))
    assert set(said["before"]) == set(KINDS), "not all of it was under way, so this proves nothing"
    assert said["left"] == {}
    assert [name for name in said["files"] if not name.startswith(LEFT[held[0]])] == []
    assert said["files"], "it left nothing, so the rest proves nothing"
    run("brief", folder, held)
    assert list((folder / "temporary").iterdir()) == [], "the next host did not remove what the killed one left"
