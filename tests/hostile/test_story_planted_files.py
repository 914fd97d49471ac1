"""The story of approved code that plants files in a person's project, for the next command to run."""

from functools import cache
from pathlib import Path

import pytest

from tests.hostile import jailed, planted, story
from toolgate import App

pytestmark = [pytest.mark.requirement("SBX-5"), pytest.mark.requirement("SBX-3")]
JAILS = ("bubblewrap", "namespaces")


@cache
def told(jail: str, user: str) -> story.Told:
    return story.told("code", jail, user)


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.parametrize("user", jailed.USERS)
@pytest.mark.parametrize("jail", JAILS)
def test_nothing_that_it_plants_goes_off(jail: str, user: str) -> None:
    told_ = told(jail, user)
    assert told_.said["status"] == "success", told_.said
    assert told_.said["output"]["result"] > 95
    assert told_.went_off == []


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.parametrize("user", jailed.USERS)
@pytest.mark.parametrize("jail", JAILS)
def test_its_data_is_brought_in_and_nothing_else(jail: str, user: str) -> None:
    told_ = told(jail, user)
    new = {name: text for name, (_, text) in told_.after.items() if name not in told_.before}
    assert new == planted.DATA
    assert {name: told_.after[name] for name in told_.before} == told_.before
    assert "set aside" in told_.said["output"]["stderr"]
    assert len(told_.said["aside"]) > 95


@pytest.mark.matrix("the story without layers")
@pytest.mark.parametrize("user", jailed.USERS)
def test_where_there_is_no_layer_it_works_in_a_copy(user: str) -> None:
    told_ = told("landlock", user)
    assert told_.said["status"] == "success", told_.said
    assert told_.said["output"]["result"] > 95
    assert told_.went_off == []
    new = {name: text for name, (_, text) in told_.after.items() if name not in told_.before}
    assert new == planted.DATA
    assert {name: told_.after[name] for name in told_.before} == told_.before
    assert len(told_.said["aside"]) > 95


CHANGES = """
import os, shutil
planted = []
for name in (".env", "secret/.env"):
    try:
        planted.append(open(name).read())
    except OSError:
        planted.append("")
open("a.csv", "a").write(" changed"); os.rename("b.csv", "moved.csv"); shutil.rmtree("folder")
os.remove("mixed/d.csv"); os.remove("mixed/e.py"); os.rmdir("mixed"); os.symlink("..", "up")
open("same.py", "w").write("same.py")
"""


@pytest.mark.matrix("a second story with the same files")
@pytest.mark.parametrize("user", jailed.USERS)
@pytest.mark.parametrize("backend", [*JAILS, "landlock"])
def test_data_is_changed_moved_and_deleted_and_secrets_stay_unseen(backend: str, user: str) -> None:
    names = ("a.csv", "b.csv", "folder/c.csv", "mixed/d.csv", "mixed/e.py", "same.py", ".env", "secret/.env")
    told_ = story.told("code", backend, user, plant=CHANGES, texts={name: name for name in names})
    assert told_.said["status"] == "success", told_.said
    assert told_.said["output"]["result"] == ["", ""]
    assert set(told_.said["aside"]) == {"mixed", "up"}
    assert {name: text for name, (_, text) in told_.after.items() if told_.before.get(name, (0, ""))[1] != text} == {
        "a.csv": "a.csv changed",
        "moved.csv": "b.csv",
    }
    assert told_.before.keys() - told_.after.keys() == {"b.csv", "folder/c.csv"}


@pytest.mark.matrix("fills a workspace")
def test_a_workspace_that_is_too_large_for_a_copy_is_refused() -> None:
    told_ = story.told("code", "landlock", "ordinary", texts={"large.csv": "x" * (1 << 20)}, sandbox={"disk_mb": 1})
    assert told_.said["error"][0] == "SANDBOX_UNAVAILABLE"
    assert "too large to be copied" in told_.said["error"][1]
    assert told_.after == told_.before


@pytest.mark.parametrize("jail", JAILS)
async def test_programs_and_repositories_are_read_only_inside(tmp_path: Path, jail: str) -> None:
    work = planted.project(tmp_path)
    (work / "other env").mkdir()
    (work / "other env" / "pyvenv.cfg").touch()
    names = (".venv/x.csv", ".git/x.csv", "node_modules/.bin/x.csv", "other env/x.csv", "plain.csv")
    code = f"""
found = []
for name in {names!r}:
    try:
        open(name, "w").close()
        found.append(0)
    except OSError as error:
        found.append(error.errno)
found
"""
    async with App.open("/dev/null", home=tmp_path / "home", sandbox={"backend": jail}) as app:
        app.approvals.add_approver(lambda _request: True)
        app.sessions.work_in("s", work)
        outcome = await app.invoke("code_execute", {"code": code, "session_files": True}, session="s")
    assert outcome.ok, outcome.error
    assert outcome.output["result"] == [30, 30, 30, 30, 0]


async def test_what_the_operator_names_is_brought_in_but_not_into_programs(tmp_path: Path) -> None:
    work = planted.project(tmp_path)
    code = planted.PLANT + "\nput('src/new.py', '1'); put('src/.hidden.py', '1'); put('app.py', 'changed'); planted"
    settings = {"bring_in": ["**/*.py", ".github/workflows/*.yml", "**/toolgate.yaml"]}
    async with App.open("/dev/null", home=tmp_path / "home", sandbox=settings) as app:
        app.approvals.add_approver(lambda _request: True)
        app.sessions.work_in("s", work)
        outcome = await app.invoke("code_execute", {"code": code, "session_files": True}, session="s")
        assert outcome.ok, outcome.error
    names = set(planted.seen(work))
    assert {"report.csv", "src/new.py", "setup.py", ".github/workflows/x.yml", "app.py"} <= names
    assert (work / "app.py").read_text() == "changed"
    assert names.isdisjoint({"src/.hidden.py", "toolgate.yaml", ".eslintrc.js"})


async def test_all_that_code_writes_has_a_size(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    code = """
done = 0
try:
    while True:
        with open(f"{done}.csv", "wb") as file: file.write(b"x" * 4096)
        done += 1
except OSError as error:
    code = error.errno
code
"""
    async with App.open("/dev/null", home=tmp_path / "home", sandbox={"disk_mb": 4}) as app:
        app.approvals.add_approver(lambda _request: True)
        app.sessions.work_in("s", work)
        outcome = await app.invoke("code_execute", {"code": code, "session_files": True}, session="s")
        assert (outcome.ok, outcome.output["result"]) == (True, 28), outcome
    assert 0 < sum(path.stat().st_size for path in work.iterdir()) <= 4 << 20
