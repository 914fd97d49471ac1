"""Server-sent events, put together line by line."""

import msgspec

from toolgate.app.log_tail import LogEvent


class EventLines:
    """The lines of a stream so far."""

    def __init__(self) -> None:
        self._data: list[str] = []

    def take(self, line: str) -> LogEvent | None:
        """Takes the next line; gives an event if that one completes it."""
        if line.startswith("data:"):
            self._data.append(line[5:].removeprefix(" "))
            return None
        if line or not self._data:
            return None
        text = "\n".join(self._data)
        self._data.clear()
        return msgspec.json.decode(text, type=LogEvent)
