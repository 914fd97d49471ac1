"""The environment of the peers: made once in `.peers` from the hashed lock, made again when the lock changes."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LOCK = HERE / "peers.txt"
HOME = HERE / ".peers"
BIN = HOME / ("Scripts" if os.name == "nt" else "bin")
STAMP = HOME / "lock.sha256"


def interpreter() -> Path:
    """The peers' Python, installed if it is not there yet or not of this lock and this Python."""
    wanted = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
    python = BIN / "python"
    if not STAMP.exists() or STAMP.read_text() != wanted:
        shutil.rmtree(HOME, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--require-hashes", "-r", str(LOCK)], check=True)
        STAMP.write_text(wanted)
    return python


def versions() -> dict[str, str]:
    """What peers.in pins, by name."""
    lines = (HERE / "peers.in").read_text().splitlines()
    return dict(line.split("==", 1) for line in lines if "==" in line and not line.startswith("#"))
