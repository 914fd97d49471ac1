"""The headers that a caller may send, and those that a redirect to another host may carry on."""

import re
from collections.abc import Mapping

from toolgate.errors import InvalidInput, printable

MAX_HEADERS = 100
MAX_HEADER_BYTES = 32_768
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e\xa1-\xff]*")
OWN_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "keep-alive", "expect"}
)
"""Headers that say how a message is sent: with these a caller could name another host, or begin a second message."""
CROSS_ORIGIN_HEADERS = frozenset({"accept", "accept-language", "user-agent"})
"""Any other may be a credential: keys are sent in headers of every name."""


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers with names in lower case. Raises InvalidInput for those that may not be sent."""
    found: dict[str, str] = {}
    if len(headers) > MAX_HEADERS or sum(len(name) + len(value) for name, value in headers.items()) > MAX_HEADER_BYTES:
        raise InvalidInput(f"More than {MAX_HEADERS} headers or {MAX_HEADER_BYTES:,} bytes of headers are not sent.")
    for name, value in headers.items():
        key = name.lower()
        if not _NAME.fullmatch(name) or key in found:
            raise InvalidInput(f"{printable(name)!r} is not a valid name of a header, or it is given twice.")
        if key in OWN_HEADERS or key.startswith("proxy-"):
            raise InvalidInput(f"The header {key} cannot be set.", suggestion="Leave it out: it follows from the request.")
        if not _VALUE.fullmatch(value):
            raise InvalidInput(f"The value of the header {key} holds a character that no header may hold.")
        if key != "accept-encoding":  # which says what the client can read
            found[key] = value.strip()
    return found
