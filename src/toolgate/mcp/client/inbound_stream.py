"""The reading end of any transport, with secrets masked: paces a server that sends too much, and knows when it last
spoke."""

import asyncio
import logging
from contextvars import Context
from time import monotonic

from anyio.abc import ObjectReceiveStream
from mcp.client._transport import ReadStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse

from toolgate.mcp.client.secret_masking import SecretMasker
from toolgate.mcp.client.untrusted_text import sentence

logger = logging.getLogger("toolgate.mcp")

MAX_MESSAGES_PER_TURN = 32
"""Messages that are delivered before other tasks have their turn."""
MAX_BURST_MESSAGES, MESSAGES_PER_SECOND = 2_000, 2_000.0
"""Messages that a server may send unasked: at once, and per second. Beyond that it is read more slowly: nothing is lost."""
REQUEST_COST = 10
"""Messages that a request counts for, since it has to be answered."""


class InboundRate:
    """The token bucket for unasked messages."""

    def __init__(self) -> None:
        self._left, self._since = float(MAX_BURST_MESSAGES), monotonic()

    def charge(self, cost: int) -> None:
        self._left -= cost

    def delay(self) -> float:
        """Seconds to wait before the next message is read."""
        if self._left >= 0:
            return 0.0
        now = monotonic()
        self._left = min(MAX_BURST_MESSAGES, self._left + (now - self._since) * MESSAGES_PER_SECOND)
        self._since = now
        return max(0.0, -self._left / MESSAGES_PER_SECOND)


class InboundStream(ObjectReceiveStream[SessionMessage | Exception]):
    def __init__(self, server: str, inner: ReadStream[SessionMessage | Exception], masker: SecretMasker) -> None:
        self._server = server
        self._inner = inner
        self._masker = masker
        self.pace = InboundRate()
        self._stretch = 0
        self.heard = monotonic()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done before any waiter learns that the connection is closed."""

    @property
    def last_context(self) -> Context | None:
        """The context of the task that wrote the last message, where the transport knows it."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Returns the next message. What the transport could not parse is logged and skipped."""
        while True:
            try:
                item = await self._inner.receive()
            except BaseException:
                self.end()
                raise
            self.heard = monotonic()
            if not isinstance(item, Exception):
                self._mask(item.message)
                await self._take_turns(item.message)
                return item
            logger.debug("server %s: %s", self._server, self._masker.mask_text(sentence(item)))

    async def _take_turns(self, message: JSONRPCMessage) -> None:
        """Lets other tasks run: a transport may have thousands of messages at hand."""
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            self.pace.charge(REQUEST_COST if isinstance(message, JSONRPCRequest) else 1)
        self._stretch += 1
        if delay := self.pace.delay():
            await asyncio.sleep(delay)
        elif self._stretch >= MAX_MESSAGES_PER_TURN:
            await asyncio.sleep(0)
        else:
            return
        self._stretch = 0

    def _mask(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCResponse):
            message.result = self._masker.mask_value(message.result)
        elif isinstance(message, JSONRPCError):
            message.error.message = self._masker.mask_text(message.error.message)
            message.error.data = self._masker.mask_value(message.error.data)
        elif message.params is not None:
            message.params = self._masker.mask_value(message.params)

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    async def aclose(self) -> None:
        self.end()
        await self._inner.aclose()
