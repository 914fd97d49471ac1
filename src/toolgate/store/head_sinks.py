"""Second places for signed heads: a file elsewhere, an HTTP endpoint, an object store.

    /mnt/other/heads.jsonl          a line is added to the file for each head
    https://host/heads              each head is POSTed as JSON
    put+https://bucket/prefix/      each head is PUT as an object of its own, prefix/LOG/SEQ.json

What can't be delivered is tried again with the next head; that the newest arrives is what counts.
"""

import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Protocol

from toolgate.errors import StoreError
from toolgate.store.signed_heads import SignedHead, parse

SINK_SECONDS = 5


class HeadSink(Protocol):
    """A place that heads are sent to."""

    def put(self, head: SignedHead) -> None:
        """Raises OSError. Runs off the event loop."""

    def heads(self, log: str) -> list[SignedHead | None]:
        """The heads of a log that can be read back from there; None for each line that is damaged. Raises StoreError."""


class FileSink:
    """A file that lines are added to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, head: SignedHead) -> None:
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, head.to_json() + b"\n")
            os.fsync(handle)
        finally:
            os.close(handle)

    def heads(self, log: str) -> list[SignedHead | None]:
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"The sink of audit heads {self.path} cannot be read: {error.strerror or error}.") from None
        found = [parse(line) for line in lines if line.strip()]
        return [head for head in found if head is None or head.log == log]


class HttpSink:
    """An endpoint that takes heads; it is not asked for them."""

    def __init__(self, url: str) -> None:
        self._objects = url.startswith("put+")
        self._url = url.removeprefix("put+")
        self._opener = urllib.request.build_opener(_NoRedirect)

    def put(self, head: SignedHead) -> None:
        url = f"{self._url.rstrip('/')}/{head.log}/{head.seq:020d}.json" if self._objects else self._url
        method = "PUT" if self._objects else "POST"
        request = urllib.request.Request(
            url, head.to_json(), {"Content-Type": "application/json", "User-Agent": "toolgate"}, method=method
        )
        with self._opener.open(request, timeout=SINK_SECONDS):
            pass

    def heads(self, log: str) -> list[SignedHead | None]:  # noqa: ARG002 - nothing is asked for
        return []


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A sink that sends heads elsewhere is none."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:  # noqa: ARG002
        raise urllib.error.HTTPError(req.full_url, code, "a redirection, which is not followed", headers, fp)


def open_sink(place: str) -> HeadSink:
    if place.startswith(("http://", "https://", "put+http://", "put+https://")):
        return HttpSink(place)
    return FileSink(Path(place.removeprefix("file://")))
