"""The pytest plugin: fixtures for tests of tools, found by pytest where Toolgate is installed.

It imports nothing of Toolgate until a test asks for a fixture, so that it costs others' runs nothing. `-p no:toolgate`
leaves it out.
"""

import inspect
import os
from collections.abc import Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from toolgate.testing.app import FixtureApp, ManualClock, RecordedCalls, ScriptedApprover

APP = "toolgate_app"


@pytest.fixture
def toolgate_clock() -> "ManualClock":
    """A clock that moves only when told to: `toolgate_clock.advance(hours=1)`."""
    from toolgate.testing.app import ManualClock

    return ManualClock()


@pytest.fixture
def toolgate_approver() -> "ScriptedApprover":
    """The approver that is asked about calls: `toolgate_approver.approve()`, `.reject()`, `.edit({...})`, `.questions`."""
    from toolgate.testing.app import ScriptedApprover

    return ScriptedApprover()


@pytest.fixture
def toolgate_calls() -> "RecordedCalls":
    """The calls that were made: `toolgate_calls.of("add")[0].arguments`."""
    from toolgate.testing.app import RecordedCalls

    return RecordedCalls()


@pytest.fixture
def toolgate_settings() -> dict[str, Any]:
    """Settings of the App, beside those that keep it apart. Override it in a test module or a conftest.py."""
    return {}


@pytest.fixture
def toolgate_app(
    toolgate_clock: "ManualClock",
    toolgate_approver: "ScriptedApprover",
    toolgate_calls: "RecordedCalls",
    toolgate_settings: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> "Iterator[FixtureApp]":
    """An App in memory, apart from the settings, data, secrets and trust of whoever runs the tests. In an async test it is
    open; in another, `toolgate_app.call(add, {...})` calls a tool."""
    from toolgate.gates.secrets.names import ENVIRONMENT_PREFIX, SERVER_PREFIX
    from toolgate.testing.app import FixtureApp, isolated_settings

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "toolgate-config"))
    monkeypatch.delenv("TOOLGATE_TRUST", raising=False)
    for variable in [name for name in os.environ if name.startswith((ENVIRONMENT_PREFIX, SERVER_PREFIX))]:
        monkeypatch.delenv(variable)  # a test must not use a person's secrets by chance: it sets its own
    app = FixtureApp(
        isolated_settings({"home": tmp_path / "toolgate-home", **toolgate_settings}), time_source=toolgate_clock
    )
    app.approvals.add_approver(toolgate_approver)
    app.record(toolgate_calls)
    yield app
    app.close()


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Have an async test run with its App open. Whichever plugin runs the test (pytest-asyncio, anyio) takes it from `obj`;
    an async fixture would need the mode and the loop of that plugin. The report of a failed test shows its calls."""
    app: Any = item.funcargs.get(APP) if isinstance(item, pytest.Function) else None
    if app is None:
        yield
        return
    test: Any = item.obj  # type: ignore[attr-defined]

    @wraps(test)
    async def opened(*args: Any, **kwargs: Any) -> Any:
        async with app:
            return await test(*args, **kwargs)

    if inspect.iscoroutinefunction(test):
        item.obj = opened  # type: ignore[attr-defined]
    yield
    item.obj = test  # type: ignore[attr-defined]
    if len(app.calls):
        item.add_report_section("call", "toolgate", "\n".join(map(str, app.calls)))
