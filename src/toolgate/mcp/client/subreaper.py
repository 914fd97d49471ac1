"""The parent process of an unsandboxed server: ends everything that the server started.

A program of its own (`python -I -S subreaper.py ORDER PARENT CWD PROGRAM …`) that knows nothing of Toolgate. The server has
the pipes; this process has only the reading end of ORDER, which nobody writes to. It kills all of its descendants, also
those in sessions of their own and those that outlived their parent, as soon as the server exits, ORDER is closed, or its own
parent is gone, be it by kill -9.
"""

import os
import select
import signal
import sys
import time
from contextlib import suppress

SET_DEATH_SIGNAL = 1
SET_SUBREAPER = 36
"""prctl(PR_SET_CHILD_SUBREAPER): orphans become children of this process."""
KILL_SECONDS = 5.0
"""Seconds for killed processes to go."""
SIGNAL_EXIT_BASE = 128
EXIT_NOT_STARTED = 127


def main(order: int, parent: int, cwd: str, program: list[str]) -> int:
    """Returns the exit code of the program; 128 plus the number of the signal that ended it."""
    heard, told = os.pipe()
    for end in (heard, told):
        os.set_blocking(end, False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, _noted)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    _control(SET_SUBREAPER, 1)
    _control(SET_DEATH_SIGNAL, signal.SIGUSR1)
    if os.getppid() != parent:
        return EXIT_NOT_STARTED
    child = _start(order, cwd, program)
    _release_pipes()
    code = EXIT_NOT_STARTED
    while True:
        ready = select.select([order, heard], [], [])[0]
        signals = os.read(heard, 4096) if heard in ready else b""
        if order in ready or signal.SIGUSR1 in signals:
            break
        if signal.SIGTERM in signals:
            _kill_group(child, signal.SIGTERM)
        ended = _reaped(child)
        if ended is not None:
            code = ended
            break
    return _end_all(child, code)


def _noted(*_: object) -> None:
    """The number of the signal is in the pipe."""


def _control(what: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(what, value, 0, 0, 0)


def _start(order: int, cwd: str, program: list[str]) -> int:
    subreaper = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        os.setpgid(0, 0)
        _control(SET_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() == subreaper:
            os.close(order)
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1):
                signal.signal(number, signal.SIG_DFL)
            os.chdir(cwd)
            os.execv(program[0], program)
    except OSError as error:
        os.write(2, f"{program[0]} cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(EXIT_NOT_STARTED)


def _release_pipes() -> None:
    """Closes our copies, so that the pipes end when the server closes them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)


def _kill_group(child: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, number)


def _reaped(child: int) -> int | None:
    """Reaps children; returns the exit code of the program if it is among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            code = code if code >= 0 else SIGNAL_EXIT_BASE - code


def _end_all(child: int, code: int) -> int:
    """Kills in rounds: what is started meanwhile becomes our child, and is found in the next round."""
    until = time.monotonic() + KILL_SECONDS
    while time.monotonic() < until:
        _kill_group(child, signal.SIGKILL)
        for pid in _descendants():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        ended = _reaped(child)
        code = code if ended is None else ended
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return code
        time.sleep(0.005)
    return code


def _descendants() -> list[int]:
    """Empty without /proc: then there is only the process group."""
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - pathlib takes longer to load than all of this
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                    children = [int(number) for number in file.read().split()]
                found += children
                waiting += children
        except OSError:
            continue
    return found


if __name__ == "__main__":
    os._exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]))
