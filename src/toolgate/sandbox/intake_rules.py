"""The patterns of what programs may change in a workspace without review: data, and what `sandbox.bring_in` adds.

Wildcards match neither hidden names nor the folders of packages, nor names that a shell or a program would obey.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from toolgate.sandbox.untrusted_files import Parts

PACKAGE_FOLDERS = ("node_modules", "site-packages", "dist-packages", "__pycache__")
"""Folders whose content is installed, not written: a pattern has to name them."""
_TABLES = ("csv", "tsv", "jsonl", "ndjson", "geojson")
_COMPRESSED = ("gz", "bz2", "xz", "zst")
DATA_PATTERNS = (
    *(f"*.{suffix}" for suffix in (
        *_TABLES, "parquet", "arrow", "feather", "avro", "npy", "xlsx", "ods",
        "png", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff", "pdf", "docx", "pptx", "odt",
        "wav", "mp3", "ogg", "flac", "mp4", "webm", "log",
    )),
    *(f"*.{suffix}.{how}" for suffix in (*_TABLES, "log") for how in _COMPRESSED),
)  # fmt: skip
"""Formats of data that no program obeys for their being there. Neither text nor archives: requirements.txt, package.json and
AGENTS.md are text, and package managers install from archives."""


class IntakeRule:
    """The patterns of what is brought in. Without a slash: a name, in any folder; with one: a path from the workspace's top.
    `*` and `?` stay within a name, `**` stands for any folders."""

    def __init__(self, patterns: Iterable[str], *, any_name: bool = False) -> None:
        """`any_name`: names may be made of anything."""
        names = _ANY if any_name else _PLAIN_NAMES
        self._patterns = [_compiled(pattern, names) for pattern in patterns]

    def admits(self, parts: Parts) -> bool:
        """True if a file at this path is brought in, by its name."""
        path = "/".join(parts).lower()
        return all(part.isprintable() for part in parts) and any(
            path.endswith(pattern.end) and pattern.whole.fullmatch(path) for pattern in self._patterns
        )


def is_plain(parts: Parts) -> bool:
    """True if a folder is neither hidden nor one for packages, nor in one, and its name is nothing that is obeyed."""
    return all(_PLAIN_NAME.fullmatch(part.lower()) and part.isprintable() for part in parts)


class _Wildcards(NamedTuple):
    """The meaning of wildcards."""

    first: str
    """A lookahead for the beginning of a name."""
    letter: str


_NO_PACKAGE = "(?!(?:" + "|".join(PACKAGE_FOLDERS) + ")(?:/|$))"
_ANY = _Wildcards(r"(?!\.)", "[^/]")
_PLAIN_NAMES = _Wildcards(r"(?=[a-z0-9_(\[@\x80-\U0010ffff])", r"[a-z0-9_ .,+=@%()\[\]\x80-\U0010ffff-]")
"""In small letters. Of ASCII only what no shell obeys: people's Makefiles hand names to one (`$(wildcard *.csv)`). And no
name is an option or a command to a program that is given `*`."""
_PLAIN_NAME = re.compile(f"{_NO_PACKAGE}{_PLAIN_NAMES.first}{_PLAIN_NAMES.letter}+")


class _Pattern(NamedTuple):
    """One of a rule's."""

    end: str
    """The end of every path that it matches: most paths are told apart by that."""
    whole: re.Pattern[str]


def _compiled(pattern: str, names: _Wildcards) -> _Pattern:
    folders = f"(?:{names.first}{_NO_PACKAGE}{names.letter}+/)*"
    *above, last = pattern.lower().strip("/").split("/") if "/" in pattern else ("**", pattern.lower())
    body = "".join(folders if segment == "**" else _segment(segment, names) + "/" for segment in above)
    whole = re.compile(body + (folders + _segment("*", names) if last == "**" else _segment(last, names)))
    return _Pattern(re.split(r"[*?]", last)[-1], whole)


def _segment(segment: str, names: _Wildcards) -> str:
    """One name. A wildcard that it begins with matches no hidden name, and one that is all of it no folder of packages."""
    wild = {"*": f"{names.letter}*", "?": names.letter}
    text = "".join(wild.get(part) or re.escape(part) for part in re.split(r"([*?])", segment))
    return (names.first if segment[:1] in wild else "") + (_NO_PACKAGE if segment in wild else "") + text


REPOSITORY = IntakeRule(
    (
        "/HEAD", "/ORIG_HEAD", "/FETCH_HEAD", "/MERGE_HEAD", "/MERGE_MODE", "/MERGE_MSG", "/AUTO_MERGE", "/CHERRY_PICK_HEAD",
        "/REVERT_HEAD", "/COMMIT_EDITMSG", "/index", "/packed-refs", "/objects/**", "/refs/**", "/logs/**",
    ),
    any_name=True,
)  # fmt: skip
"""The files that git writes of a repository: nothing in them names a program."""
