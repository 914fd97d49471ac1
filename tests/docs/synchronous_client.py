"""Writes the client without async from the one with it: `python -m tests.docs.synchronous_client`."""

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).parents[2] / "src" / "toolgate" / "client"
PARTS = ("connection", "facets", "sources", "client")
HEADER = '"""The same as `async_{}.py`, for programs without an event loop: written from it by `make reference`."""'
REPLACED = (
    (r"\basync def\b", "def"),
    (r"\basync (with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bAsyncHTTPTransport\b", "HTTPTransport"),
    (r"\baclose\b", "close"),
    (r"\baiter_raw\b", "iter_raw"),
    (r"\bAsync([A-Z])", r"\1"),
    (r"\basync_(connection|facets|sources)\b", r"sync_\1"),
)


def written(part: str) -> str:
    """Gives the text that a file should have."""
    text = (CLIENT / f"async_{part}.py").read_text("utf-8")
    text = HEADER.format(part) + text[text.index('"""', 3) + 3 :]
    for pattern, replacement in REPLACED:
        text = re.sub(pattern, replacement, text)
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    for command in (["check", "--quiet", "--fix", "--select", "I,UP028", "--unsafe-fixes", "-"], ["format", "--quiet", "-"]):
        arguments = [*ruff, *command, "--stdin-filename", str(CLIENT / f"sync_{part}.py")]
        text = subprocess.run(arguments, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    for part in PARTS:
        (CLIENT / f"sync_{part}.py").write_text(written(part), encoding="utf-8")
