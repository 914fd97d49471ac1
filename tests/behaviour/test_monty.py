"""Small Python in Monty: what it gives, what stops it, what holds its worker, and that nothing is left behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
import pytest_asyncio

from tests.patience import until
from toolgate.sandbox.jail import FEATURES, MB, ResourceLimits, Stopped
from toolgate.sandbox.jails.landlock import version
from toolgate.sandbox.runtimes.monty import runtime
from toolgate.sandbox.runtimes.monty.run import MontyResult
from toolgate.sandbox.runtimes.monty.runtime import FOLDER_PREFIX, ConfinedCommand, MontyRuntime
from toolgate.sandbox.worker_protocol import Refusal, Serve

pytestmark = pytest.mark.requirement("SBX-2", "SBX-3")

LIMITS = ResourceLimits(seconds=10)


@pytest_asyncio.fixture
async def lane() -> AsyncIterator[MontyRuntime]:
    made = MontyRuntime(LIMITS)
    yield made
    await made.close()


async def run(
    lane: MontyRuntime,
    code: str,
    mode: str = "script",
    serve: Serve | None = None,
    limits: ResourceLimits = LIMITS,
    **job: Any,
) -> tuple[MontyResult, Stopped | None]:
    return await lane.run({"mode": mode, "code": code, "arguments": {}, "tools": None, **job}, serve, limits)


def workers() -> list[int]:
    """Of this process."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return [pid for pid in found if "monty" in Path(f"/proc/{pid}/cmdline").read_text()]


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"))


# -- what it gives


async def test_a_program_gives_its_last_value_and_what_it_printed(lane: MontyRuntime) -> None:
    heard, stopped = await run(lane, "print('so', args['n'])\n{'n': args['n'] + 1}", arguments={"n": 1})
    assert (heard.value, heard.stdout, heard.failure, stopped) == ({"n": 2}, "so 1\n", None, None)
    assert not heard.doubtful


async def test_a_run_knows_nothing_of_the_run_before(lane: MontyRuntime) -> None:
    await run(lane, "secret = 'of another caller'")
    heard, _ = await run(lane, "secret")
    assert heard.failure is not None
    assert heard.failure.name == "NameError"


async def test_many_at_once_do_not_mix(lane: MontyRuntime) -> None:
    runs = await asyncio.gather(*(run(lane, "x = args['n']\nprint(x)\nx * 2", arguments={"n": n}) for n in range(40)))
    assert [(heard.value, heard.stdout) for heard, _ in runs] == [(2 * n, f"{n}\n") for n in range(40)]


async def test_an_error_has_its_place_in_the_programs_text(lane: MontyRuntime) -> None:
    heard, _ = await run(lane, "def f(x):\n    return x / 0\n\n\n[1, f(3)]")
    assert heard.failure is not None
    assert (heard.failure.kind, heard.failure.name, heard.failure.line, heard.failure.column) == (
        "raised",
        "ZeroDivisionError",
        2,
        12,
    )
    assert heard.failure.stack == "line 5, in <module>: [1, f(3)]\nline 2, in f: return x / 0"
    assert heard.doubtful
    heard, _ = await run(lane, "é = 0\n[é, 1 / é]")
    assert heard.failure is not None
    assert (heard.failure.line, heard.failure.column) == (2, 5)


@pytest.mark.parametrize(
    "code", ["x = []\nx.append(x)\nx", "len", "{1, 2}", "2**70", "float('nan')", "{(1, 2): 3}", "'x' * 2_000_000"]
)
async def test_what_is_no_json_is_no_result(lane: MontyRuntime, code: str) -> None:
    heard, _ = await run(lane, code)
    assert heard.failure is not None
    assert heard.failure.kind == "value"
    assert heard.doubtful


# -- tools


async def test_a_program_calls_tools_through_the_host(lane: MontyRuntime) -> None:
    async def serve(wanted: str, given: list[Any]) -> Any:
        await asyncio.sleep(0)
        return {"asked": [wanted, *given]}

    code = """
a = tools.add(a=1)
b = tools.call('odd-name', {'x': [1]})
c = tools.parallel([('n', {'n': n}) for n in range(30)])
[a, b, len(c), c[29]]
"""
    heard, _ = await run(lane, code, "program", serve)
    assert heard.value == [
        {"asked": ["tool", "add", {"a": 1}]},
        {"asked": ["tool", "odd-name", {"x": [1]}]},
        30,
        {"asked": ["tool", "n", {"n": 29}]},
    ]


async def test_a_refused_call_ends_the_program_with_its_code(lane: MontyRuntime) -> None:
    async def serve(_wanted: str, _given: list[Any]) -> Any:
        raise Refusal("PERMISSION_DENIED", "not for you")

    heard, _ = await run(lane, "1\ntools.pay(dollars=5)", "program", serve)
    assert heard.failure is not None
    assert (heard.failure.name, heard.failure.message) == ("ToolError", "PERMISSION_DENIED: not for you")
    assert heard.failure.line == 2
    assert not heard.doubtful, "a tool was called, so it must not be run again"


async def test_only_tools_that_are_named_can_be_called_and_only_with_json(lane: MontyRuntime) -> None:
    asked = []

    async def serve(_wanted: str, given: list[Any]) -> Any:
        asked.append(given)

    for code in ("tools.other()", "tools.add(a={1})", "tools.add(1, 2)", "tools.parallel([1])", "tools.call()", "add(a=1)"):
        heard, _ = await run(lane, code, "program", serve, tools=["add"])
        assert heard.failure is not None
        assert heard.failure.kind == "raised"
    assert asked == []


async def test_time_spent_in_tools_counts(lane: MontyRuntime) -> None:
    cancelled = asyncio.Event()

    async def serve(_wanted: str, _given: list[Any]) -> Any:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    heard, stopped = await run(lane, "tools.slow()", "program", serve, ResourceLimits(seconds=0.2))
    assert stopped == "time"
    assert heard.failure is not None
    await asyncio.wait_for(cancelled.wait(), 30)


# -- what stops it


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("while True:\n    pass", "time"),
        ("x = 3\nwhile True:\n    x = x * x", "time"),
        ("x = []\nwhile True:\n    x.append('text')", "memory"),
        ("while True:\n    print('x' * 1000)", "output"),
    ],
)
async def test_limits(lane: MontyRuntime, code: str, why: Stopped) -> None:
    limits = ResourceLimits(seconds=0.5 if why == "time" else 60, memory=32 * MB, output=100_000)
    began = time.monotonic()
    heard, stopped = await run(lane, code, limits=limits)
    assert stopped == why
    assert heard.failure is not None
    assert heard.failure.kind == "died"
    assert time.monotonic() - began < 50
    assert len(heard.stdout) <= 100_000
    assert (await run(lane, "1 + 1"))[0].value == 2


async def test_memory_that_monty_does_not_count_is_held_by_the_kernel(lane: MontyRuntime) -> None:
    heard, _ = await run(lane, "x = [0] * 10\nwhile True:\n    x = x + x")
    assert heard.failure is not None
    assert heard.failure.kind == "died"
    assert (await run(lane, "1 + 1"))[0].value == 2


async def test_endless_recursion_is_an_error(lane: MontyRuntime) -> None:
    heard, _ = await run(lane, "def f():\n    return f()\nf()")
    assert heard.failure is not None
    assert heard.failure.name == "RecursionError"


async def test_whoever_goes_away_takes_the_run_along(lane: MontyRuntime) -> None:
    await run(lane, "1")
    running = asyncio.ensure_future(run(lane, "x = 3\nwhile True:\n    x = x * x", limits=ResourceLimits(seconds=60)))
    await asyncio.sleep(0.2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await asyncio.wait_for(asyncio.gather(*(run(lane, "1 + 1") for _ in range(8))), 30))[0][0].value == 2


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd').read()",
        "from pathlib import Path\nPath('/etc/passwd').read_text()",
        "import os\nos.listdir('/')",
        "import os\nos.getenv('PATH') or 1 / 0",
        "import os\nos.system('true')",
        "import socket",
        "import subprocess",
        "import ctypes",
        "__import__('os')",
        "(1).__class__.__base__.__subclasses__()",
    ],
)
async def test_what_does_not_fit_gets_nowhere_either(lane: MontyRuntime, code: str) -> None:
    assert not lane.takes({"mode": "script", "code": code})
    heard, _ = await run(lane, code)
    assert heard.failure is not None
    assert (await run(lane, "'control'"))[0].value == "control"


# -- what holds the worker


async def test_the_worker_has_no_rights(lane: MontyRuntime) -> None:
    await run(lane, "1")
    (pid,) = workers()
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    assert version() >= 3, "the worker can't be held on this kernel"
    assert status["Seccomp"].strip() == "2"
    assert status["NoNewPrivs"].strip() == "1"
    assert (
        int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapBnd"], 16) & int(status["CapEff"], 16) == 0
    )
    if os.geteuid() == 0:
        assert int(status["Uid"].split()[0]) > 1_000_000
    assert Path(f"/proc/{pid}/environ").read_bytes() == b""
    kinds = [str(Path(f"/proc/{pid}/fd/{name}").readlink()) for name in descriptors_of(pid) if int(name) > 2]
    assert not [kind for kind in kinds if kind.startswith(("/", "socket"))]


async def test_every_feature_is_accounted_for(lane: MontyRuntime) -> None:
    assert set(lane.enforces()) == set(FEATURES)


# -- what is left behind


async def test_a_thousand_runs_leave_nothing(lane: MontyRuntime) -> None:
    code = "x = [n * n for n in range(100)]\nprint(sum(x))\nsum(x)"
    for _ in range(50):
        await run(lane, code)
    before, descriptors = workers(), descriptors_of("self")
    memory = [resident(pid) for pid in before]
    for _ in range(1_000):
        heard, _ = await run(lane, code)
        assert heard.value == 328_350
    assert workers() == before
    assert len(descriptors_of("self")) == len(descriptors)
    assert [resident(pid) - was < 4 * MB for pid, was in zip(before, memory, strict=True)] == [True] * len(before)


def descriptors_of(pid: int | str) -> list[str]:
    return sorted(descriptor.name for descriptor in Path(f"/proc/{pid}/fd").iterdir())


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_closing_leaves_no_process_and_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    own = f"{FOLDER_PREFIX}{os.getpid()}-"  # other tests make theirs at the same time
    monkeypatch.setattr(runtime, "FOLDER_PREFIX", own)
    lane = MontyRuntime(LIMITS)
    await asyncio.gather(*(run(lane, "sum(range(1000))") for _ in range(10)))
    running = asyncio.ensure_future(run(lane, "while True:\n    pass", limits=ResourceLimits(seconds=60)))
    await asyncio.sleep(0.1)
    pids = workers()
    assert pids
    assert [*Path(tempfile.gettempdir()).glob(f"{own}*")] or version() < 3
    await lane.close()
    await running
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert not [*Path(tempfile.gettempdir()).glob(f"{own}*")]
    unused = MontyRuntime(LIMITS)
    await unused.close()


HOST = """
import asyncio, json, os, sys
from toolgate.sandbox.runtimes.monty.runtime import MontyRuntime
from toolgate.sandbox.jail import ResourceLimits
from tests.behaviour.test_monty import run, workers

async def main():
    lane = MontyRuntime(ResourceLimits())
    await run(lane, "1")
    print(json.dumps(workers()), flush=True)
    await run(lane, sys.argv[1])
    if len(sys.argv) > 2:
        await lane.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("code", ["x = 3\nwhile True:\n    x = x * x", "while True:\n    pass"])
async def test_workers_end_with_a_host_that_is_killed(code: str) -> None:
    host = subprocess.Popen([sys.executable, "-c", HOST, code], stdout=subprocess.PIPE, env=surroundings())
    assert host.stdout is not None
    pids = json.loads(host.stdout.readline())
    assert pids
    await asyncio.sleep(0.2)
    host.send_signal(signal.SIGKILL)
    host.wait()
    host.stdout.close()
    await until(lambda: not any(is_running(pid) for pid in pids))
    left = folders()
    lane = MontyRuntime(LIMITS)
    await run(lane, "1")
    await lane.close()
    assert not any(folder in folders() for folder in left if not is_locked(folder))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def is_locked(folder: Path) -> bool:
    """Whether its owner lives: another test's, at the same time."""
    import fcntl

    try:
        with (folder / "order").open("rb") as order:
            fcntl.flock(order, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@pytest.mark.matrix("starts processes that end")
@pytest.mark.parametrize("closes", [True, False])
def test_a_host_ends_quietly(closes: bool) -> None:
    """Monty's asynchronous interface aborts the process at its end, now and then; ours does not use it."""
    for _ in range(5):
        command = [sys.executable, "-c", HOST, "1 + 1", *(["close"] if closes else [])]
        ended = subprocess.run(command, capture_output=True, env=surroundings(), timeout=60)
        assert (ended.returncode, ended.stderr) == (0, b"")


def surroundings() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}


async def test_it_starts_though_another_process_has_its_command_open_for_a_moment(
    lane: MontyRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that another thread forks while the command is written has it open until it starts its own program."""
    write = ConfinedCommand._write

    def written_beside_a_fork(held: ConfinedCommand, binary: Path, limits: ResourceLimits) -> None:
        write(held, binary, limits)
        forked = held.path.open("ab")
        Timer(0.3, forked.close).start()

    monkeypatch.setattr(ConfinedCommand, "_write", written_beside_a_fork)
    ran, _ = await run(lane, "6 * 7")
    assert (ran.value, lane.broken) == (42, None)
