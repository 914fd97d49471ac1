"""The filter of system calls that a jailed program runs under: what is not on its list, the kernel refuses.

Assembled here, as the kernel's own little programs (classic BPF), so that no library is needed. Refused calls fail with
EPERM; those newer than this list do not exist (ENOSYS); a call made as another machine's (32 bits, x32) ends the process.
Where a call is fine for some arguments only, they are looked at: `clone` makes threads but no namespaces, `chmod` sets no
setuid bit, `fcntl` sends no signals and takes no leases, `socket` makes none but those of the internet.
"""

import platform
import struct
from collections.abc import Iterable
from errno import EAFNOSUPPORT, EINVAL, ENOSYS, ENOTTY, EOPNOTSUPP, EPERM, EPROTONOSUPPORT
from functools import cache

from toolgate.sandbox.jails.syscalls import MACHINES, NEWEST, numbers
from toolgate.sandbox.port import STARTS_OTHERS, Network, Profile, Unavailable

OWN_PID = 0x7FFF_FFFE
"""Stands in a filter for the number of the process it will hold; the starter, which knows it, puts it in."""

ASK = 0x7FC0_0000
"""Somebody else decides on this call (SECCOMP_RET_USER_NOTIF); once nobody is left who could, it does not exist."""

_ALLOW = 0x7FFF_0000
_ERRNO = 0x0005_0000
_KILL = 0x8000_0000
_X32 = 0x4000_0000

_LOAD, _RETURN = 0x20, 0x06
_EQUAL, _GREATER, _AT_LEAST, _ANY_BIT, _AND = 0x15, 0x25, 0x35, 0x45, 0x54

Instruction = tuple[int, int, int, int]
"""Code, steps to jump if true, steps if false, operand."""

_EVERYONE = """
read write close fstat lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn pread64 pwrite64 readv
writev preadv pwritev preadv2 pwritev2 sched_yield mremap msync mincore madvise dup dup2 dup3 nanosleep getitimer
setitimer getpid sendfile exit exit_group uname flock fsync fdatasync truncate ftruncate getcwd chdir fchdir umask
gettimeofday getrlimit setrlimit getrusage sysinfo times getuid getgid geteuid getegid getppid getpgid getpgrp getsid
getgroups getresuid getresgid capget rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack statfs fstatfs
getpriority gettid futex futex_waitv set_tid_address set_robust_list sched_getaffinity sched_getscheduler
sched_getparam sched_getattr sched_get_priority_max sched_get_priority_min sched_rr_get_interval restart_syscall
clock_gettime clock_getres clock_nanosleep timer_create timer_settime timer_gettime timer_getoverrun timer_delete
timerfd_create timerfd_settime timerfd_gettime newfstatat unlinkat renameat renameat2 linkat symlinkat readlinkat
faccessat faccessat2 statx getdents64 pipe2 eventfd2 signalfd4 epoll_create1 epoll_ctl epoll_pwait epoll_pwait2
pselect6 ppoll copy_file_range sync_file_range readahead fadvise64 close_range getrandom getcpu membarrier rseq
cachestat sendto recvfrom recvmsg recvmmsg shutdown getsockname getpeername getsockopt getxattr
lgetxattr fgetxattr listxattr llistxattr flistxattr stat lstat poll access pipe select pause alarm mkdir mkdirat rmdir
rename link symlink unlink readlink getdents time epoll_create epoll_wait eventfd signalfd arch_prctl
"""

_SHELL = "execve execveat wait4 waitid setpgid setsid splice fork vfork"

_NETWORK = "connect bind listen accept accept4 sendmsg sendmmsg"
"""With a network, what can be done with a socket; which ones there are, and what can be set, is looked at."""

_IN_ITS_OWN_WORLD = """
chown lchown fchown fchownat utime utimes futimesat utimensat tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open
pidfd_send_signal inotify_init inotify_init1 inotify_add_watch inotify_rm_watch sendmsg sendmmsg
"""
"""What would reach others where the host's processes and files are shared, or keep a deleted file where nobody sees it."""

_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
"""Which argument is the file's mode."""

_XATTRS = "setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr"

_SETUID_BITS = 0o6000
_MAKES_A_FILE = 0x40 | 0x40_0000  # O_CREAT, and the bit of O_TMPFILE
_CLONE_THREAD = 0x0001_0000
_CLONE_NEW = 0x7E02_0000  # every namespace that clone can make
_IOCTLS = (
    0x5401, 0x802C_542A,  # TCGETS, TCGETS2: is it a terminal
    0x5413, 0x540F,  # its size, its group
    0x541B, 0x5421, 0x5450, 0x5451, 0x5452,  # FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, FIOASYNC
)  # fmt: skip
_FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1027, 1030, 1032)
"""Duplicates, flags, locks. Not: owners and signals (they reach others), leases (they stall the host), sizes of pipes."""
_PRCTLS = (1, 2, 3, 15, 16, 21, 23, 29, 30, 37, 38, 39, 0x5356_4D41)
"""Names, death signal, what can be asked, NO_NEW_PRIVS, names of memory."""
_MERGEABLE = 12
_UNIX, _INET, _INET6 = 1, 2, 10
_STREAM, _DATAGRAM, _KIND = 1, 2, 0xF
_PROTOCOLS = (0, 6, 17)
_OF_SOCKETS, _OF_TCP = 1, 6
_PROGRAMS = (26, 50, 51, 52)
"""Options of a socket that have the kernel run a program of the caller's."""
_UPPER_LAYER = (31,)
"""TLS and the like, in the kernel."""


@cache
def program(profile: Profile, *, machine: str | None = None, alone: bool = False, network: Network = "none") -> bytes:
    """The filter for one kind of program. `alone`: it shares the host's processes and files, held only by Landlock."""
    machine = machine or platform.machine()
    if machine not in MACHINES:
        raise Unavailable(f"No list of system calls is known for a {machine} machine.")
    known = numbers(machine)
    code: list[Instruction] = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, MACHINES[machine][0]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
    ]
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _KILL)]
    for name, block in (_looked_at(profile, alone) | _sockets(network)).items():
        if name in known:
            code += [(_EQUAL, 0, len(block), known[name]), *block]
    allowed = _allowed(profile, alone) | (set() if network == "none" else set(_NETWORK.split()))
    for first, last in _ranges(known[name] for name in allowed if name in known):
        code += _within(first, last)
    code += [(_GREATER, 0, 1, NEWEST), _fail(ENOSYS), _fail(EPERM)]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def _allowed(profile: Profile, alone: bool) -> set[str]:
    """Whatever the arguments."""
    names = set(_EVERYONE.split())
    if profile in STARTS_OTHERS:
        names |= set(_SHELL.split())
    if not alone:
        names |= {"kill", "tgkill", *_IN_ITS_OWN_WORLD.split()}
    elif profile in STARTS_OTHERS:
        names |= {"kill", "tgkill"}  # Landlock knows whose they are.
    return names


def _looked_at(profile: Profile, alone: bool) -> dict[str, list[Instruction]]:
    """The arguments decide; or the call fails with something else than EPERM, which its callers know how to go round."""
    blocks = {
        "clone": _without(0, _CLONE_NEW) if profile in STARTS_OTHERS else _threads_only(),
        "clone3": [_fail(ENOSYS)],
        "openat2": [_fail(ENOSYS)],
        "fallocate": [_fail(EOPNOTSUPP)],
        "open": _opening(1, 2),
        "openat": _opening(2, 3),
        "ioctl": _only(1, _IOCTLS, ENOTTY),
        "fcntl": _only(1, _FCNTLS, EINVAL),
        "prctl": _only(0, _PRCTLS, EINVAL),
        "prlimit64": _only(0, (0, OWN_PID), EPERM),
        "socketpair": _only(0, (_UNIX,), EPERM),
        "madvise": _unlike(2, _MERGEABLE, EINVAL),
    }
    blocks |= {name: [_fail(EOPNOTSUPP)] for name in _XATTRS.split()}
    for name, argument in _MODES.items():
        changes = "ch" in name
        blocks[name] = [_fail(EPERM)] if alone and changes else _without(argument, _SETUID_BITS)
    if profile == "deno":
        blocks["execve"] = [(_RETURN, 0, 0, ASK)]  # The starter's own, which comes after the filter, and no other.
    if alone and profile == "shell":
        blocks["socketpair"] = [_fail(EPERM)]  # Its buffers are memory that nobody counts here.
    elif alone and profile not in STARTS_OTHERS:
        blocks |= {name: _only(0, (OWN_PID,), EPERM) for name in ("kill", "tgkill")}
    return blocks


def _sockets(network: Network) -> dict[str, list[Instruction]]:
    """Those of the internet; in a network of its own, also those of the machine, which on the host's would reach others."""
    if network == "none":
        return {}
    families = (_INET, _INET6, _UNIX) if network == "loopback" else (_INET, _INET6)
    # Not EPERM: libraries try what a machine may not have, and know these.
    block = [*_require(0, families, EAFNOSUPPORT), *_require(1, (_STREAM, _DATAGRAM), EPROTONOSUPPORT, bits=_KIND)]
    block += [*_require(2, _PROTOCOLS, EPROTONOSUPPORT), _PASS]
    refused = [*_refuse(_OF_SOCKETS, _PROGRAMS), *_refuse(_OF_TCP, _UPPER_LAYER), _PASS]
    return {"socket": block, "setsockopt": refused}


def _require(index: int, values: tuple[int, ...], error: int, *, bits: int | None = None) -> list[Instruction]:
    """Goes on behind itself if the argument is one of these."""
    tests: list[Instruction] = [(_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    some: list[Instruction] = [] if bits is None else [(_AND, 0, 0, bits)]
    return [_argument(index), *some, *tests, _fail(error)]


def _refuse(level: int, options: tuple[int, ...]) -> list[Instruction]:
    """Goes on behind itself if it is another level, or another option of it."""
    tests: list[Instruction] = [(_EQUAL, len(options) - 1 - place, 0, option) for place, option in enumerate(options)]
    last = tests.pop()
    inner = [_argument(2), *tests, (_EQUAL, 0, 1, last[3]), _fail(EPERM)]
    return [_argument(1), (_EQUAL, 0, len(inner), level), *inner]


def _fail(error: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | error)


def _argument(index: int) -> Instruction:
    """Its lower half, which is all that these calls look at."""
    return (_LOAD, 0, 0, 16 + 8 * index)


_PASS: Instruction = (_RETURN, 0, 0, _ALLOW)


def _only(index: int, values: tuple[int, ...], error: int) -> list[Instruction]:
    tests: list[Instruction] = [(_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [_argument(index), *tests, _fail(error), _PASS]


def _unlike(index: int, value: int, error: int) -> list[Instruction]:
    return [_argument(index), (_EQUAL, 0, 1, value), _fail(error), _PASS]


def _without(index: int, bits: int) -> list[Instruction]:
    return [_argument(index), (_ANY_BIT, 0, 1, bits), _fail(EPERM), _PASS]


def _threads_only() -> list[Instruction]:
    return [_argument(0), (_ANY_BIT, 0, 1, _CLONE_NEW), _fail(EPERM), (_ANY_BIT, 1, 0, _CLONE_THREAD), _fail(EPERM), _PASS]


def _opening(flags: int, mode: int) -> list[Instruction]:
    """The mode counts only where a file is made; elsewhere it may be rubbish."""
    return [_argument(flags), (_ANY_BIT, 1, 0, _MAKES_A_FILE), _PASS, *_without(mode, _SETUID_BITS)]


def _ranges(wanted: Iterable[int]) -> list[tuple[int, int]]:
    """Neighbouring numbers taken together."""
    found: list[tuple[int, int]] = []
    for number in sorted(wanted):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _within(first: int, last: int) -> list[Instruction]:
    if first == last:
        return [(_EQUAL, 0, 1, first), _PASS]
    return [(_AT_LEAST, 0, 2, first), (_GREATER, 1, 0, last), _PASS]
