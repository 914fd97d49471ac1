"""A server that looks for secrets in its folders all the time, while somebody works in them, as root and as another user."""

import json
import subprocess
from functools import cache
from typing import Any

import pytest

from tests import needs
from tests.hostile import jailed
from tests.hostile.jailed import USERS

pytestmark = pytest.mark.requirement("SBX-2", "MCP-5")
MOUNTING = ("bubblewrap", "namespaces")
JAILS = (*MOUNTING, "landlock")
OPEN = {
    "project/data.txt": "old", "project/sub/helper.py": "helper", "project/.vscode/tasks.json": "{}",
    "project/link.txt": "helper", "project/out/old.csv": "old", "read/a.txt": "a", "read/deep/b.txt": "b",
    "clean/c.txt": "c",
}  # fmt: skip
"""What it may read at first."""
NEW = {"project/data.txt": "new", "project/sub/new.txt": "new", "project/more/new.txt": "new", "read/a.txt": "anew",
       "read/deep/c.txt": "new"}  # fmt: skip


@cache
def steps(jail: str, user: str) -> dict[str, Any]:
    needs.need(needs.USERS[user], *needs.needed_by_jail(jail, user))
    with jailed.folder_of(user) as folder:
        done = subprocess.run(
            [jailed.interpreter(), "-B", "-m", "tests.hostile.folder_main", str(folder), jail],
            cwd=jailed.ROOT, capture_output=True, text=True, timeout=100, check=False,
            env={**jailed.environment(), "HOME": str(folder / "person"), "TOOLGATE_TRUST": "/tmp/*"}, **jailed.of_user(user),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("jail", JAILS)
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_a_secret_that_comes_into_a_folder_that_is_only_read_is_never_seen(jail: str, user: str) -> None:
    """Nor are the settings of Toolgate, nor a secret file that is saved as editors do."""
    said = steps(jail, user)
    assert said["first"]["read"] == OPEN
    assert said["first"]["spied"] == said["later"]["spied"] == said["removed"]["spied"] == {}


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("jail", MOUNTING)
def test_other_files_are_seen_at_the_next_call(jail: str, user: str) -> None:
    said = steps(jail, user)
    own = {"project/out/new.csv": "own"}
    assert said["later"]["read"] == OPEN | NEW | own
    later = OPEN | NEW | own | {"project/out/later.txt": "of the host"}
    assert said["removed"]["read"] == {path: text for path, text in later.items() if path != "read/a.txt"}
    assert said["removed"]["started"] == said["first"]["started"], "it was not started anew for that"


@pytest.mark.parametrize("user", USERS)
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_landlock_shows_what_was_there_at_the_start(user: str) -> None:
    said = steps("landlock", user)
    kept = {path: text for path, text in OPEN.items() if path not in ("project/data.txt", "read/a.txt")}
    assert said["later"]["read"] == kept, "files that were replaced are others"


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("jail", MOUNTING)
def test_a_folder_to_be_written_may_be_in_one_that_is_only_read(jail: str, user: str) -> None:
    said = steps(jail, user)
    wrote = {path.rpartition("/")[2]: done for path, done in said["later"]["wrote"].items()}
    assert wrote == {"new.csv": True, "x.csv": False}
    assert "new.csv" in said["brought"]


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("jail", MOUNTING)
def test_a_server_that_may_have_seen_a_secret_where_it_writes_is_ended_and_tells_nobody(jail: str, user: str) -> None:
    said = steps(jail, user)
    assert said["between"]["spied"] == {}, "it had remembered what it saw"
    assert said["between"]["started"] != said["removed"]["started"]
    assert "project/out/sub/.env" not in said["between"]["read"]
    assert not said["during"]["ok"] and "withheld" in said["during"]["said"]
    assert "made during a call" not in json.dumps(said)
    assert said["after"]["spied"] == {}
    assert said["brought"] == ["new.csv", "old.csv"], "what it wrote then may hold the secret"
