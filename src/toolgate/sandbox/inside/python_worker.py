"""The Python worker: runs one program in the jail and tells the host what came of it.

It is started before it is needed: it says that it is ready as soon as it can take its one job, and while none comes it
imports what programs usually want. Lines of JSON come in; frames (0x1E, JSON, newline) go out: what the program prints, what
it asks the host for, and at last its result or why there is none. Standard library only, Python 3.9 and newer.

The program shares this process and can reach all of it. Nothing here is a boundary: the jail is. What is taken care of is
that a program that replaces half of Python still ends with a frame that says what happened, and fools nobody but itself.
"""

from __future__ import annotations

import _ast
import _json
import _thread
import builtins
import codecs
import gc
import io
import os
import select
import sys
import time
import types
from itertools import count, islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any, NoReturn

WARM = (
    "linecache", "json", "collections", "asyncio", "ast", "abc", "argparse", "base64", "binascii", "bisect", "calendar",
    "collections.abc", "concurrent.futures", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal",
    "difflib", "enum", "fractions", "functools", "glob", "hashlib", "heapq", "hmac", "html", "inspect", "itertools",
    "logging", "math", "numbers", "operator", "pathlib", "pprint", "queue", "random", "re", "secrets", "shutil",
    "statistics", "string", "struct", "tempfile", "textwrap", "threading", "traceback", "typing", "unicodedata",
    "urllib.parse", "uuid", "warnings", "zlib", "zoneinfo",
)  # fmt: skip
"""What programs usually import."""

DEEPEST = 250
"""Levels of nesting that the host reads."""
BUFFER = 8_192
FLUSH_SECONDS = 0.05
"""What was printed reaches the host after this at the latest, so that one that is killed has not printed for nothing."""
THREAD_STACK = 512 * 1024
LONGEST_MESSAGE = 2_000
LONGEST_STACK = 2_000
RESULT = "__toolgate_result__"
COROUTINE = 0x80
"""The flag of compiled code that awaits at its top level."""

# The functions below look their built-in names up here, so what a program does to `builtins` is nothing to them. What they
# need of other modules they take while those are still as they were.
globals()["__builtins__"] = dict(vars(builtins))
_close, _cwd, _dup, _dup2, _exit, _pipe, _read, _write = (
    os.close,
    os.getcwd,
    os.dup,
    os.dup2,
    os._exit,
    os.pipe,
    os.read,
    os.write,
)
_set_recursion_limit, _settrace, _setprofile, _collect = sys.setrecursionlimit, sys.settrace, sys.setprofile, gc.collect
_select, _sleep, _start_thread, _stack_size, _new_lock = (
    select.select, time.sleep, _thread.start_new_thread, _thread.stack_size, _thread.allocate_lock,
)  # fmt: skip
_make_encoder, _escape = _json.make_encoder, _json.encode_basestring_ascii
_scan = _json.make_scanner(
    types.SimpleNamespace(  # type: ignore[arg-type]  # a decoder, as the scanner knows it
        strict=True,
        object_hook=None,
        object_pairs_hook=None,
        parse_float=float,
        parse_int=int,
        parse_constant=float,
        memo={},
    )
)

OUT_OF_MEMORY = (
    b'\x1e{"failure":{"kind":"raised","name":"MemoryError","message":"It used all the memory that it may have.",'
    b'"line":null,"column":null,"stack":""}}\n'
)
MUDDLED = (
    b'\x1e{"failure":{"kind":"raised","name":"RuntimeError","message":"It left Python in a state in which its result'
    b' could not be told.","line":null,"column":null,"stack":""}}\n'
)


class ToolError(Exception):
    """The host refused, or what was asked of it failed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class NotJson(Exception):
    """A value that JSON has no word for, or too much of it."""


# -- values


def _no_default(value: object) -> NoReturn:
    raise NotJson(f"it is a {type(value).__name__}")


def _encode(value: Any) -> str:
    """JSON, in ASCII."""
    return "".join(_make_encoder(None, _no_default, _escape, None, ":", ",", False, False, False)(value, 0))


def _decode(text: str) -> Any:
    return _scan(text, 0)[0]


def plain(value: Any, most: int) -> Any:
    """The value made of nothing but JSON's own types; raises NotJson, saying where and why."""
    path: list[Any] = []
    try:
        return _Plain(most).of(value, path)
    except NotJson as error:
        where = "".join(f"[{key}]" if type(key) is int else f".{key}" for key in path)[:200]
        raise NotJson(f"at {where.lstrip('.')} {error}" if where else str(error)) from None


class _Plain:
    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._above: set[int] = set()

    def of(self, value: Any, path: list[Any]) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            self._take(4)
            return value
        if issubclass(kind, str):
            return self._text(value)
        if issubclass(kind, int):
            return self._integer(value)
        if issubclass(kind, float):
            return self._number(value)
        if issubclass(kind, (dict, list, tuple)):
            return self._container(value, path)
        raise NotJson(f"it is {_article(kind.__name__)}, which JSON has no word for{_advice(kind)}")

    def _text(self, value: str) -> str:
        text = str.__str__(value)
        try:
            self._take(len(text) if text.isascii() else len(text.encode()))
        except UnicodeEncodeError:
            raise NotJson("it holds half of a surrogate pair, which is not valid Unicode") from None
        return text

    def _integer(self, value: int) -> int:
        number = int.__int__(value)
        if not -(2**63) <= number < 2**64:
            raise NotJson("it is an integer of more than 64 bits; give it as text")
        self._take(1)
        return number

    def _number(self, value: float) -> float:
        number = float.__float__(value)
        if number - number != 0:
            raise NotJson("it is NaN or infinite, which JSON has no word for")
        self._take(3)
        return number

    def _container(self, value: Any, path: list[Any]) -> Any:
        if id(value) in self._above:
            raise NotJson("it contains itself")
        if len(path) >= DEEPEST:
            path.clear()
            raise NotJson(f"it is nested more than {DEEPEST} levels deep")
        self._above.add(id(value))
        made = self._object(value, path) if issubclass(type(value), dict) else self._array(value, path)
        self._above.discard(id(value))
        return made

    def _object(self, value: dict[Any, Any], path: list[Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, part in dict.items(value):
            name = self._name(key)
            if name in made:
                raise NotJson("it has two keys that are the same in JSON, like 1 and '1'")
            path.append(name)
            made[name] = self.of(part, path)
            path.pop()
        self._take(2)
        return made

    def _array(self, value: Any, path: list[Any]) -> list[Any]:
        made: list[Any] = []
        for part in (list if issubclass(type(value), list) else tuple).__iter__(value):
            path.append(len(made))
            made.append(self.of(part, path))
            path.pop()
        self._take(2)
        return made

    def _name(self, key: Any) -> str:
        """A key as JSON has it: text. Numbers, true, false and null are written out, as json.dumps does."""
        kind = type(key)
        if issubclass(kind, str):
            return self._text(key)
        if key is None or kind is bool or issubclass(kind, (int, float)):
            return _encode(self.of(key, []))
        raise NotJson(f"it has a key that is {_article(kind.__name__)}, not text")

    def _take(self, size: int) -> None:
        self._left -= size + 1
        if self._left < 0:
            raise NotJson(f"it is larger than {self._most:,} bytes")


def _article(name: str) -> str:
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name[:100]}"


def _advice(kind: type) -> str:
    advice = {
        "set": "; use sorted(…) or list(…)",
        "frozenset": "; use sorted(…) or list(…)",
        "generator": "; use list(…)",
        "map": "; use list(…)",
        "filter": "; use list(…)",
        "zip": "; use list(…)",
        "range": "; use list(…)",
        "bytes": "; use .decode() or base64",
        "bytearray": "; use .decode() or base64",
        "coroutine": "; await it",
        "Decimal": "; use str(…) or float(…)",
        "function": "; call it",
    }
    return advice.get(kind.__name__, "")


# -- frames and lines


class Channel:
    """The two ways to the host. Descriptors 0 and 1 are made harmless, so that a program that reads or writes them by itself
    gets nothing, and mixes nothing with the frames."""

    def __init__(self) -> None:
        self._in, self._out = _dup(0), _dup(1)
        empty, nobody = _pipe()
        _dup2(empty, 0)
        _dup2(2, 1)
        _close(empty)
        _close(nobody)
        self._lock = _thread.RLock()
        self._unread = bytearray()

    def send(self, frame: dict[str, Any]) -> None:
        self._send(b"\x1e" + _encode(frame).encode("ascii") + b"\n")

    def _send(self, data: bytes) -> None:
        with self._lock:
            while data:
                data = data[_write(self._out, data) :]

    def send_last(self, frame: dict[str, Any] | bytes) -> None:
        """Nothing is sent after this: the lock is kept."""
        data = frame if isinstance(frame, bytes) else b"\x1e" + _encode(frame).encode("ascii") + b"\n"
        self._lock.acquire()
        self._send(data)

    def arrived(self) -> bool:
        """Whether there is something to receive."""
        return bool(_select((self._in,), (), (), 0)[0])

    def receive(self) -> Any:
        """The next line's value; None at the end."""
        looked = 0
        while (end := self._unread.find(b"\n", looked)) < 0:
            looked = len(self._unread)
            chunk = _read(self._in, 65_536)
            if not chunk:
                return None
            self._unread += chunk
        line = self._unread[:end].decode("utf-8", "replace")
        del self._unread[: end + 1]
        return _decode(line)


class _Sink(io.RawIOBase):
    """The bytes of a stream, as frames. What goes beyond the limit by more than the host needs to see is dropped."""

    def __init__(self, channel: Channel, name: str) -> None:
        super().__init__()
        self._channel, self._name = channel, name
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.left = sys.maxsize

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    def write(self, data: Any) -> int:
        size = len(data)
        if self.left >= 0:
            self.left -= size
            text = self._decode(bytes(data))
            if text:
                self._channel.send({"out": self._name, "text": text})
        return size


class Stream(io.TextIOWrapper):
    """What `print` writes to: kept back for a moment, so that many lines become one frame."""

    def __init__(self, channel: Channel, name: str) -> None:
        self.sink = _Sink(channel, name)
        super().__init__(io.BufferedWriter(self.sink, BUFFER), encoding="utf-8", errors="backslashreplace", newline="\n")
        self._pending = False

    def write(self, text: str) -> int:
        written = super().write(text)
        if not self._pending:
            self._pending = True
            _in_thread(self._flush_soon)
        return written

    def _flush_soon(self) -> None:
        _sleep(FLUSH_SECONDS)
        self._pending = False
        self.flush_now()

    def flush_now(self) -> None:
        try:  # noqa: SIM105 - contextlib may not be there yet
            self.flush()
        except (ValueError, OSError):  # the program closed it
            pass


def _in_thread(work: Callable[[], None]) -> bool:
    """Run in a thread that the program's own `threading` doesn't list; False if it may have no more threads."""
    before = _stack_size(THREAD_STACK)
    try:
        _start_thread(work, ())
    except RuntimeError:
        return False
    finally:
        _stack_size(before)
    return True


# -- asking the host


class Question:
    """Something that the host was asked, until it answers."""

    def __init__(self) -> None:
        self._answered = _new_lock()
        self._answered.acquire()
        self._reply: dict[str, Any] = {}
        self._then: Callable[[], None] | None = None

    def answer(self, reply: dict[str, Any]) -> None:
        self._reply = reply
        self._answered.release()
        if self._then is not None:
            self._then()

    def wait(self) -> Any:
        self._answered.acquire()
        self._answered.release()
        return self._value()

    async def wait_in_loop(self) -> Any:
        import asyncio

        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def wake() -> None:
            try:  # noqa: SIM105
                loop.call_soon_threadsafe(done.set)
            except RuntimeError:  # the loop is gone, and with it whoever waits
                pass

        self._then = wake
        if self._answered.locked():
            await done.wait()
        return self._value()

    def _value(self) -> Any:
        error = self._reply.get("error")
        if error is not None:
            raise ToolError(str(error.get("code")), str(error.get("message")))
        return self._reply.get("value")


class Host:
    """What the program may ask, and who waits for which answer."""

    def __init__(self, channel: Channel, streams: tuple[Stream, ...], most: int) -> None:
        self._channel, self._streams, self._most = channel, streams, most
        self._numbers = count(1)
        self._asked: dict[int, Question] = {}
        self._gone = not _in_thread(self._hear)

    def _hear(self) -> None:
        while True:
            reply = self._channel.receive()
            if reply is None:
                break
            question = self._asked.pop(reply.get("reply"), None)
            if question is not None:
                question.answer(reply)
        self._gone = True
        for number in list(self._asked):
            self._asked.pop(number).answer({"error": {"code": "CONNECTION_ERROR", "message": "The host is gone."}})

    def ask(self, wanted: str, given: list[Any]) -> Question:
        try:
            given = plain(given, self._most)
        except NotJson as error:
            raise TypeError(f"What was given to {wanted} can't be sent: {error}") from None
        for stream in self._streams:
            stream.flush_now()
        question, number = Question(), next(self._numbers)
        self._asked[number] = question
        self._channel.send({"call": number, "op": wanted, "args": given})
        if self._gone and self._asked.pop(number, None) is not None:
            question.answer({"error": {"code": "CONNECTION_ERROR", "message": "The host is gone."}})
        return question

    def log(self, level: str, words: tuple[Any, ...]) -> None:
        text = " ".join(word if type(word) is str else str(word) for word in words)
        self._channel.send({"log": level, "message": _clean(text, BUFFER)})


class Tools:
    """The tools that a program may call: `tools.NAME(key=value)`, `tools["odd-name"](…)`, `tools.call("odd-name", {…})`, and
    `tools.parallel([("name", {…}), …])` for many at once."""

    def __init__(self, host: Host, names: list[str] | None) -> None:
        self._host, self._names = host, names

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__") or (self._names is not None and name not in self._names):
            known = "" if self._names is None else " There are: " + ", ".join(self._names[:50])
            raise AttributeError(f"There is no tool {name}.{known}")
        return self[name]

    def __getitem__(self, name: str) -> Callable[..., Any]:
        def call(arguments: dict[str, Any] | None = None, /, **named: Any) -> Any:
            return self.call(name, {**(arguments or {}), **named})

        return call

    def __dir__(self) -> list[str]:
        return ["call", "parallel", *(self._names or ())]

    def call(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        return self._host.ask("tool", [name, arguments or {}]).wait()

    def parallel(self, calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
        """The results in the order of the calls. If some failed: once all have ended, the error of the first that did."""
        asked = [self._host.ask("tool", [name, arguments]) for name, arguments in calls]
        errors, values = [], []
        for question in asked:
            try:
                values.append(question.wait())
            except ToolError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return values


class Record(dict):  # type: ignore[type-arg]
    """What the host gave, by key or by attribute; `exit_code` finds `exitCode`."""

    def __getattr__(self, name: str) -> Any:
        first, *rest = name.split("_")
        for key in (name, first + "".join(word.capitalize() for word in rest)):
            if key in self:
                return self[key]
        raise AttributeError(name)


FILE_CALLS = {
    "readFile": ("read_file",),
    "writeFile": ("write_file",),
    "exists": (),
    "readdir": ("list_directory",),
    "stat": (),
    "mkdir": (),
}


def make_context(given: dict[str, Any], ask: Callable[[str, list[Any]], Any], host: Host) -> types.SimpleNamespace:
    """The context of a tool. Its methods block, or are to be awaited, as `ask` does."""

    def about_files(wanted: str) -> Callable[..., Any]:
        def call(*positional: Any, **named: Any) -> Any:
            path = [named.pop("path")] if "path" in named else []
            return ask(wanted, [*path, *positional, *named.values()])

        return call

    def execute(*positional: Any, **named: Any) -> Any:
        between: list[Any] = [[]] if named and len(positional) == 1 and isinstance(positional[0], str) else []
        return ask("executor.execute", [*positional, *between, *([named] if named else [])])

    def asking(wanted: str) -> Callable[..., Any]:
        return lambda *positional, **named: ask(wanted, [*positional, *([named] if named else [])])

    def logging_at(level: str) -> Callable[..., None]:
        return lambda *words: host.log(level, words)

    files = types.SimpleNamespace()
    for name, others in FILE_CALLS.items():
        for spelling in (name, *others):
            setattr(files, spelling, about_files(f"fs.{name}"))
    check = asking("permissions.check")
    levels = {"debug": "debug", "info": "info", "warn": "warn", "warning": "warn", "error": "error"}
    conversation = given.get("conversation")
    return types.SimpleNamespace(
        config=Record(given.get("config") or {}),
        conversation=None if conversation is None else Record(conversation),
        platform=types.SimpleNamespace(
            fs=files,
            executor=types.SimpleNamespace(execute=execute),
            docker=types.SimpleNamespace(run=asking("docker.run")) if given.get("docker") else None,
        ),
        llm=types.SimpleNamespace(complete=asking("llm.complete")) if given.get("llm") else None,
        permissions=types.SimpleNamespace(check=check, checkPermission=check, check_permission=check),
        checkPermission=check,
        check_permission=check,
        logger=types.SimpleNamespace(**{name: logging_at(level) for name, level in levels.items()}),
    )


# -- running


class Program:
    """Somebody's code, and where in it things go wrong."""

    def __init__(self, code: str, name: str) -> None:
        self.code, self.filename = code, f"<{name}>"

    def compile(self, mode: str) -> types.CodeType:
        """Raises whatever Python's compiler raises. The value of a last expression is kept under a name of ours."""
        await_at_top = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if mode in ("script", "program") else 0
        tree = compile(self.code, self.filename, "exec", _ast.PyCF_ONLY_AST | await_at_top, dont_inherit=True)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, _ast.Expr):
            place = {name: getattr(last, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}
            kept = _ast.Name(id=RESULT, ctx=_ast.Store(), **place)
            tree.body[-1] = _ast.Assign(targets=[kept], value=last.value, **place)
        # For tracebacks that the program prints itself. Importing it takes as long as all else, so a worker that had no time
        # to get warm does without, unless the program is about to ask for it.
        if "linecache" in sys.modules or any(word in self.code for word in ("traceback", "inspect", "logging")):
            import linecache

            lines = self.code.splitlines(keepends=True)
            linecache.cache[self.filename] = (len(self.code), None, lines, self.filename)
        compiled: types.CodeType = compile(tree, self.filename, "exec", await_at_top, dont_inherit=True)
        return compiled

    def names_execute(self) -> bool:
        """Whether the code gives the name `execute` to something, at its top level."""
        import ast

        tree = ast.parse(self.code)
        return any(_binds_execute(part) for node in tree.body for part in ([node] if _has_body(node) else ast.walk(node)))

    def failure(self, kind: str, error: BaseException) -> dict[str, Any]:
        if kind == "syntax":
            line, column, stack = _positive(getattr(error, "lineno", None)), _positive(getattr(error, "offset", None)), ""
        else:
            line, column, stack = self._place(error)
        told = {"kind": kind, "name": _name_of(error), "message": _message_of(error), "line": line, "column": column}
        return {"failure": {**told, "stack": stack}}

    def _place(self, error: BaseException) -> tuple[int | None, int | None, str]:
        """Where it was raised in the program's own text, and by what way it came there."""
        first: list[types.TracebackType] = []
        last: list[types.TracebackType] = []
        step, seen = error.__traceback__, 0
        while step is not None:
            if step.tb_frame.f_code.co_filename == self.filename:
                seen += 1
                (first if len(first) < 3 else last).append(step)
                del last[:-8]
            step = step.tb_next
        if not seen:
            return None, None, ""
        lines = self.code.splitlines()
        shown = [self._frame(step, lines) for step in first]
        if seen > len(first) + len(last):
            shown.append(f"… {seen - len(first) - len(last)} more")
        shown += [self._frame(step, lines) for step in last]
        raised = last[-1] if last else first[-1]
        return raised.tb_lineno, _column(raised, lines), _clean("\n".join(shown), LONGEST_STACK)

    def _frame(self, step: types.TracebackType, lines: list[str]) -> str:
        number = step.tb_lineno or 0
        text = lines[number - 1].strip()[:120] if 0 < number <= len(lines) else ""
        return f"line {number}, in {step.tb_frame.f_code.co_name}: {text}"


def _has_body(node: _ast.AST) -> bool:
    return isinstance(node, (_ast.FunctionDef, _ast.AsyncFunctionDef, _ast.ClassDef))


def _binds_execute(part: _ast.AST) -> bool:
    if isinstance(part, (_ast.FunctionDef, _ast.AsyncFunctionDef, _ast.ClassDef)):
        return part.name == "execute"
    if isinstance(part, _ast.Name):
        return part.id == "execute" and isinstance(part.ctx, _ast.Store)
    return isinstance(part, _ast.alias) and (part.asname or part.name) in ("execute", "*")


def _positive(number: Any) -> int | None:
    return number if type(number) is int and number > 0 else None


def _column(step: types.TracebackType, lines: list[str]) -> int | None:
    """Known since Python 3.11, in bytes of UTF-8."""
    positions = getattr(step.tb_frame.f_code, "co_positions", None)
    if positions is None or step.tb_lasti < 0:
        return None
    found: tuple[int | None, ...] = next(islice(positions(), step.tb_lasti // 2, None), (None, None, None, None))
    line, offset = found[0], found[2]
    if line is None or offset is None or not 0 < line <= len(lines) or line != step.tb_lineno:
        return None
    return len(lines[line - 1].encode("utf-8", "replace")[:offset].decode("utf-8", "ignore")) + 1


def _name_of(error: BaseException) -> str:
    name = type.__getattribute__(type(error), "__name__")
    return _clean(name, 200)


def _message_of(error: BaseException) -> str:
    try:
        if isinstance(error, ToolError):
            return _clean(f"{error.code}: {error.message}", LONGEST_MESSAGE)
        if isinstance(error, SystemExit):
            return _clean(
                f"the code ended itself with sys.exit({'' if error.code is None else repr(error.code)})", LONGEST_MESSAGE
            )
        if isinstance(error, SyntaxError):
            return _clean(str(error.msg), LONGEST_MESSAGE)
        if isinstance(error, MemoryError) and not error.args:
            return "it used all the memory that it may have"
        return _clean(str(error), LONGEST_MESSAGE) or f"{_name_of(error)} was raised, without a message"
    except BaseException:  # noqa: BLE001 - the error's own text is the program's code
        return "its message could not be read"


def _clean(text: str, most: int) -> str:
    text = str.__str__(text)
    return (text if len(text) <= most else text[:most] + "…").encode("utf-8", "backslashreplace").decode()


class Run:
    """The one job of a worker."""

    def __init__(self, job: dict[str, Any], channel: Channel, streams: tuple[Stream, ...]) -> None:
        self._job, self._channel, self._streams = job, channel, streams
        self._most = int(job.get("output") or 1_048_576)
        self._program = Program(job["code"], str(job.get("name") or "code"))
        for stream in streams:
            stream.sink.left = self._most

    def frame(self) -> dict[str, Any]:
        """The last frame: what the program gave, or what went wrong."""
        mode, program = self._job["mode"], self._program
        try:
            compiled = program.compile(mode)
        except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
            return program.failure("syntax", error)
        if mode == "check":
            return _missing() if self._job.get("wants_execute") and not program.names_execute() else {"result": True}
        try:
            value = self._value(mode, compiled)
        except _Missing:
            return _missing()
        except BaseException as error:  # noqa: BLE001 - whatever it raises is told
            _recover()
            return program.failure("raised", error)
        _recover()
        return self._told(value)

    def _told(self, value: Any) -> dict[str, Any]:
        try:
            return {"result": plain(value, self._most)}
        except NotJson as error:
            return _value_failure(f"The result can't be given as JSON: {error}.")
        except Exception as error:  # noqa: BLE001 - a value can do anything when it is looked at
            return _value_failure(f"The result can't be read: {_name_of(error)}: {_message_of(error)}")

    def _value(self, mode: str, compiled: types.CodeType) -> Any:
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        names = main.__dict__
        names.update(__builtins__=builtins, __file__=self._program.filename)
        if mode == "tool":
            return self._execute(compiled, names)
        names["args"] = self._job.get("arguments") or {}
        if mode == "program":
            host = Host(self._channel, self._streams, self._most)
            names.update(tools=Tools(host, self._job.get("tools")), ToolError=ToolError)
        done = eval(compiled, names)
        if compiled.co_flags & COROUTINE:
            _in_loop(done)
        return names.get(RESULT)

    def _execute(self, compiled: types.CodeType, names: dict[str, Any]) -> Any:
        host = Host(self._channel, self._streams, self._most)
        names["ToolError"] = ToolError
        eval(compiled, names)
        execute = names.get("execute")
        if not callable(execute):
            raise _Missing
        code = getattr(execute, "__code__", None) or getattr(vars(type(execute)).get("__call__"), "__code__", None)
        waits = code is not None and bool(code.co_flags & COROUTINE)

        def ask(wanted: str, given: list[Any]) -> Any:
            return _record(host.ask(wanted, given).wait())

        async def ask_in_loop(wanted: str, given: list[Any]) -> Any:
            return _record(await host.ask(wanted, given).wait_in_loop())

        context = make_context(self._job.get("context") or {}, ask_in_loop if waits else ask, host)
        value = execute(self._job.get("arguments") or {}, context)
        return _in_loop(value) if isinstance(value, types.CoroutineType) else value


def _record(value: Any) -> Any:
    return Record(value) if isinstance(value, dict) else value


class _Missing(Exception):
    """The code has no `execute`."""


def _missing() -> dict[str, Any]:
    message = "The code defines no function `execute(args, context)`."
    return {"failure": {"kind": "missing", "name": "Missing", "message": message, "line": None, "column": None, "stack": ""}}


def _value_failure(message: str) -> dict[str, Any]:
    told = {"kind": "value", "name": "ValueError", "message": _clean(message, LONGEST_MESSAGE)}
    return {"failure": {**told, "line": None, "column": None, "stack": ""}}


def _in_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run it to its end. What it left running ends with the process."""
    import asyncio

    return asyncio.new_event_loop().run_until_complete(coroutine)


def _recover() -> None:
    """Undo what would make our own code fail."""
    for _ in range(2):  # a profile function that raises is asked one last time when it is taken away
        try:
            _setprofile(None)
            _settrace(None)
            _set_recursion_limit(1_000)
        except BaseException:  # noqa: BLE001 - the program's hook raised
            continue


# -- the life of the process


def warm(arrived: Callable[[], bool]) -> None:
    """Import what programs usually want, until a job is there."""
    for name in WARM:
        if arrived():
            return
        try:
            __import__(name)
        except ImportError:  # an interpreter built without it; a program that wants it is told so
            continue
    _collect()
    gc.freeze()


def _attempts(run: Run, spare: bytearray) -> Iterator[Callable[[], dict[str, Any] | bytes]]:
    """Ways to say how it ended, each needing less than the one before."""
    yield run.frame

    def after_all() -> bytes:
        spare.clear()
        _recover()
        sys.modules["__main__"].__dict__.clear()
        _collect()
        return OUT_OF_MEMORY

    yield after_all
    yield lambda: MUDDLED


def main() -> NoReturn:
    channel = Channel()
    streams = Stream(channel, "stdout"), Stream(channel, "stderr")
    vars(sys).update(stdout=streams[0], __stdout__=streams[0], stderr=streams[1], __stderr__=streams[1])
    sys.path += [*sys.argv[1:], _cwd()]
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # what `site` would have made
    spare = bytearray(4 * 1024 * 1024)
    channel.send({"ready": {"python": sys.version.split()[0]}})
    warm(channel.arrived)
    line = channel.receive()
    if line is None:
        _exit(0)
    run = Run(line["run"], channel, streams)
    for attempt in _attempts(run, spare):
        try:
            frame = attempt()
            for stream in streams:
                stream.flush_now()
            channel.send_last(frame)
            break
        except BrokenPipeError:
            break
        except BaseException:  # noqa: BLE001 - the next way needs less
            continue
    _exit(0)


if __name__ == "__main__":
    main()
