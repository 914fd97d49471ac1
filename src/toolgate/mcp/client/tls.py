"""The TLS context of all remote servers (making one takes 20 ms), and the operator's proxy."""

import ssl
from functools import cache
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


@cache
def tls() -> ssl.SSLContext:
    """With the certificates of the system, or those in SSL_CERT_FILE or SSL_CERT_DIR."""
    return ssl.create_default_context()


def goes_through_proxy(url: str) -> bool:
    """True if the environment names a proxy for a URL."""
    parts, proxies = urlsplit(url), getproxies()
    return bool(proxies.get(parts.scheme) or proxies.get("all")) and not proxy_bypass(parts.hostname or "")
