"""The engine when things go wrong around it: callers go away, it is closed, workers die, many want something at once."""

import asyncio
import os
import random
import resource
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.patience import SOON, until
from toolgate import Actor, App
from toolgate.errors import NotReached
from toolgate.sandbox.engine import Language, Sandbox
from toolgate.sandbox.jail import ProgramFolder
from toolgate.sandbox.jails.process_tree import descendants
from toolgate.sandbox.results import CodeResult, CommandResult
from toolgate.sandbox.worker_protocol import CodeFailure, Worker
from toolgate.settings import SandboxSettings

pytestmark = pytest.mark.requirement("SBX-2")

ANN = Actor("acme", user="ann")
WORKER = "import sys\n"
"""What begins so is not for Monty."""
LANES: tuple[tuple[Language, str], ...] = (
    ("python", f"{WORKER}7"), ("python", "3 + 4"), ("typescript", "return 7"),
)  # fmt: skip
MAKE = Callable[..., Sandbox]


@pytest.fixture
async def make() -> AsyncIterator[MAKE]:
    """Makes sandboxes, and closes them."""
    made: list[Sandbox] = []

    def one(**settings: Any) -> Sandbox:
        made.append(Sandbox(SandboxSettings(**{"seconds": 60, **settings})))
        return made[-1]

    yield one
    for sandbox in made:
        await sandbox.close()


_others: set[int] = set()


@pytest.fixture(autouse=True)
def servers_of_other_tests() -> None:
    """What runs below us already (a database, say) is none of ours, and must not be touched."""
    _others.clear()
    _others.update(descendants(os.getpid()))


def ours() -> list[int]:
    """The processes below us that a test has begun."""
    theirs = {pid for other in _others for pid in (other, *descendants(other))}
    return [pid for pid in descendants(os.getpid()) if pid not in theirs]


def jailed(kind: str = "") -> list[int]:
    """The processes below us that a jail has begun, by a word of their command lines."""
    found = []
    for pid in ours():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if words and kind.encode() in words and not words.split(b"\0")[0].endswith(b"/bwrap"):
                found.append(pid)
    return found


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


STARTERS = ("starter.py", "namespace_launcher.py", "landlock_launcher.py")
"""One of them is in the command line of a worker, whichever jail holds it."""


async def warm(sandbox: Sandbox, workers: int = 1) -> None:
    """Have Python workers wait for work."""
    ran = await sandbox.run_code("python", f"{WORKER}1")
    assert ran.value == 1, ran.failure
    pool = sandbox._pool
    assert pool is not None
    await until(lambda: sum(len(shelf.idle) for shelf in pool._shelves.values()) >= workers, "they are ready")
    assert any(jailed(word) for word in STARTERS)


# -- callers that go away


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_whoever_goes_away_leaves_nothing_behind(make: MAKE) -> None:
    """At any moment: before there is a place or a worker, while the code asks for something, while it is being ended."""
    first = make()
    await first.run_code("python", "3 + 4")  # Monty's library keeps what it opened once
    await first.close()
    before, chance = open_files(), random.Random(20261115)
    sandbox = make(at_once=4)

    async def serve(_wanted: str, given: list[Any]) -> Any:
        await asyncio.sleep(0.01)
        return given

    def run(number: int) -> Coroutine[Any, Any, object]:
        match number % 5:
            case 0:
                return sandbox.run_command(["sleep", "0.05"])
            case 1:
                return sandbox.check("python", f"def execute(args, context): return {number}")
            case 2:
                return sandbox.run_code("python", f"{WORKER}tools.x(a=1)", mode="program", serve=serve)
            case _:
                return sandbox.run_code(*LANES[number % 3])

    async def leave(number: int) -> bool:
        running = asyncio.ensure_future(run(number))
        await asyncio.sleep(chance.random() * 0.25)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return running.cancelled()

    gone = [await asyncio.gather(*(leave(number) for number in range(turn, turn + 12))) for turn in range(0, 60, 12)]
    assert sum(map(sum, gone)) > 5, "hardly anybody went away, so this proves nothing"
    again = await asyncio.gather(*(sandbox.run_code(*LANES[number % 3]) for number in range(12)))
    assert [ran.value for ran in again] == [7] * 12
    await sandbox.close()
    assert ours() == []
    assert open_files() <= before


async def test_workers_that_nobody_waits_for_any_more_stay_within_what_is_kept_warm(make: MAKE) -> None:
    sandbox = make(warm=0, at_once=6)
    await sandbox.run_code("typescript", "return 1")
    leaving = [asyncio.ensure_future(sandbox.run_code("typescript", "return 1")) for _ in range(6)]
    await until(lambda: len(ours()) >= 6, "all of them are being started")
    for running in leaving:
        running.cancel()
    await asyncio.wait(leaving)
    await until(lambda: not jailed("deno_runner.js"), "none is kept")


# -- closing


async def test_closing_ends_what_runs(make: MAKE) -> None:
    """In a worker that was warm and in one that was not, in Monty, and a command: at once, not when its time is up."""
    sandbox = make()
    await warm(sandbox)
    running = [
        asyncio.ensure_future(sandbox.run_code("python", f"{WORKER}while True: pass")),
        asyncio.ensure_future(sandbox.run_code("typescript", "while (true) {}")),
        asyncio.ensure_future(sandbox.run_code("python", "while True:\n    pass")),
        asyncio.ensure_future(sandbox.run_command(["sleep", "1000"])),
    ]
    await until(lambda: bool(jailed("sleep")) and bool(jailed("deno_runner.js")), "they run")
    await asyncio.sleep(0.3)
    async with asyncio.timeout(SOON):
        await sandbox.close()
        ended = await asyncio.gather(*running, return_exceptions=True)
    for one in ended:
        assert isinstance(one, CodeResult | CommandResult | NotReached), one
        assert not isinstance(one, CodeResult) or one.failure is not None
    assert ours() == []


@pytest.mark.parametrize("turns", [0, 1, 3, 10])
async def test_whoever_waits_for_a_jail_that_is_closed_is_told_so(make: MAKE, turns: int) -> None:
    """And not cancelled: that would seem to be the caller's own doing."""
    sandbox = make(monty=False)
    running = asyncio.ensure_future(sandbox.run_code("python", "7"))
    for _ in range(turns):
        await asyncio.sleep(0)
    await sandbox.close()
    async with asyncio.timeout(SOON):
        (ended,) = await asyncio.gather(running, return_exceptions=True)
    assert isinstance(ended, NotReached), ended
    assert ended.code == "SANDBOX_UNAVAILABLE"


async def test_nothing_runs_in_what_is_closed(make: MAKE) -> None:
    sandbox = make()
    for language, code in LANES:
        assert (await sandbox.run_code(language, code)).value == 7
    await sandbox.close()
    await sandbox.close()
    for language, code in LANES:
        with pytest.raises(NotReached, match="closed"):
            await sandbox.run_code(language, code)
    with pytest.raises(NotReached, match="closed"):
        await sandbox.run_command(["true"])


# -- workers that die


async def test_a_worker_that_died_before_it_was_heard_that_it_is_ready_is_not_handed_out(
    make: MAKE, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, died = Worker.ready, list[Worker]()

    async def then_die(worker: Worker) -> None:
        await ready(worker)
        if len(died) < 2:
            died.append(worker)
            for pid in jailed():
                os.kill(pid, signal.SIGKILL)
            await until(lambda: not worker.process.is_alive(), "it is dead")

    monkeypatch.setattr(Worker, "ready", then_die)
    ran = await make(monty=False, warm=0).run_code("python", "7")
    assert (ran.value, len(died)) == (7, 2), ran.failure


async def test_a_worker_that_died_while_it_waited_is_not_handed_out(make: MAKE) -> None:
    sandbox = make(monty=False, warm=2)
    await warm(sandbox, 2)
    for pid in jailed():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)
    ran = await sandbox.run_code("python", "7")
    assert ran.value == 7, ran.failure


async def test_a_look_that_fails_does_not_end_all_looking(make: MAKE) -> None:
    """The host has no descriptors left for a moment. What is then not seen to is ended, or seen to afterwards."""
    sandbox = make(memory_mb=96)
    grow = "import os,time\nos.fork()\ntime.sleep(1.5)\nx = bytearray(80 << 20)\ntime.sleep(1000)"
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _trouble: None)
    first = asyncio.ensure_future(sandbox.run_command(["sleep", "1000"], seconds=SOON))
    await until(lambda: bool(jailed("sleep")), "one runs, which is looked at before the other")
    running = asyncio.ensure_future(sandbox.run_command(["python3", "-c", grow], seconds=SOON))
    await until(lambda: len(jailed("bytearray")) >= 2, "it runs")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        await asyncio.sleep(0.2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    ended = await running
    assert ended.stopped in ("memory", None), "its memory was not looked at any more"
    assert ended.exit_code == -signal.SIGKILL
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first


# -- what a worker sees


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_what_is_hidden_stays_hidden_when_the_host_replaces_it(make: MAKE, tmp_path: Path) -> None:
    """An editor saves by renaming, which takes away what was mounted there in a worker that waits."""
    sandbox = make(monty=False)
    work = tmp_path / "work"
    work.mkdir()
    secret, settings = work / ".env", work / ".mcp.json"
    read = """
seen = []
for name in ('.env', '.mcp.json'):
    try: seen.append(open(name).read())
    except OSError: seen.append('')
try:
    open('.mcp.json', 'w').write('mine')
except OSError: pass
seen
"""
    for text in ("one", "two", "three"):
        for path in (secret, settings):
            (work / "new").write_text(text)
            (work / "new").chmod(0o666)
            (work / "new").rename(path)
        folder = ProgramFolder(path=work, hidden=(secret,), fixed=(settings,))
        ran = await sandbox.run_code("python", read, workspace=folder)
        assert ran.value == ["", text], ran.failure
        assert settings.read_text() == text
        await asyncio.sleep(0.4)  # for what is kept warm to be ready


# -- many at once, and inside of one another


@pytest.mark.matrix("many programs in the sandbox at once")
async def test_many_of_all_kinds_each_get_their_own_answer(make: MAKE) -> None:
    sandbox = make()

    async def run(number: int) -> object:
        match number % 4:
            case 0:
                return (await sandbox.run_code("python", f"{WORKER}{number}")).value
            case 1:
                return (await sandbox.run_code("typescript", f"return {number}")).value
            case 2:
                return (await sandbox.run_code("python", f"{number}")).value
            case _:
                return int((await sandbox.run_command(["echo", str(number)])).stdout)

    assert await asyncio.gather(*map(run, range(60))) == list(range(60))


async def test_programs_that_run_code_do_not_wait_for_one_another(make: MAKE) -> None:
    """As many programs as can run at once, each of which has more code run."""
    sandbox = make(seconds=SOON)

    async def serve(_wanted: str, given: list[Any]) -> Any:
        return (await sandbox.run_code("python", given[1]["code"], depth=1)).value

    programs = (
        sandbox.run_code("python", "tools.run(code='3 + 4')", mode="program", serve=serve)
        for _ in range(sandbox.settings.at_once)
    )
    ran = await asyncio.gather(*programs)
    assert [(one.value, one.stopped) for one in ran] == [(7, None)] * sandbox.settings.at_once


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_the_time_that_a_run_waits_for_its_turn_is_not_its_own(make: MAKE) -> None:
    sandbox = make(at_once=1)
    seconds, begun, go_on = 2.0, asyncio.Event(), asyncio.Event()

    async def serve(_wanted: str, _given: list[Any]) -> int:
        begun.set()
        await go_on.wait()
        return 7

    first = asyncio.ensure_future(sandbox.run_code("python", "tools.run()", mode="program", serve=serve))
    await asyncio.wait_for(begun.wait(), SOON)
    second = asyncio.ensure_future(sandbox.run_code("python", "3 + 4", seconds=seconds))
    await asyncio.sleep(seconds + 0.1)
    go_on.set()
    assert [(one.value, one.stopped) for one in await asyncio.gather(first, second)] == [(7, None)] * 2


SLOW = """
name: slow
description: Gives seven.
version: 1.0.0
runtime: python
permissions: {riskLevel: low}
schema: {type: object, properties: {}}
code: |
  def execute(args, context):
      return 7
"""


@pytest.mark.matrix("waits for a time limit")
@pytest.mark.requirement("SBX-2", "PIPE-7")
async def test_a_callers_timeout_holds_while_a_tool_waits_for_a_place(tmp_path: Path) -> None:
    tools = tmp_path / "home" / "tools"
    tools.mkdir(parents=True)
    (tools / "slow.yml").write_text(SLOW)
    async with App.open(os.devnull, home=tmp_path / "home", sandbox={"seconds": 60, "at_once": 1}) as app:
        app.approvals.add_approver(lambda _request: True)
        assert (await app.invoke("slow", {}, actor=ANN)).output == 7
        code = {"code": f"{WORKER}while True: pass"}
        running = asyncio.ensure_future(app.invoke("code_execute", code, actor=ANN))
        await until(app.parts.sandbox._room(0).locked, "the only place is taken")
        late = await app.invoke("slow", {}, actor=ANN, timeout=0.2)
        assert not running.done(), "nobody had to wait, so this proves nothing"
        assert late.error is not None and late.error.code == "TIMEOUT"
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


# -- what is said and heard


@pytest.mark.parametrize("code", [WORKER, ""], ids=["worker", "monty"])
async def test_a_host_that_fails_to_answer_says_so(make: MAKE, code: str) -> None:
    """Whatever it is: code that asked is not left waiting until its time is up."""
    sandbox = make(seconds=SOON)

    async def serve(_wanted: str, _given: list[Any]) -> Any:
        raise KeyError("somebody's mistake")

    ran = await sandbox.run_code("python", f"{code}tools.run()", mode="program", serve=serve)
    assert ran.stopped is None
    assert ran.failure is not None and ran.failure.name == "ToolError"
    assert "mistake" not in str(ran.failure), "what went wrong in the host is not the code's to know"


async def test_a_command_can_not_say_that_it_was_never_run(make: MAKE) -> None:
    """A call that was not reached is not paid for, and is made again."""
    code = "import sys; sys.stderr.write('toolgate-starter: no')"
    ended = await make().run_command(["python3", "-c", code])
    assert (ended.exit_code, ended.stderr) == (0, "toolgate-starter: no")


async def test_what_a_check_found_is_kept_for_the_same_question_only(make: MAKE) -> None:
    sandbox, code = make(), "export const x = 1;"
    missing = await sandbox.check("typescript", code)
    assert isinstance(missing, CodeFailure) and missing.kind == "missing"
    assert await sandbox.check("typescript", code, wants_execute=False) is None
    ran = await sandbox.run_code("typescript", code, mode="tool")
    assert ran.failure is not None and ran.failure.kind == "missing"


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", WORKER + "sys.stdout.write('x' * {size})"),
        ("python", "print('x' * {size}, end='')"),
        ("typescript", "console.log('x'.repeat({size} - 1))"),
    ],
    ids=["python", "monty", "deno"],
)
async def test_output_may_be_as_long_as_the_limit_and_no_longer(make: MAKE, language: Language, code: str) -> None:
    sandbox = make(output_bytes=50_000)
    just = await sandbox.run_code(language, code.format(size=50_000))
    assert (len(just.stdout), just.stopped, just.failure) == (50_000, None, None)
    over = await sandbox.run_code(language, code.format(size=50_001))
    assert (len(over.stdout), over.stopped) == (50_000, "output")


async def test_a_command_may_write_as_much_as_the_limit_and_no_more(make: MAKE) -> None:
    sandbox = make(output_bytes=50_000)
    just = await sandbox.run_command(["head", "-c", "50000", "/dev/zero"])
    assert (len(just.stdout), just.stopped, just.exit_code) == (50_000, None, 0)
    over = await sandbox.run_command(["head", "-c", "50001", "/dev/zero"])
    assert (len(over.stdout), over.stopped) == (50_000, "output")


async def test_what_is_no_text_comes_out_as_text(make: MAKE) -> None:
    sandbox = make()
    ended = await sandbox.run_command(["printf", r"a\xff\xfeb"])
    assert ended.stdout == "a\ufffd\ufffdb"
    ran = await sandbox.run_code("python", "import os\nos.write(2, bytes([97, 255, 0x1e, 10]))\n7")
    assert (ran.value, ran.failure) == (7, None)
    assert ran.stderr == "a\ufffd\x1e\n"


@pytest.mark.matrix("sends megabytes into the sandbox")
@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "def execute(args, context): return len(args['text'])"),
        ("typescript", "export const execute = (args) => args.text.length;"),
    ],
)
async def test_large_arguments_and_code_arrive_whole(make: MAKE, language: Language, code: str) -> None:
    comment = ("# " if language == "python" else "// ") + "x" * 1_000_000 + "\n"
    ran = await make().run_code(language, comment + code, mode="tool", arguments={"text": "y" * 10_000_000})
    assert (ran.value, ran.failure) == (10_000_000, None)


@pytest.mark.matrix("waits for time limits")
@pytest.mark.parametrize("seconds", [0.001, 0.05])
async def test_a_limit_shorter_than_a_start_ends_a_run_and_nothing_else(make: MAKE, seconds: float) -> None:
    sandbox = make()
    for language, code in (("python", f"{WORKER}while True: pass"), ("typescript", "for (;;) {}"), ("python", "while 1: 1")):
        assert (await sandbox.run_code(language, code, seconds=seconds)).stopped == "time"  # type: ignore[arg-type]
    assert (await sandbox.run_command(["sleep", "1000"], seconds=seconds)).stopped == "time"
    assert [(await sandbox.run_code(*lane)).value for lane in LANES] == [7, 7, 7]
