"""The port of hosting platforms: what is deployed, what came of it, and the waiting that all of them need."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

from toolgate.errors import CallError, ToolError
from toolgate.tasks import start_task, stop_tasks

POLL_SECONDS = (0.25, 0.5, 1.0, 2.0)
"""Pauses between two looks at a deployment; the last one repeats."""
UPLOADS_AT_ONCE = 4
UPLOAD_ATTEMPTS = 3
MAX_LOG_LINES = 100
MAX_LOG_CHARS = 8_000
PASSING = frozenset({"TIMEOUT", "CONNECTION_ERROR"})
"""Codes after which a request without an effect is sent again."""

T = TypeVar("T")
Status = Literal["ready", "building", "error"]


class SiteFile(NamedTuple):
    """A file of a site: its path below the site's folder, its SHA-1, and its content."""

    path: str
    sha1: str
    content: bytes


class Site(NamedTuple):
    """What is to be deployed, and where to."""

    project: str
    """The name of the project, or the id of the site."""
    files: Sequence[SiteFile]
    production: bool
    env: Mapping[str, str]


class Deployment(NamedTuple):
    """What came of it so far."""

    id: str
    url: str
    status: Status
    log: str = ""


class Deployer(Protocol):
    """A hosting platform."""

    async def deploy(self, credential: str | None, site: Site, *, deadline: float) -> Deployment:
        """Uploads the files, makes a deployment of them and waits for it until `deadline` (the event loop's time)."""

    async def check(self, credential: str | None) -> None:
        """Raises if the credential is not accepted."""


async def upload_all(files: Iterable[SiteFile], upload: Callable[[SiteFile], Awaitable[None]]) -> None:
    """Uploads files, a few at once. Each may be sent again: what is uploaded twice is there once."""
    places = asyncio.Semaphore(UPLOADS_AT_ONCE)

    async def one(file: SiteFile) -> None:
        async with places:
            await again(lambda: upload(file))

    tasks = [start_task(one(file)) for file in files]
    try:
        await asyncio.gather(*tasks)
    finally:
        await stop_tasks(*tasks)


async def again(request: Callable[[], Awaitable[T]]) -> T:
    """Sends a request that has no effect, or one that does not matter twice, up to three times."""
    for attempt in range(1, UPLOAD_ATTEMPTS):
        try:
            return await request()
        except (CallError, ToolError) as error:
            if error.code not in PASSING:
                raise
        await asyncio.sleep(POLL_SECONDS[attempt])
    return await request()


async def wait_until_done(look: Callable[[], Awaitable[Deployment]], first: Deployment, deadline: float) -> Deployment:
    """Looks at a deployment until it is ready or has failed, or the time is over: then it is said to be building."""
    now, found, looks = asyncio.get_running_loop().time, first, 0
    while found.status == "building":
        pause = POLL_SECONDS[min(looks, len(POLL_SECONDS) - 1)]
        if now() + pause >= deadline:
            return found
        await asyncio.sleep(pause)
        looks += 1
        try:
            async with asyncio.timeout_at(deadline):
                found = await again(look)
        except (CallError, ToolError, TimeoutError):
            # The deployment was made, and that is what the caller must learn.
            return found
    return found


def log_text(lines: Iterable[str]) -> str:
    """The end of a build log."""
    return "\n".join(list(lines)[-MAX_LOG_LINES:])[-MAX_LOG_CHARS:]
