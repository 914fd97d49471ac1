"""Tries, from inside a jail, what a jail must not let it do. `self_check` runs it, on the host, and reads what it prints.

One line for each attempt or control: its name, then `held` or `got`, and what. Standard library only. What takes long to
import is imported where it is used: the trial before the first run, which takes a few of these, waits for it.
"""

# As all that runs inside, it does without pathlib; and printing is how it speaks.
# ruff: noqa: T201, PTH108, PTH118, PTH123, PTH208, PTH211

from __future__ import annotations

import _socket as socket
import _thread
import marshal
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SENT = b"from inside"
CLONE_NEWUSER = 0x10000000
MB = 1024 * 1024
PAUSE = 5.0


def read_a_file(bait: dict[str, Any]) -> str:
    """A file of the host, by its name and by ways round it."""
    with open(bait["secret"]) as file:
        return file.read()


def read_by_another_root(bait: dict[str, Any]) -> str:
    """The same through the roots of other processes."""
    return of_processes(bait, f"root{bait['secret']}")


def read_by_a_link(bait: dict[str, Any]) -> str:
    """The same through a link of one's own."""
    os.symlink(bait["secret"], "link")
    with open("link") as file:
        return file.read()


def write_a_file(bait: dict[str, Any]) -> str:
    with open(os.path.join(bait["outside"], "written"), "w") as file:
        file.write("x")
    return "written"


def write_to_the_system(_bait: dict[str, Any]) -> str:
    with open("/usr/bin/toolgate-was-here", "wb"):
        os.unlink("/usr/bin/toolgate-was-here")
    return "written"


def own_file(_bait: dict[str, Any]) -> str:
    """Control: it has a place of its own."""
    with open("own", "w") as file:
        file.write("mine")
    with open("own") as file:
        return file.read()


def own_environment(bait: dict[str, Any]) -> str:
    return os.environ[bait["variable"]]


def environment_of_others(bait: dict[str, Any]) -> str:
    return of_processes(bait, "environ", bait["variable"])


def of_processes(bait: dict[str, Any], path: str, wanted: str = "") -> str:
    """A file in /proc of other processes, if something that is wanted is in it."""
    for process in ("1", "self", str(os.getppid()), str(bait["host"])):
        try:
            with open(f"/proc/{process}/{path}") as file:
                text = file.read()
        except OSError:
            continue
        if wanted in text:
            return text
    raise PermissionError("none of them")


def home(_bait: dict[str, Any]) -> str:
    """Control: it has what it needs."""
    os.listdir(os.environ["HOME"])
    return os.environ["PATH"]


def open_a_socket(_bait: dict[str, Any]) -> str:
    for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
        try:
            socket.socket(family, socket.SOCK_STREAM).close()
        except OSError:
            continue
        return "a socket"
    raise PermissionError("none of them")


def connect(bait: dict[str, Any]) -> str:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.settimeout(2)
    made.connect(("127.0.0.1", bait["port"]))
    made.sendall(SENT)
    return "connected"


def connect_by_path(bait: dict[str, Any]) -> str:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.connect(bait["socket"])
    made.sendall(SENT)
    return "connected"


def talk_to_itself(_bait: dict[str, Any]) -> str:
    """Control: sockets as such are not what is missing."""
    one, other = socket.socketpair()
    one.sendall(b"x")
    return other.recv(1).decode()


def fork(_bait: dict[str, Any]) -> str:
    if os.fork() == 0:
        os._exit(0)
    return "a copy"


def start_a_program(_bait: dict[str, Any]) -> str:
    return str(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 0"], {}))


def make_a_namespace(_bait: dict[str, Any]) -> str:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(ctypes.c_int(CLONE_NEWUSER)) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    return "a user namespace"


def become_root(_bait: dict[str, Any]) -> str:
    if os.geteuid() != 0:
        os.setuid(0)
    return "root"


def start_a_thread(_bait: dict[str, Any]) -> str:
    """Control: it is one process, but not one thread."""
    lock = _thread.allocate_lock()
    lock.acquire()
    _thread.start_new_thread(lock.release, ())
    if not lock.acquire(timeout=5):
        raise OSError("it did not run")
    return "a thread"


def take_all_processors(_bait: dict[str, Any]) -> str:
    """More than its share, or another."""
    if len(os.sched_getaffinity(0)) == 1:
        os.sched_setaffinity(0, range(1024))
    return "all of them"


def go_first(_bait: dict[str, Any]) -> str:
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    return "a higher priority"


def compute(_bait: dict[str, Any]) -> str:
    """Control: it has a processor."""
    return str(sum(range(1000)))


def signal_another(bait: dict[str, Any]) -> str:
    os.kill(bait["victim"], 9)
    return "a process of the host was killed"


def signal_the_host(bait: dict[str, Any]) -> str:
    os.kill(bait["host"], 0)
    return "it is within reach"


def signal_itself(_bait: dict[str, Any]) -> str:
    """Control: signals as such are not what is missing."""
    os.kill(os.getpid(), 0)
    return "x"


def take_memory(bait: dict[str, Any]) -> str:
    kept = bytearray(bait["megabytes"] * MB)
    for place in range(0, len(kept), 4096):
        kept[place] = 1
    return f"{len(kept) // MB} MB"


def take_shared_memory(bait: dict[str, Any]) -> str:
    import mmap

    kept = []
    for _ in range(bait["megabytes"]):
        kept.append(mmap.mmap(-1, MB))
        kept[-1].write(b"x" * MB)
    return f"{len(kept)} MB"


def some_memory(_bait: dict[str, Any]) -> str:
    """Control: it has a share."""
    return str(len(b"x" * (24 * MB)))


def fill_a_file(bait: dict[str, Any]) -> str:
    with open("much", "wb") as file:
        for _ in range(bait["megabytes_of_disk"]):
            file.write(bytes(MB))
    return "a large file"


def fill_the_disk(bait: dict[str, Any]) -> str:
    """More than the limit, in several files; then time for whoever looks only now and then."""
    written = 0
    for number in range(8):
        with open(f"big{number}", "wb") as file:
            for _ in range(bait["megabytes_of_disk"] // 8):
                written += file.write(b"x" * MB)
                file.flush()
    time.sleep(PAUSE)
    return f"{written // MB} MB"


def make_many_files(bait: dict[str, Any]) -> str:
    for number in range(bait["files"]):
        with open(f"small{number}", "wb"):
            pass
    time.sleep(PAUSE)
    return f"{bait['files']} files"


def some_disk(_bait: dict[str, Any]) -> str:
    """Control: it has a share."""
    with open("some", "wb") as file:
        return str(file.write(b"x" * MB))


def flood(_bait: dict[str, Any]) -> str:
    while True:
        os.write(1, b"flood\n" * 10_000)


def flood_errors(_bait: dict[str, Any]) -> str:
    while True:
        os.write(2, b"flood\n" * 10_000)


def never_end(_bait: dict[str, Any]) -> str:
    import signal

    print("ready", flush=True)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def main() -> None:
    bait = marshal.loads(bytes.fromhex(sys.argv[1]))
    for name in bait["what"]:
        try:
            got = globals()[name](bait)
        except (OSError, MemoryError, KeyError) as error:
            print(f"{name} held {type(error).__name__}: {error}", flush=True)
        else:
            print(f"{name} got {got.strip()}", flush=True)


if __name__ == "__main__":
    main()
