"""A real container engine for the tests: the one that answers, or, for root, a Docker daemon of the tests' own.

The daemon needs no more than the package docker.io (`dockerd` on the path): it runs in a temporary folder, without a
network, and ends with this process. No registry is asked: the image is made of this machine's own Python, shell and Deno.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.needs import wait_for
from tests.servers import STOP_SECONDS, WATCHED

IMAGE = "toolgate-test:latest"
START_SECONDS = 60
NAMES = """
bash sh cat chmod chown cp dd df echo env false grep head id kill ln ls mkdir mkfifo mknod mount mv nice nohup nproc
ps pwd readlink rm seq setsid sleep stat tail taskset tee test timeout touch tr true truncate umount uname unshare wc
xargs yes
"""


class Answering(NamedTuple):
    """An engine with the image in it. `environment` is what its command line needs to find it."""

    command: str
    environment: dict[str, str]


@contextmanager
def engine() -> Iterator[Answering]:
    """An engine, on a machine that has one; the test waits if a daemon can't be started all the same."""
    command = shutil.which("docker") or "docker"
    if _answers(command, {}):
        yield _with_image(command, {})
        return
    with tempfile.TemporaryDirectory(prefix="toolgate-docker-") as name, _daemon(folder := Path(name)) as address:
        environment = {"DOCKER_HOST": address}
        if not _wait(command, environment):
            said = (folder / "log").read_text(errors="replace")[-300:].strip()
            wait_for("docker", because=f"dockerd was not ready within {START_SECONDS} s. It said last: {said}")
        yield _with_image(command, environment)


@contextmanager
def _daemon(folder: Path) -> Iterator[str]:
    address = f"unix://{folder}/docker.sock"
    options = ["--iptables=false", "--ip6tables=false", "--bridge=none", f"--host={address}", f"--data-root={folder}/data"]
    options += [f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
    command = ["sh", "-c", WATCHED, "watched", "dockerd", *options]
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    try:
        yield address
    finally:
        try:
            daemon.communicate(b"stop\n", timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _wait(command: str, environment: dict[str, str]) -> bool:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if _answers(command, environment):
            return True
        time.sleep(0.1)
    return False


def _answers(command: str, environment: dict[str, str]) -> bool:
    asked = [command, "version", "--format", "{{.Server.Version}}"]
    return subprocess.run(asked, env={**os.environ, **environment}, capture_output=True, check=False).returncode == 0


# -- the image


def _with_image(command: str, environment: dict[str, str]) -> Answering:
    archive = _archive()
    loading = [command, "import", "-", IMAGE]
    subprocess.run(loading, env={**os.environ, **environment}, input=archive, stdout=subprocess.DEVNULL, check=True)
    return Answering(command, environment)


def _archive() -> bytes:
    """This machine's programs and what they are linked with, as a file system. Python is the system's, for the one in use
    may lie in somebody's home."""
    python = Path(os.path.realpath(shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable))
    deno = Path(sys.executable).with_name("deno")
    asked = [str(python), "-c", "import os; print(os.__file__)"]
    library = Path(subprocess.run(asked, capture_output=True, check=True, text=True).stdout.strip()).parent
    found = ((name, shutil.which(name, path="/usr/bin:/bin")) for name in NAMES.split())
    programs = {f"/usr/bin/{name}": Path(place) for name, place in found if place}
    programs |= {"/usr/bin/python3": python, "/usr/bin/deno": deno}
    linked = [*programs.values(), *library.glob("lib-dynload/*.so")]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("usr", "usr/bin", "usr/lib", "usr/lib64", "tmp", "etc", "proc", "dev", "sys"):
            archive.addfile(_entry(name, tarfile.DIRTYPE))
        for name in ("bin", "lib", "lib64"):
            link = _entry(name, tarfile.SYMTYPE)
            link.linkname = f"usr/{name}"
            archive.addfile(link)
        for target, source in {**programs, **{name: Path(name) for name in _libraries(linked)}}.items():
            archive.add(source.resolve(), _in_usr(target))
        archive.add(library, str(library).lstrip("/"), filter=_leave_out)
    return buffer.getvalue()


def _entry(name: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, 0o755
    return entry


def _in_usr(name: str) -> str:
    """Where a file lies if /bin and /lib are links into /usr, as they are in the image."""
    bare = name.lstrip("/")
    return bare if bare.startswith("usr/") else f"usr/{bare}"


def _libraries(programs: list[Path]) -> set[str]:
    said = subprocess.run(["ldd", *programs], capture_output=True, check=False, text=True).stdout
    return set(re.findall(r"(/\S+) \(0x", said))


def _leave_out(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    unneeded = ("/test/", "/tests/", "__pycache__", "/idlelib", "/tkinter", "/ensurepip", "dist-packages", "site-packages")
    return None if any(part in entry.name for part in unneeded) else entry
