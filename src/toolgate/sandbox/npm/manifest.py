"""package.json and the lock file: what they may ask npm for, and what becomes of them. Pure text.

A dependency comes from the registry, by a range of versions or a tag; from a URL only if an operator named its host. Paths,
git repositories, links and workspaces are refused: npm would look for them in folders that it is not given.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from toolgate.errors import InvalidInput
from toolgate.jsontext import is_deeper
from toolgate.network.allowed_hosts import AllowedHosts

MANIFEST = "package.json"
LOCK_FILES = ("npm-shrinkwrap.json", "package-lock.json")
"""The first that is there counts, as for npm."""
MAX_MANIFEST_BYTES = 2_000_000
MAX_LOCK_BYTES = 50_000_000
MAX_MANIFEST_DEPTH = 100
MAX_NAME_CHARS = 214
PACKAGE_NAME = re.compile(r"(?:@[A-Za-z0-9~][A-Za-z0-9._~-]*/)?[A-Za-z0-9~][A-Za-z0-9._~-]*", re.ASCII)
VERSION_RANGE = re.compile(r"[A-Za-z0-9.^~<>=|*+ -]{0,200}", re.ASCII)
"""A range or a tag: nothing in it can be a URL, a path or a repository."""
GROUPS = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies")
STAGED = (
    "name", "version", *GROUPS, "peerDependenciesMeta", "bundleDependencies", "bundledDependencies", "overrides", "engines",
    "os", "cpu", "type",
)  # fmt: skip
"""Fields that npm is given. Not `scripts`: those of the project are not for an installation to run."""
INDENT = re.compile(rb"^\s*\{\r?\n([ \t]+)")


class Dependency(NamedTuple):
    """One line of a group."""

    where: str
    name: str
    spec: str


class Manifest:
    """The content of a package.json."""

    def __init__(self, content: bytes | None) -> None:
        """None: there is no file. Raises InvalidInput if it is none that npm could use."""
        self._content = content
        self.values: dict[str, Any] = {} if content is None else _object(content, MANIFEST)
        if is_deeper(self.values, MAX_MANIFEST_DEPTH):
            raise InvalidInput(f"{MANIFEST} is nested too deeply.")

    def check(self, hosts: AllowedHosts) -> None:
        """Raises InvalidInput, naming the first dependency that is not to be installed. `hosts`: those of URLs."""
        if self.values.get("workspaces"):
            raise InvalidInput(
                f"{MANIFEST} has workspaces, which npm_install does not install.",
                suggestion="Name the folder of one of them.",
            )
        for found in self._dependencies():
            if not is_package_name(found.name):
                raise InvalidInput(f"{MANIFEST}: {found.where} names {found.name[:80]!r}, which is no package of npm.")
            why = _refused_spec(found.spec, hosts)
            if why is not None:
                raise InvalidInput(
                    f"{MANIFEST}: {found.where} wants {found.name} from {found.spec[:120]!r}: {why}.",
                    suggestion="Name a version from the registry. Hosts of URLs are named in the setting npm.hosts.",
                )

    def _dependencies(self) -> Iterator[Dependency]:
        for group in GROUPS:
            listed = self.values.get(group) or {}
            if not isinstance(listed, Mapping):
                raise InvalidInput(f"{MANIFEST}: {group} is no list of names and versions.")
            for name, spec in listed.items():
                yield Dependency(group, name, _text(group, spec))
        yield from _overrides(self.values.get("overrides") or {}, 0)

    def staged(self) -> bytes:
        """The file that npm is given: written anew, so that it reads what was checked."""
        return orjson.dumps({name: self.values[name] for name in STAGED if name in self.values})

    def with_dependency(self, package: str, after: "Manifest") -> bytes:
        """The file with a package as npm saved it (`after`); all else stays as it was."""
        values = dict(self.values)
        for group in GROUPS[:3]:
            spec = (after.values.get(group) or {}).get(package)
            listed = {name: other for name, other in (values.get(group) or {}).items() if name != package}
            if isinstance(spec, str):
                if VERSION_RANGE.fullmatch(spec) is None:
                    raise InvalidInput(f"npm saved {package} as {spec[:80]!r}, which is no range of versions.")
                listed = dict(sorted({**listed, package: spec}.items()))
            if listed or group in values:
                values[group] = listed
        return self._written(values)

    def _written(self, values: Mapping[str, Any]) -> bytes:
        """As it was written before: a difference should show the dependency, and nothing else."""
        import json

        found = INDENT.match(self._content or b"{\n  ")
        indent = found[1].decode() if found else 2
        end = "\n" if self._content is None or self._content.endswith(b"\n") else ""
        return (json.dumps(values, indent=indent, ensure_ascii=False) + end).encode()


def package_spec(package: str, version: str | None) -> str:
    """The word of npm's command line for a package. Raises InvalidInput."""
    if not is_package_name(package):
        raise InvalidInput(
            f"{package[:80]!r} is not the name of a package in the registry.",
            suggestion='Give its name, such as "left-pad" or "@types/node", and its version in `version`.',
        )
    if version is None:
        return package
    if not version.strip() or VERSION_RANGE.fullmatch(version) is None:
        raise InvalidInput(
            f"{version[:80]!r} is no version of a package.", suggestion='Such as "1.3.0", "^1.3.0" or "latest".'
        )
    return f"{package}@{version.strip()}"


def is_package_name(name: str) -> bool:
    return len(name) <= MAX_NAME_CHARS and PACKAGE_NAME.fullmatch(name) is not None and name.lower() != "node_modules"


def installed_packages(lock: bytes | None) -> dict[str, str]:
    """Path in the tree to version and digest, of a lock file; empty if it is none."""
    try:
        found = orjson.loads(lock or b"{}")
    except orjson.JSONDecodeError:
        return {}
    packages = found.get("packages") if isinstance(found, dict) else None
    listed = packages.items() if isinstance(packages, dict) else ()
    return {
        path: f"{entry.get('version')} {entry.get('integrity')}"
        for path, entry in listed
        if path.startswith("node_modules/") and is_package_name(name_in_tree(path)) and _has_version(entry)
    }


def _has_version(entry: Any) -> bool:
    """True of an entry whose version is one: it is shown to people and models."""
    version = entry.get("version") if isinstance(entry, dict) else None
    return isinstance(version, str) and 0 < len(version) <= 100 and VERSION_RANGE.fullmatch(version) is not None


def name_in_tree(path: str) -> str:
    """The name of a package at a path of the tree."""
    return path.rpartition("node_modules/")[2]


def check_lock(content: bytes, name: str) -> None:
    """Raises InvalidInput if a lock file is no JSON object. What it says is npm's to judge, in its jail."""
    _object(content, name)


def _object(content: bytes, name: str) -> dict[str, Any]:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"{name} is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{name} is not a JSON object.")
    return found


def _text(where: str, spec: Any) -> str:
    if not isinstance(spec, str):
        raise InvalidInput(f"{MANIFEST}: {where} holds a version that is no text.")
    return spec


def _overrides(values: Any, depth: int) -> Iterator[Dependency]:
    """What versions of packages further down are replaced by; `$name` stands for that of a dependency."""
    if not isinstance(values, Mapping) or depth > 20:
        raise InvalidInput(f"{MANIFEST}: overrides are no list of names and versions.")
    for key, value in values.items():
        name = "dependency" if key == "." else key[:1] + key[1:].partition("@")[0]
        if isinstance(value, Mapping):
            yield Dependency("overrides", name, "")
            yield from _overrides(value, depth + 1)
        else:
            text = _text("overrides", value)
            yield Dependency("overrides", name, "" if is_package_name(text.removeprefix("$")) else text)


def _refused_spec(spec: str, hosts: AllowedHosts) -> str | None:
    """Why a dependency is not to be fetched from there; None if it may."""
    if VERSION_RANGE.fullmatch(spec):
        return None
    if spec.startswith("npm:"):
        name, _, version = spec.removeprefix("npm:").rpartition("@")
        fits = is_package_name(name or version) and VERSION_RANGE.fullmatch(version if name else "")
        return None if fits else "it is no other name of a package"
    if spec.startswith("https://"):
        return _refused_url(spec, hosts)
    return "it is a path, a link, a repository or a protocol that npm_install does not fetch from"


def _refused_url(spec: str, hosts: AllowedHosts) -> str | None:
    try:
        parts = urlsplit(spec)
        allowed = parts.hostname is not None and hosts.leave(parts.hostname, parts.port or 443) is not None
    except ValueError:
        return "it is no URL"
    if parts.username is not None:
        return "it holds a user name"
    return None if allowed else "its host is not in the setting npm.hosts"


def first_lock(names: Sequence[str]) -> str:
    """The lock file among these names; the usual one if there is none."""
    return next((name for name in LOCK_FILES if name in names), LOCK_FILES[-1])
