"""The answer to an HTTP request, and the reading of its body within bounds."""

import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

import msgspec
import orjson

from toolgate.errors import ToolError
from toolgate.jsontext import MAX_JSON_DEPTH, holds_too_much, is_deeper

ENCODINGS = "gzip, deflate"
"""Encodings that zlib can decompress in bounded steps."""
REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CHARSET = re.compile(r"""charset\s*=\s*["']?([\w.:-]{1,40})""", re.IGNORECASE | re.ASCII)
_TEXT_CODECS = re.compile(
    r"utf-?8|utf-?16(-?[bl]e)?|us-ascii|ascii|iso-?8859-\d{1,2}|latin-?1|windows-12\d\d|cp12\d\d|koi8-[ru]"
    r"|shift[_-]jis|euc-(jp|kr)|iso-2022-jp|gb2312|gbk|gb18030|big5",
    re.IGNORECASE | re.ASCII,
)
"""The codecs of web pages. Python has others by name that are slow on hostile input."""


class TooLong(Exception):
    """A body is longer than it may be. `read` is its beginning."""

    def __init__(self, read: bytes) -> None:
        super().__init__("the body is too long")
        self.read = read


class HttpResponse(msgspec.Struct):
    """The answer to an HTTP request."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    url: str
    """After redirects."""
    truncated: bool = False
    """True if the body is only the beginning of what was sent."""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def media_type(self) -> str:
        """`text/html`; empty if it is not said."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def text(self) -> str:
        """The body as text, in the character set that is said, else UTF-8."""
        said = _CHARSET.search(self.headers.get("content-type", ""))
        codec = said[1] if said is not None and _TEXT_CODECS.fullmatch(said[1]) else "utf-8"
        if self.body.startswith(b"\xef\xbb\xbf"):
            codec = "utf-8-sig"
        try:
            return self.body.decode(codec, "replace")
        except LookupError:  # iso-8859-99
            return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON. Raises ToolError if it is none, or holds more than is read."""
        if holds_too_much(self.body):
            raise ToolError("The answer holds more values than are read.", suggestion="Ask for less.")
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            raise ToolError(f"The answer (status {self.status}) is not valid JSON.") from None
        if is_deeper(value, MAX_JSON_DEPTH):
            raise ToolError("The answer is nested deeper than is read.")
        return value


async def read_body(chunks: AsyncIterable[bytes], encoding: str, most: int) -> bytes:
    """Reads and decompresses a body. Raises as `body_parts`."""
    read = bytearray()
    try:
        async for part in body_parts(chunks, encoding, most):
            read += part
    except TooLong as error:
        raise TooLong(bytes(read + error.read)[:most]) from None
    return bytes(read)


async def body_parts(chunks: AsyncIterable[bytes], encoding: str, most: int) -> AsyncGenerator[bytes, None]:
    """A body as it comes, decompressed. Raises TooLong, and zlib.error for what is not compressed as it says.

    What came over the wire and what it decompresses to are bounded alike: a small body can decompress to any size.
    """
    decoder = _decoder(encoding)
    read = taken = 0
    async for chunk in chunks:
        taken += len(chunk)
        part = chunk if decoder is None else _inflated(decoder, chunk, most + 1 - read)
        read += len(part)
        if read > most or taken > most:
            raise TooLong(part)
        if part:
            yield part
    if decoder is not None and taken and not decoder.eof:
        raise zlib.error("the end is missing")


def _decoder(encoding: str) -> Any:
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return zlib.decompressobj(zlib.MAX_WBITS | 16)
        case "deflate":
            return _Deflate()
    raise ToolError("The answer is compressed in a way that was not asked for.")


def _inflated(decoder: Any, chunk: bytes, room: int) -> bytes:
    """At most `room` bytes; 0 would mean without limit to zlib."""
    return bytes(decoder.decompress(chunk, max(room, 1)))


class _Deflate:
    """`deflate` is zlib's format, but some servers send the bare stream: the first chunk tells."""

    def __init__(self) -> None:
        self._inner: Any = None

    @property
    def eof(self) -> bool:
        return self._inner is not None and bool(self._inner.eof)

    def decompress(self, chunk: bytes, room: int) -> bytes:
        if self._inner is not None:
            return bytes(self._inner.decompress(chunk, room))
        self._inner = zlib.decompressobj()
        try:
            return bytes(self._inner.decompress(chunk, room))
        except zlib.error:
            self._inner = zlib.decompressobj(-zlib.MAX_WBITS)
            return bytes(self._inner.decompress(chunk, room))
