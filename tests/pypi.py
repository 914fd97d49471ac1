"""MCP servers from the Python package index, for the tests: each in a virtual environment of its own, pinned with hashes."""

import functools
import sys
from pathlib import Path

from tests.installing import installed, run

PINS = Path(__file__).parent / "conformance" / "pypi"


@functools.cache
def environment(name: str) -> Path:
    """The virtual environment of `mcp-server-{name}`; the first call on a machine makes it, which takes some seconds."""
    pins = PINS / f"{name}.txt"

    def install(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder)], folder)
        python = str(folder / "bin" / "python")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
        run([*pip, "--require-hashes", "--only-binary=:all:", "--requirement", str(pins)], folder)

    return installed(f"pypi-{name}", pins, install)


def command(name: str) -> list[str]:
    """What runs `mcp-server-{name}`."""
    return [str(environment(name) / "bin" / "python"), "-m", f"mcp_server_{name}"]
