"""A secret as it may come back: masked in all of these shapes.

Itself, as JSON and Python write it inside quotes (once, or JSON within JSON), as URLs, HTML, base64 and hexadecimal digits
do, and its lines if it has several. In base64 also as a part of something longer, as in `Authorization: Basic`.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from html import escape
from urllib.parse import quote, quote_plus

SHORTEST_CODE = 8
"""A shorter piece of base64 or hexadecimal digits may be anything."""
SHORTEST_LINE = 12
_PERCENT = re.compile(r"%[0-9A-F]{2}")


def shapes(value: str) -> set[str]:
    """All shapes of a value."""
    found = {value, value.strip(), value.replace("\n", "\r\n")}
    found.update(_quoted(value), _in_url(value), _in_html(value))
    found.update(code for code in _coded(value) if len(code) >= SHORTEST_CODE)
    if "\n" in value:
        lines = (line.strip() for line in value.splitlines())
        found.update(line for line in lines if len(line) >= SHORTEST_LINE and not line.startswith("-----"))
    return found - {""}


def _quoted(value: str) -> Iterator[str]:
    once = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    for text in once:
        yield text
        yield text.replace("/", "\\/")
        yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]


def _in_url(value: str) -> Iterator[str]:
    for write in (quote, quote_plus):
        for safe in ("", "/"):
            text = write(value, safe=safe, errors="backslashreplace")
            yield text
            yield _PERCENT.sub(lambda found: found[0].lower(), text)


def _in_html(value: str) -> Iterator[str]:
    whole = escape(value)
    yield whole
    yield escape(value, quote=False)
    yield whole.replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
    yield whole.replace("&#x27;", "&#39;")


def _coded(value: str) -> Iterator[str]:
    content = value.encode("utf-8", "backslashreplace")
    yield content.hex()
    yield content.hex().upper()
    for text in _in_base64(content):
        yield text
        yield text.replace("+", "-").replace("/", "_")


def _in_base64(content: bytes) -> Iterator[str]:
    """On its own, and the characters that it alone determines where it stands 0, 1 or 2 bytes off a group of three."""
    alone = b64encode(content).decode()
    yield alone
    yield alone.rstrip("=")
    for before in range(3):
        first, last = -(-before * 8 // 6), (before + len(content)) * 8 // 6
        yield b64encode(bytes(before) + content).decode()[first:last]
