"""Pages of lists, by keyset: a page says with a cursor where the next one begins.

A cursor names the last item, not a number of items, so that nothing is shown twice or left out when others are added. It is
sealed, and bound to the route, the tenant and the filters it was given for: that of somebody else is no cursor here.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import orjson

from toolgate.serve.http.endpoint import ApiModel, ApiRequest
from toolgate.serve.problems import HttpProblem

T = TypeVar("T")
DEFAULT_PAGE, MAX_PAGE = 50, 500
MAX_CURSOR_CHARS = 2_000
SEAL_BYTES = 16
CURSOR_PURPOSE = "http cursors"


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some items of a list, and the cursor of the next page; null: these are the last."""

    items: list[T]
    next: str | None = None


class PageQuery(ApiModel, frozen=True):
    """The part of a list that is asked for."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE
    cursor: Annotated[str, msgspec.Meta(max_length=MAX_CURSOR_CHARS)] | None = None


def _seal(request: ApiRequest, query: PageQuery, position: bytes) -> bytes:
    filters = {name: value for name, value in msgspec.to_builtins(query).items() if name not in ("limit", "cursor")}
    whose = None if request.all_tenants else request.actor.tenant
    bound = orjson.dumps([request.scope["path"], whose, request.credential.id, filters], option=orjson.OPT_SORT_KEYS)
    return hmac.digest(request.http.cursor_key, bound + b"\0" + position, sha256)[:SEAL_BYTES]


def cursor_of(request: ApiRequest, query: PageQuery, *position: Any) -> str:
    """Gives the cursor of the page that begins after a position."""
    text = orjson.dumps(position)
    return urlsafe_b64encode(_seal(request, query, text) + text).rstrip(b"=").decode()


def position_of(request: ApiRequest, query: PageQuery) -> list[Any] | None:
    """Gives the position after which the page begins; None: at the beginning of the list."""
    if query.cursor is None:
        return None
    try:
        raw = urlsafe_b64decode(query.cursor + "=" * (-len(query.cursor) % 4))
        seal, text = raw[:SEAL_BYTES], raw[SEAL_BYTES:]
        if not hmac.compare_digest(seal, _seal(request, query, text)):
            raise ValueError
        found: list[Any] = orjson.loads(text)
    except ValueError:
        raise HttpProblem(
            400,
            "The cursor was not given for this list with these filters.",
            suggestion="Leave it out to begin at the first page.",
        ) from None
    return found


def page_of(request: ApiRequest, query: PageQuery, found: Sequence[T], position: Any) -> Page[T]:
    """Makes a page of up to one item more than it may hold; `position` gives the position of an item, as a tuple."""
    items = list(found[: query.limit])
    more = len(found) > query.limit
    return Page(items, cursor_of(request, query, *position(items[-1])) if more else None)
