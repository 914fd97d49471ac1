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
import marshal
import os
import sys

TYPE_CHECKING = False
sys.path.append(__file__.rpartition("/")[0])
if TYPE_CHECKING:
    from toolgate.sandbox.inside import kernel_calls as kernel
else:
    import kernel_calls as kernel
sys.path.pop()
PR_SET_CHILD_SUBREAPER = 36
SCOPE_SIGNALS = 2


def launch(host: int, lifeline: int, starts_others: bool) -> None:
    """Returns only in the process that is to become the program."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    kernel.calm_signals()
    kernel.prctl(PR_SET_CHILD_SUBREAPER, 1)
    woken = kernel.wake_on_signals()
    # Not SIGKILL: the supervisor has something to do before it goes.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != host:
        raise OSError("the host is gone")
    if starts_others:
        reach_nobody_else(host)
    supervisor = os.getpid()
    program = os.fork()
    if program == 0:
        signal.set_wakeup_fd(-1)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            raise OSError("the supervisor is gone")
        return
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    kernel.wait_for_end(program, lifeline, woken)
    kernel.end_like(end_all(program, starts_others))


def reach_nobody_else(host: int) -> None:
    """From here on signals reach only what descends from this process; that they do not reach the host is tried out."""
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    wanted = kernel.words(0, 0, SCOPE_SIGNALS)
    rules = kernel.syscall("Landlock", kernel.LANDLOCK_CREATE, wanted, len(wanted), 0)
    kernel.syscall("Landlock", kernel.LANDLOCK_RESTRICT, rules, 0)
    os.close(rules)
    try:
        os.kill(host, 0)
    except PermissionError:
        return
    raise OSError("Landlock does not hold signals")


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


if __name__ == "__main__":
    try:
        plan = marshal.loads(bytes.fromhex(sys.argv[1]))
        launch(plan["host"], plan["lifeline"], plan["starts_others"])
    except BaseException as error:  # noqa: BLE001 - what nobody stands over must not be run
        kernel.fail(error)
    kernel.become_starter(plan["starter"], plan["lifeline"])
