"""Health checks of tools on a schedule: when they are made, by whom, and where their results are seen."""

import asyncio
import os
import threading
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.terminal import Terminal
from toolgate import App, tool
from toolgate.settings import load_settings
from toolgate.store.tool_health import HealthRow
from toolgate.testing.app import ManualClock

pytestmark = [pytest.mark.requirement("TOOL-2"), pytest.mark.requirement("DOOR-4")]
SOON = 20
INTERVAL = 300.0


TOOLS = """
from toolgate import tool


@tool(name="pulse", description="It has a health check.", tier="read_only")
class Pulse:
    async def execute(self) -> None: ...

    async def health_check(self) -> dict[str, object]:
        return {"healthy": False, "message": "the wire is cut"}
"""


class Pulse:
    """Counts how often it was asked, and answers what the test says."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Any = True

    def tool(self) -> Any:
        pulse = self

        @tool(name="pulse", description="It has a health check.", tier="read_only")
        class PulseTool:
            async def execute(self) -> None: ...

            async def health_check(self) -> Any:
                pulse.asked += 1
                if isinstance(pulse.answer, Exception):
                    raise pulse.answer
                return pulse.answer

        return PulseTool


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    made = Terminal(tmp_path, monkeypatch, capsys)
    made.add_tools(TOOLS)
    return made


def make(database: str, clock: ManualClock, tmp_path: Path, *, stays: bool = True, **settings: Any) -> App:
    given = {"home": tmp_path / "home", "database_url": database, **settings}
    given["health"] = {"interval_seconds": INTERVAL, "timeout_seconds": 0.2, **settings.get("health", {})}
    return App(load_settings(os.devnull, given), time_source=clock, keeps_servers=stays)


async def due(app: App, clock: ManualClock, seconds: float = INTERVAL * 1.2) -> HealthRow:
    clock.advance(seconds)
    await app.parts.health.check_due()
    found = await app.tools.health("pulse")
    assert found is not None
    return found


def near(moment: datetime, expected: datetime, within: float) -> bool:
    return abs(moment - expected) <= timedelta(seconds=within)


async def test_a_tool_is_checked_when_it_is_due_and_another_process_sees_it(database: str, tmp_path: Path) -> None:
    clock, pulse = ManualClock(), Pulse()
    async with make(database, clock, tmp_path) as app, make(database, clock, tmp_path, stays=False) as other:
        app.register(pulse.tool())
        assert await app.tools.health("pulse") is None
        await app.parts.health.check_due()
        planned = await other.tools.health("pulse")
        assert planned is not None
        assert (planned.state, planned.last_check, pulse.asked) == ("unchecked", None, 0)
        assert clock.now() <= planned.next_check <= clock.now() + timedelta(seconds=INTERVAL / 10)

        row = await due(app, clock)
        assert (row.state, row.message, pulse.asked) == ("healthy", None, 1)
        assert row.last_check is not None
        assert near(row.last_check, clock.now(), 1)
        assert near(row.next_check, clock.now() + timedelta(seconds=INTERVAL), INTERVAL / 10 + 1)
        assert await other.tools.health("pulse") == row

        assert await due(app, clock, INTERVAL * 0.8) == row
        assert pulse.asked == 1
        pulse.answer = {"healthy": False, "message": "the wire is cut"}
        row = await due(app, clock)
        assert (row.state, row.message, pulse.asked) == ("unhealthy", "the wire is cut", 2)


async def test_of_many_processes_one_makes_each_check(database: str, tmp_path: Path) -> None:
    clock, pulse = ManualClock(), Pulse()
    async with make(database, clock, tmp_path) as one, make(database, clock, tmp_path) as two:
        for app in (one, two):
            app.register(pulse.tool())
        await asyncio.gather(*(app.parts.health.check_due() for app in (one, two)))
        for turn in range(1, 4):
            clock.advance(INTERVAL * 1.2)
            await asyncio.gather(*(app.parts.health.check_due() for app in (one, two, one, two)))
            assert pulse.asked == turn


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (None, "healthy", None),
        ({"healthy": True, "message": "3 ms"}, "healthy", "3 ms"), (False, "unhealthy", "unhealthy"),
        (ConnectionError("nobody there"), "unhealthy", "ConnectionError: nobody there"),
        ({"healthy": 0}, "unhealthy", "unhealthy"),
        (ValueError("a\nb\x00 \ud800"), "unhealthy", "ValueError: a b \\ud800"),
        (RuntimeError(), "unhealthy", "RuntimeError"),
    ],
)  # fmt: skip
async def test_whatever_a_check_does_is_its_result(
    database: str, tmp_path: Path, answer: Any, state: str, words: str | None
) -> None:
    clock, pulse = ManualClock(), Pulse()
    pulse.answer = answer
    async with make(database, clock, tmp_path) as app:
        app.register(pulse.tool())
        await app.parts.health.check_due()
        row = await due(app, clock)
    assert (row.state, row.message) == (state, words)


async def test_secrets_are_masked_and_long_words_cut(tmp_path: Path) -> None:
    clock, pulse = ManualClock(), Pulse()
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    pulse.answer = {"healthy": False, "message": f"refused {secret} " + "word " * 500}
    async with make("memory://", clock, tmp_path) as app:
        app.register(pulse.tool())
        await app.parts.health.check_due()
        row = await due(app, clock)
    assert row.message is not None
    assert secret not in row.message
    assert len(row.message) <= 300


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_check_that_does_not_end_is_not_waited_for_nor_made_twice(tmp_path: Path) -> None:
    clock, release, asked = ManualClock(), threading.Event(), []

    @tool(name="pulse", description="It hangs in a thread.", tier="read_only")
    class Hanging:
        async def execute(self) -> None: ...

        def health_check(self) -> bool:
            asked.append(1)
            release.wait(SOON)
            return True

    @tool(name="stubborn", description="It cannot be cancelled.", tier="read_only")
    class Stubborn:
        async def execute(self) -> None: ...

        async def health_check(self) -> bool:
            while not release.is_set():
                try:
                    await asyncio.sleep(0.05)
                except asyncio.CancelledError:
                    continue
            return True

    async with make("memory://", clock, tmp_path) as app, asyncio.timeout(SOON):
        app.register(Hanging)
        app.register(Stubborn)
        await app.parts.health.check_due()
        assert (await due(app, clock)).message == "no answer within 0.2 s"
        for _ in range(3):
            assert (await due(app, clock)).message == "the check before this one has not ended"
            stubborn = await app.tools.health("stubborn")
            assert stubborn is not None
            assert stubborn.message == "the check before this one has not ended"
        assert len(asked) == 1
        release.set()
        while (await due(app, clock)).state != "healthy":
            pass
        assert len(asked) == 2


async def test_a_check_leaves_a_tool_in_use_as_it_is(tmp_path: Path) -> None:
    clock, steps = ManualClock(), []

    @tool(name="pulse", description="It has a life.", tier="read_only")
    class Living:
        async def initialize(self) -> None:
            steps.append("initialize")

        async def execute(self) -> None:
            steps.append("execute")

        async def health_check(self) -> None:
            steps.append("check")

        async def cleanup(self) -> None:
            steps.append("cleanup")

    async with make("memory://", clock, tmp_path) as app:
        app.register(Living)
        await app.parts.health.check_due()
        await due(app, clock)
        assert (await app.invoke("pulse", {})).ok
        await due(app, clock)
        assert steps == ["initialize", "check", "execute", "check"]
    assert steps[4:] == ["cleanup"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
async def test_a_check_ends_no_process(tmp_path: Path, error: BaseException) -> None:
    clock = ManualClock()

    @tool(name="pulse", description="It would end the process.", tier="read_only")
    class Ending:
        async def execute(self) -> None: ...

        async def health_check(self) -> None:
            raise error

    async with make("memory://", clock, tmp_path) as app:
        app.register(Ending)
        await app.parts.health.check_due()
        assert (await due(app, clock)).state == "unhealthy"


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_an_app_closes_although_a_check_does_not_end(tmp_path: Path) -> None:
    clock, over = ManualClock(), asyncio.Event()

    @tool(name="pulse", description="It cannot be cancelled.", tier="read_only")
    class Stuck:
        async def execute(self) -> None: ...

        async def health_check(self) -> None:
            while not over.is_set():
                with suppress(asyncio.CancelledError):
                    await over.wait()

    async with asyncio.timeout(SOON):
        async with make("memory://", clock, tmp_path) as app:
            app.register(Stuck)
            await app.parts.health.check_due()
            assert (await due(app, clock)).state == "unhealthy"
    over.set()


async def test_a_tool_that_is_off_is_not_checked(tmp_path: Path) -> None:
    clock, pulse = ManualClock(), Pulse()
    async with make("memory://", clock, tmp_path, tools={"pulse": {"enabled": False}}) as app:
        app.register(pulse.tool())
        for _ in range(2):
            clock.advance(INTERVAL * 2)
            await app.parts.health.check_due()
        assert await app.tools.health("pulse") is None
    assert pulse.asked == 0


async def test_a_check_planned_too_far_ahead_is_made_now(database: str, tmp_path: Path) -> None:
    clock, pulse = ManualClock(), Pulse()
    async with make(database, clock, tmp_path, health={"interval_seconds": 86_400}) as app:
        app.register(pulse.tool())
        await app.parts.health.check_due()
        await due(app, clock, 86_400)
    async with make(database, clock, tmp_path) as app:
        app.register(pulse.tool())
        row = await due(app, clock, 0)
    assert pulse.asked == 2
    assert row.next_check <= clock.now() + timedelta(seconds=INTERVAL * 1.1)


async def test_an_open_app_makes_checks_by_itself_and_a_command_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolgate.app.tool_health.MAX_POLL_SECONDS", 0.01)
    checked = asyncio.Event()

    @tool(name="pulse", description="It tells when it is asked.", tier="read_only")
    class Telling:
        async def execute(self) -> None: ...

        async def health_check(self) -> None:
            checked.set()

    clock = ManualClock()
    async with make("memory://", clock, tmp_path) as app:
        app.register(Telling)
        async with asyncio.timeout(SOON):
            while await app.tools.health("pulse") is None:
                await asyncio.sleep(0)
            clock.advance(INTERVAL)
            await checked.wait()
    for stays, interval in ((False, INTERVAL), (True, 0.0)):
        checked.clear()
        async with make("memory://", clock, tmp_path, stays=stays, health={"interval_seconds": interval}) as app:
            app.register(Telling)
            before = asyncio.all_tasks()
            app.parts.health.start()
            assert asyncio.all_tasks() == before
        assert not checked.is_set()


async def test_metrics_tell_of_every_tool_with_a_check(tmp_path: Path) -> None:
    clock, pulse = ManualClock(), Pulse()
    async with make("memory://", clock, tmp_path, metrics=True) as app:
        app.register(pulse.tool())
        await app.parts.health.check_due()
        assert app.metrics is not None
        assert 'toolgate_tool_healthy{tool="pulse"}' not in app.metrics.text().decode()
        row = await due(app, clock)
        text = app.metrics.text().decode()
        assert 'toolgate_tool_healthy{tool="pulse"} 1.0' in text
        pulse.answer = False
        row = await due(app, clock)
        lines = dict(line.rsplit(" ", 1) for line in app.metrics.text().decode().splitlines() if "pulse" in line)
    assert row.last_check is not None
    assert lines['toolgate_tool_healthy{tool="pulse"}'] == "0.0"
    assert float(lines['toolgate_tool_last_check_seconds{tool="pulse"}']) == pytest.approx(row.last_check.timestamp())
    assert float(lines['toolgate_tool_next_check_seconds{tool="pulse"}']) == pytest.approx(row.next_check.timestamp())


def test_tools_info_and_doctor_show_the_last_check_and_the_next(terminal: Terminal) -> None:
    assert terminal("tools", "info", "pulse", "--json").json["health"] is None
    assert "Health: not checked yet" in terminal("tools", "info", "pulse").out
    clock = ManualClock()

    async def check() -> HealthRow:
        settings = load_settings(None, {"home": terminal.folder / ".toolgate", "health": {"interval_seconds": INTERVAL}})
        async with App(settings, time_source=clock) as app:
            await app.parts.health.check_due()
            return await due(app, clock, 40)

    row = asyncio.run(check())
    health = terminal("tools", "info", "pulse", "--json").json["health"]
    assert health == row.to_dict()
    assert (health["state"], health["message"]) == ("unhealthy", "the wire is cut")
    assert health["lastCheck"] < health["nextCheck"]
    said = terminal("tools", "info", "pulse").out
    assert "Health: unhealthy: the wire is cut (checked " in said
    assert "next check is due " in said
    [line] = [one for one in terminal("doctor", "--json").json["checks"] if one["name"] == "tool"]
    assert line["details"] == row.to_dict()
    assert f"on schedule: unhealthy at {health['lastCheck']}, next check at {health['nextCheck']}" in line["message"]
    assert terminal("tools", "info", "echo", "--json").json["health"] is None
