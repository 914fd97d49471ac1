"""`git` and `git_commit` on real repositories, compared with what git itself says of them."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from toolgate import Actor, App, Outcome
from toolgate.errors import InvalidInput
from toolgate.model import Call
from toolgate.sandbox.repository import CommitAuthors
from toolgate.sandbox.workspaces import Workspaces
from toolgate.tools.git_arguments import branch_name, read, relative_path, revision
from toolgate.tools.git_output import shown_diff

QUICK = {
    "test_status_tells_what_changed",
    "test_git_commit_commits_all_or_what_is_staged",
    "test_files_that_are_put_back_can_be_undone",
    "test_each_operation_asks_as_its_tier_says",
    "test_where_there_is_no_repository",
    "test_any_words_are_read_or_refused",
    "test_any_user_can_be_an_author",
}

pytestmark = pytest.mark.requirement("BUILTIN-5")
ANN = Actor("acme", user="ann")
AUTHOR = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "Ada"), ("EMAIL", "ada@example.com"))
}


def by_hand(folder: Path, *words: str) -> str:
    clean = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "GIT_CONFIG_NOSYSTEM": "1", **AUTHOR}
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True, env=clean).stdout


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    by_hand(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("one\n")
    (folder / "b.txt").write_text("two\n")
    by_hand(folder, "add", "-A")
    by_hand(folder, "commit", "-qm", "Begin")
    return folder


@pytest.fixture
async def app(tmp_path: Path, work: Path) -> AsyncIterator[App]:
    async with App.open(os.devnull, home=tmp_path / "home") as app:
        app.provide(Workspaces, Workspaces(tmp_path / "home", work, rules=lambda: app.parts.tiers.paths))
        app.approvals.add_approver(lambda _request: True)
        yield app


async def call(app: App, operation: str, *args: str, **more: Any) -> Outcome:
    return await app.invoke("git", {"operation": operation, "args": list(args), **more})


async def done(app: App, operation: str, *args: str, **more: Any) -> Any:
    outcome = await call(app, operation, *args, **more)
    assert outcome.ok, outcome.error
    return outcome.output


async def failed(app: App, operation: str, *args: str, **more: Any) -> str:
    outcome = await call(app, operation, *args, **more)
    assert outcome.error is not None, outcome
    assert outcome.error.code == "INVALID_INPUT", outcome.error
    return outcome.error.message


# -- looking


async def test_status_tells_what_changed(app: App, work: Path) -> None:
    assert await done(app, "status") == {"branch": "main", "files": [], "truncated": False}
    (work / "a.txt").write_text("changed\n")
    (work / "b.txt").unlink()
    (work / "new file\n.txt").write_text("x")
    (work / "staged.txt").write_text("x")
    by_hand(work, "add", "staged.txt")
    before = (work / ".git/index").read_bytes()
    files = (await done(app, "status"))["files"]
    assert {(file["path"], file["status"], file["staged"]) for file in files} == {
        ("a.txt", "modified", False), ("b.txt", "deleted", False), ("new file\n.txt", "untracked", False),
        ("staged.txt", "added", True),
    }  # fmt: skip
    assert [file["path"] for file in (await done(app, "status", "a.txt"))["files"]] == ["a.txt"]
    assert (work / ".git/index").read_bytes() == before


async def test_diff_is_what_git_says(app: App, work: Path) -> None:
    (work / "a.txt").write_text("one\nmore\n")
    assert (await done(app, "diff"))["diff"] == by_hand(work, "diff")
    by_hand(work, "add", "-A")
    assert (await done(app, "diff"))["diff"] == ""
    assert (await done(app, "diff", "--staged"))["diff"] == by_hand(work, "diff", "--cached")
    assert (await done(app, "diff", "HEAD", "--", "b.txt"))["diff"] == ""
    assert (await done(app, "diff", "a.txt"))["diff"] == ""
    assert (await done(app, "diff", "--stat", "HEAD"))["files"] == [{"path": "a.txt", "insertions": 1, "deletions": 0}]
    by_hand(work, "commit", "-qm", "More")
    assert (await done(app, "diff", "HEAD~1", "HEAD"))["diff"] == by_hand(work, "diff", "HEAD~1", "HEAD")


async def test_a_diff_does_not_show_what_no_tool_may_open(app: App, work: Path) -> None:
    (work / ".env").write_text("PASSWORD=hunter2\n")
    (work / "config").mkdir()
    (work / "config" / "id_rsa").write_text("hunter2\n")
    (work / "a.txt").write_text("seen\n")
    by_hand(work, "add", "-Af")
    by_hand(work, "commit", "-qm", "Secrets")
    for args in (("HEAD~1",), ("HEAD~1", "HEAD"), ("--staged", "HEAD~1")):
        output = await done(app, "diff", *args)
        assert "seen" in output["diff"]
        assert "hunter2" not in str(output)
    for path in (".env", "config/id_rsa"):
        outcome = await call(app, "diff", "HEAD~1", "--", path)
        assert outcome.status == "denied", outcome
    (work / ".env").write_text("PASSWORD=hunter3\n")
    assert await done(app, "status") == {"branch": "main", "files": [], "truncated": False}


async def test_log_is_the_newest_first(app: App, work: Path) -> None:
    (work / "a.txt").write_text("2\n")
    by_hand(work, "commit", "-qam", "Second: tab\tand ünïcode")
    commits = (await done(app, "log"))["commits"]
    assert [commit["subject"] for commit in commits] == ["Second: tab\tand ünïcode", "Begin"]
    assert commits[0]["commitHash"] == by_hand(work, "rev-parse", "HEAD").strip()
    assert commits[0]["author"] == "Ada"
    for args in (("-n", "1"), ("-n1",), ("-1",), ("--max-count=1",), ("HEAD", "--", "a.txt", "b.txt")):
        expected = 2 if "--" in args else 1
        assert len((await done(app, "log", *args))["commits"]) == expected, args
    assert len((await done(app, "log", "b.txt"))["commits"]) == 1


async def test_a_large_diff_is_cut(app: App, work: Path) -> None:
    (work / "a.txt").write_text("x" * 99 + "\n" + ("y" * 99 + "\n") * 30_000)
    output = await done(app, "diff")
    assert output["truncated"] is True
    assert 0 < len(output["diff"]) <= 100_000


# -- changing


async def test_named_files_are_committed_alone(app: App, work: Path) -> None:
    (work / "a.txt").write_text("changed\nand more\n")
    (work / "b.txt").write_text("changed\n")
    (work / "new.txt").write_text("x\n")
    by_hand(work, "add", "b.txt")
    output = await done(app, "commit", "-m", "Change a", "-m", "Because.", "a.txt", "new.txt")
    assert output == {
        "commitHash": by_hand(work, "rev-parse", "HEAD").strip(), "filesChanged": 2, "insertions": 3, "deletions": 1,
    }  # fmt: skip
    assert by_hand(work, "show", "--name-only", "--format=%B%an <%ae>", "HEAD").split("\n") == [
        "Change a", "", "Because.", "local <local@default.invalid>", "", "a.txt", "new.txt", "",
    ]  # fmt: skip
    assert by_hand(work, "status", "--porcelain") == "M  b.txt\n"
    by_hand(work, "fsck", "--strict")


async def test_git_commit_commits_all_or_what_is_staged(app: App, work: Path) -> None:
    (work / "a.txt").write_text("changed\n")
    nothing = await app.invoke("git_commit", {"message": "Nothing is staged"})
    assert nothing.error is not None
    assert nothing.error.code == "INVALID_INPUT"
    by_hand(work, "add", "a.txt")
    (work / "b.txt").unlink()
    staged = await app.invoke("git_commit", {"message": "# Staged"})
    assert staged.ok, staged.error
    assert staged.output["filesChanged"] == 1
    assert by_hand(work, "log", "-1", "--format=%s").strip() == "# Staged"
    (work / ".env").write_text("PASSWORD=hunter2")
    everything = await app.invoke("git_commit", {"message": "All", "files": ["."], "projectPath": "."})
    assert everything.ok, everything.error
    assert (everything.output["filesChanged"], everything.output["deletions"]) == (1, 1)
    assert by_hand(work, "ls-files").split() == ["a.txt"]
    by_hand(work, "fsck", "--strict")


async def test_tracked_files_are_committed_with_a(app: App, work: Path) -> None:
    (work / "a.txt").write_text("changed\n")
    (work / "new.txt").write_text("x\n")
    assert (await done(app, "commit", "-a", "-m", "Tracked"))["filesChanged"] == 1
    assert by_hand(work, "status", "--porcelain") == "?? new.txt\n"


async def test_the_first_commit_of_a_repository(app: App, work: Path) -> None:
    (work / "sub").mkdir()
    by_hand(work / "sub", "init", "-q", "-b", "trunk")
    (work / "sub" / "x.txt").write_text("x\n")
    assert (await done(app, "status", projectPath="sub"))["branch"] == "trunk"
    assert (await done(app, "commit", "-m", "First", ".", projectPath="sub"))["filesChanged"] == 1
    assert by_hand(work / "sub", "log", "--format=%s").strip() == "First"
    (work / "c.txt").write_text("x\n")
    assert (await done(app, "commit", "-m", "Outer", "."))["filesChanged"] == 1  # not the repository inside
    assert by_hand(work, "ls-files").split() == ["a.txt", "b.txt", "c.txt"]


async def test_branches_are_made_listed_and_checked_out(app: App, work: Path) -> None:
    head = by_hand(work, "rev-parse", "HEAD").strip()
    assert (await done(app, "branch"))["branches"] == [{"name": "main", "commitHash": head, "current": True}]
    assert len((await done(app, "branch", "feature/x"))["branches"]) == 2
    assert (await done(app, "checkout", "feature/x")) == {"commitHash": head, "filesChanged": 0}
    (work / "a.txt").write_text("on the branch\n")
    (work / "only.txt").write_text("here\n")
    await done(app, "commit", "-m", "Branch", ".")
    assert (await done(app, "checkout", "main"))["filesChanged"] == 2
    assert (work / "a.txt").read_text() == "one\n"
    assert not (work / "only.txt").exists()
    assert by_hand(work, "branch", "--show-current").strip() == "main"
    await done(app, "checkout", "-b", "other", "feature/x")
    assert by_hand(work, "branch", "--show-current").strip() == "other"
    assert (work / "only.txt").read_text() == "here\n"
    assert by_hand(work, "status", "--porcelain") == ""
    assert (await done(app, "checkout", "HEAD~1"))["commitHash"] == head
    assert (await done(app, "status"))["branch"] is None


async def test_a_checkout_loses_nothing(app: App, work: Path) -> None:
    await done(app, "checkout", "-b", "other")
    (work / "a.txt").write_text("other\n")
    (work / "ignored.log").write_text("tracked\n")
    await done(app, "commit", "-m", "Other", ".")
    await done(app, "checkout", "main")
    (work / ".git/info/exclude").write_text("*.log\n")
    (work / "ignored.log").write_text("mine\n")
    assert "overwritten" in await failed(app, "checkout", "other")
    (work / "ignored.log").unlink()
    (work / "a.txt").write_text("not committed\n")
    assert "overwritten" in await failed(app, "checkout", "other")
    assert (work / "a.txt").read_text() == "not committed\n"


async def test_files_that_are_put_back_can_be_undone(app: App, work: Path) -> None:
    (work / "a.txt").write_text("mine\n")
    (work / "a.txt").chmod(0o755)
    (work / "b.txt").unlink()
    (work / "c.txt").write_text("mine\n")
    outcome = await call(app, "checkout", "--", "a.txt", "b.txt")
    assert outcome.ok, outcome.error
    assert outcome.output["filesChanged"] == 2
    assert ((work / "a.txt").read_text(), (work / "b.txt").read_text()) == ("one\n", "two\n")
    await app.undo.revert(outcome.id)
    assert ((work / "a.txt").read_text(), (work / "a.txt").stat().st_mode & 0o777) == ("mine\n", 0o755)
    assert not (work / "b.txt").exists()
    assert (await call(app, "checkout", "HEAD", "--", "a.txt")).ok
    assert (work / "a.txt").read_text() == "one\n"
    assert (work / "c.txt").read_text() == "mine\n"


@pytest.mark.requirement("TIER-1")
@pytest.mark.parametrize(
    ("operation", "args", "status"),
    [
        ("status", [], "success"), ("diff", [], "success"), ("log", [], "success"), ("branch", ["x"], "success"),
        ("commit", ["-m", "x", "a.txt"], "pending"), ("checkout", ["--", "a.txt"], "pending"),
    ],
)  # fmt: skip
@pytest.mark.sample(4)
async def test_each_operation_asks_as_its_tier_says(
    tmp_path: Path, work: Path, operation: str, args: list[str], status: str
) -> None:
    (work / "a.txt").write_text("changed\n")
    async with App.open(os.devnull, home=tmp_path / "home") as app:
        app.provide(Workspaces, Workspaces(tmp_path / "home", work))
        outcome = await call(app, operation, *args)
        assert outcome.status == status, outcome
        if operation == "commit":
            asked = await app.invoke("git_commit", {"message": "x", "files": ["a.txt"]})
            assert asked.status == "pending"
    assert (work / "a.txt").read_text() == "changed\n"


async def test_a_session_has_repositories_of_its_own(app: App) -> None:
    places = app.parts.providers.everywhere[Workspaces]
    folder: Path = places.of(Call("", "", None, ANN, "s"))
    by_hand(folder, "init", "-q", "-b", "main")
    (folder / "x.txt").write_text("x\n")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, folder.stat().st_uid, folder.stat().st_gid)
    made = await app.invoke("git_commit", {"message": "Mine", "files": ["x.txt"]}, actor=ANN, session="s")
    assert made.ok, made.error
    log = await app.invoke("git", {"operation": "log"}, actor=ANN, session="s")
    assert [(commit["author"], commit["subject"]) for commit in log.output["commits"]] == [("ann", "Mine")]
    other = await app.invoke("git", {"operation": "log"}, actor=ANN, session="t")
    assert other.error is not None
    assert other.error.details == {"missing": True}


async def test_the_author_can_be_set(tmp_path: Path, work: Path) -> None:
    settings = {"author_name": "Robot <evil>\n", "author_email": "robot@example.com"}
    async with App.open(os.devnull, home=tmp_path / "home", git=settings) as app:
        app.provide(Workspaces, Workspaces(tmp_path / "home", work))
        app.approvals.add_approver(lambda _request: True)
        (work / "a.txt").write_text("changed\n")
        await done(app, "commit", "-m", "x", "a.txt")
    assert by_hand(work, "log", "-1", "--format=%an <%ae>").strip() == "Robot  evil <robot@example.com>"


async def test_commits_at_once_are_all_kept(app: App, work: Path) -> None:
    for number in range(4):
        (work / f"{number}.txt").write_text("x\n")
    made = await asyncio.gather(*(done(app, "commit", "-m", f"{number}", f"{number}.txt") for number in range(4)))
    assert sorted(by_hand(work, "log", "-4", "--format=%H").split()) == sorted(commit["commitHash"] for commit in made)
    assert by_hand(work, "status", "--porcelain") == ""
    by_hand(work, "fsck", "--strict")


# -- what can't be done


async def test_what_git_refuses_is_said_without_places_of_the_machine(app: App, work: Path) -> None:
    for operation, *args in (
        ("diff", "nowhere"), ("log", "nowhere"), ("checkout", "nowhere"), ("branch", "main"), ("branch", "x", "nowhere"),
        ("commit", "-m", "x", "missing.txt"), ("commit", "-m", "x"), ("commit",), ("commit", "-m", " "), ("checkout",),
        ("checkout", "--"), ("checkout", "main", "main"), ("diff", "a..b"), ("diff", "HEAD", "HEAD", "HEAD"),
        ("log", "-n", "x"),
    ):  # fmt: skip
        message = await failed(app, operation, *args)
        assert str(work.parent) not in message, message
    (work / ".git/index.lock").touch()
    (work / "a.txt").write_text("changed\n")
    assert "index.lock" in await failed(app, "commit", "-m", "x", "a.txt")


async def test_where_there_is_no_repository(app: App, work: Path) -> None:
    (work / "sub").mkdir()
    (work / "bare").mkdir()
    by_hand(work / "bare", "init", "-q", "--bare")
    for path in ("sub", "none", "a.txt", "bare", ".git"):
        outcome = await call(app, "status", projectPath=path)
        assert outcome.error is not None, path
        assert outcome.error.code in ("INVALID_INPUT", "SECURITY_VIOLATION"), outcome.error


NO_OPTIONS = [
    ["--output=x"], ["-O/etc/passwd"], ["--no-index", "/etc/passwd", "a.txt"], ["--ext-diff"], ["--textconv"], ["-c", "x=y"],
    ["--exec-path=."], ["-p"], ["--git-dir=x"], ["-"], ["--", "-x", "../out"], ["--", "/etc/passwd"], ["--", "a\0b"],
    ["--", ""], ["--", "a\nb"], ["--end-of-options"], [":/fix"], ["HEAD:a.txt"], ["^HEAD"], ["--upload-pack=x"], ["x" * 300],
    ["\ud800"], ["--", "sub/../../out"], ["-mx", "--amend"], ["--amend", "-m", "x"], ["-D", "main"], ["-f", "main"],
]  # fmt: skip


@pytest.mark.parametrize("operation", ["status", "diff", "log", "commit", "branch", "checkout"])
async def test_no_word_is_an_option(app: App, work: Path, operation: str) -> None:
    before = by_hand(work, "rev-parse", "HEAD")
    for args in NO_OPTIONS:
        outcome = await call(app, operation, *(["-m", "x"] if operation == "commit" else []), *args)
        if operation == "status" and outcome.ok:  # a path, of which there is none
            assert outcome.output["files"] == []
            continue
        assert outcome.status in ("failure", "denied"), (args, outcome)
        assert outcome.error is not None
        assert outcome.error.code in ("INVALID_INPUT", "SECURITY_VIOLATION", "VALIDATION_ERROR"), outcome.error
        assert "root:" not in str(outcome.to_dict())
    assert by_hand(work, "rev-parse", "HEAD") == before
    assert by_hand(work, "branch", "--format=%(refname:short)").split() == ["main"]
    assert sorted(path.name for path in work.iterdir()) == [".git", "a.txt", "b.txt"]


async def test_names_that_look_like_options_or_patterns_are_names(app: App, work: Path) -> None:
    for name in ("-x", "--all", ":(glob)*", "*", "[a].txt", ":!a.txt"):
        (work / name).write_text("x\n")
        output = await done(app, "commit", "-m", "-x", "--", name)
        assert output["filesChanged"] == 1
        assert by_hand(work, "show", "--name-only", "--format=%s", "HEAD").split("\n")[:3] == ["-x", "", name]


words = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["-m", "--", "-b", "-n", "HEAD", "main", "..", "@{-1}"]
)


@given(
    operation=st.sampled_from(["status", "diff", "log", "commit", "branch", "checkout"]), args=st.lists(words, max_size=6)
)
def test_any_words_are_read_or_refused(operation: Any, args: list[str]) -> None:
    try:
        found = read(operation, args)
    except InvalidInput:
        return
    for word in found.plain:
        assert not word.startswith("-")
        for reader in (revision, branch_name, relative_path):
            try:
                kept = reader(word)
            except InvalidInput:
                continue
            assert kept == word
            assert kept.strip()[:1] not in ("", "-", "/") or reader is relative_path


lines = st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), max_size=20) | st.sampled_from(
    ["diff --git a/a.txt b/a.txt", "diff --cc .env", "@@ -1 +1 @@", "--- a/.env", "+++ b/.env"]
)


@at_most(25)
@given(shown=st.lists(lines, min_size=1, max_size=6), hidden=st.lists(lines, min_size=1, max_size=6))
def test_no_line_of_a_file_passes_for_another_file(tmp_path_factory: Any, shown: list[str], hidden: list[str]) -> None:
    folder = tmp_path_factory.mktemp("diff")
    for side, extra in (("old", ""), ("new", "end")):
        (folder / side).mkdir()
        (folder / side / "a.txt").write_text("\n".join([*shown, extra]), newline="")
        (folder / side / "secret").write_text("\n".join([*(f"S3CRET {line}" for line in hidden), extra]), newline="")
    words = ["git", "diff", "--text", "--no-index", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/", "old", "new"]
    output = subprocess.run(words, cwd=folder, capture_output=True, check=False).stdout.decode("utf-8", "replace")
    output = output.replace("a/old/", "a/").replace("b/new/", "b/")
    text, _ = shown_diff(output, lambda path: path != "secret")
    assert "S3CRET" in output
    assert "S3CRET" not in text
    assert "diff --git a/a.txt b/a.txt" in text


@given(user=st.text(min_size=1, max_size=30), tenant=st.text(min_size=1, max_size=30))
def test_any_user_can_be_an_author(user: str, tenant: str) -> None:
    actor: Any = SimpleNamespace(tenant=tenant, user=user)
    author = CommitAuthors().of(actor)
    assert author.name.strip()
    assert not set("\n\0<>") & set(author.name + author.email)
    assert author.email.isascii()
