"""Programs of others that the tests run, installed once below the tests' own environment and kept there.

What is installed is pinned by a file with hashes; a changed file means a new folder. Several test processes may ask at once:
the first installs, the others wait for it.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

SECONDS = 900
"""That an installation may take."""


def installed(name: str, pins: Path, install: Callable[[Path], None]) -> Path:
    """The folder of what `pins` says, made by `install` if it is not there yet."""
    places = Path(sys.prefix) / "for-tests"
    places.mkdir(exist_ok=True)
    folder = places / f"{name}-{hashlib.sha256(pins.read_bytes()).hexdigest()[:12]}"
    ready = folder / ".ready"
    with (places / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            for old in places.glob(f"{name}-*"):
                shutil.rmtree(old)
            folder.mkdir()
            install(folder)
            ready.touch()
    return folder


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run an installer; what it said is in the error if it failed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise RuntimeError(
            f"{Path(command[0]).name} failed with {done.returncode}:\n{done.stdout[-2_000:]}{done.stderr[-4_000:]}"
        )
