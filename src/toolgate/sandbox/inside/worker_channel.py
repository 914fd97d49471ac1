"""The Python worker's side of the protocol: frames, what the code prints, and how it asks the host for things.

Part of the Python worker (`python_worker`). Lines of JSON come in; frames (0x1E, JSON, newline) go out.
"""

from __future__ import annotations

import _thread
import builtins
import codecs
import io
import os
import select
import sys
import time
import types
from itertools import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from toolgate.sandbox.inside.worker_values import NotJson, decode, encode, plain, shortened
else:
    from worker_values import NotJson, decode, encode, plain, shortened

globals()["__builtins__"] = dict(vars(builtins))
BUFFER_BYTES = 8_192
FLUSH_SECONDS = 0.05
"""Printed text reaches the host after this at the latest, so that a program that is killed has not printed for nothing."""
THREAD_STACK_BYTES = 512 * 1024
HOST_GONE = {"error": {"code": "CONNECTION_ERROR", "message": "The host is gone."}}
_close, _dup, _dup2, _pipe, _read, _write = os.close, os.dup, os.dup2, os.pipe, os.read, os.write
_select, _sleep, _start_thread, _stack_size, _new_lock = (
    select.select, time.sleep, _thread.start_new_thread, _thread.stack_size, _thread.allocate_lock,
)  # fmt: skip


class SandboxToolError(Exception):
    """The host refused, or what was asked of it failed. Code in the sandbox knows it as `ToolError`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


SandboxToolError.__name__ = SandboxToolError.__qualname__ = "ToolError"


def frame_bytes(frame: dict[str, Any]) -> bytes:
    return b"\x1e" + encode(frame).encode("ascii") + b"\n"


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
        self._send(frame_bytes(frame))

    def _send(self, data: bytes) -> None:
        with self._lock:
            while data:
                data = data[_write(self._out, data) :]

    def send_last(self, frame: dict[str, Any] | bytes) -> None:
        """Nothing is sent after this: the lock is kept."""
        data = frame if isinstance(frame, bytes) else frame_bytes(frame)
        self._lock.acquire()
        self._send(data)

    def arrived(self) -> bool:
        """True if there is something to receive."""
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
        return decode(line)


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
    """The target of `print`: keeps text back for a moment, so that many lines become one frame."""

    def __init__(self, channel: Channel, name: str) -> None:
        self.sink = _Sink(channel, name)
        super().__init__(
            io.BufferedWriter(self.sink, BUFFER_BYTES), encoding="utf-8", errors="backslashreplace", newline="\n"
        )
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
    before = _stack_size(THREAD_STACK_BYTES)
    try:
        _start_thread(work, ())
    except RuntimeError:
        return False
    finally:
        _stack_size(before)
    return True


class HostRequest:
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
            raise SandboxToolError(str(error.get("code")), str(error.get("message")))
        return self._reply.get("value")


class Host:
    """Asks the host for the program, and knows who waits for which answer."""

    def __init__(self, channel: Channel, streams: tuple[Stream, ...], most: int) -> None:
        self._channel, self._streams, self._most = channel, streams, most
        self._numbers = count(1)
        self._requests: dict[int, HostRequest] = {}
        self._gone = not _in_thread(self._hear)

    def _hear(self) -> None:
        while True:
            reply = self._channel.receive()
            if reply is None:
                break
            request = self._requests.pop(reply.get("reply"), None)
            if request is not None:
                request.answer(reply)
        self._gone = True
        for number in list(self._requests):
            self._requests.pop(number).answer(HOST_GONE)

    def ask(self, wanted: str, given: list[Any]) -> HostRequest:
        try:
            given = plain(given, self._most)
        except NotJson as error:
            raise TypeError(f"What was given to {wanted} cannot be sent: {error}") from None
        for stream in self._streams:
            stream.flush_now()
        request, number = HostRequest(), next(self._numbers)
        self._requests[number] = request
        self._channel.send({"call": number, "op": wanted, "args": given})
        if self._gone and self._requests.pop(number, None) is not None:
            request.answer(HOST_GONE)
        return request

    def log(self, level: str, words: tuple[Any, ...]) -> None:
        text = " ".join(word if type(word) is str else str(word) for word in words)
        self._channel.send({"log": level, "message": shortened(text, BUFFER_BYTES)})


# -- what the code finds for asking: the tools of a program, and the context of a tool


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
        for request in asked:
            try:
                values.append(request.wait())
            except SandboxToolError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return values


class AttributeDict(dict):  # type: ignore[type-arg]
    """A mapping that the host gave, by key or by attribute; `exit_code` finds `exitCode`."""

    def __getattr__(self, name: str) -> Any:
        first, *rest = name.split("_")
        for key in (name, first + "".join(word.capitalize() for word in rest)):
            if key in self:
                return self[key]
        raise AttributeError(name)


FILE_CALLS = {
    "readFile": "read_file", "writeFile": "write_file", "exists": "exists", "readdir": "list_directory", "stat": "stat",
    "mkdir": "mkdir",
}  # fmt: skip
"""Each by both its spellings."""


def make_context(given: dict[str, Any], host: Host, waits: bool) -> types.SimpleNamespace:
    """The context of a tool. Its methods block or, if the tool is one that awaits, are to be awaited."""

    def with_attributes(value: Any) -> Any:
        return AttributeDict(value) if isinstance(value, dict) else value

    def ask_now(wanted: str, given: list[Any]) -> Any:
        return with_attributes(host.ask(wanted, given).wait())

    async def ask_in_loop(wanted: str, given: list[Any]) -> Any:
        return with_attributes(await host.ask(wanted, given).wait_in_loop())

    ask: Callable[[str, list[Any]], Any] = ask_in_loop if waits else ask_now

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
    for name, other in FILE_CALLS.items():
        vars(files).update(dict.fromkeys((name, other), about_files(f"fs.{name}")))
    check = asking("permissions.check")
    levels = {"debug": "debug", "info": "info", "warn": "warn", "warning": "warn", "error": "error"}
    conversation = given.get("conversation")
    return types.SimpleNamespace(
        config=AttributeDict(given.get("config") or {}),
        conversation=None if conversation is None else AttributeDict(conversation),
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
