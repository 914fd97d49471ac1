"""The cookie of a browser that is signed in, and whether a request that brings it was made by a page of ours.

Browsers send a cookie to every port of a host, so its name has the port. Over https it also has the prefix `__Host-`, with
which no other host of the domain and no unencrypted page can set it.
"""

import re

from toolgate.serve.hosts import DEFAULT_PORTS, Headers, parse_host

SAFE_METHODS = frozenset({"GET", "HEAD"})
MAX_COOKIE_BYTES = 16_384
_PAIR = re.compile(rb"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=([!#-+\--:<-\[\]-~]*)\s*", re.ASCII)


def cookie_name(origin: str) -> str:
    """The name of the cookie at an origin of ours."""
    scheme, _, host = origin.partition("://")
    place = parse_host(host.encode("latin-1"))
    port = (place and place.port) or DEFAULT_PORTS[scheme]
    return f"{'__Host-' if scheme == 'https' else ''}toolgate_{port}"


def read_cookie(headers: Headers, name: str) -> bytes | None:
    """The value of a cookie; None if there is none, or more than one of this name: which one counts nobody could say."""
    sent = headers.get(b"cookie", b"")
    if not sent or len(sent) > MAX_COOKIE_BYTES:
        return None
    pairs = (_PAIR.fullmatch(part) for part in sent.split(b";"))
    found = [pair[2] for pair in pairs if pair is not None and pair[1] == name.encode()]
    return found[0] if len(found) == 1 and found[0] else None


def set_cookie(origin: str, token: str, seconds: int) -> str:
    """The header that sets the cookie; of 0 seconds, the one that removes it."""
    secure = "; Secure" if origin.startswith("https://") else ""
    return f"{cookie_name(origin)}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


def is_from_own_page(method: str, headers: Headers, origin: str) -> bool:
    """Tells whether a request with a cookie was made by a page of this origin, by the word of the browser. One that may
    change something must be; one that reads may also come from a person, by the address line or by a link. Another port of
    this machine is somebody else."""
    site = headers.get(b"sec-fetch-site")
    if site == b"same-origin":
        return True
    if method in SAFE_METHODS:
        return site in (None, b"none") or headers.get(b"sec-fetch-mode") == b"navigate"
    return site is None and headers.get(b"origin", b"").decode("latin-1").lower() == origin
