"""The runtime for Python: CPython in a jail, started before it is needed and used once."""

import os
from functools import cache
from pathlib import Path

from toolgate.sandbox.jail import ResourceLimits, Spec, Unavailable
from toolgate.sandbox.jails.inside_files import WORKER, python


def find_python(configured: Path | None = None) -> Path:
    """The interpreter that runs sandboxed code: the one that is set, else the one that runs us, without its virtual
    environment, whose packages are ours and not the code's."""
    if configured is None:
        return python()
    found = configured.expanduser()
    if not found.is_file() or not os.access(found, os.X_OK):
        raise Unavailable(f"There is no Python at {found}: change the setting sandbox.python.")
    return found.resolve()


def spec(
    interpreter: Path,
    limits: ResourceLimits,
    *,
    packages: tuple[Path, ...] = (),
) -> Spec:
    """The process to jail for Python code. `packages`: folders that it may import from."""
    folders = tuple(folder.expanduser().resolve() for folder in packages)
    return Spec(
        profile="python",
        argv=(str(interpreter), str(WORKER), *map(str, folders)),
        environment=(("MALLOC_ARENA_MAX", "1"), ("PYTHONDONTWRITEBYTECODE", "1"), ("TZ", "UTC")),
        readable=(*library(interpreter), WORKER.parent, *folders),
        limits=limits,
    )


@cache
def library(interpreter: Path) -> tuple[Path, ...]:
    """The folders of an interpreter's library. The system's own is not named: it lies where all programs do."""
    prefix = interpreter.parent.parent
    if prefix in (Path("/usr"), Path("/")) or not (prefix / "lib").is_dir():
        return ()
    return (prefix,)
