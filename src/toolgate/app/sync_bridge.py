"""The attributes of an App and its facets for programs without an event loop: each is looked up when it is asked for, so
that there is no second list of methods to keep. What a type checker knows of them stands in `sync_app.pyi`."""

import inspect
import threading
from collections.abc import Callable, Iterator
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from toolgate.app.facets import Facet
from toolgate.app.loop_thread import LoopThread
from toolgate.errors import ToolgateError

if TYPE_CHECKING:
    from toolgate.app.app import App

END = object()
PLAIN = frozenset({"settings", "metrics"})
"""Attributes of an App that are no facets and no methods."""
HIDDEN = frozenset({"open", "open_sync"})
_async_kinds: dict[type, bool] = {}
_open: "WeakSet[BridgedApp]" = WeakSet()


class BlockingProxy:
    """An object whose methods block until they are done."""

    def __init__(self, thread: LoopThread, target: Any) -> None:
        self._thread, self._target = thread, target

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return bridged(self._thread, getattr(self._target, name))

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._target) if not name.startswith("_")]


class BlockingIterator(Iterator[Any]):
    """An async iterator as a plain one."""

    def __init__(self, thread: LoopThread, source: Any) -> None:
        self._thread, self._source = thread, source

    def __next__(self) -> Any:
        found = END if self._source is None else self._thread.call(lambda: anext(self._source, END))
        if found is END:
            self._source = None
            raise StopIteration
        return bridged(self._thread, found)

    def close(self) -> None:
        """Ends it."""
        source, self._source = self._source, None
        if hasattr(source, "aclose") and self._thread.is_ours:
            self._thread.call(source.aclose)

    def __del__(self) -> None:
        self._thread.forget(getattr(self._source, "aclose", None))  # who leaves a `for` does not close what it went over


class BlockingContext:
    """An async context manager as a plain one."""

    def __init__(self, thread: LoopThread, source: Any) -> None:
        self._thread, self._source = thread, source

    def __enter__(self) -> Any:
        return bridged(self._thread, self._thread.call(self._source.__aenter__))

    def __exit__(self, *raised: Any) -> Any:
        return self._thread.call(lambda: self._source.__aexit__(*raised))


def bridged(thread: LoopThread, value: Any) -> Any:
    """Gives a value as a program without an event loop can use it; what needs none stays as it is."""
    if inspect.isroutine(value):
        return _blocking(thread, value)
    if hasattr(value, "__anext__"):
        return BlockingIterator(thread, value)
    if hasattr(value, "__aenter__"):
        return BlockingContext(thread, value)
    return BlockingProxy(thread, value) if isinstance(value, Facet) or _is_async(type(value)) else value


def _is_async(kind: type) -> bool:
    """True of a class of ours with methods that are to be awaited."""
    if kind not in _async_kinds:
        _async_kinds[kind] = kind.__module__.startswith("toolgate.") and any(
            inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one)
            for name, one in inspect.getmembers_static(kind)
            if not name.startswith("_")
        )
    return _async_kinds[kind]


def _blocking(thread: LoopThread, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        return bridged(thread, thread.call(partial(method, *args, **kwargs)))

    return call


class BridgedApp:
    """An App in a thread of its own, with the same facets and methods, which block."""

    def __init__(self, app: "App") -> None:
        self._app, self._thread = app, LoopThread()
        self._was_opened = False
        for name, value in vars(app).items():
            if isinstance(value, Facet):
                setattr(self, name, BlockingProxy(self._thread, value))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._app, name) if not name.startswith("_") and name not in HIDDEN else None
        if name in PLAIN:
            return found
        if inspect.isroutine(found):
            return _blocking(self._thread, found)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __dir__(self) -> list[str]:
        methods = [name for name, one in inspect.getmembers_static(type(self._app)) if inspect.isroutine(one)]
        return sorted({*super().__dir__(), *PLAIN, *(name for name in methods if not name.startswith("_"))} - HIDDEN)

    def start(self) -> Self:
        """Opens the App, as `with` does; for notebooks, where `with` ends with its cell. `close` ends it, and so does the
        end of the program."""
        if self._was_opened:
            raise ToolgateError("This App was opened before.", suggestion="Make another one with `App.open_sync()`.")
        self._was_opened = True
        self._thread.start()
        try:
            self._thread.call(self._app.__aenter__)
        except BaseException:
            self._thread.stop()
            raise
        _open.add(self)
        return self

    def close(self) -> None:
        """Closes the App: running calls are waited for, as the settings say."""
        self._end(None, None, None)

    def _end(self, *raised: Any) -> None:
        if not self._thread.is_ours:
            return  # it was not opened, is closed, or belongs to the process that this one was forked off
        _open.discard(self)
        try:
            self._thread.call(lambda: self._app.__aexit__(*raised))
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end(kind, error, trace)


def _close_all() -> None:
    """Closes the Apps that a program leaves open at its end."""
    for app in tuple(_open):
        app.close()


# Not `atexit`: that comes after the executors of threads were ended, on which closing an App relies.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]
