"""What holds Monty's workers on Linux: the starter of all jails, without a jail around it.

Monty's pool starts its workers by itself, so it is given a command that confines itself first: another user, no
capabilities, no files but the system's libraries, a filter of system calls, and an end when we end.
"""

import fcntl
import marshal
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

from toolgate.sandbox.port import MB, ResourceLimits, Spec

FOLDER_PREFIX = "toolgate-monty-"
SPARE_MEMORY = 64 * MB
"""What a worker may take beyond what it counts as the program's."""


class ConfinedCommand:
    """A command that starts a worker without rights: the starter, which reads its order from a file beside it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / "monty-held"
        self._errors = folder / "errors"
        self._lock: BinaryIO | None = None
        """Held as long as we live, so that others know whose folder is nobody's."""

    @classmethod
    def made(cls, binary: Path, limits: ResourceLimits) -> "ConfinedCommand | None":
        """None where there is nothing to hold it with."""
        if sys.platform != "linux" or landlock_version() < 3:
            return None
        _sweep()
        held = cls(Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX)))
        held._write(binary, limits)
        return held

    def _write(self, binary: Path, limits: ResourceLimits) -> None:
        from toolgate.sandbox.jails.launch import STARTER, python

        self._folder.chmod(0o711)
        if os.geteuid() == 0:
            binary = self._reachable(binary)
        order = self._folder / "order"
        order.write_bytes(_order(binary, limits))
        self._lock = order.open("rb")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        command = shlex.join([str(python()), "-I", "-S", "-B", str(STARTER), "9"])
        errors = shlex.quote(str(self._errors))
        self.path.write_text(f"#!/bin/sh\nexec 9<{shlex.quote(str(order))} 2>>{errors}\nexec {command}\n")
        self.path.chmod(0o700)

    def _reachable(self, binary: Path) -> Path:
        """A name by which anybody may run it: folders of root's are often closed to others."""
        own = self._folder / "monty"
        with suppress(OSError):
            own.hardlink_to(binary)
            return own
        shutil.copyfile(binary, own)
        own.chmod(0o755)
        return own

    def last_words(self) -> str:
        """What a worker that could not be started said."""
        with suppress(OSError):
            return self._errors.read_text("utf-8", "replace").strip()[-300:]
        return ""

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


def _sweep() -> None:
    """Remove what was left by those who were killed."""
    for order in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*/order"):
        with suppress(OSError), order.open("rb") as lock:
            if order.stat().st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(order.parent, ignore_errors=True)


def _order(binary: Path, limits: ResourceLimits) -> bytes:
    """What the starter is to do, as for a jail's worker, but for the limits: a worker serves many runs."""
    from toolgate.sandbox.jails.identity import choose
    from toolgate.sandbox.jails.launch import order, system_paths
    from toolgate.sandbox.jails.seccomp import program

    spec = Spec(profile="deno", argv=(str(binary), "subprocess"), limits=limits)
    readable = [str(view.path) for view in system_paths() if view.kind == "bind"]
    rules = [{"path": path, "write": False, "execute": True} for path in (*readable, str(binary))]
    made = order(
        spec,
        identity=choose(spec, mapped=()),
        home="/",
        temporary="/",
        work="/",
        filter=program("deno", alone=True),  # which lets the starter's place be taken once
        landlock={"rules": rules, "scope": True},
    )
    said = marshal.loads(made[4:])
    most = limits.memory + SPARE_MEMORY
    numbers = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_MEMLOCK": 0, "RLIMIT_NOFILE": 64, "RLIMIT_DATA": most}
    # One thread needs no core of its own, and all workers have this same order.
    said |= {"rlimits": {name: (value, value) for name, value in numbers.items()}, "environment": {}, "cpu": None}
    said["ends_with_parent"] = True
    data = marshal.dumps(said, 2)
    return len(data).to_bytes(4, "little") + data


@cache
def landlock_version() -> int:
    """Of the kernel; 0 if it has none."""
    import ctypes

    create, ask_version = 444, 1
    call: Callable[..., int] = ctypes.CDLL(None).syscall
    return max(0, call(create, None, 0, ask_version))
