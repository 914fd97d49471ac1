"""The engine: runs Python, TypeScript and commands of which nobody knows what they will do.

A jail is chosen when something is first to be run, by trying it out. Code goes to the runtime that fits it: small pure
Python to Monty, other Python to a CPython worker, TypeScript to Deno; a command is run as it stands. The code may ask the
host for what the caller's `serve` answers, nothing else.
"""

import asyncio
import math
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from toolgate.errors import NotReached, timed_out
from toolgate.model import Runtime
from toolgate.sandbox.jail import (
    LAYERING_JAILS,
    MB,
    Jail,
    JailedProcess,
    ProgramFolder,
    ResourceLimits,
    Spec,
    Stopped,
    Unavailable,
)
from toolgate.sandbox.results import CodeResult, CommandResult, unavailable
from toolgate.sandbox.runtimes import shell
from toolgate.sandbox.upper_layer import UpperLayer
from toolgate.sandbox.worker_protocol import CodeFailure, Serve, WorkerResult, limit_met
from toolgate.settings import SandboxSettings
from toolgate.tasks import BackgroundTasks, finish
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.network.egress_proxy import EgressProxy
    from toolgate.network.resolver import Resolve
    from toolgate.sandbox.jail_network import JailNetwork
    from toolgate.sandbox.jails.docker import Docker
    from toolgate.sandbox.jails.selection import ChosenJail, JailReport
    from toolgate.sandbox.pool import Pool
    from toolgate.sandbox.runtimes.monty.runtime import MontyRuntime

Language = Literal["python", "typescript", "javascript"]
LANGUAGES: Mapping[Runtime, Language] = {"typescript": "typescript", "node": "javascript", "python": "python"}
"""By the runtime that a tool's file names."""
Mode = Literal["tool", "script", "program", "check"]
Finished = TypeVar("Finished", CodeResult, CommandResult)
MAX_COMPILED_PROGRAMS = 512


class Sandbox:
    """One for each App. Nothing is started, and nothing of it imported, before it is first used."""

    def __init__(self, settings: SandboxSettings | None = None) -> None:
        self.settings = settings or SandboxSettings()
        given = self.settings
        self.limits = ResourceLimits(
            seconds=given.seconds, memory=given.memory_mb * MB, disk=given.disk_mb * MB, processes=given.processes,
            output=given.output_bytes,
        )  # fmt: skip
        self._rooms: dict[int, asyncio.Semaphore] = {}
        self._jails: dict[str, ChosenJail] = {}
        self._pool: Pool | None = None
        self._monty: MontyRuntime | None = None
        self._docker: Docker | None = None
        self._compiled: OrderedDict[bytes, str | CodeFailure] = OrderedDict()
        """By content: the compiled form of a program (empty if it is run as it stands), or why there is none."""
        self._closing = BackgroundTasks()
        self._closed = False
        self.resolve: Resolve | None = None
        """Resolves the names of hosts that commands reach; None: as this machine does."""

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
        workspace: ProgramFolder | None = None,
        seconds: float | None = None,
        depth: int = 0,
    ) -> CodeResult:
        """Run code to its end, or to the limit that it meets first. Raises NotReached (SANDBOX_UNAVAILABLE) if nothing
        here can hold it. `depth`: inside of how many other runs it was asked for."""
        limits = self._within(seconds)
        job: dict[str, Any] = {
            "mode": mode, "code": code, "name": name, "language": language, "arguments": dict(arguments or {}),
            "context": dict(context or {}), "tools": None if tools is None else list(tools), "output": limits.output,
        }  # fmt: skip
        return await self._in_folder(workspace, lambda folder: self._run_job(job, serve, folder, limits, depth))

    async def _run_job(
        self, job: dict[str, Any], serve: Serve | None, folder: ProgramFolder | None, limits: ResourceLimits, depth: int
    ) -> CodeResult:
        language, mode = job["language"], job["mode"]
        async with self._room(depth):
            if language == "python" and folder is None and mode in ("script", "program"):
                ran = await self._try_monty(job, serve, limits)
                if ran is not None:
                    return ran
            spec = self._spec(language, folder)
            if limits.seconds > self.limits.seconds:
                # The kernel is told when the worker starts: in doubling steps, so that there are few kinds of workers.
                doubled = self.limits.seconds * 2.0 ** math.ceil(math.log2(limits.seconds / self.limits.seconds))
                spec = msgspec.structs.replace(spec, limits=self._within(doubled))
            if language != "python":
                compiled = self._compiled.get(_key(f"{language} True", job["code"]))
                if mode == "tool" and isinstance(compiled, str) and compiled:
                    job["compiled"] = compiled
            jail = await self.jail()
            begun = perf_counter()
            heard, stopped, left = await self._converse(spec, job, serve, limits, folder)
            return _code_result(heard, stopped, limits, jail, spec.profile, begun, left)

    async def check(
        self, language: Language, code: str, *, wants_execute: bool = True, depth: int = 0
    ) -> CodeFailure | None:
        """The fault in code that cannot be compiled, found out in the sandbox once for each text; the compiled form is kept.
        Only a process that does nothing else compiles: what a run left behind must not be what the next one runs."""
        key = _key(f"{language} {wants_execute}", code)
        known = self._compiled.get(key)
        if known is not None:
            self._compiled.move_to_end(key)
            return known if isinstance(known, CodeFailure) else None
        job: dict[str, Any] = {
            "mode": "check", "code": code, "name": "code", "language": language, "wants_execute": wants_execute,
            "output": self.limits.output,
        }  # fmt: skip
        async with self._room(depth):
            heard, stopped, _ = await self._converse(self._spec(language), job, None, self.limits)
        stopped = stopped or (None if heard.failure is None else heard.failure.stopped)
        if stopped == "time":  # which says nothing of the code: the machine may have been too busy
            raise timed_out(self.limits.seconds)
        if stopped is None and (heard.failure is None or heard.failure.kind in ("syntax", "missing")):
            self._compiled[key] = heard.failure or heard.compiled or ""
            if len(self._compiled) > MAX_COMPILED_PROGRAMS:
                self._compiled.popitem(last=False)
        return heard.failure

    async def run_command(
        self,
        argv: Sequence[str],
        *,
        workspace: ProgramFolder | None = None,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        seconds: float | None = None,
        limits: ResourceLimits | None = None,
        hosts: Sequence[str] = (),
        hosts_setting: str = "commands.allow",
        depth: int = 0,
    ) -> CommandResult:
        """Run a program with its arguments, no shell between. `limits`: others than those of the settings. `hosts`: those
        that it can reach, in a network of its own, and `hosts_setting`: where they are named. Where a jail cannot keep a
        program to some hosts, this raises NotReached (SANDBOX_UNAVAILABLE)."""
        given = limits or self._within(seconds)
        spec = shell.spec(argv, given, programs=self.settings.programs, environment=environment)
        if not hosts:
            return await self._in_folder(workspace, lambda folder: self._run_spec(spec, stdin, folder, depth))
        network = self._network(argv[0], hosts, hosts_setting)
        with tempfile.TemporaryDirectory(prefix="toolgate-etc-") as etc:
            Path(etc).chmod(0o755)  # the sandbox's user has to reach the files in it
            connected = network.connect(spec, Path(etc))
            return await self._in_folder(
                workspace, lambda folder: self._run_spec(connected, stdin, folder, depth, network=network)
            )

    async def run_own(
        self, spec: Spec, stdin: bytes, *, workspace: ProgramFolder | None = None, depth: int = 0
    ) -> CommandResult:
        """Run a program of Toolgate's own that reads what nobody vouches for. Not in a container: its libraries are here."""
        return await self._run_spec(spec, stdin, workspace, depth, await self.server_jail())

    def _network(self, program: str, hosts: Sequence[str], setting: str) -> "JailNetwork":
        from toolgate.network.allowed_hosts import AllowedHosts
        from toolgate.sandbox.jail_network import JailNetwork

        return JailNetwork(AllowedHosts(hosts), owner=f"command {program}", setting=setting, resolve=self.resolve)

    async def _run_spec(
        self,
        spec: Spec,
        stdin: bytes,
        folder: ProgramFolder | None,
        depth: int,
        jail: Jail | None = None,
        network: "JailNetwork | None" = None,
    ) -> CommandResult:
        spec, limits = spec.working_in(folder), spec.limits
        async with self._room(depth):
            jail = jail or await self.jail()
            begun = perf_counter()
            with _as_unavailable():
                process = await jail.start(spec)
            timer = asyncio.get_running_loop().call_later(limits.seconds, process.kill, "time")
            proxy: EgressProxy | None = None
            with UpperLayer() as upper:
                try:
                    proxy = None if network is None else await _proxy_of(network, process)
                    try:
                        code, out, errors = await shell.converse(process, stdin, limits)
                        upper.take(process)
                    finally:
                        if proxy is not None:
                            await proxy.close()
                finally:
                    timer.cancel()
                    await self._closing.finish(process.close())
                left = await upper.settled(folder)
        if process.stopped is None and code == 125 and errors.startswith("toolgate-starter:"):  # nothing was run
            raise unavailable(errors[:500])
        # a program may itself exit with any number from 0 on
        stopped = process.stopped or (limit_met(code) if code < 0 else None)
        return CommandResult(
            exit_code=code, stdout=out, stderr=errors, stopped=stopped, limits=limits, jail=jail.name,
            enforced=jail.enforces() if network is None else {**jail.enforces(), "network": network.means},
            seconds=perf_counter() - begun, left=left, private_hosts=() if proxy is None else tuple(proxy.private),
        )  # fmt: skip

    async def run_container(
        self,
        image: str,
        command: Sequence[str],
        *,
        workspace: ProgramFolder | None = None,
        environment: Mapping[str, str] | None = None,
        seconds: float | None = None,
        depth: int = 0,
    ) -> CommandResult:
        """Run a command in a container of an image, under the same limits, whatever holds other code."""
        from toolgate.sandbox.jails.docker import Docker

        docker = self._docker = self._docker or Docker(command=self.settings.docker_command)

        async def run(folder: ProgramFolder | None) -> CommandResult:
            async with self._room(depth):
                with _as_unavailable(what="No container can be run"):
                    return await docker.run(image, command, self._within(seconds), workspace=folder, environment=environment)

        return await self._in_folder(workspace, run, has_layers=False)

    async def _in_folder(
        self,
        folder: ProgramFolder | None,
        run: Callable[[ProgramFolder | None], Coroutine[Any, Any, Finished]],
        *,
        has_layers: bool = True,
    ) -> Finished:
        """Run something in its folder; or in a copy of it, where its changes are to be kept apart and the jail can lay no
        layer over it."""
        if folder is None or folder.settle is None or (has_layers and (await self.jail()).name in LAYERING_JAILS):
            return await run(folder)
        from toolgate.sandbox.workspace_copy import WorkspaceCopy

        with _as_unavailable():
            copied = await to_thread(WorkspaceCopy, folder, self.limits)
        try:
            finished = await run(copied.copy)
            left = await finish(to_thread(copied.settle))
            return msgspec.structs.replace(finished, left=left)
        finally:
            await self._closing.finish(to_thread(copied.remove))

    # -- what holds it

    async def jail(self) -> Jail:
        """The jail that holds code on this machine, found out once."""
        return await self._chosen(self.settings)

    async def server_jail(self) -> Jail:
        """The jail for servers, which stay: the same, but for containers, whose processes are not ours to watch."""
        return await self._chosen(SandboxSettings() if self.settings.backend == "docker" else self.settings)

    async def _chosen(self, settings: SandboxSettings) -> Jail:
        if self._closed:
            raise unavailable("it is closed")
        chosen = self._jails.get(settings.backend)
        if chosen is None:
            from toolgate.sandbox.jails.selection import ChosenJail

            chosen = self._jails[settings.backend] = ChosenJail(settings)
        with _as_unavailable():
            return await chosen.get()

    async def survey(self) -> "list[JailReport]":
        """The jails that could hold code here, and why the rest cannot: each tried."""
        from toolgate.sandbox.jails.selection import survey

        return await survey(self.settings)

    # -- runtimes

    def _spec(self, language: Language, folder: ProgramFolder | None = None) -> Spec:
        from toolgate.sandbox.runtimes import deno, python

        with _as_unavailable():
            if language != "python":
                return deno.spec(deno.find_deno(self.settings.deno), self.limits)
            interpreter = python.find_python(self.settings.python)
            return python.spec(interpreter, self.limits, packages=self.settings.packages).working_in(folder)

    async def _try_monty(self, job: dict[str, Any], serve: Serve | None, limits: ResourceLimits) -> CodeResult | None:
        """The result of Monty; None if it is not for Monty, or Monty could not do it and CPython may."""
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
        if heard.doubtful:
            with suppress(NotReached):
                await self.jail()
                return None
        if self._monty.broken is not None:
            raise unavailable(self._monty.broken)
        return _code_result(heard, stopped, limits, self._monty, "monty", begun)

    async def _converse(
        self,
        spec: Spec,
        job: dict[str, Any],
        serve: Serve | None,
        limits: ResourceLimits,
        folder: ProgramFolder | None = None,
    ) -> tuple[WorkerResult, Stopped | None, tuple[str, ...]]:
        """The worker's result, why it was stopped, and what is to be said of its changes."""
        jail = await self.jail()
        if self._pool is None:
            from toolgate.sandbox.pool import Pool

            given = self.settings
            self._pool = Pool(jail, warm=given.warm, memory=given.warm_memory_mb * MB, idle_seconds=given.idle_seconds)
        with _as_unavailable():
            worker = await self._pool.take(spec)
        timer = asyncio.get_running_loop().call_later(limits.seconds, worker.process.kill, "time")
        with UpperLayer() as upper:
            try:
                heard = await worker.run(job, serve, limits)
                upper.take(worker.process)
            finally:
                timer.cancel()
                if folder is not None:  # nothing may go on writing there
                    await self._closing.finish(worker.close())
                else:
                    self._closing.start(worker.close())
            return heard, worker.process.stopped, await upper.settled(folder)

    # -- limits and endings

    def _room(self, depth: int) -> asyncio.Semaphore:
        """Places for runs. Those inside of others have places of their own, or all could wait for a place that one of them
        holds."""
        return self._rooms.setdefault(depth, asyncio.Semaphore(self.settings.at_once))

    def _within(self, seconds: float | None) -> ResourceLimits:
        return self.limits if seconds is None else msgspec.structs.replace(self.limits, seconds=seconds)

    async def close(self) -> None:
        self._closed = True
        if self._pool is not None:
            await self._pool.close()
        if self._monty is not None:
            await self._monty.close()
        await self._closing.wait()
        if self._docker is not None:
            await self._docker.close()
        for chosen in self._jails.values():
            await chosen.close()


async def _proxy_of(network: "JailNetwork", process: JailedProcess) -> "EgressProxy | None":
    """None if a limit ended the program before it had its network: then that is what is told."""
    with _as_unavailable():
        try:
            return await network.open(process)
        except Unavailable:
            if process.stopped is None:
                raise
            return None


def _code_result(
    heard: WorkerResult, stopped: Stopped | None, limits: ResourceLimits, holder: "Jail | MontyRuntime", lane: str,
    begun: float, left: tuple[str, ...] = (),
) -> CodeResult:  # fmt: skip
    stopped = stopped or (None if heard.failure is None else heard.failure.stopped)
    return CodeResult(
        value=heard.value, failure=heard.failure, stdout=heard.stdout, stderr=heard.stderr, logs=tuple(heard.logs),
        stopped=stopped, limits=limits, lane=lane, jail=holder.name, enforced=holder.enforces(),
        seconds=perf_counter() - begun, left=left,
    )  # fmt: skip


def _key(language: str, code: str) -> bytes:
    return sha256(f"{language}\n{code}".encode("utf-8", "surrogatepass")).digest()


@contextmanager
def _as_unavailable(**words: str) -> Iterator[None]:
    try:
        yield
    except Unavailable as error:
        raise unavailable(error.message, error.suggestion, **words) from error
