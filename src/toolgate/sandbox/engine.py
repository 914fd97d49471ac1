"""The engine: runs Python, TypeScript and commands of which nobody knows what they will do.

A jail is chosen when something is first to be run, by trying it out. Code goes to the lane that fits it: small pure Python
to Monty, other Python to a worker, TypeScript to Deno, commands to the shell lane. What the code may ask of the host is
what the caller's `serve` answers, nothing else.
"""

import asyncio
import logging
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from toolgate.errors import CallError, Failed, NotReached, timed_out
from toolgate.sandbox.port import (
    LAYERING_JAILS,
    MB,
    Feature,
    Jail,
    JailedProcess,
    ResourceLimits,
    Spec,
    Stopped,
    Unavailable,
)
from toolgate.sandbox.runtimes import shell
from toolgate.sandbox.worker_protocol import CodeFailure, LogLine, Serve, WorkerResult, limit_message, limit_met
from toolgate.settings import SandboxSettings
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.sandbox.jails.docker import Docker
    from toolgate.sandbox.jails.selection import JailReport
    from toolgate.sandbox.pool import Pool
    from toolgate.sandbox.runtimes.monty.runtime import MontyRuntime
    from toolgate.sandbox.workspace_copy import WorkspaceCopy

Language = Literal["python", "typescript", "javascript"]
Mode = Literal["tool", "script", "program", "check"]
SettleChanges = Callable[..., Sequence[str]]
"""Decides about the changes of a program that is over, given its upper layer as an open folder (`Intake.settle`), in a
thread."""
Finished = TypeVar("Finished", "CodeResult", "CommandResult")
MAX_TOLD_CHARS = 2_000
"""Of what a run wrote, how much is told with its error."""
LIMIT_SETTINGS: Mapping[Stopped, str] = {
    "memory": "sandbox.memory_mb", "disk": "sandbox.disk_mb", "processes": "sandbox.processes",
    "output": "sandbox.output_bytes",
}  # fmt: skip
AGAIN_SECONDS = 10.0
"""If nothing could hold code, it is tried again after this long."""
MOST_COMPILED = 512
"""Programs that are kept in their compiled form."""

logger = logging.getLogger("toolgate.sandbox")


class CodeResult(msgspec.Struct, frozen=True):
    """What came of code."""

    value: Any
    failure: CodeFailure | None
    stdout: str
    stderr: str
    logs: tuple[LogLine, ...]
    stopped: Stopped | None
    """The limit that it ran into, if it did."""
    limits: ResourceLimits
    lane: str
    jail: str
    enforced: Mapping[Feature, str]
    """What was held, and by what means."""
    seconds: float
    left: tuple[str, ...] = ()
    """What is to be said of the changes that it made in its layer."""


class CommandResult(msgspec.Struct, frozen=True):
    """What came of a command."""

    exit_code: int
    stdout: str
    stderr: str
    stopped: Stopped | None
    """The limit that it ran into, if it did."""
    limits: ResourceLimits
    jail: str
    enforced: Mapping[Feature, str]
    seconds: float
    left: tuple[str, ...] = ()
    """What is to be said of the changes that it made in its layer."""


class Sandbox:
    """One for each App. Nothing is started, and nothing of it imported, before it is first used."""

    def __init__(self, settings: SandboxSettings | None = None) -> None:
        self.settings = settings or SandboxSettings()
        given = self.settings
        self.limits = ResourceLimits(
            seconds=given.seconds,
            memory=given.memory_mb * MB,
            disk=given.disk_mb * MB,
            processes=given.processes,
            output=given.output_bytes,
        )
        self._rooms: dict[int, asyncio.Semaphore] = {}
        self._choosing: asyncio.Task[Jail] | None = None
        self._choosing_servers: asyncio.Task[Jail] | None = None
        self._chosen_at = 0.0
        self._pool: Pool | None = None
        self._monty: MontyRuntime | None = None
        self._docker: Docker | None = None
        self._compiled: OrderedDict[bytes, str | CodeFailure] = OrderedDict()
        """By content: the compiled form of a program (empty if it is run as it stands), or why there is none."""
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    # -- running

    async def run_code(
        self,
        language: Language,
        code: str,
        *,
        mode: Mode = "script",
        name: str = "code",
        arguments: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
        tools: Sequence[str] | None = None,
        serve: Serve | None = None,
        workspace: Path | None = None,
        fixed: tuple[Path, ...] = (),
        hidden: tuple[Path, ...] = (),
        layer: SettleChanges | None = None,
        seconds: float | None = None,
        depth: int = 0,
    ) -> CodeResult:
        """Run code to its end, or to the limit that it meets first. Raises NotReached (SANDBOX_UNAVAILABLE) if nothing
        here can hold it. `layer`: what it changes in the workspace is kept apart from it, and then handed to this. `depth`:
        inside of how many other runs it was asked for."""
        if workspace is not None and layer is not None and not await self._lays_layers():
            return await self._in_copy(workspace, hidden, layer, lambda copied: self.run_code(
                language, code, mode=mode, name=name, arguments=arguments, context=context, tools=tools, serve=serve,
                workspace=copied.folder, seconds=seconds, depth=depth,
            ))  # fmt: skip
        limits = self._within(seconds)
        job: dict[str, Any] = {
            "mode": mode,
            "code": code,
            "name": name,
            "language": language,
            "arguments": dict(arguments or {}),
            "context": dict(context or {}),
            "tools": None if tools is None else list(tools),
            "output": limits.output,
        }
        async with self._room(depth):
            if language == "python" and workspace is None and mode in ("script", "program"):
                ran = await self._try_monty(job, serve, limits)
                if ran is not None:
                    return ran
            if language == "python":
                spec = self._python(workspace, fixed, hidden, layered=layer is not None)
            else:
                spec = self._deno()
            if limits.seconds > self.limits.seconds:
                spec = msgspec.structs.replace(spec, limits=self._within(self._rounded(limits.seconds)))
            if language != "python":
                compiled = self._compiled.get(_key(f"{language} True", code))
                if mode == "tool" and isinstance(compiled, str) and compiled:
                    job["compiled"] = compiled
            return await self._in_worker(spec, job, serve, limits, layer)

    async def check(
        self, language: Language, code: str, *, wants_execute: bool = True, depth: int = 0
    ) -> CodeFailure | None:
        """Whether code can be compiled, found out in the sandbox, once for each text; the compiled form is kept for it.
        Only a process that does nothing else compiles: what a run left behind must not be what the next one runs."""
        key = _key(f"{language} {wants_execute}", code)
        known = self._compiled.get(key)
        if known is not None:
            self._compiled.move_to_end(key)
            return known if isinstance(known, CodeFailure) else None
        job: dict[str, Any] = {
            "mode": "check", "code": code, "name": "code", "language": language, "arguments": {}, "context": {},
            "tools": None, "wants_execute": wants_execute, "output": self.limits.output,
        }  # fmt: skip
        async with self._room(depth):
            spec = self._python(None, (), ()) if language == "python" else self._deno()
            heard, stopped, _, _ = await self._converse(spec, job, None, self.limits)
        stopped = stopped or (None if heard.failure is None else heard.failure.stopped)
        if stopped == "time":  # which says nothing of the code: the machine may have been too busy
            raise timed_out(self.limits.seconds)
        if stopped is None and (heard.failure is None or heard.failure.kind in ("syntax", "missing")):
            self._compiled[key] = heard.failure or heard.compiled or ""
            if len(self._compiled) > MOST_COMPILED:
                self._compiled.popitem(last=False)
        return heard.failure

    async def run_command(
        self,
        argv: Sequence[str],
        *,
        workspace: Path | None = None,
        cwd: Path | None = None,
        fixed: tuple[Path, ...] = (),
        hidden: tuple[Path, ...] = (),
        layer: SettleChanges | None = None,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        seconds: float | None = None,
        depth: int = 0,
    ) -> CommandResult:
        """Run a program with its arguments, no shell between; in `cwd`, which is in the workspace. `layer`: as for code."""
        if workspace is not None and layer is not None and not await self._lays_layers():
            return await self._in_copy(workspace, hidden, layer, lambda copied: self.run_command(
                argv, workspace=copied.folder, cwd=None if cwd is None else copied.place_of(cwd), stdin=stdin,
                environment=environment, seconds=seconds, depth=depth,
            ))  # fmt: skip
        limits = self._within(seconds)
        spec = shell.spec(
            argv, limits, workspace=workspace, cwd=cwd, fixed=fixed, hidden=hidden,
            programs=self.settings.programs, environment=environment, layered=layer is not None,
        )  # fmt: skip
        async with self._room(depth):
            jail = await self.jail()
            begun = perf_counter()
            process = await self._start(jail, spec)
            timer = asyncio.get_running_loop().call_later(limits.seconds, process.kill, "time")
            with UpperLayers() as uppers:
                try:
                    code, out, errors = await shell.converse(process, stdin, limits)
                    uppers.take(process)
                finally:
                    timer.cancel()
                    await self._let_go(process.close())
                left = await uppers.looked_at(layer)
        if process.stopped is None and code == 125 and errors.startswith("toolgate-starter:"):
            raise unavailable(errors[:500])
        stopped = process.stopped or (
            limit_met(code) if code < 0 else None
        )  # a program may itself exit with any number from 0 on
        return CommandResult(code, out, errors, stopped, limits, jail.name, jail.enforces(), perf_counter() - begun, left)

    async def run_container(
        self,
        image: str,
        command: Sequence[str],
        *,
        workspace: Path | None = None,
        cwd: Path | None = None,
        fixed: tuple[Path, ...] = (),
        hidden: tuple[Path, ...] = (),
        layer: SettleChanges | None = None,
        environment: Mapping[str, str] | None = None,
        seconds: float | None = None,
        depth: int = 0,
    ) -> CommandResult:
        """Run a command in a container of an image, under the same limits, whatever holds other code. `layer`: as for
        code."""
        from toolgate.sandbox.jails.docker import Docker, run_container

        if workspace is not None and layer is not None:
            return await self._in_copy(workspace, hidden, layer, lambda copied: self.run_container(
                image, command, workspace=copied.folder, cwd=None if cwd is None else copied.place_of(cwd),
                environment=environment, seconds=seconds, depth=depth,
            ))  # fmt: skip
        limits = self._within(seconds)
        async with self._room(depth):
            begun = perf_counter()
            docker = self._docker = self._docker or Docker(command=self.settings.docker_command)
            try:
                ended = await run_container(
                    docker, image, command, limits, workspace=workspace, cwd=cwd, fixed=fixed, hidden=hidden,
                    environment=environment,
                )  # fmt: skip
            except Unavailable as error:
                raise unavailable(error.message) from error
        took = perf_counter() - begun
        return CommandResult(
            ended.exit_code, ended.stdout, ended.stderr, ended.stopped, limits, docker.name, docker.enforces(), took
        )  # fmt: skip

    async def _lays_layers(self) -> bool:
        return (await self.jail()).name in LAYERING_JAILS

    async def _in_copy(
        self,
        workspace: Path,
        hidden: tuple[Path, ...],
        layer: SettleChanges,
        run: "Callable[[WorkspaceCopy], Coroutine[Any, Any, Finished]]",
    ) -> "Finished":
        """Run something in a copy of its workspace, and hand over what it changed."""
        from toolgate.sandbox.workspace_copy import WorkspaceCopy

        with _as_unavailable():
            copied = await to_thread(WorkspaceCopy, workspace, hidden, self.limits)
        try:
            finished = await run(copied)
            left = await asyncio.shield(asyncio.ensure_future(to_thread(copied.settle, layer)))
            return msgspec.structs.replace(finished, left=left)
        finally:
            await self._let_go(to_thread(copied.remove))

    # -- what holds it

    async def jail(self) -> Jail:
        """What holds code on this machine, found out once."""
        if self._closed:
            raise unavailable("it is closed")
        if self._choosing is None:
            self._choosing, self._chosen_at = asyncio.ensure_future(self._choose()), monotonic()
        try:
            return await asyncio.shield(self._choosing)
        except Unavailable as error:
            if monotonic() > self._chosen_at + AGAIN_SECONDS:
                self._choosing = None  # the machine may only have been too busy for the trial
            raise unavailable(error.message, error.suggestion) from error
        except asyncio.CancelledError:
            if self._closed and self._choosing.cancelled():
                raise unavailable("it is closed") from None
            raise

    async def server_jail(self) -> Jail:
        """What holds servers, which stay: the same jail, but for containers, whose processes are not ours to watch."""
        if self.settings.backend != "docker":
            return await self.jail()
        if self._closed:
            raise unavailable("it is closed")
        if self._choosing_servers is None or (self._choosing_servers.done() and self._choosing_servers.exception()):
            self._choosing_servers = asyncio.ensure_future(choose_for_servers())
        try:
            return await asyncio.shield(self._choosing_servers)
        except Unavailable as error:
            raise unavailable(error.message) from error

    async def _has_jail(self) -> bool:
        try:
            await self.jail()
        except NotReached:
            return False
        return True

    async def _choose(self) -> Jail:
        from toolgate.sandbox.jails.selection import choose

        return await choose(self.settings)

    async def survey(self) -> "list[JailReport]":
        """What could hold code here, and why the rest can't: each tried."""
        from toolgate.sandbox.jails.selection import survey

        return await survey(self.settings)

    # -- lanes

    def _python(
        self, workspace: Path | None, fixed: tuple[Path, ...], hidden: tuple[Path, ...], *, layered: bool = False
    ) -> Spec:
        from toolgate.sandbox.runtimes import python

        with _as_unavailable():
            interpreter = python.find_python(self.settings.python)
        return python.spec(
            interpreter, self.limits, workspace=workspace, fixed=fixed, hidden=hidden, packages=self.settings.packages,
            layered=layered,
        )  # fmt: skip

    def _deno(self) -> Spec:
        from toolgate.sandbox.runtimes import deno

        with _as_unavailable():
            return deno.spec(deno.find_deno(self.settings.deno), self.limits)

    async def _try_monty(self, job: dict[str, Any], serve: Serve | None, limits: ResourceLimits) -> CodeResult | None:
        """What Monty makes of it; None if it is not for Monty, or Monty could not do it and CPython may."""
        if not self.settings.monty:
            return None
        from toolgate.sandbox.runtimes.monty import runtime as monty

        if self._closed:
            raise unavailable("it is closed")
        if self._monty is None:
            self._monty = monty.MontyRuntime(self.limits)
        if self._monty.busy or not self._monty.takes(job):
            return None
        begun = perf_counter()
        heard, stopped = await self._monty.run(job, serve, limits)
        if heard.doubtful and await self._has_jail():
            return None
        if self._monty.broken is not None:
            raise unavailable(self._monty.broken)
        return _ran(heard, stopped, limits, "monty", "monty", self._monty.enforces(), begun)

    async def _in_worker(
        self, spec: Spec, job: dict[str, Any], serve: Serve | None, limits: ResourceLimits, layer: SettleChanges | None
    ) -> CodeResult:
        jail = await self.jail()
        begun = perf_counter()
        heard, stopped, lane, left = await self._converse(spec, job, serve, limits, layer)
        return _ran(heard, stopped, limits, lane, jail.name, jail.enforces(), begun, left)

    async def _converse(
        self,
        spec: Spec,
        job: dict[str, Any],
        serve: Serve | None,
        limits: ResourceLimits,
        layer: SettleChanges | None = None,
    ) -> tuple[WorkerResult, Stopped | None, str, tuple[str, ...]]:
        """What the code said, why it was stopped, its lane, and what is to be said of its changes."""
        jail = await self.jail()
        pool = self._pool
        if pool is None:
            pool = self._pool = self._make_pool(jail)
        try:
            worker = await pool.take(spec)
        except Unavailable as error:
            raise unavailable(error.message) from error
        timer = asyncio.get_running_loop().call_later(limits.seconds, worker.process.kill, "time")
        lane = "python" if spec.profile == "python" else "deno"
        with UpperLayers() as uppers:
            try:
                heard = await worker.run(job, serve, limits)
                uppers.take(worker.process)
            finally:
                timer.cancel()
                if spec.workspace is not None:  # nothing may go on writing there
                    await self._let_go(worker.close())
                else:
                    self._in_background(worker.close())
            return heard, worker.process.stopped, lane, await uppers.looked_at(layer)

    def _make_pool(self, jail: Jail) -> "Pool":
        from toolgate.sandbox.pool import Pool

        given = self.settings
        return Pool(jail, warm=given.warm, memory=given.warm_memory_mb * MB, idle_seconds=given.idle_seconds)

    async def _start(self, jail: Jail, spec: Spec) -> Any:
        try:
            return await jail.start(spec)
        except Unavailable as error:
            raise unavailable(error.message) from error

    # -- limits and endings

    def _room(self, depth: int) -> asyncio.Semaphore:
        """Places for runs. Those inside of others have places of their own, or all could wait for a place that one of them
        holds."""
        return self._rooms.setdefault(depth, asyncio.Semaphore(self.settings.at_once))

    def _within(self, seconds: float | None) -> ResourceLimits:
        return self.limits if seconds is None else msgspec.structs.replace(self.limits, seconds=seconds)

    def _rounded(self, seconds: float) -> float:
        """Processor time for a worker that may take longer than others, which the kernel must be told when it starts: in
        doubling steps, so that there are few kinds of workers."""
        return self.limits.seconds * 2.0 ** math.ceil(math.log2(seconds / self.limits.seconds))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def _let_go(self, closing: Coroutine[Any, Any, None]) -> None:
        """Wait until a process is gone, also if whoever waits for it goes away."""
        await asyncio.shield(self._in_background(closing))

    async def close(self) -> None:
        """End everything that still runs."""
        self._closed = True
        if self._pool is not None:
            await self._pool.close()
        if self._monty is not None:
            await self._monty.close()
        while self._closing:
            await asyncio.wait(list(self._closing))
        if self._docker is not None:
            await self._docker.close()
        for choosing in filter(None, (self._choosing, self._choosing_servers)):
            if not choosing.done():
                choosing.cancel()
            elif not choosing.cancelled() and choosing.exception() is None:
                await choosing.result().close()


async def choose_for_servers() -> Jail:
    """One that is always there for programs that stay."""
    from toolgate.sandbox.jails.selection import choose

    return await choose(SandboxSettings())


def _ran(
    heard: WorkerResult, stopped: Stopped | None, limits: ResourceLimits, lane: str, jail: str,
    enforced: Mapping[Feature, str], begun: float, left: tuple[str, ...] = (),
) -> CodeResult:  # fmt: skip
    stopped = stopped or (None if heard.failure is None else heard.failure.stopped)
    return CodeResult(
        heard.value, heard.failure, heard.stdout, heard.stderr, tuple(heard.logs), stopped, limits, lane, jail, enforced,
        perf_counter() - begun, left,
    )  # fmt: skip


class UpperLayers:
    """What a program changed in its layers, as open folders, beyond its end."""

    def __init__(self) -> None:
        self._open: list[int] = []

    def __enter__(self) -> "UpperLayers":
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            os.close(self._open.pop())

    def take(self, process: JailedProcess) -> None:
        """Of a program that is about to be closed."""
        self._open += map(os.dup, process.uppers())

    async def looked_at(self, layer: SettleChanges | None) -> tuple[str, ...]:
        """Have it decided about. Once that has begun, it is gone through with."""
        if layer is None or not self._open:
            return ()
        looking = to_thread(_look, layer, self._open.pop())
        return await asyncio.shield(asyncio.ensure_future(looking))


def _look(layer: SettleChanges, upper: int) -> tuple[str, ...]:
    try:
        return tuple(layer(upper))
    finally:
        os.close(upper)


def unavailable(why: str, suggestion: str | None = None) -> NotReached:
    """What is said where nothing can hold code: it is not run."""
    return NotReached(
        "SANDBOX_UNAVAILABLE",
        f"No sandbox can be had: {why}",
        suggestion=suggestion or "`toolgate doctor` shows what was tried. On Debian: apt-get install bubblewrap.",
    )


def limit_error(ended: CodeResult | CommandResult) -> CallError:
    """The error of a run that met a limit, with the end of what it wrote: TIMEOUT if it was that of time, SANDBOX_ERROR for
    memory, disk, processes and output."""
    assert ended.stopped is not None
    wrote = (("stdout", ended.stdout), ("stderr", ended.stderr))
    details = {"stopped": ended.stopped, **{name: text[-MAX_TOLD_CHARS:] for name, text in wrote if text}}
    return _limit_error(ended.stopped, ended.limits, details)


def _limit_error(stopped: Stopped, limits: ResourceLimits, details: dict[str, Any]) -> CallError:
    if stopped == "time":
        return timed_out(limits.seconds, details=details)
    return Failed(
        "SANDBOX_ERROR",
        limit_message(stopped, limits),
        suggestion=f"Give it less to do. Whoever runs Toolgate can raise the setting {LIMIT_SETTINGS[stopped]}.",
        details=details,
    )


def as_error(failure: CodeFailure, ran: CodeResult | None = None) -> CallError:
    """The error of code that failed: what it did wrong, and where."""
    details: dict[str, Any] = {"kind": failure.kind}
    for field in ("name", "line", "column", "stack"):
        if getattr(failure, field) is not None:
            details[field] = getattr(failure, field)
    if ran is not None:
        details["lane"] = ran.lane
        details |= {name: text[-MAX_TOLD_CHARS:] for name, text in (("stdout", ran.stdout), ("stderr", ran.stderr)) if text}
    return Failed("SANDBOX_ERROR", f"The code failed: {failure}", details=details)


def _key(language: str, code: str) -> bytes:
    return sha256(f"{language}\n{code}".encode("utf-8", "surrogatepass")).digest()


class _as_unavailable:
    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Unavailable):
            raise unavailable(error.message, error.suggestion) from error
