"""Sends outcomes, feedback, notes and queries to a SomaBrain-compatible service, in the background.

Nothing waits for it: what is to be sent stands in a queue of bounded length, and what finds no room there is dropped and
counted. It goes to the address of the settings alone; no redirect is followed, and of an answer only its status is read.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from toolgate.errors import CallError, ToolError
from toolgate.network.http_client import HttpClient
from toolgate.settings.learning import LearningSettings
from toolgate.tasks import start_task, stop_tasks

FEEDBACK, RECALL, REMEMBER = "/context/feedback", "/recall", "/remember"
MAX_QUEUED = 1_000
ATTEMPTS = 4
FIRST_PAUSE = 0.5
"""Seconds before the second attempt; each later pause is three times as long."""
REQUEST_SECONDS = 10.0
MAX_ANSWER_BYTES = 10_000
CLOSE_SECONDS = 2.0
"""The time that what is queued has when the App closes."""
logger = logging.getLogger("toolgate.learning")


class _Message(NamedTuple):
    path: str
    fields: dict[str, Any]


class Outbound:
    """The way to the service. Without `learning.url`, it sends nothing."""

    def __init__(self, settings: LearningSettings, http: HttpClient, find_secret: Callable[[str], str | None]) -> None:
        self._settings = settings
        self._http = http
        self._find_secret = find_secret
        self._queue: deque[_Message] = deque()
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self.sent = self.dropped = 0
        """Messages that arrived, and those that did not."""

    @property
    def is_on(self) -> bool:
        return self._settings.url is not None

    def send(self, path: str, fields: dict[str, Any]) -> None:
        """Queues a message. It never waits and never raises."""
        if not self.is_on or self._task is None:
            return
        if len(self._queue) >= MAX_QUEUED:
            self.dropped += 1
            return
        self._queue.append(_Message(path, fields))
        self._idle.clear()
        self._more.set()

    def start(self) -> None:
        if self.is_on:
            self._task = start_task(self._keep_sending())

    async def close(self) -> None:
        """Waits a little for what is queued; the rest is dropped."""
        if self._task is None:
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._idle.wait()
        except TimeoutError:
            logger.warning("%d messages were not sent to %s", len(self._queue) + 1, self._settings.url)
        await stop_tasks(self._task)
        self._task = None

    async def _keep_sending(self) -> None:
        while True:
            while self._queue:
                message = self._queue.popleft()
                if await self._deliver(message):
                    self.sent += 1
                else:
                    self.dropped += 1
            self._idle.set()
            self._more.clear()
            await self._more.wait()

    async def _deliver(self, message: _Message) -> bool:
        """Sends a message until it is taken; gives False if the service refuses it, or is away for all attempts."""
        pause = FIRST_PAUSE
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(pause)
                pause *= 3
            try:
                status = await self._post(message)
            except (CallError, ToolError) as error:
                logger.info("%s was not reached: %s", self._settings.url, error.message)
                continue
            if status < 300:
                return True
            if status < 500 and status not in (408, 425, 429):
                logger.warning("%s%s answered %d", self._settings.url, message.path, status)
                return False
        return False

    async def _post(self, message: _Message) -> int:
        token = self._find_secret(self._settings.token)
        answer = await self._http.request(
            "POST", f"{self._settings.url}{message.path}", json=message.fields, timeout=REQUEST_SECONDS,
            headers={"authorization": f"Bearer {token}"} if token else {}, max_bytes=MAX_ANSWER_BYTES, redirects=0,
            trusted=True, cut=True,
        )  # fmt: skip
        return answer.status
