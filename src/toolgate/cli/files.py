"""Files that a command line names: read up to a limit, written whole. `-` is stdin."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from toolgate.cli.context import Usage, interruptible
from toolgate.cli.output import Unwritable, write

STDIN = "-"
MAX_INPUT_BYTES = 64 * 1024 * 1024
"""Of a file or of stdin. How much a call may have is the pipeline's business, and less."""
BOM = b"\xef\xbb\xbf"


def content_of(
    file: Path | str, what: str | None = None, *, limit: int = MAX_INPUT_BYTES, advice: str | None = None
) -> bytes:
    """The content of a file. `what` is its name in messages, without it the file's own."""
    what = str(file) if what is None else what
    try:
        if file == STDIN:
            with interruptible():
                content = sys.stdin.buffer.read(limit + 1) if sys.stdin is not None else b""
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(limit + 1)
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        raise Usage(f"{what:.200} cannot be read: {getattr(error, 'strerror', None) or error}.", suggestion=advice) from None
    if len(content) > limit:
        raise Usage(f"{what:.200} has more than {limit:,} bytes.")
    return content.removeprefix(BOM)


def text_of(file: Path, what: str | None = None) -> str:
    """The text of a file."""
    try:
        return content_of(file, what).decode()
    except UnicodeDecodeError:
        raise Usage(f"{what or file} cannot be read: it is not UTF-8 text.") from None


def json_of(content: bytes | str, what: object, advice: str | None = None) -> Any:
    """The value of JSON that was given as `what`."""
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise Usage(f"{what} is not JSON: {error}.", suggestion=advice) from None


@contextmanager
def output_to(file: Path | None) -> Iterator[Callable[[bytes], object]]:
    """Writes to a file, or to stdout if none was named."""
    if file is None:
        yield write
        return
    try:
        with file.open("wb") as opened:
            yield opened.write
    except OSError as error:
        raise Unwritable(file, error) from None
