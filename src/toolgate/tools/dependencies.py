"""`analyze_dependencies`: the packages that a project depends on, their licences, advisories and newer versions.

Only the operation `outdated` leaves this machine: a registry learns the names of packages, and a model could put anything
into those. So it is of the tier external_api, which a person is asked about.
"""

import re
from pathlib import PurePosixPath
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from toolgate.errors import InvalidInput, ToolError
from toolgate.extras import require
from toolgate.model import Capability, ErrorCase, Example
from toolgate.network.package_registries import PackageRegistries
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool
from toolgate.sandbox.helper_process import run_helper
from toolgate.services.advisories import AdvisoryFolder, AdvisoryStatus
from toolgate.threads import to_thread
from toolgate.tools.call_folder import CallFolder, folder_of

READ = "toolgate.tools.parsers.manifests:read_manifest"
COMPARE = "toolgate.tools.parsers.advisory_match:compare"
READ_SECONDS = 10.0
MAX_MANIFEST_BYTES = 1_000_000
MAX_LOCK_BYTES = 20_000_000
MAX_LISTED_PACKAGES = 500
MAX_LISTED_VULNERABILITIES = 200
MAX_ASKED_PACKAGES = 100
"""Direct dependencies that one call asks a registry for."""
MANIFESTS = ("package.json", "pyproject.toml", "requirements.txt")
LOCKS = {
    "package.json": ("package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock"),
    "pyproject.toml": ("uv.lock", "poetry.lock", "requirements.txt"),
}
"""The lock files that may stand beside a manifest; the first that is there counts."""


class DependencyItem(TypedDict):
    """One package. Its version is null if nothing fixes it."""

    name: str
    version: str | None
    direct: bool
    dev: bool
    license: str | None
    range: NotRequired[str | None]


class Vulnerability(TypedDict):
    """An advisory that affects a package; severity is low, moderate, high, critical or unknown."""

    package: str
    version: str
    id: str
    severity: str
    description: str
    fixVersion: NotRequired[str]


class OutdatedPackage(TypedDict):
    """A direct dependency of which there is a newer version."""

    package: str
    current: str
    latest: str


class DependencyReport(TypedDict):
    """What is known of the dependencies. Vulnerabilities and outdated are null if nothing is known of them, never empty."""

    ecosystem: Literal["npm", "PyPI"]
    lockFile: str | None
    totalDeps: int
    dependencies: list[DependencyItem]
    vulnerabilities: list[Vulnerability] | None
    vulnerabilityStatus: AdvisoryStatus
    outdated: list[OutdatedPackage] | None
    outdatedStatus: AdvisoryStatus
    notes: list[str]


@tool(
    tier="read_only",
    category="code_analysis",
    timeout=150,
    tags=["code", "security", "packages"],
    capabilities=[Capability(action="analyze", description="Analyze npm dependencies for security issues")],
    operations={"analyze": "read_only", "outdated": "external_api"},
    errors=[
        ErrorCase("INVALID_INPUT", "there is no manifest, or it cannot be read", "name a package.json or pyproject.toml"),
        ErrorCase("SECURITY_VIOLATION", "packageJsonPath leads out of the working directory", "name a file in it"),
        ErrorCase("TIMEOUT", "the lock file takes more than 10 s to read", "remove what it does not need"),
        ErrorCase("SANDBOX_ERROR", "the files are too much for the parser", "remove what they do not need"),
    ],
    examples=[Example(name="manifest", arguments={"packageJsonPath": "package.json"})],
)
async def analyze_dependencies(
    ctx: InvokeContext, packageJsonPath: str = "package.json", operation: Literal["analyze", "outdated"] = "analyze"
) -> DependencyReport:
    """List a project's dependencies with versions, licences and known vulnerabilities.

    Args:
        packageJsonPath: package.json, pyproject.toml or requirements.txt of the working directory, or the folder of one.
        operation: analyze asks nobody; outdated also asks the package registry for newer versions of direct dependencies.
    """
    require("code")
    work, tenant = await folder_of(ctx), ctx.actor.tenant
    manifest, lock = await to_thread(_read_files, work, packageJsonPath)
    read = await run_helper(
        READ, {"manifest": manifest, "lock": lock}, tenant=tenant, packages=(), seconds=READ_SECONDS, max_bytes=20_000_000
    )
    if "fault" in read:
        raise InvalidInput(f"{read['fault']}.", suggestion="Correct the file.")
    ctx.used(manifest["path"], *([lock["path"]] if lock else []))
    packages = read["packages"]
    notes = [f"{read['lock_fault']}."] if read["lock_fault"] else []
    if lock is None:
        notes.append("There is no lock file: only direct dependencies are known, most without a version.")
    elif read["truncated"] or len(packages) > MAX_LISTED_PACKAGES:
        notes.append(f"Of {len(packages)} packages, {min(len(packages), MAX_LISTED_PACKAGES)} are listed.")
    advisories: AdvisoryFolder = ctx.get(AdvisoryFolder)
    found = await advisories.check(read["ecosystem"], packages, tenant)
    status: AdvisoryStatus = "partial" if found.status == "known" and (lock is None or read["lock_fault"]) else found.status
    notes += [found.reason] if found.reason else []
    outdated, outdated_status = await _outdated(ctx, read["ecosystem"], packages, operation, notes)
    listed: list[Any] = found.vulnerabilities[:MAX_LISTED_VULNERABILITIES]
    return {
        "ecosystem": read["ecosystem"], "lockFile": lock["name"] if lock else None, "totalDeps": len(packages),
        "dependencies": packages[:MAX_LISTED_PACKAGES],
        "vulnerabilities": listed if listed or status != "unknown" else None, "vulnerabilityStatus": status,
        "outdated": outdated, "outdatedStatus": outdated_status, "notes": notes,
    }  # fmt: skip


async def _outdated(
    ctx: InvokeContext, ecosystem: str, packages: list[dict[str, Any]], operation: str, notes: list[str]
) -> tuple[list[OutdatedPackage] | None, AdvisoryStatus]:
    """The direct dependencies that are older than the registry's newest, if the call asks for that and it can be told."""
    registries: PackageRegistries = ctx.get(PackageRegistries)
    if operation != "outdated":
        return None, "unknown"
    if not registries.is_on(ecosystem):
        notes.append(f"The setting registries.{ecosystem.lower()} names no registry to ask.")
        return None, "unknown"
    direct = {one["name"]: one["version"] for one in packages if one["direct"]}
    current = {name: version for name, version in direct.items() if version is not None}
    asked = dict(list(current.items())[:MAX_ASKED_PACKAGES])
    if not asked:
        return None, "unknown"
    latest = await registries.latest(ecosystem, asked)
    if not any(latest.values()):
        notes.append("The package registry told nothing.")
        return None, "unknown"
    pairs = [(name, asked[name], newest) for name, newest in latest.items() if newest]
    newer: list[bool | None] = await run_helper(
        COMPARE, [ecosystem, pairs], tenant=ctx.actor.tenant, packages=("univers",), seconds=READ_SECONDS
    )
    found: list[OutdatedPackage] = [
        {"package": name, "current": mine, "latest": newest}
        for (name, mine, newest), is_newer in zip(pairs, newer, strict=True)
        if is_newer
    ]
    complete = len(pairs) == len(direct) and None not in newer
    return found, "known" if complete else "partial"


# -- files


def _read_files(work: CallFolder, path: str) -> tuple[dict[str, str], dict[str, str] | None]:
    """The manifest and the lock file beside it, with their texts."""
    given = PurePosixPath(path)
    candidates = [given] if _is_manifest(given.name) else [given / name for name in MANIFESTS]
    found = next((one for place in candidates if (one := _read(work, place, MAX_MANIFEST_BYTES)) is not None), None)
    if found is None:
        raise InvalidInput(
            f"There is no {' or '.join(map(str, candidates))}.", suggestion="Name the manifest, or its folder."
        )
    folder = PurePosixPath(found["path"]).parent
    kind = found["name"]
    locks = (folder / name for name in LOCKS.get(kind, ()))
    lock = next((one for place in locks if (one := _read(work, place, MAX_LOCK_BYTES)) is not None), None)
    return found, {**found} if kind == "requirements.txt" else lock


def _is_manifest(name: str) -> bool:
    return name in MANIFESTS or bool(re.fullmatch(r"[\w.-]*requirements[\w.-]*\.txt|[\w.-]+\.(?:json|toml)", name))


def _read(work: CallFolder, place: PurePosixPath, max_bytes: int) -> dict[str, str] | None:
    """A file; None if there is none."""
    path = str(place)
    try:
        data = work.read(path, max_bytes)
    except ToolError as error:
        if (error.details or {}).get("missing"):
            return None
        raise
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is no text in UTF-8.") from None
    name = "requirements.txt" if path.endswith(".txt") else place.name
    return {"name": name, "path": path, "text": text}
