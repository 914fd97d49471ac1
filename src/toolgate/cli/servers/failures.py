"""Messages about a server that could not be added: the cause, the last that it said, and what to do."""

import re
import shlex
from collections.abc import Sequence

from toolgate.cli.output import complain, note
from toolgate.errors import CallError, Failed
from toolgate.mcp.client.backoff import STDERR_PREFIX

JAIL = "Its jail shows it the system's programs and its own folder, and gives it no network."
HINTS = {
    r"No module named '?([\w.]+)|Cannot find (?:module|package) '([^'/.][^']*)'": (
        "{found} is missing where it runs. Install it there, or start it with the interpreter that has it, such as "
        "`-- .venv/bin/python server.py`. If {found} is a file of yours in another folder: `--cwd DIR`."
    ),
    r"No such file or directory|ENOENT": f"{JAIL} If it needs that file: `--read PATH`, or `--cwd DIR` for a whole folder.",
    r"Read-only file system|Permission denied|EROFS|EACCES": f"{JAIL} If it is to write there: `--write DIR`.",
    r"Name or service not known|Temporary failure in name resolution|Network is unreachable|ENOTFOUND|EAI_AGAIN": (
        f"{JAIL} If it needs a host: `--domain HOST`."
    ),
    r"SyntaxError|IndentationError": "Correct the file, and add it again.",
}
"""Last words of programs, and what they mostly mean."""


def say_not_added(name: str, failure: CallError | None, command: Sequence[str], *, as_json: bool) -> int:
    """Tell that a server was not added. Gives the exit code; raises the failure where a program is to read it."""
    failure = failure or Failed()
    lines = (failure.details or {}).get("stderr", [])
    advice = failure.suggestion or _hint(lines) or _default(command, failure)
    if as_json:
        words = f"Server {name} was not added. {failure.message}"
        raise Failed(failure.code, words, suggestion=advice, details=failure.details)
    complain(f"Server {name} was not added. {failure.message.partition(STDERR_PREFIX)[0] if lines else failure.message}")
    for line in lines:
        if not line.startswith("Traceback ("):  # what follows says it all
            note((f"  {line}", "dim"))
    note(advice)
    note(("Nothing was saved. `--keep` adds a server that can't be started yet.", "dim"))
    return 1


def _hint(lines: Sequence[str]) -> str | None:
    for line in reversed(lines):
        for pattern, hint in HINTS.items():
            if (match := re.search(pattern, line)) is not None:
                return hint.format(found=next((group for group in match.groups() if group), ""))
    return None


def _default(command: Sequence[str], failure: CallError) -> str:
    if not command:
        return "Check its address or package, then add it again."
    by_itself = f"`{shlex.join(command)}`"
    if "start_seconds" in failure.message:
        return (
            f"A server answers on stdout when it is asked on stdin: see whether {by_itself} is one (transport stdio). "
            "If it only takes longer to start: `--start-seconds 120`."
        )
    if "exited with code 0" in failure.message:
        return (
            f"An MCP server keeps running and answers on stdout when it is asked on stdin: see whether {by_itself} is one."
        )
    return f"Run {by_itself} by itself: its stderr usually says why."
