"""Lays a writable layer over folders of the host, projects others, then becomes the launcher of the jail.

The folders themselves stay as they are.

Run as `<python> -I -S -B layer_launcher.py <plan> <launcher> …`; `jails.layers` writes the plan. In a mount namespace of
its own it mounts one tmpfs with a size, and for each folder an overlay: its lower layer is the folder, its upper one is in
the tmpfs.
The jail's launcher, which it executes, binds the overlay where it would have bound the folder. The upper layers go to the
host as open folders, through a socket: the host reads them when the program is over, and nobody else finds them by a path.

A folder that may only be read is projected: in a tmpfs there is a copy of its folders and links, and each file that the plan
names is mounted in its place, if it is still the one that was looked at. These mounts are shared, so that a later one
reaches the jail, whose launcher makes its own mounts slaves of them.

A folder may change while an overlay lies over it, which overlayfs does not notice by itself: it keeps the names that it
looked up. Where a program stays (a server), a small process stays with it and remounts the overlays when the host asks,
which has the kernel forget those names; the host may hand it changes of the projected folders too. Standard library only.
"""

# Paths are strings here: pathlib costs more to import than all the rest.
# ruff: noqa: PTH101, PTH102, PTH106, PTH108, PTH116, PTH123, PTH211

import _socket
import ctypes
import marshal
import os
import sys

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_REC, MS_PRIVATE, MS_SHARED = 2, 4, 0x20, 0x4000, 0x40000, 0x100000
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_IDMAP = 1, 2, 4, 0x00100000
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE, MOVE_EMPTY_PATH = -100, 0x1000, 0x8000, 4
OPEN_TREE, MOVE_MOUNT, OPENAT2, MOUNT_SETATTR = 428, 429, 437, 442
NO_SYMLINKS = 0x04
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8
ENOSPC = 28
ROWS_BYTES = 64 * 1024 * 1024
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


class Projected:
    """Folders of the host of which only some pieces are shown."""

    def __init__(self, place: str, plan: dict, found: "list[int | None]", owner: "list[int]") -> None:  # type: ignore[type-arg]
        self.place, self.spaces, self.owner, self.gate = place, found, owner, plan["gate"]
        self.roots = [folder for folder, _ in plan["folders"]]
        early, self.late = handed_rows(plan["pieces"])
        os.mkdir(place, 0o755)
        mount("tmpfs", place, MS_NOSUID | MS_NODEV, "mode=0755,size=16m,nr_inodes=100000")
        mount(None, place, MS_SHARED)
        for number in range(len(self.roots)):
            self.folder(f"{place}/{number}")
        self.change(early)

    def descriptors(self) -> "list[int]":
        """The descriptors that it needs as long as it is there."""
        return [self.gate, *(space for space in self.spaces if space is not None)]

    def show_rest(self) -> None:
        """The files, once the jail is built: its launcher looks at all mounts for each that it makes, so thousands would
        take minutes. Those that come later reach the jail by themselves. The starter waits for it."""
        if os.read(self.gate, 1):
            self.change(self.late)
            self.late = []
            os.write(self.gate, b"1")
        os.close(self.gate)

    def folder(self, place: str) -> None:
        """The program's own, by its owner: git does not trust a folder of another's."""
        os.mkdir(place, 0o755)
        os.chown(place, *self.owner)

    def change(self, rows: "list[list]") -> None:  # type: ignore[type-arg]
        """Show, or take away, what the host says. What has changed since it was looked at is not shown."""
        for number, path, kind, device, inode, target in rows:
            try:
                self.piece(number, path, kind, (device, inode), target)
            except OSError as error:
                if error.errno == ENOSPC:  # no more mounts: rather nothing than half of it
                    raise

    def piece(self, number: int, path: str, kind: str, known: "tuple[int, int]", target: str) -> None:
        place = f"{self.place}/{number}/{path}"
        if kind == "gone":
            take_away(place)
        elif kind == "folder":
            self.folder(place)
        elif kind == "link":
            os.symlink(target, place)
        else:
            self.bind(f"{self.roots[number]}/{path}", place, kind == "whole", known, self.spaces[number])

    def bind(self, source: str, place: str, whole: bool, known: "tuple[int, int]", space: "int | None") -> None:
        opened = without_links(source)
        try:
            status = os.fstat(opened)
            if (status.st_dev, status.st_ino) != known:
                return
            depth = AT_RECURSIVE if whole and space is None else 0
            try:
                tree = limited(opened, depth, space)
            except OSError:
                if space is None:
                    raise
                tree = limited(opened, depth, None)  # of another file system, which has no idmapped mounts
        finally:
            os.close(opened)
        if whole:
            os.mkdir(place, 0o755)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444))
        flags = ctypes.c_uint(MOVE_EMPTY_PATH)
        checked(libc.syscall(MOVE_MOUNT, ctypes.c_int(tree), b"", AT_FDCWD, os.fsencode(place), flags), f"attach {source}")
        os.close(tree)


def handed_rows(file: int) -> list:  # type: ignore[type-arg]
    """Reads what the host wrote into a file in memory, and closes it."""
    rows: list = marshal.loads(os.pread(file, ROWS_BYTES, 0))  # type: ignore[type-arg]
    os.close(file)
    return rows


def without_links(path: str) -> int:
    """A descriptor of a path, no part of which may be a link."""
    how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW, 0, NO_SYMLINKS)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    return checked(libc.syscall(OPENAT2, AT_FDCWD, os.fsencode(path), ctypes.byref(how), size), f"open {path}")


def limited(opened: int, depth: int, space: "int | None") -> int:
    """A mount of a file or folder that is attached nowhere yet: to be read only."""
    flags = ctypes.c_uint(OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | depth)
    tree = checked(libc.syscall(OPEN_TREE, ctypes.c_int(opened), b"", flags), "copy a mount")
    wanted = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV | (0 if space is None else ATTR_IDMAP)
    attributes = (ctypes.c_uint64 * 4)(wanted, 0, 0, space or 0)
    size, flags = ctypes.c_size_t(ctypes.sizeof(attributes)), ctypes.c_uint(AT_EMPTY_PATH | depth)
    try:
        checked(libc.syscall(MOUNT_SETATTR, ctypes.c_int(tree), b"", flags, ctypes.byref(attributes), size), "limit a mount")
    except OSError:
        os.close(tree)
        raise
    return tree


def take_away(place: str) -> None:
    libc.umount2(os.fsencode(place), ctypes.c_int(MNT_DETACH | UMOUNT_NOFOLLOW))
    if os.path.isdir(place) and not os.path.islink(place):  # noqa: PTH112, PTH114
        os.rmdir(place)
    else:
        os.unlink(place)


def spaces(plan: dict, folders: "list[list]") -> "list[int | None]":  # type: ignore[type-arg]
    """User namespaces that say whom the owners of the folders are shown as."""
    if not any(maps for _, maps in folders):
        return [None] * len(folders)
    with open(plan["starter"], "rb") as file:
        starter = {"__name__": "starter"}
        exec(compile(file.read(), plan["starter"], "exec"), starter)
    kernel = starter["Kernel"]()  # type: ignore[operator]
    return [starter["user_namespace"](kernel, *maps) if maps else None for _, maps in folders]  # type: ignore[operator]


def stay(through: int, overlays: "list[str]", projected: "Projected | None") -> None:
    """Remount when asked to, until the host is gone or has closed its end."""
    kept = sorted({through, *(projected.descriptors() if projected else ())})
    for before, after in zip([-1, *kept], [*kept, 65_536]):  # noqa: B905 - strict came with Python 3.10
        os.closerange(before + 1, after)
    channel = _socket.socket(fileno=through)
    if projected:
        projected.show_rest()
    while True:
        asked, handed, _, _ = channel.recvmsg(1, _socket.CMSG_SPACE(4))
        if not asked:
            return
        for overlay in overlays:
            mount(None, overlay, MS_REMOUNT | MS_NOSUID | MS_NODEV)
        for _, _, numbers in handed:
            rows = handed_rows(int.from_bytes(numbers[:4], sys.byteorder))
            if projected:
                projected.change(rows)
        channel.send(REFRESHED)


def main(plan: dict, argv: "list[str]") -> None:  # type: ignore[type-arg]
    """Does not return."""
    found = spaces(plan, plan["folders"])
    others = spaces(plan, plan["projected"]["folders"]) if plan["projected"] else []
    own_namespace(plan["user"])
    stage, through = plan["stage"], plan["through"]
    mount("tmpfs", stage, MS_NOSUID | MS_NODEV, plan["options"])
    uppers, overlays = [], []
    for number, ((folder, _), space) in enumerate(zip(plan["folders"], found)):  # noqa: B905 - strict came with Python 3.10
        uppers.append(layered(f"{stage}/{number}", folder, space, plan["owner"]))
        overlays.append(f"{stage}/{number}/merged")
    projected = Projected(f"{stage}/projected", plan["projected"], others, plan["owner"]) if plan["projected"] else None
    channel = _socket.socket(fileno=through)
    numbers = b"".join(upper.to_bytes(4, sys.byteorder) for upper in uppers)
    channel.sendmsg([b"1"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)] if numbers else [])
    if plan["stays"] and os.fork() == 0:
        try:
            stay(through, overlays, projected)
        finally:
            os._exit(0)
    channel.close()
    if projected:
        os.close(projected.gate)
    for space in (*found, *others):
        if space is not None:
            os.close(space)
    os.execve(argv[0], argv, os.environ)


if __name__ == "__main__":
    try:
        main(marshal.loads(bytes.fromhex(sys.argv[1])), sys.argv[2:])
    except BaseException as error:  # noqa: BLE001 - nothing may run without its layer
        os.write(2, f"toolgate-starter: {error}\n".encode())
        os._exit(FAILED)
