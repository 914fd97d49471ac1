"""What tests need of the machine besides Python: one table, and the tests that wait for what is missing.

A test that needs something says so with `@pytest.mark.needs("docker")`. One with a parameter called `jail`, `backend` or
`user` needs that jail or that user, and need not say it. Where a thing is missing, its tests are neither passed nor failed:
they wait, are counted as such, and the run ends with a line for each thing, how many tests wait for it, and how to get it.

TOOLGATE_TEST_REQUIRE names things that must be there (with commas between them, or `all`): their tests fail instead of
waiting. CI sets it, so that a missing thing can't hide a fault.

    python -m tests.needs packages      # the Debian packages of what `make test` installs, of those that are missing
"""

import functools
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
from _pytest.outcomes import Skipped

from toolgate.sandbox.jails.bubblewrap import PLACES
from toolgate.sandbox.jails.landlock import HOLDS_SIGNALS, version

REQUIRE = "TOOLGATE_TEST_REQUIRE"
PROPERTY = "waits for"
NOBODY = 65_534


ROOT = Path(__file__).resolve().parents[1]
USERS = {"root": "root", "ordinary": "another user"}


class Thing(NamedTuple):
    """Something that a machine may lack."""

    is_there: Callable[[], bool]
    how: str
    """What to do to have it."""
    packages: tuple[str, ...] = ()
    """Debian packages that `make test` installs when it may."""


def _on_path(*programs: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(program) for program in programs)


def _runs(*command: str, **how: Any) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=60, **how).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _user_namespaces() -> bool:
    """For an ordinary user: root may be allowed what others are not."""
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    return _runs("unshare", "--user", "--map-root-user", "--mount", "true", cwd="/", **other)


def _docker() -> bool:
    """An engine that answers, or, for root, a daemon that the tests can start."""
    own = os.geteuid() == 0 and shutil.which("dockerd") is not None
    return shutil.which("docker") is not None and (own or _runs("docker", "version", "--format", "{{.Server.Version}}"))


def _n8n() -> bool:
    from tests.n8n.installation import is_installed

    return is_installed()


def chromium_program() -> str | None:
    """The one without windows, where it is installed: opening a page is a quarter of the other's work for it."""
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


def interpreter() -> str | None:
    """A Python like ours that every user can run: ours may be in somebody's home."""
    alike = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (Path(sys.executable).resolve(), Path("/usr/bin") / alike, Path("/usr/local/bin") / alike):
        if path.exists() and _is_open(path.resolve()):
            return str(path)
    return None


def _is_open(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in path.parents)


THINGS = {
    "chromium": Thing(
        lambda: chromium_program() is not None,
        "apt-get install chromium-headless-shell, or chromium where there is no such package",
        ("chromium-headless-shell",),
    ),
    "bubblewrap": Thing(
        # Where Toolgate looks, which is not PATH.
        lambda: shutil.which("bwrap", path=PLACES) is not None, "apt-get install bubblewrap", ("bubblewrap",)
    ),
    "npm": Thing(_on_path("node", "npm"), "apt-get install nodejs npm", ("nodejs", "npm")),
    "pip": Thing(
        # That of the system, which the sandbox has.
        lambda: _runs("/usr/bin/python3", "-m", "pip", "--version"), "apt-get install python3-pip", ("python3-pip",)
    ),
    "systemd": Thing(_on_path("systemd-analyze"), "apt-get install systemd", ("systemd",)),
    "tmux": Thing(_on_path("tmux"), "apt-get install tmux", ("tmux",)),
    "curl": Thing(_on_path("curl"), "apt-get install curl", ("curl",)),
    "docker": Thing(_docker, "apt-get install docker.io, then run them as root or as somebody who may use the engine"),
    "n8n": Thing(_n8n, "make test-n8n, which installs it from npm: 3 GB, ten minutes"),
    "root": Thing(lambda: os.geteuid() == 0, "run them as root"),
    "another user": Thing(
        lambda: os.geteuid() != 0 or (_is_open(ROOT / "tests") and interpreter() is not None),
        "move the checkout out of root's home, to /srv for example, and take a Python that every user can run",
    ),
    "mount namespaces": Thing(
        # Only root has them to itself: whoever is not waits for that alone.
        lambda: os.geteuid() != 0 or _runs("unshare", "--mount", "true"), "run them outside of a container"
    ),
    "user namespaces": Thing(
        _user_namespaces,
        "sysctl -w kernel.unprivileged_userns_clone=1 (Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0); "
        "inside a container or a chroot they can't be had",
    ),
    "landlock": Thing(lambda: version() >= HOLDS_SIGNALS, "boot a kernel with Landlock, Linux 6.12 or newer"),
}  # fmt: skip


@functools.cache
def is_there(thing: str) -> bool:
    """Found out once in each process."""
    return THINGS[thing].is_there()


class Waiting(Skipped):
    """Ends a test that can't run here."""

    def __init__(self, things: list[str], why: str) -> None:
        super().__init__(why)
        self.things = things


def need(*things: str) -> None:
    """For fixtures and helpers that a test reaches: it goes on where all of them are there."""
    if missing := [thing for thing in dict.fromkeys(things) if not is_there(thing)]:
        wait_for(*missing)


def wait_for(*things: str, because: str = "") -> NoReturn:
    """Leave the test that is running waiting, or let it fail where one of the things is required."""
    why = because or " ".join(f"Missing: {thing}. To have it: {THINGS[thing].how}." for thing in things)
    if absolute := required().intersection(things):
        pytest.fail(f"{REQUIRE} requires {', '.join(sorted(absolute))}. {why}", pytrace=False)
    raise Waiting(list(things), why)


def required() -> set[str]:
    names = {name.strip() for name in os.environ.get(REQUIRE, "").split(",")} - {""}
    if unknown := names - THINGS.keys() - {"all"}:
        raise pytest.UsageError(f"{REQUIRE} names what is not known: {', '.join(sorted(unknown))}")
    return set(THINGS) if "all" in names else names


def needed(item: pytest.Item) -> Iterator[str]:
    """By its marks, and by its parameters."""
    for mark in item.iter_markers("needs"):
        yield from mark.args
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    user = parameters.get("user")
    if user in USERS:
        yield USERS[user]
    for jail in (parameters.get("jail"), parameters.get("backend")):
        yield from needed_by_jail(jail, user)


def needed_by_jail(jail: Any, user: Any = None) -> tuple[str, ...]:
    """What a jail is made of, for one user or for whoever runs the tests."""
    is_root = user == "root" if user else os.geteuid() == 0
    spaces = "mount namespaces" if is_root else "user namespaces"
    return {"bubblewrap": ("bubblewrap", spaces), "namespaces": (spaces,), "landlock": ("landlock",)}.get(jail, ())


# -- the hooks of pytest


def pytest_configure(config: pytest.Config) -> None:
    """The mark, and whatever is wrong with the setting."""
    config.addinivalue_line("markers", f"needs(*things): waits where one of them is missing: {', '.join(THINGS)}")
    required()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A word that is mistyped must not be found missing."""
    if unknown := {thing for item in items for thing in needed(item)} - THINGS.keys():
        raise pytest.UsageError(f"Tests need what is not in tests/needs.py: {', '.join(sorted(unknown))}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture."""
    need(*needed(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: "pytest.CallInfo[None]") -> Any:  # noqa: ARG001 - the hook's names
    """What it waits for goes into the report, which is all that comes from the other processes."""
    report = yield
    if call.excinfo and isinstance(call.excinfo.value, Waiting):
        report.user_properties.append((PROPERTY, call.excinfo.value.things))
    return report


def _waits_for(report: Any) -> list[str]:
    properties: dict[str, Any] = dict(report.user_properties) if isinstance(report, pytest.TestReport) else {}
    found: list[str] = properties.get(PROPERTY, [])
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: Any) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """Their own count and letter."""
    return ("waiting", "w", ("WAITING", {"yellow": True})) if _waits_for(report) and report.skipped else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Any:
    """The last lines of all."""
    done = yield
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal and not hasattr(session.config, "workerinput"):
        counts = Counter(thing for report in terminal.stats.get("waiting", []) for thing in _waits_for(report))
        for thing, count in sorted(counts.items()):
            wait = "1 test waits" if count == 1 else f"{count} tests wait"
            terminal.write_line(f"Missing: {thing} ({wait} for it). To have it: {THINGS[thing].how}")
    return done


if __name__ == "__main__":
    if sys.argv[1:] != ["packages"]:
        sys.exit(__doc__)
    sys.stdout.write(" ".join(package for name, thing in THINGS.items() if not is_there(name) for package in thing.packages))
