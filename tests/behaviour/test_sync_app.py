"""`App.open_sync`: the App for scripts and notebooks, in a thread of its own."""

import ast
import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.docs.synchronous_app import STUB, written
from tests.mcp_upstream import Upstream
from tests.mcp_upstream import tool as offered
from tests.patience import SOON
from tests.teletype import Teletype
from tests.terminal import Terminal
from toolgate import App, InvokeContext, tool
from toolgate.app.loop_thread import LoopThread
from toolgate.app.sync_app import SyncApp
from toolgate.app.sync_bridge import bridged
from toolgate.errors import NotOpen, StoreError, ToolgateError
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-1", "PIPE-1")

SECONDS = 60
TRACE: ContextVar[str] = ContextVar("trace", default="none")


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(tier="read_only")
async def trace() -> str:
    """Tell what the caller's context holds."""
    return TRACE.get()


@tool(tier="external_api")
async def pay(amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount}"


@pytest.fixture
def app() -> Iterator[SyncApp]:
    with SyncApp(memory_app()) as app:
        for one in (add, trace, pay):
            app.register(one)
        yield app


def test_a_script_opens_calls_and_closes(tmp_path: Path) -> None:
    with App.open_sync(os.devnull, home=tmp_path, entry_points=False) as app:
        app.register(add)
        outcome = app.invoke("add", {"a": 1, "b": 2})
        assert (outcome.status, outcome.output) == ("success", 3)
        assert app.invoke(add, {"a": 1, "b": "x"}).status == "failure"
        assert app.settings.home == tmp_path and app.metrics is None
        app.flush()
        assert [row[5] for row in app.audit.latest(10) if row[2] == "end"] == ["add", "add"]
    with pytest.raises(NotOpen, match=r"with App\.open_sync"):
        app.invoke("add", {"a": 1, "b": 2})
    app.close()
    with pytest.raises(ToolgateError, match="opened before"):
        app.start()
    assert not [one for one in threading.enumerate() if one.name == "toolgate-app"]


def test_facets_have_the_same_names_and_block(app: SyncApp) -> None:
    waiting = app.invoke("pay", {"amount": 5})
    assert waiting.pending is not None
    [question] = app.approvals.list()
    assert question.request.tool == "pay"
    app.approvals.answer(waiting.pending.id, True)
    assert app.approvals.resume(waiting.pending.id).output == "paid 5"
    assert "add" in [one.name for one in app.tools.list()]
    with pytest.raises(ToolgateError, match="no approval"):
        app.approvals.get("ap_none", None)
    assert "Calls a tool" in (inspect.getdoc(app.invoke) or "") and "idempotency_key" in str(inspect.signature(app.invoke))
    assert {"invoke", "tools", "approvals", "register", "settings"} <= {*dir(app)}
    assert {"list", "answer"} <= {*dir(app.approvals)} and "_parts" not in dir(app.approvals)
    for name in ("parts", "open", "open_sync", "mcp_tasks", "nothing", "_lifecycle"):
        with pytest.raises(AttributeError):
            getattr(app, name)


def test_an_approver_is_asked_and_answers(app: SyncApp) -> None:
    seen: list[str] = []

    def ask(request: Any) -> bool:
        seen.append(threading.current_thread().name)
        return bool(request.arguments["amount"] < 10)

    app.approvals.add_approver(ask)
    assert app.invoke("pay", {"amount": 5}).output == "paid 5"
    assert app.invoke("pay", {"amount": 50}).status == "denied"
    assert "toolgate-app" not in seen, "a plain function has a thread in which it may wait"


def test_what_is_entered_with_async_with_is_entered_without_async(app: SyncApp) -> None:
    with app.audit.tail.watching() as watcher:
        app.invoke("add", {"a": 1, "b": 2})
        app.flush()
        until = time.monotonic() + SOON
        found: list[Any] = []
        while not found and time.monotonic() < until:
            found = watcher.take(1.0)
        assert found[0].tool == "add"
    queued = app.enqueue("add", {"a": 1, "b": 2})
    assert queued.pending is not None
    with app.jobs.worker(once=True) as worker:
        worker.wait()
    assert [job.state for job in app.jobs.follow(queued.pending.id)] == ["done"], "and with `for`, what needs `async for`"


def test_what_is_iterated_with_async_for_is_iterated_without_async() -> None:
    ended = threading.Event()

    async def count() -> AsyncIterator[int]:
        try:
            for number in range(5):
                await asyncio.sleep(0)
                yield number
        finally:
            ended.set()

    thread = LoopThread()
    thread.start()
    try:
        assert list(bridged(thread, thread.call(count))) == [0, 1, 2, 3, 4] and ended.is_set()
        ended.clear()
        for number in bridged(thread, thread.call(count)):
            if number == 2:
                break
        assert ended.wait(SOON), "who leaves a loop ends what it went over"
        ended.clear()
        numbers = bridged(thread, thread.call(count))
        assert next(numbers) == 0
        numbers.close()
        assert ended.is_set() and list(numbers) == []
    finally:
        thread.stop()


async def test_it_works_where_an_event_loop_runs_already() -> None:
    """As in a notebook, or in an async function that calls a plain one."""
    with SyncApp(memory_app()) as app:
        app.register(add)
        assert app.invoke("add", {"a": 1, "b": 2}).output == 3


def test_any_thread_may_use_it_and_takes_its_context_along(app: SyncApp) -> None:
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        TRACE.set(f"thread {number}")
        found[number] = [app.invoke("add", {"a": number, "b": 1}).output for _ in range(20)], app.invoke("trace").output

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(SECONDS)
    assert found == {number: ([number + 1] * 20, f"thread {number}") for number in range(8)}


def test_a_plain_tool_may_call_it_and_an_async_one_is_told_how(app: SyncApp) -> None:
    @tool(tier="read_only")
    def plain() -> int:
        """Call another tool, waiting for it."""
        return int(app.invoke("add", {"a": 1, "b": 2}).output)

    @tool(tier="read_only")
    async def wrong() -> str:
        """Wait for the App that runs it."""
        try:
            app.invoke("add", {"a": 1, "b": 2})
        except ToolgateError as error:
            return f"{error.message} {error.suggestion}"
        return "not reached"

    @tool(tier="read_only")
    async def right(ctx: InvokeContext) -> int:
        """Call another tool."""
        return int((await ctx.call_tool("add", a=1, b=2)).output)

    for one in (plain, wrong, right):
        app.register(one)
    assert (app.invoke("plain").output, app.invoke("right").output) == (3, 3)
    assert "cannot wait for the App" in app.invoke("wrong").output and "ctx.call_tool" in app.invoke("wrong").output


def test_programs_and_servers_are_started_from_its_thread_too(tmp_path: Path) -> None:
    server = Upstream(tmp_path, offered("greet"))
    with App.open_sync(os.devnull, home=tmp_path / "home", servers={"up": server.settings()}) as app:
        app.approvals.add_approver(lambda _request: True)
        assert app.invoke("code_execute", {"code": "print(6 * 7)"}).output["stdout"] == "42\n"
        app.servers.refresh("up")
        app.servers.accept(app.servers.quarantined())
        assert app.invoke("mcp_up_greet", {"text": "x"}).ok


def test_what_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "toolgate.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreError), App.open_sync(os.devnull, home=tmp_path):
        raise AssertionError
    assert not [one for one in threading.enumerate() if one.name == "toolgate-app"]


def test_who_waits_while_it_is_closed_is_told_so() -> None:
    begun, told = threading.Event(), []

    @tool(tier="read_only")
    async def linger() -> None:
        """Take long."""
        begun.set()
        await asyncio.sleep(SECONDS)

    opened = SyncApp(memory_app(shutdown_seconds=0.1)).start()

    def wait() -> None:
        try:
            opened.invoke("linger")
        except NotOpen as error:
            told.append(str(error))

    opened.register(linger)
    waiting = threading.Thread(target=wait)
    waiting.start()
    assert begun.wait(SOON)
    opened.close()
    waiting.join(SOON)
    assert told == ["The App was closed while it was in use."]


def test_no_thread_waits_for_work_that_it_hands_over_at_the_very_end() -> None:
    told: list[NotOpen] = []

    def work(thread: LoopThread) -> None:
        while True:
            try:
                thread.call(lambda: asyncio.sleep(0))
            except NotOpen as error:
                told.append(error)
                return

    for _ in range(30):
        ending = LoopThread()
        ending.start()
        busy = [threading.Thread(target=work, args=(ending,), daemon=True) for _ in range(4)]
        for one in busy:
            one.start()
        time.sleep(0.005)
        ending.stop()
        for one in busy:
            one.join(SOON)
    assert len(told) == 120


def test_ctrl_c_cancels_the_call_and_waits_for_its_end(app: SyncApp) -> None:
    @tool(tier="read_only")
    async def linger() -> None:
        """Take long."""
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(SECONDS)

    app.register(linger)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        app.invoke("linger")
    assert time.monotonic() - start < SOON
    app.flush()
    [record] = [str(row[7]) for row in app.audit.latest(10) if row[5] == "linger" and row[2] == "end"]
    assert "CANCELLED" in record
    assert app.invoke("add", {"a": 1, "b": 2}).output == 3, "and it goes on"


# -- programs


def run(folder: Path, program: str) -> "subprocess.CompletedProcess[str]":
    file = folder / "program.py"
    file.write_text(dedent(program))
    return subprocess.run([sys.executable, file], cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_a_process_that_was_forked_off_is_told_so_and_ends(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        import os, sys
        from toolgate import App
        from toolgate.errors import ToolgateError
        with App.open_sync(os.devnull, home=".toolgate") as app:
            child = os.fork()
            if child == 0:
                try:
                    app.invoke("echo", {"text": "x"})
                except ToolgateError as error:
                    print(error.message, flush=True)
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            print(app.invoke("echo", {"text": "still here"}).output)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "The App was opened in another process, and this one was forked off it.\n{'text': 'still here'}\n"


def test_what_a_notebook_leaves_open_is_closed_at_its_end(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        import os
        from toolgate import App
        app = App.open_sync(os.devnull, home=".toolgate").start()
        for _ in range(50):
            app.invoke("echo", {"text": "x"})
        """,
    )
    assert (done.returncode, done.stderr) == (0, "")
    with App.open_sync(os.devnull, home=tmp_path / ".toolgate") as app:
        assert len([row for row in app.audit.latest(500) if row[2] == "end"]) == 50, "all is on disk"


ASKING = """
import os, sys
from toolgate import App, tool

@tool(tier="external_api")
async def pay(amount: int) -> str:
    "Pay somebody."
    return f"paid {amount}"

with App.open_sync(os.devnull, home=".toolgate") as app:
    app.register(pay)
    app.approvals.add_approver(APPROVER)
    for amount in (1, 2):
        try:
            print(app.invoke("pay", {"amount": amount}), flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
print("closed")
"""
TYPED = 'lambda request: input(f"{request.text()}\\nRun it? [y/N] ") == "y"'
PROMPT = '__import__("toolgate.cli.prompt").cli.prompt.Prompt(lambda *_: None)'


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.parametrize(("approver", "question"), [(TYPED, "Run it? [y/N] "), (PROMPT, " > ")], ids=["input", "prompt"])
def test_a_person_at_the_terminal_answers_and_interrupts(terminal: Terminal, approver: str, question: str) -> None:
    (terminal.folder / "program.py").write_text(ASKING.replace("APPROVER", approver))
    typed = Teletype(terminal, "program.py", program=(sys.executable,))
    typed.type(after=question, keys="y\n")
    typed.interrupt(after=question)
    code = typed.end()
    assert "paid 1" in typed.shown and "interrupted" in typed.shown and "paid 2" not in typed.shown, typed.shown
    assert code == 0 and "closed" in typed.shown, typed.shown
    assert "Traceback" not in typed.shown and "Fatal" not in typed.shown, typed.shown


@pytest.mark.matrix("starts a program; the same signal is sent to this one above")
def test_ctrl_c_ends_a_program_that_does_not_expect_it(terminal: Terminal) -> None:
    (terminal.folder / "program.py").write_text(
        dedent("""
        import asyncio, os
        from toolgate import App, tool

        @tool(tier="read_only")
        async def linger() -> None:
            "Take long."
            print("begun", flush=True)
            await asyncio.sleep(60)

        with App.open_sync(os.devnull, home=".toolgate") as app:
            app.register(linger)
            app.invoke("linger")
        """)
    )
    typed = Teletype(terminal, "program.py", program=(sys.executable,))
    typed.interrupt(after="begun")
    assert typed.end() == -signal.SIGINT
    assert "KeyboardInterrupt" in typed.shown and "was never awaited" not in typed.shown, typed.shown
    with App.open_sync(os.devnull, home=terminal.folder / ".toolgate") as app:
        assert "CANCELLED" in str(app.audit.latest(10))


# -- types


def test_the_types_are_written_from_the_async_app() -> None:
    assert STUB.read_text("utf-8") == written(), "run make reference"


def test_what_the_types_promise_is_there(app: SyncApp) -> None:
    classes = {node.name: node for node in ast.parse(STUB.read_text("utf-8")).body if isinstance(node, ast.ClassDef)}
    checked = 0
    for attribute in classes["SyncApp"].body:
        if isinstance(attribute, ast.FunctionDef) and not attribute.name.startswith("__"):
            assert hasattr(app, attribute.name), attribute.name
        if not isinstance(attribute, ast.AnnAssign) or ast.unparse(attribute.annotation) not in classes:
            continue
        name = ast.unparse(attribute.target)
        facet = getattr(app, name)
        for method in classes[ast.unparse(attribute.annotation)].body:
            if isinstance(method, ast.FunctionDef):
                assert method.name in dir(facet), f"{name}.{method.name}"
                checked += 1
    assert checked > 150
