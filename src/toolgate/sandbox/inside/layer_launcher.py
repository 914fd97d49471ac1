"""Lays a writable layer over folders of the host, then becomes the launcher of the jail: the folders stay as they are.

Run as `<python> -I -S -B layer_launcher.py <plan> <launcher> …`; `jails.layers` writes the plan. In a mount namespace of
its own it mounts one tmpfs with a size, and for each folder an overlay: its lower layer is the folder, its upper one is in
the tmpfs.
The jail's launcher, which it executes, binds the overlay where it would have bound the folder. The upper layers go to the
host as open folders, through a socket: the host reads them when the program is over, and nobody else finds them by a path.

A folder may change while an overlay lies over it, which overlayfs does not notice by itself: it keeps the names that it
looked up. Where a program stays (a server), a small process stays with it and remounts the overlays when the host asks,
which has the kernel forget those names. Standard library only.
"""

# Paths are strings here: pathlib costs more to import than all the rest.
# ruff: noqa: PTH101, PTH102, PTH116, PTH123

import _socket
import ctypes
import marshal
import os
import sys

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_REC, MS_PRIVATE = 2, 4, 0x20, 0x4000, 0x40000
ATTR_RDONLY = 1
AT_FDCWD, AT_EMPTY_PATH, MOVE_EMPTY_PATH = -100, 0x1000, 4
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
FAILED = 125
REFRESHED = b"+"

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mount(kind: "str | None", target: str, flags: int, options: "str | None" = None) -> None:
    words = [None if text is None else os.fsencode(text) for text in (kind, target, kind, options)]
    result = libc.mount(words[0] or b"none", words[1], words[2], ctypes.c_ulong(flags), words[3])
    checked(result, f"mount {kind or 'again'} on {target}")


def own_namespace(user: "list[int] | None") -> None:
    """A mount namespace; for an ordinary user in a user namespace, in which he stays who he is."""
    checked(libc.unshare(ctypes.c_int(CLONE_NEWNS | (CLONE_NEWUSER if user else 0))), "unshare")
    if user:
        uid, gid = (f"{number} {number} 1" for number in user)
        for name, text in (("setgroups", "deny"), ("uid_map", uid), ("gid_map", gid)):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    mount(None, "/", MS_REC | MS_PRIVATE)


def lower(folder: str, target: str, space: "int | None") -> None:
    """The folder alone, without what is mounted below it: read-only, and its owner shown as another where that is said."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC
    tree = checked(libc.syscall(OPEN_TREE, AT_FDCWD, os.fsencode(folder), ctypes.c_uint(flags)), f"copy {folder}")
    attributes = (ctypes.c_uint64 * 4)(ATTR_RDONLY | (0 if space is None else 0x00100000), 0, 0, space or 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    checked(
        libc.syscall(MOUNT_SETATTR, ctypes.c_int(tree), b"", ctypes.c_uint(AT_EMPTY_PATH), ctypes.byref(attributes), size),
        f"limit {folder}",
    )
    checked(
        libc.syscall(MOVE_MOUNT, ctypes.c_int(tree), b"", AT_FDCWD, os.fsencode(target), ctypes.c_uint(MOVE_EMPTY_PATH)),
        f"attach {folder}",
    )
    os.close(tree)


def layered(place: str, folder: str, space: "int | None", owner: "list[int]") -> int:
    """An overlay at `place`/merged over a folder. Gives its upper layer, open."""
    os.mkdir(place, 0o755)
    for name in ("lower", "upper", "work", "merged"):
        os.mkdir(f"{place}/{name}", 0o755)
    lower(folder, f"{place}/lower", space)
    os.chmod(f"{place}/upper", os.stat(f"{place}/lower").st_mode & 0o777)
    os.chown(f"{place}/upper", *owner)
    # User attributes in place of trusted ones: an ordinary user has no others, and with them nothing is ever redirected.
    layers = f"lowerdir={place}/lower,upperdir={place}/upper,workdir={place}/work,userxattr"
    mount("overlay", f"{place}/merged", MS_NOSUID | MS_NODEV, layers)
    return os.open(f"{place}/upper", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def spaces(plan: dict) -> "list[int | None]":  # type: ignore[type-arg]
    """User namespaces that say whom the owners of the folders are shown as."""
    if not any(maps for _, maps in plan["folders"]):
        return [None] * len(plan["folders"])
    with open(plan["starter"], "rb") as file:
        starter = {"__name__": "starter"}
        exec(compile(file.read(), plan["starter"], "exec"), starter)
    kernel = starter["Kernel"]()  # type: ignore[operator]
    return [starter["user_namespace"](kernel, *maps) if maps else None for _, maps in plan["folders"]]  # type: ignore[operator]


def stay(through: int, overlays: "list[str]") -> None:
    """Remount when asked to, until the host is gone or has closed its end."""
    os.closerange(0, through)
    os.closerange(through + 1, 65_536)
    channel = _socket.socket(fileno=through)
    while channel.recv(1):
        for overlay in overlays:
            mount(None, overlay, MS_REMOUNT | MS_NOSUID | MS_NODEV)
        channel.send(REFRESHED)


def main(plan: dict, argv: "list[str]") -> None:  # type: ignore[type-arg]
    """Does not return."""
    found = spaces(plan)
    own_namespace(plan["user"])
    stage, through = plan["stage"], plan["through"]
    mount("tmpfs", stage, MS_NOSUID | MS_NODEV, plan["options"])
    uppers, overlays = [], []
    for number, ((folder, _), space) in enumerate(zip(plan["folders"], found)):  # noqa: B905 - strict came with Python 3.10
        uppers.append(layered(f"{stage}/{number}", folder, space, plan["owner"]))
        overlays.append(f"{stage}/{number}/merged")
    channel = _socket.socket(fileno=through)
    numbers = b"".join(upper.to_bytes(4, sys.byteorder) for upper in uppers)
    channel.sendmsg([b"1"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
    if plan["stays"] and os.fork() == 0:
        try:
            stay(through, overlays)
        finally:
            os._exit(0)
    channel.close()
    for space in found:
        if space is not None:
            os.close(space)
    os.execve(argv[0], argv, os.environ)


if __name__ == "__main__":
    try:
        main(marshal.loads(bytes.fromhex(sys.argv[1])), sys.argv[2:])
    except BaseException as error:  # noqa: BLE001 - nothing may run without its layer
        os.write(2, f"toolgate-starter: {error}\n".encode())
        os._exit(FAILED)
