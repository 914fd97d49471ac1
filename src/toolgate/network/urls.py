"""URLs as the HTTP client reads them: strictly, and once.

The host that is judged is the host that is connected to, so there is one reading and no second parser to disagree with it.
What another program could read otherwise (backslashes, control characters, user names, numbers as hosts) is refused.
"""

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import quote, urljoin

from toolgate.errors import Denied, InvalidInput, printable
from toolgate.network.addresses import canonical, is_address, split_port

SCHEME_PORTS = {"http": 80, "https": 443}
MAX_URL_CHARS = 8_192
_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_REST = re.compile(r"//([^/?#]*)([^#]*)(?:#.*)?", re.DOTALL)
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\ufeff\ud800-\udfff]")
_PATH_CHARS = "/?%:@!$&'()*+,;=~-._[]"


class Url(NamedTuple):
    """A URL in parts: host in lower case and ASCII, without brackets; target is path and query."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """Host and port, as the header Host has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == SCHEME_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def address(self) -> str:
        """Host and port, as settings name them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def refused_url(why: str, suggestion: str | None = None) -> Denied:
    return Denied(
        "SECURITY_VIOLATION",
        f"The URL is refused: {why}.",
        suggestion=suggestion or "Use an http or https URL of a public host.",
        reason=why,
    )


def parse_url(text: str) -> Url:
    """Raises InvalidInput for what is no URL, and Denied for what could be read in two ways."""
    if len(text) > MAX_URL_CHARS:
        raise InvalidInput(f"The URL has {len(text):,} characters; at most {MAX_URL_CHARS:,} are sent.")
    if _UNSAFE.search(text):
        raise refused_url("it holds white space, a control character or a backslash")
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise InvalidInput("This is not a URL.", suggestion="Write it whole: https://api.example.com/path")
    scheme = parts[1].lower()
    if scheme not in SCHEME_PORTS:
        raise refused_url(f"its scheme is {printable(scheme)}, and only http and https are allowed")
    rest = _REST.fullmatch(parts[2])
    if rest is None or not rest[1]:
        raise InvalidInput("The URL names no host.", suggestion="Write it whole: https://api.example.com/path")
    if "@" in rest[1]:
        raise refused_url("it holds a user name", "Send credentials in a header, as a secret reference: {{secret:NAME}}.")
    host, port = _host(rest[1])
    target = rest[2] if rest[2].startswith("/") else f"/{rest[2]}"
    return Url(scheme, host, port or SCHEME_PORTS[scheme], quote(target, safe=_PATH_CHARS))


def _host(authority: str) -> tuple[str, int | None]:
    try:
        host, port = split_port(authority)
    except ValueError:
        raise refused_url("its host or port is not valid") from None
    if is_address(host):
        return str(ipaddress.ip_address(host)), port
    name = canonical(host)
    if name is None:
        raise refused_url("its host is neither a name nor an address in its usual form")
    return name, port


def redirect_target(url: Url, location: str) -> Url:
    """The URL that a redirect leads to. Raises what `parse_url` raises, and Denied where encryption would be given up."""
    if _UNSAFE.search(location.strip(" ").replace(" ", "")):
        raise refused_url("a redirect holds a control character or a backslash")
    try:
        whole = urljoin(str(url), location.strip(" ").replace(" ", "%20"))
    except ValueError:
        raise refused_url("a redirect leads to no valid URL") from None
    found = parse_url(whole)
    if url.scheme == "https" and found.scheme == "http":
        raise refused_url(f"a redirect of {url.host} leads from https to http")
    return found
