"""Installs servers that come as packages: once, under `servers/` in Toolgate's folder; they are started from there.

Nothing of a package runs while it is installed: npm runs no scripts, and pip installs only wheels. A version that was not
named is resolved once, and then holds: `installed.json` names it with its hash, beside the tool's lock file. Installing
happens outside of any jail, so anything but a plain package name is refused.
"""

import asyncio
import hashlib
import json
import logging
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import distributions
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple

import msgspec

from toolgate.mcp.client.errors import Unreachable
from toolgate.mcp.client.executables import SYSTEM_PATH, LaunchCommand, find_program, required_paths
from toolgate.project import MARK_FILE
from toolgate.sandbox.jails.inside_files import python
from toolgate.settings import ServerSettings
from toolgate.store.chain import locked

PackageKind = Literal["npm", "pypi"]
PIP_WITHOUT_BUILDS = """
import runpy, sys

def refuse(event, _arguments):
    if event in ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.spawn", "os.system"):
        raise PermissionError("a package that has to be built is not installed")

sys.addaudithook(refuse)
sys.argv = ["pip", *sys.argv[1:]]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
"""pip, unable to start another program, as every build does: `--only-binary` does not hold for direct references."""

NPM_SPEC = re.compile(r"(?P<name>(?:@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*)(?:@(?P<version>[^@\s]+))?", re.ASCII)
NPM_VERSION = re.compile(r"\d{1,9}\.\d{1,9}\.\d{1,9}(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?", re.ASCII)
PYPI_SPEC = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?P<extras>\[[A-Za-z0-9._,-]+\])?(?:\s*==\s*(?P<version>\S+))?",
    re.ASCII,
)
PYPI_VERSION = re.compile(r"(?:\d+!)?\d+(?:\.\d+)*(?:(?:a|b|rc|\.post|\.dev)\d+)*(?:\+[a-z0-9.]+)?", re.ASCII)
SPEC_FORMS: dict[PackageKind, tuple[re.Pattern[str], re.Pattern[str], str]] = {
    "npm": (NPM_SPEC, NPM_VERSION, "name@1.2.3"),
    "pypi": (PYPI_SPEC, PYPI_VERSION, "name==1.2.3"),
}
MAX_SPEC_CHARS = 214
INSTALL_STEP_SECONDS = 300.0
INSTALL_LOCK_SECONDS = 2 * INSTALL_STEP_SECONDS + 30
"""Seconds that another process may be installing: there are two steps at most."""
LOCK_POLL_SECONDS = 0.2
MAX_INSTALLERS = 2
KEPT_VARIABLES = re.compile(
    r"(?i)(path|home|tmpdir|lang|lc_.*|(https?|all|no)_proxy|npm_config_.*|pip_.*|uv_.*|ssl_cert_.*|node_extra_ca_certs"
    r"|requests_ca_bundle)"
)
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

logger = logging.getLogger("toolgate.mcp")

_installers = ThreadPoolExecutor(MAX_INSTALLERS, thread_name_prefix="toolgate-install")
"""Threads of its own: installing takes long, and must not block those that all share."""


class PackageSpec(NamedTuple):
    """A package as the settings name it."""

    kind: PackageKind
    name: str
    version: str | None
    extras: str = ""


class InstalledPackage(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `installed.json`."""

    kind: PackageKind
    name: str
    version: str
    digest: str
    """The registry's hash of the package itself. Those of its dependencies are in the lock file."""
    entry: str
    """The script that is run, relative to the folder."""
    at: str


def wanted(settings: ServerSettings) -> PackageSpec | None:
    """Raises Unreachable for what is not a plain package name."""
    kind: PackageKind = "npm" if settings.npm is not None else "pypi"
    text = settings.npm if settings.npm is not None else settings.pypi
    if text is None:
        return None
    shape, exact, example = SPEC_FORMS[kind]
    found = shape.fullmatch(text.strip())
    if found is None or len(text) > MAX_SPEC_CHARS:
        raise Unreachable(
            message=f"{text[:80]!r} is not a package name.",
            suggestion=f"Name it as {example}. URLs, paths and options are not accepted.",
        )
    version = found["version"]
    if version is not None and not exact.fullmatch(version):
        raise Unreachable(
            message=f"{text[:80]!r} does not name an exact version.",
            suggestion=f"Name an exact version ({example}), or none: then the newest is installed, and kept.",
        )
    return PackageSpec(kind, found["name"], version, found.groupdict().get("extras") or "")


def place(name: str, home: Path | None) -> Path:
    """The folder of a server. Without a home (in memory), in the person's cache: installing takes long."""
    top = home or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolgate"
    safe = name if PLAIN_NAME.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()[:20]
    return Path(os.path.abspath(top)) / "servers" / safe  # noqa: PTH100 - links stay as they are


def folder_of(name: str, package: PackageSpec, home: Path | None) -> Path:
    """The folder of a package. Another version, if one is named, is another folder. Its name holds the secret mark of the
    data folder: git overwrites ignored files without asking, so what a pull brings must not be able to name it."""
    mark = ""
    with suppress(OSError):
        mark = (home / MARK_FILE).read_text() if home is not None else ""
    words = f"{mark}{package.kind} {package.name} {package.version} {package.extras}"
    return place(name, home) / f"{package.kind}-{hashlib.sha256(words.encode()).hexdigest()[:12]}"


def installed(name: str, settings: ServerSettings, home: Path | None) -> InstalledPackage | None:
    """The installed package; None if it is not installed, or the server is none."""
    package = wanted(settings)
    return None if package is None else _noted(folder_of(name, package, home))


def _noted(folder: Path) -> InstalledPackage | None:
    with suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
        return msgspec.json.decode((folder / "installed.json").read_bytes(), type=InstalledPackage)
    return None


async def ready(
    name: str, settings: ServerSettings, home: Path | None, step: Callable[[str], None] = lambda _: None
) -> InstalledPackage | None:
    """Installs the package of a server if it is missing; None if it has none. `step` is told the next step."""
    package, found = wanted(settings), installed(name, settings, home)
    if package is None or found is not None:
        return found
    step(f"installing {settings.npm or settings.pypi}")
    return await _install_alone(name, package, folder_of(name, package, home))


async def command(
    name: str, settings: ServerSettings, home: Path | None, step: Callable[[str], None] = lambda _: None
) -> LaunchCommand | None:
    """The command that starts the package of a server; None if it has none."""
    package, found = wanted(settings), await ready(name, settings, home, step)
    if package is None or found is None:
        return None
    folder = folder_of(name, package, home)
    runner = _node_program(name, "node") if found.kind == "npm" else folder / "venv" / "bin" / "python"
    readable, path = dict.fromkeys((folder, *required_paths(runner))), dict.fromkeys((str(runner.parent), *SYSTEM_PATH))
    return LaunchCommand((str(runner), str(folder / found.entry), *settings.command), tuple(readable), tuple(path))


async def _install_alone(name: str, package: PackageSpec, folder: Path) -> InstalledPackage:
    """Installs under a file lock, so that two processes install once. The lock is held until the thread is done, or never
    began. On cancellation the installation is killed: an interrupted command would wait for its thread."""
    folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    lock = await _locked(folder, package)
    run = InstallSteps(folder)
    try:
        work = _installers.submit(_install, name, package, run)
    except BaseException:
        lock.close()
        raise
    work.add_done_callback(lambda _: lock.close())
    try:
        return await asyncio.wrap_future(work)
    except asyncio.CancelledError:
        run.cancel()
        raise


async def _locked(folder: Path, package: PackageSpec) -> FileIO:
    """Takes the lock of a folder, which is held until it is closed. No thread waits for it. Raises Unreachable."""
    try:
        async with asyncio.timeout(INSTALL_LOCK_SECONDS):
            while True:
                with suppress(BlockingIOError):
                    return locked(folder.with_name(f"{folder.name}.lock"), wait=False)
                await asyncio.sleep(LOCK_POLL_SECONDS)
    except TimeoutError:
        raise Unreachable(
            message=f"Another process has been installing {package.name} for more than {INSTALL_LOCK_SECONDS:g} s.",
            suggestion="End that process if it hangs, then try again.",
        ) from None


# -- installing, in a thread


def _install(name: str, package: PackageSpec, run: "InstallSteps") -> InstalledPackage:
    folder = run.folder
    found = _noted(folder)
    if found is not None:
        return found
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    folder.chmod(0o755)
    try:
        found = _install_npm(name, package, run) if package.kind == "npm" else _install_pypi(name, package, run)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / "installed.json").write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    logger.info("the server %s: installed %s %s %s (%s)", name, found.kind, found.name, found.version, found.digest)
    return found


def _install_npm(name: str, package: PackageSpec, run: "InstallSteps") -> InstalledPackage:
    folder = run.folder
    npm = _node_program(name, "npm")
    (folder / "package.json").write_text('{"name": "toolgate-server", "private": true}\n')
    asked = package.name if package.version is None else f"{package.name}@{package.version}"
    options = ["--ignore-scripts", "--no-bin-links", "--omit=dev", "--save-exact", "--no-audit", "--no-fund"]
    run([str(npm), "install", "--prefix", str(folder), *options, "--loglevel=error", "--", asked], asked)
    about = _json(folder / "node_modules" / package.name / "package.json")
    pinned = _json(folder / "package-lock.json").get("packages", {}).get(f"node_modules/{package.name}", {})
    script = _choose(package, _scripts(package, about))
    entry = (folder / "node_modules" / package.name / script).resolve()
    if not entry.is_file() or not entry.is_relative_to(folder.resolve() / "node_modules"):
        raise Unreachable(message=f"The package {package.name} names a program that it does not contain.")
    if "version" not in pinned:  # as npm read it from the index, whatever the package says of itself
        raise Unreachable(message=f"npm did not say which version of {package.name} it installed.")
    return _done(package, str(pinned["version"]), str(pinned.get("integrity", "")), entry.relative_to(folder.resolve()))


def _scripts(package: PackageSpec, about: Mapping[str, Any]) -> dict[str, str]:
    """Its programs: name to path."""
    programs = about.get("bin") or {}
    if isinstance(programs, str):
        return {package.name.rpartition("/")[2]: programs}
    return {str(key): str(path) for key, path in programs.items()} if isinstance(programs, dict) else {}


def _install_pypi(name: str, package: PackageSpec, run: "InstallSteps") -> InstalledPackage:
    folder = run.folder
    venv = folder / "venv"
    run([str(python()), "-m", "venv", str(venv)], f"a virtual environment for {name}")
    asked = package.name + package.extras + (f"=={package.version}" if package.version else "")
    options = ["--disable-pip-version-check", "--no-input", "--quiet", "--only-binary=:all:", "--report", "pip-report.json"]
    run([str(venv / "bin" / "python"), "-I", "-c", PIP_WITHOUT_BUILDS, "install", *options, "--", asked], asked)
    report = _json(folder / "pip-report.json").get("install", [])
    if direct := [item["metadata"]["name"] for item in report if item.get("is_direct")]:
        raise Unreachable(message=f"{asked} needs {direct[0]} from an address of its own, and not from the index.")
    lines = {_normal(item["metadata"]["name"]): (item["metadata"]["version"], _digest(item)) for item in report}
    (folder / "requirements.lock").write_text(
        "".join(f"{key}=={version} --hash={digest}\n" for key, (version, digest) in sorted(lines.items()))
    )
    version, digest = lines[_normal(package.name)]
    script = _choose(package, _console_scripts(venv, package))
    return _done(package, version, digest, Path("venv", "bin", script))


def _digest(item: Mapping[str, Any]) -> str:
    hashes = item.get("download_info", {}).get("archive_info", {}).get("hashes", {})
    return f"sha256:{hashes.get('sha256', '')}"


def _console_scripts(venv: Path, package: PackageSpec) -> dict[str, str]:
    installed = distributions(name=package.name, path=list(map(str, venv.glob("lib/python3*/site-packages"))))
    names = [point.name for one in installed for point in one.entry_points if point.group == "console_scripts"]
    return {name: name for name in names if (venv / "bin" / name).is_file()}


def _choose(package: PackageSpec, scripts: Mapping[str, str]) -> str:
    """The only one, or the one named like the package."""
    short = _normal(package.name.rpartition("/")[2])
    fit = [path for name, path in scripts.items() if len(scripts) == 1 or _normal(name) == short]
    if fit:
        return fit[0]
    if not scripts:
        raise Unreachable(message=f"The package {package.name} has no program, so it is not a server.")
    raise Unreachable(
        message=f"The package {package.name} has several programs ({', '.join(sorted(scripts)[:5])}), none named like it.",
        suggestion="Install it yourself, and name the program in the setting `command`.",
    )


def _done(package: PackageSpec, version: str, digest: str, entry: Path) -> InstalledPackage:
    if package.version is not None and version.partition("+")[0] != package.version.partition("+")[0]:
        raise Unreachable(message=f"The registry returned {package.name} {version}, not {package.version}.")
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return InstalledPackage(kind=package.kind, name=package.name, version=version, digest=digest, entry=str(entry), at=at)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Unreachable(message=f"{file.name} of the installed package cannot be read: {error}.") from None
    return found if isinstance(found, dict) else {}


def _node_program(server: str, program: str) -> Path:
    found = find_program(program)
    if found is None:
        raise Unreachable(
            message=f"Server {server!r} needs {program}, which is not installed.", suggestion="Install Node.js."
        )
    return found


class InstallSteps:
    """Runs the steps of an installation, each a program, with few of our variables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._child: subprocess.Popen[bytes] | None = None
        self._cancelled = False
        self._lock = Lock()

    def cancel(self) -> None:
        """Kills the running step, and starts none after it. From any thread."""
        with self._lock:
            self._cancelled = True
            if self._child is not None and self._child.poll() is None:
                os.killpg(self._child.pid, signal.SIGKILL)

    def __call__(self, argv: Sequence[str], what: str) -> None:
        """Runs a step. Raises Unreachable if it fails."""
        environment = {key: value for key, value in os.environ.items() if KEPT_VARIABLES.fullmatch(key)}
        with self._lock:
            if self._cancelled:
                raise Unreachable(message=f"Installing {what} was interrupted.")
            child = self._child = subprocess.Popen(
                argv, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, start_new_session=True, umask=0o022,  # whoever it will run as has to read it
            )  # fmt: skip
        with child:
            try:
                said, _ = child.communicate(timeout=INSTALL_STEP_SECONDS)
            except BaseException as error:
                os.killpg(child.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise Unreachable(message=f"Installing {what} took more than {INSTALL_STEP_SECONDS:g} s.") from None
                raise
        if child.returncode != 0:
            lines = said.decode(errors="replace").splitlines()
            errors = [line for line in lines if line.lower().startswith(("error", "npm err"))]
            last = " ".join(" ".join(errors or lines).split())[-400:]
            raise Unreachable(
                message=f"{what} could not be installed: {last or f'exit code {child.returncode}'}",
                suggestion="Check its name and version, and that the registry is reachable.",
            )
