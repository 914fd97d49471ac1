"""What tests of undo share: a call that changes things, and a look at all that is in a folder."""

import stat
from pathlib import Path

from toolgate import Actor
from toolgate.model import Call, new_id

ANN = Actor("acme", user="ann")


def a_call() -> Call:
    return Call(new_id(), "write_file", {}, ANN)


def tree(folder: Path, *, times: bool = True) -> dict[str, tuple[object, ...]]:
    """All that is in a folder: content, rights and time of files, targets of links, rights of folders."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = ("directory", mode)
        else:
            found[name] = ("file", mode, status.st_mtime_ns if times else 0, path.read_bytes())
    return found
