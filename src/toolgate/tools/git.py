"""`git` and `git_commit`: what a developer does with a repository of the working directory every day.

Neither hooks nor the configuration of the repository count (`sandbox.repository`), and no word of a caller can be an option
(`git_arguments`). `git_commit` is the operation commit with arguments of its own.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Literal

from pydantic import Field

from toolgate.errors import InvalidInput
from toolgate.model import Capability, ErrorCase, Example
from toolgate.model import Operation as Risk
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool
from toolgate.sandbox import repository as scripts
from toolgate.sandbox.results import CommandResult
from toolgate.threads import to_thread
from toolgate.tools import git_output
from toolgate.tools.call_folder import check_words, refused
from toolgate.tools.git_arguments import Words, branch_name, commit_only, read, revision
from toolgate.tools.git_output import Branches, CheckedOut, Committed, Diff, DiffFiles, Log, Status
from toolgate.tools.git_run import Repository, open_repository
from toolgate.undo import Journal

CHANGING = ("commit", "branch", "checkout")
MAX_COMMITS = 200
MAX_BRANCHES = 1_000
MAX_MESSAGE_CHARS = 20_000
MAX_RESTORED_FILES = 200
PLAIN_DIFF = (
    "diff", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-color", "--ignore-submodules=all", "--submodule=short",
)  # fmt: skip
PATCH = ("--patch", "--src-prefix=a/", "--dst-prefix=b/")
NAMED = ("--raw", "-z", "--no-abbrev")

OUTSIDE = ErrorCase(
    "SECURITY_VIOLATION",
    when="The repository (by a .git that is a file or link, too) or a path leads out of the working directory.",
    advice="Name a repository in the working directory, whose .git is a folder.",
)
SAID = ErrorCase(
    "INVALID_INPUT",
    when="There is no repository, an argument is not known here, or git refuses (nothing to commit, unknown revision …).",
    advice="Correct the arguments; the message says what git said.",
)
NO_SANDBOX = ErrorCase(
    "SANDBOX_UNAVAILABLE", when="No sandbox can be had on this machine.", advice="`toolgate doctor` says why."
)


@tool(
    tier="read_only",
    category="development",
    tags=["git"],
    operations={
        "status": "read_only",
        "diff": "read_only",
        "log": "read_only",
        "commit": Risk(tier="write", requires_confirmation=True),
        "branch": Risk(tier="write"),
        "checkout": Risk(tier="write", destructive=True),
    },
    errors=[OUTSIDE, SAID, NO_SANDBOX],
    examples=[
        Example(name="See what changed", arguments={"operation": "status"}),
        Example(name="Compare a file with the last commit", arguments={"operation": "diff", "args": ["HEAD", "--", "src"]}),
        Example(name="The last commits", arguments={"operation": "log", "args": ["-n", "5"]}),
    ],
)
async def git(
    ctx: InvokeContext,
    operation: Literal["status", "diff", "log", "commit", "branch", "checkout"],
    args: list[str] | None = None,
    projectPath: str = ".",
) -> Status | Diff | DiffFiles | Log | Committed | Branches | CheckedOut:
    """Execute git operations on a repository of the working directory.

    Args:
        operation: What to do.
        args: As git takes them. diff: [--staged] [--stat] [REV [REV]] [-- PATH…]; log: [-n N] [REV] [-- PATH…];
            commit: -m MESSAGE [PATH…]; branch: [NAME [REV]]; checkout: REV, -b NAME [REV], or [REV] -- PATH….
        projectPath: The folder of the repository.
    """
    check_words(args=args)
    words = read(operation, args or ())
    async with open_repository(ctx, projectPath, writes=operation in CHANGING) as repository:
        match operation:
            case "status":
                return await _status(repository, words)
            case "diff":
                return await _diff(repository, words)
            case "log":
                return await _log(repository, words)
            case "commit":
                message = "\n\n".join(words.messages)
                paths = [*words.plain, *(words.paths or ())]
                return await _commit(repository, message, paths, tracked="all" in words.flags)
            case "branch":
                return await _branch(repository, words)
            case "checkout":
                return await _checkout(repository, words)


@tool(
    tier="write",
    category="development",
    tags=["git"],
    capabilities=[Capability(action="commit", description="Create Git commit", requires_confirmation=True)],
    errors=[OUTSIDE, SAID, NO_SANDBOX],
    examples=[Example(name="Commit everything", arguments={"message": "Add notes", "files": ["."]})],
    alias_of="git",
)
async def git_commit(
    ctx: InvokeContext,
    message: Annotated[str, Field(min_length=1, max_length=MAX_MESSAGE_CHARS)],
    files: list[str] | None = None,
    projectPath: str = ".",
) -> Committed:
    """Create a Git commit in a repository of the working directory.

    Args:
        message: The commit message.
        files: Files and folders to commit, "." for all; if empty, what is staged.
        projectPath: The folder of the repository.
    """
    check_words(message=message, files=files)
    async with open_repository(ctx, projectPath, writes=True) as repository:
        return await _commit(repository, message, files or ())


# -- looking


async def _status(repository: Repository, words: Words) -> Status:
    paths = repository.paths([*words.plain, *(words.paths or ())])
    ended = await repository.look(
        "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--ignore-submodules=all", "--no-renames",
        "--", *repository.pathspecs(paths),
    )  # fmt: skip
    branch, files = git_output.status(ended.stdout)
    truncated = len(files) > git_output.MAX_FILES or ended.stopped is not None
    return {"branch": branch, "files": files[: git_output.MAX_FILES], "truncated": truncated}


async def _diff(repository: Repository, words: Words) -> Diff | DiffFiles:
    revisions, paths = await _told_apart(repository, words, most=2)
    staged = ["--cached"] if "staged" in words.flags else []
    specs = repository.pathspecs(paths)
    if "names" in words.flags:
        ended = await repository.look(*PLAIN_DIFF, *staged, "--numstat", "-z", *revisions, "--", *specs)
        files = git_output.numstat(ended.stdout)
        truncated = len(files) > git_output.MAX_FILES or ended.stopped is not None
        return {"files": files[: git_output.MAX_FILES], "truncated": truncated}
    ended = await repository.look(*PLAIN_DIFF, *staged, *PATCH, *revisions, "--", *specs)
    text, cut = await to_thread(git_output.shown_diff, ended.stdout, repository.may_show)
    return {"diff": text, "truncated": cut or ended.stopped is not None}


async def _log(repository: Repository, words: Words) -> Log:
    revisions, paths = await _told_apart(repository, words, most=1)
    count = min(words.count if words.count is not None else 20, MAX_COMMITS)
    ended = await repository.look(
        "log", "--no-show-signature", "--no-ext-diff", "--no-textconv", "--no-decorate", "--no-mailmap", "--no-color",
        f"--max-count={count}", git_output.LOG_FORMAT, *(revisions or ["HEAD"]), "--",
        *(repository.pathspecs(paths) if paths else ()),
    )  # fmt: skip
    return {"commits": git_output.commits(ended.stdout)}


async def _told_apart(repository: Repository, words: Words, most: int) -> tuple[list[str], list[str]]:
    """Revisions and paths. Without --, a word that is a file's name is a path, as far as no revision can follow it."""
    plain, paths = list(words.plain), list(words.paths or ())
    if words.paths is None:
        first = await to_thread(_first_path, repository, plain)
        plain, paths = plain[:first], plain[first:]
    if len(plain) > most:
        raise InvalidInput(f"There are more than {most} revisions.", suggestion="Put -- before paths.")
    return [commit_only(word) for word in plain], repository.paths(paths)


def _first_path(repository: Repository, words: Sequence[str]) -> int:
    return next((at for at, word in enumerate(words) if repository.has(word)), len(words))


# -- changing


async def _commit(repository: Repository, message: str, files: Sequence[str], *, tracked: bool = False) -> Committed:
    if not message.strip():
        raise InvalidInput("A commit needs a message.", suggestion='Give it with "-m".')
    if len(message) > MAX_MESSAGE_CHARS:
        raise InvalidInput(f"The message has more than {MAX_MESSAGE_CHARS:,} characters.")
    if tracked and files:
        raise InvalidInput("Either all tracked files are committed, or those that are named.", suggestion="Leave out -a.")
    paths = repository.paths(files)
    add = "all" if paths else "update" if tracked else "staged"
    specs = repository.pathspecs(paths) if add != "staged" else []
    ended = await repository.change(scripts.COMMIT, add, *specs, operation="commit", stdin=message.encode())
    id, _, rest = ended.stdout.partition("\0")
    changed = git_output.numstat(rest)
    return {
        "commitHash": id, "filesChanged": len(changed),
        "insertions": sum(file.get("insertions", 0) for file in changed),
        "deletions": sum(file.get("deletions", 0) for file in changed),
    }  # fmt: skip


async def _branch(repository: Repository, words: Words) -> Branches:
    if words.paths or len(words.plain) > 2:
        raise InvalidInput("A branch is made by its name, and where it begins.", suggestion="args: [NAME, REV]")
    if words.plain:
        name, *start = words.plain
        start = [revision(word) for word in start]
        await repository.change(scripts.RUN, "branch", "--no-track", branch_name(name), *start, operation="branch")
    ended = await repository.look("for-each-ref", f"--count={MAX_BRANCHES}", git_output.BRANCH_FORMAT, "refs/heads/")
    return {"branches": git_output.branches(ended.stdout)}


async def _checkout(repository: Repository, words: Words) -> CheckedOut:
    plain = [revision(word) for word in words.plain]
    if len(plain) > 1 or (words.paths is None and not plain and words.branch is None):
        raise InvalidInput("What shall be checked out?", suggestion="args: [REV], [-b, NAME, REV] or [REV, --, PATH…]")
    if words.paths is not None:
        if words.branch is not None or not words.paths:
            raise InvalidInput("Files are checked out of one revision, or of what is staged.", suggestion="[REV, --, PATH…]")
        return await _restore(repository, plain, repository.paths(words.paths))
    judged = [plain[0], await repository.target(plain[0])] if plain else ["", ""]
    target = judged[1] or "HEAD"
    changed = _paths_of(await repository.look(*PLAIN_DIFF, *NAMED, "HEAD", target, "--"))
    # What git writes is what its index lacks: all files, if there is no index.
    unlike = _paths_of(await repository.look(*PLAIN_DIFF, *NAMED, "--cached", target, "--"))
    await to_thread(_judge, repository, sorted({*changed, *unlike}))
    make = ["-b", words.branch] if words.branch is not None else []
    ended = await repository.change(scripts.CHECKOUT, *judged, *make, *plain, "--", operation="checkout")
    return {"commitHash": ended.stdout.strip(), "filesChanged": len(changed)}


async def _restore(repository: Repository, plain: Sequence[str], paths: Sequence[str]) -> CheckedOut:
    """Put files of a revision, or of the index, in place of what is there, which the journal keeps."""
    specs = repository.pathspecs(paths)
    commit = [await repository.target(word) for word in plain]
    changed = sorted(set(_paths_of(await repository.compare(*PLAIN_DIFF, *NAMED, *commit, "--", *specs))))
    if len(changed) > MAX_RESTORED_FILES:
        raise InvalidInput(f"More than {MAX_RESTORED_FILES} files would change.", suggestion="Name fewer of them.")
    await to_thread(_judge, repository, changed)
    async with AsyncExitStack() as kept:
        for path in changed:
            place = repository.folder / path
            await kept.enter_async_context(repository.ctx.get(Journal).changing(repository.ctx.call, place, linked=False))
        ended = await repository.change(scripts.CHECKOUT, "", "", *commit, "--", *specs, operation="checkout")
    repository.ctx.used(*changed)
    return {"commitHash": ended.stdout.strip(), "filesChanged": len(changed)}


def _paths_of(ended: CommandResult) -> list[str]:
    """The paths of a raw diff. Raises InvalidInput if there are more than were told: they could not be judged."""
    if ended.stopped is not None:
        raise InvalidInput("More files would change than can be looked at.", suggestion="Check out fewer of them, by paths.")
    return git_output.raw_paths(ended.stdout)


def _judge(repository: Repository, paths: Sequence[str]) -> None:
    """Raise Denied if a file that git is to write is none that a tool may write: it may be run by the host."""
    from toolgate.screening.folder_search import FolderLookups, slashed

    looks, work = FolderLookups(), repository.work
    for path in paths:
        place = repository.folder / path
        found = work.places.rules.named(slashed(str(place)), looks, writing=True) or work.places.runs(work.folder, place)
        if found is not None:
            raise refused(f"{path} is a place for {found}")
