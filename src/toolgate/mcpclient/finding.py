"""Which program a server's command means, and what of the machine that program can't do without.

A jail shows a program nothing of a person's files. So a script brings its interpreter along, a virtual environment its
base, an installed package its neighbours; and nothing is shown whose name was not on the way there.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from toolgate.mcpclient.port import Unreachable

SYSTEM = ("/usr/local/bin", "/usr/bin", "/bin")
RUNNERS = dict.fromkeys(("npx", "npm", "pnpm", "yarn", "bunx"), "npm") | dict.fromkeys(("uvx", "uv", "pipx"), "pypi")
"""Programs that fetch what they run, and the setting that does it once instead."""
INTERPRETERS = ("node", "nodejs", "python", "python2", "python3", "deno", "bun", "ruby", "sh", "bash")
PROJECT = ("package.json", "pyproject.toml", "node_modules")
MOST_STEPS = 4
"""From a script to what runs it, and to what runs that."""


class Command(NamedTuple):
    """What is started."""

    argv: tuple[str, ...]
    readable: tuple[Path, ...]
    """What it needs besides the system's own programs and libraries."""
    path: tuple[str, ...] = SYSTEM


def find(name: str, words: Sequence[str], cwd: Path | None) -> Command:
    """The program by its whole path. Raises Unreachable if there is none."""
    if not words or not words[0]:
        raise Unreachable(message=f"The server {name!r} has no command.", suggestion="Set its command, npm, pypi or url.")
    program = find_program(words[0], cwd)
    if program is None:
        raise Unreachable(
            message=f"The program {words[0]!r} of the server {name!r} is not installed here.",
            suggestion="Install it, or give its whole path in the setting `command`.",
        )
    readable = [*needs(program), *(_script(program, words[1:], cwd))]
    path = dict.fromkeys((str(program.parent), *SYSTEM))
    return Command((str(program), *words[1:]), tuple(dict.fromkeys(readable)), tuple(path))


def find_program(word: str, cwd: Path | None = None) -> Path | None:
    """By its path, or by its name on our PATH."""
    if "/" in word:
        path = Path(os.path.abspath(Path(cwd or Path.cwd(), word).expanduser()))  # noqa: PTH100 - links stay as they are
        return path if path.is_file() and os.access(path, os.X_OK) else None
    found = shutil.which(word)
    return Path(os.path.abspath(found)) if found else None  # noqa: PTH100


def fetches(word: str) -> str | None:
    """Whether it is a program that fetches what it runs: the setting that takes its place."""
    return RUNNERS.get(Path(word).name)


def needs(program: Path, steps: int = MOST_STEPS) -> Iterator[Path]:
    """The program, what it is a link to, what interprets it, and what those are installed with."""
    if steps == 0:
        return
    real = Path(os.path.realpath(program))
    for path in dict.fromkeys((program, real)):
        yield path
        yield from _installation(path, steps)
    interpreter = _interpreter(real)
    if interpreter is not None:
        yield from needs(interpreter, steps - 1)


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
                yield from needs(base, steps - 1)


def _interpreter(script: Path) -> Path | None:
    """What its first line names, if it is a script."""
    try:
        with script.open("rb") as file:
            first = file.readline(512)
    except OSError:
        return None
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return find_program(words[0]) if words else None


def _script(program: Path, words: Sequence[str], cwd: Path | None) -> Iterator[Path]:
    """If it is an interpreter: the script that it is to run, and the project that this belongs to."""
    kind = Path(os.path.realpath(program)).name.rstrip("0123456789.")
    if kind not in INTERPRETERS and program.name not in INTERPRETERS:
        return
    for word in words:
        if word.startswith("-"):
            continue
        path = Path(os.path.realpath(Path(cwd or Path.cwd(), word).expanduser()))
        if path.is_file():
            yield _project(path) or path
        return


def _project(script: Path) -> Path | None:
    home = Path.home()
    for folder in script.parents:
        if home.is_relative_to(folder):
            return None
        if any((folder / name).exists() for name in PROJECT):
            return folder
    return None
