"""Finds the program of a server's command, and the files that it can't run without.

A jail shows a program nothing of a person's files. So a script brings its interpreter along, a virtual environment its base,
an installed package its neighbours, and nothing else. A person's own files among it (a script, its project) are listed
apart, so that secret files in them stay hidden.
"""

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from toolgate.errors import did_you_mean
from toolgate.mcp.client.errors import Unreachable

SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
PACKAGE_RUNNERS = dict.fromkeys(("npx", "npm", "pnpm", "yarn", "bunx"), "npm") | dict.fromkeys(("uvx", "uv", "pipx"), "pypi")
"""Programs that download what they run, and the setting that installs it once instead."""
INTERPRETERS = ("node", "nodejs", "python", "python2", "python3", "deno", "bun", "ruby", "sh", "bash")
SHIM_FOLDER = "shims"
"""The folder in which pyenv and its like place their shims."""
PROJECT_FILES = ("package.json", "pyproject.toml", "node_modules")
SCRIPT_SUFFIXES = (".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".rb", ".sh")
INLINE_CODE_OPTIONS = ("-c", "-e", "--eval", "-p", "--print", "eval")
"""Options that are followed by code, not by a file name."""
MAX_INTERPRETER_DEPTH = 4
"""A script may be interpreted by a script."""


class LaunchCommand(NamedTuple):
    argv: tuple[str, ...]
    readable: tuple[Path, ...]
    """The files that it needs besides the system's programs and libraries."""
    path: tuple[str, ...] = SYSTEM_PATH
    own: tuple[Path, ...] = ()
    """Its script, or that script's project: a person's files, mounted without what no tool may open."""


def find_command(name: str, words: Sequence[str], cwd: Path | None) -> LaunchCommand:
    """Finds the program by its full path. Raises Unreachable if there is none."""
    if not words or not words[0]:
        raise Unreachable(message=f"Server {name!r} has no command.", suggestion="Set its command, npm, pypi or url.")
    program = find_program(words[0], cwd)
    if program is None:
        setting = package_setting(words[0])
        advice = f"name the package in the setting `{setting}` (`--{setting}`): it is installed once."
        raise Unreachable(
            message=f"The program {words[0]!r} of server {name!r} is not installed.",
            suggestion=f"Install it, or {advice if setting else 'give its full path.'}",
        )
    path = dict.fromkeys((str(program.parent), *SYSTEM_PATH))
    own = tuple(_own_files(name, program, words[1:], cwd))
    return LaunchCommand((str(program), *words[1:]), tuple(dict.fromkeys(required_paths(program))), tuple(path), own)


def find_program(word: str, cwd: Path | None = None) -> Path | None:
    """Finds a program by its path, or by its name in PATH."""
    if "/" in word:
        path = Path(os.path.abspath(Path(cwd or Path.cwd(), word).expanduser()))  # noqa: PTH100 - links stay as they are
        return path if path.is_file() and os.access(path, os.X_OK) else None
    found = shutil.which(word)
    return Path(os.path.abspath(found)) if found else None  # noqa: PTH100


def package_setting(word: str) -> str | None:
    """The setting that takes the place of a package runner; None for other programs."""
    return PACKAGE_RUNNERS.get(Path(word).name)


def required_paths(program: Path, steps: int = MAX_INTERPRETER_DEPTH) -> Iterator[Path]:
    """The program, its link target, its interpreter, and what those are installed with."""
    if steps == 0:
        return
    real = Path(os.path.realpath(program))
    for path in dict.fromkeys((program, real)):
        yield path
        yield from _installation(path, steps)
    interpreter = _interpreter(real)
    if interpreter is not None:
        yield from required_paths(interpreter, steps - 1)


def _installation(path: Path, steps: int) -> Iterator[Path]:
    packages = [folder for folder in path.parents if folder.name == "node_modules"]
    if packages:
        yield packages[-1]
    if path.parent.name not in ("bin", "Scripts"):
        return
    prefix = path.parent.parent
    settings = prefix / "pyvenv.cfg"
    if settings.is_file():
        yield prefix
        yield from _base_of(settings, steps)
    elif next(prefix.glob("lib/python3*/os.py"), None) is not None:
        yield from (folder for folder in (prefix / "bin", prefix / "lib", prefix / "lib64") if folder.is_dir())


def _base_of(settings: Path, steps: int) -> Iterator[Path]:
    """The installation that a virtual environment was made from."""
    for line in settings.read_text(errors="replace").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "home":
            base = find_program(str(Path(value.strip()) / "python3"))
            if base is not None:
                yield from required_paths(base, steps - 1)


def _interpreter(script: Path) -> Path | None:
    """The interpreter in the first line of a script."""
    try:
        with script.open("rb") as file:
            first = file.readline(512)
    except OSError:
        return None
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return find_program(words[0]) if words else None


def _own_files(name: str, program: Path, words: Sequence[str], cwd: Path | None) -> Iterator[Path]:
    """For an interpreter: its script, or that script's project. Raises Unreachable if the script does not exist."""
    script = _script(words) if _interprets(program) else None
    if script is None:
        return
    path = Path(script).expanduser()
    if not path.is_absolute() and cwd is None:
        if path.suffix in SCRIPT_SUFFIXES:
            raise Unreachable(
                message=f"The script {script} of server {name!r} is a relative path, and no working folder is set.",
                suggestion="Set the working folder with `--cwd DIR` (setting `cwd`), or give the full path.",
            )
        return
    real = Path(os.path.realpath(Path(cwd or "/", path)))
    if real.is_file():
        yield _project(real) or real
    elif path.suffix in SCRIPT_SUFFIXES and not real.exists():
        raise Unreachable(
            message=f"The script {real} of server {name!r} does not exist.",
            suggestion=_near(real) or "Check its name and the working folder (`--cwd DIR`, setting `cwd`).",
        )


def script_in(words: Sequence[str], here: Path) -> Path | None:
    """The script or module below a folder that a command runs, whether it exists or not; None: it names none. For commands
    that a person types there."""
    program, *arguments = words
    if "/" in program and (found := _below(program, here)) is not None:
        return found
    known = find_program(program, here)
    if known is not None and _interprets(known):
        script = _script(arguments)
        return _module(arguments, here) if script is None else _below(script, here)
    # A runner of scripts, as in `fastmcp run server.py:mcp`.
    named = (
        _below(word.partition(":")[0], here) for word in arguments if Path(word.partition(":")[0]).suffix in SCRIPT_SUFFIXES
    )
    return next((path for path in named if path is not None), None)


def _below(word: str, here: Path) -> Path | None:
    path = Path(os.path.realpath(Path(here, word).expanduser()))
    is_script = path.is_file() or (path.suffix in SCRIPT_SUFFIXES and not path.exists())
    return path if is_script and path.is_relative_to(os.path.realpath(here)) else None


def _module(words: Sequence[str], here: Path) -> Path | None:
    for option, module in pairwise(words):
        if option == "-m":
            top = here / module.partition(".")[0]
            return next((path for path in (top.with_suffix(".py"), top / "__init__.py", top) if path.exists()), None)
        if not option.startswith("-"):
            break
    return None


def _interprets(program: Path) -> bool:
    kind = Path(os.path.realpath(program)).name.rstrip("0123456789.")
    return kind in INTERPRETERS or program.name in INTERPRETERS


def _script(words: Sequence[str]) -> str | None:
    """The script among an interpreter's arguments; None: it runs a module, or code."""
    for place, word in enumerate(words):
        if word in INLINE_CODE_OPTIONS or word == "-m":
            return None
        if not word.startswith("-") and (place, word) != (0, "run"):  # as in `deno run`
            return word
    return None


def _near(missing: Path) -> str | None:
    """Suggests a file with a similar name."""
    with suppress(OSError):
        return did_you_mean(missing.name, (path.name for path in missing.parent.iterdir() if path.is_file()))
    return None


def _project(script: Path) -> Path | None:
    """The nearest folder with a project file that the script's owner or we made: what another user puts above must not widen
    what a server is given."""
    home = Path.home()
    with suppress(OSError):
        owners = {script.stat().st_uid, os.geteuid() if hasattr(os, "geteuid") else 0}
        for folder in script.parents:
            found = folder.stat()
            if home.is_relative_to(folder) or found.st_uid not in owners or found.st_mode & stat.S_IWOTH:
                return None
            if any((folder / name).exists() and (folder / name).stat().st_uid in owners for name in PROJECT_FILES):
                return folder
    return None
