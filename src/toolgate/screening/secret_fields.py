"""Names of fields that hold secrets, wherever names stand: in JSON, and as `NAME=value` or `name: value` in a text.

Names are read word by word, so that `secretary` and `max_tokens` stay; and without regard to where capitals begin a word, so
that `dbPassWord` does not.
"""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from toolgate.screening import MASK
from toolgate.screening.secret_patterns import mask_spans

STRONG = frozenset(
    {"password", "passwords", "passwd", "passphrase", "pwd", "secret", "secrets", "token", "apikey", "apikeys"}
    | {"credential", "credentials", "authorization", "cookie", "cookies", "privatekey", "accesskey", "secretkey"}
)
"""A field with one of these words in its name is masked."""
ENDINGS = ("password", "passwd", "passphrase", "secret", "token", "apikey", "privatekey", "accesskey", "secretkey")
"""So is one with a word that ends like this: `clientsecret`, `dbpassword`."""
PAIRS = frozenset(
    {("api", "key"), ("private", "key"), ("access", "key"), ("secret", "key"), ("signing", "key"), ("auth", "key")}
    | {("api", "keys"), ("encryption", "key"), ("service", "key"), ("account", "key")}
)
INNOCENT = frozenset(
    {(before, "token") for before in ("page", "next", "continuation", "sync")}
    | {("token", after) for after in ("count", "counts", "limit", "usage", "type", "budget", "price", "cost")}
)
"""A token that turns a page, and what is said of tokens that a model reads."""
WEAK = frozenset({"key", "keys", "auth", "bearer", "jwt", "session", "tokens", "pass", "sid"})
"""A field with one of these is masked if its value looks like a credential."""
RUN = re.compile(r"[A-Za-z0-9]{16,}")
MANY_CHANGES = 5
"""From small letter to capital to digit: words and numbers change less often."""

HINTS = ("pass", "pwd", "secret", "token", "key", "credential", "auth", "cookie", "jwt", "session", "sid", "bearer")
"""One of these is in every name that is looked for."""
_FIELD_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_CHANGE = re.compile(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])|(?<=[A-Z])(?=[a-z])")
_TYPE = re.compile(
    r"(?:str|string|bytes|int|integer|bool|boolean|float|number|object|any|none|null|true|false|undefined|unknown|self|required"
    r"|optional|[A-Z]\w*(?:Str|String|Type|Schema|Token|Secret|Key|Password|Config|Options|Provider))[;,?]*",
    re.IGNORECASE,
)
"""Words that stand in the place of a value where a program or a schema is written."""
_OPEN = ("$", "{", "<", "%", "[", "(", "*", "...", "os.", "process.", "env.", "self.", "this.", "None", "null")
"""The beginning of a value that is none: it says where to get one."""
_ASSIGNED = re.compile(
    r"(?<![\w.\-$])(?P<mark>\\*[\"']|)(?P<name>[A-Za-z_][\w.\-]{0,63})(?P=mark)(?P<is>[ \t]{0,8}(?::=|=>|[:=])[ \t]{0,8})"
    r"(?:\"(?P<double>(?:[^\"\\\n]|\\.){1,2000})\"|'(?P<single>(?:[^'\\\n]|\\.){1,2000})'"
    r"|\\+\"(?P<escaped>[^\"\\\n]{1,2000})\\+\"|(?P<bare>[^\s\"'`,;()<>{}\[\]&|=\\][^\s\"'`,;()<>{}\[\]&|\\]{0,1999}))",
)
_BLOCK = re.compile(
    r"^(?P<indent>[ \t]*)(?:- )?[\"']?(?P<name>[A-Za-z_][\w.\-]{0,63})[\"']?:[ \t]*[|>][+\-\d]{0,2}[ \t]*\n"
    r"(?P<lines>(?:(?P=indent)[ \t]+[^\n]*(?:\n|\Z))+)",
    re.MULTILINE,
)
"""A value of several lines, as YAML has it."""

Rank = Callable[[str], int]


def rank_of(name: str) -> int:
    """2: what the field holds is a secret, 1: it is if it looks like one, 0: it is not."""
    words = [word.lower() for word in _FIELD_WORD.findall(name[:200])]
    pairs = set(pairwise(words))
    if pairs & INNOCENT:
        return 0
    joined = ["".join(pair) for pair in pairs]
    if pairs & PAIRS or any(word in STRONG or word.endswith(ENDINGS) for word in (*words, *joined, "".join(words))):
        return 2
    return 1 if WEAK & set(words) else 0


def looks_like_a_token(value: object) -> bool:
    """True if a text, or one in a list, is neither words nor a number, a date, a path."""
    if isinstance(value, list | tuple):
        return any(looks_like_a_token(part) for part in value)
    if not isinstance(value, str) or "/" in value or len(value.split(None, 1)) != 1:
        return False
    if any(not run.isalpha() and not run.isdigit() for run in RUN.findall(value)):
        return True
    return len(value) <= 200 and len(_CHANGE.findall(value)) >= MANY_CHANGES and any(char.isdigit() for char in value)


def without(secrets: tuple[str, ...], text: str) -> str:
    """The text without the secrets; the longest first, so that none leaves a rest of another."""
    present = sorted({secret for secret in secrets if secret and secret in text}, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, present)), MASK, text) if present else text


def without_assigned(text: str, rank: Rank) -> str:
    """A text without the values that are assigned in it to names of secrets: in settings, scripts, YAML, JSON and logs."""
    if "=" not in text and ":" not in text:
        return text
    return mask_spans(text, (*_assigned(text, rank), *_blocks(text, rank)))


def _assigned(text: str, rank: Rank) -> Iterator[tuple[int, int]]:
    for outer in _ASSIGNED.finditer(text):
        found, ranked = outer, rank(outer["name"])
        if not ranked and "=" in (outer["bare"] or ""):  # `ValueError: password=...`: what is assigned is an assignment
            inner = _ASSIGNED.match(text, outer.start("bare"))
            found, ranked = (outer, 0) if inner is None else (inner, rank(inner["name"]))
        if not ranked:
            continue
        group = found.lastgroup or "bare"
        value = found[group]
        if value.startswith(_OPEN) or _TYPE.fullmatch(value) or value.startswith(MASK):
            continue
        if ranked == 1 and not looks_like_a_token(value):
            continue
        if group != "bare" or _is_a_value(text, found, value):
            yield found.span(group)


def _is_a_value(text: str, found: "re.Match[str]", value: str) -> bool:
    """True if what has no quotes is a value, and no name or call in a program, nor a word in a sentence."""
    after = text[found.end() : found.end() + 1]
    if after and after in "([{<":
        return False
    is_name = value.replace(".", "_").isidentifier() and not any(char.isdigit() for char in value)
    if found["is"] == "=":
        return not (is_name and after and after in ",)")
    rest = text[found.end() : found.end() + 3].split("\n", 1)[0].strip()
    alone = not rest or rest[0] in ",}#;"
    if "=" in found["is"]:
        return alone and not is_name
    if found["is"].endswith(":"):
        return False  # YAML has a space there
    before = text[max(text.rfind("\n", 0, found.start()) + 1, found.start() - 80) : found.start()]
    return alone and (not before.strip(" \t-") or before.rstrip()[-1:] in ("{", ","))


def _blocks(text: str, rank: Rank) -> Iterator[tuple[int, int]]:
    if ":" in text and "\n" in text:
        for found in _BLOCK.finditer(text):
            if rank(found["name"]) == 2 and MASK not in found["lines"]:
                first, lines = found.start("lines"), found["lines"]
                yield first + len(lines) - len(lines.lstrip()), first + len(lines.rstrip())
