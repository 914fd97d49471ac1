"""What the fixture has sent to old clients lately, so that a client that lost its stream can come back for the rest."""

from collections import deque

from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp_types import JSONRPCMessage

KEPT = 1_000


class Events(EventStore):
    """In memory; the oldest are forgotten."""

    def __init__(self) -> None:
        self._sent: deque[tuple[int, StreamId, JSONRPCMessage | None]] = deque(maxlen=KEPT)
        self._last = 0

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        self._last += 1
        self._sent.append((self._last, stream_id, message))
        return str(self._last)

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        stream = next((stream for number, stream, _ in self._sent if str(number) == last_event_id), None)
        if stream is None:
            return None
        for number, of, message in list(self._sent):
            if of == stream and number > int(last_event_id) and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream
