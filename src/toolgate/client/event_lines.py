"""Server-sent events, put together from the bytes of a stream."""

from collections.abc import Iterator

import msgspec

from toolgate.app.log_tail import LogEvent
from toolgate.client.connection import UNREADABLE, ServerUnreachable

MAX_EVENT_BYTES = 4_194_304


class EventLines:
    """The lines of a stream so far."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0

    def take(self, part: bytes) -> Iterator[LogEvent]:
        """Takes the next bytes; gives the events that they complete. Raises `ServerUnreachable` for what is none."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            event = self._take_line(line.removesuffix(b"\r"))
            if event is not None:
                yield event
        if len(self._rest) + self._size > MAX_EVENT_BYTES:
            raise ServerUnreachable(f"An event of the server is larger than {MAX_EVENT_BYTES:,} bytes.")

    def _take_line(self, line: bytes) -> LogEvent | None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            self._size += len(line)
            return None
        if line or not self._data:
            return None
        text = b"\n".join(self._data)
        self._data, self._size = [], 0
        try:
            return msgspec.json.decode(text, type=LogEvent)
        except UNREADABLE as error:
            raise ServerUnreachable(f"An event of the server cannot be read: {error}.") from None
