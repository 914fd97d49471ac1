"""What sandboxed Python finds for asking the host: the tools of a program, and the context of a tool.

Part of the Python worker (`python_worker`).
"""

from __future__ import annotations

import builtins
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from toolgate.sandbox.inside.worker_channel import Host, SandboxToolError
else:
    from worker_channel import SandboxToolError

globals()["__builtins__"] = dict(vars(builtins))


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
    """What the host gave, by key or by attribute; `exit_code` finds `exitCode`."""

    def __getattr__(self, name: str) -> Any:
        first, *rest = name.split("_")
        for key in (name, first + "".join(word.capitalize() for word in rest)):
            if key in self:
                return self[key]
        raise AttributeError(name)


def with_attributes(value: Any) -> Any:
    return AttributeDict(value) if isinstance(value, dict) else value


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
