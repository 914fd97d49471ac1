"""The TLS context of all connections to other machines."""

import ssl
from functools import cache


@cache
def tls() -> ssl.SSLContext:
    """With the certificates of the system, or those in SSL_CERT_FILE or SSL_CERT_DIR. Making one takes 20 ms."""
    return ssl.create_default_context()
