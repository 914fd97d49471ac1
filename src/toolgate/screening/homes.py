"""What programs keep out of sight in a home: no list of them is ever complete, so all of it counts as sensitive.

Hidden are the entries of a home whose names begin with a dot, and the folders that macOS and Windows hide. Where Toolgate
itself was started inside of one, the person who started it there meant that folder.
"""

import os
import re
from pathlib import Path

ANY_HOME = re.compile(r"(?:/[a-z]:)?/(?:root|(?:home|users|export/home|var/home|usr/home)/[^/]+)(?=/)")
"""Homes as systems lay them out, in lower case: other people's count as well."""
HIDDEN = re.compile(r"/(?:\.[^/]|library(?=/|\Z)|appdata(?=/|\Z))[^/]*")


def hidden_in_home(path: str, homes: tuple[str, ...]) -> bool:
    """Tells whether an absolute path with slashes is hidden in a home. `homes` are more homes, in lower case."""
    lower = path.lower()
    entry = next(filter(None, (_hidden(lower, home) for home in (*homes, *_any_home(lower)))), None)
    if entry is None:
        return False
    here = os.path.realpath(Path.cwd()).replace(os.sep, "/").lower()
    return not (_inside(here, entry) and _inside(lower, here))


def _any_home(path: str) -> tuple[str, ...]:
    found = ANY_HOME.match(path)
    return () if found is None else (found[0],)


def _hidden(path: str, home: str) -> str | None:
    """The hidden entry of a home that a path is or is in."""
    if not path.startswith(f"{home}/"):
        return None
    found = HIDDEN.match(path, len(home))
    return None if found is None else path[: found.end()]


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
