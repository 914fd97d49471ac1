"""External services on loopback: each test says what the service answers, and looks at what it was asked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.loopback import Asked, Handler, Said, Site, site
from toolgate import App, Outcome
from toolgate.store.audit_log import latest
from toolgate.testing import memory_app

Answer = Said | Callable[[Asked], Said | Awaitable[Said]]


def scripted(answers: Sequence[Answer]) -> Handler:
    """Answers one after another; the last one is repeated."""
    left = list(answers)

    async def handle(asked: Asked) -> Said:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Said):
            return answer
        said = answer(asked)
        return said if isinstance(said, Said) else await said

    return handle


async def never(_asked: Asked) -> Said:
    """Takes the request, and answers nothing."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Closes the connection before an answer."""
    writer.transport.abort()


@asynccontextmanager
async def serving(name: str, *answers: Answer, **settings: Any) -> AsyncIterator[tuple[App, Site]]:
    """An App whose service of this name is on loopback, and everybody agrees to every call."""
    async with site(scripted(answers)) as service:
        given = {name: {"base_url": service.url, **settings}}
        async with memory_app(services=given, limits={"input_bytes": 5_000_000}) as app:
            app.approvals.add_approver(lambda _request: True)
            yield app, service


def failed(outcome: Outcome, code: str) -> Any:
    """The error of an outcome, which has this code."""
    assert outcome.error is not None, outcome
    assert outcome.error.code == code, outcome.error
    return outcome.error


async def records(app: App) -> str:
    """All records of calls, as text."""
    await app.flush()
    return "\n".join(str(row[7]) for row in await app.parts.store.read(latest(100)))
