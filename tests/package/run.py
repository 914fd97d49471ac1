"""`make package`: the wheel and the sdist are built, looked into, and used in an environment that has nothing else.

First the core alone: the quickstart is followed as a reader does, in an empty folder, and what needs an extra says which.
Then with every extra. Dependencies are installed from the lock file by hash, and pip itself is asked whether that is all
that the wheel wants. What is built stays in dist/.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from email.parser import BytesParser
from email.policy import compat32
from pathlib import Path
from time import perf_counter

from tests.package.environment import Environment
from tests.package.reader import Reader
from tests.package.requirements import locked, needed
from toolgate.extras import EXTRAS
from toolgate.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
MUST_HOLD = (
    "py.typed",
    "gates/policy/default.rego",
    "mcp/presets.yaml",
    "sandbox/inside/deno_runner.js",
    "store/migrations/0001_spine.sql",
)
BESIDE = {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", ".gitignore", "PKG-INFO"}
"""What an sdist holds beside the source."""
ASK_FOR_EXTRAS: tuple[tuple[str, dict[str, str], str], ...] = (
    ("mcp", {}, "toolgate mcp"),
    ("mcp", {}, "toolgate servers add mine -- python server.py"),
    ("serve", {}, "toolgate serve --port 0"),
    ("postgres", {"TOOLGATE_DATABASE_URL": "postgresql://127.0.0.1:1/x"}, "toolgate tools list"),
    ("redis", {"TOOLGATE_REDIS_URL": "redis://127.0.0.1:1"}, "toolgate tools list"),
    ("opa", {"TOOLGATE_OPA_URL": "http://127.0.0.1:1"}, "toolgate tools list"),
    ("telemetry", {"TOOLGATE_METRICS": "true"}, "toolgate tools list"),
    ("keyring", {"TOOLGATE_SECRETS__KEYRING": "true"}, "toolgate secrets set A --in keyring"),
    ("sandbox", {}, "toolgate call code_execute language=typescript code='return 1' --yes"),
    ("dates", {}, "toolgate call datetime operation=parse date=tomorrow"),
)


def build(folder: Path, source: Path, *targets: str) -> None:
    """Without isolation: the build backend is the one of the lock file."""
    wanted = [word for target in targets for word in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *wanted]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"hatchling build:\n{done.stdout}{done.stderr}")


def source_files() -> set[str]:
    """The files of the source that are under version control; where git can't say, all that are no caches."""
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "src"]
    try:
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        files = (path for path in (ROOT / "src").rglob("*") if path.is_file() and path.parent.name != "__pycache__")
        listed = [path.relative_to(ROOT).as_posix() for path in files]
    return set(filter(None, listed))


def build_both() -> tuple[Path, Path]:
    for old in DIST.glob("toolgate-*"):
        old.unlink()
    build(DIST, ROOT)
    return DIST / f"toolgate-{VERSION}-py3-none-any.whl", DIST / f"toolgate-{VERSION}.tar.gz"


def look_into_wheel(wheel: Path) -> str:
    """Everything under src/toolgate that is under version control, and nothing else."""
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
        metadata = BytesParser(policy=compat32).parsebytes(opened.read(f"toolgate-{VERSION}.dist-info/METADATA"))
    source = {name.removeprefix("src/") for name in source_files()}
    assert names == source, f"not in both, the wheel and the repository: {sorted(names ^ source)}"
    assert names >= {f"toolgate/{name}" for name in MUST_HOLD}
    assert metadata["Version"] == VERSION
    assert metadata["Description-Content-Type"] == "text/markdown"
    described = metadata.get_payload(decode=True)
    assert isinstance(described, bytes) and described.decode() == (ROOT / "README.md").read_text(encoding="utf-8")
    assert not any("OS Independent" in value for value in metadata.get_all("Classifier", []))
    return f"{len(names)} files, {wheel.stat().st_size / 1e6:.1f} MB"


def look_into_sdist(sdist: Path, wheel: Path, scratch: Path) -> str:
    """The source and what builds it; the wheel that is built from it is the same, byte for byte."""
    with tarfile.open(sdist) as opened:
        names = {Path(member.name).relative_to(f"toolgate-{VERSION}").as_posix() for member in opened if member.isfile()}
        opened.extractall(scratch, filter="data")
    expected = source_files() | BESIDE
    assert names == expected, f"not expected, or missing: {sorted(names ^ expected)}"
    build(scratch / "built", scratch / f"toolgate-{VERSION}", "wheel")
    again = scratch / "built" / wheel.name
    assert again.read_bytes() == wheel.read_bytes(), "the wheel that is built from the sdist is another"
    return f"{len(names)} files; builds the same wheel, sha256 {hashlib.sha256(wheel.read_bytes()).hexdigest()[:16]}"


def install_core(environment: Environment, wheel: Path, scratch: Path) -> str:
    packages = needed()
    environment.install(locked(packages, scratch / "core.txt"))
    environment.pip("install", "--no-deps", "--no-index", str(wheel))
    environment.pip("check")
    return f"{len(packages)} packages beside it"


def say_versions(environment: Environment) -> str:
    said = environment.run("toolgate --version", environment.folder("version"))
    assert said.stdout == f"toolgate {VERSION}\n", said
    code = "import toolgate, importlib.metadata as m; print(toolgate.__version__, m.version('toolgate'), toolgate.__file__)"
    names = environment.run(f'python -c "{code}"', environment.folder("version")).stdout.split()
    assert names[:2] == [VERSION, VERSION], names
    assert Path(names[2]).is_relative_to(environment.place), names
    return VERSION


def ask_for_extras(environment: Environment) -> str:
    """Each is named, with its command, and nothing is shown that only a programmer understands."""
    folder = environment.folder("extras")
    for extra, settings, command in ASK_FOR_EXTRAS:
        done = environment.run(command, folder, settings)
        said = done.stdout + done.stderr
        assert done.returncode == 1, f"{command}: {done.returncode}\n{said}"
        assert f"toolgate[{extra}]" in said, f"{command}: {said}"
        assert "Traceback" not in said and "No module named" not in said, f"{command}: {said}"
    doctor = environment.run("toolgate doctor --json", folder)
    assert doctor.returncode == 0, doctor.stdout
    assert "not installed: mcp (MCP support)" in doctor.stdout
    return f"{len(ASK_FOR_EXTRAS)} doors"


def follow_quickstart(environment: Environment, name: str) -> str:
    reader = Reader(environment, environment.folder(name))
    reader.follow(ROOT / "docs" / "quickstart.md")
    return f"{reader.commands} commands, {reader.snippets} snippets of Python, {reader.files} files written"


def install_all(environment: Environment, scratch: Path) -> str:
    """The line that a missing extra is named with, run as it stands; what it needs is there already, by hash."""
    packages = needed(*EXTRAS)
    environment.install(locked(packages, scratch / "all.txt"))
    said = environment.pip("install", "--no-index", "toolgate[all]")
    assert "Successfully installed" not in said, said
    environment.pip("check")
    doctor = environment.run("toolgate doctor --json", environment.folder("doctor")).stdout
    assert "all are installed" in doctor, doctor
    return f"{len(packages)} packages beside it"


def import_all(environment: Environment) -> str:
    """Every module of the wheel can be imported."""
    done = environment.run(f"python {Path(__file__).with_name('import_all.py')}", environment.folder("import"))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def step(name: str, work: Callable[[], str]) -> None:
    begun = perf_counter()
    found = work()
    print(f"  {name:<24} {found} ({perf_counter() - begun:.1f} s)", flush=True)  # noqa: T201 - what the command is for


def main() -> int:
    os.environ.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory(prefix="toolgate-package-") as name:
        scratch = Path(name)
        wheel, sdist = build_both()
        step("wheel", lambda: look_into_wheel(wheel))
        step("sdist", lambda: look_into_sdist(sdist, wheel, scratch / "sdist"))
        environment = Environment(scratch / "environment")
        step("core", lambda: install_core(environment, wheel, scratch))
        step("core: version", lambda: say_versions(environment))
        step("core: quickstart", lambda: follow_quickstart(environment, "quickstart"))
        step("core: missing extras", lambda: ask_for_extras(environment))
        step("all", lambda: install_all(environment, scratch))
        step("all: modules", lambda: import_all(environment))
        step("all: quickstart", lambda: follow_quickstart(environment, "again"))
    print(f"{wheel.relative_to(ROOT)} and {sdist.name} are fit to be installed.")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
