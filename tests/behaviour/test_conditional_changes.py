"""If-Match among several processes: of changes that name the same ETag one is made, whichever process each one reaches."""

import asyncio
import json

import pytest

from tests.serving import Answer, Site, serving
from toolgate import Actor, App
from toolgate.store import change_locks
from toolgate.store.live_processes import beat

pytestmark = pytest.mark.requirement("DOOR-5")
JSON = {"Content-Type": "application/json"}


async def admin_key(app: App) -> str:
    return (await app.keys.create("adam", Actor("acme", user="adam"), roles=("admin",)))[1]


async def budget(site: Site, key: str) -> str:
    """The path of a new budget."""
    made = await site("POST", "/v1/budgets", JSON, b'{"period": "day", "limit_usd": "1"}', key=key)
    return f"/v1/budgets/{made.json['id']}"


async def put(site: Site, key: str, path: str, limit: int, tag: str) -> Answer:
    return await site("PUT", path, {"If-Match": tag, **JSON}, json.dumps({"limit_usd": str(limit)}).encode(), key=key)


async def test_of_changes_that_saw_the_same_one_is_made(database: str) -> None:
    async with (
        App.open(database_url=database) as one,
        App.open(database_url=database) as two,
        serving(one) as first,
        serving(two) as second,
    ):
        key = await admin_key(one)
        path = await budget(first, key)
        for start in range(10, 60, 10):
            tag = (await first("GET", path, key=key)).headers["etag"]
            requests = zip(range(start, start + 6), (first, second) * 3, strict=True)
            answers = await asyncio.gather(*(put(site, key, path, limit, tag) for limit, site in requests))
            assert sorted(answer.status for answer in answers) == [200, *[412] * 5]
            [done] = [answer.json["limit_usd"] for answer in answers if answer.status == 200]
            for site in (first, second):
                assert (await site("GET", path, key=key)).json["limit_usd"] == done
        await one.keys.close()
        await two.keys.close()


async def test_the_lock_of_a_dead_process_is_taken_over_and_that_of_a_living_one_is_waited_for(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolgate.app.exclusive_changes.WAIT_SECONDS", 0.3)
    async with App.open(database_url=database) as app, serving(app) as site:
        key = await admin_key(app)
        path = await budget(site, key)
        tag = (await site("GET", path, key=key)).headers["etag"]
        store = app.parts.store
        await store.transact(beat("another"))
        assert await store.transact(change_locks.take(f"acme {path}", "another", 30.0))
        refused = await put(site, key, path, 2, tag)
        assert (refused.status, refused.json["code"]) == (503, "CAPACITY_EXCEEDED")
        await store.transact(change_locks.release(f"acme {path}", "another"))
        assert await store.transact(change_locks.take(f"acme {path}", "dead", 30.0))
        assert (await put(site, key, path, 2, tag)).status == 200
        await app.keys.close()
