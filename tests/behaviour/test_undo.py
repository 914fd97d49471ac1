"""Backup before a change, undo after it: everything as it was, or nothing touched and the reason said."""

import asyncio
import contextlib
import os
import shutil
import stat
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.undoing import ANN, a_call, tree
from toolgate import Actor
from toolgate.errors import CallError, Denied
from toolgate.model import Call, new_id
from toolgate.store.database import Store, Transaction, now, open_store
from toolgate.undo import Journal, NoBackup, NotUndone, Undone
from toolgate.undo.journal import Change

pytestmark = pytest.mark.requirement("TIER-2")


on_every_database = pytest.mark.usefixtures("database")


@pytest.fixture
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """SQLite, or the database that a test asks for."""
    chosen = "database" in request.fixturenames
    opened = open_store(request.getfixturevalue("database") if chosen else f"sqlite:///{tmp_path / 'a.db'}", None)
    await opened.start()
    yield opened
    await opened.close()


@pytest.fixture
def backups(tmp_path: Path) -> Path:
    return tmp_path / "home" / "backups"


@pytest.fixture
def journal(store: Store, backups: Path) -> Journal:
    return Journal(store, backups, 1_000_000, 30)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def done(undone: list[Undone]) -> dict[str, str]:
    return {Path(one.path).name: one.done for one in undone}


# -- as it was


async def test_a_changed_file_gets_its_content_rights_and_time_back(journal: Journal, work: Path) -> None:
    file = work / "a.txt"
    file.write_bytes(b"old \x00\xff")
    file.chmod(0o640)
    os.utime(file, ns=(1, 1_600_000_000_123_456_789))
    before, call = tree(work), a_call()
    async with journal.changing(call, file):
        file.write_bytes(b"new")
        file.chmod(0o777)
    assert done(await journal.undo(call.id, ANN)) == {"a.txt": "restored"}
    assert tree(work) == before


async def test_what_was_made_is_removed_with_the_folders_that_were_made_for_it(journal: Journal, work: Path) -> None:
    (work / "kept").mkdir()
    before, call = tree(work), a_call()
    file = work / "kept" / "new" / "deep" / "a.txt"
    async with journal.changing(call, file):
        file.parent.mkdir(parents=True)
        file.write_text("new")
    assert done(await journal.undo(call.id, ANN)) == {"a.txt": "removed", "deep": "removed", "new": "removed"}
    assert tree(work) == before


async def test_a_removed_folder_comes_back_with_all_that_was_in_it(journal: Journal, work: Path) -> None:
    folder = work / "folder"
    (folder / "sub" / "empty").mkdir(parents=True)
    (folder / "sub" / "a.txt").write_text("a")
    (folder / "b.txt").write_text("b")
    (folder / "to b").symlink_to("b.txt")
    (folder / "to nowhere").symlink_to("/nonexistent")
    (folder / "sub").chmod(0o750)
    folder.chmod(0o500)
    before, call = tree(work), a_call()
    async with journal.changing(call, folder):
        folder.chmod(0o700)
        shutil.rmtree(folder)
    assert not folder.exists()
    await journal.undo(call.id, ANN)
    assert tree(work) == before


@on_every_database
async def test_a_made_tree_is_removed_and_what_stood_there_comes_back(journal: Journal, work: Path) -> None:
    place = work / "place"
    place.write_text("a file")
    before, call = tree(work), a_call()
    async with journal.changing(call, place):
        place.unlink()
        (place / "x" / "y").mkdir(parents=True)
        (place / "x" / "y" / "z.txt").write_text("z")
    await journal.undo(call.id, ANN)
    assert tree(work) == before


@pytest.mark.parametrize("how", ["replaced", "written through", "removed"])
async def test_a_link_and_what_it_leads_to_are_both_kept(journal: Journal, work: Path, how: str) -> None:
    (work / "target.txt").write_text("old")
    link = work / "link"
    link.symlink_to("target.txt")
    before, call = tree(work), a_call()
    async with journal.changing(call, link):
        if how == "written through":
            link.write_text("new")
        else:
            link.unlink()
            if how == "replaced":
                link.write_text("new")
    assert tree(work) != before
    await journal.undo(call.id, ANN)
    assert tree(work) == before


@on_every_database
async def test_several_changes_of_a_call_are_undone_to_before_the_first(journal: Journal, work: Path) -> None:
    file, other = work / "a.txt", work / "b.txt"
    file.write_text("0")
    before, call = tree(work), a_call()
    for number in ("1", "2", "3"):
        async with journal.changing(call, file):
            file.write_text(number)
    async with journal.changing(call, other):
        file.rename(other)
        file.write_text("3")
    await journal.undo(call.id, ANN)
    assert tree(work) == before


@on_every_database
async def test_parallel_changes_in_a_folder_that_the_call_makes(journal: Journal, work: Path) -> None:
    call, both = a_call(), asyncio.Barrier(2)

    async def make(name: str) -> None:
        async with journal.changing(call, work / "new" / name):
            await both.wait()
            (work / "new").mkdir(exist_ok=True)
            (work / "new" / name).write_text(name)
            await both.wait()

    await asyncio.gather(make("a"), make("b"))
    await journal.undo(call.id, ANN)
    assert tree(work) == {}


# -- a change that fails


@on_every_database
async def test_a_change_that_fails_is_put_back_at_once(journal: Journal, work: Path) -> None:
    file = work / "a.txt"
    file.write_text("old")
    before, call = tree(work), a_call()
    with pytest.raises(RuntimeError, match="half way"):
        async with journal.changing(call, file):
            file.write_text("ne")
            raise RuntimeError("half way")
    with pytest.raises(RuntimeError, match="half way"):
        async with journal.changing(call, work / "new" / "tree"):
            (work / "new" / "tree" / "deep").mkdir(parents=True)
            (work / "new" / "tree" / "deep" / "a").write_text("a")
            raise RuntimeError("half way")
    assert tree(work) == before
    with pytest.raises(NotUndone, match="undone already"):
        await journal.undo(call.id, ANN)


async def test_a_change_that_is_cancelled_is_put_back_at_once(journal: Journal, work: Path) -> None:
    file = work / "a.txt"
    file.write_text("old")
    before, begun = tree(work), asyncio.Event()

    async def change() -> None:
        async with journal.changing(a_call(), file):
            file.write_text("ne")
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(change())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tree(work) == before


# -- refused, and nothing touched


async def changed(journal: Journal, work: Path) -> Call:
    """A call that changed one file, made one folder with a file in it, and removed a file."""
    (work / "changed.txt").write_text("old")
    (work / "removed.txt").write_text("old")
    call = a_call()
    async with journal.changing(call, work / "changed.txt"):
        (work / "changed.txt").write_text("new")
    async with journal.changing(call, work / "made" / "a.txt"):
        (work / "made").mkdir()
        (work / "made" / "a.txt").write_text("new")
    async with journal.changing(call, work / "removed.txt"):
        (work / "removed.txt").unlink()
    return call


def replace_by_link(work: Path) -> None:
    (work / "changed.txt").unlink()
    (work / "changed.txt").symlink_to("made/a.txt")


def replace_by_folder(work: Path) -> None:
    (work / "changed.txt").unlink()
    (work / "changed.txt").mkdir()


MEDDLING: dict[str, Callable[[Path], object]] = {
    "written": lambda work: (work / "changed.txt").write_text("by somebody else"),
    "rights": lambda work: (work / "changed.txt").chmod(0o600),
    "removed": lambda work: (work / "changed.txt").unlink(),
    "made again": lambda work: (work / "removed.txt").write_text("by somebody else"),
    "a link": replace_by_link,
    "a folder": replace_by_folder,
    "more in the folder": lambda work: (work / "made" / "b.txt").write_text("by somebody else"),
}


@pytest.mark.parametrize("what", MEDDLING)
async def test_what_somebody_changed_since_is_not_overwritten(journal: Journal, work: Path, what: str) -> None:
    call = await changed(journal, work)
    MEDDLING[what](work)
    before = tree(work)
    for _ in range(2):
        with pytest.raises(NotUndone, match="since") as caught:
            await journal.undo(call.id, ANN)
        assert "Nothing was undone" in caught.value.message
        with pytest.raises(NotUndone, match="since"):
            await journal.preview(call.id, ANN)
    assert tree(work) == before


@pytest.mark.parametrize("what", MEDDLING)
@pytest.mark.sample(4)
async def test_force_puts_back_all_the_same_and_keeps_what_it_knows_nothing_of(
    journal: Journal, work: Path, what: str
) -> None:
    call = await changed(journal, work)
    MEDDLING[what](work)
    undone = done(await journal.undo(call.id, ANN, force=True))
    assert (work / "changed.txt").read_text() == "old"
    assert not (work / "changed.txt").is_symlink()
    assert (work / "removed.txt").read_text() == "old"
    assert not (work / "made" / "a.txt").exists()
    kept = what == "more in the folder"
    assert (work / "made" / "b.txt").exists() == kept
    assert undone["made"] == ("left" if kept else "removed")


async def test_a_change_by_another_call_stands_in_the_way_until_it_is_undone(journal: Journal, work: Path) -> None:
    file = work / "a.txt"
    file.write_text("0")
    first, second = a_call(), a_call()
    for call, text in ((first, "1"), (second, "2")):
        async with journal.changing(call, file):
            file.write_text(text)
    with pytest.raises(NotUndone):
        await journal.undo(first.id, ANN)
    await journal.undo(second.id, ANN)
    await journal.undo(first.id, ANN)
    assert file.read_text() == "0"


@on_every_database
async def test_an_undo_works_once(journal: Journal, work: Path) -> None:
    call = await changed(journal, work)
    await journal.undo(call.id, ANN)
    after = tree(work)
    with pytest.raises(NotUndone, match="undone already"):
        await journal.undo(call.id, ANN, force=True)
    assert tree(work) == after


@on_every_database
async def test_the_call_of_another_tenant_looks_like_none(journal: Journal, work: Path) -> None:
    call = await changed(journal, work)
    before = tree(work)
    theirs = []
    for call_id in (call.id, new_id(), "../../etc", "", "x" * 500, "a'; DROP TABLE backups"):
        with pytest.raises(NoBackup) as caught:
            await journal.undo(call_id, Actor("evil", user="ann"), force=True)
        theirs.append(caught.value.message.replace(call_id[:64], "ID"))
    assert set(theirs[:2]) == {"There is nothing to undo for call ID."}
    assert await journal.calls(call.id[:8], Actor("evil")) == []
    with pytest.raises(NoBackup):
        await journal.undo(call.id, Actor(ANN.tenant, user="another"), force=True)
    assert await journal.calls(call.id[:8], Actor(ANN.tenant, user="another")) == []
    assert await journal.calls(call.id[:8], ANN) == [call.id]
    assert tree(work) == before


@on_every_database
async def test_a_call_that_died_before_its_change_was_noted(journal: Journal, work: Path) -> None:
    file, untouched, call = work / "a.txt", work / "b.txt", a_call()
    file.write_text("old")
    untouched.write_text("old")
    for path in (file, untouched):
        await journal._begin(Change(call, path))  # and the process ends before the change does
    file.write_text("half")
    with pytest.raises(NotUndone, match="did not end"):
        await journal.undo(call.id, ANN)
    assert done(await journal.undo(call.id, ANN, force=True)) == {"a.txt": "restored", "b.txt": "unchanged"}
    assert file.read_text() == "old"


async def test_no_name_hides_a_file_from_the_backup(journal: Journal, work: Path) -> None:
    (work / "folder").mkdir()
    (work / "folder" / ".toolgate-undo-x").write_text("precious")
    before, call = tree(work), a_call()
    async with journal.changing(call, work / "folder"):
        shutil.rmtree(work / "folder")
    await journal.undo(call.id, ANN)
    assert tree(work) == before


async def test_a_preview_says_what_an_undo_would_do(journal: Journal, work: Path) -> None:
    call = await changed(journal, work)
    before = tree(work)
    foreseen = await journal.preview(call.id, ANN)
    assert tree(work) == before
    assert await journal.undo(call.id, ANN) == foreseen


@pytest.mark.parametrize("damage", ["changed", "gone", "all gone"])
async def test_a_backup_that_is_not_what_was_kept_is_not_used(
    journal: Journal, work: Path, backups: Path, damage: str
) -> None:
    call = await changed(journal, work)
    before = tree(work)
    copies = [path for path in (backups / call.id).iterdir() if path.read_text() == "old"]
    assert len(copies) == 2
    if damage == "all gone":
        shutil.rmtree(backups / call.id)
    elif damage == "gone":
        copies[0].unlink()
    else:
        copies[0].write_text("other")
    for force in (False, True):
        with pytest.raises(NotUndone, match=r"not on this machine|missing or damaged"):
            await journal.undo(call.id, ANN, force=force)
    assert tree(work) == before


# -- links in the way


async def test_a_link_that_was_put_in_place_of_a_file_is_not_followed(journal: Journal, work: Path, tmp_path: Path) -> None:
    call = await changed(journal, work)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (work / "changed.txt").unlink()
    (work / "changed.txt").symlink_to(victim)
    await journal.undo(call.id, ANN, force=True)
    assert victim.read_text() == "precious"
    assert (work / "changed.txt").read_text() == "old"


async def test_a_link_that_was_put_in_place_of_a_folder_stops_even_force(
    journal: Journal, work: Path, tmp_path: Path
) -> None:
    (work / "folder").mkdir()
    (work / "folder" / "a.txt").write_text("old")
    call = a_call()
    async with journal.changing(call, work / "folder" / "a.txt"):
        (work / "folder" / "a.txt").write_text("new")
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "a.txt").write_text("new")
    shutil.rmtree(work / "folder")
    (work / "folder").symlink_to(victim)
    for force in (False, True):
        with pytest.raises(NotUndone, match="stands in the way"):
            await journal.undo(call.id, ANN, force=force)
    assert (victim / "a.txt").read_text() == "new"


async def test_force_makes_folders_that_are_gone(journal: Journal, work: Path) -> None:
    file = work / "deep" / "er" / "a.txt"
    file.parent.mkdir(parents=True)
    file.write_text("old")
    call = a_call()
    async with journal.changing(call, file):
        file.write_text("new")
    shutil.rmtree(work / "deep")
    with pytest.raises(NotUndone, match="since"):
        await journal.undo(call.id, ANN)
    await journal.undo(call.id, ANN, force=True)
    assert file.read_text() == "old"


async def test_a_path_by_way_of_a_link_is_kept_as_what_it_is(journal: Journal, work: Path) -> None:
    (work / "real").mkdir()
    (work / "real" / "a.txt").write_text("old")
    (work / "way").symlink_to("real")
    call = a_call()
    async with journal.changing(call, work / "way" / ".." / "way" / "a.txt"):
        (work / "way" / "a.txt").write_text("new")
    (work / "way").unlink()
    assert done(await journal.undo(call.id, ANN)) == {"a.txt": "restored"}
    assert (work / "real" / "a.txt").read_text() == "old"


# -- what can't be kept may not be changed


async def test_what_is_too_large_to_keep_may_not_be_changed(journal: Journal, work: Path, backups: Path) -> None:
    file = work / "a.bin"
    with file.open("wb") as big:
        big.truncate(1_000_001)
    (work / "two").mkdir()
    for name in ("a", "b"):
        (work / "two" / name).write_bytes(b"x" * 600_000)
    for path in (file, work / "two"):
        with pytest.raises(Denied, match="takes more than 1,000,000 bytes") as caught:
            async with journal.changing(a_call(), path):
                raise AssertionError("it was changed")
        assert "backup_bytes" in (caught.value.suggestion or "")
    assert [path for path in backups.rglob("[!.]*") if path.is_file()] == []
    file.write_bytes(b"x" * 1_000_000)
    async with journal.changing(a_call(), file):
        file.write_text("fits")


async def test_what_is_no_file_may_not_be_changed(journal: Journal, work: Path) -> None:
    os.mkfifo(work / "pipe")
    for path in (work / "pipe", work, Path("/")):
        with pytest.raises(CallError, match="was not changed"):
            async with journal.changing(a_call(), path):
                pass


async def test_copies_are_for_nobody_else(journal: Journal, work: Path, backups: Path) -> None:
    call = await changed(journal, work)
    assert stat.S_IMODE(backups.stat().st_mode) == 0o700
    folder = backups / call.id
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(copy.stat().st_mode) for copy in folder.iterdir()} == {0o600}


# -- forgetting


@on_every_database
async def test_old_backups_are_forgotten_and_young_ones_kept(
    store: Store, journal: Journal, work: Path, backups: Path
) -> None:
    old, young = await changed(journal, work), a_call()
    async with journal.changing(young, work / "changed.txt"):
        (work / "changed.txt").write_text("newer")
    (backups / "left-by-a-crash").mkdir()
    for name in (old.id, "left-by-a-crash"):
        os.utime(backups / name, (0, 0))

    def make_old() -> Transaction[None]:
        moment = now() - timedelta(days=31)
        yield "UPDATE backups SET created_at = :moment WHERE call_id = :id", {"moment": moment, "id": old.id}

    await store.transact(make_old())
    assert await journal.prune() == 2
    assert [path.name for path in backups.glob("[!.]*")] == [young.id]
    with pytest.raises(NoBackup):
        await journal.undo(old.id, ANN)
    await journal.undo(young.id, ANN)


async def test_old_backups_are_forgotten_once_an_hour(store: Store, work: Path, backups: Path) -> None:
    async def change() -> None:
        async with Journal(store, backups, 1_000_000, 30).changing(a_call(), work / "a.txt"):
            (work / "a.txt").write_text("new")

    left = backups / "left-by-a-crash"
    await change()
    for moment, forgotten in (("for the first time", True), ("within the hour", False), ("after it", True)):
        left.mkdir(exist_ok=True)
        os.utime(left, (0, 0))
        if moment == "after it":
            os.utime(backups / ".pruned", (0, 0))
        await change()
        assert left.exists() != forgotten, moment


# -- any changes at all

NAMES = ("a", "b", "d", "d/a", "d/b", "d/e", "d/e/a")
ACTIONS = ("write", "append", "remove", "make folder", "link", "chmod")
changes = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(ACTIONS), st.booleans()), max_size=6)


def act(path: Path, action: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if action == "append" and path.is_file():
        with path.open("a") as file:
            file.write("more")
    elif action == "chmod" and path.exists():
        path.chmod(0o700)
    elif action in ("write", "remove", "make folder", "link"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if action == "write":
            path.write_text(f"new {path.name}")
        elif action == "make folder":
            path.mkdir()
        elif action == "link":
            path.symlink_to("b")


@at_most(60)
@given(changes, changes)
@example([("d/b", "make folder", False), ("d/e", "link", False)], [("d/e", "chmod", False)])
def test_whatever_a_call_does_is_undone(
    tmp_path_factory: pytest.TempPathFactory,
    earlier: list[tuple[str, str, bool]],
    later: list[tuple[str, str, bool]],
) -> None:
    folder = tmp_path_factory.mktemp("any")
    work = folder / "work"
    work.mkdir()

    def safely(name: str, action: str) -> None:
        try:
            act(work / name, action)
        except OSError:  # a file is where a folder should be, or links lead in circles
            return

    async def run() -> None:
        store = open_store("memory://", None)
        await store.start()
        journal, call, made = Journal(store, folder / "backups", 1_000_000, 30), a_call(), list[str]()
        for name, action, _ in earlier:
            safely(name, action)
        before = tree(work, times=False)  # what was written anew as it was need not be put back
        for name, action, fails in later:
            with contextlib.suppress(KeyError, CallError):  # it fails, or leads in circles and can't be kept
                async with journal.changing(call, work / name):
                    safely(name, action)
                    if fails:
                        raise KeyError(name)
                made.append(name)
        if made:
            await journal.undo(call.id, ANN)
        assert tree(work, times=False) == before
        await store.close()

    asyncio.run(run())
