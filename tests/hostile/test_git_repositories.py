"""Repositories that are made to run a program, to write, or to read outside, as soon as somebody uses git on them.

Each is tried twice: with git as it is, on the host, where the program does run (the control, without which nothing would be
shown), and through the tools, where it must not, not even in the jail. What a run in the jail leaves is looked for in its
layer, which is discarded otherwise.
"""

import atexit
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from toolgate import Actor, App, Outcome
from toolgate.sandbox import repository
from toolgate.sandbox.workspaces import Workspaces
from toolgate.tools import call_folder, git_run

QUICK = {
    "test_the_control_in_the_jail",
    "test_a_repository_that_leads_elsewhere_is_refused",
    "test_a_bare_repository_among_the_files_is_refused",
    "test_what_the_host_runs_is_not_checked_out",
    "test_a_file_of_the_history_is_not_shown_under_another_name",
}

pytestmark = [pytest.mark.requirement("BUILTIN-5"), pytest.mark.requirement("TIER-1")]
ANN = Actor("acme", user="ann")
SECRET = "what nobody may read"
MARKER = "PWNED"
CORE = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {folder}\n\tfsmonitor = {evil}\n"
SIGNATURE = "-----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----"


def by_hand(folder: Path, *words: str, stdin: str = "", check: bool = True) -> str:
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(folder.parent), "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "Eve",
        "GIT_AUTHOR_EMAIL": "eve@example.com", "GIT_COMMITTER_NAME": "Eve", "GIT_COMMITTER_EMAIL": "eve@example.com",
    }  # fmt: skip
    ran = subprocess.run(
        ["git", *words], cwd=folder, check=check, capture_output=True, text=True, env=environment, input=stdin, timeout=60
    )
    return ran.stdout + ("" if check else ran.stderr)


class Repo:
    """A repository with two branches and a program that says that it was run."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.git = top / ".git"
        self.evil = top / "evil.sh"
        shutil.copytree(_pattern(), top)
        self.evil.write_text(f"#!/bin/sh\ntouch '{top / MARKER}'\ncat\n")
        self.run("update-index", "-q", "--refresh", check=False)

    def run(self, *words: str, **more: Any) -> str:
        return by_hand(self.top, *words, **more)

    def set(self, *pairs: str) -> None:
        for name, value in zip(pairs[::2], pairs[1::2], strict=True):
            self.run("config", name, value)

    def hook(self, name: str, folder: Path | None = None) -> None:
        file = (folder or self.git / "hooks") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.evil.read_text().replace("cat\n", ""))
        file.chmod(0o755)

    def change(self) -> None:
        (self.top / "b.txt").write_text("changed\n")

    def ran(self) -> bool:
        return (self.top / MARKER).exists()


@lru_cache
def _pattern() -> Path:
    """A repository that others are copies of."""
    top = Path(tempfile.mkdtemp(prefix="toolgate-test-")) / "pattern"
    atexit.register(shutil.rmtree, top.parent, ignore_errors=True)
    top.mkdir()
    by_hand(top, "init", "-q", "-b", "main")
    for name in ("a.txt", "b.txt"):
        (top / name).write_text("one\n")
    (top / "evil.sh").touch()
    (top / "evil.sh").chmod(0o755)
    (top / ".git/info/exclude").write_text("evil.sh\n")
    by_hand(top, "add", "-A")
    by_hand(top, "commit", "-qm", "Begin")
    by_hand(top, "checkout", "-qb", "other")
    (top / "a.txt").write_text("two\n")
    by_hand(top, "commit", "-qam", "Other")
    by_hand(top, "checkout", "-q", "main")
    return top


# -- the ways


def fsmonitor(repo: Repo) -> None:
    repo.set("core.fsmonitor", str(repo.evil))


def hook(name: str) -> Callable[[Repo], None]:
    def plant(repo: Repo) -> None:
        repo.hook(name)
        repo.change()

    return plant


def hooks_path(repo: Repo) -> None:
    repo.hook("pre-commit", repo.top / "tools")
    repo.set("core.hooksPath", "tools")
    repo.change()


def attribute(*pairs: str, file: str = ".gitattributes", words: str = "filter=x diff=x") -> Callable[[Repo], None]:
    def plant(repo: Repo) -> None:
        (repo.top / file).write_text(f"*.txt {words}\n")
        repo.set(*(part.replace("EVIL", str(repo.evil)) for part in pairs))
        repo.change()

    return plant


def configured(*pairs: str) -> Callable[[Repo], None]:
    def plant(repo: Repo) -> None:
        repo.change()
        repo.set(*(part.replace("EVIL", str(repo.evil)) for part in pairs))

    return plant


def included(condition: str) -> Callable[[Repo], None]:
    def plant(repo: Repo) -> None:
        (repo.top / "more.txt").write_text(f"[core]\n\tfsmonitor = {repo.evil}\n")
        repo.set(condition, str(repo.top / "more.txt"))

    return plant


def worktree_config(repo: Repo) -> None:
    repo.set("extensions.worktreeConfig", "true")
    (repo.git / "config.worktree").write_text(f"[core]\n\tfsmonitor = {repo.evil}\n")


def attributes_file(repo: Repo) -> None:
    (repo.top / "attributes.txt").write_text("*.txt diff=x\n")
    repo.set("core.attributesFile", str(repo.top / "attributes.txt"), "diff.x.command", str(repo.evil))
    repo.change()


def submodule(repo: Repo) -> None:
    inner = Repo(repo.top / "inner")
    inner.evil.write_text(repo.evil.read_text())
    repo.run("-c", "advice.addEmbeddedRepo=false", "add", "inner")
    repo.run("commit", "-qm", "Submodule")
    inner.set("core.fsmonitor", str(repo.evil))


def signed(repo: Repo) -> None:
    tree = repo.run("rev-parse", "HEAD^{tree}").strip()
    parent = repo.run("rev-parse", "HEAD").strip()
    who = "Eve <eve@example.com> 1700000000 +0000"
    text = f"tree {tree}\nparent {parent}\nauthor {who}\ncommitter {who}\ngpgsig {SIGNATURE}\n\nSigned\n"
    made = repo.run("hash-object", "-t", "commit", "-w", "--stdin", stdin=text).strip()
    repo.run("update-ref", "refs/heads/main", made)
    repo.set("log.showSignature", "true", "gpg.program", str(repo.evil))


def promisor(repo: Repo) -> None:
    repo.evil.write_text(repo.evil.read_text().replace("cat\n", ""))  # it would be waited for
    blob = repo.run("rev-parse", "HEAD:b.txt").strip()
    repo.change()
    repo.set("core.repositoryFormatVersion", "1", "extensions.partialClone", "origin", "remote.origin.promisor", "true")
    repo.set("remote.origin.url", f"ext::{repo.evil}", "protocol.ext.allow", "always")
    (repo.git / "objects" / blob[:2] / blob[2:]).unlink()


def promisor_ssh(repo: Repo) -> None:
    promisor(repo)
    repo.set("remote.origin.url", "ssh://example.invalid/x", "core.sshCommand", str(repo.evil))


def auto_gc(repo: Repo) -> None:
    repo.hook("pre-auto-gc")
    repo.set("gc.auto", "1", "gc.autoDetach", "false")
    for number in range(600):  # one in a folder of objects that is counted
        if any((repo.git / "objects").glob("17/*")) and len(list((repo.git / "objects/17").iterdir())) > 1:
            break
        repo.run("hash-object", "-w", "--stdin", stdin=f"{number}")
    repo.change()


class Way(NamedTuple):
    """A way to have a program run: how it is planted, the git command that falls for it, and the call that must not."""

    plant: Callable[[Repo], None]
    by_hand: tuple[str, ...]
    operation: str
    args: tuple[str, ...] = ()
    fails: bool = False
    """True if the operation can't succeed, since the repository lacks something."""


COMMIT = (("commit", "-qam", "x"), "commit", ("-m", "x", "b.txt"))
CHECKOUT = (("checkout", "-q", "other"), "checkout", ("other",))
STATUS = (("status",), "status")
DIFF = (("diff",), "diff")
WAYS = {
    "core.fsmonitor": Way(fsmonitor, *STATUS),
    "core.fsmonitor, diff": Way(fsmonitor, *DIFF),
    "core.fsmonitor, commit": Way(configured("core.fsmonitor", "EVIL"), *COMMIT),
    "core.fsmonitor, checkout": Way(fsmonitor, *CHECKOUT),
    "pre-commit": Way(hook("pre-commit"), *COMMIT),
    "prepare-commit-msg": Way(hook("prepare-commit-msg"), *COMMIT),
    "commit-msg": Way(hook("commit-msg"), *COMMIT),
    "post-commit": Way(hook("post-commit"), *COMMIT),
    "reference-transaction, commit": Way(hook("reference-transaction"), *COMMIT),
    "reference-transaction, branch": Way(hook("reference-transaction"), ("branch", "new"), "branch", ("new",)),
    "post-index-change": Way(hook("post-index-change"), *COMMIT),
    "post-checkout": Way(hook("post-checkout"), *CHECKOUT),
    "post-checkout, files": Way(hook("post-checkout"), ("checkout", "--", "b.txt"), "checkout", ("--", "b.txt")),
    "core.hooksPath": Way(hooks_path, *COMMIT),
    "pre-auto-gc": Way(auto_gc, *COMMIT),
    "filter.clean": Way(attribute("filter.x.clean", "EVIL"), *COMMIT),
    "filter.clean, diff": Way(attribute("filter.x.clean", "EVIL"), *DIFF),
    "filter.smudge": Way(attribute("filter.x.smudge", "EVIL"), *CHECKOUT),
    "filter.process": Way(attribute("filter.x.process", "EVIL"), *DIFF),
    "filter.process, required": Way(attribute("filter.x.process", "EVIL", "filter.x.required", "true"), *DIFF),
    "filter in info/attributes": Way(attribute("filter.x.clean", "EVIL", file=".git/info/attributes"), *DIFF),
    "diff.external": Way(configured("diff.external", "EVIL"), *DIFF),
    "diff.command": Way(attribute("diff.x.command", "EVIL"), *DIFF),
    "diff.textconv": Way(attribute("diff.x.textconv", "EVIL"), *DIFF),
    "core.attributesFile": Way(attributes_file, *DIFF),
    "gpg.program": Way(configured("commit.gpgSign", "true", "gpg.program", "EVIL"), *COMMIT),
    "gpg.ssh.program": Way(
        configured("commit.gpgSign", "true", "gpg.format", "ssh", "user.signingKey", "x", "gpg.ssh.program", "EVIL"), *COMMIT
    ),
    "log.showSignature": Way(signed, ("log",), "log"),
    "include.path": Way(included("include.path"), *STATUS),
    "includeIf.gitdir": Way(included("includeIf.gitdir:**.path"), *STATUS),
    "includeIf.onbranch": Way(included("includeIf.onbranch:main.path"), *STATUS),
    "config.worktree": Way(worktree_config, *STATUS),
    "a submodule's configuration": Way(submodule, *STATUS),
    "a promisor with ext::": Way(promisor, *DIFF, fails=True),
    "a promisor with core.sshCommand": Way(promisor_ssh, *DIFF, fails=True),
    "core.editor": Way(configured("core.editor", "EVIL"), ("commit", "-a"), "commit", ("-m", "x", "b.txt")),
    "sequence.editor and core.pager": Way(
        configured("core.pager", "EVIL", "sequence.editor", "EVIL"), ("-p", "-c", "core.pager=./evil.sh", "log"), "log"
    ),
}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that programs left in layers which are discarded."""
    names: list[str] = []

    def look(upper: int, _deleted: object = None) -> tuple[str, ...]:
        for _root, _folders, files, _number in os.fwalk(".", dir_fd=upper):
            names.extend(files)
        return ()

    monkeypatch.setattr(call_folder, "_discard", look)
    return names


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    async with App.open(os.devnull, home=tmp_path / "home", sandbox={"seconds": 20}) as app:
        app.approvals.add_approver(lambda _request: True)
        yield app


async def call(app: App, folder: Path, operation: str, *args: str, **more: Any) -> Outcome:
    places: Workspaces = app.parts.places
    places.set(ANN, "s", folder)
    return await app.invoke("git", {"operation": operation, "args": list(args), **more}, actor=ANN, session="s")


ALIKE = {
    "core.fsmonitor, diff", "core.fsmonitor, commit", "core.fsmonitor, checkout", "prepare-commit-msg", "commit-msg",
    "post-index-change", "reference-transaction, branch", "post-checkout, files", "filter.clean, diff",
    "filter.process, required", "includeIf.onbranch", "gpg.ssh.program", "a promisor with core.sshCommand", "pre-auto-gc",
}  # fmt: skip


def _params(names: Any, alike: set[str]) -> list[Any]:
    mark = pytest.mark.matrix("like another way")
    return [pytest.param(name, marks=mark if name in alike else ()) for name in names]


@pytest.mark.parametrize("name", _params(WAYS, ALIKE))
async def test_a_repository_runs_nothing(app: App, tmp_path: Path, seen: list[str], name: str) -> None:
    way = WAYS[name]
    control = Repo(tmp_path / "control")
    way.plant(control)
    (control.top / MARKER).unlink(missing_ok=True)
    if name == "sequence.editor and core.pager":
        _with_a_pager(control)
    else:
        control.run(*way.by_hand, check=False)
    assert control.ran(), "the control must run the program, or nothing is shown"

    repo = Repo(tmp_path / "work")
    way.plant(repo)
    (repo.top / MARKER).unlink(missing_ok=True)
    outcome = await call(app, repo.top, way.operation, *way.args)
    assert outcome.ok or way.fails, outcome.error
    assert not repo.ran()
    assert MARKER not in seen
    assert MARKER not in str(outcome.to_dict())


def _with_a_pager(repo: Repo) -> None:
    """A pager is run on a terminal only."""
    repo.run("config", "core.pager", str(repo.evil))
    subprocess.run(["script", "-qec", "git log", "/dev/null"], cwd=repo.top, check=False, capture_output=True, timeout=60)


async def test_the_control_in_the_jail(app: App, tmp_path: Path, seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the configuration of the repository does count, the program is run in the jail, and found there."""
    monkeypatch.setattr(repository, "PRELUDE", "set -eu\n")
    for number, name in enumerate(("core.fsmonitor", "diff.external", "diff.textconv", "filter.clean, diff", "pre-commit")):
        repo = Repo(tmp_path / f"work{number}")
        WAYS[name].plant(repo)
        (repo.top / MARKER).unlink(missing_ok=True)
        seen.clear()
        monkeypatch.setattr(repository, "COMMIT", "shift; git commit -qam x >&2; exec git show --numstat -z --format=%H\n")
        monkeypatch.setattr("toolgate.tools.git.PLAIN_DIFF", ("diff",))
        outcome = await call(app, repo.top, WAYS[name].operation, *WAYS[name].args)
        if name == "pre-commit":
            assert outcome.error is not None
            assert MARKER in str(outcome.error.details)  # set aside, and so the call fails
        else:
            assert MARKER in seen, (name, outcome)
        assert not repo.ran()


# -- repositories that are somewhere else


def git_file(repo: Repo, inside: Path) -> None:
    repo.git.rename(inside)
    repo.git.write_text(f"gitdir: {inside}\n")


def git_link(repo: Repo, inside: Path) -> None:
    repo.git.rename(inside)
    repo.git.symlink_to(inside)


def common_folder(repo: Repo, inside: Path) -> None:
    inside.mkdir()
    (inside / "config").write_text(f"[core]\n\tfsmonitor = {repo.evil}\n")
    for name in ("refs", "objects", "HEAD"):
        (repo.git / name).rename(inside / name)
    (repo.git / "HEAD").write_text("ref: refs/heads/main\n")
    (repo.git / "commondir").write_text(str(inside))


@pytest.mark.parametrize("where", ["inside", "outside"])
@pytest.mark.parametrize("move", [git_file, git_link, common_folder])
@pytest.mark.sample(4)
async def test_a_repository_that_leads_elsewhere_is_refused(
    app: App, tmp_path: Path, seen: list[str], move: Callable[[Repo, Path], None], where: str
) -> None:
    for folder, is_control in ((tmp_path / "control", True), (tmp_path / "work", False)):
        repo = Repo(folder)
        fsmonitor(repo)
        move(repo, folder / "elsewhere" if where == "inside" else tmp_path / f"outside-{folder.name}")
        (repo.top / MARKER).unlink(missing_ok=True)
        if is_control:
            repo.run("status", check=False)
            assert repo.ran()
            continue
        for operation, args in (("status", ()), ("log", ()), ("commit", ("-m", "x", "b.txt")), ("checkout", ("other",))):
            outcome = await call(app, repo.top, operation, *args)
            assert outcome.error is not None
            assert outcome.error.code == "SECURITY_VIOLATION", outcome.error
        assert not repo.ran()
        assert MARKER not in seen


async def test_a_bare_repository_among_the_files_is_refused(app: App, tmp_path: Path, seen: list[str]) -> None:
    for folder, is_control in ((tmp_path / "control", True), (tmp_path / "work", False)):
        repo = Repo(folder)
        bare = folder / "docs"
        shutil.copytree(repo.git, bare)
        (bare / "config").write_text(CORE.format(folder=folder, evil=repo.evil))
        if is_control:
            by_hand(bare, "status", check=False)
            assert repo.ran()
            continue
        outcome = await call(app, folder, "status", projectPath="docs")
        assert outcome.error is not None
        assert outcome.error.code in ("INVALID_INPUT", "SECURITY_VIOLATION")
        assert (await call(app, folder, "status")).ok
        assert not repo.ran()
        assert MARKER not in seen


async def test_a_repository_around_the_working_directory_is_not_found(app: App, tmp_path: Path) -> None:
    repo = Repo(tmp_path / "work")
    fsmonitor(repo)
    (repo.top / "sub").mkdir()
    outcome = await call(app, repo.top / "sub", "status")
    assert outcome.error is not None
    assert outcome.error.code == "INVALID_INPUT"
    assert not repo.ran()


# -- reading and writing outside


PARTS = ["packed-refs", "HEAD", "index", "info/exclude", "refs/heads/main", "shallow", "logs/HEAD"]


@pytest.mark.parametrize("name", _params(PARTS, set(PARTS[3:])))
async def test_no_part_of_a_repository_shows_a_file_outside(app: App, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text(f"{SECRET}\n")
    repo = Repo(tmp_path / "work")
    repo.change()
    (repo.git / name).unlink(missing_ok=True)
    (repo.git / name).symlink_to(outside)
    if name == "packed-refs":
        assert SECRET in repo.run("status", check=False), "the control shows it"
    for operation, args in (
        ("status", ()), ("log", ()), ("branch", ()), ("branch", ("new",)), ("commit", ("-m", "x", "b.txt")),
        ("checkout", ("other",)),
    ):  # fmt: skip
        outcome = await call(app, repo.top, operation, *args)
        assert SECRET not in str(outcome.to_dict()), operation
    assert outside.read_text() == f"{SECRET}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "outside.txt", "work"]


async def test_objects_outside_are_not_read(app: App, tmp_path: Path) -> None:
    other = Repo(tmp_path / "other")
    (other.top / "a.txt").write_text(f"{SECRET}\n")
    other.run("commit", "-qam", SECRET)
    id = other.run("rev-parse", "HEAD").strip()
    for plant in ("alternates", "link"):
        repo = Repo(tmp_path / plant)
        if plant == "alternates":
            (repo.git / "objects/info").mkdir(exist_ok=True)
            (repo.git / "objects/info/alternates").write_text(f"{other.git / 'objects'}\n")
        else:
            (repo.git / "objects").rename(repo.top / "objects-before")
            (repo.git / "objects").symlink_to(other.git / "objects")
        assert SECRET in repo.run("log", id), "the control shows it"
        for operation, args in (("log", (id,)), ("diff", (f"{id}~1", id)), ("checkout", (id,))):
            outcome = await call(app, repo.top, operation, *args)
            assert not outcome.ok
            assert SECRET not in str(outcome.to_dict())


async def test_a_work_tree_outside_is_neither_read_nor_written(app: App, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text(f"{SECRET}\n")
    repo = Repo(tmp_path / "work")
    repo.set("core.worktree", str(outside))
    assert SECRET in repo.run("diff"), "the control shows it"
    assert (await call(app, repo.top, "diff")).output["diff"] == ""
    assert (await call(app, repo.top, "checkout", "other")).ok
    assert (repo.top / "a.txt").read_text() == "two\n"
    assert (outside / "a.txt").read_text() == f"{SECRET}\n"


@pytest.mark.parametrize("name", [".git", ".GIT", "git~1", ".g\u200cit", ".."])
async def test_a_tree_that_writes_into_the_repository_is_not_checked_out(app: App, tmp_path: Path, name: str) -> None:
    repo = Repo(tmp_path / "work")
    blob = repo.run("hash-object", "-w", "--stdin", stdin="evil\n").strip()

    def tree(*entries: str) -> str:
        """Written as it stands: `git mktree` would refuse some names."""
        data = b"".join(
            mode.encode() + b" " + name.encode() + b"\0" + bytes.fromhex(id)
            for mode, name, id in (entry.split(":", 2) for entry in entries)
        )
        words = ["git", "hash-object", "-t", "tree", "-w", "--stdin", "--literally"]
        ran = subprocess.run(words, cwd=repo.top, input=data, capture_output=True, check=True)
        return ran.stdout.decode().strip()

    hooks = tree(f"100755:post-checkout:{blob}")
    top = tree(f"40000:{name}:{tree(f'40000:hooks:{hooks}')}", f"100644:a.txt:{blob}")
    commit = repo.run("commit-tree", "-m", "x", top).strip()
    outcome = await call(app, repo.top, "checkout", commit)
    assert not outcome.ok
    assert not any((repo.git / "hooks").glob("post-checkout"))
    assert not (tmp_path / "hooks").exists()


@pytest.mark.parametrize("name", [".vscode/tasks.json", ".husky/pre-commit", ".mcp.json", ".envrc", "sub/.bashrc", ".env"])
@pytest.mark.sample(2)
async def test_what_the_host_runs_is_not_checked_out(app: App, tmp_path: Path, name: str) -> None:
    repo = Repo(tmp_path / "work")
    repo.run("checkout", "-qb", "evil")
    (repo.top / name).parent.mkdir(exist_ok=True)
    (repo.top / name).write_text("evil\n")
    repo.run("add", "-Af")
    repo.run("commit", "-qm", "Evil")
    repo.run("checkout", "-q", "main")
    for args in (("evil",), ("-b", "new", "evil"), ("evil", "--", name), ("evil", "--", ".")):
        outcome = await call(app, repo.top, "checkout", *args)
        assert outcome.status == "denied", (args, outcome)
    assert not (repo.top / name).exists()


@pytest.mark.parametrize("name", ["twice", "HEAD", "refs", "a1b2c3d"])
async def test_a_branch_with_the_name_of_something_else_is_judged(app: App, tmp_path: Path, name: str) -> None:
    """`git diff` takes the tag, and `git checkout` the branch: what is judged must be what is checked out."""
    repo = Repo(tmp_path / "work")
    repo.run("checkout", "-qb", "evil")
    (repo.top / ".vscode").mkdir()
    (repo.top / ".vscode/tasks.json").write_text("evil\n")
    repo.run("add", "-Af")
    repo.run("commit", "-qm", "Evil")
    repo.run("update-ref", f"refs/heads/{name}", "HEAD")
    repo.run("checkout", "-q", "main")
    repo.run("branch", "-qD", "evil")
    repo.run("tag", "twice", "other")
    assert ".vscode" not in repo.run("diff", "--name-only", "HEAD", "twice", check=False)
    for args in ((name,), ("-b", "new", name), (name, "--", "."), (name, "--", ".vscode")):
        outcome = await call(app, repo.top, "checkout", *args)
        assert outcome.status == "denied", (args, outcome)
        assert not (repo.top / ".vscode").exists(), args
    assert "other" in repo.run("branch", "--list")


async def test_a_revision_that_changes_meanwhile_is_not_checked_out(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = Repo(tmp_path / "work")
    target = git_run.Repository.target

    async def turned(self: git_run.Repository, revision: str) -> str:
        judged = await target(self, revision)
        repo.run("update-ref", "refs/heads/other", "main")
        return judged

    monkeypatch.setattr(git_run.Repository, "target", turned)
    outcome = await call(app, repo.top, "checkout", "other")
    assert outcome.error is not None
    assert "changed meanwhile" in outcome.error.message
    assert repo.run("branch", "--show-current").strip() == "main"


async def test_a_link_of_a_repository_is_not_written_through(app: App, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.txt").write_text("before\n")
    repo = Repo(tmp_path / "work")
    (repo.top / "d").mkdir()
    (repo.top / "d" / "x.txt").write_text("evil\n")
    repo.run("add", "-A")
    repo.run("commit", "-qm", "Folder")
    (repo.top / "d" / "x.txt").unlink()
    (repo.top / "d").rmdir()
    (repo.top / "d").symlink_to(outside)
    for args in (("--", "d/x.txt"), ("HEAD", "--", "d"), ("--", ".")):
        await call(app, repo.top, "checkout", *args)
        assert (outside / "x.txt").read_text() == "before\n"
        assert [path.name for path in outside.iterdir()] == ["x.txt"]


async def test_a_pipe_in_place_of_a_file_ends_in_time(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "work")
    repo.change()
    (repo.git / "config").unlink()
    os.mkfifo(repo.git / "config")
    (repo.git / "info" / "exclude").unlink()
    os.mkfifo(repo.git / "info" / "exclude")
    async with App.open(os.devnull, home=tmp_path / "home", sandbox={"seconds": 3}) as app:
        outcome = await call(app, repo.top, "status")
        assert outcome.status in ("timeout", "failure", "success"), outcome
        assert outcome.metrics.duration_ms < 20_000


async def test_whether_something_is_outside_is_not_told(app: App, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "there.txt").write_text(SECRET)
    repo = Repo(tmp_path / "work")
    (repo.top / "out").symlink_to(outside)
    for operation in ("diff", "checkout"):
        for form in ("../outside/{}", "out/{}", f"{outside}/{{}}", "out/../outside/{}"):
            told = []
            for name in ("there.txt", "elses.txt"):
                outcome = await call(app, repo.top, operation, form.format(name))
                told.append(str((outcome.output, outcome.error)).replace(name, "NAME"))
            assert told[0] == told[1], (operation, form)


async def test_a_repository_that_is_held_is_waited_for_no_longer_than_bounded(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolgate.tools.git_run.MAX_WAIT_SECONDS", 0.2)
    repo = Repo(tmp_path / "work")
    repo.change()
    handle = os.open(repo.git, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        outcome = await call(app, repo.top, "commit", "-m", "x", "b.txt")
        assert outcome.error is not None
        assert (outcome.error.code, outcome.error.retryable) == ("INVOCATION_ERROR", True)
        assert (await call(app, repo.top, "status")).ok
    finally:
        os.close(handle)
    assert (await call(app, repo.top, "commit", "-m", "x", "b.txt")).ok


# -- what is checked out or shown although no comparison by names tells of it


def _with_tasks(top: Path) -> Repo:
    """A repository whose commits have what an editor runs, which is not among the files."""
    repo = Repo(top)
    (repo.top / ".vscode").mkdir()
    (repo.top / ".vscode" / "tasks.json").write_text("evil\n")
    repo.run("add", "-Af")
    repo.run("commit", "-qm", "Tasks")
    repo.run("branch", "-f", "same")
    return repo


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
@pytest.mark.parametrize("args", [("--", "."), ("HEAD", "--", ".")])
async def test_what_the_index_has_git_not_look_at_is_not_checked_out(
    app: App, tmp_path: Path, flag: str, args: tuple[str, ...]
) -> None:
    repo = _with_tasks(tmp_path / "work")
    repo.run("update-index", flag, ".vscode/tasks.json")
    shutil.rmtree(repo.top / ".vscode")
    before = (repo.git / "index").read_bytes()
    outcome = await call(app, repo.top, "checkout", *args)
    assert outcome.status == "denied", outcome
    assert not (repo.top / ".vscode").exists()
    assert (repo.git / "index").read_bytes() == before


@pytest.mark.parametrize("args", [("same",), ("-b", "new"), ("-b", "new", "same")])
async def test_a_repository_without_an_index_has_all_of_a_commit_judged(
    app: App, tmp_path: Path, args: tuple[str, ...]
) -> None:
    """As `git clone --no-checkout` leaves it: every file is written, though both commits are the same."""
    repo = _with_tasks(tmp_path / "work")
    for path in repo.top.iterdir():
        if path != repo.git:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (repo.git / "index").unlink()
    outcome = await call(app, repo.top, "checkout", *args)
    assert outcome.status == "denied", outcome
    assert not (repo.top / ".vscode").exists()


async def test_more_files_than_can_be_judged_are_not_checked_out(app: App, tmp_path: Path) -> None:
    repo = Repo(tmp_path / "work")
    repo.run("checkout", "-qb", "evil")
    folder = repo.top.joinpath(*["n" * 240] * 8)
    folder.mkdir(parents=True)
    for number in range(1_000):
        (folder / f"{number:06}{'x' * 200}").touch()
    (repo.top / "z" / ".vscode").mkdir(parents=True)
    (repo.top / "z" / ".vscode" / "tasks.json").write_text("evil\n")
    repo.run("add", "-Af")
    repo.run("commit", "-qm", "Evil")
    repo.run("checkout", "-q", "main")
    outcome = await call(app, repo.top, "checkout", "evil")
    assert not outcome.ok
    assert not (repo.top / "z").exists()


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_file_of_the_history_is_not_shown_under_another_name(app: App, tmp_path: Path) -> None:
    """By its id, of which four digits will do, a deleted .env is compared with a file that may be shown."""
    repo = Repo(tmp_path / "work")
    (repo.top / ".env").write_text(f"KEY={SECRET}\n")
    repo.run("add", "-Af")
    repo.run("commit", "-qm", "Secret")
    blob, tree = repo.run("rev-parse", "HEAD:.env", "HEAD^{tree}").split()
    repo.run("rm", "-q", ".env")
    repo.run("commit", "-qm", "Remove it")
    shown = repo.run("diff", blob, "--", "a.txt")
    assert SECRET in shown, "the control"
    for args in ((blob, "--", "a.txt"), (blob[:6], "--", "a.txt"), (blob, "HEAD"), (blob,), (blob, blob), (tree, "HEAD")):
        outcome = await call(app, repo.top, "diff", *args)
        assert not outcome.ok, args
        assert SECRET not in str(outcome.to_dict())
    assert (await call(app, repo.top, "diff", "HEAD~1", "HEAD")).ok
