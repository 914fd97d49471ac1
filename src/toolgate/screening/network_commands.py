"""Commands that are known to need a network, or a daemon that the sandbox does not have.

They are refused before a person is asked about them and before they wait for an answer that cannot come. That is all this
list is for: the jail decides what a command reaches, so one that is missing here only fails later, and less clearly.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from toolgate.screening.programs import family


class NetworkUse(NamedTuple):
    """The reason why a command cannot do without a network, and what to do instead."""

    why: str
    advice: str
    helped_by_hosts: bool = True
    """False: no host that is named for it would help."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SUBCOMMANDS = {
    "npm": _names(
        """install i in ins inst insta instal isnt isnta isntal isntall add ci clean-install ic install-clean isntall-clean
        install-test it install-ci-test cit update up upgrade udpate audit outdated publish view info show v search ping
        login adduser whoami dist-tag deprecate owner access token star stars team org profile dlx create fetch"""
    ),
    "git": _names("push pull fetch clone ls-remote fetch-pack send-pack"),
    "bun": _names("install i add update x create publish"),
    "pip": _names("install download wheel index search"),
    "pipx": _names("install run upgrade inject"),
    "poetry": _names("install add update lock publish"),
    "cargo": _names("install fetch update add publish search"),
    "go": _names("get install"),
    "gem": _names("install update push fetch"),
    "bundle": _names("install update"),
    "composer": _names("install require update create-project"),
    "apt": _names("install update upgrade full-upgrade dist-upgrade source download"),
}
"""Subcommands that fetch or send, by the program's family: yarn and pnpm are of npm's."""
UV = re.compile(r"(?:add|sync|lock|run|publish|python|pip (?:install|sync|compile|download)|tool (?:install|run|upgrade))\b")
ALWAYS = _names("curl wget ssh scp sftp ftp rsync telnet ping dig nslookup host uvx")
DAEMONS = _names("docker docker-compose nerdctl buildah")
"""Programs that have a daemon, or the kernel's own rights, do the work: neither is in the sandbox."""
ALONE = _names("--version -v --help -h help version")
OFFLINE = _names("--offline --no-index --dry-run --help -h")
"""Options with which such a command needs no network."""
LOCAL_PLACE = re.compile(r"\.{0,2}/|\.\.?\Z|file:", re.IGNORECASE)
"""The beginning of a repository or file that is named by its path."""
RUNNERS = _names("npx pnpx")
"""Programs that run a package: it is fetched unless it is installed."""
GLOBAL_PACKAGES = (Path("/usr/lib/node_modules"), Path("/usr/local/lib/node_modules"), Path("/usr/share/nodejs"))
PACKAGE_NAME = re.compile(r"(@[^/@]+/)?[^/@]+")
NPM_ADVICE = "Or use the tool npm_install."


def network_use(words: Sequence[str], folders: Sequence[Path]) -> NetworkUse | None:
    """The reason why a command needs a network; None if it is not known to. `folders`: where it may look for packages."""
    program, arguments = family(words[0]), list(words[1:])
    if program == "python" and arguments[:2] == ["-m", "pip"]:
        program, arguments = "pip", arguments[2:]
    plain = [word for word in arguments if not word.startswith("-")]
    first = plain[0] if plain else ""
    if program in DAEMONS:
        return None if set(arguments) <= ALONE else _daemon(program)
    if not OFFLINE.isdisjoint(arguments):
        return None
    if program in RUNNERS or (program, first) in (("npm", "exec"), ("npm", "x")):
        return _package(program, arguments if program in RUNNERS else arguments[arguments.index(first) + 1 :], folders)
    if program == "git" and any(LOCAL_PLACE.match(word) for word in plain[1:]):
        return None  # the repository is a folder
    if _fetches(program, first, plain) or list(words) == ["yarn"]:
        spoken = f"{words[0]} {first}" if first and program not in ALWAYS else words[0]
        return NetworkUse(f"{spoken} needs a network and has none in the sandbox", NPM_ADVICE if program == "npm" else "")
    return None


def _fetches(program: str, first: str, plain: Sequence[str]) -> bool:
    if program in ALWAYS:
        return True
    if program == "uv":
        return UV.match(" ".join(plain)) is not None
    return first in SUBCOMMANDS.get(program, ())


def _package(program: str, arguments: Sequence[str], folders: Sequence[Path]) -> NetworkUse | None:
    """A package that is not installed where npx looks for it: in the folder and those above it, and on the system."""
    if not OFFLINE.union(("--no-install", "--no")).isdisjoint(arguments):
        return None
    plain = [word for word in arguments if not word.startswith("-")]
    named = PACKAGE_NAME.match(plain[0]) if plain else None
    if named is None:
        return None
    name, places = named[0], [folder / "node_modules" for folder in folders]
    for place in (*places, *GLOBAL_PACKAGES):
        # os.path, which takes a name that no file can have for one that is not there
        if os.path.exists(place / name) or os.path.exists(place / ".bin" / name.rpartition("/")[2]):  # noqa: PTH110
            return None
    return NetworkUse(
        f"{program} would have to fetch {name}, which is not installed here, and has no network in the sandbox", NPM_ADVICE
    )


def _daemon(program: str) -> NetworkUse:
    return NetworkUse(
        f"{program} has its daemon do the work, which is not in the sandbox and cannot be reached from it",
        "Build images outside of Toolgate; the tool docker_run runs those that are there.",
        helped_by_hosts=False,
    )
