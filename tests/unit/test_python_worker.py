"""The Python worker by itself, as a plain process: what it says for every kind of program and every way to end."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from toolgate.sandbox.jail import ResourceLimits, Unavailable
from toolgate.sandbox.jails.inside_files import WORKER
from toolgate.sandbox.runtimes.python import find_python, spec

Serve = Callable[[str, list[Any]], dict[str, Any]]


class Said(NamedTuple):
    """All that came out of a worker."""

    frames: list[dict[str, Any]]
    raw: bytes
    errors: bytes
    code: int

    @property
    def last(self) -> dict[str, Any]:
        return self.frames[-1]

    @property
    def value(self) -> Any:
        return self.last["result"]

    @property
    def failure(self) -> dict[str, Any]:
        failure: dict[str, Any] = self.last["failure"]
        return failure

    def text(self, stream: str) -> str:
        return "".join(frame["text"] for frame in self.frames if frame.get("out") == stream)


class Started:
    """A worker that is ready."""

    def __init__(self, *packages: str, cwd: Path | None = None) -> None:
        command = [str(find_python()), "-I", "-S", "-B", str(WORKER), *packages]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=cwd)
        self._errors = b""
        self._hearing = threading.Thread(target=self._hear)
        self._hearing.start()
        assert self.process.stdout is not None
        self.ready = json.loads(self.process.stdout.readline()[1:])["ready"]

    def _hear(self) -> None:
        assert self.process.stderr is not None
        self._errors = self.process.stderr.read()

    def tell(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def run(self, code: str, mode: str = "script", serve: Serve | None = None, **job: Any) -> Said:
        self.tell({"run": {"mode": mode, "code": code, "name": "code", "arguments": {}, "output": 100_000, **job}})
        frames, raw = [], b""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line[:1] != b"\x1e":
                raw += line
                continue
            frames.append(json.loads(line[1:]))
            if "call" in frames[-1] and serve is not None:
                asked = frames[-1]
                self.tell({"reply": asked["call"], **serve(asked["op"], asked["args"])})
        code_of_exit = self.process.wait(30)
        self.close()
        return Said(frames, raw, self._errors, code_of_exit)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._hearing.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


def run(code: str, mode: str = "script", serve: Serve | None = None, **job: Any) -> Said:
    return Started().run(code, mode, serve, **job)


def echo(wanted: str, given: list[Any]) -> dict[str, Any]:
    return {"value": [wanted, given]}


# -- results


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("1 + 1", 2),
        ("x = 5", None),
        ("", None),
        ("# nothing", None),
        ("'only text'", "only text"),
        ("for n in range(3):\n    n", None),
        ("args['a'] * 2", 4),
        ("x = 3; x", 3),
        ("(1,\n 2)", [1, 2]),
        ("{'a': (1, [None, True]), 'b': 1.5}", {"a": [1, [None, True]], "b": 1.5}),
        ("{1: 'a', None: 'b', True: 'c', 2.5: 'd'}", {"1": "c", "null": "b", "2.5": "d"}),
        ("'é\\u2028\\x1e\\n😀'", "é\u2028\x1e\n😀"),
        ("import asyncio\nawait asyncio.sleep(0, 'waited')", "waited"),
        ("async def f():\n    return 7\nx = await f()\nx", 7),
        ("import enum\nclass E(enum.IntEnum):\n    A = 3\n[E.A]", [3]),
        ("class S(str):\n    def __str__(self):\n        return 'other'\nS('same')", "same"),
        ("class D(dict):\n    def items(self):\n        return 1 / 0\nD(a=1)", {"a": 1}),
        (
            "from collections import Counter, namedtuple\n[Counter('aab'), namedtuple('P', 'x y')(1, 2)]",
            [{"a": 2, "b": 1}, [1, 2]],
        ),
        ("'yes' if __name__ == '__main__' else 'no'", "yes"),
        ("-2**63, 2**64 - 1", [-(2**63), 2**64 - 1]),
        ("from __future__ import annotations\ndef f(x: Missing): ...\n'fine'", "fine"),
        ("from dataclasses import dataclass, asdict\n@dataclass\nclass P:\n    x: int\nasdict(P(1))", {"x": 1}),
        ("import asyncio\nasyncio.run(asyncio.sleep(0, 'own loop'))", "own loop"),
    ],
)
@pytest.mark.sample(4)
def test_the_value_of_the_last_expression_is_the_result(code: str, value: Any) -> None:
    assert run(code, arguments={"a": 2}).value == value


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("x = []\nx.append(x)\nx", "contains itself"),
        ("x = {}\nx['a'] = [x]\nx", "at a[0] it contains itself"),
        ("lambda: 1", "function"),
        ("print", "builtin_function_or_method"),
        ("float('nan')", "NaN"),
        ("[1, {'a': float('inf')}]", "at [1].a"),
        ("b'bytes'", "bytes"),
        ("{1, 2}", "set"),
        ("(n for n in [1])", "generator"),
        ("2**64", "64 bits"),
        ("10**5000", "64 bits"),
        ("1j", "complex"),
        ("object()", "object"),
        ("'\\ud800'", "surrogate"),
        ("{(1, 2): 3}", "key"),
        ("{1: 2, '1': 3}", "two keys"),
        ("x = []\nfor _ in range(100_000):\n    x = [x]\nx", "250 levels"),
        ("'x' * 200_000", "larger than 100,000"),
        ("[0] * 10_000_000", "larger than 100,000"),
        ("'é' * 60_000", "larger than 100,000"),
        ("async def f(): ...\nf()", "await it"),
        ("import decimal\ndecimal.Decimal(1)", "Decimal"),
    ],
)
@pytest.mark.sample(4)
def test_what_is_no_json_is_a_failure_that_says_where_and_why(code: str, words: str) -> None:
    failure = run(code).failure
    assert failure["kind"] == "value"
    assert words in failure["message"]
    assert len(failure["message"]) < 500


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@at_most(15)
@given(st.lists(json_values, max_size=20))
def test_json_goes_in_and_comes_out_unchanged(values: list[Any]) -> None:
    assert run("args['values']", arguments={"values": values}).value == values


# -- failures


@pytest.mark.parametrize(
    ("code", "line", "column"),
    [
        ("x = 1\ny = (\n", 2, 5),
        ("def f(:\n    pass", 1, 7),
        ("if True:\nx = 1", 2, 1),
        ("é = 'é' y", 1, 9),
        ("return 1", 1, 1),
        ("a\0b", None, None),
        ("(" * 500, None, None),
        ("-" * 200_000 + "1", None, None),
        ("x = '\ud800'", None, None),
    ],
)
def test_code_that_does_not_compile(code: str, line: int | None, column: int | None) -> None:
    failure = run(code).failure
    assert failure["kind"] == "syntax"
    assert failure["message"]
    if line is not None:
        assert (failure["line"], failure["column"]) == (line, column)


def test_an_error_names_its_place_in_the_text_and_the_way_there() -> None:
    failure = run("def f(x):\n    é = 0\n    return [1, x / é]\n\n\nf(5)").failure
    assert failure == {
        "kind": "raised",
        "name": "ZeroDivisionError",
        "message": "division by zero",
        "line": 3,
        "column": 16 if sys.version_info >= (3, 11) else None,
        "stack": "line 6, in <module>: f(5)\nline 3, in f: return [1, x / é]",
    }


@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        ("raise SystemExit", "SystemExit", "sys.exit()"),
        ("import sys\nsys.exit('bye')", "SystemExit", "'bye'"),
        ("exit(3)", "SystemExit", "3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", "without a message"),
        ("raise GeneratorExit", "GeneratorExit", ""),
        ("class Odd(BaseException): ...\nraise Odd('x')", "Odd", "x"),
        ("raise 'text'", "TypeError", "BaseException"),
        ("raise None", "TypeError", "BaseException"),
        ("class E(Exception):\n    def __str__(self):\n        return 1 / 0\nraise E", "E", "could not be read"),
        ("def f():\n    f()\nf()", "RecursionError", "recursion"),
        ("raise MemoryError", "MemoryError", ""),
        ("raise ValueError('x' * 10_000_000)", "ValueError", "xxx"),
        ("raise ValueError('\\ud800')", "ValueError", "\\ud800"),
        ("import asyncio\nawait asyncio.wait_for(asyncio.sleep(9), 0.01)", "TimeoutError", ""),
        ("undefined", "NameError", "undefined"),
        ("import numpy_is_not_here", "ModuleNotFoundError", "numpy_is_not_here"),
        ("input()", "EOFError", ""),
        ("str(10**5000)", "ValueError", "digits"),
    ],
)
@pytest.mark.sample(4)
def test_whatever_is_raised_is_told(code: str, name: str, words: str) -> None:
    said = run(code)
    assert said.failure["kind"] == "raised"
    assert said.failure["name"] == name
    assert words in said.failure["message"]
    assert len(json.dumps(said.failure)) < 20_000
    assert said.code == 0


def test_a_traceback_that_the_program_prints_shows_its_lines() -> None:
    said = run("import traceback\ntry:\n    1 / 0  # here\nexcept ZeroDivisionError:\n    traceback.print_exc()")
    assert 'File "<code>", line 3' in said.text("stderr")
    assert "1 / 0  # here" in said.text("stderr")


def test_a_deep_stack_is_cut() -> None:
    failure = run("def f(n):\n    return f(n + 1) + 1\nf(0)").failure
    assert len(failure["stack"]) <= 2_001
    assert "more" in failure["stack"]
    assert failure["line"] == 2


# -- output


def test_what_is_printed_comes_in_order_and_before_the_result() -> None:
    code = """
import sys
for n in range(5000):
    print(n)
print('oops', file=sys.stderr)
sys.stdout.flush()
sys.stdout.buffer.write(b'raw')
1
"""
    said = run(code)
    assert said.text("stdout") == "".join(f"{n}\n" for n in range(5000)) + "raw"
    assert said.text("stderr") == "oops\n"
    assert said.value == 1
    assert len(said.frames) < 20


def test_what_goes_past_python_lands_on_stderr_and_mixes_with_no_frame() -> None:
    said = run("import os\nos.write(1, b'past\\n')\nos.write(2, b'errors\\n')\nprint('printed')\nos.read(0, 10)")
    assert said.raw == b""
    assert said.errors == b"past\nerrors\n"
    assert said.text("stdout") == "printed\n"
    assert said.failure["kind"] == "value"


def test_text_that_is_no_unicode_is_printed_somehow() -> None:
    said = run("print('a\\ud800b\\x00', flush=True)\nimport sys\nsys.stdout.buffer.write(b'\\xff\\xfe')\nNone")
    assert said.text("stdout").startswith("a\\ud800b\x00\n")
    assert "\ufffd" in said.text("stdout")


def test_what_was_printed_is_there_when_a_program_hangs() -> None:
    started = Started()
    started.tell(
        {"run": {"mode": "script", "code": "print('one')\nprint('two')\nwhile True: pass", "name": "c", "output": 1000}}
    )
    assert started.process.stdout is not None
    try:
        assert json.loads(started.process.stdout.readline()[1:]) == {"out": "stdout", "text": "one\ntwo\n"}
    finally:
        started.close()


def test_more_than_the_limit_is_seen_to_be_more_and_then_dropped() -> None:
    said = run("for _ in range(1000):\n    print('x' * 9999)\n1", output=50_000)
    assert 50_000 < len(said.text("stdout")) < 80_000
    assert said.value == 1


# -- programs that leave things behind, or meddle


@pytest.mark.parametrize(
    "code",
    [
        "import builtins\nput = setattr\nfor name in list(vars(builtins)):\n    put(builtins, name, None)",
        "import json, _json\njson.dumps = json.loads = _json.make_encoder = _json.encode_basestring_ascii = None",
        "import sys\nsys.modules.clear()",
        "import sys\nsys.stdout = sys.stderr = sys.__stdout__ = None",
        "import sys\nsys.stdout.close()\nsys.stderr.close()",
        "import sys\nsys.stdout.buffer.raw.close()",
        "import os\nos.write = os._exit = os.dup = None",
        "import sys\nsys.setrecursionlimit(30)",
        "import threading\nthreading.setprofile(lambda *a: 1 / 0)",
        "import atexit\natexit.register(lambda: 1 / 0)",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
        "import threading, sys\nt = threading.Thread(target=sys.exit, args=(3,))\nt.start()\nt.join()",
        "import gc\nfor o in gc.get_objects():\n    if type(o).__name__ == 'Channel':\n        o._unread = None",
        "import gc\ngc.unfreeze()\ngc.disable()",
        "import signal\nfor n in (1, 2, 15):\n    signal.signal(n, signal.SIG_IGN)",
        "import asyncio\nasyncio.run = asyncio.new_event_loop = None",
        "import _thread\n_thread.start_new_thread = _thread.allocate_lock = None",
        "import ast, _ast\nast.parse = _ast.Expr = None",
        "import asyncio\nasync def f():\n    await asyncio.sleep(60)\nasyncio.create_task(f())\nawait asyncio.sleep(0)",
    ],
)
@pytest.mark.sample(4)
def test_a_program_that_meddles_fools_only_itself(code: str) -> None:
    said = run(f"{code}\n'still told'")
    assert said.value == "still told"
    assert said.code == 0


@pytest.mark.parametrize("hook", ["settrace", "setprofile"])
def test_a_hook_that_raises_fails_the_program_and_not_the_worker(hook: str) -> None:
    said = run(f"import sys\nsys.{hook}(lambda *a: 1 / 0)\ndef f(): ...\nf()\n'done'")
    assert said.failure["name"] == "ZeroDivisionError"
    assert said.code == 0


def test_a_program_that_takes_the_worker_apart_gets_no_result() -> None:
    said = run("import sys\nsys._getframe(1).f_globals.clear()\n'told'")
    kinds = {(frame.get("out"), *sorted(frame)) for frame in said.frames}
    assert kinds == {("stderr", "out", "text")}  # how Python ended, and no last frame of any kind
    assert said.text("stderr").startswith("Traceback ")
    assert "NameError: name '_exit' is not defined" in said.text("stderr")
    assert said.raw == b""
    assert said.code != 0


def test_a_program_that_takes_the_channel_apart_says_nothing() -> None:
    said = run("import sys\nvars(sys.modules['worker_channel']).clear()\nsys._getframe(1).f_globals.clear()\n'told'")
    assert (said.frames, said.raw) == ([], b"")
    assert said.code != 0


def test_a_program_that_ends_its_process_leaves_no_result() -> None:
    said = run("print('before', flush=True)\nimport os\nos._exit(7)")
    assert said.code == 7
    assert said.frames == [{"out": "stdout", "text": "before\n"}]


@pytest.mark.matrix("fills the memory of a worker")
def test_a_program_that_runs_out_of_memory_is_told_so() -> None:
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))\n"
    for eats in (
        "x = []\nwhile True:\n    x.append(bytes(1 << 20))",
        "x = None\nwhile True:\n    x = [x]",
        "'x' * 10**9",
        "len('x' * 10**9)",
    ):
        failure = run(limit + eats).failure
        assert (failure["kind"], failure["name"]) == ("raised", "MemoryError")


def test_end_of_input_ends_a_worker_that_waits() -> None:
    started = Started()
    assert started.ready["python"].count(".") == 2
    assert started.process.stdin is not None
    started.process.stdin.close()
    assert started.process.wait(30) == 0
    started._hearing.join()
    for pipe in (started.process.stdout, started.process.stderr):
        assert pipe is not None
        pipe.close()


# -- tools and their context

CONTEXT = {
    "config": {"depth": 3},
    "conversation": {"id": "c-1", "workingDirectory": "/work"},
    "docker": False,
    "llm": False,
}


def test_a_tool_that_blocks_and_one_that_awaits_are_given_the_same() -> None:
    body = """
    read = {w}context.platform.fs.readFile("a.txt", "utf8")
    {w}context.platform.fs.write_file("b.txt", "text")
    names = {w}context.platform.fs.list_directory(path=".")
    ran = {w}context.platform.executor.execute("npm", ["test"], {{"cwd": "x"}})
    again = {w}context.platform.executor.execute({{"command": "npm", "args": ["test"]}})
    named = {w}context.platform.executor.execute("npm", timeout=5)
    may = {w}context.permissions.check("npm test")
    context.logger.info("read", 1)
    context.logger.warning("careful")
    return [read, names, ran, again, named, may, args["a"], context.config.depth, context.conversation.working_directory,
            context.llm, context.platform.docker]
"""
    expected = [
        ["fs.readFile", ["a.txt", "utf8"]],
        ["fs.readdir", ["."]],
        ["executor.execute", ["npm", ["test"], {"cwd": "x"}]],
        ["executor.execute", [{"command": "npm", "args": ["test"]}]],
        ["executor.execute", ["npm", [], {"timeout": 5}]],
        ["permissions.check", ["npm test"]],
        1,
        3,
        "/work",
        None,
        None,
    ]
    for head, wait in (("def execute(args, context):", ""), ("async def execute(args, context):", "await ")):
        said = run(head + body.format(w=wait), "tool", echo, arguments={"a": 1}, context=CONTEXT)
        assert said.value == expected
        logs = [(frame["log"], frame["message"]) for frame in said.frames if "log" in frame]
        assert logs == [("info", "read 1"), ("warn", "careful")]


def test_what_the_host_gives_can_be_read_by_attribute_and_by_key() -> None:
    code = """
def execute(args, context):
    ran = context.platform.executor.execute('x')
    return [ran.exit_code, ran.exitCode, ran['stdout']]
"""
    assert run(code, "tool", lambda *_: {"value": {"exitCode": 3, "stdout": "s"}}, context=CONTEXT).value == [3, 3, "s"]


def test_model_and_docker_are_there_when_the_job_says_so() -> None:
    code = """
async def execute(args, context):
    return [await context.llm.complete(prompt='p'), await context.platform.docker.run({'image': 'i'})]
"""
    said = run(code, "tool", echo, context={**CONTEXT, "docker": True, "llm": True})
    assert said.value == [["llm.complete", [{"prompt": "p"}]], ["docker.run", [{"image": "i"}]]]


def test_a_refusal_of_the_host_is_an_error_with_its_code() -> None:
    def refuse(*_: Any) -> dict[str, Any]:
        return {"error": {"code": "PERMISSION_DENIED", "message": "not this file"}}

    code = """
def execute(args, context):
    try:
        context.platform.fs.readFile('x')
    except ToolError as e:
        return [e.code, e.message, str(e)]
"""
    assert run(code, "tool", refuse, context=CONTEXT).value == ["PERMISSION_DENIED", "not this file", "not this file"]
    failure = run(
        "async def execute(args, context):\n    await context.platform.fs.stat('x')", "tool", refuse, context=CONTEXT
    ).failure
    assert failure["name"] == "ToolError"
    assert failure["message"] == "PERMISSION_DENIED: not this file"
    assert failure["line"] == 2


def test_many_questions_of_a_tool_are_under_way_at_once() -> None:
    code = """
import asyncio
async def execute(args, context):
    return await asyncio.gather(*(context.platform.fs.exists(str(n)) for n in range(5)))
"""
    started = Started()
    started.tell({"run": {"mode": "tool", "code": code, "name": "c", "context": CONTEXT, "output": 1000}})
    assert started.process.stdout is not None
    asked = [json.loads(started.process.stdout.readline()[1:]) for _ in range(5)]
    for frame in reversed(asked):
        started.tell({"reply": frame["call"], "value": frame["args"][0]})
    assert json.loads(started.process.stdout.readline()[1:]) == {"result": ["0", "1", "2", "3", "4"]}
    started.close()


@pytest.mark.parametrize("code", ["x = 1", "execute = 5", "def other(args, context): ..."])
def test_a_tool_without_execute_says_so(code: str) -> None:
    assert run(code, "tool", context=CONTEXT).failure["kind"] == "missing"


def test_check_compiles_and_runs_nothing() -> None:
    ends = "raise SystemExit\n"
    assert run(ends + "def execute(args, context): ...", "check", wants_execute=True).value is True
    assert run(ends + "from x import execute", "check", wants_execute=True).value is True
    assert run(ends + "class A:\n    def execute(self): ...", "check", wants_execute=True).failure["kind"] == "missing"
    assert run(ends, "check").value is True
    assert run("def execute(", "check", wants_execute=True).failure["kind"] == "syntax"


# -- programs


def test_a_program_calls_tools_in_every_way() -> None:
    code = """
one = tools.add(a=1, b=2)
two = tools.add({"a": 1}, b=3)
odd = tools["odd-name"](x=1)
same = tools.call("odd-name", {"x": 2})
many = tools.parallel([("add", {"a": n}) for n in range(3)])
[one, two, odd, same, many, sorted(name for name in dir(tools))]
"""
    said = run(code, "program", echo, tools=["add", "odd-name"])
    assert said.value == [
        ["tool", ["add", {"a": 1, "b": 2}]],
        ["tool", ["add", {"a": 1, "b": 3}]],
        ["tool", ["odd-name", {"x": 1}]],
        ["tool", ["odd-name", {"x": 2}]],
        [["tool", ["add", {"a": n}]] for n in range(3)],
        ["add", "call", "odd-name", "parallel"],
    ]


def test_calls_in_parallel_are_all_asked_before_the_first_is_answered() -> None:
    started = Started()
    code = "tools.parallel([('a', {}), ('b', {}), ('c', {})])"
    started.tell({"run": {"mode": "program", "code": code, "name": "c", "output": 1000}})
    assert started.process.stdout is not None
    asked = [json.loads(started.process.stdout.readline()[1:]) for _ in range(3)]
    started.tell({"reply": asked[2]["call"], "value": 3})
    started.tell({"reply": asked[1]["call"], "error": {"code": "TIMEOUT", "message": "slow"}})
    started.tell({"reply": 99, "value": "for nobody"})
    started.tell({"reply": asked[0]["call"], "value": 1})
    failure = json.loads(started.process.stdout.readline()[1:])["failure"]
    started.close()
    assert (failure["name"], failure["message"]) == ("ToolError", "TIMEOUT: slow")


def test_a_tool_that_is_not_there_and_arguments_that_are_no_json() -> None:
    missing = run("tools.nothing()", "program", echo, tools=["add"]).failure
    assert missing["name"] == "AttributeError"
    assert "There are: add" in missing["message"]
    for bad in ("{1}", "b'x'", "float('nan')", "print"):
        failure = run(f"tools.add(a={bad})", "program", echo).failure
        assert failure["name"] == "TypeError"


def test_what_was_printed_before_a_call_is_told_before_it() -> None:
    said = run("print('first')\ntools.a()\nprint('second')", "program", echo)
    kinds = [next(iter(frame)) for frame in said.frames]
    assert kinds == ["out", "call", "out", "result"]


def test_threads_of_a_program_may_call_tools() -> None:
    code = """
import asyncio
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as threads:
    first = list(threads.map(lambda n: tools.a(n=n)[1][1]["n"], range(20)))
second = await asyncio.gather(*(asyncio.to_thread(tools.a, n=n) for n in range(3)))
[first, [value[1][1]["n"] for value in second]]
"""
    assert run(code, "program", echo).value == [list(range(20)), [0, 1, 2]]


def test_a_program_whose_host_is_gone_is_told_so() -> None:
    started = Started()
    started.tell({"run": {"mode": "program", "code": "tools.a()", "name": "c", "output": 1000}})
    assert started.process.stdin is not None
    assert started.process.stdout is not None
    assert "call" in json.loads(started.process.stdout.readline()[1:])
    started.process.stdin.close()
    failure = json.loads(started.process.stdout.readline()[1:])["failure"]
    assert failure["message"].startswith("CONNECTION_ERROR")
    assert started.process.wait(30) == 0
    started._hearing.join()
    started.process.stdout.close()
    assert started.process.stderr is not None
    started.process.stderr.close()


# -- the lane


def test_packages_can_be_imported_and_so_can_modules_of_the_working_directory(tmp_path: Path) -> None:
    for folder, name in (("packages", "given"), ("work", "mine")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text("VALUE = __name__\n")
    started = Started(str(tmp_path / "packages"), cwd=tmp_path / "work")
    assert started.run("import given, mine\n[given.VALUE, mine.VALUE]").value == ["given", "mine"]


def test_the_spec_names_what_the_worker_needs(tmp_path: Path) -> None:
    python = find_python()
    made = spec(python, ResourceLimits(), packages=(tmp_path,))
    assert made.profile == "python"
    assert made.argv == (str(python), str(WORKER), str(tmp_path.resolve()))
    assert WORKER.parent in made.readable
    assert tmp_path.resolve() in made.readable
    assert ".venv" not in str(python)
    assert made == spec(python, ResourceLimits(), packages=(tmp_path,))


@pytest.fixture
def other_python() -> Iterator[Path]:
    yield Path("/usr/bin/python3")


def test_an_interpreter_can_be_named(other_python: Path, tmp_path: Path) -> None:
    if other_python.is_file():
        assert find_python(other_python).is_file()
    with pytest.raises(Unavailable, match=r"sandbox\.python"):
        find_python(tmp_path / "python")
