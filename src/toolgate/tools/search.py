"""`file_search`: text, regular expressions and names in the files of the folder that a call works in, found by ripgrep.

ripgrep runs in the sandbox, though it takes some 40 ms more than on the host: it opens files by their paths, so a folder
that somebody turns into a link while it walks would lead it out of the working directory. In the jail there is nothing
else to be led to, what no tool may open is not there, and a pattern that takes long ends with its time and memory.
"""

import os
import re
import stat
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field
from typing_extensions import TypedDict

from toolgate.errors import Denied, InvalidInput, ToolError
from toolgate.extras import MissingExtra, program_of
from toolgate.model import Capability, ErrorCase, Example
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool
from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.results import CommandResult, limit_error
from toolgate.sandbox.tenant_places import tenant_places
from toolgate.sandbox.workspace_scan import UNSEARCHED, ProtectedPaths
from toolgate.screening.safe_open import name_of
from toolgate.threads import to_thread
from toolgate.tools.call_folder import CallFolder, check_words, discarding, folder_of
from toolgate.tools.files import OUTSIDE
from toolgate.tools.globs import Globs, check_glob

MAX_LINE_CHARS = 400
MAX_SECONDS = 20.0
MODES = ("grep", "glob", "regex")
ALWAYS = (
    "--no-config", "--color=never", "--no-messages", "--no-require-git", "--no-ignore-global", "--no-follow", "--no-mmap",
    "--sort=path", "--null",
)  # fmt: skip
"""Nothing is read from a configuration file, no link is followed, .gitignore counts with or without a repository."""
CONTENT = (
    "--with-filename", "--line-number", "--no-heading", "--no-context-separator", "--text", "--max-columns-preview",
    f"--max-columns={MAX_LINE_CHARS}", "--regex-size-limit=10M", "--dfa-size-limit=50M",
)  # fmt: skip
"""`--text`: else a file that turns out to be no text is reported by a sentence among the results, which a name could forge.
Lines that are no text are left out afterwards."""
NEVER = ("--glob=!.git", *(f"--glob=!**/{name}/**" for name in sorted(UNSEARCHED)))
"""Behind all other patterns, of which the last counts: repositories, and what is not looked through for sensitive files."""
RECORD = re.compile(r"([^\0]*)\0(\d+)([:-])([^\n]*)\n")
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")

Query = Annotated[str, Field(min_length=1, max_length=2_000)]
Patterns = Annotated[list[str], Field(max_length=20)]


class Match(TypedDict, total=False):
    """A line of a file. `context`: it only stands beside one that was found."""

    path: str
    line: int
    text: str
    context: bool


class Matches(TypedDict):
    """The lines that were found, by path and line."""

    matches: list[Match]
    truncated: bool


class FileNames(TypedDict):
    """The files whose names were found, relative to the working directory."""

    files: list[str]
    truncated: bool


class SearchSpace(NamedTuple):
    """The folder that is searched, and the one around it that the program sees, with what is hidden there."""

    work: CallFolder
    folder: Path
    root: Path
    parts: ProtectedPaths


@tool(
    tier="read_only",
    category="search",
    tags=["files", "search"],
    timeout=MAX_SECONDS + 10,
    capabilities=[Capability(action="search", description="Search in files and their names")],
    errors=[
        OUTSIDE,
        ErrorCase("INVALID_INPUT", when="The pattern can't be read, or there is no such folder.", advice="Correct it."),
        ErrorCase("TIMEOUT", when="The search took too long.", advice="Search a smaller folder, or include fewer files."),
        ErrorCase(
            "SANDBOX_UNAVAILABLE", when="No sandbox can be had on this machine.", advice="`toolgate doctor` says why."
        ),
    ],
    examples=[
        Example(name="Find a text", arguments={"mode": "grep", "query": "TODO", "include": ["*.py"]}),
        Example(name="Find definitions", arguments={"mode": "regex", "query": r"def \w+", "context": 2}),
        Example(name="Find files by name", arguments={"mode": "glob", "query": "src/**/*.ts"}),
    ],
)  # fmt: skip
async def file_search(
    ctx: InvokeContext,
    mode: Literal["grep", "glob", "regex"],
    query: Query,
    path: str = ".",
    include: Patterns | None = None,
    exclude: Patterns | None = None,
    context: Annotated[int, Field(ge=0, le=10)] = 0,
    ignoreCase: bool = False,
    hidden: bool = False,
    maxResults: Annotated[int, Field(ge=1, le=1_000)] = 100,
) -> Matches | FileNames:
    """Search files of the working directory that .gitignore does not exclude.

    Args:
        mode: grep finds text, regex a regular expression, glob file names.
        query: Text or pattern.
        path: Directory to search.
        include: Patterns of file names.
        exclude: The same, to leave out.
        context: Lines around each match.
        hidden: Hidden files too.
    """
    program = program_of("rg")
    if program is None:
        raise MissingExtra("files")
    check_words(query=query, include=include, exclude=exclude)
    if mode == "glob" and include:
        raise InvalidInput("include is for the modes grep and regex.", suggestion="In mode glob, query is the pattern.")
    globs = Globs("query", [query], ignore_case=ignoreCase) if mode == "glob" else Globs("include", include or ())
    hidden = hidden or globs.hidden
    words = [str(program.resolve()), *ALWAYS, *(("--hidden",) if hidden else ())]
    words += [f"--type-add=named:{name}" for name in globs.names()] + (["--type=named"] if globs.names() else [])
    if mode == "glob":
        words.append("--files")
    else:
        words += [*CONTENT, f"--max-count={maxResults + 1}", f"--context={context}"]
        words += ["--fixed-strings"] if mode == "grep" else []
        words += ["--ignore-case"] if ignoreCase else ["--case-sensitive"]
        words.append(f"--regexp={query}")
    for pattern in exclude or ():
        check_glob("exclude", pattern)
        words.append(f"--glob=!{pattern}")
    space = await to_thread(_space, await folder_of(ctx), path)
    ended = await _run(ctx, words, space)
    ctx.used(path, f"sandbox:{ended.jail}")
    told = Told(space, globs, hidden)
    if mode == "glob":
        return _names(ended, told, maxResults)
    return _lines(ended, told, maxResults)


def _space(work: CallFolder, path: str) -> SearchSpace:
    """Looks through the working directory for what is hidden; where that is too large, or the folder is one that is not
    looked into, through the folder alone: nothing is searched that was not looked at."""
    with work.opened(path) as opened:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            raise InvalidInput(f"{path} is no folder.", suggestion="Name its folder, and the file in include.")
        folder = Path(name_of(opened) or work.folder)
    work.judge(str(folder))
    inner = folder.relative_to(work.folder).parts
    if UNSEARCHED.isdisjoint(inner):
        try:
            return SearchSpace(work, folder, work.folder, work.places.parts(work.folder))
        except Denied:
            if not inner:
                raise
    return SearchSpace(work, folder, folder, work.places.parts(folder))


async def _run(ctx: InvokeContext, words: list[str], space: SearchSpace) -> CommandResult:
    sandbox: Sandbox = ctx.get(Sandbox)
    async with tenant_places().place(ctx.actor.tenant):
        ended = await sandbox.run_command(
            [*words, *NEVER, "--", "./"],
            workspace=discarding(space.root, space.parts, space.folder),
            seconds=min(MAX_SECONDS, sandbox.limits.seconds, ctx.time_limit),
            depth=ctx.call.depth,
        )
    if ended.stopped not in (None, "output"):
        raise limit_error(ended)
    # 2 is also what it ends with if there was something that it could not open, of which it says nothing.
    if ended.stopped is None and (ended.exit_code not in (0, 1, 2) or (ended.exit_code == 2 and ended.stderr.strip())):
        _raise(ended.stderr.strip())
    return ended


def _raise(said: str) -> None:
    """Raise what ripgrep complains of: nearly always the pattern."""
    words = " ".join(said.removeprefix("rg: ").split())
    if not any(word in words for word in ("regex", "pattern", "glob", "literal")):
        raise ToolError("The search failed.", details={"said": words[:500]} if words else None)
    raise InvalidInput(
        f"The pattern can't be read: {words[:300]}",
        suggestion="It is a regular expression of Rust, on one line; mode grep takes plain text.",
    )


# -- results


def _lines(ended: CommandResult, told: "Told", most: int) -> Matches:
    matches: list[Match] = []
    found = 0
    for path, line, sign, text in RECORD.findall(ended.stdout):
        shown = told.path(path)
        if shown is None or CONTROL.search(text):
            continue
        match: Match = {"path": shown, "line": int(line), "text": text.rstrip("\r")[: MAX_LINE_CHARS + 100]}
        if sign == ":":
            found += 1
            if found > most:
                return {"matches": _without_tail(matches), "truncated": True}
        else:
            match["context"] = True
        matches.append(match)
    return {"matches": matches, "truncated": ended.stopped is not None}


def _without_tail(matches: list[Match]) -> list[Match]:
    """Without lines that belong to a match that is left out, as far as they stand in another file."""
    last = next((index for index in range(len(matches) - 1, -1, -1) if "context" not in matches[index]), -1)
    return [match for index, match in enumerate(matches) if index <= last or match["path"] == matches[last]["path"]]


def _names(ended: CommandResult, told: "Told", most: int) -> FileNames:
    *whole, _rest = ended.stdout.split("\0")
    files = [shown for path in whole if (shown := told.path(path)) is not None]
    return {"files": files[:most], "truncated": len(files) > most or ended.stopped is not None}


class Told:
    """Says by which path a file is told of; of what no tool may open, or was not asked for, nothing is."""

    def __init__(self, space: SearchSpace, globs: Globs, hidden: bool) -> None:
        from toolgate.screening.folder_search import FolderLookups

        self._space = space
        self._globs = globs
        self._hidden = hidden
        self._looks: Any = FolderLookups(most=1_000_000)
        self._known: dict[str, str | None] = {}

    def path(self, path: str) -> str | None:
        if path not in self._known:
            self._known[path] = self._judged(path.removeprefix("./"))
        return self._known[path]

    def _judged(self, path: str) -> str | None:
        from toolgate.screening.folder_search import slashed

        if not self._globs.match(path) or not (self._hidden or all(part[:1] != "." for part in path.split("/"))):
            return None
        place = self._space.folder / path
        work = self._space.work
        if work.places.is_foreign(work.folder, str(place)):
            return None
        if work.places.rules.named(slashed(str(place)), self._looks) is not None:
            return None
        return str(place.relative_to(work.folder))
