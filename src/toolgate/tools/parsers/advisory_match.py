"""Advisories in the OSV schema (https://ossf.github.io/osv-schema/): which packages a folder of them speaks of, and which
versions they say are affected. Done in a process of its own, since a folder may hold hundreds of thousands.
"""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolgate.tools.parsers.manifests import normal_name

MAX_ADVISORIES = 400_000
MAX_ADVISORY_BYTES = 1_000_000
MAX_DESCRIPTION_CHARS = 300
SEVERITIES = ("low", "moderate", "high", "critical")
CVSS_WEIGHTS: dict[str, dict[str, float]] = {
    "AV": {"N": 0.85, "A": 0.62, "L": 0.55, "P": 0.2}, "AC": {"L": 0.77, "H": 0.44}, "UI": {"N": 0.85, "R": 0.62},
    "C": {"H": 0.56, "L": 0.22, "N": 0.0}, "I": {"H": 0.56, "L": 0.22, "N": 0.0}, "A": {"H": 0.56, "L": 0.22, "N": 0.0},
}  # fmt: skip
PRIVILEGES = {"U": {"N": 0.85, "L": 0.62, "H": 0.27}, "C": {"N": 0.85, "L": 0.68, "H": 0.5}}


# -- the index of a folder


def index_folder(folder: str) -> dict[str, Any]:
    """By `ecosystem:package`, the files below a folder that speak of it; and the newest time at which one was changed."""
    packages: dict[str, list[str]] = {}
    newest, unreadable, truncated = "", 0, False
    for number, path in enumerate(_files(folder)):
        if number >= MAX_ADVISORIES:
            truncated = True
            break
        advisory = _advisory(path)
        if advisory is None:
            unreadable += 1
            continue
        modified = advisory.get("modified")
        newest = max(newest, modified[:32]) if isinstance(modified, str) else newest
        for key in {_key(affected) for affected in _affected(advisory)} - {None}:
            packages.setdefault(str(key), []).append(os.path.relpath(path, folder))
    ecosystems = sorted({key.partition(":")[0] for key in packages})
    return {
        "packages": packages, "ecosystems": ecosystems, "newest": newest, "unreadable": unreadable, "truncated": truncated,
    }  # fmt: skip


def _files(folder: str) -> Iterator[Path]:
    for root, folders, files in os.walk(folder, followlinks=False):
        folders.sort()
        yield from (Path(root, name) for name in files if name.endswith(".json"))


def _advisory(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            read = json.loads(file.read(MAX_ADVISORY_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) and isinstance(read.get("id"), str) else None


def _affected(advisory: dict[str, Any]) -> Iterator[dict[str, Any]]:
    listed = advisory.get("affected")
    for affected in listed if isinstance(listed, list) else ():
        if isinstance(affected, dict):
            yield affected


def _key(affected: dict[str, Any]) -> str | None:
    package = affected.get("package")
    if not isinstance(package, dict):
        return None
    name, ecosystem = package.get("name"), package.get("ecosystem")
    if not isinstance(name, str) or not isinstance(ecosystem, str):
        return None
    ecosystem = ecosystem.partition(":")[0]
    return f"{ecosystem}:{normal_name(ecosystem, name)}"


# -- the versions that they affect


def match(asked: dict[str, Any]) -> dict[str, Any]:
    """Of {folder, ecosystem, packages: [{name, version, files}]}: what affects them, and the packages of which that can't
    be told."""
    found: list[dict[str, Any]] = []
    unsure: list[str] = []
    for package in asked["packages"]:
        for file in package["files"]:
            advisory = _advisory(Path(asked["folder"], file))
            if advisory is None:
                unsure.append(package["name"])
            elif not advisory.get("withdrawn"):
                hit, certain = _affects(advisory, asked["ecosystem"], package["name"], package["version"])
                if hit is not None:
                    found.append(_vulnerability(advisory, package, hit))
                if not certain:
                    unsure.append(package["name"])
    order = {name: number for number, name in enumerate(("critical", "high", "moderate", "low"))}
    found.sort(key=lambda one: (order.get(one["severity"], 4), one["package"], one["id"]))
    return {"vulnerabilities": found, "unsure": sorted(set(unsure))}


def _vulnerability(advisory: dict[str, Any], package: dict[str, Any], fixed: str) -> dict[str, Any]:
    words = advisory.get("summary") or advisory.get("details") or ""
    description = " ".join(str(words)[: MAX_DESCRIPTION_CHARS * 4].split())[:MAX_DESCRIPTION_CHARS]
    shown = {
        "package": package["name"], "version": package["version"], "id": advisory["id"][:100],
        "severity": severity_of(advisory), "description": description,
    }  # fmt: skip
    return {**shown, "fixVersion": fixed[:128]} if fixed else shown


def _affects(advisory: dict[str, Any], ecosystem: str, name: str, version: str | None) -> tuple[str | None, bool]:
    """The version that fixes it (empty if none is known) if a version is affected, else None; and whether that is sure."""
    certain = True
    for affected in _affected(advisory):
        if _key(affected) != f"{ecosystem}:{name}":
            continue
        ordered = parse_version(ecosystem, version)
        if version is None or ordered is None:
            return None, False
        listed = affected.get("versions")
        is_listed = isinstance(listed, list) and version in listed
        ranges = affected.get("ranges")
        for one in ranges if isinstance(ranges, list) else ():
            verdict = in_range(one, ecosystem, ordered)
            certain = certain and verdict is not None
            if verdict:
                return first_fix(one, ecosystem, ordered), certain
        if is_listed:
            return "", certain
    return None, certain


def parse_version(ecosystem: str, version: Any) -> Any:
    """A version that can be compared; None if it is none."""
    from univers.versions import PypiVersion, SemverVersion

    if not isinstance(version, str) or not 0 < len(version) <= 128:
        return None
    try:
        return (PypiVersion if ecosystem == "PyPI" else SemverVersion)(version)
    except Exception:  # noqa: BLE001 - whatever the library finds wrong with it, it is no version
        return None


def _events(one: Any, ecosystem: str) -> list[tuple[Any, str, str]] | None:
    """The events of a range in the order of their versions; None if they can't be ordered. A git range has no versions."""
    if not isinstance(one, dict) or one.get("type") not in ("SEMVER", "ECOSYSTEM"):
        return []
    events = []
    listed = one.get("events")
    for event in listed if isinstance(listed, list) else ():
        for kind, value in event.items() if isinstance(event, dict) else ():
            if kind not in ("introduced", "fixed", "last_affected"):
                continue
            version = parse_version(ecosystem, "0" if value == "0" else value)
            if version is None:
                return None
            events.append((version, kind, str(value)))
    try:
        return sorted(events, key=lambda event: event[0])
    except TypeError:
        return None


def in_range(one: Any, ecosystem: str, version: Any) -> bool | None:
    """True if a version is affected by a range of events; None if it can't be told."""
    events = _events(one, ecosystem)
    if events is None:
        return None
    affected = False
    for at, kind, value in events:
        if kind == "introduced" and (value == "0" or version >= at):
            affected = True
        elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
            affected = False
    return affected


def first_fix(one: Any, ecosystem: str, version: Any) -> str:
    fixes = (value for at, kind, value in _events(one, ecosystem) or () if kind == "fixed" and at > version)
    return next(fixes, "")


# -- severity


def severity_of(advisory: dict[str, Any]) -> str:
    """low, moderate, high or critical: as the database says, else by the CVSS 3 score; else unknown."""
    specific = advisory.get("database_specific")
    said = str(specific.get("severity", "")).lower() if isinstance(specific, dict) else ""
    said = "moderate" if said == "medium" else said
    if said in SEVERITIES:
        return said
    listed = advisory.get("severity")
    for one in listed if isinstance(listed, list) else ():
        score = cvss3_score(one.get("score")) if isinstance(one, dict) and one.get("type") == "CVSS_V3" else None
        if score is not None:
            return "critical" if score >= 9 else "high" if score >= 7 else "moderate" if score >= 4 else "low"
    return "unknown"


def cvss3_score(vector: Any) -> float | None:
    """The base score of a CVSS 3 vector (https://www.first.org/cvss/v3.1/specification-document); None if it is none."""
    if not isinstance(vector, str) or not vector.startswith("CVSS:3"):
        return None
    metrics = dict(part.partition(":")[::2] for part in vector[:300].split("/")[1:])
    try:
        weight = {name: values[metrics[name]] for name, values in CVSS_WEIGHTS.items()}
        privileges, changed = PRIVILEGES[metrics["S"]][metrics["PR"]], metrics["S"] == "C"
    except KeyError:
        return None
    lost = 1 - (1 - weight["C"]) * (1 - weight["I"]) * (1 - weight["A"])
    impact = 7.52 * (lost - 0.029) - 3.25 * (lost - 0.02) ** 15 if changed else 6.42 * lost
    exploitability = 8.22 * weight["AV"] * weight["AC"] * privileges * weight["UI"]
    if impact <= 0:
        return 0.0
    total = min((1.08 if changed else 1.0) * (impact + exploitability), 10)
    return math.ceil(round(total * 100_000) / 10_000) / 10


def compare(asked: list[Any]) -> list[bool | None]:
    """Of [ecosystem, [[name, current, newest], …]]: whether the newest is newer; None if it can't be told."""
    ecosystem, pairs = asked
    verdicts: list[bool | None] = []
    for _, current, newest in pairs:
        mine, theirs = parse_version(ecosystem, current), parse_version(ecosystem, newest)
        verdicts.append(None if mine is None or theirs is None else bool(theirs > mine))
    return verdicts
