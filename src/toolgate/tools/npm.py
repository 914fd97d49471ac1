"""`npm_install`: packages of npm, for a project in the working directory.

npm runs in the sandbox, in a folder of its own, and reaches the registry and nothing else. What it made is looked at and put
in place here: node_modules, the lock file, and the line of package.json.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import Field
from typing_extensions import TypedDict

from toolgate.errors import CallError, InvalidInput, ToolError
from toolgate.model import Capability, ErrorCase, Example
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import reaches, tool
from toolgate.sandbox.untrusted_files import replace
from toolgate.screening.safe_open import name_of
from toolgate.tasks import finish
from toolgate.threads import to_thread
from toolgate.tools.call_folder import CallFolder, explained, folder_of

if TYPE_CHECKING:
    from toolgate.sandbox.npm.installer import Installed
    from toolgate.sandbox.npm.manifest import Manifest

MAX_TOLD_PACKAGES = 50
MAX_SECONDS = 600
Name = Annotated[str, Field(max_length=214, json_schema_extra={"x-path": False})]
Version = Annotated[str, Field(max_length=200, json_schema_extra={"x-path": False})]
ProjectPath = Annotated[str, Field(json_schema_extra={"x-path": True})]


class NpmInstalled(TypedDict):
    """The packages that an installation changed."""

    success: bool
    installedVersion: str | None
    added: int
    removed: int
    changed: int
    dependencies: list[str]


class ProjectFiles(NamedTuple):
    """The files of a project that say what is installed."""

    manifest: "Manifest"
    lock: tuple[str, bytes | None]
    """The name and the content of its lock file."""
    before: dict[str, str]
    """What is in its node_modules: path to version."""
    owner: tuple[int, int]


@tool(
    tier="execute",
    category="development",
    tags=["npm", "packages"],
    timeout=MAX_SECONDS,
    capabilities=[
        Capability(
            action="install", description="Install npm packages", requires_confirmation=True, estimated_time_ms=10_000
        )
    ],
    errors=[
        ErrorCase(
            "INVALID_INPUT",
            when="The registry has no such package or version, or package.json is missing, broken, or names a path, a "
            "repository, a workspace or a host that is not allowed.",
            advice="Name a package and version of the registry; correct package.json.",
        ),
        ErrorCase(
            "CONNECTION_ERROR",
            when="The registry cannot be reached, or a package comes from another host.",
            advice="Try again later, or have the host named in the setting npm.hosts.",
        ),
        ErrorCase(
            "INVOCATION_ERROR",
            when="npm cannot install the packages: versions contradict each other, a digest is wrong, a script failed, or a "
            "package holds what may not be installed. Nothing was changed.",
            advice="Name another version.",
        ),
    ],
    examples=[
        Example(name="Install a package", arguments={"package": "left-pad", "version": "1.3.0"}),
        Example(name="Install what package.json names", arguments={"projectPath": "."}),
    ],
)
@reaches("npm")
async def npm_install(
    ctx: InvokeContext,
    package: Name | None = None,
    version: Version | None = None,
    dev: bool = False,
    projectPath: ProjectPath = ".",
    scripts: bool = False,
) -> NpmInstalled:
    """Install npm packages: the named one, or all that package.json names. Replaces node_modules as a whole.

    Args:
        package: Its name in the registry; without it, what package.json names.
        version: Version, range or tag.
        dev: Save it as a development dependency.
        projectPath: The folder of package.json.
        scripts: Let the packages' install scripts run, in the sandbox and without a network.
    """
    from toolgate.network.allowed_hosts import AllowedHosts
    from toolgate.sandbox.npm.installer import NpmInstaller
    from toolgate.sandbox.npm.manifest import package_spec

    installer: NpmInstaller = ctx.get(NpmInstaller)
    words = [] if package is None else [package_spec(package, version), *(["--save-dev"] if dev else [])]
    if package is None and (version is not None or dev):
        raise InvalidInput("Without a package there is neither a version nor a group to save it in.")
    work = await folder_of(ctx)
    project = await to_thread(_read_project, work, projectPath, needs_manifest=package is None)
    project.manifest.check(AllowedHosts(installer.settings.hosts))
    async with installer.staging(work.folder / projectPath) as folder:
        installed, jail = await installer.install(
            folder, project.manifest, project.lock, words, scripts=scripts, hosts=ctx.hosts, depth=ctx.call.depth,
            seconds=min(installer.settings.seconds, ctx.time_limit),
        )  # fmt: skip
        ctx.used("npm", f"sandbox:{jail}", *(f"host:{host}" for host in ctx.hosts))
        put = _Placing(work, projectPath, project, package, installed, folder, installer.limits.files)
        await finish(to_thread(put.run))  # once it has begun, it is gone through with
    return _report(package, project.before, installed)


# -- what is there


def _read_project(work: CallFolder, path: str, *, needs_manifest: bool) -> ProjectFiles:
    from toolgate.sandbox.npm import manifest, package_tree
    from toolgate.sandbox.npm.installer import HIDDEN_LOCK

    with work.opened(path) as folder:
        status = os.fstat(folder)
        if not stat.S_ISDIR(status.st_mode):
            raise InvalidInput(f"{path} is no folder.")
        package_tree.check_replaceable(folder)
        content = _content(work, path, manifest.MANIFEST, manifest.MAX_MANIFEST_BYTES)
        if content is None and needs_manifest:
            raise InvalidInput(f"There is no package.json in {path}.", suggestion="Name a package, or another folder.")
        name = manifest.first_lock(os.listdir(folder))  # noqa: PTH208 - of an open folder
        lock = _content(work, path, name, manifest.MAX_LOCK_BYTES)
        if lock is not None:
            manifest.check_lock(lock, name)
        before: dict[str, str] = {}
        with suppress(CallError, ToolError):  # it only counts, and whoever wrote the folder wrote this
            before = manifest.installed_packages(_content(work, path, HIDDEN_LOCK, manifest.MAX_LOCK_BYTES))
        return ProjectFiles(manifest.Manifest(content), (name, lock), before, (status.st_uid, status.st_gid))


def _content(work: CallFolder, path: str, name: str, most: int) -> bytes | None:
    """A file of the project; None if there is none."""
    below = f"{path}/{name}"
    try:
        with work.opened(below) as number:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise InvalidInput(f"{below} is no file.")
            content = os.pread(number, most + 1, 0)
    except InvalidInput as error:
        if (error.details or {}).get("missing"):
            return None
        raise
    if len(content) > most:
        raise InvalidInput(f"{below} is too large.")
    return content


# -- what becomes of it


class _Placing(NamedTuple):
    """Puts in place what was installed. For a thread."""

    work: CallFolder
    path: str
    project: ProjectFiles
    package: str | None
    installed: "Installed"
    folder: Path
    max_files: int

    def run(self) -> None:
        from toolgate.sandbox.npm.manifest import MANIFEST
        from toolgate.sandbox.npm.package_tree import NODE_MODULES, PackageTree, check_replaceable

        tree = PackageTree(self.folder, self.max_files)
        tree.check(self.project.owner if os.geteuid() == 0 else None)
        lock, _ = self.project.lock
        manifest = self.project.manifest
        for name in (NODE_MODULES, lock, MANIFEST):
            self.work.judge(f"{self.path}/{name}", writing=True)
        with self.work.opened(self.path) as project, explained(self.path):
            self.work.judge_place(Path(name_of(project) or self.work.folder))
            check_replaceable(project)
            tree.put_in_place(project)
            if self.installed.lock is not None:
                self._put(project, lock, self.installed.lock)
            if self.package is not None:
                self._put(project, MANIFEST, manifest.with_dependency(self.package, self.installed.manifest))

    def _put(self, project: int, name: str, content: bytes) -> None:
        """A file in the place of another: whole, with its mode, and through no link."""
        mode = 0o644
        with suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=project, follow_symlinks=False)
            mode = stat.S_IMODE(status.st_mode) & 0o777 if stat.S_ISREG(status.st_mode) else mode
        with TemporaryFile() as source:  # not in the folder that scripts of the packages wrote to
            source.write(content)
            source.flush()
            replace(project, name, source.fileno(), mode, len(content))


def _report(package: str | None, before: dict[str, str], installed: "Installed") -> NpmInstalled:
    from toolgate.sandbox.npm.manifest import installed_packages, name_in_tree

    after = installed_packages(installed.tree)
    added = sorted(after.keys() - before.keys())
    changed = [path for path in after.keys() & before.keys() if after[path] != before[path]]
    version = after.get(f"node_modules/{package}", "").partition(" ")[0] or None
    others = [(name_in_tree(path), after[path].partition(" ")[0]) for path in added]
    named = [f"{name}@{found}" for name, found in others if name != package]
    return {
        "success": True,
        "installedVersion": version,
        "added": len(added),
        "removed": len(before.keys() - after.keys()),
        "changed": len(changed),
        "dependencies": named[:MAX_TOLD_PACKAGES],
    }
