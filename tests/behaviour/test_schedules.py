"""Schedules: jobs that are queued at the times of a cron line, in a time zone, once whatever happens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from toolgate import Actor, App, tool
from toolgate.errors import CallError, Failed
from toolgate.jobs.handlers import JobContext, job_handler
from toolgate.jobs.schedules import Schedule
from toolgate.jobs.timer import ScheduleTimer
from toolgate.model import RateLimit
from toolgate.settings import load_settings
from toolgate.store import schedules as table
from toolgate.store.database import Transaction

pytestmark = pytest.mark.requirement("JOB-1")
ADA, EVE, OTHER = Actor("acme", "analyst", "ada"), Actor("acme", "analyst", "eve"), Actor("other", "analyst", "ada")
NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
SOON = 20


class SetClock:
    """A clock that shows what it is set to."""

    def __init__(self, at: datetime = NOON) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def time(self) -> float:
        return self.at.timestamp()

    def monotonic(self) -> float:
        return self.at.timestamp()

    def advance(self, **length: float) -> None:
        self.at += timedelta(**length)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@asynccontextmanager
async def opened(
    clock: SetClock, database: str | None = None, home: Path | None = None, **settings: Any
) -> AsyncIterator[App]:
    place = {"database_url": database or "memory://", **({} if home is None else {"home": home})}
    given = {"entry_points": False, **place, **settings}
    async with App(load_settings("/dev/null", given), time_source=clock) as app:
        yield app


class Bell:
    """Tools whose calls are counted."""

    def __init__(self) -> None:
        self.rung: list[str] = []
        self.is_broken = False

    def hang_in(self, app: App) -> None:
        @tool(tier="read_only")
        async def ring(how: str = "once") -> str:
            """Ring the bell."""
            if self.is_broken:
                raise ValueError("the bell is broken")
            self.rung.append(how)
            return how

        @tool(tier="execute")
        async def melt(how: str) -> str:
            """Melt the bell."""
            self.rung.append(f"melted {how}")
            return how

        @tool(tier="read_only", rate_limit=RateLimit(per_hour=1))
        async def rarely() -> str:
            """Ring rarely."""
            self.rung.append("rarely")
            return "rarely"

        app.tools.register_many([ring, melt, rarely])


async def fired(app: App, actor: Actor = ADA) -> list[str]:
    return [str(job.state) for job in await app.jobs.list(actor=actor)][::-1]


async def acts(app: App) -> list[tuple[str, dict[str, Any]]]:
    await app.flush()
    return [(row[2], orjson.loads(row[7])) for row in await app.audit.latest(200) if "schedule." in row[2]]


def tick_of(app: App) -> ScheduleTimer:
    return ScheduleTimer(app.parts.store, app.parts.schedules, app.parts.events.record)


async def test_a_schedule_fires_at_its_times(clock: SetClock, database: str, tmp_path: Path) -> None:
    bell = Bell()
    async with opened(clock, database, tmp_path) as app:
        bell.hang_in(app)
        added = await app.schedules.add("30 * * * *", "ring", {"how": "loud"}, actor=ADA, name="hourly")
        assert (added.state, added.next_at, added.timezone) == ("active", NOON + timedelta(minutes=30), "UTC")
        await app.jobs.run_all()
        assert bell.rung == []
        for hour in range(3):
            clock.at = NOON + timedelta(hours=hour, minutes=30)
            await app.jobs.run_all()
            await app.jobs.run_all()
        assert bell.rung == ["loud"] * 3
        now = await app.schedules.get("hourly", actor=ADA)
        assert (now.runs, now.missed, now.failures, now.last_due) == (3, 0, 0, clock.at)
        assert now.next_at == clock.at + timedelta(hours=1)
        last = await app.jobs.get(str(now.last_job), actor=ADA)
        assert (last.schedule, last.key) == (added.id, f"schedule:{added.id}:{clock.at.isoformat()}")
        assert last.result["output"] == "loud"


async def test_it_survives_the_process_that_added_it(clock: SetClock, database: str, tmp_path: Path) -> None:
    bell = Bell()
    async with opened(clock, database, tmp_path) as app:
        bell.hang_in(app)
        await app.schedules.add("@hourly", "ring", actor=ADA)
    clock.advance(hours=1)
    async with opened(clock, database, tmp_path) as app:
        bell.hang_in(app)
        await app.jobs.run_all()
    assert bell.rung == ["once"]


async def test_a_worker_in_the_background_fires_it_too(clock: SetClock) -> None:
    bell = Bell()
    async with opened(clock) as app:
        bell.hang_in(app)
        await app.schedules.add("@hourly", "ring", actor=ADA)
        clock.advance(hours=1)
        async with app.jobs.worker(), asyncio.timeout(SOON):
            while not bell.rung:
                await asyncio.sleep(0.02)
    assert bell.rung == ["once"]


async def test_any_number_of_workers_fire_it_once(clock: SetClock, database: str, tmp_path: Path) -> None:
    bell = Bell()
    async with opened(clock, database, tmp_path) as one, opened(clock, database, tmp_path / "two") as two:
        bell.hang_in(one)
        bell.hang_in(two)
        for number in range(10):
            await one.schedules.add("@hourly", "ring", {"how": f"bell {number}"}, actor=ADA)
        clock.advance(hours=1)
        await asyncio.gather(*(tick_of(app).tick() for app in (one, two, one, two, one)))
        assert await fired(one) == ["queued"] * 10
        await asyncio.gather(one.jobs.run_all(), two.jobs.run_all())
    assert sorted(bell.rung) == sorted(f"bell {number}" for number in range(10))


async def test_a_worker_that_dies_between_has_done_all_or_nothing(
    clock: SetClock, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bell = Bell()
    async with opened(clock, database, tmp_path) as app:
        bell.hang_in(app)
        await app.schedules.add("@hourly", "ring", actor=ADA, name="one")
        clock.advance(hours=1)
        whole = table.fire

        def half(row: Any, *given: Any) -> Transaction[bool]:
            yield from table.change(row, **given[-1])
            raise RuntimeError("killed")

        monkeypatch.setattr(table, "fire", half)
        await tick_of(app).tick()
        assert "killed" in caplog.text
        monkeypatch.setattr(table, "fire", whole)
        before = await app.schedules.get("one", actor=ADA)
        assert (before.next_at, before.runs, await fired(app)) == (clock.at, 0, [])
        await app.jobs.run_all()
        assert bell.rung == ["once"] and (await app.schedules.get("one", actor=ADA)).runs == 1


async def test_times_that_passed_without_a_worker_fire_once_late_and_say_so(clock: SetClock, database: str) -> None:
    bell = Bell()
    async with opened(clock, database) as app:
        bell.hang_in(app)
        await app.schedules.add("@hourly", "ring", actor=ADA, name="one")
        clock.advance(hours=5, minutes=10)
        await app.jobs.run_all()
        now = await app.schedules.get("one", actor=ADA)
        assert (bell.rung, now.runs, now.missed) == (["once"], 1, 4)
        assert (now.last_due, now.last_at) == (NOON + timedelta(hours=1), clock.at)
        assert now.next_at == NOON + timedelta(hours=6)
        assert [details["missed"] for action, details in await acts(app) if action == "schedule.late"] == [4]
        clock.advance(days=400)
        await app.jobs.run_all()
        assert len(bell.rung) == 2


async def test_a_time_passes_while_the_job_of_the_last_one_waits(clock: SetClock) -> None:
    bell = Bell()
    async with opened(clock) as app:
        bell.hang_in(app)
        await app.schedules.add("*/10 * * * *", "melt", {"how": "slowly"}, actor=ADA, name="one")
        for _ in range(4):
            clock.advance(minutes=10)
            await app.jobs.run_all()
        assert (bell.rung, await fired(app)) == ([], ["waiting"])
        assert len(await app.approvals.list(actor=ADA)) == 1
        now = await app.schedules.get("one", actor=ADA)
        assert (now.runs, now.missed) == (1, 3)


async def test_each_firing_asks_a_person_again(clock: SetClock) -> None:
    bell = Bell()
    async with opened(clock) as app:
        bell.hang_in(app)
        await app.schedules.add("@hourly", "melt", {"how": "now"}, actor=ADA)
        for count in (1, 2):
            clock.advance(hours=1)
            await app.jobs.run_all()
            assert len(bell.rung) == count - 1
            [waiting] = await app.approvals.list(actor=ADA)
            await app.approvals.answer(waiting.request.id, True, actor=EVE)
            await app.jobs.run_all()
            assert len(bell.rung) == count


async def test_rate_limits_count_what_a_schedule_fires(clock: SetClock) -> None:
    bell = Bell()
    async with opened(clock, jobs={"backoff_seconds": 0.01}) as app:
        bell.hang_in(app)
        await app.schedules.add("*/10 * * * *", "rarely", actor=ADA)
        for _ in range(5):
            clock.advance(minutes=10)
            await app.jobs.run_all()
    assert bell.rung == ["rarely"]


async def test_pause_resume_run_now_and_removal(clock: SetClock, database: str) -> None:
    bell = Bell()
    async with opened(clock, database) as app:
        bell.hang_in(app)
        added = await app.schedules.add("@hourly", "ring", actor=ADA, name="one")
        paused = await app.schedules.pause("one", actor=ADA)
        assert (paused.state, paused.reason) == ("paused", "Paused by ada.")
        with pytest.raises(Failed, match="is paused, not active"):
            await app.schedules.pause("one", actor=ADA)
        clock.advance(hours=3)
        await app.jobs.run_all()
        assert bell.rung == []
        job = await app.schedules.run_now("one", actor=ADA)
        with pytest.raises(Failed, match="not over yet"):
            await app.schedules.run_now("one", actor=ADA)
        await app.jobs.run_all()
        assert (bell.rung, job.schedule) == (["once"], added.id)
        resumed = await app.schedules.resume("one", actor=ADA)
        assert (resumed.state, resumed.next_at, resumed.reason) == ("active", clock.at + timedelta(hours=1), None)
        clock.advance(hours=1)
        await tick_of(app).tick()
        await app.schedules.remove("one", actor=ADA)
        await app.jobs.run_all()
        assert (bell.rung, (await fired(app))[-1]) == (["once"], "cancelled")
        assert await app.schedules.list(actor=ADA) == []
        with pytest.raises(Failed, match="There is no schedule"):
            await app.schedules.get("one", actor=ADA)
        actions = {action for action, _details in await acts(app)}
        assert actions >= {"schedule.added", "schedule.paused", "schedule.resumed", "schedule.run", "schedule.removed"}


async def test_others_neither_see_nor_change_it(clock: SetClock, database: str) -> None:
    async with opened(clock, database) as app:
        Bell().hang_in(app)
        added = await app.schedules.add("@hourly", "ring", actor=ADA, name="one")
        role, none = Actor("acme", "clerk", "ada"), Actor("acme", None, "ada")
        for stranger, all_users in ((EVE, False), (OTHER, False), (OTHER, True), (role, False), (none, False)):
            assert await app.schedules.list(actor=stranger, all_users=all_users) == []
            for known in (added.id, "one"):
                for verb in (app.schedules.get, app.schedules.pause, app.schedules.remove, app.schedules.run_now):
                    with pytest.raises(Failed, match="There is no schedule"):
                        await verb(known, actor=stranger, all_users=all_users)
        assert [one.id for one in await app.schedules.list(actor=EVE, all_users=True)] == [added.id]
        assert (await app.schedules.pause(added.id, actor=EVE, all_users=True)).state == "paused"
        await app.schedules.add("@hourly", "ring", actor=EVE, name="one")  # a name is its user's own


async def test_it_ends_after_so_many_runs_and_at_its_last_moment(clock: SetClock, database: str) -> None:
    bell = Bell()
    async with opened(clock, database) as app:
        bell.hang_in(app)
        await app.schedules.add("@hourly", "ring", {"how": "twice"}, actor=ADA, name="twice", max_runs=2)
        until = NOON + timedelta(hours=1, minutes=30)
        await app.schedules.add("@hourly", "ring", {"how": "until"}, actor=ADA, name="until", until=until)
        for _ in range(4):
            clock.advance(hours=1)
            await app.jobs.run_all()
        assert sorted(bell.rung) == ["twice", "twice", "until"]
        ended = await app.schedules.list(actor=ADA)
        assert [(one.state, one.next_at) for one in ended] == [("ended", None)] * 2
        with pytest.raises(Failed, match="is ended, not paused"):
            await app.schedules.resume("twice", actor=ADA)


async def test_failures_in_a_row_pause_it_and_its_user_hears_of_it(clock: SetClock, database: str) -> None:
    bell = Bell()
    async with opened(clock, database, jobs={"schedule_failures": 3, "backoff_seconds": 0.001}) as app:
        bell.hang_in(app)
        await app.schedules.add("@hourly", "ring", actor=ADA, name="one")
        for broken in (True, True, False, True, True, True, True, True):
            bell.is_broken = broken
            clock.advance(hours=1)
            await app.jobs.run_all()
            await app.jobs.run_all()
        now = await app.schedules.get("one", actor=ADA)
        assert (now.state, now.failures, now.runs) == ("paused", 3, 6)
        assert now.reason is not None and "failed 3 times in a row" in now.reason
        [told] = await app.notifications.list(actor=ADA)
        assert told.title == "Schedule paused" and "one" in told.message and now.id in told.message
        assert await app.notifications.list(actor=EVE) == []
        bell.is_broken = False
        assert (await app.schedules.resume("one", actor=ADA)).failures == 0
        clock.advance(hours=1)
        await app.jobs.run_all()
        assert len(bell.rung) == 2


async def test_a_tool_that_is_removed_or_forbidden_later_fails_visibly(clock: SetClock) -> None:
    bell = Bell()
    async with opened(clock) as app:
        bell.hang_in(app)
        await app.schedules.add("@hourly", "ring", actor=ADA, name="one")
        await app.tools.disable("ring")
        clock.advance(hours=1)
        await app.jobs.run_all()
        [job] = await app.jobs.list(actor=ADA)
        assert (job.state, job.error and job.error.code, bell.rung) == ("failed", "TOOL_NOT_FOUND", [])


async def test_what_a_key_let_its_holder_add_ends_with_the_key(clock: SetClock, database: str) -> None:
    bell = Bell()
    clock.at = datetime.now(UTC)  # keys go by the time of the machine
    async with opened(clock, database) as app:
        bell.hang_in(app)
        key, _text = await app.keys.create("ada's", Actor("acme", "analyst", "ada", ("a", "b")))
        lesser, _text = await app.keys.create("lesser", Actor("acme", "analyst", "ada", ("a",)))
        whose = Actor("acme", "analyst", "ada", ("a", "b"))
        await app.schedules.add("@hourly", "ring", {"how": "by key"}, actor=whose, door="http")
        await app.schedules.add("@hourly", "ring", {"how": "at the machine"}, actor=whose)
        await app.schedules.add("@hourly", "ring", {"how": "lesser"}, actor=lesser.actor, door="http")
        clock.advance(hours=1)
        await app.jobs.run_all()
        assert sorted(bell.rung) == ["at the machine", "by key", "lesser"]
        await app.keys.revoke(key.id)
        clock.advance(hours=1)
        await app.jobs.run_all()
        assert sorted(bell.rung) == ["at the machine", "at the machine", "by key", "lesser", "lesser"]
        [failed] = await app.jobs.list(actor=ADA, state="failed")
        assert failed.error is not None and failed.error.code == "PERMISSION_DENIED" and "key" in failed.error.message


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 0 31 2 *", "never fires: no month of it has that day"),
        ("0 0 30 2 *", "never fires"),
        ("0 0 */8 * 1#5", "never fires"),  # the fifth Monday of a month is never its 1st, 9th, 17th or 25th
        ("* * * * * *", "no cron line"),
        ("every day", "no cron line"),
        ("", "no cron line"),
        ("* * * *", "no cron line"),
        ("60 * * * *", "no cron line: its minute cannot be read"),
        ("0 0 32 * *", "no cron line: its day of month cannot be read"),
        ("0 0 31 13 *", "no cron line: its month cannot be read"),
        ("* * * * *" + " " * 300, "no cron line"),
        ("1" * 5000 + " * * * *", "no cron line"),
        ("٣ * * * *", "no cron line"),
        ("* *\n* * * rm -rf /", "no cron line"),
    ],
)
async def test_a_line_that_never_fires_or_is_none_is_refused(clock: SetClock, cron: str, words: str) -> None:
    async with opened(clock) as app:
        Bell().hang_in(app)
        with pytest.raises(Failed, match=words) as raised:
            await app.schedules.add(cron, "ring", actor=ADA)
        assert raised.value.code == "VALIDATION_ERROR"
        assert await app.schedules.list(actor=ADA) == []


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../../etc/passwd", "/etc/localtime", "America", "a\0b", "x" * 5000])
async def test_a_time_zone_that_is_none_is_refused(clock: SetClock, zone: str) -> None:
    async with opened(clock) as app:
        Bell().hang_in(app)
        with pytest.raises(Failed, match="no time zone"):
            await app.schedules.add("@daily", "ring", actor=ADA, timezone=zone)


async def test_what_cannot_be_called_cannot_be_scheduled(clock: SetClock) -> None:
    async with opened(clock) as app:
        Bell().hang_in(app)
        for name, arguments, code in (
            ("nothing", {}, "TOOL_NOT_FOUND"),
            ("ring", {"how": 3}, "VALIDATION_ERROR"),
            ("ring", {"loud": True}, "VALIDATION_ERROR"),
            ("ring", "[1]", "VALIDATION_ERROR"),
            ("read_file", {"path": "/etc/shadow"}, "SECURITY_VIOLATION"),
        ):
            with pytest.raises(CallError) as raised:
                await app.schedules.add("@daily", name, arguments, actor=ADA)
            assert raised.value.code == code
        await app.tools.disable("ring")
        with pytest.raises(CallError) as hidden:
            await app.schedules.add("@daily", "ring", actor=ADA)
        assert hidden.value.code == "TOOL_NOT_FOUND"
        with pytest.raises(Failed, match=r"app\.schedules\.add"):
            await app.schedules.add_job("@daily", "execute_tool", {}, actor=ADA)
        assert await app.schedules.list(actor=ADA, all_users=True) == []


async def test_other_wrong_wishes_are_refused(clock: SetClock) -> None:
    async with opened(clock, jobs={"schedules_per_user": 2, "schedule_seconds": 600}) as app:
        Bell().hang_in(app)
        past, naive = NOON - timedelta(days=1), datetime(2030, 1, 1)  # noqa: DTZ001
        for wrong, words in (
            ({"cron": "*/5 * * * *"}, "at most every 600 s"),
            ({"cron": "0,59 0 * * *", "name": "a" * 65}, "its name"),
            ({"cron": "59 23 * * *", "name": "a\nb"}, "its name"),
            ({"max_runs": 0}, "number of its runs"),
            ({"max_runs": True}, "number of its runs"),
            ({"until": past}, "never fires before"),
            ({"until": naive}, "needs a time zone"),
        ):
            given: dict[str, Any] = {"cron": "@daily", **wrong}
            with pytest.raises(Failed, match=words):
                await app.schedules.add(given.pop("cron"), "ring", actor=ADA, **given)
        await app.schedules.add("@daily", "ring", actor=ADA, name="one", max_runs=1)
        with pytest.raises(Failed, match="named 'one' already"):
            await app.schedules.add("@daily", "ring", actor=ADA, name="one")
        await app.schedules.add("@daily", "ring", actor=ADA)
        with pytest.raises(Failed, match="2 schedules, and may have no more"):
            await app.schedules.add("@daily", "ring", actor=ADA)
        await app.schedules.add("@daily", "ring", actor=EVE)
        clock.advance(days=1)
        await app.jobs.run_all()
        await app.jobs.run_all()
        await app.schedules.add("@daily", "ring", actor=ADA)  # in the place of the one that has ended


async def test_it_is_not_fired_more_often_than_a_setting_that_was_changed_later_says(
    clock: SetClock, tmp_path: Path
) -> None:
    bell = Bell()
    database = f"sqlite:///{tmp_path / 'toolgate.db'}"
    async with opened(clock, database, tmp_path) as app:
        bell.hang_in(app)
        await app.schedules.add("* * * * *", "ring", actor=ADA)
    async with opened(clock, database, tmp_path, jobs={"schedule_seconds": 600}) as app:
        bell.hang_in(app)
        for _ in range(60):
            clock.advance(minutes=1)
            await app.jobs.run_all()
    assert len(bell.rung) == 6


async def test_secrets_in_arguments_are_not_shown(clock: SetClock, tmp_path: Path) -> None:
    bell, secret = Bell(), "ghp_" + "a1B2" * 9
    database = f"sqlite:///{tmp_path / 'toolgate.db'}"
    async with opened(clock, database, tmp_path) as app:
        bell.hang_in(app)
        added = await app.schedules.add("@hourly", "ring", {"how": secret}, actor=ADA)
        assert secret not in str(added.to_dict())
        clock.advance(hours=1)
        await app.jobs.run_all()
        assert secret not in str([job.to_dict() for job in await app.jobs.list(actor=ADA)])
    assert bell.rung == [secret]
    assert secret.encode() not in (tmp_path / "toolgate.db").read_bytes()


async def test_jobs_of_other_types_can_be_scheduled(clock: SetClock) -> None:
    seen: list[Any] = []

    @job_handler("sweep", schema={"type": "object", "required": ["room"]})
    async def sweep(ctx: JobContext) -> None:
        seen.append((ctx.actor.user, ctx.payload["room"]))

    async with opened(clock) as app:
        app.jobs.add_handler(sweep)
        with pytest.raises(Failed, match="payload of a job of type sweep"):
            await app.schedules.add_job("@daily", "sweep", {}, actor=ADA)
        added = await app.schedules.add_job("@daily", "sweep", {"room": "hall"}, actor=ADA)
        assert isinstance(added, Schedule) and added.name.startswith("sweep-")
        clock.advance(days=1)
        await app.jobs.run_all()
    assert seen == [("ada", "hall")]


async def test_a_full_queue_delays_it_and_no_other_tenant(clock: SetClock) -> None:
    bell = Bell()
    async with opened(clock, jobs={"max_queued": 1}) as app:
        bell.hang_in(app)
        for number in range(3):
            await app.schedules.add("@hourly", "ring", {"how": f"ada {number}"}, actor=ADA)
        await app.schedules.add("@hourly", "ring", {"how": "other"}, actor=OTHER)
        clock.advance(hours=1)
        await tick_of(app).tick()
        assert (await fired(app), await fired(app, OTHER)) == (["queued"], ["queued"])
        assert await tick_of(app).tick() == 3600  # and not at once
        for _ in range(4):
            await app.jobs.run_all()
        assert sorted(bell.rung) == ["ada 0", "ada 1", "ada 2", "other"]


async def test_the_end_of_time(clock: SetClock) -> None:
    bell = Bell()
    clock.at = datetime(9999, 12, 31, 23, 57, 30, tzinfo=UTC)
    async with opened(clock) as app:
        bell.hang_in(app)
        with pytest.raises(Failed, match="never fires"):
            await app.schedules.add("0 0 1 1 *", "ring", actor=ADA)
        await app.schedules.add("* * * * *", "ring", actor=ADA, name="one")
        for _ in range(2):
            clock.advance(minutes=1)
            await app.jobs.run_all()
        assert (len(bell.rung), (await app.schedules.get("one", actor=ADA)).state) == (2, "ended")


async def test_the_zone_is_the_users_own_unless_another_is_named(clock: SetClock) -> None:
    rules = [{"tenant": "acme", "user": "ada", "timezone": "Africa/Kigali"}]
    async with opened(clock, timezone="Asia/Tokyo", timezones=rules) as app:
        Bell().hang_in(app)
        own = await app.schedules.add("0 9 * * *", "ring", actor=ADA)
        others = await app.schedules.add("0 9 * * *", "ring", actor=EVE)
        named = await app.schedules.add("0 9 * * *", "ring", actor=ADA, timezone="America/New_York")
        tomorrow = datetime(2026, 6, 2, tzinfo=UTC)
        assert (own.timezone, own.next_at) == ("Africa/Kigali", tomorrow + timedelta(hours=7))
        assert (others.timezone, others.next_at) == ("Asia/Tokyo", tomorrow)
        assert named.next_at == datetime(2026, 6, 1, 13, tzinfo=UTC)
