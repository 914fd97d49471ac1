"""Sends messages to the channels that the settings name: services that apprise knows, by their URLs. No caller names one.

apprise blocks, and nothing bounds how long a service takes, so each message goes out in a thread of its own and is waited
for only so long. A thread can't be stopped: one that hangs is taken until its service lets go, and there are only so many.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import quote

from toolgate.errors import StoreError
from toolgate.extras import is_installed, not_installed
from toolgate.gates.secrets.names import REFERENCE
from toolgate.model import Actor
from toolgate.settings import ChannelSettings
from toolgate.threads import DaemonExecutor

MAX_SENDING_THREADS = 8
EVERY_TENANT = "*"

logger = logging.getLogger("toolgate")


class Delivery(NamedTuple):
    """The channels that took a message, and those that did not, with the reason: for operators, without any secret."""

    delivered: tuple[str, ...] = ()
    failed: Mapping[str, str] = {}
    passing: tuple[str, ...] = ()
    """Those of the failed that may take it later."""

    def and_also(self, other: "Delivery") -> "Delivery":
        """Both as one."""
        return Delivery(self.delivered + other.delivered, {**self.failed, **other.failed}, self.passing + other.passing)


class NotSent(Exception):
    """A channel did not take a message; the words are for operators."""

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


class Channels:
    """The channels of all users."""

    def __init__(
        self, channels: Mapping[str, ChannelSettings], find_secret: Callable[[str], str | None], seconds: float
    ) -> None:
        self._channels = channels
        self._find_secret = find_secret
        self._seconds = seconds
        self._threads: DaemonExecutor | None = None

    def of(self, actor: Actor) -> list[str]:
        """The names of an actor's channels."""
        return [name for name, channel in self._channels.items() if _is_for(channel, actor)]

    async def send(self, actor: Actor, title: str, message: str, only: Collection[str] | None = None) -> Delivery:
        """Sends a message to all channels of an actor, at the same time. `only`: to those of these names."""
        names = [name for name in self.of(actor) if only is None or name in only]
        if not names:
            return Delivery()
        errors = await asyncio.gather(*(self._try(name, title, message) for name in names))
        tried = dict(zip(names, errors, strict=True))
        failed = {name: error for name, error in tried.items() if error is not None}
        for name, error in failed.items():
            logger.warning("a notification was not sent to the channel %s: %s", name, error)
        delivered = tuple(name for name in names if name not in failed)
        passing = tuple(name for name, error in failed.items() if error.passing)
        return Delivery(delivered, {name: str(error) for name, error in failed.items()}, passing)

    async def _try(self, name: str, title: str, message: str) -> NotSent | None:
        """The reason why a channel did not take a message; None: it did."""
        if not is_installed("notify"):
            return NotSent(not_installed("notify"))
        self._threads = self._threads or DaemonExecutor(MAX_SENDING_THREADS)
        sending = asyncio.get_running_loop().run_in_executor(self._threads, self._send, name, title, message)
        try:
            return await asyncio.wait_for(sending, self._seconds)
        except TimeoutError:
            return NotSent(f"it did not take it within {self._seconds:g} s", passing=True)

    def _send(self, name: str, title: str, message: str) -> NotSent | None:
        try:
            send_by_url(self._url(name), title, message)
        except NotSent as error:
            return error
        except StoreError as error:
            return NotSent(error.message)
        except Exception as error:  # noqa: BLE001 - whatever a plugin raises; its words may hold the URL
            return NotSent(f"sending failed ({type(error).__name__})")
        return None

    def _url(self, name: str) -> str:
        """The URL of a channel, with its secrets. One that is a part of it is quoted; one that is all of it is not."""
        url = self._channels[name].url.strip()
        whole = REFERENCE.fullmatch(url)
        if whole is not None:
            return self._secret(whole[1].strip())
        return REFERENCE.sub(lambda found: quote(self._secret(found[1].strip()), safe=""), url)

    def _secret(self, name: str) -> str:
        value = self._find_secret(name)
        if not value:
            raise NotSent(f"the secret {name!r} is not set: run `toolgate secrets set {name} --servers`")
        return value


def _is_for(channel: ChannelSettings, actor: Actor) -> bool:
    return channel.tenant in (EVERY_TENANT, actor.tenant) and channel.user in (None, actor.user)


def _is_not_ours(record: logging.LogRecord) -> bool:
    """Keeps what apprise logs in a thread of ours out of the log: URLs, which hold credentials. What failed is logged here;
    another user of apprise in this process keeps theirs."""
    return record.thread not in _sending


_sending: set[int] = set()
"""Threads in which a message is sent."""


@contextmanager
def quiet_apprise() -> Iterator[None]:
    """Keeps what apprise logs in this thread out of the log."""
    logging.getLogger("apprise").addFilter(_is_not_ours)
    thread = threading.get_ident()
    _sending.add(thread)
    try:
        yield
    finally:
        _sending.discard(thread)


def send_by_url(url: str, title: str, message: str) -> None:
    """Sends a text to the service of an apprise URL. Raises NotSent. Blocks."""
    import apprise

    with quiet_apprise():
        asset = apprise.AppriseAsset(app_id="Toolgate", app_desc="Toolgate", app_url="", storage_mode="memory")
        service = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
        if service is None:
            raise NotSent("its url is none that apprise knows")
        if not service.notify(body=message, title=title, body_format=apprise.NotifyFormat.TEXT):
            raise NotSent("the service did not take it", passing=True)
