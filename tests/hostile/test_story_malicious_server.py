"""The story of a malicious MCP server that a person gave a folder to write to: it plants, under every name that some program
of the host runs by itself, something that leaves a mark. Then the person goes on working there."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.hostile import jailed, planted, story
from toolgate import App

pytestmark = [pytest.mark.requirement("SBX-5"), pytest.mark.requirement("MCP-3")]
JAILS = ("bubblewrap", "namespaces")


@cache
def told(jail: str, user: str) -> story.Told:
    return story.told("server", jail, user)


@pytest.mark.parametrize("user", jailed.USERS)
@pytest.mark.parametrize("jail", JAILS)
def test_nothing_that_it_plants_goes_off(jail: str, user: str) -> None:
    told_ = told(jail, user)
    assert told_.said["status"] == "success", told_.said
    planted_ = re.search(r"\d+", str(told_.said["output"]))
    assert planted_ is not None
    assert int(planted_[0]) > 95
    assert told_.went_off == []


@pytest.mark.parametrize("user", jailed.USERS)
@pytest.mark.parametrize("jail", JAILS)
def test_its_data_is_brought_in_and_nothing_else(jail: str, user: str) -> None:
    told_ = told(jail, user)
    new = {name: text for name, (_, text) in told_.after.items() if name not in told_.before}
    assert new == planted.DATA
    assert {name: told_.after[name] for name in told_.before} == told_.before
    assert not [name for name in planted.DATA if told_.after[name][0] & 0o111]


@pytest.mark.parametrize("user", jailed.USERS)
@pytest.mark.parametrize("jail", JAILS)
def test_the_rest_is_set_aside_and_named(jail: str, user: str) -> None:
    aside = set(told(jail, user).said["aside"])
    output = str(told(jail, user).said["output"])
    assert "changes are set aside and not in the workspace" in output
    assert "The setting servers.evil.bring_in lists" in output  # its own, not that of all programs
    held = {name for name in planted.TEXTS if name.startswith((".git/", ".venv/", "node_modules/.bin"))}
    assert aside >= set(planted.TEXTS) - held - {".env"}
    assert len(aside) > 95


@pytest.mark.matrix("the story without layers")
def test_where_changes_can_not_be_kept_apart_it_is_not_started() -> None:
    told_ = story.told("server", "landlock", "ordinary")
    assert told_.said["error"][0] == "SANDBOX_UNAVAILABLE", told_.said
    assert told_.after == told_.before


def test_the_control_planted_by_hand_they_go_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = planted.project(tmp_path)
    monkeypatch.chdir(work)
    exec(compile(planted.PLANT, "plant", "exec"), {})
    assert {"python", "virtual environment", "pytest", "git", "make", "shell"} <= set(
        planted.goes_off(work, env=story.person(tmp_path))
    )


# -- what a server sees


LOOKS = """
import os
def look(name):
    try:
        return open(name).read()
    except OSError as error:
        return type(error).__name__
planted = [look("note.csv"), look("new.csv"), look("own.py"), look("shared.csv"), sorted(os.listdir("."))]
"""


@pytest.mark.parametrize("jail", JAILS)
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_server_sees_what_the_host_changes_and_its_own(tmp_path: Path, jail: str) -> None:
    from tests.hostile.story_main import SERVER

    work, script = tmp_path / "work", tmp_path / "server.py"
    work.mkdir()
    (work / "note.csv").write_text("one")
    script.write_text(SERVER.format(plant=LOOKS, folder=str(work)))
    given = {"command": [jailed.interpreter(), "-u", str(script)], "isolation": "required", "write": [str(work)]}
    async with App.open("/dev/null", home=tmp_path / "home", sandbox={"backend": jail}) as app:
        app.approvals.add_approver(lambda _request: True)
        await app.servers.add("s", given)
        await app.servers.refresh("s")
        await app.servers.accept(await app.servers.quarantined())

        async def ask(code: str) -> str:
            outcome = await app.invoke("mcp_s_work", {"code": code})
            assert outcome.ok, outcome.error
            return str(outcome.output)

        assert "'one', 'FileNotFoundError', 'FileNotFoundError'" in await ask("")
        new = work / "note.new"
        new.write_text("two")
        new.replace(work / "note.csv")
        (work / "new.csv").write_text("made by the host")
        assert "'two', 'made by the host', 'FileNotFoundError'" in await ask("")
        await ask("open('own.py', 'w').write('its own'); open('shared.csv', 'w').write('by the server')")
        assert (work / "shared.csv").read_text() == "by the server"
        assert not (work / "own.py").exists()
        assert "'its own', 'by the server'" in await ask("")
        (work / "shared.csv").write_text("by the host")
        (work / "new.csv").unlink()
        assert "'two', 'FileNotFoundError', 'its own', 'by the host'" in await ask("")
        await ask("import os; os.remove('note.csv'); open('shared.csv', 'a').write(' and the server')")
        assert not (work / "note.csv").exists()
        assert (work / "shared.csv").read_text() == "by the host and the server"
        (work / "note.csv").write_text("again")
        assert "'again'" in await ask("")
        (kept,) = app.workspace.changes()
        assert ([change.path for change in kept.changes], kept.by) == (["own.py"], "server s")


@pytest.mark.parametrize("jail", JAILS)
@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_all_that_it_writes_has_a_size(tmp_path: Path, jail: str) -> None:
    from tests.hostile.story_main import SERVER

    work, script = tmp_path / "work", tmp_path / "server.py"
    work.mkdir()
    fills = """
done = 0
try:
    for number in range(5000):
        with open(f"{number}.csv", "wb") as file: file.write(b"x" * 4096)
        done += 1
except OSError as error:
    done = (done, error.errno)
planted = done
"""
    script.write_text(SERVER.format(plant=fills, folder=str(work)))
    given = {
        "command": [jailed.interpreter(), "-u", str(script)],
        "isolation": "required",
        "write": [str(work)],
        "disk_mb": 4,
    }
    async with App.open("/dev/null", home=tmp_path / "home", sandbox={"backend": jail}) as app:
        app.approvals.add_approver(lambda _request: True)
        await app.servers.add("s", given)
        await app.servers.refresh("s")
        await app.servers.accept(await app.servers.quarantined())
        outcome = await app.invoke("mcp_s_work", {"code": ""})
        assert ", 28)" in str(outcome.output), outcome
    assert 0 < sum(path.stat().st_size for path in work.iterdir()) <= 4 << 20
