"""Toolgate with a long audit log: how long requests of the console take in the server, without the network."""

import asyncio
import random
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter, time_ns
from typing import Any

import msgspec
import orjson
from measure import serve, spread_of

from toolgate import App
from toolgate.model import Actor, new_id
from toolgate.serve.app import HttpApp
from toolgate.store.call_statistics import count_rows
from toolgate.store.database import LogRow, Store

DAYS = 30
TOOLS = [f"tool_{number:02d}" for number in range(24)]
PERSONAS = (None, "analyst", "developer", "support", "auditor")
DOORS = ("python", "http", "mcp", "cli")
USERS = [f"user{number:03d}" for number in range(200)]
ENDS = (("success", None, 940), ("failure", "INVOCATION_ERROR", 25), ("denied", "PERMISSION_DENIED", 20),
    ("timeout", "TIMEOUT", 10), ("pending", "APPROVAL_REQUIRED", 4))  # fmt: skip
RARE_EVERY = 50_000
"""Of so many calls, one ends with the rare code."""
RARE = "SANDBOX_ERROR"
BATCH = 5_000


class Made(msgspec.Struct):
    """A record that is a row already."""

    made: LogRow

    def row(self) -> LogRow:
        return self.made


def rows_of(at: int, number: int, chance: random.Random) -> tuple[Made, Made]:
    """The two records of a call, of the size and with the fields that real ones have."""
    id, tool, user = new_id(), chance.choice(TOOLS), USERS[min(int(chance.expovariate(1 / 30)), len(USERS) - 1)]
    ((status, code, _),) = chance.choices(ENDS, [weight for *_, weight in ENDS])
    if number % RARE_EVERY == RARE_EVERY // 2:
        status, code = "failure", RARE
    persona, door, tenant = chance.choice(PERSONAS), chance.choice(DOORS), "default" if number % 10 else "acme"
    ms = round(chance.lognormvariate(3, 1.5), 3)
    who = {"persona": persona, "user": user, "session": f"s{number % 500}", "args_hash": f"{number:064x}"}
    named = {} if door == "python" else {"door": door}
    first = {**who, "version": "1.0.0", "tier": "read_only", "arguments": {"text": "x" * 80}, "decision": "policy: allowed"}
    ended = {
        **who, "duration_ms": ms, "attempts": int(status in ("success", "failure", "timeout")), "cached": False,
        "cost_usd": 0.001, "decision": "policy: allowed", **named, "tier": "read_only", "cost": 1_000_000,
        **({} if code is None else {"code": code, "message": "The tool did not do what it was asked for."}),
    }  # fmt: skip
    return (
        Made((at, "start", id, tenant, tool, "started", orjson.dumps({**first, **named}))),
        Made((at + int(ms * 1_000), "end", id, tenant, tool, status, orjson.dumps(ended))),
    )


async def fill(store: Store, calls: int) -> None:
    """Writes calls of thirty days through the store's own writer, which links them."""
    chance, end = random.Random(1), time_ns() // 1_000
    begin = end - DAYS * 86_400 * 1_000_000
    for first in range(0, calls, BATCH):
        for number in range(first, min(first + BATCH, calls)):
            for record in rows_of(begin + (end - begin) * number // calls, number, chance):
                store.append(record)
        await store.flush()


def requests(call_id: str, deep: str) -> dict[str, str]:
    """The requests that are measured, each with its name. More are one line each."""

    def days_ago(days: float) -> str:
        return (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")

    calls = "/v1/invocations?limit=50"
    return {
        "statistics, 24 h": "/v1/statistics",
        "statistics, 7 d": f"/v1/statistics?since={days_ago(7)}",
        "statistics, 30 d": f"/v1/statistics?since={days_ago(30)}",
        "statistics, 24 h by tool": "/v1/statistics?by=tool",
        "statistics, 7 d by tool": f"/v1/statistics?by=tool&since={days_ago(7)}",
        "statistics, 30 d by tool": f"/v1/statistics?by=tool&since={days_ago(30)}",
        "statistics, 7 d of one user": f"/v1/statistics?user={USERS[0]}&since={days_ago(7)}",
        "facets, 24 h": "/v1/invocations/facets",
        "facets, 30 d": f"/v1/invocations/facets?since={days_ago(30)}",
        "attention": "/v1/attention",
        "usage, 30 d by tool": "/v1/usage?by=tool",
        "costs, 30 d by user": "/v1/costs?by=user",
        "costs, 30 d by persona": "/v1/costs?by=persona",
        "calls": calls,
        "calls, deep page": f"{calls}&cursor={deep}",
        "calls by tool": f"{calls}&tool={TOOLS[3]}",
        "calls by status": f"{calls}&status=denied",
        "calls by rare code": f"{calls}&code={RARE}",
        "calls by user": f"{calls}&user={USERS[0]}",
        "calls by rare user": f"{calls}&user={USERS[150]}",
        "calls by persona": f"{calls}&persona=auditor",
        "calls by door": f"{calls}&door=mcp",
        "calls by tier, none of it": f"{calls}&tier=external_api",
        "calls by time": f"{calls}&since={days_ago(20)}&until={days_ago(19)}",
        "one call": f"/v1/invocations/{call_id}",
        "page: overview, 24 h": "/",
        "page: overview, 7 d": "/?range=7d",
        "page: overview, 30 d": "/?range=30d",
        "page: calls": "/calls",
        "page: calls by tool": f"/calls?tool={TOOLS[3]}",
        "page: calls by status": "/calls?status=denied",
        "page: calls by user": f"/calls?user={USERS[0]}",
        "page: calls by door, 30 d": "/calls?door=mcp&range=30d",
        "page: calls by rare code, any time": f"/calls?code={RARE}&range=all",
        "page: calls by tool and status": f"/calls?tool={TOOLS[3]}&status=failure",
        "page: one call": f"/calls/{call_id}",
        "page: money": "/money",
        "page: money by user": "/money?by=user",
        "page: money by persona": "/money?by=persona",
        "page: money by tenant": "/money?by=tenant&tenant=*",
        "page: tenants": "/tenants",
    }


LIVE = ("page: overview, 24 h", "page: calls", "page: money")
"""Pages that are asked for once more while calls end."""
LIVE_CALLS = 50
"""Calls a second."""


@asynccontextmanager
async def calls_end(app: App) -> AsyncIterator[None]:
    """Has calls end while inside: what they add to the log has to be counted before a page is made."""

    async def call() -> None:
        number = 0
        while True:
            await asyncio.sleep(1 / LIVE_CALLS)
            number += 1
            await app.invoke("echo", {"text": "x" * 80}, actor=Actor(user=USERS[number % len(USERS)]))

    task = asyncio.ensure_future(call())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


class Asked:
    """The server's own part of requests: from the headers to the body, in this process."""

    def __init__(self, http: HttpApp, key: str) -> None:
        self._http = http
        self._headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {key}".encode())]

    async def __call__(self, target: str) -> Any:
        path, _, query = target.partition("?")
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "headers": self._headers, "scheme": "http", "http_version": "1.1", "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80), "root_path": ""}  # fmt: skip
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._http(scope, receive, send)
        body = b"".join(one.get("body", b"") for one in sent)
        if sent[0]["status"] != 200:
            raise AssertionError(f"{target}: {sent[0]['status']} {body[:300]!r}")
        return orjson.loads(body) if path.startswith("/v1/") else body


async def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        home = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(made)
        async with App.open(home=home, audit={"key": "none"}) as app, HttpApp(app) as http:
            key = (await app.keys.create(f"bench {new_id()}", Actor(user="op"), roles=["operator"]))[1]
            asked = Asked(http, key)

            async def prepare(request: dict[str, Any]) -> dict[str, Any]:
                begin = perf_counter()
                if (await app.audit.end()).seq < request["calls"]:
                    await fill(app.parts.store, request["calls"])
                filled = perf_counter()
                await count_rows(app.parts.store)
                return {"fill": filled - begin, "count": perf_counter() - filled}

            async def run(request: dict[str, Any]) -> dict[str, Any]:
                page = await asked("/v1/invocations?limit=500")
                for _ in range(10):
                    page = await asked(f"/v1/invocations?limit=500&cursor={page['next']}")
                named = requests(page["items"][0]["id"], page["next"])
                times = request["times"]
                found = {name: await spread_of(lambda one=one: asked(one), times) for name, one in named.items()}
                async with calls_end(app):
                    for name in LIVE:
                        live = await spread_of(lambda one=named[name]: asked(one), times)
                        found[f"{name}, while {LIVE_CALLS} calls a second end"] = live
                return found

            await serve({"prepare": prepare, "run": run})


if __name__ == "__main__":
    asyncio.run(main())
