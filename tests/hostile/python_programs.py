"""Hostile programs for the Python lane: what the standard library offers, and ctypes for the rest.

Most are the body of a function that returns what it got. Whatever it raises means that it was held; its control shows that
the same means work for what is permitted, so that a lane in which nothing works does not look safe.
"""

from textwrap import indent

from tests.hostile.battery import Hostile
from toolgate.sandbox.jail import Feature

READ_OWN = 'open("own", "w").write("mine")\nprint("control ok" if open("own").read() == "mine" else "lost")'
FOLLOW_OWN = (
    'import os\nopen("own", "w").write("mine")\nos.symlink("own", "l")\nprint("control ok" if open("l").read() else "lost")'
)
SEE_OWN = 'import os\nprint("control ok" if "PATH" in os.environ and os.getpid() > 0 else "nothing")'
PAIR = 'import socket\na, b = socket.socketpair()\na.send(b"x")\nprint("control ok" if b.recv(1) == b"x" else "lost")'
THREAD = 'import threading\nt = threading.Thread(target=print, args=("control ok",))\nt.start()\nt.join()'
CALL = 'import ctypes, os\nprint("control ok" if ctypes.CDLL(None).getpid() == os.getpid() else "no system call")'
SOME_MEMORY = (
    'x = bytearray(80 << 20)\nx[::4096] = b"x" * len(x[::4096])\nprint("control ok" if len(x) == 80 << 20 else "less")'
)
WORK = 'print("control ok" if sum(range(200_000)) == 19_999_900_000 else "wrong")'
SOME_DISK = (
    'import os\nopen("own", "wb").write(bytes(8 << 20))\n'
    'print("control ok" if os.path.getsize("own") == 8 << 20 else "less")'
)
SOME_OUTPUT = 'print("x" * 100_000)\nprint("control ok")'
SOME_SIGNAL = (
    "import signal\ngot = []\nsignal.signal(signal.SIGUSR1, lambda *_: got.append(1))\n"
    'signal.raise_signal(signal.SIGUSR1)\nprint("control ok" if got else "lost")'
)


def attempt(
    name: str, feature: Feature, body: str, control: str, *, seconds: float = 5.0, workspace: bool = False
) -> Hostile:
    """A program that escaped if the body returns something."""
    code = (
        f"def attempt():\n{indent(body.strip(), '    ')}\n\n"
        "try:\n    got = attempt()\nexcept Exception:\n    got = None\n"
        'print(f"ESCAPED {got!r}"[:500] if got else "held")\n'
    )
    return Hostile(name, feature, code, control, seconds, workspace)


def outside(name: str, feature: Feature, body: str, control: str, *, seconds: float = 5.0) -> Hostile:
    """A program that can't know whether it succeeded: the driver sees it from outside."""
    return Hostile(name, feature, f"{body.strip()}\n" + 'print("held")\n', control, seconds)


def kernel(name: str, x86: int, arm: int, arguments: str, *, feature: Feature = "processes") -> Hostile:
    """A program that makes one system call, by its numbers on x86_64 and on aarch64; -1 where there is none. It escaped
    unless it is refused: not permitted, no such process, access denied, no such call."""
    body = f"""
import ctypes, platform
number = {arm} if platform.machine() == "aarch64" else {x86}
libc = ctypes.CDLL(None, use_errno=True)
room = ctypes.create_string_buffer(4096)
answer = -1 if number < 0 else libc.syscall(ctypes.c_long(number), {arguments})
error = 1 if number < 0 else ctypes.get_errno()
return None if answer < 0 and error in (1, 3, 13, 38) else ("{name}", answer, error)
"""
    return attempt(name, feature, body, CALL)


FILES = [
    attempt("read_secret", "files", 'return open("{secret_file}").read()', READ_OWN),
    attempt("read_by_climbing", "files", 'return open("../" * 30 + "{secret_file}".lstrip("/")).read()', READ_OWN),
    attempt("read_by_pathlib", "files", 'import pathlib\nreturn pathlib.Path("{secret_file}").read_bytes()', READ_OWN),
    attempt("read_by_descriptor", "files", 'import os\nreturn os.read(os.open("{secret_file}", os.O_RDONLY), 99)', READ_OWN),
    attempt("read_by_import", "files", 'import runpy\nreturn runpy.run_path("{secret_file}")', READ_OWN),
    attempt("read_by_linecache", "files", 'import linecache\nreturn linecache.getlines("{secret_file}")', READ_OWN),
    attempt(
        "read_by_mmap", "files", 'import mmap, os\nreturn mmap.mmap(os.open("{secret_file}", 0), 0, prot=1)[:99]', READ_OWN
    ),
    attempt(
        "read_by_c",
        "files",
        """
import ctypes
libc = ctypes.CDLL(None)
room = ctypes.create_string_buffer(99)
file = libc.open(b"{secret_file}", 0)
return libc.read(file, room, 99) > 0 and room.value
""",
        CALL,
    ),
    attempt(
        "read_through_own_symlink",
        "files",
        'import os\nos.symlink("{secret_file}", "l")\nreturn open("l").read()',
        FOLLOW_OWN,
    ),
    attempt(
        "read_through_planted_symlink",
        "files",
        'return open("{link}").read()',
        'import os\nprint("control ok" if os.path.islink("{link}") else "no link")',
        workspace=True,
    ),
    attempt(
        "write_through_planted_symlink", "files", 'return open("{link}", "a").write("overwritten")', READ_OWN, workspace=True
    ),
    attempt("write_outside", "files", 'return open("{outside}/written", "w").write("x")', READ_OWN),
    attempt("make_folder_outside", "files", 'import os\nos.mkdir("{outside}/made")\nreturn True', READ_OWN),
    attempt("climb_out_of_workspace", "files", 'return open("../escaped", "w").write("x")', READ_OWN, workspace=True),
    attempt("hard_link", "files", 'import os\nos.link("{secret_file}", "own")\nreturn open("own").read()', READ_OWN),
    attempt("move_away", "files", 'import os\nos.rename("{secret_file}", "own")\nreturn True', READ_OWN),
    attempt("delete", "files", 'import os\nos.unlink("{secret_file}")\nreturn True', READ_OWN),
    attempt("passwords", "files", 'return open("/etc/shadow").read() or open("/etc/passwd").read()', READ_OWN),
    attempt(
        "roots_of_others",
        "files",
        """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    for way in ("root", "cwd"):
        try:
            return open(f"/proc/{pid}/{way}/" + "../" * 20 + "{secret_file}".lstrip("/")).read()
        except OSError:
            pass
""",
        READ_OWN,
    ),
    attempt("descriptors_of_host", "files", 'import os\nreturn os.listdir("/proc/{host_pid}/fd")', READ_OWN),
    attempt("memory_of_host", "files", 'return open("/proc/{host_pid}/mem", "rb").fileno()', READ_OWN),
    attempt("maps_of_host", "files", 'return open("/proc/{host_pid}/maps").read()', READ_OWN),
    attempt(
        "inherited_descriptors",
        "files",
        """
import os, stat
for number in range(3, 1024):
    try:
        mode = os.fstat(number).st_mode
    except OSError:
        continue
    if stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISBLK(mode) or stat.S_ISCHR(mode):
        return number, oct(mode)
""",
        READ_OWN,
    ),
    attempt("own_root", "files", 'import os\nos.chroot(".")\nreturn True', READ_OWN),
    attempt(
        "devices",
        "files",
        """
import os
for name in ("mem", "kmem", "kmsg", "port", "sda", "vda", "nvme0n1", "kvm", "fuse", "net/tun", "loop-control"):
    try:
        return os.open(f"/dev/{name}", os.O_RDWR)
    except OSError:
        pass
os.mknod("own", 0o20666, os.makedev(1, 1))
return os.open("own", os.O_RDWR)
""",
        READ_OWN,
    ),
    attempt(
        "change_the_system",
        "files",
        """
for path in ("/usr/lib/x", "/bin/x", "/etc/x", "/proc/sys/kernel/core_pattern", "/sys/kernel/uevent_helper", "/x"):
    try:
        open(path, "w").write("x")
        return path
    except OSError:
        pass
""",
        READ_OWN,
    ),
    attempt(
        "setuid_bit",
        "files",
        'import os\nopen("own", "w").write("x")\nos.chmod("own", 0o4755)\nreturn os.stat("own").st_mode & 0o6000',
        READ_OWN,
    ),
    kernel("open_by_handle", 304, 265, "-100, room, 0", feature="files"),
    kernel("mount", 165, 40, 'b"none", b".", b"tmpfs", 0, None', feature="files"),
    kernel("pivot_root", 155, 41, 'b".", b"."', feature="files"),
    kernel("open_tree", 428, 428, '-100, b"/", 1', feature="files"),
    kernel("fsopen", 430, 430, 'b"tmpfs", 0', feature="files"),
]

ENVIRONMENT = [
    attempt("own_environment", "environment", 'import os\nreturn os.environ.get("{secret_env}")', SEE_OWN),
    attempt(
        "environment_by_c", "environment", 'import ctypes\nf = ctypes.CDLL(None).getenv\nreturn f(b"{secret_env}")', CALL
    ),
    attempt(
        "more_than_needed", "environment", "import os\nreturn [n for n in os.environ if 'KEY' in n or 'TOKEN' in n]", SEE_OWN
    ),
    attempt(
        "environment_of_others",
        "environment",
        """
import os
for pid in [*filter(str.isdigit, os.listdir("/proc")), "self", str(os.getppid()), "1", "{host_pid}"]:
    try:
        if b"{secret_env}" in open(f"/proc/{pid}/environ", "rb").read():
            return pid
    except OSError:
        pass
""",
        SEE_OWN,
    ),
    attempt(
        "environment_in_memory",
        "environment",
        """
import re
mine = "{secret_env}"[:-1].encode(), b"{secret_env}"[-1:]
for line in open("/proc/self/maps"):
    if "[stack]" in line or "[heap]" in line:
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        memory = open("/proc/self/mem", "rb", 0)
        memory.seek(start)
        if re.search(mine[0] + mine[1] + b"=[a-zA-Z0-9]", memory.read(end - start)):
            return line
""",
        SEE_OWN,
    ),
    attempt("command_of_host", "environment", 'return open("/proc/{host_pid}/cmdline").read()', SEE_OWN),
]


def dial(name: str, family: str, kind: str, address: str, *, protocol: int = 0) -> Hostile:
    """A program that sends something to a socket."""
    body = f"""
import socket
s = socket.socket({family}, {kind}, {protocol})
s.settimeout(2)
s.connect({address})
return s.send(b"from inside")
"""
    return attempt(name, "network", body, PAIR)


NETWORK = [
    dial("tcp_to_host", "socket.AF_INET", "socket.SOCK_STREAM", '("127.0.0.1", {host_port})'),
    dial("tcp_by_name", "socket.AF_INET", "socket.SOCK_STREAM", '("localhost", {host_port})'),
    dial("tcp_over_ipv6", "socket.AF_INET6", "socket.SOCK_STREAM", '("::ffff:127.0.0.1", {host_port})'),
    dial("udp_to_host", "socket.AF_INET", "socket.SOCK_DGRAM", '("127.0.0.1", {host_port})'),
    dial("unix_path", "socket.AF_UNIX", "socket.SOCK_STREAM", '"{host_socket}"'),
    dial("unix_abstract", "socket.AF_UNIX", "socket.SOCK_STREAM", '"\\0{host_abstract}"'),
    dial("raw_packets", "socket.AF_INET", "socket.SOCK_RAW", '("127.0.0.1", 0)', protocol=1),
    dial("cloud_metadata", "socket.AF_INET", "socket.SOCK_STREAM", '("169.254.169.254", 80)'),
    attempt("packet_socket", "network", "import socket\nreturn socket.socket(17, socket.SOCK_RAW, 0x300)", PAIR),
    attempt("netlink", "network", "import socket\nreturn socket.socket(16, socket.SOCK_RAW, 0).fileno()", PAIR),
    attempt("kernel_crypto", "network", "import socket\nreturn socket.socket(38, socket.SOCK_SEQPACKET).fileno()", PAIR),
    attempt("virtual_machine", "network", "import socket\nreturn socket.socket(40, socket.SOCK_STREAM).fileno()", PAIR),
    attempt("names", "network", 'import socket\nreturn socket.getaddrinfo("example.com", 80)', PAIR),
    attempt(
        "listen",
        "network",
        'import socket\ns = socket.socket()\ns.bind(("0.0.0.0", 0))\ns.listen()\nreturn s.getsockname()',
        PAIR,
    ),
    attempt(
        "fetch", "network", 'import urllib.request as r\nreturn r.urlopen("http://127.0.0.1:{host_port}/", timeout=2)', PAIR
    ),
    attempt(
        "connect_in_loop",
        "network",
        'import asyncio\nreturn asyncio.run(asyncio.wait_for(asyncio.open_connection("127.0.0.1", {host_port}), 2))',
        "import asyncio\nawait asyncio.sleep(0)\nprint('control ok')",
    ),
    kernel("socket_by_c", 41, 198, "2, 1, 0", feature="network"),
]

PROCESSES = [
    attempt("fork", "processes", "import os\npid = os.fork()\nif pid == 0:\n    os._exit(0)\nreturn pid", THREAD),
    attempt(
        "fork_bomb",
        "processes",
        """
import os
started = 0
for _ in range(400):
    try:
        if os.fork() == 0:
            import time
            time.sleep(2)
            os._exit(0)
        started += 1
    except OSError:
        break
return started
""",
        THREAD,
    ),
    attempt("run_a_program", "processes", 'import subprocess\nreturn subprocess.run(["/bin/true"]).returncode == 0', THREAD),
    attempt("spawn", "processes", 'import os\nreturn os.posix_spawn("/bin/true", ["true"], {})', THREAD),
    attempt("system", "processes", 'import os\nreturn os.system("true") == 0', THREAD),
    attempt(
        "become_a_shell", "processes", 'import os\nos.execv("/bin/sh", ["sh", "-c", "echo ESCAPED as a shell >&2"])', THREAD
    ),
    attempt(
        "other_processes",
        "processes",
        "import multiprocessing\np = multiprocessing.Process(target=print)\np.start()\nreturn p.pid",
        THREAD,
    ),
    attempt(
        "thread_bomb",
        "processes",
        """
import _thread, time
_thread.stack_size(32768)
started = 0
for _ in range(2000):
    try:
        _thread.start_new_thread(time.sleep, (2,))
        started += 1
    except RuntimeError:
        break
return started if started > 150 else None
""",
        THREAD,
    ),
    attempt(
        "daemon",
        "processes",
        """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
return True
""",
        THREAD,
    ),
    attempt("become_root", "processes", "import os\nos.setresuid(0, 0, 0)\nreturn os.getuid() == 0", CALL),
    attempt("change_groups", "processes", "import os\nos.setgroups([0])\nreturn os.getgroups()", CALL),
    kernel("fork_by_c", 57, 220, "17, 0, 0, 0, 0"),
    kernel("vfork", 58, -1, "0"),
    kernel("clone3", 435, 435, "room, 88"),
    kernel("user_namespace", 272, 97, "0x10000000"),
    kernel("mount_namespace", 272, 97, "0x20000"),
    kernel("enter_namespace", 308, 268, "0, 0"),
    kernel("trace_host", 101, 117, "16, {host_pid}, 0, 0"),
    kernel("let_be_traced", 101, 117, "0, 0, 0, 0"),
    kernel("read_memory_of_host", 310, 270, "{host_pid}, room, 1, room, 1, 0"),
    kernel("take_descriptor", 438, 438, "0, 0, 0"),
    kernel("keys", 250, 219, "0, -3, 1"),
    kernel("add_key", 248, 217, 'b"user", b"toolgate", b"x", 1, -3'),
    kernel("bpf", 321, 280, "0, room, 64"),
    kernel("io_uring", 425, 425, "4, room"),
    kernel("page_faults", 323, 282, "1"),
    kernel("performance_events", 298, 241, "room, 0, -1, -1, 0"),
    kernel("personality", 135, 92, "0x0040000"),
    kernel("local_descriptors", 154, -1, "0, room, 16"),
    kernel("ports", 172, -1, "3"),
    kernel("kexec", 246, 104, "0, 0, None, 0"),
    kernel("module", 175, 105, 'room, 16, b""'),
    kernel("kernel_log", 103, 116, "3, room, 4096"),
    kernel("accounting", 163, 89, 'b"own"'),
    kernel("swap", 167, 224, 'b"own", 0'),
    kernel("reboot", 169, 142, "0xfee1dead, 672274793, 0, None"),
    kernel("host_name", 170, 161, 'b"hostile", 7'),
    kernel("set_clock", 227, 112, "0, room"),
    kernel("shared_memory", 29, 194, "0, 4096, 0o1600", feature="memory"),
    kernel("message_queue", 68, 186, "0, 0o1600", feature="memory"),
    kernel("semaphores", 64, 190, "0, 1, 0o1600", feature="memory"),
    kernel("posix_queue", 240, 180, 'b"toolgate", 0o102, 0o600, None', feature="memory"),
    kernel("memory_file", 319, 279, 'b"own", 0', feature="memory"),
    kernel("secret_memory", 447, 447, "0", feature="memory"),
]

MEMORY = [
    attempt(
        "heap",
        "memory",
        "kept = []\nfor _ in range(400):\n    kept.append(bytearray(b'x' * (1 << 20)))\nreturn len(kept) > 320",
        SOME_MEMORY,
    ),
    attempt(
        "small_objects",
        "memory",
        "kept = None\nfor n in range(8_000_000):\n    kept = [kept]\nreturn n",
        SOME_MEMORY,
        seconds=10,
    ),
    attempt(
        "shared_mapping",
        "memory",
        "import mmap\nkept = mmap.mmap(-1, 400 << 20)\nfor n in range(0, 400 << 20, 4096):\n    kept[n] = 1\nreturn n",
        SOME_MEMORY,
    ),
    attempt("one_string", "memory", 'return len("x" * 10**9)', SOME_MEMORY),
    attempt("one_number", "memory", "return (1 << (8 * 10**9)).bit_length()", SOME_MEMORY),
    attempt(
        "raised_limit",
        "memory",
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nreturn len(bytearray(b'x' * (400 << 20)))",
        SOME_MEMORY,
    ),
    attempt(
        "recursion",
        "memory",
        "import sys\nsys.setrecursionlimit(10**9)\ndef deeper(n):\n    return deeper(n + 1)\nreturn deeper(0)",
        SOME_MEMORY,
        seconds=10,
    ),
    attempt(
        "recursion_in_c",
        "memory",
        """
import sys
sys.setrecursionlimit(10**9)
kept = []
for _ in range(10**6):
    kept = [kept]
return len(repr(kept)) > 10**7
""",
        SOME_MEMORY,
    ),
    attempt(
        "pipes",
        "memory",
        """
import fcntl, os
total, kept = 0, []
try:
    while True:
        kept.append(os.pipe())
        os.set_blocking(kept[-1][1], False)
        try:
            fcntl.fcntl(kept[-1][1], 1031, 1 << 20)
        except OSError:
            pass
        total += os.write(kept[-1][1], bytes(1 << 20))
except OSError:
    return total if total > 100 << 20 else None
""",
        PAIR,
    ),
    attempt(
        "socket_buffers",
        "memory",
        """
import socket
total, kept = 0, []
try:
    while True:
        kept.append(socket.socketpair())
        for end in kept[-1]:
            end.setblocking(False)
            try:
                while True:
                    total += end.send(bytes(65536))
            except BlockingIOError:
                pass
except OSError:
    return total if total > 150 << 20 else None
""",
        PAIR,
    ),
    attempt(
        "locked_memory",
        "memory",
        "import ctypes\nlibc = ctypes.CDLL(None)\nkept = bytearray(64 << 20)\nreturn libc.mlockall(3) == 0",
        SOME_MEMORY,
    ),
]

CPU = [
    attempt(
        "all_processors",
        "cpu",
        """
import os
try:
    os.sched_setaffinity(0, range(os.cpu_count()))
except OSError:
    pass
return len(os.sched_getaffinity(0)) > 1
""",
        WORK,
    ),
    attempt(
        "many_threads",
        "cpu",
        """
import hashlib, threading, time
data, end = bytes(1 << 20), time.monotonic() + 1
def burn():
    while time.monotonic() < end:
        hashlib.sha256(data)
began = time.process_time()
threads = [threading.Thread(target=burn) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
return time.process_time() - began if time.process_time() - began > 1.4 else None
""",
        WORK,
    ),
    attempt("be_preferred", "cpu", "import os\nreturn os.nice(-5) < 0", WORK),
    attempt("be_preferred_by_call", "cpu", "import os\nos.setpriority(os.PRIO_PROCESS, 0, -10)\nreturn True", WORK),
    attempt("real_time", "cpu", "import os\nos.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))\nreturn True", WORK),
    kernel("disk_priority", 251, 30, "1, 0, 0x2000", feature="cpu"),
]

TIME = [
    outside("endless_loop", "time", "while True:\n    pass", WORK, seconds=1),
    outside("endless_sleep", "time", "import time\ntime.sleep(3600)", WORK, seconds=1),
    outside(
        "deaf",
        "time",
        """
import signal, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    try:
        time.sleep(3600)
    except BaseException:
        pass
""",
        WORK,
        seconds=1,
    ),
    outside("one_long_operation", "time", "9**9**9", WORK, seconds=1),
    outside("one_long_match", "time", 'import re\nre.match(r"(a+)+$", "a" * 64 + "b")', WORK, seconds=1),
    outside(
        "wait_for_nobody",
        "time",
        "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
        WORK,
        seconds=1,
    ),
    outside(
        "go_on_afterwards",
        "time",
        """
import atexit, threading
def forever():
    while True:
        pass
atexit.register(forever)
for _ in range(3):
    threading.Thread(target=forever).start()
""",
        WORK,
        seconds=3,
    ),
    outside("never_done", "time", "import asyncio\nawait asyncio.Event().wait()", WORK, seconds=1),
    outside(
        "more_time",
        "time",
        """
import resource
try:
    resource.setrlimit(resource.RLIMIT_CPU, (-1, -1))
except (OSError, ValueError):
    pass
while True:
    pass
""",
        WORK,
        seconds=1,
    ),
]

FILL = """
import os
total = 0
try:
    with open("{place}", "wb", 0) as file:
        {before}
        for _ in range(300):
            total += file.write(bytes(1 << 20))
except OSError:
    pass
return total >> 20 if total > 110 << 20 else None
"""

DISK = [
    attempt("one_big_file", "disk", FILL.replace("{place}", "big").replace("{before}", "pass"), SOME_DISK),
    attempt(
        "big_in_temporary",
        "disk",
        FILL.replace('"{place}"', 'os.environ["TMPDIR"] + "/b"').replace("{before}", "pass"),
        SOME_DISK,
    ),
    attempt(
        "big_at_home", "disk", FILL.replace('"{place}"', 'os.environ["HOME"] + "/b"').replace("{before}", "pass"), SOME_DISK
    ),
    attempt("big_in_shared_memory", "disk", FILL.replace("{place}", "/dev/shm/b").replace("{before}", "pass"), SOME_DISK),
    attempt("big_in_dev", "disk", FILL.replace("{place}", "/dev/b").replace("{before}", "pass"), SOME_DISK),
    attempt("big_at_root", "disk", FILL.replace("{place}", "/b").replace("{before}", "pass"), SOME_DISK),
    attempt("deleted_file", "disk", FILL.replace("{place}", "gone").replace("{before}", 'os.unlink("gone")'), SOME_DISK),
    attempt(
        "many_big_files",
        "disk",
        """
total = 0
try:
    for n in range(40):
        with open(f"b{n}", "wb", 0) as file:
            for _ in range(10):
                total += file.write(bytes(1 << 20))
except OSError:
    pass
return total >> 20 if total > 110 << 20 else None
""",
        SOME_DISK,
    ),
    attempt(
        "set_aside",
        "disk",
        """
import os
file = os.open("own", os.O_CREAT | os.O_RDWR)
os.posix_fallocate(file, 0, 500 << 20)
return os.fstat(file).st_blocks > 250_000
""",
        SOME_DISK,
    ),
    attempt("sparse_file", "disk", 'file = open("own", "wb")\nfile.truncate(1 << 40)\nreturn file.tell() == 0', SOME_DISK),
    attempt(
        "many_files",
        "disk",
        """
made = 0
try:
    for n in range(40_000):
        open(f"f{n}", "w").close()
        made += 1
except OSError:
    pass
return made if made > 15_000 else None
""",
        READ_OWN,
        seconds=10,
    ),
    attempt(
        "deep_folders",
        "disk",
        """
import os
deep = 0
try:
    for deep in range(40_000):
        os.mkdir("d")
        os.chdir("d")
except OSError:
    pass
return deep if deep > 15_000 else None
""",
        READ_OWN,
        seconds=10,
    ),
]

OUTPUT = [
    outside("print_flood", "output", "for _ in range(200_000):\n    print('x' * 1000)", SOME_OUTPUT),
    outside(
        "endless_line", "output", "import sys\nfor _ in range(200):\n    sys.stdout.write('x' * (1 << 20))", SOME_OUTPUT
    ),
    outside("error_flood", "output", "import sys\nfor _ in range(200):\n    sys.stderr.write('x' * (1 << 20))", SOME_OUTPUT),
    outside("raw_flood", "output", "import os\nfor _ in range(200):\n    os.write(1, b'x' * (1 << 20))", SOME_OUTPUT),
    outside(
        "raw_error_flood", "output", "import os\nfor _ in range(200):\n    os.write(2, b'x\\n' * (1 << 19))", SOME_OUTPUT
    ),
    Hostile("huge_result", "output", 'print("held")\n"x" * 50_000_000\n', SOME_OUTPUT),
    Hostile("huge_error", "output", 'print("held")\nraise ValueError("x" * 50_000_000)\n', SOME_OUTPUT),
    outside(
        "forged_frames",
        "output",
        """
import os
for number in range(3, 64):
    try:
        for _ in range(3000):
            os.write(number, b'\\x1e{"out":"stdout","text":"' + b"x" * 60_000 + b'"}\\n')
    except OSError:
        pass
""",
        SOME_OUTPUT,
    ),
    attempt(
        "forged_questions",
        "output",
        """
import os, select
for number in range(3, 64):
    try:
        os.write(number, b'\\x1e{"call":1,"op":"executor.execute","args":["id"]}\\n')
    except OSError:
        pass
for number in range(3, 64):
    try:
        if select.select([number], [], [], 0.05)[0] and b'"value"' in (answer := os.read(number, 4096)):
            return answer
    except (OSError, ValueError):
        pass
""",
        SOME_OUTPUT,
    ),
    outside(
        "control_characters", "output", "print('\\x1b]0;hostile\\x07\\x1b[2J\\x00\\x1e{\"result\": 1}\\ud800')", SOME_OUTPUT
    ),
]

SIGNALS = [
    attempt("kill_host", "signals", "import os\nos.kill({host_pid}, 9)\nreturn True", SOME_SIGNAL),
    attempt("stop_host", "signals", "import os\nos.kill({host_pid}, 19)\nreturn True", SOME_SIGNAL),
    attempt("ask_whether_host_is_there", "signals", "import os\nos.kill({host_pid}, 0)\nreturn True", SOME_SIGNAL),
    outside("kill_everybody", "signals", "import os\ntry:\n    os.kill(-1, 9)\nexcept OSError:\n    pass", SOME_SIGNAL),
    outside(
        "kill_parent", "signals", "import os\ntry:\n    os.kill(os.getppid(), 9)\nexcept OSError:\n    pass", SOME_SIGNAL
    ),
    outside("kill_first", "signals", "import os\ntry:\n    os.kill(1, 9)\nexcept OSError:\n    pass", SOME_SIGNAL),
    outside("kill_group", "signals", "import os\ntry:\n    os.killpg(0, 9)\nexcept OSError:\n    pass", SOME_SIGNAL),
    outside("stop_itself", "signals", "import os\nos.kill(os.getpid(), 19)", SOME_SIGNAL, seconds=1),
    attempt("signal_by_handle", "signals", "import os\nreturn os.pidfd_open({host_pid}) >= 0", SOME_SIGNAL),
    attempt(
        "signal_by_descriptor",
        "signals",
        """
import fcntl, os
a, b = os.pipe()
fcntl.fcntl(a, 8, {host_pid})
fcntl.fcntl(a, 10, 9)
fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
return os.write(b, b"x")
""",
        SOME_SIGNAL,
    ),
    kernel("queued_signal", 129, 138, "{host_pid}, 9, room", feature="signals"),
    kernel("signal_to_thread", 200, 130, "{host_pid}, 9", feature="signals"),
]

PROGRAMS: list[Hostile] = [*FILES, *ENVIRONMENT, *NETWORK, *PROCESSES, *MEMORY, *CPU, *TIME, *DISK, *OUTPUT, *SIGNALS]
