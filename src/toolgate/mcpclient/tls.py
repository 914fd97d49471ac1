"""The one TLS context for all remote servers: making one takes 20 ms."""

import ssl
from functools import cache


@cache
def tls() -> ssl.SSLContext:
    """With the certificates of the system, or those that SSL_CERT_FILE or SSL_CERT_DIR name."""
    return ssl.create_default_context()
