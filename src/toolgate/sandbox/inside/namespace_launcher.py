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

TYPE_CHECKING = False
sys.path.append(__file__.rpartition("/")[0])
if TYPE_CHECKING:
    from toolgate.sandbox.inside import kernel_calls as kernel
else:
    import kernel_calls as kernel
sys.path.pop()
CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = (
    0x02000000, 0x04000000, 0x08000000, 0x20000000, 0x40000000,
)  # fmt: skip
MS_RDONLY, MS_NOEXEC, MS_SLAVE, MNT_DETACH = 1, 8, 0x80000, 2
MOVE_EMPTY_PATHS = 0x4 | 0x40
RESOLVE_BENEATH = 0x08
AF_INET, SOCK_DGRAM, SIOCSIFFLAGS, IFF_UP = 2, 2, 0x8914, 1
CAP_KILL = 5
PIVOT_ROOT = {"x86_64": 155, "aarch64": 217}
NOT_ITS_OWN = (
    "acpi", "asound", "cmdline", "interrupts", "kallsyms", "kcore", "key-users", "keys", "kmsg", "latency_stats",
    "sched_debug", "scsi", "sysrq-trigger", "timer_list", "timer_stats",
)  # fmt: skip
"""Files of /proc about the whole machine, which no program needs."""


def found(root: int, path: str) -> int:
    """A descriptor of a path under `root`; no part of it may be a symbolic link."""
    return kernel.open_without_links(root, path.strip("/"), RESOLVE_BENEATH)


def copied(path: str, attributes: int) -> int:
    """A mount of the host's file or folder that is attached nowhere yet, with everything mounted below it."""
    host = os.open("/", os.O_PATH | os.O_CLOEXEC)
    source = found(host, path)
    tree = kernel.copy_mount(source, attributes, kernel.AT_RECURSIVE)
    os.close(source)
    os.close(host)
    return tree


def attached(tree: int, root: int, path: str) -> None:
    target = found(root, path)
    kernel.syscall(f"attach {path}", kernel.MOVE_MOUNT, tree, b"", target, b"", MOVE_EMPTY_PATHS)
    os.close(target)
    os.close(tree)


def made(root: int, path: str, folder: bool) -> None:
    """Something to mount on, with the folders above it."""
    parts = [part for part in path.split("/") if part]
    for depth, part in enumerate(parts, 1):
        above = found(root, "/".join(parts[: depth - 1]))
        try:
            if folder or depth < len(parts):
                os.mkdir(part, 0o755, dir_fd=above)
            else:
                os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444, dir_fd=above))
        except FileExistsError:
            pass
        finally:
            os.close(above)


def is_folder(descriptor: int) -> bool:
    return os.fstat(descriptor).st_mode & 0o170000 == 0o040000


def own_namespaces(user: "list[int] | None", network: str) -> None:
    wanted = kernel.CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
    if network != "host":
        wanted |= CLONE_NEWNET
    kernel.unshare(wanted | (kernel.CLONE_NEWUSER if user else 0))
    if network == "loopback":
        raise_loopback()
    if user:
        kernel.map_user(user)
        kernel.write("/proc/sys/user/max_user_namespaces", "0")
    kernel.checked(kernel.libc.sethostname(b"sandbox", ctypes.c_size_t(7)), "sethostname")


def raise_loopback() -> None:
    """Let the new network's only interface be used."""
    socket = kernel.checked(kernel.libc.socket(AF_INET, SOCK_DGRAM, 0), "socket")
    request = ctypes.create_string_buffer(b"lo".ljust(16, b"\0") + IFF_UP.to_bytes(2, sys.byteorder), 40)
    kernel.checked(kernel.libc.ioctl(socket, ctypes.c_ulong(SIOCSIFFLAGS), request), "raise the loopback")
    os.close(socket)


READ = kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV
ATTRIBUTES = {
    "read": READ,
    "write": kernel.ATTR_NOSUID | kernel.ATTR_NODEV,
    "device": kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NOEXEC,
}


def build(world: list[list[str]], place: str) -> None:
    """Make the new root at `place`, step by step as `jails.namespaces` says. What comes from the host is copied first:
    afterwards `place` hides what lay there."""
    copies = [copied(step[3], ATTRIBUTES[step[2]]) for step in world if step[0] == "bind"]
    copies.reverse()
    kernel.mount("tmpfs", place, kernel.MS_NOSUID | kernel.MS_NODEV, "mode=0755,size=1m,nr_inodes=4096")
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
    kernel.mount("tmpfs", place + path, kernel.MS_NOSUID | kernel.MS_NODEV, options)


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
    tree = kernel.copy_mount(source, READ)
    os.close(source)
    attached(tree, root, path)


def enter(place: str, proc: int) -> None:
    """Make the new root the only one there is. Called by process 1, for /proc has to be that of its own world."""
    os.mkdir(place + "/proc", 0o555)  # noqa: PTH102
    kernel.mount("proc", place + "/proc", proc | kernel.MS_NOSUID | kernel.MS_NODEV | MS_NOEXEC)
    root = os.open(place, os.O_PATH | os.O_CLOEXEC)
    for name in NOT_ITS_OWN:
        if os.access(place + "/proc/" + name, os.F_OK):
            hidden(root, "/proc/" + name)
    os.close(root)
    # Process 1 is ours, and no filter holds it.
    closed = MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV | MS_NOEXEC
    kernel.mount("tmpfs", place + "/proc/1", closed, "mode=0555,size=4k,nr_inodes=2")
    os.chdir(place)
    kernel.syscall("pivot_root", PIVOT_ROOT[os.uname().machine], b".", b".")
    kernel.checked(kernel.libc.umount2(b".", ctypes.c_int(MNT_DETACH)), "leave the old root")
    os.chdir("/")
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    kernel.set_attributes(root, READ)
    os.close(root)


def keep_one_capability() -> None:
    """All but CAP_KILL go. That one is kept because the program may be of the same user, and nobody may touch the memory of
    a process that has more capabilities than he; the host, which owns this world, still may look."""
    kernel.drop_bounding_set()
    kernel.set_capabilities(1 << CAP_KILL)


def run_as_init(place: str, proc: int, report: int, passed: list[int]) -> None:
    """Process 1: start the program, reap whatever ends, and go when the program goes. Nobody else in this world outlives it.
    Returns only in the process that is to become the program."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    listening = select.poll()
    listening.register(report, 0)
    if listening.poll(0):
        os._exit(kernel.FAILED)
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
    if not kernel.wait_for_end(init, lifeline, kernel.wake_on_signals()):
        os.kill(init, signal.SIGKILL)
    _, status = os.waitpid(init, 0)
    # Without a word it was killed, or never came to start the program.
    return int(os.read(report, 16) or status)


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
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != host:
        raise OSError("the host is gone")
    os.umask(0o022)
    kernel.calm_signals()
    own_namespaces(user, network)
    kernel.mount(None, "/", kernel.MS_REC | (kernel.MS_PRIVATE if gate is None else MS_SLAVE))
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
    kernel.end_like(watch(init, heard, lifeline))


if __name__ == "__main__":
    try:
        plan = marshal.loads(bytes.fromhex(sys.argv[1]))
        starter = plan.pop("starter")
        launch(**plan)
    except BaseException as error:  # noqa: BLE001 - a half-built world must not be run in
        kernel.fail(error)
    kernel.become_starter(starter, plan["lifeline"])
