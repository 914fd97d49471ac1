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


CREDENTIALS = {
    "STRIPE_SECRET_KEY": "sk_test_4eC39HqLyjWDarjtT1zdp7dc",
    "SENDGRID_API_KEY": "SG.ngeVfQFYQlKU0ufo8x5d1A.TwL2iGABf9DHoTf-09kqeF8tAmbihYzrnopKc",
    "VERCEL_TOKEN": "vcp_1234567890abcdefABCDEF12",
    "NETLIFY_AUTH_TOKEN": "nfp_1234567890abcdefABCDEF1234567890",
    "SUPABASE_KEY": "sb_secret_N7UND0UgjKTVK-Uodkm0Hg_xSvEMPvz",
    "SUPABASE_ACCESS_TOKEN": "sbp_bdd0a4f1c2e3d4b5a6978877665544332211aabb",
}
"""A credential for each service. They are made up."""
PROJECT = "abcdefghijklmnopqrst"
ROWS = [{"id": 1, "name": "one"}]
SUCCESSES: dict[str, Said] = {
    "/v1/payment_intents": Said(200, {"id": "pi_1", "client_secret": "pi_1_secret_1", "status": "requires_payment_method"}),
    "/v3/mail/send": Said(202, b"", {"x-message-id": "m-1"}),
    "/v2/files": Said(200, {}),
    "/v13/deployments": Said(200, {"id": "dpl_1", "url": "site.vercel.app", "readyState": "READY"}),
    "/v3/deployments/dpl_1/events": Said(200, []),
    "/api/v1/sites/docs-site.netlify.app/deploys": Said(200, {"id": "d1", "state": "ready", "required": []}),
    "/rest/v1/notes": Said(200, ROWS),
    f"/v1/projects/{PROJECT}/database/query/read-only": Said(201, ROWS),
}
"""What the services answer to the examples of their tools, by path."""


async def every_service(asked: Asked) -> Said:
    """All services at one address: the handler of a `site`."""
    return SUCCESSES.get(asked.path) or Said(404, {"message": f"nothing is at {asked.path}"})


def every_address(url: str) -> dict[str, Any]:
    """The setting `services` for that address."""
    return {
        **{name: {"base_url": url} for name in ("stripe", "sendgrid", "vercel", "netlify")},
        "supabase": {"project": {"url": url, "ref": PROJECT}, "management_url": url},
    }


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
