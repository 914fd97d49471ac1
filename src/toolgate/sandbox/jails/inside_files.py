"""Our own files that run inside a jail, and the interpreter that runs them."""

import sys
from functools import cache
from pathlib import Path

INSIDE = Path(__file__).resolve().parent.parent / "inside"
STARTER = INSIDE / "starter.py"
WORKER = INSIDE / "python_worker.py"
WORKER_PARTS = ("worker_values", "worker_channel", "worker_tools")
"""The modules of the Python worker, each after those that it imports."""


@cache
def python() -> Path:
    """Our own interpreter, not a virtual environment's link to it."""
    base: str = getattr(sys, "_base_executable", None) or sys.executable
    return Path(base).resolve()
