"""The dependencies that a project declares and those that its lock file fixes: npm, Yarn, pnpm, pyproject, Poetry, uv, pip.

`analyze_dependencies` has this done in a process of its own: a hostile file can be built to keep a parser busy. All names
and versions are data; what is no name or too long is left out and counted.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

MAX_PACKAGES = 20_000
MAX_VERSION_CHARS = 128
MAX_LICENSE_CHARS = 100
NPM_NAME = re.compile(r"(?!\.{1,2}\Z)(?:@[a-z0-9~._-]{1,100}/)?[a-zA-Z0-9~._-]{1,214}\Z")
PYPI_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,198}[A-Za-z0-9])?\Z")
REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]{0,199})\s*(?:\[[^\]]{0,500}\])?\s*(.*)\Z", re.DOTALL)
EXACT = re.compile(r"===?\s*([^\s,;]+)\s*(?:;.*)?(?:\\|--hash.*)?\Z", re.DOTALL)
YARN_HEADER = re.compile(r'^"?((?:@[^@/"\s]+/)?[^@/"\s,]+)@[^\n]*:\s*$')
YARN_VERSION = re.compile(r'^ {2}version:? "?([^"\s]+)"?\s*$')
PNPM_KEY = re.compile(r"^ {2}'?/?((?:@[^@/'\s]+/)?[^@/'\s(]+)[@/]([^'\s:()_/]+)[^:]*'?:")
SECTIONS = {"dependencies": False, "optionalDependencies": False, "peerDependencies": False, "devDependencies": True}
"""Of package.json; True for those of development only."""

Package = dict[str, Any]


class Unreadable(ValueError):
    """A manifest or lock file is not what its name says."""


class Declared(NamedTuple):
    """What a manifest declares: by name, the range of versions and whether it is for development only."""

    packages: dict[str, tuple[str, bool]]


def read_manifest(asked: dict[str, Any]) -> dict[str, Any]:
    """The packages of {manifest: {name, text}, lock: {name, text} or null}, direct ones first."""
    manifest, lock = asked["manifest"], asked["lock"]
    try:
        ecosystem, declared = _declared(manifest["name"], manifest["text"])
    except (Unreadable, ValueError, RecursionError) as error:
        return {"fault": f"{manifest['name']} cannot be read: {_words(error)}"}
    packages: list[Package] = []
    fault = None
    if lock is not None:
        try:
            packages = list(_locked(lock["name"], lock["text"]))
        except (Unreadable, ValueError, RecursionError, TypeError, AttributeError) as error:
            fault = f"{lock['name']} cannot be read: {_words(error)}"
    found, cut = _merged(ecosystem, declared, packages)
    return {"ecosystem": ecosystem, "packages": found, "lock_fault": fault, "truncated": cut}


def _words(error: Exception) -> str:
    words = str(error) if isinstance(error, ValueError) else "it is nested too deeply or has the wrong form"
    return words.split("\n", 1)[0][:200]


def normal_name(ecosystem: str, name: str) -> str:
    """The one spelling of a name."""
    return re.sub(r"[-_.]+", "-", name).lower() if ecosystem == "PyPI" else name


def _merged(ecosystem: str, declared: Declared, locked: list[Package]) -> tuple[list[Package], bool]:
    """The packages of both, each version once. A direct one without a lock has the version that its range fixes, if any."""
    pattern = PYPI_NAME if ecosystem == "PyPI" else NPM_NAME
    direct = {normal_name(ecosystem, name): spec for name, spec in declared.packages.items()}
    seen: dict[tuple[str, str | None], Package] = {}
    for package in locked:
        name = normal_name(ecosystem, package["name"])
        if not pattern.match(name) or len(seen) >= MAX_PACKAGES:
            continue
        known = seen.setdefault((name, package["version"]), {**package, "name": name, "direct": name in direct})
        known["direct"] = known["direct"] and package.get("top", True)
    locked_names = {name for name, _ in seen}
    for name, (spec, dev) in direct.items():
        if name not in locked_names and pattern.match(name) and len(seen) < MAX_PACKAGES:
            version = _fixed_version(ecosystem, spec)
            seen[name, version] = {"name": name, "version": version, "direct": True, "dev": dev, "license": None}
        elif name in locked_names and not any(one["direct"] for (other, _), one in seen.items() if other == name):
            next(one for (other, _), one in seen.items() if other == name)["direct"] = True
    for package in seen.values():
        package.pop("top", None)
        if package["direct"]:
            package["range"] = direct[package["name"]][0][:MAX_VERSION_CHARS] or None
    found = sorted(seen.values(), key=lambda one: (not one["direct"], one["name"], one["version"] or ""))
    return found, len(locked) > len(seen) >= MAX_PACKAGES


def _fixed_version(ecosystem: str, spec: str) -> str | None:
    if ecosystem == "PyPI":
        found = EXACT.match(spec.strip())
        return _version(found[1]) if found and "*" not in found[1] else None
    return _version(spec.strip()) if re.match(r"v?\d+\.\d+\.\d+[-+.\w]*\Z", spec.strip()) else None


def _version(value: Any) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= MAX_VERSION_CHARS and value.isprintable() else None


# -- manifests


def _declared(name: str, text: str) -> tuple[str, Declared]:
    if name.endswith(".json"):
        return "npm", Declared(dict(_npm_declared(_object(text))))
    if name.endswith(".toml"):
        return "PyPI", Declared(dict(_pyproject_declared(tomllib.loads(text))))
    return "PyPI", Declared(dict(_requirements(text.splitlines())))


def _object(text: str) -> dict[str, Any]:
    read = json.loads(text)
    if not isinstance(read, dict):
        raise Unreadable("it must be an object")
    return read


def _npm_declared(manifest: dict[str, Any]) -> Iterator[tuple[str, tuple[str, bool]]]:
    for section, dev in reversed(SECTIONS.items()):
        listed = manifest.get(section)
        if isinstance(listed, dict):
            yield from ((name, (spec if isinstance(spec, str) else "", dev)) for name, spec in listed.items())


def _pyproject_declared(manifest: dict[str, Any]) -> Iterator[tuple[str, tuple[str, bool]]]:
    groups = _table(manifest, "dependency-groups").values()
    extras = _table(_table(manifest, "project"), "optional-dependencies").values()
    for group in groups:
        yield from _requirements(group, dev=True)
    poetry = _table(_table(manifest, "tool"), "poetry")
    for group in _table(poetry, "group").values():
        yield from _poetry_declared(_table(group, "dependencies"), dev=True)
    yield from _poetry_declared(_table(poetry, "dev-dependencies"), dev=True)
    for extra in extras:
        yield from _requirements(extra)
    yield from _poetry_declared(_table(poetry, "dependencies"), dev=False)
    yield from _requirements(_table(manifest, "project").get("dependencies"))


def _table(value: Any, name: str) -> dict[str, Any]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _poetry_declared(table: dict[str, Any], *, dev: bool) -> Iterator[tuple[str, tuple[str, bool]]]:
    for name, spec in table.items():
        version = spec.get("version", "") if isinstance(spec, dict) else spec
        if name.lower() != "python":
            exact = isinstance(version, str) and re.match(r"\d", version) and "," not in version
            yield name, (f"=={version}" if exact else str(version)[:MAX_VERSION_CHARS], dev)


def _requirements(lines: Any, *, dev: bool = False) -> Iterator[tuple[str, tuple[str, bool]]]:
    """The requirements of lines as pip reads them; options, addresses and other files are not followed."""
    for line in lines if isinstance(lines, list) else ():
        words = line.split(" #", 1)[0].strip() if isinstance(line, str) else ""
        found = REQUIREMENT.match(words[:2_000])
        if found and not words.startswith(("-", "#")) and "://" not in words:
            yield found[1], (found[2].removesuffix("\\").split(" --hash", 1)[0].strip(), dev)


# -- lock files


def _locked(name: str, text: str) -> Iterator[Package]:
    return LOCKS[name](text)


def _package(name: str, version: Any, *, dev: bool = False, license: Any = None, top: bool = True) -> Package:  # noqa: A002
    shown = license if isinstance(license, str) and len(license) <= MAX_LICENSE_CHARS else None
    return {"name": name, "version": _version(version), "dev": dev, "license": shown, "top": top}


def _package_lock(text: str) -> Iterator[Package]:
    lock = _object(text)
    packages = lock.get("packages")
    if not isinstance(packages, dict):
        yield from _old_package_lock(lock)
        return
    for path, entry in packages.items():
        _, found, name = path.rpartition("node_modules/")
        if found and isinstance(entry, dict) and not entry.get("link"):
            alias = entry.get("name")
            top = path == f"node_modules/{name}"
            yield _package(
                alias if isinstance(alias, str) else name, entry.get("version"), dev=entry.get("dev") is True,
                license=entry.get("license"), top=top,
            )  # fmt: skip


def _old_package_lock(lock: dict[str, Any]) -> Iterator[Package]:
    """Version 1: packages inside of packages."""
    waiting = [(lock.get("dependencies"), True)]
    while waiting:
        listed, top = waiting.pop()
        for name, entry in listed.items() if isinstance(listed, dict) else ():
            if isinstance(entry, dict):
                yield _package(name, entry.get("version"), dev=entry.get("dev") is True, top=top)
                waiting.append((entry.get("dependencies"), False))


def _yarn_lock(text: str) -> Iterator[Package]:
    name = None
    for line in text.splitlines():
        header = YARN_HEADER.match(line[:2_000]) if line[:1] not in (" ", "#", "") else None
        if header is not None:
            name = None if header[1] == "__metadata" else header[1]
        elif name is not None and (version := YARN_VERSION.match(line[:300])):
            if "use.local" not in version[1]:
                yield _package(name, version[1])
            name = None


def _pnpm_lock(text: str) -> Iterator[Package]:
    inside = False
    for line in text.splitlines():
        if line[:1] not in (" ", "#", ""):
            inside = line.startswith("packages:")
        elif inside and (found := PNPM_KEY.match(line[:1_000])):
            yield _package(found[1], found[2])


def _toml_lock(text: str) -> Iterator[Package]:
    """poetry.lock and uv.lock. A package that is the project itself has no source of its own that counts."""
    listed = tomllib.loads(text).get("package")
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            source = entry.get("source")
            is_own = isinstance(source, dict) and bool({"editable", "virtual", "directory"} & source.keys())
            if not is_own:
                yield _package(entry["name"], entry.get("version"), dev=entry.get("category") == "dev")


def _pinned(text: str) -> Iterator[Package]:
    """requirements.txt beside a pyproject.toml: what it fixes."""
    for name, (spec, _) in _requirements(text.splitlines()):
        yield _package(name, _fixed_version("PyPI", spec))


LOCKS: dict[str, Callable[[str], Iterator[Package]]] = {
    "package-lock.json": _package_lock, "npm-shrinkwrap.json": _package_lock, "yarn.lock": _yarn_lock,
    "pnpm-lock.yaml": _pnpm_lock, "uv.lock": _toml_lock, "poetry.lock": _toml_lock, "requirements.txt": _pinned,
}  # fmt: skip
