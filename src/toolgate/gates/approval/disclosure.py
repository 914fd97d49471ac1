"""The arguments that an approver is shown: every argument as it will run, but for secrets that Toolgate itself holds.

Records mask whatever looks like a secret. A question does not: what is hidden by its name or its looks could be anything,
and would run all the same. A caller who wants a secret kept from the approver names it (`{{secret:NAME}}`), and the name is
shown. What differs from what records hold is kept encrypted beside the question, until that is answered or expires.
"""

import re
from typing import Any

import orjson

from toolgate.errors import Denied
from toolgate.model import MASK
from toolgate.screening.secret_patterns import shapes

PURPOSE = "approvals.arguments"


def disclosed(canonical: bytes, held: tuple[str, ...]) -> bytes:
    """Arguments as an approver is shown them: `held` are the values of secrets that Toolgate put into them."""
    if not held:
        return canonical
    hidden = frozenset(shape for secret in held for shape in shapes(secret))
    return orjson.dumps(_without(orjson.loads(canonical), hidden), option=orjson.OPT_SORT_KEYS)


def _without(value: Any, hidden: frozenset[str]) -> Any:
    """A value without the secrets and their codings, and with all that stands around them: unlike a record, which masks a
    whole text that may hold a secret, a question must not hide what a program put beside it."""
    if isinstance(value, str):
        present = sorted((shape for shape in hidden if shape in value), key=len, reverse=True)
        return re.sub("|".join(map(re.escape, present)), MASK, value) if present else value
    if isinstance(value, dict):
        return {_without(key, hidden): _without(part, hidden) for key, part in value.items()}
    if isinstance(value, list):
        return [_without(part, hidden) for part in value]
    return MASK if type(value) in (int, float) and str(value) in hidden else value


def unkept(tool: str) -> Denied:
    """A call that a person can't be asked about: what would have to be shown can't be kept until then."""
    return Denied(
        "PERMISSION_DENIED",
        f"{tool} needs a person's approval, but its arguments hold what looks like a secret, and cannot be kept for that "
        "person: the package cryptography is not installed.",
        suggestion="Name the secret in its place ({{secret:NAME}}), or install the package cryptography.",
    )
