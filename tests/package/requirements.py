"""Which packages Toolgate needs, from its metadata and theirs, and the lines of the lock file that pin them."""

import re
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = Path(__file__).resolve().parents[2] / "requirements" / "lock.txt"
ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?==(?:.*\\\n)*.*\n", re.MULTILINE)


def needed(*extras: str) -> set[str]:
    """The packages that the core needs, and extras do, with all that those need in turn on this machine."""
    found: set[str] = set()
    left: list[tuple[str, frozenset[str]]] = [("toolgate", frozenset(extras))]
    done: set[tuple[str, frozenset[str]]] = set()
    while left:
        name, wanted = one = left.pop()
        if one in done:
            continue
        done.add(one)
        found.add(name)
        for text in _requires(name):
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*wanted, "")):
                left.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return found - {"toolgate"}


def _requires(name: str) -> list[str]:
    try:
        return requires(name) or []
    except PackageNotFoundError:
        raise SystemExit(f"{name} is needed, and not installed here: `make clean`, then again.") from None


def locked(packages: set[str], file: Path) -> Path:
    """Writes the part of the lock file that is about some packages."""
    entries = list(ENTRY.finditer(LOCK.read_text(encoding="utf-8")))
    missing = packages - {canonicalize_name(entry["name"]) for entry in entries}
    if missing:
        raise SystemExit(f"The lock file does not pin {', '.join(sorted(missing))}: `make lock`.")
    file.write_text("".join(entry[0] for entry in entries if canonicalize_name(entry["name"]) in packages))
    return file
