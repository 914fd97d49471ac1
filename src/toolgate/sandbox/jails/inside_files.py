"""Our own files that run inside a jail, and the interpreter that runs them."""

import sys
from functools import cache
from pathlib import Path

from toolgate.sandbox.jail import Unavailable

INSIDE = Path(__file__).resolve().parent.parent / "inside"
STARTER = INSIDE / "starter.py"
WORKER = INSIDE / "python_worker.py"
WORKER_PARTS = ("worker_values", "worker_channel")
"""The modules of the Python worker, each after those that it imports."""


@cache
def python() -> Path:
    """Our own interpreter, not a virtual environment's link to it."""
    base: str | None = getattr(sys, "_base_executable", None) or sys.executable
    if not base or not Path(base).is_file():
        raise Unavailable("The Python that runs Toolgate cannot be found: name one in the setting sandbox.python.")
    return Path(base).resolve()
