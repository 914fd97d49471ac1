"""Runs one function of ours on one JSON value: `helper_main.py MODULE FUNCTION MEMORY_BYTES CPU_SECONDS FOLDER…`.

The value comes on stdin, the result goes to stdout. The folders are those that modules are imported from.
"""

import json
import sys
from importlib import import_module


def bound(memory: int, seconds: int) -> None:
    """Limits what this process may take, where the system can: its parent ends it in any case."""
    try:
        import resource
    except ImportError:
        return
    limits = ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0))
    for what, most in limits:
        try:
            resource.setrlimit(what, (most, most))
        except (ValueError, OSError):  # a lower limit stands already
            continue


def main(module: str, function: str, memory: str, seconds: str, *folders: str) -> None:
    bound(int(memory), int(seconds))
    sys.path[:0] = folders
    work = getattr(import_module(module), function)
    sys.stdout.write(json.dumps(work(json.load(sys.stdin.buffer))))


if __name__ == "__main__":
    main(*sys.argv[1:])
