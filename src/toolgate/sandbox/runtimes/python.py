"""The runtime for Python: CPython in a jail, started before it is needed and used once."""

import os
import sys
from functools import cache
from pathlib import Path

from toolgate.sandbox.jails.inside_files import WORKER
from toolgate.sandbox.port import ResourceLimits, Spec, Unavailable


def find_python(configured: Path | None = None) -> Path:
    """The interpreter that runs sandboxed code: the one that is set, else the one that runs us, without its virtual
    environment, whose packages are ours and not the code's."""
    if configured is None:
        return _own()
    found = configured.expanduser()
    if not found.is_file() or not os.access(found, os.X_OK):
        raise Unavailable(f"There is no Python at {found}; the setting sandbox.python names it.")
    return found.resolve()


@cache
def _own() -> Path:
    base: str | None = getattr(sys, "_base_executable", None) or sys.executable
    if not base or not Path(base).is_file():
        raise Unavailable("The Python that runs Toolgate can't be found; name one in the setting sandbox.python.")
    return Path(base).resolve()


def spec(
    python: Path,
    limits: ResourceLimits,
    *,
    workspace: Path | None = None,
    fixed: tuple[Path, ...] = (),
    hidden: tuple[Path, ...] = (),
    packages: tuple[Path, ...] = (),
    layered: bool = False,
) -> Spec:
    """What to jail for Python code. `packages`: folders that it may import from. `layered`: what it changes in the
    workspace is in a layer over it."""
    folders = tuple(folder.expanduser().resolve() for folder in packages)
    return Spec(
        profile="python",
        argv=(str(python), str(WORKER), *map(str, folders)),
        environment=(("MALLOC_ARENA_MAX", "1"), ("PYTHONDONTWRITEBYTECODE", "1"), ("TZ", "UTC")),
        readable=(*_library(python), WORKER.parent, *folders),
        workspace=workspace,
        fixed=fixed,
        hidden=hidden,
        layers=(workspace,) if workspace is not None and layered else (),
        limits=limits,
    )


@cache
def _library(python: Path) -> tuple[Path, ...]:
    """Where an interpreter keeps what it consists of. The system's own needs no word: it lies where all programs do."""
    prefix = python.parent.parent
    if prefix in (Path("/usr"), Path("/")) or not (prefix / "lib").is_dir():
        return ()
    return (prefix,)
