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

from toolgate.sandbox.jail import STARTS_OTHERS, Network, Profile, Unavailable

MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1), "arm64": (0xC00000B7, 1)}
"""The machine's name as `uname` says it: how seccomp knows it, and its column below."""
NEWEST = 452
"""Above it is what the kernel learnt later: programs are told that it does not exist, and take the older way."""
_TABLE = """
accept 43 202, accept4 288 242, access 21 -, alarm 37 -, arch_prctl 158 -, bind 49 200, brk 12 214,
cachestat 451 451, capget 125 90, chdir 80 49, chmod 90 -,
chown 92 -, clock_getres 229 114, clock_gettime 228 113, clock_nanosleep 230 115, clone 56 220, clone3 435 435,
close 3 57, close_range 436 436, connect 42 203, copy_file_range 326 285, creat 85 -, dup 32 23, dup2 33 -, dup3 292 24,
epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21, epoll_pwait 281 22, epoll_pwait2 441 441,
epoll_wait 232 -, eventfd 284 -, eventfd2 290 19, execve 59 221, execveat 322 281, exit 60 93, exit_group 231 94,
faccessat 269 48, faccessat2 439 439, fadvise64 221 223, fallocate 285 47, fchdir 81 50, fchmod 91 52,
fchmodat 268 53, fchmodat2 452 452, fchown 93 55, fchownat 260 54, fcntl 72 25, fdatasync 75 83, fgetxattr 193 10,
flistxattr 196 13, flock 73 32, fork 57 -, fremovexattr 199 16, fsetxattr 190 7, fstat 5 80, fstatfs 138 44,
fsync 74 82, ftruncate 77 46, futex 202 98, futex_waitv 449 449, futimesat 261 -, getcpu 309 168, getcwd 79 17,
getdents 78 -, getdents64 217 61, getegid 108 177, geteuid 107 175, getgid 104 176, getgroups 115 158,
getitimer 36 102, getpeername 52 205, getpgid 121 155, getpgrp 111 -, getpid 39 172, getppid 110 173,
getpriority 140 141, getrandom 318 278, getresgid 120 150, getresuid 118 148, getrlimit 97 163, getrusage 98 165,
getsid 124 156, getsockname 51 204, getsockopt 55 209, gettid 186 178, gettimeofday 96 169, getuid 102 174,
getxattr 191 8, inotify_add_watch 254 27, inotify_init 253 -, inotify_init1 294 26, inotify_rm_watch 255 28,
ioctl 16 29, kill 62 129, lchown 94 -, lgetxattr 192 9, link 86 -, linkat 265 37, listen 50 201, listxattr 194 11,
llistxattr 195 12, lremovexattr 198 15, lseek 8 62, lsetxattr 189 6, lstat 6 -, madvise 28 233, membarrier 324 283,
memfd_create 319 279, mincore 27 232, mkdir 83 -, mkdirat 258 34, mknod 133 -, mknodat 259 33, mlock 149 228,
mlock2 325 284, mmap 9 222, mprotect 10 226, mremap 25 216, msync 26 227, munlock 150 229, munmap 11 215,
nanosleep 35 101, newfstatat 262 79, open 2 -, openat 257 56, openat2 437 437, pause 34 -, pidfd_open 434 434,
pidfd_send_signal 424 424, pipe 22 -, pipe2 293 59, poll 7 -, ppoll 271 73, prctl 157 167, pread64 17 67,
preadv 295 69, preadv2 327 286, prlimit64 302 261, pselect6 270 72, pwrite64 18 68, pwritev 296 70, pwritev2 328 287,
read 0 63, readahead 187 213, readlink 89 -, readlinkat 267 78, readv 19 65, recvfrom 45 207, recvmmsg 299 243,
recvmsg 47 212, removexattr 197 14, rename 82 -, renameat 264 38, renameat2 316 276, restart_syscall 219 128,
rmdir 84 -, rseq 334 293, rt_sigaction 13 134, rt_sigpending 127 136, rt_sigprocmask 14 135, rt_sigqueueinfo 129 138,
rt_sigreturn 15 139, rt_sigsuspend 130 133, rt_sigtimedwait 128 137, rt_tgsigqueueinfo 297 240,
sched_get_priority_max 146 125, sched_get_priority_min 147 126, sched_getaffinity 204 123, sched_getattr 315 275,
sched_getparam 143 121, sched_getscheduler 145 120, sched_rr_get_interval 148 127, sched_yield 24 124, select 23 -,
sendfile 40 71, sendmmsg 307 269, sendmsg 46 211, sendto 44 206, set_robust_list 273 99, set_tid_address 218 96,
setitimer 38 103, setpgid 109 154, setrlimit 160 164, setsid 112 157, setsockopt 54 208, setxattr 188 5, shutdown 48 210,
sigaltstack 131 132, signalfd 282 -, signalfd4 289 74, socket 41 198, socketpair 53 199, splice 275 76, stat 4 -,
statfs 137 43,
statx 332 291, symlink 88 -, symlinkat 266 36, sync_file_range 277 84, sysinfo 99 179, tgkill 234 131, time 201 -,
timer_create 222 107, timer_delete 226 111, timer_getoverrun 225 109, timer_gettime 224 108, timer_settime 223 110,
timerfd_create 283 85, timerfd_gettime 287 87, timerfd_settime 286 86, times 100 153, tkill 200 130, truncate 76 45,
umask 95 166, uname 63 160, unlink 87 -, unlinkat 263 35, utime 132 -, utimensat 280 88, utimes 235 -, vfork 58 -,
wait4 61 260, waitid 247 95, write 1 64, writev 20 66
"""
"""From the kernel's own tables (asm/unistd_64.h, asm-generic/unistd.h). A call that is not named here is not allowed."""

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
"""Calls that would reach others where the host's processes and files are shared, or hide a deleted file from all."""

_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
"""The number of the argument that is the file's mode."""
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
    for name, block in (_looked_at(profile, alone) | _sockets(profile, network)).items():
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


def _sockets(profile: Profile, network: Network) -> dict[str, list[Instruction]]:
    """Those of the internet; for servers in a network of their own, also those of the machine, which on the host's would
    reach others. A command works in a folder of the host, in which a socket of somebody else may stand."""
    if network == "none":
        return {}
    families = (_INET, _INET6, _UNIX) if network == "loopback" and profile == "server" else (_INET, _INET6)
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
    return [*_require(index, values, error), _PASS]


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


@cache
def numbers(machine: str) -> dict[str, int]:
    """Name to number; without those that the machine does not have."""
    column = MACHINES[machine][1] + 1
    rows = (row.split() for row in _TABLE.replace("\n", " ").split(","))
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}
