"""An SMTP server on loopback that keeps what it is sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.smtp import SMTP


class Mailbox:
    """The messages that arrived, and the port at which they do. `refusals`: answers to the next messages instead."""

    def __init__(self) -> None:
        self.port = 0
        self.messages: list[EmailMessage] = []
        self.refusals: list[str] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        if self.refusals:
            return self.refusals.pop(0)
        self.messages.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 OK"


@asynccontextmanager
async def mail_server() -> AsyncIterator[Mailbox]:
    mailbox = Mailbox()
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(mailbox), "127.0.0.1", 0)
    mailbox.port = server.sockets[0].getsockname()[1]
    try:
        yield mailbox
    finally:
        server.close()


def text_of(message: EmailMessage) -> str:
    """The plain text of a message."""
    part = message.get_body(("plain",))
    assert part is not None
    return str(part.get_content())
