"""System calls that Python has no functions for, and what all launchers of a jail do alike.

The starter and the launchers share it: each is run alone (`python -I -S -B`), so each puts this folder on `sys.path` for the
moment of the import. Standard library only, Python 3.9 and newer; imports are counted, since each costs every start.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # the public one brings enum along: 5 ms of every start
import ctypes
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

FAILED = 125
"""The exit code of whoever could not confine a program, which then never runs."""
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 0x4000, 0x40000
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
OPEN_TREE_CLONE, MOVE_EMPTY_PATH, RESOLVE_NO_SYMLINKS = 1, 4, 4
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC, ATTR_IDMAP = 1, 2, 4, 8, 0x00100000
OPEN_TREE, MOVE_MOUNT, OPENAT2, MOUNT_SETATTR = 428, 429, 437, 442
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
CAPSET = {"x86_64": 126, "aarch64": 91}
CAPABILITY_VERSION = 0x20080522
EPERM, EBUSY, EINVAL, ENOSYS = 1, 16, 22, 38
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """The result of a call of the C library; raises OSError if that failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(what: str, number: int, *arguments: Any) -> int:
    """One system call. Integers are passed as words of the machine, bytes by their address."""
    wide = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return checked(libc.syscall(ctypes.c_long(number), *wide), what)


def prctl(option: int, *arguments: Any) -> None:
    rest = [ctypes.c_ulong(argument) if isinstance(argument, int) else argument for argument in arguments]
    rest += [ctypes.c_ulong(0)] * (4 - len(rest))
    checked(libc.prctl(ctypes.c_int(option), *rest), f"prctl {option}")


def words(*numbers: int) -> bytes:
    """64-bit numbers one after another, as the kernel's structures have them."""
    return b"".join(number.to_bytes(8, "little") for number in numbers)


def unshare(namespaces: int) -> None:
    checked(libc.unshare(ctypes.c_int(namespaces)), "unshare")


def drop_bounding_set() -> None:
    """Give up every capability that a program could still be given."""
    number = 0
    while libc.prctl(PR_CAPBSET_DROP, *map(ctypes.c_ulong, (number, 0, 0, 0))) == 0:
        number += 1
    if ctypes.get_errno() != EINVAL:  # which is the answer for the first that the kernel does not know
        raise OSError(ctypes.get_errno(), "the capabilities cannot be given up")


def set_capabilities(kept: int = 0) -> None:
    """Have these capabilities (a set of bits) and no others."""
    sets = b"".join(bits.to_bytes(4, "little") for bits in (kept, kept, 0, 0, 0, 0))
    syscall("capset", CAPSET[os.uname().machine], CAPABILITY_VERSION.to_bytes(4, "little") + bytes(4), sets)


# -- mounts


def mount(kind: str | None, target: str, flags: int, options: str | None = None) -> None:
    """Mount a new file system; without a kind, change how `target` is mounted."""
    name = os.fsencode(kind or "none")
    text = None if options is None else options.encode()
    result = libc.mount(name, os.fsencode(target), name if kind else None, ctypes.c_ulong(flags), text)
    checked(result, f"mount {kind or 'again'} on {target}")


def open_without_links(folder: int, path: str, resolve: int = 0) -> int:
    """A descriptor (O_PATH) of a path from an open folder, no part of which may be a symbolic link."""
    how = words(os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS | resolve)  # with O_NOFOLLOW, the last part could be one
    return syscall(f"open {path}", OPENAT2, folder, os.fsencode(path) or b".", how, len(how))


def open_tree(place: int | str, depth: int = 0) -> int:
    """A copy of the mount of a path, or of a descriptor, that is attached nowhere yet; with AT_RECURSIVE, also of what is
    mounted below it."""
    by_path = isinstance(place, str)
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC | depth | (0 if by_path else AT_EMPTY_PATH)
    name = os.fsencode(place) if isinstance(place, str) else b""
    return syscall(f"copy the mount of {place}", OPEN_TREE, AT_FDCWD if by_path else place, name, flags)


def set_attributes(tree: int, attributes: int, depth: int = 0, space: int | None = None) -> None:
    """Restrict a mount; `space`: a user namespace by which the owners of its files are mapped."""
    wanted = words(attributes | (0 if space is None else ATTR_IDMAP), 0, 0, space or 0)
    syscall("restrict a mount", MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH | depth, wanted, len(wanted))


def copy_mount(place: int | str, attributes: int, depth: int = 0, space: int | None = None) -> int:
    """As `open_tree`, restricted as `set_attributes` does."""
    tree = open_tree(place, depth)
    try:
        set_attributes(tree, attributes, depth, space)
    except OSError:
        os.close(tree)
        raise
    return tree


def attach(tree: int, target: str) -> None:
    """Attach a copied mount at a path; its descriptor is closed."""
    syscall(f"attach {target}", MOVE_MOUNT, tree, b"", AT_FDCWD, os.fsencode(target), MOVE_EMPTY_PATH)
    os.close(tree)


def user_namespace(users: str, groups: str) -> int:
    """A user namespace that says who is whom; nobody lives in it. Its descriptor."""
    ready, told = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(ready[1])
            libc.unshare(ctypes.c_int(CLONE_NEWUSER))
            os.write(told[1], b"1")
            os.read(ready[0], 1)
        finally:
            os._exit(0)
    try:
        os.read(told[0], 1)
        for name, text in (("uid_map", users), ("gid_map", groups)):
            write(f"/proc/{child}/{name}", text)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for descriptor in (*ready, *told):
            os.close(descriptor)
        os.waitpid(child, 0)


def map_user(user: list[int]) -> None:
    """In a user namespace of one's own: stay who one is."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user[0]} {user[0]} 1"), ("gid_map", f"{user[1]} {user[1]} 1")):
        write(f"/proc/self/{name}", text)


def write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


# -- how a launcher begins and ends


def calm_signals() -> None:
    """Undo what the host has set for itself, which is inherited."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def wait_for_end(process: int, lifeline: int, woken: int) -> bool:
    """Wait until the process ends (True), or until a signal asks for its end or the host is gone (False)."""
    gone = os.pidfd_open(process)
    waiting = select.poll()
    waiting.register(woken, select.POLLIN)
    waiting.register(gone, select.POLLIN)
    waiting.register(lifeline, 0)  # only its end matters: what can be read there is for the starter
    return gone in [descriptor for descriptor, _ in waiting.poll()]


def wake_on_signals() -> int:
    """A descriptor that can be read once a signal asks for the end."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return woken


def end_like(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        prctl(PR_SET_DUMPABLE, 0)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def fail(error: BaseException) -> NoReturn:
    """End without having run anything; the host knows the line by its beginning."""
    os.write(2, f"toolgate-starter: {type(error).__name__}: {error}\n".encode(errors="replace"))
    os._exit(FAILED)


def become_starter(path: str, lifeline: int) -> None:
    """Run the starter in this interpreter: a second one would cost 10 ms."""
    sys.argv = [path, str(lifeline)]
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib costs more to import than all of this
        text = file.read()
    exec(compile(text, path, "exec"), {"__name__": "__main__", "__file__": path, "__builtins__": __builtins__})
