"""The last of ours that runs before the untrusted program, inside every jail: it gives away every right, then hands over.

Its argument is the number of a pipe. One order comes through it (`launch.order` writes it); afterwards the pipe stays
open as a lifeline: should the host be gone, or have changed its mind, before the program begins, there is nobody who would
stop the program, so it never begins. A container is given no other descriptor than stdin (`--container`): its order comes
there, what follows is for the program, and there is no lifeline, since the host may close stdin before the program begins.

What has to be loaded is loaded before files and system calls are taken away. Should any step fail, so does the whole: exit
code 125 and a line that begins with "toolgate-starter:", never a program half held.

It runs on any Python from 3.9 on, alone (-I -S), and counts its imports: each costs a millisecond of every start.
"""

# Paths are strings here: pathlib costs more to import than all the rest.
# ruff: noqa: PTH103, PTH112, PTH123, PTH208

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # the public one brings enum along: 5 ms of every start
import ctypes
import marshal
import os
import resource
import select
import sys
from _frozen_importlib_external import MAGIC_NUMBER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

sys.path.append(__file__.rpartition("/")[0])
if TYPE_CHECKING:
    from toolgate.sandbox.inside import kernel_calls as kernel
else:
    import kernel_calls as kernel
sys.path.pop()

PR_SET_THP_DISABLE = 41
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
SECCOMP = {"x86_64": 317, "aarch64": 277}
SET_MODE_FILTER, NEW_LISTENER = 1, 8
OWN_PID, ASK, ALLOW = 0x7FFFFFFE, 0x7FC00000, 0x7FFF0000
NOTICE_RECEIVE, NOTICE_SEND, NOTICE_BYTES, CONTINUE = 0xC0502100, 0xC0182101, 80, 1

# Rights over files, by the version of Landlock that brought them.
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REFER, TRUNCATE, IOCTL_DEV = 1, 2, 4, 8, 1 << 13, 1 << 14, 1 << 15
FIRST_VERSION = (1 << 13) - 1
OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
NET, SCOPES = 3, 3


class StartFailed(Exception):
    """A step could not be done."""


def main() -> tuple[list[tuple[str, CodeType]], dict[str, Any]]:
    if sys.argv[1] == "--remap":
        try_remap(sys.argv[2])
    in_container = sys.argv[1] == "--container"
    lifeline = 0 if in_container else int(sys.argv[1])
    order: dict[str, Any] = marshal.loads(read_exactly(lifeline, int.from_bytes(read_exactly(lifeline, 4), "little")))
    if in_container:
        order["argv"][0] = found(order["argv"][0], order["environment"]["PATH"])
    worker = load(order) if order["same"] else []
    calm_signals(order["same"])
    os.umask(order["umask"])
    prepare_world(order, lifeline)
    give_up_rights(order)
    for folder in order["folders"]:
        os.makedirs(folder, 0o700, exist_ok=True)
    os.chdir(order["cwd"])
    kernel.prctl(PR_SET_THP_DISABLE, 1)
    for name, (soft, hard) in order["rlimits"].items():
        limit(getattr(resource, name), soft, hard)
    program = os.fsencode(order["argv"][0])
    if order["landlock"]:
        restrict_files(order["landlock"])
    if not in_container:
        if is_cut(lifeline):
            raise StartFailed("the host is gone")
        os.close(lifeline)
    if order["filter"]:
        restrict_calls(patched(order["filter"], OWN_PID, os.getpid()), program, order)
    if not worker:
        os.execve(program, order["argv"], order["environment"])
    return worker, order


def prepare_world(order: dict[str, Any], lifeline: int) -> None:
    """Does what takes the rights that are about to be given up."""
    listen, gate = order["listen"], order.get("gate")
    close_descriptors({lifeline, *([listen["through"]] if listen else ()), *([gate] if gate is not None else ())})
    if gate is not None:
        wait_for_files(gate)
    if listen:
        hand_out(listen)
    if order["remap"]:
        remap(order["remap"])
    if order["cpu"] is not None:
        ours = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {order["cpu"]} if order["cpu"] in ours else {min(ours)})


def wait_for_files(gate: int) -> None:
    """Until all files of its projected folders are there (`layer_launcher`)."""
    os.write(gate, b"1")
    if not os.read(gate, 1):
        raise StartFailed("the files of its folders cannot be shown")
    os.close(gate)


def read_exactly(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(descriptor, size - len(data))
        if not piece:
            raise StartFailed("the host is gone")
        data += piece
    return data


def found(program: str, path: str) -> str:
    """The program by its whole path: where it lies is the image's affair."""
    if "/" in program:
        return program
    for folder in path.split(":"):
        if os.access(f"{folder}/{program}", os.X_OK):
            return f"{folder}/{program}"
    raise StartFailed("the image has no program " + program)


def is_cut(lifeline: int) -> bool:
    """True if nobody holds the other end any more."""
    watch = select.poll()
    watch.register(lifeline, 0)
    return bool(watch.poll(0))


def load(order: dict[str, Any]) -> list[tuple[str, CodeType]]:
    """The program after the modules that it consists of, ready to run: their files need not be read afterwards."""
    if order["worker"] is not None and order["magic"] == MAGIC_NUMBER:
        compiled: list[tuple[str, CodeType]] = marshal.loads(order["worker"])
        return compiled
    path = order["argv"][1]
    with open(path, "rb") as file:
        return [("__main__", compile(file.read(), path, "exec"))]


def run(worker: list[tuple[str, CodeType]], order: dict[str, Any]) -> None:
    sys.argv = order["argv"][1:]
    os.environ.clear()
    os.environ.update(order["environment"])
    *parts, (_, program) = worker
    for name, code in parts:
        module = sys.modules[name] = type(sys)(name)
        exec(code, vars(module))
    exec(program, {"__name__": "__main__", "__file__": sys.argv[0], "__builtins__": __builtins__})


def calm_signals(python: bool) -> None:
    """As a new program finds them; or as Python, for which a closed pipe and a file too big are exceptions, sets them."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in range(1, 65):
        if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
            excepted = python and number in (signal.SIGPIPE, signal.SIGXFSZ)
            signal.signal(number, signal.SIG_IGN if excepted else signal.SIG_DFL)


def close_descriptors(kept: set[int]) -> None:
    """Whatever was inherited, but the standard three and what is still needed."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            try:  # noqa: SIM105 - contextlib would have to be imported
                os.close(int(name))
            except OSError:
                pass  # The listing's own.


def hand_out(wanted: dict[str, Any]) -> None:
    """Listen on this world's own loopback, and give the sockets to the host, which answers on them. None stays here."""
    import _socket

    sockets = []
    for address, port in wanted["places"]:
        made = _socket.socket(_socket.AF_INET6 if ":" in address else _socket.AF_INET, _socket.SOCK_STREAM)
        try:
            made.bind((address, port))
        except OSError as error:
            raise StartFailed(f"nobody can listen on port {port} here: {error}") from None
        made.listen(128)
        sockets.append(made)
    through = _socket.socket(fileno=wanted["through"])
    numbers = b"".join(made.fileno().to_bytes(4, sys.byteorder) for made in sockets)
    through.sendmsg([b"1"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
    for made in (*sockets, through):
        made.close()


def remap(orders: dict[str, Any]) -> None:
    """Lay folders once more over themselves so that, seen from here, their owner is whom we become; on disk nothing changes.

    Their parts that are mounted apart, being fixed or hidden, are taken off before and laid on again."""
    spaces = [kernel.user_namespace(users, groups) for users, groups in orders["maps"]]
    places = orders["places"]
    trees = [
        kernel.copy_mount(path, 0, space=spaces[which]) if which >= 0 else kernel.open_tree(path, kernel.AT_RECURSIVE)
        for path, which in places
    ]
    for tree, (path, _) in zip(trees, places):  # noqa: B905 - strict came with Python 3.10
        kernel.attach(tree, path)
    for space in spaces:
        os.close(space)


def try_remap(path: str) -> None:
    """For the host, which asks before it relies on it."""
    kernel.copy_mount(path, 0, space=kernel.user_namespace("0 1900000000 1\n", "0 1900000000 1\n"))
    os._exit(0)


def give_up_rights(order: dict[str, Any]) -> None:
    """Become nobody, without a capability left and with no way to get one."""
    if order["uid"] is not None:
        kernel.drop_bounding_set()
        os.setgroups([])
        os.setresgid(order["gid"], order["gid"], order["gid"])
        os.setresuid(order["uid"], order["uid"], order["uid"])
    kernel.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    kernel.set_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    # The host reads how much it uses; changing one's user takes that away, and the wish to end with one's parent too.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    if order.get("ends_with_parent"):
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def limit(what: int, soft: int, hard: int) -> None:
    """Sets a limit that the kernel counts. Where the host itself may have less, that is what can be had."""
    most = resource.getrlimit(what)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(what, (soft, hard))


def restrict_files(wanted: dict[str, Any]) -> None:
    """Landlock: the files of the order and no others, no network, no one else's processes."""
    version = kernel.syscall("Landlock", kernel.LANDLOCK_CREATE, None, 0, 1)
    if version < 3:
        raise StartFailed(f"the kernel's Landlock is too old (version {version}, 3 is needed)")
    handled = FIRST_VERSION | REFER | TRUNCATE | (IOCTL_DEV if version >= 5 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24  # older versions know less, and refuse what they don't know
    attributes = kernel.words(handled, 0 if wanted.get("network") else NET, SCOPES)[:size]
    rules = kernel.syscall("Landlock", kernel.LANDLOCK_CREATE, attributes, len(attributes), 0)
    for rule in wanted["rules"]:
        add_rule(rules, rule, handled)
    kernel.syscall("Landlock", kernel.LANDLOCK_RESTRICT, rules, 0)
    os.close(rules)


def add_rule(rules: int, rule: dict[str, Any], handled: int) -> None:
    """One file or folder, and what may be done to it."""
    try:
        place = os.open(rule["path"], os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if rule.get("known") else 0))
    except FileNotFoundError:
        if rule.get("optional"):
            return
        raise
    known = rule.get("known")
    if known is not None and known != (os.fstat(place).st_dev, os.fstat(place).st_ino):
        os.close(place)
        return
    reads = READ_FILE | (EXECUTE if rule["execute"] else 0)
    rights = READ_DIR | (0 if rule.get("lists") else reads)
    if rule["write"]:
        devices = (1 << 6) | (1 << 11) | IOCTL_DEV  # making character and block devices, and talking to them
        rights |= handled & ~EXECUTE & ~devices
    if not os.path.isdir(rule["path"]):
        rights &= OF_A_FILE
    attributes = kernel.words(rights & handled) + place.to_bytes(4, "little")
    kernel.syscall("Landlock", kernel.LANDLOCK_ADD, rules, 1, attributes, 0)
    os.close(place)


def restrict_calls(code: bytes, program: bytes, order: dict[str, Any]) -> None:
    """The filter of system calls: from here on it holds, for good. One that asks who may execute ends in the program."""
    without = patched(code, ASK, ALLOW)
    if without != code:
        hand_over_once(code, program, order)
    kernel.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, prepared(without))


def patched(code: bytes, old: int, new: int) -> bytes:
    """The same filter with another operand."""
    steps = (code[place : place + 8] for place in range(0, len(code), 8))
    before, after = old.to_bytes(4, "little"), new.to_bytes(4, "little")
    return b"".join(step[:4] + after if step[4:] == before else step for step in steps)


def prepared(code: bytes) -> bytes:
    """A filter as the kernel wants it: its length and its address. It stays in memory as long as `code` does."""
    address = ctypes.cast(ctypes.c_char_p(code), ctypes.c_void_p).value or 0
    return kernel.words(len(code) // 8, address)


def hand_over_once(code: bytes, program: bytes, order: dict[str, Any]) -> None:
    """Execute the program and no other ever after: a thread of ours, begun before the filter and so not under it, is asked
    and allows it. With that both the thread and the descriptor that asks are gone, so nobody can allow it a second time.

    Returns if there is nobody to be asked here: on an old kernel, or in a container whose own filter asks somebody already.
    What could be executed then is what could be read, under the same filter and with no process to be won."""
    import _thread

    heard: list[int] = []
    known = _thread.allocate_lock()
    known.acquire()

    def allow() -> None:
        with known:
            listener = ctypes.c_int(heard[0])
        notice = ctypes.create_string_buffer(NOTICE_BYTES)
        kernel.libc.ioctl(listener, ctypes.c_ulong(NOTICE_RECEIVE), notice)
        answer = notice.raw[:8] + bytes(12) + CONTINUE.to_bytes(4, "little")
        kernel.libc.ioctl(listener, ctypes.c_ulong(NOTICE_SEND), answer)

    texts = ctypes.c_char_p
    words = [os.fsencode(word) for word in order["argv"]] + [None]
    settings = [os.fsencode(f"{name}={value}") for name, value in order["environment"].items()] + [None]
    _thread.start_new_thread(allow, ())
    try:
        heard.append(kernel.syscall("seccomp", SECCOMP[os.uname().machine], SET_MODE_FILTER, NEW_LISTENER, prepared(code)))
    except OSError as error:
        if error.errno not in (kernel.EPERM, kernel.EBUSY, kernel.EINVAL, kernel.ENOSYS):
            raise
        return
    known.release()
    # Unlike os.execve, it lets the thread go on.
    kernel.libc.execve(program, (texts * len(words))(*words), (texts * len(settings))(*settings))
    raise OSError(ctypes.get_errno(), f"{order['argv'][0]} cannot be executed")


if __name__ == "__main__":
    try:
        _worker, _order = main()
    except BaseException as error:  # noqa: BLE001 - whatever goes wrong, nothing is run
        kernel.fail(error)
    run(_worker, _order)
