"""The environments of the peers: made once, in `.peers`, from hashed locks; made again when a lock changes."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
HOMES = {"peers": HERE / ".peers", "gateways": HERE / ".peers" / "gateways", "queues": HERE / ".peers" / "queues"}
"""What is measured in one process, the gateways, which need an older `mcp`, and the queues of jobs. Each has a list,
NAME.in, and its lock."""
SCRIPTS = "Scripts" if os.name == "nt" else "bin"


def interpreter(name: str = "peers") -> Path:
    """The Python of an environment, installed if it is not there yet or not of this lock and this Python."""
    lock, home = HERE / f"{name}.txt", HOMES[name]
    stamp = home / "lock.sha256"
    wanted = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()
    python = home / SCRIPTS / "python"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--require-hashes", "-r", str(lock)], check=True)
        stamp.write_text(wanted)
    return python


def versions() -> dict[str, str]:
    """What the lists pin, by name."""
    lines = [line for name in HOMES for line in (HERE / f"{name}.in").read_text().splitlines()]
    return dict(line.split("==", 1) for line in lines if "==" in line and not line.startswith("#"))
