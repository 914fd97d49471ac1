"""How else a text can be read as a path: by those who take off quotes, expand braces, or know Windows and URLs."""

import re
from collections.abc import Iterator

MOST_READINGS = 64
FILE_URL = re.compile(r"(?:[a-z-]{1,20}:)?file:(?://(?:localhost|127\.0\.0\.1)?(?=/|\\|$)|(?!//))", re.IGNORECASE)
BEHIND = re.compile(r"[?#|]|!/")
DRIVE = re.compile(r"[A-Za-z]:(?=[^/])")
BRACES = re.compile(r"\{([^{}]*)\}")
AROUND = " \t'\"`<>;,"
"""What is taken off both ends of a path by those who mean it well."""


def odd(reading: str, given: str) -> str | None:
    """What makes a text no path at all."""
    if reading.isascii() and reading.isprintable():
        return None
    if any(char < " " or "\x7f" <= char <= "\x9f" for char in reading):
        return "it holds a control character"
    if any("\ud800" <= char <= "\udfff" for char in reading) or ("\ufffd" in reading and "\ufffd" not in given):
        return "it is not valid Unicode"
    return None


def of_url(path: str) -> str:
    """The path in a file: URL; of any text, what stands before a query, a fragment or a place in an archive."""
    start = FILE_URL.match(path)
    return BEHIND.split(path[start.end() if start else 0 :], maxsplit=1)[0] or path


def from_windows(path: str) -> str:
    return DRIVE.sub("", path.replace("\\", "/"), count=1) if DRIVE.match(path) else path.replace("\\", "/")


def bared(path: str) -> str:
    return path.strip().strip(AROUND)


def alternatives(path: str) -> Iterator[str]:
    """What a text with {a,b} in it stands for, for who expands that."""
    found = BRACES.search(path)
    if found is not None and "," in found[1]:
        yield from (path[: found.start()] + middle + path[found.end() :] for middle in found[1].split(",")[:MOST_READINGS])
