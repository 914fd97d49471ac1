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
# ruff: noqa: PTH101, PTH102, PTH106, PTH108, PTH116, PTH211

import _socket
import ctypes
import marshal
import os
import sys

TYPE_CHECKING = False
sys.path.append(__file__.rpartition("/")[0])
if TYPE_CHECKING:
    from toolgate.sandbox.inside import kernel_calls as kernel
else:
    import kernel_calls as kernel
sys.path.pop()
MS_REMOUNT, MS_SHARED = 0x20, 0x100000
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8
ENOSPC = 28
READ = kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV
ROWS_BYTES = 64 * 1024 * 1024
REFRESHED = b"+"


def own_namespace(user: "list[int] | None") -> None:
    """A mount namespace; for an ordinary user in a user namespace, in which he stays who he is."""
    kernel.unshare(kernel.CLONE_NEWNS | (kernel.CLONE_NEWUSER if user else 0))
    if user:
        kernel.map_user(user)
    kernel.mount(None, "/", kernel.MS_REC | kernel.MS_PRIVATE)


def layered(place: str, folder: str, space: "int | None", owner: "list[int]") -> int:
    """An overlay at `place`/merged over a folder. Gives its upper layer, open."""
    os.mkdir(place, 0o755)
    for name in ("lower", "upper", "work", "merged"):
        os.mkdir(f"{place}/{name}", 0o755)
    # The folder alone, without what is mounted below it: read-only, and its owner shown as another where that is said.
    kernel.attach(kernel.copy_mount(folder, kernel.ATTR_RDONLY, space=space), f"{place}/lower")
    os.chmod(f"{place}/upper", os.stat(f"{place}/lower").st_mode & 0o777)
    os.chown(f"{place}/upper", *owner)
    # User attributes in place of trusted ones: an ordinary user has no others, and with them nothing is ever redirected.
    layers = f"lowerdir={place}/lower,upperdir={place}/upper,workdir={place}/work,userxattr"
    kernel.mount("overlay", f"{place}/merged", kernel.MS_NOSUID | kernel.MS_NODEV, layers)
    return os.open(f"{place}/upper", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


class Projected:
    """Folders of the host of which only some pieces are shown."""

    def __init__(self, place: str, plan: dict, found: "list[int | None]", owner: "list[int]") -> None:  # type: ignore[type-arg]
        self.place, self.spaces, self.owner, self.gate = place, found, owner, plan["gate"]
        self.roots = [folder for folder, _ in plan["folders"]]
        early, self.late = handed_rows(plan["pieces"])
        os.mkdir(place, 0o755)
        kernel.mount("tmpfs", place, kernel.MS_NOSUID | kernel.MS_NODEV, "mode=0755,size=16m,nr_inodes=100000")
        kernel.mount(None, place, MS_SHARED)
        for number in range(len(self.roots)):
            self.folder(f"{place}/{number}")
        self.change(early)

    def descriptors(self) -> "list[int]":
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
        opened = kernel.open_without_links(kernel.AT_FDCWD, source)
        try:
            status = os.fstat(opened)
            if (status.st_dev, status.st_ino) != known:
                return
            depth = kernel.AT_RECURSIVE if whole and space is None else 0
            try:
                tree = kernel.copy_mount(opened, READ, depth, space)
            except OSError:
                if space is None:
                    raise
                tree = kernel.copy_mount(opened, READ, depth)  # of another file system, which has no idmapped mounts
        finally:
            os.close(opened)
        if whole:
            os.mkdir(place, 0o755)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444))
        kernel.attach(tree, place)


def handed_rows(file: int) -> list:  # type: ignore[type-arg]
    """Reads what the host wrote into a file in memory, and closes it."""
    rows: list = marshal.loads(os.pread(file, ROWS_BYTES, 0))  # type: ignore[type-arg]
    os.close(file)
    return rows


def take_away(place: str) -> None:
    kernel.libc.umount2(os.fsencode(place), ctypes.c_int(MNT_DETACH | UMOUNT_NOFOLLOW))
    if os.path.isdir(place) and not os.path.islink(place):  # noqa: PTH112, PTH114
        os.rmdir(place)
    else:
        os.unlink(place)


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
            kernel.mount(None, overlay, MS_REMOUNT | kernel.MS_NOSUID | kernel.MS_NODEV)
        for _, _, numbers in handed:
            rows = handed_rows(int.from_bytes(numbers[:4], sys.byteorder))
            if projected:
                projected.change(rows)
        channel.send(REFRESHED)


def main(plan: dict, argv: "list[str]") -> None:  # type: ignore[type-arg]
    """Does not return."""
    # User namespaces that say whom the owners of the folders are shown as.
    found, others = (
        [kernel.user_namespace(*maps) if maps else None for _, maps in folders]
        for folders in (plan["folders"], plan["projected"]["folders"] if plan["projected"] else [])
    )
    own_namespace(plan["user"])
    stage, through = plan["stage"], plan["through"]
    kernel.mount("tmpfs", stage, kernel.MS_NOSUID | kernel.MS_NODEV, plan["options"])
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
        kernel.fail(error)
