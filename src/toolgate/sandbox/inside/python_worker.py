"""The Python worker: runs one program in the jail and tells the host what came of it.

It is started before it is needed: it says that it is ready as soon as it can take its one job, and while none comes it
imports what programs usually want. Lines of JSON come in; frames (0x1E, JSON, newline) go out: what the program prints, what
it asks the host for, and at last its result or why there is none. Standard library only, Python 3.9 and newer.

The program shares this process and can reach all of it. Nothing here is a boundary: the jail is. What is taken care of is
that a program that replaces half of Python still ends with a frame that says what happened, and fools nobody but itself.
"""

from __future__ import annotations

import _ast
import builtins
import gc
import os
import sys
import types
from itertools import islice

TYPE_CHECKING = False
sys.path.append(__file__.rpartition("/")[0])  # the starter has loaded these, where it runs as the host's own interpreter
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, NoReturn

    from toolgate.sandbox.inside.worker_channel import (
        Channel,
        Host,
        SandboxToolError,
        Stream,
        Tools,
        frame_bytes,
        make_context,
    )
    from toolgate.sandbox.inside.worker_values import NotJson, plain, shortened
else:
    from worker_channel import Channel, Host, SandboxToolError, Stream, Tools, frame_bytes, make_context
    from worker_values import NotJson, plain, shortened
sys.path.pop()

WARM = (
    "linecache", "json", "collections", "asyncio", "ast", "abc", "argparse", "base64", "binascii", "bisect", "calendar",
    "collections.abc", "concurrent.futures", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal",
    "difflib", "enum", "fractions", "functools", "glob", "hashlib", "heapq", "hmac", "html", "inspect", "itertools",
    "logging", "math", "numbers", "operator", "pathlib", "pprint", "queue", "random", "re", "secrets", "shutil",
    "statistics", "string", "struct", "tempfile", "textwrap", "threading", "traceback", "typing", "unicodedata",
    "urllib.parse", "uuid", "warnings", "zlib", "zoneinfo",
)  # fmt: skip
"""Modules that programs usually import."""

MAX_MESSAGE_CHARS = MAX_STACK_CHARS = 2_000
RESULT = "__toolgate_result__"
COROUTINE = 0x80
"""The flag of compiled code that awaits at its top level."""

# The functions below look their built-in names up here, so what a program does to `builtins` is nothing to them. What they
# need of other modules they take while those are still as they were.
globals()["__builtins__"] = dict(vars(builtins))
_cwd, _exit, _collect = os.getcwd, os._exit, gc.collect
_set_recursion_limit, _settrace, _setprofile = sys.setrecursionlimit, sys.settrace, sys.setprofile


def failure(
    kind: str, name: str, message: str, line: int | None = None, column: int | None = None, stack: str = ""
) -> dict[str, Any]:
    told = {"kind": kind, "name": name, "message": shortened(message, MAX_MESSAGE_CHARS)}
    return {"failure": {**told, "line": line, "column": column, "stack": stack}}


OUT_OF_MEMORY = frame_bytes(failure("raised", "MemoryError", "It used all the memory that it may have."))
NO_RESULT = frame_bytes(
    failure("raised", "RuntimeError", "It left Python in a state in which its result could not be told.")
)
NO_EXECUTE = failure("missing", "Missing", "The code defines no function `execute(args, context)`.")


class SourceCode:
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
        """True if the code gives the name `execute` to something, at its top level."""
        import symtable

        names = symtable.symtable(self.code, self.filename, "exec").get_symbols()
        bound = any(name.get_name() == "execute" and (name.is_assigned() or name.is_imported()) for name in names)
        return bound or "import *" in self.code

    def failure(self, kind: str, error: BaseException) -> dict[str, Any]:
        if kind == "syntax":
            line, column, stack = _positive(getattr(error, "lineno", None)), _positive(getattr(error, "offset", None)), ""
        else:
            line, column, stack = self._place(error)
        return failure(kind, _name_of(error), _message_of(error), line, column, stack)

    def _place(self, error: BaseException) -> tuple[int | None, int | None, str]:
        """The place in the program's own text at which it was raised, and the way there."""
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
        return raised.tb_lineno, _column(raised, lines), shortened("\n".join(shown), MAX_STACK_CHARS)

    def _frame(self, step: types.TracebackType, lines: list[str]) -> str:
        number = step.tb_lineno or 0
        text = lines[number - 1].strip()[:120] if 0 < number <= len(lines) else ""
        return f"line {number}, in {step.tb_frame.f_code.co_name}: {text}"


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
    return shortened(type.__getattribute__(type(error), "__name__"), 200)


def _message_of(error: BaseException) -> str:
    try:
        if isinstance(error, SandboxToolError):
            return f"{error.code}: {error.message}"
        if isinstance(error, SystemExit):
            return f"the code ended itself with sys.exit({'' if error.code is None else repr(error.code)})"
        if isinstance(error, SyntaxError):
            return str(error.msg)
        if isinstance(error, MemoryError) and not error.args:
            return "it used all the memory that it may have"
        return shortened(str(error), MAX_MESSAGE_CHARS) or f"{_name_of(error)} was raised, without a message"
    except BaseException:  # noqa: BLE001 - the error's own text is the program's code
        return "its message could not be read"


class ProgramRun:
    """The one job of a worker."""

    def __init__(self, job: dict[str, Any], channel: Channel, streams: tuple[Stream, ...]) -> None:
        self._job, self._channel, self._streams = job, channel, streams
        self._most = int(job.get("output") or 1_048_576)
        self._source = SourceCode(job["code"], str(job.get("name") or "code"))
        for stream in streams:
            stream.sink.left = self._most

    def frame(self) -> dict[str, Any]:
        """The last frame: what the program gave, or what went wrong."""
        mode, source = self._job["mode"], self._source
        try:
            compiled = source.compile(mode)
        except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
            return source.failure("syntax", error)
        if mode == "check":
            return NO_EXECUTE if self._job.get("wants_execute") and not source.names_execute() else {"result": True}
        try:
            value = self._value(mode, compiled)
        except _Missing:
            return NO_EXECUTE
        except BaseException as error:  # noqa: BLE001 - whatever it raises is told
            _recover()
            return source.failure("raised", error)
        _recover()
        return self._told(value)

    def _told(self, value: Any) -> dict[str, Any]:
        try:
            return {"result": plain(value, self._most)}
        except NotJson as error:
            return failure("value", "ValueError", f"The result cannot be given as JSON: {error}.")
        except Exception as error:  # noqa: BLE001 - a value can do anything when it is looked at
            return failure("value", "ValueError", f"The result cannot be read: {_name_of(error)}: {_message_of(error)}")

    def _value(self, mode: str, compiled: types.CodeType) -> Any:
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        names = main.__dict__
        names.update(__builtins__=builtins, __file__=self._source.filename)
        if mode == "tool":
            return self._execute(compiled, names)
        names["args"] = self._job.get("arguments") or {}
        if mode == "program":
            host = Host(self._channel, self._streams, self._most)
            names.update(tools=Tools(host, self._job.get("tools")), ToolError=SandboxToolError)
        done = eval(compiled, names)
        if compiled.co_flags & COROUTINE:
            _in_loop(done)
        return names.get(RESULT)

    def _execute(self, compiled: types.CodeType, names: dict[str, Any]) -> Any:
        host = Host(self._channel, self._streams, self._most)
        names["ToolError"] = SandboxToolError
        eval(compiled, names)
        execute = names.get("execute")
        if not callable(execute):
            raise _Missing
        code = getattr(execute, "__code__", None) or getattr(vars(type(execute)).get("__call__"), "__code__", None)
        waits = code is not None and bool(code.co_flags & COROUTINE)
        context = make_context(self._job.get("context") or {}, host, waits)
        value = execute(self._job.get("arguments") or {}, context)
        return _in_loop(value) if isinstance(value, types.CoroutineType) else value


class _Missing(Exception):
    """The code has no `execute`."""


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
    job = ProgramRun(line["run"], channel, streams)

    def after_all() -> bytes:
        spare.clear()
        _recover()
        sys.modules["__main__"].__dict__.clear()
        _collect()
        return OUT_OF_MEMORY

    for attempt in (job.frame, after_all, lambda: NO_RESULT):  # each needs less than the one before
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
