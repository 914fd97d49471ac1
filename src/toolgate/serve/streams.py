"""Answers over HTTP that last: they end when the server stops, and when the credential that they were given to ends."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Scope

from toolgate.errors import StoreError
from toolgate.serve.authentication import Authenticator
from toolgate.serve.hosts import Headers
from toolgate.serve.problems import HttpProblem

WATCH_SECONDS = 1.0
WATCHED_AT_ONCE = 100
MAX_STREAMS, MAX_CREDENTIAL_STREAMS = 20_000, 200


logger = logging.getLogger("toolgate")


class OpenStreams:
    """The lasting answers of one process."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._open: dict[asyncio.Task[object], tuple[Scope, Headers]] = {}
        """By the task that serves it: what the request came with."""
        self._counts: Counter[str] = Counter()
        self.is_ended = False

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def kept(self, credential: str, scope: Scope, headers: Headers) -> Iterator[None]:
        """Counts the answer of the current task among those that last. Raises an HttpProblem where there are too many."""
        if self.is_ended:
            raise HttpProblem(503, "The server is about to stop. Connect again.")
        if self._counts[credential] >= MAX_CREDENTIAL_STREAMS or len(self._open) >= MAX_STREAMS:
            raise HttpProblem(
                429,
                f"There are too many open streams: {MAX_CREDENTIAL_STREAMS} of one credential, {MAX_STREAMS:,} in all.",
                suggestion="Close some that are not read.",
            )
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = scope, headers
        self._counts[credential] += 1
        try:
            yield
        finally:
            del self._open[task]
            self._counts[credential] -= 1
            if not self._counts[credential]:
                del self._counts[credential]

    def end(self) -> None:
        """Ends all of them. Calls that are running are left to end."""
        self.is_ended = True
        for task in self._open:
            task.cancel()

    async def watch(self) -> None:
        """Ends those whose credential was revoked, or has expired, until it is cancelled."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for number, (task, (scope, headers)) in enumerate(list(self._open.items())):
                if number % WATCHED_AT_ONCE == 0:
                    await asyncio.sleep(0)  # thousands of looks take long, and others are to be served meanwhile
                if not await self._is_still_good(scope, headers):
                    task.cancel()

    async def _is_still_good(self, scope: Scope, headers: Headers) -> bool:
        try:
            return await self._authenticator.is_still_good(scope, headers)
        except StoreError:  # then nobody knows: the next look tells
            return True
        except Exception:  # one stream must not keep the others from being looked at; its client can connect again
            logger.exception("the credential of a stream could not be checked")
            return False
