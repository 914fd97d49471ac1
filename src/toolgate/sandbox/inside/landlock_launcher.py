"""Stands over a program that shares the host's processes and files, and ends all of it when the time has come.

Run as `<python> -I -S -B landlock_launcher.py <plan>`; `jails.landlock` writes the plan. Two processes come of it:

    supervisor   outside the program's Landlock domain. Inherits whatever the program leaves behind, and kills it: when the
                 program has ended, when the host is gone (the lifeline's other end is closed), and on SIGTERM. Ends when
                 all is gone
    program      confined by `starter.py`, which runs in this same interpreter

Where programs may start others, the supervisor shuts itself up in a Landlock domain of its own, which does nothing but hold
signals. Then `kill(-1)` reaches exactly what came of the program, all at once: whatever sessions it made, and however
fast it forks. Standard library only.
"""

import _signal as signal  # type: ignore[import-not-found]  # the public one brings enum along: 5 ms of every start
import ctypes
import marshal
import os
import select
import sys

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
CREATE_RULESET, RESTRICT_SELF = 444, 446
SCOPE_SIGNALS = 2
FAILED = 125

libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    if libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}: {os.strerror(ctypes.get_errno())}")


def launch(host: int, lifeline: int, starts_others: bool) -> None:
    """Returns only in the process that is to become the program."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    # What the host has set for itself is inherited.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    woken = wake_on_signals()
    # Not SIGKILL: the supervisor has something to do before it goes.
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != host:
        raise OSError("the host is gone")
    if starts_others:
        reach_nobody_else(host)
    supervisor = os.getpid()
    program = os.fork()
    if program == 0:
        signal.set_wakeup_fd(-1)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            raise OSError("the supervisor is gone")
        return
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    wait_for_any(woken, os.pidfd_open(program), lifeline)
    end_like(end_all(program, starts_others))


def reach_nobody_else(host: int) -> None:
    """From here on signals reach only what descends from this process; that they do not reach the host is tried out."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    wanted = (ctypes.c_uint64 * 3)(0, 0, SCOPE_SIGNALS)
    rules = libc.syscall(ctypes.c_long(CREATE_RULESET), ctypes.byref(wanted), ctypes.c_size_t(24), ctypes.c_uint32(0))
    if rules < 0 or libc.syscall(ctypes.c_long(RESTRICT_SELF), ctypes.c_int(rules), ctypes.c_uint32(0)) != 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    os.close(rules)
    try:
        os.kill(host, 0)
    except PermissionError:
        return
    raise OSError("Landlock does not hold signals")


def wake_on_signals() -> int:
    """A descriptor that can be read when someone wants the end."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return woken


def wait_for_any(woken: int, gone: int, lifeline: int) -> None:
    waiting = select.poll()
    waiting.register(woken, select.POLLIN)
    waiting.register(gone, select.POLLIN)
    # Only its end matters. What can be read there is for the starter.
    waiting.register(lifeline, 0)
    waiting.poll()


def end_all(program: int, starts_others: bool) -> int:
    """Kill the program and whatever came of it, until there is no child left. Gives the program's status."""
    status = 0
    # It was not waited for yet, so the number is still its own, even if it has ended.
    os.kill(program, signal.SIGKILL)
    while True:
        if starts_others:
            kill_all_within_reach()
        try:
            process, how = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        if process == program:
            status = how


def kill_all_within_reach() -> None:
    """See `reach_nobody_else`: without that, this would be the end of the machine."""
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        return


def end_like(status: int) -> None:
    """End as the program did."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        prctl(PR_SET_DUMPABLE, 0)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def main() -> str:
    """The starter's file, in the process that is to run it. Whatever goes wrong on the way there ends all of it."""
    try:
        plan = marshal.loads(bytes.fromhex(sys.argv[1]))
        launch(plan["host"], plan["lifeline"], plan["starts_others"])
    except BaseException as error:  # noqa: BLE001 - what nobody stands over must not be run
        os.write(2, f"toolgate-starter: {error}\n".encode())
        os._exit(FAILED)
    starter: str = plan["starter"]
    sys.argv = [starter, str(plan["lifeline"])]
    return starter


if __name__ == "__main__":
    path = main()
    with open(path, "rb") as file:  # noqa: PTH123
        text = file.read()
    exec(compile(text, path, "exec"), {"__name__": "__main__", "__file__": path})
