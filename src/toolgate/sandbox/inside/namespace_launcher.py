"""Builds a world of its own for one program: what bubblewrap does, for machines that don't have it.

Run as `<python> -I -S -B namespace_launcher.py <plan>`; `jails.namespaces` writes the plan. Three processes come of it:

    outer     in the host's namespaces. Ends everything when the host dies or says so, and ends only when all is gone
    init      process 1 of the new world. Reaps, and takes the whole world along when the program has ended
    program   confined by `starter.py`, which runs in this same interpreter: a second one would cost 10 ms

Files are attached by descriptors (open_tree, mount_setattr, move_mount: Linux 5.12), found without following any symbolic
link, so nothing that lies in a workspace can bend where a mount comes from or goes to. Standard library only.
"""

import _signal as signal  # type: ignore[import-not-found]  # the public one brings enum along: 5 ms of every start
import ctypes
import marshal
import os
import select
import sys

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE, MS_SLAVE = 1, 2, 4, 8, 0x4000, 0x40000, 0x80000
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC = 1, 2, 4, 8
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
MOVE_EMPTY_PATHS = 0x4 | 0x40
NO_SYMLINKS, BENEATH = 0x04, 0x08
AF_INET, SOCK_DGRAM, SIOCSIFFLAGS, IFF_UP = 2, 2, 0x8914, 1
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
CAPABILITY_VERSION, CAP_KILL = 0x20080522, 5
OPEN_TREE, MOVE_MOUNT, OPENAT2, MOUNT_SETATTR = 428, 429, 437, 442
PIVOT_ROOT = {"x86_64": 155, "aarch64": 217}
CAPSET = {"x86_64": 126, "aarch64": 91}
FAILED = 125
NOT_ITS_OWN = (
    "acpi", "asound", "cmdline", "interrupts", "kallsyms", "kcore", "key-users", "keys", "kmsg", "latency_stats",
    "sched_debug", "scsi", "sysrq-trigger", "timer_list", "timer_stats",
)  # fmt: skip
"""What /proc tells about the whole machine, and no program needs."""

libc = ctypes.CDLL(None, use_errno=True)


class OpenHow(ctypes.Structure):
    """The kernel's struct open_how."""

    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


class MountAttributes(ctypes.Structure):
    """The kernel's struct mount_attr."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns_fd")]


def checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int) -> int:
    result: int = libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    return result


def syscall(what: str, number: int, *arguments: object) -> int:
    return checked(libc.syscall(ctypes.c_long(number), *arguments), what)


def mount(kind: str, target: str, flags: int, options: str = "") -> None:
    text = options.encode() if options else None
    result = libc.mount(kind.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), text)
    checked(result, f"mount {kind} on {target}")


def found(root: int, path: str) -> int:
    """A descriptor of a path under `root`; no part of it may be a symbolic link."""
    how = OpenHow(os.O_PATH | os.O_CLOEXEC, 0, NO_SYMLINKS | BENEATH)
    name = os.fsencode(path.strip("/")) or b"."
    return syscall(f"open {path}", OPENAT2, ctypes.c_int(root), name, ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how)))


def copied(path: str, attributes: int) -> int:
    """A mount of the host's file or folder that is attached nowhere yet, with everything mounted below it."""
    host = os.open("/", os.O_PATH | os.O_CLOEXEC)
    source = found(host, path)
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE
    tree = syscall(f"copy the mount of {path}", OPEN_TREE, ctypes.c_int(source), b"", ctypes.c_uint(flags))
    limit(tree, attributes, AT_RECURSIVE, path)
    os.close(source)
    os.close(host)
    return tree


def limit(tree: int, attributes: int, depth: int, path: str) -> None:
    wanted = MountAttributes(attributes, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    flags = ctypes.c_uint(AT_EMPTY_PATH | depth)
    syscall(f"limit the mount of {path}", MOUNT_SETATTR, ctypes.c_int(tree), b"", flags, ctypes.byref(wanted), size)


def attached(tree: int, root: int, path: str) -> None:
    target = found(root, path)
    flags = ctypes.c_uint(MOVE_EMPTY_PATHS)
    syscall(f"attach {path}", MOVE_MOUNT, ctypes.c_int(tree), b"", ctypes.c_int(target), b"", flags)
    os.close(target)
    os.close(tree)


def made(root: int, path: str, folder: bool) -> None:
    """Something to mount on, with the folders above it."""
    parts = [part for part in path.split("/") if part]
    for depth in range(1, len(parts) + (1 if folder else 0)):
        above = found(root, "/".join(parts[: depth - 1]))
        try:
            os.mkdir(parts[depth - 1], 0o755, dir_fd=above)
        except FileExistsError:
            pass
        finally:
            os.close(above)
    if not folder:
        above = found(root, "/".join(parts[:-1]))
        try:
            os.close(os.open(parts[-1], os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444, dir_fd=above))
        except FileExistsError:
            pass
        finally:
            os.close(above)


def is_folder(descriptor: int) -> bool:
    return os.fstat(descriptor).st_mode & 0o170000 == 0o040000


def own_namespaces(user: "list[int] | None", network: str) -> None:
    wanted = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
    if network != "host":
        wanted |= CLONE_NEWNET
    checked(libc.unshare(ctypes.c_int(wanted | (CLONE_NEWUSER if user else 0))), "unshare")
    if network == "loopback":
        raise_loopback()
    if user:
        written("/proc/self/setgroups", "deny")
        written("/proc/self/uid_map", f"{user[0]} {user[0]} 1")
        written("/proc/self/gid_map", f"{user[1]} {user[1]} 1")
        written("/proc/sys/user/max_user_namespaces", "0")
    checked(libc.sethostname(b"sandbox", ctypes.c_size_t(7)), "sethostname")


def raise_loopback() -> None:
    """Let the new network's only interface be used."""
    socket = checked(libc.socket(AF_INET, SOCK_DGRAM, 0), "socket")
    request = ctypes.create_string_buffer(b"lo".ljust(16, b"\0") + IFF_UP.to_bytes(2, sys.byteorder), 40)
    checked(libc.ioctl(socket, ctypes.c_ulong(SIOCSIFFLAGS), request), "raise the loopback")
    os.close(socket)


def written(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


READ = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV
ATTRIBUTES = {
    "read": READ,
    "write": ATTR_NOSUID | ATTR_NODEV,
    "device": ATTR_RDONLY | ATTR_NOSUID | ATTR_NOEXEC,
}


def build(world: list[list[str]], place: str) -> None:
    """Make the new root at `place`, step by step as `jails.namespaces` says. What comes from the host is copied first:
    afterwards `place` hides what lay there."""
    copies = [copied(step[3], ATTRIBUTES[step[2]]) for step in world if step[0] == "bind"]
    copies.reverse()
    mount("tmpfs", place, MS_NOSUID | MS_NODEV, "mode=0755,size=1m,nr_inodes=4096")
    root = os.open(place, os.O_PATH | os.O_CLOEXEC)
    for what, path, *rest in world:
        if what == "bind":
            tree = copies.pop()
            made(root, path, is_folder(tree))
            attached(tree, root, path)
        elif what == "fresh":
            fresh(root, place, path, rest[0])
        elif what == "link":
            linked(root, path, rest[0])
        else:
            hidden(root, path)
    os.close(root)


def fresh(root: int, place: str, path: str, options: str) -> None:
    """An empty file system in memory that may be written to, up to the size and number of files in its options."""
    made(root, path, True)
    mount("tmpfs", place + path, MS_NOSUID | MS_NODEV, options)


def linked(root: int, path: str, target: str) -> None:
    folder, _, name = path.rpartition("/")
    made(root, folder, True)
    above = found(root, folder)
    os.symlink(target, name, dir_fd=above)
    os.close(above)


def hidden(root: int, path: str) -> None:
    """Nothing in the place of something."""
    what = found(root, path)
    folder = is_folder(what)
    os.close(what)
    empty = "/.hidden/folder" if folder else "/.hidden/file"
    made(root, empty, folder)
    source = found(root, empty)
    flags = ctypes.c_uint(OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH)
    tree = syscall(f"hide {path}", OPEN_TREE, ctypes.c_int(source), b"", flags)
    os.close(source)
    limit(tree, READ, 0, path)
    attached(tree, root, path)


def enter(place: str, proc: int) -> None:
    """Make the new root the only one there is. Called by process 1, for /proc has to be that of its own world."""
    os.mkdir(place + "/proc", 0o555)  # noqa: PTH102
    mount("proc", place + "/proc", proc | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    root = os.open(place, os.O_PATH | os.O_CLOEXEC)
    for name in NOT_ITS_OWN:
        if os.access(place + "/proc/" + name, os.F_OK):
            hidden(root, "/proc/" + name)
    os.close(root)
    # Process 1 is ours, and no filter holds it.
    mount("tmpfs", place + "/proc/1", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0555,size=4k,nr_inodes=2")
    os.chdir(place)
    syscall("pivot_root", PIVOT_ROOT[os.uname().machine], b".", b".")
    checked(libc.umount2(b".", ctypes.c_int(MNT_DETACH)), "leave the old root")
    os.chdir("/")
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    limit(root, READ, 0, "/")
    os.close(root)


def keep_one_capability() -> None:
    """All but CAP_KILL go. That one is kept because the program may be of the same user, and nobody may touch the memory of
    a process that has more capabilities than he; the host, which owns this world, still may look."""
    number = 0
    while prctl(PR_CAPBSET_DROP, number) == 0:
        number += 1
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    kept = (ctypes.c_uint32 * 6)(1 << CAP_KILL, 1 << CAP_KILL)
    syscall("capset", CAPSET[os.uname().machine], ctypes.byref(header), ctypes.byref(kept))


def run_as_init(place: str, proc: int, report: int, passed: list[int]) -> None:
    """Process 1: start the program, reap whatever ends, and go when the program goes. Nobody else in this world outlives it.
    Returns only in the process that is to become the program."""
    checked(prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "PR_SET_PDEATHSIG")
    listening = select.poll()
    listening.register(report, 0)
    if listening.poll(0):
        os._exit(FAILED)
    enter(place, proc)
    program = os.fork()
    if program == 0:
        os.close(report)
        return
    keep_one_capability()
    # Python has a handler for it; all others, having none, are not delivered to process 1.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for descriptor in (0, 1, 2, *passed):
        os.close(descriptor)
    while True:
        process, status = os.waitpid(-1, 0)
        if process == program:
            os.write(report, b"%d" % status)
            os._exit(0)


def watch(init: int, report: int, lifeline: int) -> int:
    """Wait for the end of process 1; hasten it when the host is gone or asks. Gives the program's status."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    gone = os.pidfd_open(init)
    waiting = select.poll()
    waiting.register(woken, select.POLLIN)
    waiting.register(gone, select.POLLIN)
    # Only its end matters. What can be read there is for the starter.
    waiting.register(lifeline, 0)
    if gone not in [descriptor for descriptor, _ in waiting.poll()]:
        os.kill(init, signal.SIGKILL)
    _, status = os.waitpid(init, 0)
    # Without a word it was killed, or never came to start the program.
    return int(os.read(report, 16) or status)


def end_like(status: int) -> None:
    """End as the program did."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        prctl(PR_SET_DUMPABLE, 0)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def launch(
    host: int,
    lifeline: int,
    told: int,
    user: "list[int] | None",
    world: list[list[str]],
    place: str,
    writes_proc: bool,
    network: str = "none",
    through: "int | None" = None,
    gate: "int | None" = None,
) -> None:
    """Returns only in the process that is to become the program. `writes_proc`: the starter has to. `through`, `gate`:
    descriptors that are for the starter; with a gate, what is mounted later where we come from is mounted here too."""
    passed = [number for number in (through, gate) if number is not None]
    checked(prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "PR_SET_PDEATHSIG")
    if os.getppid() != host:
        raise OSError("the host is gone")
    # What the host has set for itself is inherited.
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    own_namespaces(user, network)
    kind = MS_PRIVATE if gate is None else MS_SLAVE
    checked(libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC | kind), None), "keep mounts private")
    build(world, place)
    heard, report = os.pipe()
    init = os.fork()
    if init == 0:
        os.close(heard)
        os.close(told)
        run_as_init(place, 0 if writes_proc else MS_RDONLY, report, [lifeline, *passed])
        return
    os.write(told, b'{"child-pid": %d}\n' % init)
    for descriptor in (0, 1, 2, told, report, *passed):
        os.close(descriptor)
    end_like(watch(init, heard, lifeline))


def main() -> str:
    """The starter's file, in the process that is to run it. Whatever goes wrong on the way there ends all of it."""
    try:
        plan = marshal.loads(bytes.fromhex(sys.argv[1]))
        starter: str = plan.pop("starter")
        launch(**plan)
    except BaseException as error:  # noqa: BLE001 - a half-built world must not be run in
        os.write(2, f"toolgate-starter: {error}\n".encode())
        os._exit(FAILED)
    sys.argv = [starter, str(plan["lifeline"])]
    return starter


if __name__ == "__main__":
    path = main()
    with open(path, "rb") as file:  # noqa: PTH123
        text = file.read()
    exec(compile(text, path, "exec"), {"__name__": "__main__", "__file__": path})
