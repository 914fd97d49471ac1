"""Workers and brokers of the event stream that die: nothing is lost, and nothing that has a key is done twice."""

import asyncio
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.event_brokers import NatsServer
from tests.event_caller import KEY, SECRET, EventCaller, event_caller
from toolgate.settings.events import EventSettings

pytestmark = pytest.mark.requirement("JOB-3", "JOB-4")

ROOT = Path(__file__).resolve().parents[2]


def event_settings(url: str) -> dict[str, Any]:
    name = f"t{uuid.uuid4().hex[:12]}"
    return {
        "url": url,
        "requests": f"{name}.requests",
        "results": f"{name}.results",
        "group": name,
        "keys": {KEY: {"secret": "CRM_KEY", "tenants": ["acme"]}},
        "redeliver_seconds": 1,
        "partitions": 4,
    }


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SERVER_SECRET_CRM_KEY", SECRET)


class Worker:
    """A process of its own."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "tests.hostile.event_worker", str(folder), orjson.dumps(settings).decode()]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    async def ready(self) -> "Worker":
        assert self.process.stdout is not None
        assert await asyncio.to_thread(self.process.stdout.readline) == "ready\n"
        return self

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


def effects(folder: Path) -> list[int]:
    file = folder / "effects"
    return [int(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []


async def test_a_call_that_was_killed_in_the_middle_is_answered_and_not_made_again(tmp_path: Path, stream_url: str) -> None:
    settings = event_settings(stream_url)
    async with event_caller(EventSettings.model_validate(settings)) as caller:
        first = await Worker(tmp_path, settings).ready()
        try:
            id = await caller.send("effect", {"number": 1, "linger": 60}, session="s-1")
            after = await caller.send("effect", {"number": 2}, session="s-1")
            async with asyncio.timeout(30):
                while not effects(tmp_path):
                    await asyncio.sleep(0.02)
        finally:
            first.kill()
        second = await Worker(tmp_path, settings).ready()
        try:
            assert (await caller.result(id))["error"]["code"] == "OUTCOME_UNKNOWN"
            assert (await caller.result(after))["output"] == 2
            assert effects(tmp_path) == [1, 2]
        finally:
            second.kill()


@pytest.mark.matrix("a longer look at what one killed call shows")
async def test_workers_that_are_killed_again_and_again_lose_nothing_and_repeat_nothing(
    tmp_path: Path, stream_url: str
) -> None:
    settings, count = event_settings(stream_url), 120
    async with event_caller(EventSettings.model_validate(settings)) as caller:
        ids = {}
        for number in range(count):
            fields = {"session": f"s-{number % 7}", "deadline": time.time() + 600}
            ids[number] = await caller.send("effect", {"number": number, "linger": 0.2}, **fields)
        # A member of a Kafka group that died is waited for by the others for six seconds, and a new group for three.
        least, most = (1.0, 6.0) if stream_url.startswith("nats") else (9.0, 13.0)
        chance, end = random.Random(7), time.monotonic() + 200
        while not answered(caller, ids.values()) and time.monotonic() < end:
            worker = await Worker(tmp_path, settings).ready()
            alive = time.monotonic() + chance.uniform(least, most)
            while not answered(caller, ids.values()) and time.monotonic() < alive:
                await asyncio.sleep(0.05)
            worker.kill()
        assert answered(caller, ids.values())
        done = Counter(effects(tmp_path))
        assert set(done.values()) == {1}
        for number, id in ids.items():
            outcome = await caller.result(id)
            unknown = outcome["error"] is not None and outcome["error"]["code"] == "OUTCOME_UNKNOWN"
            assert unknown or (outcome["output"], done[number]) == (number, 1)


def answered(caller: EventCaller, ids: Any) -> bool:
    return set(ids) <= {one["id"] for one in caller.results}


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_broker_that_is_started_again_is_used_again(tmp_path: Path, own_nats: NatsServer) -> None:
    settings = event_settings(own_nats.url)
    async with event_caller(EventSettings.model_validate(settings)) as caller:
        worker = await Worker(tmp_path, settings).ready()
        try:
            assert (await caller.call("effect", {"number": 1}))["output"] == 1
            own_nats.stop()
            own_nats.start()
            assert (await caller.call("effect", {"number": 2}))["output"] == 2
            assert effects(tmp_path) == [1, 2]
        finally:
            worker.kill()


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_worker_waits_for_a_broker_that_is_not_there_yet(tmp_path: Path, own_nats: NatsServer) -> None:
    settings = event_settings(own_nats.url)
    own_nats.stop()
    worker = await Worker(tmp_path, settings).ready()
    try:
        own_nats.start()
        async with event_caller(EventSettings.model_validate(settings)) as caller:
            assert (await caller.call("effect", {"number": 1}))["output"] == 1
    finally:
        worker.kill()
