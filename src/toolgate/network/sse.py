"""Parses server-sent events from chunks of bytes: each whole, none longer than allowed."""

from typing import NamedTuple


class EventTooLong(Exception): ...


class SseEvent(NamedTuple):
    """One event. Its name is `message` by default."""

    name: str
    data: bytes
    id: str | None
    """The id to resume from, if the stream breaks after this event."""
    retry: int | None
    """Milliseconds to wait before resuming, if the server says so."""


class SseParser:
    def __init__(self, most: int) -> None:
        self._most = most
        self._tail: list[bytes] = []
        """The beginning of an unfinished line."""
        self._waiting = 0
        self._size = 0
        """Bytes of the current event."""
        self._began = False
        self._name = ""
        self._data: list[bytes] = []
        self._id: str | None = None
        self._retry: int | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that are complete with this chunk."""
        if not chunk:
            return []
        after_return = bool(self._tail) and self._tail[-1].endswith(b"\r")
        self._tail.append(chunk)
        self._waiting += len(chunk)
        if b"\n" not in chunk and b"\r" not in chunk and not after_return:
            self._check(self._waiting)
            return []
        lines = b"".join(self._tail).splitlines(keepends=True)
        self._tail = [] if lines[-1].endswith(b"\n") else [lines.pop()]  # unfinished; or a CR whose LF may still come
        self._waiting = sum(map(len, self._tail))
        found = [event for line in lines if (event := self._line(line.rstrip(b"\r\n"))) is not None]
        self._check(self._waiting)
        return found

    def _check(self, waiting: int) -> None:
        if self._size + waiting > self._most:
            raise EventTooLong(f"an event of more than {self._most} bytes")

    def _line(self, line: bytes) -> SseEvent | None:
        if not line:
            return self._end()
        if line.startswith(b":"):
            return None
        self._size += len(line)
        self._check(0)
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"data":
                self._data.append(value)
            case b"event":
                self._name = value.decode("utf-8", "replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
            case b"retry" if value.isdigit() and len(value) < 10:
                self._retry = int(value)
            case _:
                return None
        self._began = True
        return None

    def _end(self) -> SseEvent | None:
        event = None
        if self._began:
            event = SseEvent(self._name or "message", b"\n".join(self._data), self._id or None, self._retry)
        self._name, self._data, self._retry, self._size, self._began = "", [], None, 0, False
        return event


def encode_event(event: SseEvent) -> bytes:
    lines = [f"event: {event.name}".encode(), *(b"data: " + line for line in event.data.split(b"\n"))]
    if event.id is not None:
        lines.append(f"id: {event.id}".encode())
    if event.retry is not None:
        lines.append(f"retry: {event.retry}".encode())
    return b"\n".join(lines) + b"\n\n"
