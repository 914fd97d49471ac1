"""Guesses of keys, tokens and links, which are slowed down."""

import time
from collections import OrderedDict
from collections.abc import Callable

FREE_OF_ID, FREE_OF_ADDRESS = 5, 30
"""Failures that cost nothing: people mistype, and deploy old keys."""
FIRST_SECONDS, MAX_SECONDS_OF_ID, MAX_SECONDS_OF_ADDRESS = 0.05, 2.0, 0.5
FORGET_SECONDS = 60.0
"""Without a failure for this long, the count begins anew."""
MAX_COUNTED = 10_000
"""Of ids, and of addresses. The one whose last failure is the oldest gives way."""
MAX_GOOD = 10_000


class Counts:
    def __init__(self, free: int, longest: float, clock: Callable[[], float]) -> None:
        self._free, self._longest, self._clock = free, longest, clock
        self._failed: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failed)

    def add(self, name: str) -> None:
        self._failed[name] = self._count(name) + 1, self._clock()
        self._failed.move_to_end(name)
        if len(self._failed) > MAX_COUNTED:
            self._failed.popitem(last=False)

    def delay(self, name: str) -> float:
        over = self._count(name) - self._free
        return 0.0 if over < 0 else min(self._longest, FIRST_SECONDS * 2.0 ** min(over, 30))

    def _count(self, name: str) -> int:
        count, at = self._failed.get(name, (0, 0.0))
        return count if self._clock() - at < FORGET_SECONDS else 0


class KeyAttempts:
    """Slows down guesses of keys, and nobody else.

    Failures are counted for each key id, and for each address. Who presents a key of a hammered id or from a busy address
    waits before it is looked at, so that nothing can be told from how soon an answer comes; nobody is refused. Keys that
    were right before do not wait at all: behind a proxy that is not in `serve.proxies` all share one address, and a key id
    is no secret.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.by_id = Counts(FREE_OF_ID, MAX_SECONDS_OF_ID, clock)
        self.by_address = Counts(FREE_OF_ADDRESS, MAX_SECONDS_OF_ADDRESS, clock)
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def delay(self, digest: bytes, id: str, address: str) -> float:
        """Seconds that a key has to wait before it is looked at. `digest`: of the whole key."""
        return 0.0 if digest in self._good else max(self.by_id.delay(id), self.by_address.delay(address))

    def failed(self, digest: bytes, id: str, address: str) -> None:
        self._good.pop(digest, None)
        self.by_id.add(id)
        self.by_address.add(address)

    def succeeded(self, digest: bytes) -> None:
        self._good[digest] = None
        self._good.move_to_end(digest)
        if len(self._good) > MAX_GOOD:
            self._good.popitem(last=False)
