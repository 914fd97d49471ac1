"""What masking keeps from the person who is asked. A secret in the arguments is hidden from sight; text that would run must
not be hidden with it, or a person agrees to what nobody showed.
"""

import re
from collections.abc import Iterator
from typing import Any

from toolgate.errors import Denied
from toolgate.jsontext import json_path
from toolgate.model import MASK, Entry

RUNS = re.compile(r"[\s;|&$`(){}<>]")
"""What a hidden piece can't hold in an argument that is run: with none of these it is one word."""


def check_shown(entry: Entry, arguments: Any, shown: Any) -> None:
    """Refuse a call of tier execute of whose arguments more is hidden than single words, or anything of a program. A field
    that is hidden as a whole, because of its name, is another matter: the person sees that it is."""
    if entry.tier != "execute":
        return
    for where, given, seen in _texts(arguments, shown, ()):
        if given == seen or (seen == MASK and not _is_code(entry, where)):
            continue
        if _is_code(entry, where) or any(RUNS.search(piece) for piece in _hidden(given, seen)):
            raise Denied(
                "SECURITY_VIOLATION",
                f"{entry.name}: the argument {json_path(where)} holds what looks like a secret, and text that would run and "
                "could not be shown to the person who is asked.",
                suggestion="Name secrets in place of writing them: {{secret:NAME}}.",
            )


def _is_code(entry: Entry, where: tuple[str | int, ...]) -> bool:
    """Whether an argument is a program: there, any piece of text may be what is run."""
    properties = entry.tool.input_schema.get("properties")
    rule = properties.get(where[0]) if isinstance(properties, dict) and where else None
    return isinstance(rule, dict) and rule.get("x-command") is False


def _texts(given: Any, seen: Any, where: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """Each text, with what is shown of it."""
    if isinstance(given, str) and isinstance(seen, str):
        yield where, given, seen
    elif isinstance(given, dict) and isinstance(seen, dict):
        for (key, part), (name, shown) in zip(given.items(), seen.items(), strict=False):
            yield (*where, key), key, name
            yield from _texts(part, shown, (*where, key))
    elif isinstance(given, list) and isinstance(seen, list):
        for index, (part, shown) in enumerate(zip(given, seen, strict=False)):
            yield from _texts(part, shown, (*where, index))


def _hidden(given: str, seen: str) -> list[str]:
    """The pieces of a text that are masked; all of it, if what is shown is no part of it."""
    found = re.fullmatch("(.*?)".join(map(re.escape, seen.split(MASK))), given, re.DOTALL)
    return [given] if found is None else list(found.groups())
