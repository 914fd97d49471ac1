"""Processes of the CLI without the second of imports: one that has them forks for each command.

A command that is started here is a process of its own, with its own folder, environment, streams and exit code, and ends as
the console script does. What a new interpreter would do otherwise (its encoding, its flags) is not seen: tests of that start
the real script, and so does `start` where a variable of Python or of the locale differs.

    python -m tests.forked FD           # the process that forks; a request per message on this socket
"""

import array
import atexit
import fcntl
import gc
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import IO, Any, NoReturn

from toolgate.cli.main import main
from toolgate.gates.tier_rules.gate import plan
from toolgate.model import Entry
from toolgate.registry.compile import DefinitionRules
from toolgate.registry.python_source import EntryPointSource, PackageSource
from toolgate.settings import Settings

SCRIPT = Path(sys.executable).with_name("toolgate")
ROOT = Path(__file__).resolve().parent.parent
MOST = 1_000_000
"""Bytes of a request."""
END_SECONDS = 60.0


class Forked:
    """A command under way."""

    def __init__(self, pid: int, status: IO[bytes]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, seconds: float) -> int:
        code = self._ended(seconds)
        if code is None:
            raise subprocess.TimeoutExpired("toolgate", seconds)
        return code

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, seconds: float) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            self.returncode = os.waitstatus_to_exitcode(int(self._status.readline()))
            self._status.close()
        return self.returncode


def start(
    words: Sequence[str | bytes],
    *,
    folder: Path,
    environment: Mapping[str, str],
    streams: tuple[int, int, int],
    terminal: bool = False,
    code: str = "",
) -> Forked:
    """Starts `toolgate`, or the code, with these words; the first stream can be the terminal of a session of its own."""
    assert is_alike(environment)
    read, write = os.pipe()
    mask = os.umask(0)
    os.umask(mask)
    request = {
        "words": [os.fsdecode(word) for word in words],
        "folder": str(folder),
        "environment": dict(environment),
        "umask": mask,
        "terminal": terminal,
        "code": code,
    }
    fds = array.array("i", [*streams, write])
    try:
        _forker().sendmsg([json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    finally:
        os.close(write)
    status = os.fdopen(read, "rb", buffering=0)
    return Forked(int(status.readline()), status)


def run(
    words: Sequence[str | bytes],
    *,
    folder: Path,
    environment: Mapping[str, str],
    stdin: bytes = b"",
    seconds: float,
    code: str = "",
) -> "subprocess.CompletedProcess[bytes]":
    """Runs `toolgate`, or the code, to its end, and keeps what it writes."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        streams = given.fileno(), out.fileno(), err.fileno()
        process = start(words, folder=folder, environment=environment, streams=streams, code=code)
        try:
            status = process.wait(seconds)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, status, out.read(), err.read())


@contextmanager
def reading(
    *words: str, folder: Path, environment: Mapping[str, str] | None = None, errors: int | None = None, code: str = ""
) -> Iterator[tuple[Forked, IO[str]]]:
    """Starts `toolgate`, or the code, and gives what it writes to be read; it is killed at the end. `errors`: the stream for
    its stderr, if that is to be seen."""
    environment = os.environ if environment is None else environment
    read, write = os.pipe()
    with os.fdopen(read, encoding="utf-8") as said, Path(os.devnull).open("r+b") as nothing:
        try:
            streams = nothing.fileno(), write, nothing.fileno() if errors is None else errors
            process = start(words, folder=folder, environment=environment, streams=streams, code=code)
        finally:
            os.close(write)
        try:
            yield process, said
        finally:
            process.kill()
            process.wait(END_SECONDS)


def module(name: str) -> str:
    """The code that runs a module of the tests as `python -m` does."""
    return f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); runpy.run_module({name!r}, {{}}, '__main__', True)"


def is_alike(environment: Mapping[str, str]) -> bool:
    """Whether an interpreter would start there as it did here."""
    return _of_python(environment) == OURS


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    """PYTHON_KEYRING_BACKEND and the like are for libraries, which read it when they are first used."""
    return {name: value for name, value in environment.items() if re.match(r"PYTHON(?!_)|LANG|LC_", name)}


OURS = _of_python(os.environ)


@cache
def _forker() -> socket.socket:
    """Started when the first test asks; it ends when the socket is closed, which the end of this process does too."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.forked", str(theirs.fileno())]
    process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)  # first: the last one registered is called first
    return ours


# -- the process that forks


def warm() -> None:
    """Does once what every command would do again: the imports, and what is read off settings and tools. It starts no
    thread: a fork has none."""
    for package in ("toolgate.cli", "toolgate.app", "toolgate.tools", "toolgate.mcp", "toolgate.serve"):
        for module in walk_packages(import_module(package).__path__, f"{package}."):
            import_module(module.name)
    Settings(database_url="memory://")
    rules = DefinitionRules(guards=plan)
    for source in (PackageSource("toolgate.tools", "builtin", rules), EntryPointSource(rules)):
        assert all(isinstance(tool, Entry) for tool in source.load())
    gc.freeze()  # a collection in a child would write to every object, and so copy all that is shared


def serve(requests: socket.socket) -> None:
    # Only of our tests; a console script looks in its own folder.
    sys.path[:] = [str(SCRIPT.parent), *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
    warm()
    # The one that watches over a command is nobody's concern when it ends.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        text, fds, _, _ = socket.recv_fds(requests, MOST, 4)
        if not text:
            return
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _watch(json.loads(text), fds)
        for fd in fds:
            os.close(fd)


def _watch(request: dict[str, Any], fds: list[int]) -> None:
    """Forks once more: the child returns as the command, the parent tells its number and how it ended."""
    *streams, told = fds
    pid = os.fork()
    if pid == 0:
        os.close(told)
        _become(request, streams)
    for fd in streams:
        os.close(fd)
    os.write(told, b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    os.write(told, b"%d\n" % status)
    os._exit(0)


def _become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    if request["terminal"]:
        os.setsid()
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(request["folder"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.stdin, sys.stdout, sys.stderr = (_stream(number) for number in range(3))
    sys.argv = ["-c" if request["code"] else str(SCRIPT), *request["words"]]
    if request["code"]:
        sys.path[0] = ""
        program = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(request["code"], "<string>", "exec"), vars(program))
        _end(0)
    _end(main())


def _end(code: int) -> NoReturn:
    """Ends as an interpreter does, except that it does not take the modules apart: that copies all that is shared, which
    takes longer than most commands."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # whatever was not closed says so
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _stream(number: int) -> TextIOWrapper:
    """As an interpreter opens its own."""
    errors = "backslashreplace" if number == 2 else "strict"
    stream = open(number, "w" if number else "r", errors=errors, closefd=False)  # noqa: SIM115 - it has no path
    stream.reconfigure(line_buffering=number == 2 or os.isatty(number))
    return stream


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
