"""The names that API keys may have.

A key made without a user acts as the user `key:NAME`, so whoever chooses a name chooses whose grants, budgets, approvals and
sessions its holder has. No name can be taken for another's, and that of an earlier key is given again only to who asks for
the same user.
"""

import re
import shlex
from collections.abc import Iterable

from toolgate.model import LOCAL
from toolgate.screening.lookalikes import marked, person
from toolgate.serve.problems import KeyRefused
from toolgate.store.keys import ApiKey

MAX_NAME_CHARS = 250
"""With `key:` before it, it is still the name of a user."""
NAME = re.compile(r"(?!.*  )[A-Za-z0-9](?:[A-Za-z0-9 ._@+:/()'-]*[A-Za-z0-9)])?\Z")


def own_user(name: str) -> str:
    """The user as whom a key acts that was made without one."""
    return f"key:{name}"


def check_name(name: str) -> None:
    """Raises KeyRefused for a name with characters that are not on the list."""
    if len(name) > MAX_NAME_CHARS or not NAME.match(name):
        raise KeyRefused(
            f"The name of a key must be 1 to {MAX_NAME_CHARS} ASCII letters, digits, single blanks and . _ @ + : / ( ) ' -, "
            "beginning with a letter or digit and ending with one or with ).",
            suggestion="Give another name. `--user` may have letters of other alphabets.",
        )


def check_user(user: str) -> None:
    """Raises KeyRefused for a user whose name has letters that look like ASCII ones among these or in their place."""
    if marked(user) != user:
        raise KeyRefused(
            f"The user {marked(user)} has letters that look like others, so it could be taken for another user.",
            suggestion="Write the name with the letters of one alphabet.",
        )


def check_unused(key: ApiKey, known: Iterable[ApiKey], *, same_user: bool) -> None:
    """Raises KeyRefused if a new key would be taken for one that its tenant has or had, or would act as the same user
    without anybody having said so."""
    read = person(key.name)
    earlier = None
    for other in known:
        if other.name == key.name and other.revoked_at is None:
            raise _taken(key, other)
        if other.name != key.name and person(other.name) == read:
            raise KeyRefused(
                f"The name {key.name} reads like {marked(other.name)}, the name of the key {other.id}.",
                suggestion="Give a name that differs in more than capitals and letters that look alike.",
            )
        if other.actor.user == key.actor.user:
            earlier = other
    if earlier is not None and key.actor.user == own_user(key.name) and not same_user:
        raise _would_inherit(key, earlier)


def _taken(key: ApiKey, holder: ApiKey) -> KeyRefused:
    expired = ", which has expired" if holder.state(key.created_at) == "expired" else ""
    return KeyRefused(
        f"The key {holder.id} of tenant {key.actor.tenant} is named {key.name} already{expired}.",
        suggestion=f"Give another name, or revoke that key first: toolgate keys revoke {holder.id}",
    )


def _would_inherit(key: ApiKey, earlier: ApiKey) -> KeyRefused:
    revoked = "" if earlier.revoked_at is None else f", which was revoked on {earlier.revoked_at:%Y-%m-%d}"
    tenant = "" if key.actor.tenant == LOCAL.tenant else f" --tenant {shlex.quote(key.actor.tenant)}"
    return KeyRefused(
        f"A new key named {key.name} would act as the user {key.actor.user}, as did the key {earlier.id}{revoked}, "
        "and would have the grants, budgets, approvals and sessions of that user.",
        suggestion="Give another name. If its holder is the same user, say so: "
        f"toolgate keys create {shlex.quote(key.name)}{tenant} --same-user",
    )
