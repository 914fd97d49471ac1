"""Recognises Toolgate's own files, and copies of them that people make as backups: by folder, by name, and by content where
the name is one that others use as well (`key.json`, `id`)."""

import errno
import os
import re
import stat

OWN = "Toolgate's own data"
OWN_KEYS = "Toolgate's own keys"
FOLDER = ".toolgate"
OPEN = ("tools", "sessions")
"""Parts of Toolgate's own folder that may be read: tools that people keep there, and the working directories of sessions."""

_COPIED_FOLDER = re.compile(
    r"\.toolgate(?:[-_.~ \d()]{1,12}|[-_. ]*\(?(?:bak|backups?|old|orig|saved?|copy)(?![a-z]).*)\Z"
    r"|toolgate[-_. ]?(?:bak|backups?)[-_.: \dt()]*\Z"
)
"""A copy has nothing that is open: the sessions in it are everybody's. Temporary files of write_file have longer names."""
_COPIED_FILE = re.compile(r"toolgate(?:\.(?:db|dump|sqlite3?)|-home\.tar)(?:[-._~ ].*)?\Z")
_MAY_BE_KEY = re.compile(r".*key|id(?:\W.*)?\Z")
"""The names of files that are looked into."""
_SIGNING_KEY = [re.compile(rb'"%b"\s*:\s*"[0-9a-fA-F]{64}"' % half) for half in (b"private", b"public")]
_SECRETS_KEY = re.compile(rb"\s*[A-Za-z0-9+/_-]{43}=\s*\Z")
_MARK = re.compile(rb"\s*[0-9a-f]{64}\s*\Z")
MAX_KEY_BYTES = 64_000
"""Of a file that are looked at: a signing key stands before all the public ones that it replaced."""


def own_by_name(parts: list[str]) -> str | None:
    """Names the part of Toolgate's data that a path is, by its parts in small letters; None if it is none."""
    if FOLDER in parts:
        inside = parts[parts.index(FOLDER) + 1 :]
        return None if inside and inside[0] in OPEN else OWN
    return OWN if any(map(_COPIED_FOLDER.match, parts)) or _COPIED_FILE.match(parts[-1]) else None


def own_by_content(path: str, name: str) -> str | None:
    """The part of Toolgate's data that a file holds whose name (in small letters) may be that of a key; None if none, or if
    there is no such file. One that can't be read counts as a key: a program that runs as somebody else may be able to."""
    if not _MAY_BE_KEY.match(name):
        return None
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - to open a device can set it going
            return None
        with open(path, "rb", opener=_open) as file:
            content = file.read(MAX_KEY_BYTES)
    except OSError as error:
        return None if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG) else OWN_KEYS
    return OWN_KEYS if _is_key(content, name) else None


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _is_key(content: bytes, name: str) -> bool:
    if "key" not in name:
        return bool(_MARK.match(content))
    if all(half.search(content) for half in _SIGNING_KEY):
        return True
    return "pub" not in name and bool(_SECRETS_KEY.match(content))
