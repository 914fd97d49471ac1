"""Credentials that a person gives to a command: typed without echo or piped in, never an argument, which other programs
could see."""

import sys
from getpass import getpass

from toolgate.cli.context import Usage, interruptible

MAX_VALUE_CHARS = 65_536


def read_credential(prompt: str, command: str) -> str:
    """The value, typed without echo or piped in; one line end at its end is not part of it."""
    if sys.stdin is not None and sys.stdin.isatty():
        try:
            with interruptible():
                value = getpass(prompt)
        except EOFError:
            value = ""
    else:
        try:
            with interruptible():
                content = sys.stdin.buffer.read(MAX_VALUE_CHARS * 4) if sys.stdin is not None else b""
            value = content.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise Usage("The value is not text in UTF-8.") from None
    if not value.strip():
        raise Usage("There is no value.", suggestion=f"Type it when asked, or pipe it in: `{command} < FILE`.")
    if len(value) > MAX_VALUE_CHARS:
        raise Usage(f"The value has more than {MAX_VALUE_CHARS:,} characters.")
    return value
