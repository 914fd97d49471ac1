"""One effect for one key where processes share a database, and where they are killed between the claim and the outcome."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from toolgate import App, InvokeContext, tool
from toolgate.store import audit_log

pytestmark = pytest.mark.requirement("PIPE-9")

ROOT = Path(__file__).resolve().parents[2]
LEASE = 0.5


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str | None:
    if request.param == "sqlite":
        return None
    found: str = request.getfixturevalue("postgres_database")
    return found


def start(folder: Path, callers: int, how: str, prefix: str, url: str | None) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.hostile.keyed_caller", str(folder), str(callers), how, prefix]
    return subprocess.Popen(
        [*command, *([url] if url else [])], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def go(*processes: "subprocess.Popen[str]") -> None:
    """Wait until all are ready, then let them begin."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def noted(folder: Path, what: str) -> list[list[str]]:
    """The lines of a note; the last is dropped if a kill cut it short."""
    file = folder / what
    text = file.read_text() if file.exists() else ""
    return [line.split("\t") for line in text.split("\n")[:-1]]


async def test_fifty_callers_in_two_processes_have_one_effect_and_equal_answers(tmp_path: Path, url: str | None) -> None:
    processes = [start(tmp_path, 25, "together", "k", url) for _ in range(2)]
    go(*processes)
    for process in processes:
        await asyncio.to_thread(process.communicate, timeout=250)
        assert process.returncode == 0
    ((key, call_id),) = noted(tmp_path, "effects")
    answers = [orjson.loads(answer) for _, answer in noted(tmp_path, "returned")]
    assert key == "k"
    assert answers == [["success", {"by": call_id, "number": 5}]] * 50


class Witness:
    """Asks for every key again, in an App of its own, and leaves its traces where the killed ones left theirs."""

    def __init__(self, folder: Path, app: App) -> None:
        self.folder = folder
        self.app = app

        @tool(tier="write")
        async def effect(ctx: InvokeContext, number: int) -> dict[str, str | int]:
            """Leaves a trace."""
            with (folder / "effects").open("a") as file:
                file.write(f"{ctx.call.idempotency_key}\t{ctx.id}\n")
            return {"by": ctx.id, "number": number}

        app.register(effect)

    async def repeat(self, key: str, number: str) -> tuple[str, Any]:
        """The output of a success, or the call whose outcome is unknown."""
        outcome = await self.app.invoke("effect", {"number": int(number)}, idempotency_key=key)
        if outcome.ok:
            return "success", outcome.output
        assert outcome.error is not None and outcome.error.details is not None
        assert outcome.error.code == "OUTCOME_UNKNOWN", outcome
        return "unknown", outcome.error.details["first_call"]

    def effects(self) -> Counter[str]:
        return Counter(key for key, _ in noted(self.folder, "effects"))


async def kill_repeatedly(folder: Path, url: str | None, rounds: int) -> None:
    chance = random.Random(20261115)
    for turn in range(rounds):
        process = start(folder, 8, "apart", f"r{turn}", url)
        what = ("", "effects", "returned")[turn % 3]
        before = len(noted(folder, what)) if what else 0
        go(process)
        if what:  # once it is under way; the others while they begin
            patience = time.monotonic() + 30
            while len(noted(folder, what)) == before and time.monotonic() < patience:
                time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.12))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    asked: dict[str, str] = dict(noted(folder, "asked"))
    happened: dict[str, str] = dict(noted(folder, "effects"))
    told = {key: orjson.loads(answer) for key, answer in noted(folder, "returned")}
    assert told, "the processes were killed before they did anything"
    assert len(asked) > len(told), "no kill ever hit a running call"
    async with App.open(home=folder / "home", database_url=url, limits={"lease_seconds": LEASE}) as app:
        witness = Witness(folder, app)
        again = {key: await witness.repeat(key, number) for key, number in asked.items()}
        unknown = {key: call_id for key, (status, call_id) in again.items() if status == "unknown"}
        assert max(witness.effects().values()) == 1, "a repeat had a second effect"
        for key, answer in told.items():
            assert list(again[key]) == answer, "a repeat is not told what the first caller was told"
        for key, call_id in unknown.items():
            assert "start" in [row[2] for row in await app.parts.store.read(audit_log.of_call(call_id))]
            assert happened.get(key, call_id) == call_id
        for key in asked.keys() - unknown.keys():
            assert again[key][1] == {"by": dict(noted(folder, "effects"))[key], "number": int(asked[key])}
        assert unknown, "no kill ever left an unknown outcome"

        # a person looks at the effects, says what happened, and then every call has happened exactly once
        assert {row.scope.key for row in await app.idempotency.unsettled()} == set(unknown)
        for key in unknown:
            output = {"by": happened[key], "number": int(asked[key])} if key in happened else None
            await app.idempotency.settle(key, happened=key in happened, output=output)
        for key, number in asked.items():
            status, output = await witness.repeat(key, number)
            assert (status, output["number"]) == ("success", int(number))
        assert witness.effects() == Counter(asked.keys())


@pytest.mark.matrix("kills processes at each place")
async def test_kill_9_between_claim_and_outcome_never_leads_to_a_second_effect(tmp_path: Path, url: str | None) -> None:
    await kill_repeatedly(tmp_path, url, rounds=6)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_kill_9_thirty_times_never_leads_to_a_second_effect(tmp_path: Path, url: str | None) -> None:
    await kill_repeatedly(tmp_path, url, rounds=30)


@pytest.mark.matrix("stops processes and waits for their leases")
async def test_a_process_that_stood_still_finds_its_key_gone_and_does_not_run(tmp_path: Path, url: str | None) -> None:
    """It gave no sign for too long, so it counts as dead, and what it had claimed and not begun another runs."""
    process = start(tmp_path, 1, "stalled", "k", url)
    go(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "stalled\n"
    async with App.open(home=tmp_path / "home", database_url=url, limits={"lease_seconds": LEASE}) as app:
        witness = Witness(tmp_path, app)
        status, output = await witness.repeat("k", "5")
        assert (status, output["number"], witness.effects()["k"]) == ("success", 5, 1)
        await asyncio.to_thread(process.communicate, "go on\n", 250)
        assert noted(tmp_path, "returned") == [["k", '["failure","IDEMPOTENCY_CONFLICT"]']]
        assert witness.effects() == Counter(["k"])
        assert await witness.repeat("k", "5") == ("success", output)
