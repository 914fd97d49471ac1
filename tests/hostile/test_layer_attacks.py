"""Changes that pass for data and are obeyed, and changes that are not those that a person looked at."""

import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import FrameType

import pytest

from tests.hostile import jailed
from toolgate import App, Outcome
from toolgate.errors import InvalidInput
from toolgate.sandbox.jail import ProgramFolder, ResourceLimits
from toolgate.sandbox.untrusted_files import replace
from toolgate.sandbox.workspace_copy import WorkspaceCopy
from toolgate.sandbox.workspaces import Workspaces

pytestmark = pytest.mark.requirement("SBX-5")
MAKE = """
for name in names:
    os.makedirs(os.path.dirname("./" + name), exist_ok=True)
    open("./" + name, "w").close()
"""
MAKEFILE = "all:\n\tcat $(wildcard *.csv data/*.csv)\n"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
async def app(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    for name in list(os.environ):
        if name.startswith("TOOLGATE_") and name != "TOOLGATE_TRUST":
            monkeypatch.delenv(name)
    async with App.open(os.devnull, home=tmp_path / "home", sandbox={"bring_in": ["docs/Q&A.md", "docs/*.md"]}) as app:
        app.approvals.add_approver(lambda _request: True)
        app.sessions.work_in("s", work)
        yield app


async def run(app: App, code: str) -> Outcome:
    outcome = await app.invoke("code_execute", {"code": "import os\n" + code, "session_files": True}, session="s")
    assert outcome.ok, outcome.error
    return outcome


def files(work: Path) -> list[str]:
    return sorted(str(path.relative_to(work)) for path in work.rglob("*") if not path.is_dir() or not any(path.iterdir()))


# -- names that are obeyed

NAMES = (
    "a;touch${IFS}PWNED;.csv", "`touch PWNED`.csv", "$(touch PWNED).csv", "a|touch${IFS}PWNED.csv",
    "a&touch${IFS}PWNED&.csv",
    "-Ish -c 'touch PWNED'.csv", "--use-compress-program=touch PWNED #.csv", "--to-command=x.csv", "+!touch PWNED.csv",
    "~root.csv", "a>PWNED.csv", "a<b.csv", "#x.csv", "a\\b.csv", 'a"b.csv', "a'b.csv", "a*b.csv", "a?b.csv", "!x.csv",
    "-d/x.csv", "docs/a;b.md", "docs/-x.md",
)  # fmt: skip
PLAIN = (
    "Report (1).csv", "2026-01-02 figures, final.pdf", "a+b=c.csv", "[draft] x.csv", "50%.png", "me@work.csv",
    "übersicht.csv", "हिन्दी.csv", "cafe\u0301.csv", "Ⅷ № 1.csv", "a - b.csv", "_x.csv", "docs/Q&A.md", "docs/read.md",
    "data/x.csv",
)  # fmt: skip


async def test_names_that_a_shell_or_a_program_obeys_are_set_aside(app: App, work: Path) -> None:
    (work / "Makefile").write_text(MAKEFILE)
    await run(app, f"names = {[*NAMES, *PLAIN]!r}{MAKE}")
    assert files(work) == sorted([*PLAIN, "Makefile"])
    subprocess.run(["make", "-s"], cwd=work, capture_output=True, check=False)
    assert not (work / "PWNED").exists()
    (kept,) = app.workspace.changes()
    assert {change.path for change in kept.changes} == set(NAMES)


async def test_folders_with_such_names_are_not_made(app: App, work: Path) -> None:
    await run(app, "for name in ('-rf', 'a;b', 'fine'): os.mkdir(name)")
    assert files(work) == ["fine"]


def test_the_control_such_names_are_obeyed(work: Path) -> None:
    (work / "Makefile").write_text(MAKEFILE)
    (work / NAMES[0]).touch()
    subprocess.run(["make", "-s"], cwd=work, capture_output=True, check=False)
    assert (work / "PWNED").exists()


# -- archives and text that are obeyed where they are

OBEYED = (
    "terraform.d/plugins/x/y/z/terraform-provider-z_9.0.0_linux_amd64.zip", "dags/daily.zip", "vendor/requests-99.0.tar.gz",
    "vendor/requests-99.0.zip", "vendor/requests-99.0.tar.bz2", "vendor/requests-99.0.tar.xz", "x.tar.zst", "x.gz",
    "out/CMakeCache.txt", "out/build/x64-Debug/cmakecache.TXT", "output/package.json", "out/pom.xml", "out/build.xml",
    "out/CMakeLists.txt", "out/requirements-dev.txt", "out/tsconfig.json", "out/all.zip", "output/a/all.tar.gz",
    "out/a.json", "out/a.txt", "a.svg", "a.html",
)  # fmt: skip
DATA = ("x.csv.gz", "deep/x.jsonl.zst", "log.1.log.xz")


async def test_archives_and_text_that_tools_find_by_themselves_are_set_aside(app: App, work: Path) -> None:
    """Terraform installs providers, Airflow runs what is zipped, pip takes the newest archive of a folder."""
    await run(app, f"names = {[*OBEYED, *DATA]!r}{MAKE}")
    assert files(work) == sorted(DATA)
    (kept,) = app.workspace.changes()
    assert {change.path for change in kept.changes} == set(OBEYED)


# -- what is outside


async def test_a_folder_in_place_of_a_link_tells_nothing_of_where_the_link_led(app: App, work: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("private-name.txt", "guess.txt", "table.csv"):
        (outside / name).write_text("secret")
    (work / "link").symlink_to(outside)
    code = "os.remove('link'); os.mkdir('link'); os.mkdir('link/right'); os.mkdir('link/wrong')\n"
    code += "for name in ('guess.txt', 'wrong.txt'): open(f'link/{name}', 'w').write('secret')"
    (outside / "right").mkdir()
    outcome = await run(app, code)
    said = outcome.output["stderr"]
    assert "private-name" not in said
    assert "table" not in said
    assert ("guess.txt" in said) == ("wrong.txt" in said), "whether a guess at its content was right"
    assert ("link/right" in said) == ("link/wrong," in said)
    assert len(list(outside.iterdir())) == 4
    assert (work / "link").is_symlink()


@pytest.mark.parametrize("name", ["figures.csv", "data"])
def test_a_link_that_takes_the_place_of_what_was_looked_at_is_not_followed(tmp_path: Path, work: Path, name: str) -> None:
    """A server goes on while its layer is looked at. What the link leads to is the host's, and the host opens it."""
    secret, layer = tmp_path / "secret", tmp_path / "layer"
    (layer / "data").mkdir(parents=True)
    secret.mkdir()
    (layer / "figures.csv").write_text("1")
    (layer / "data" / "more.csv").write_text("1")
    (secret / "more.csv").write_text("the host's own")
    places = Workspaces(tmp_path / "home")
    intake = places.intake(work, "server", 1_000_000)

    def swap(frame: FrameType, event: str, called: object) -> None:
        if event == "c_return" and called is os.stat and frame.f_locals.get("name") == name:
            sys.setprofile(None)
            (layer / name).rename(tmp_path / "before")
            (layer / name).symlink_to(secret if name == "data" else secret / "more.csv")

    upper = os.open(layer, os.O_RDONLY)
    sys.setprofile(swap)
    try:
        taken = intake.look(upper)
    finally:
        sys.setprofile(None)
        os.close(upper)
    assert (layer / name).is_symlink() and taken.aside == [name]
    kept = (path for folder in (work, tmp_path / "home") for path in folder.rglob("*") if path.is_file())
    assert not any("the host's own" in path.read_text() for path in kept)


def test_a_file_that_cannot_be_written_to_its_end_replaces_nothing(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems say only when a file is closed that there was no room for it."""
    (work / "figures.csv").write_text("whole")
    (work / "new.csv").write_text("half")
    close = os.close

    def closed(number: int) -> None:
        name = Path(f"/proc/self/fd/{number}").readlink().name
        close(number)
        if name.endswith(".toolgate-new"):
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    folder = os.open(work, os.O_RDONLY)
    try:
        with (work / "new.csv").open("rb") as content, pytest.raises(OSError, match="quota"), monkeypatch.context() as patch:
            patch.setattr(os, "close", closed)
            replace(folder, "figures.csv", content.fileno(), 0o644, 4)
    finally:
        os.close(folder)
    assert (work / "figures.csv").read_text() == "whole"
    assert files(work) == ["figures.csv", "new.csv"]


def test_a_copy_that_no_program_can_begin_in_is_removed(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (copies := tmp_path / "copies").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(copies))
    (work / "figures.csv").write_text("1")
    with pytest.raises(ValueError, match="subpath"):
        WorkspaceCopy(ProgramFolder(path=work, cwd=tmp_path), ResourceLimits())
    assert not list(copies.iterdir())


def test_another_user_who_was_there_first_keeps_no_layer_from_being_laid(tmp_path: Path) -> None:
    from toolgate.sandbox.jails.layers import stage

    taken = tmp_path / f"toolgate-layers-{os.geteuid()}"
    taken.symlink_to("/")
    found = stage(tmp_path)
    assert found != taken
    assert (found.is_symlink(), found.stat().st_uid, stat.S_IMODE(found.stat().st_mode)) == (False, os.geteuid(), 0o700)
    assert stage(tmp_path) == found, "one for a process"


# -- what a person looked at

SERVER = "planted = ['']"


async def test_what_changed_after_a_person_looked_is_not_taken(tmp_path: Path, work: Path) -> None:
    from tests.hostile.story_main import SERVER as PROGRAM

    script = tmp_path / "server.py"
    script.write_text(PROGRAM.format(plant=SERVER, folder=str(work)))
    given = {"command": [jailed.interpreter(), "-u", str(script)], "isolation": "required", "write": [str(work)]}
    async with App.open(os.devnull, home=tmp_path / "home") as app:
        app.approvals.add_approver(lambda _request: True)
        await app.servers.add("s", given)
        await app.servers.refresh("s")
        await app.servers.accept(await app.servers.quarantined())

        async def ask(code: str) -> None:
            assert (await app.invoke("mcp_s_work", {"code": code})).ok

        await ask("open('app.py', 'w').write('harmless')")
        (seen,) = app.workspace.changes()
        await ask("open('app.py', 'w').write('hostile')")
        with pytest.raises(InvalidInput, match="has changed since") as refused:
            await app.workspace.take(seen.id)
        assert not (work / "app.py").exists()
        (now,) = app.workspace.changes()
        assert now.id in str(refused.value.suggestion)
        await ask("")
        assert [one.id for one in app.workspace.changes()] == [now.id], "nothing changed since"
        assert await app.workspace.take(now.id) == []
        assert (work / "app.py").read_text() == "hostile"


@pytest.mark.parametrize("id_", ["../../outside", "another"])
async def test_a_list_that_names_another_folder_is_not_used(app: App, tmp_path: Path, id_: str) -> None:
    """A pull may bring a list: to drop it would delete what it names."""
    await run(app, "open('app.py', 'w').close()")
    (kept,) = app.workspace.changes()
    folder = tmp_path / "home" / "set-aside" / kept.id
    (tmp_path / "outside").mkdir()
    listed = (folder / "list.json").read_text()
    (folder / "list.json").write_text(listed.replace(f'"{kept.id}"', f'"{id_}"'))
    assert app.workspace.changes() == []
    (folder / "list.json").write_text(listed.replace('"stored": "0"', '"stored": "../../../outside.txt"'))
    (tmp_path / "outside.txt").write_text("elsewhere")
    assert app.workspace.changes() == []
    shutil.rmtree(folder)
    assert (tmp_path / "outside").is_dir()
