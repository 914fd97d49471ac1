"""A budget holds, whatever number of callers and processes draw on it, and whenever they are killed."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.hostile.spender import LEASE_SECONDS
from tests.patience import until
from toolgate import App, tool
from toolgate.gates.quota.budget_accounts import BudgetStatus, new_budget
from toolgate.store.database import Transaction

ROOT = Path(__file__).resolve().parents[2]
CENT = 10_000_000
PRICE = 10 * CENT
SECONDS = 250
ALIVE_SECONDS = 250.0
"""A lease where nobody is killed."""
TOO_MANY = 10_000
"""Calls that no process has made before it is killed, however late the kill comes on a busy machine."""

pytestmark = pytest.mark.requirement("COST-2")


@pytest.fixture(params=["sqlite", "postgres", "sqlite and redis", "postgres and redis"])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """The database. With Redis, every call is counted there as well, in all processes."""
    if "redis" in request.param:
        monkeypatch.setenv("TOOLGATE_REDIS_URL", request.getfixturevalue("redis_url"))
        monkeypatch.setenv("TOOLGATE_RATE_LIMITS", '[{"by": ["tenant"], "per_hour": 100000}]')
    if "sqlite" in request.param:
        return None
    found: str = request.getfixturevalue("postgres_database")
    return found


def opened(folder: Path, url: str | None, lease: float = LEASE_SECONDS) -> App:
    return App.open(home=folder / "home", database_url=url, limits={"lease_seconds": lease})


def start(folder: Path, calls: int, at_once: int, url: str | None, lease: float = LEASE_SECONDS) -> "subprocess.Popen[str]":
    """A process that is ready to spend."""
    words = [str(folder), str(calls), str(at_once), str(lease), *([url] if url else [])]
    command = [sys.executable, "-m", "tests.hostile.spender", *words]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def lines(file: Path) -> list[str]:
    """The lines that were written whole."""
    return file.read_text().split("\n")[:-1] if file.exists() else []


def spent_since(folder: Path, effects: int) -> bool:
    return len(lines(folder / "effects")) > effects


async def the_budget(app: App) -> BudgetStatus:
    [found] = [one for one in await app.budgets.list() if one.budget.tier is None]
    return found


async def test_of_200_calls_at_once_at_ten_cents_ten_dollars_pay_for_exactly_100(tmp_path: Path, url: str | None) -> None:
    """Half of them in each of two processes, of which none is taken for dead because the machine is busy."""
    async with opened(tmp_path, url, ALIVE_SECONDS) as app:
        await app.budgets.set(new_budget("day", 1000 * CENT))
        processes = [await asyncio.to_thread(start, tmp_path, 100, 100, url, ALIVE_SECONDS) for _ in range(2)]
        for process in processes:
            go(process)
        told = [
            (await asyncio.to_thread(process.communicate, timeout=SECONDS))[0].split(maxsplit=2) for process in processes
        ]
        assert [rest.strip() for _, _, rest in told] == ["{}", "{}"]
        assert [sum(int(each[place]) for each in told) for place in (0, 1)] == [100, 100]
        assert len(lines(tmp_path / "effects")) == 100
        status = await the_budget(app)
        assert (status.spent, status.reserved, status.left) == (100 * PRICE, 0, 0)
        assert sum(line.nano for line in await app.budgets.costs("tool")) == 100 * PRICE


async def test_in_one_process_exactly_100_succeed_too(tmp_path: Path, url: str | None) -> None:
    @tool(tier="write", cost=0.10)
    async def buy() -> None:
        """Costs ten cents."""
        await asyncio.sleep(0)

    async with opened(tmp_path, url, ALIVE_SECONDS) as app:
        app.register(buy)
        await app.budgets.set(new_budget("day", 1000 * CENT, tenant="*"))
        ended = [outcome.status for outcome in await asyncio.gather(*(app.invoke("buy") for _ in range(200)))]
        assert (ended.count("success"), ended.count("denied")) == (100, 100)
        status = await the_budget(app)
        assert (status.spent, status.reserved) == (100 * PRICE, 0)


@pytest.mark.matrix("kills processes and waits for their leases")
async def test_after_kill_9_nothing_stays_reserved_and_nothing_is_overspent(tmp_path: Path, url: str | None) -> None:
    chance = random.Random(20261115)
    async with opened(tmp_path, url) as app:
        await app.budgets.set(new_budget("day", 3 * TOO_MANY * PRICE))
        for _ in range(3):
            process = await asyncio.to_thread(start, tmp_path, TOO_MANY, 16, url)
            before = len(lines(tmp_path / "effects"))
            go(process)
            await until(partial(spent_since, tmp_path, before))
            await asyncio.sleep(chance.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(process.communicate, timeout=SECONDS)
        effects = set(lines(tmp_path / "effects"))
        returned = {line.split()[0] for line in lines(tmp_path / "returned")}
        assert effects - returned, "no kill ever hit a running call, so this proves nothing"
        status = await all_settled(app)
        succeeded = {line.split()[0] for line in lines(tmp_path / "returned") if line.endswith(" success")}
        assert succeeded <= effects
        began = await calls_in(app, "SELECT DISTINCT call_id FROM audit_log WHERE kind = 'start'")
        assert effects <= began
        assert status.spent == len(began) * PRICE <= status.budget.cap
        # what is left can still be spent, to the last cent
        await app.budgets.set(new_budget("day", status.spent + 10 * PRICE))
        process = await asyncio.to_thread(start, tmp_path, 30, 30, url)
        go(process)
        out, _ = await asyncio.to_thread(process.communicate, timeout=SECONDS)
        assert out == "10 20 {}\n"
        assert (await the_budget(app)).left == 0


@pytest.mark.matrix("stops processes and waits for their leases")
@pytest.mark.parametrize("left", [0, 1], ids=["nothing left", "enough left"])
async def test_a_process_that_stood_still_before_its_call_began_spends_nothing_twice(
    tmp_path: Path, url: str | None, left: int
) -> None:
    """It is taken for dead, what it had reserved is spent by another, and then it goes on."""

    @tool(tier="write", cost=0.10)
    async def buy() -> None:
        """Costs ten cents."""

    async with opened(tmp_path, url) as app:
        app.register(buy)
        await app.budgets.set(new_budget("day", (1 + left) * PRICE))
        process = await asyncio.to_thread(standstill, tmp_path, url)
        try:
            process.send_signal(signal.SIGSTOP)
            deadline = time.monotonic() + 60
            while await calls_in(app, "SELECT call_id FROM reservations WHERE state = 'held'"):
                assert time.monotonic() < deadline, "it was never taken for dead"
                await app.parts.budgets.reap()
                await asyncio.sleep(0.1)
            assert (await app.invoke("buy")).ok
            process.send_signal(signal.SIGCONT)
            out, _ = await asyncio.to_thread(process.communicate, "go\n", timeout=SECONDS)
        finally:
            process.kill()  # also where it stands still
        assert out.strip() == ("success" if left else "BUDGET_EXCEEDED")
        assert len(lines(tmp_path / "effects")) == left
        status = await the_budget(app)
        assert (status.spent, status.reserved) == ((1 + left) * PRICE, 0)


def standstill(folder: Path, url: str | None) -> "subprocess.Popen[str]":
    """A process that has reserved money for a call, which has not begun."""
    command = [sys.executable, "-m", "tests.hostile.standstill", str(folder), *([url] if url else [])]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "reserved\n"
    return process


async def calls_in(app: App, sql: str) -> set[str]:
    def look() -> Transaction[set[str]]:
        rows = yield sql, {}
        return {row[0] for row in rows}

    return await app.parts.store.read(look())


async def all_settled(app: App) -> BudgetStatus:
    """The budget, once nothing of it is reserved: who looks, or spends, settles for the dead."""
    deadline = time.monotonic() + 60
    while (status := await the_budget(app)).reserved:
        assert time.monotonic() < deadline, "what the dead had reserved was not settled"
        await asyncio.sleep(0.1)
    return status
