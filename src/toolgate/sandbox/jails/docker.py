"""Docker as a jail: each process in a container of its own, confined by the same starter as everywhere.

Only used if the settings say so: a container takes some 300 ms to start where bubblewrap takes 20. It needs an image with
Python in it, which nobody fetches on his own account.
"""

import asyncio
import os
import secrets
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import IO

import msgspec

from toolgate.errors import InvalidInput
from toolgate.sandbox.jail import NETWORK_ADVICE, Feature, ProgramFolder, ResourceLimits, Spec, Stopped, Unavailable
from toolgate.sandbox.jails import containers, identity, launch, process, seccomp
from toolgate.sandbox.jails.child_descriptors import ChildPipe
from toolgate.sandbox.jails.containers import CONTAINER_SCRATCH, Engine, new_name, run_words, seen
from toolgate.sandbox.jails.inside_files import INSIDE, STARTER
from toolgate.sandbox.results import CommandResult
from toolgate.sandbox.runtimes import shell
from toolgate.tasks import finish, start_task
from toolgate.threads import to_thread

PROGRAMS = {"python": "python3", "deno": "deno"}
"""The image's own, which run the code."""
KILLED = 137
TOLD_SECONDS = 0.5
MAKING_SECONDS = 10.0
"""A container that is longer in the making is given up."""
UNHELD = 1 << 40
"""The command line itself is not what is to be held, only the workspace is watched beside it."""


class Container(process.Process):
    """A container, held through the command line that is attached to it."""

    def __init__(self, child: subprocess.Popen[bytes], told: launch.Launch, spec: Spec, engine: Engine, name: str) -> None:
        super().__init__(child, told, spec)
        self.name = name
        self._engine = engine
        self._killing: asyncio.Task[None] | None = None
        self._starved = asyncio.Event()
        self._watching = start_task(self._watch())

    async def wait(self) -> int:
        code = await super().wait()
        if code == KILLED and self.stopped is None:
            with suppress(TimeoutError):  # who killed it is told by another way, a little later
                await asyncio.wait_for(self._starved.wait(), TOLD_SECONDS)
        return code if self._killing is None else -9

    @property
    def gone(self) -> bool:
        return self._watching.done()

    def kill(self, why: Stopped | None = None) -> None:
        if not self.gone and self._killing is None:
            self.stopped = self.stopped or why
            self._killing = start_task(self._kill())

    def starve(self) -> None:
        """The kernel killed some of its processes for want of memory: the others end too."""
        self.kill("memory")
        self.stopped = self.stopped or "memory"
        self._starved.set()

    async def _kill(self) -> None:
        """First the container, as soon as there is one; then the command line, which may be held up by what nobody reads."""
        until = asyncio.get_running_loop().time() + MAKING_SECONDS
        while not self.gone and asyncio.get_running_loop().time() < until and not await self._engine.kill(self.name):
            await asyncio.wait((self._watching,), timeout=0.1)
        super().kill(self.stopped)

    async def _watch(self) -> None:
        """A command line that was killed leaves its container behind; one that ended has removed it."""
        if await super().wait() < 0:
            await self._engine.remove(self.name)

    async def _close(self) -> None:
        self.kill()
        if self._killing is not None:
            await self._killing
        await super()._close()
        await self._watching


class Docker:
    """Holds processes in containers."""

    name = "docker"

    def __init__(self, *, command: str | Sequence[str] = "docker", image: str | None = None) -> None:
        self._engine = Engine(shlex.split(command) if isinstance(command, str) else command)
        self._image = image
        self._machine = ""
        self._rootless = False
        self._opening: asyncio.Task[None] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._said = b""
        self._open: dict[str, Container] = {}

    def enforces(self) -> Mapping[Feature, str]:
        return {
            "files": "the image, read-only; a file system of its own",
            "environment": "what was given, and the image's",
            "network": "a network namespace of its own, with nothing in it",
            "processes": "the container's pids limit; another user, without capabilities; seccomp",
            "memory": "the container's memory limit, what it writes to its scratch included",
            "cpu": "the container's quota of one CPU",
            "time": "the host ends the container",
            "disk": "a file system in memory of limited size; the workspace is watched",
            "output": "the host reads no more than the limit",
            "signals": "a process namespace of its own",
        }

    # -- whether it can be had

    async def probe(self) -> None:
        """Raises Unavailable, with the reason, if no engine answers or the image is not there. Starts nothing."""
        await self._engine.machine()
        if self._image is None:
            raise Unavailable("no image is set for it (sandbox.docker_image)")
        await self._engine.volumes(self._image)

    async def _opened(self) -> None:
        """Once, before the first container: know the engine, clear up after the dead, have somebody clear up after us."""
        if self._opening is None:
            self._opening = start_task(self._open_up())
        try:
            await finish(self._opening)
        except Unavailable:
            self._opening = None
            raise

    async def _open_up(self) -> None:
        self._machine = await self._engine.machine()
        # Then root inside its containers is the engine's own user outside.
        self._rootless = "rootless" in await self._engine.ask("info", "--format", "{{json .SecurityOptions}}")
        await self._engine.remove_of_the_dead()
        self._watchdog = self._engine.watchdog()
        if self._watchdog.stdout is not None:
            asyncio.get_running_loop().add_reader(self._watchdog.stdout, self._hear, self._watchdog.stdout)

    def _hear(self, pipe: IO[bytes]) -> None:
        """The watchdog names containers that ran out of memory."""
        said = os.read(pipe.fileno(), 4_096)
        if not said:
            asyncio.get_running_loop().remove_reader(pipe)
        *names, self._said = (self._said + said).split(b"\n")
        for name in names:
            if container := self._open.get(name.decode(errors="replace")):
                container.starve()

    # -- containers

    async def start(self, spec: Spec) -> Container:
        if self._image is None:
            raise Unavailable("no image is set for it (sandbox.docker_image)")
        if spec.network != "none":
            raise Unavailable("A container cannot be kept to some hosts here; bubblewrap can.", suggestion=NETWORK_ADVICE)
        if spec.layers:
            raise Unavailable(f"A container's changes cannot be kept apart from {spec.layers[0]}.")
        await self._opened()
        words = run_words(
            name=new_name(), image=self._image, entrypoint="python3", argv=("-I", "-S", "-B", str(STARTER), "--container"),
            user=self._user(spec), limits=spec.limits, volumes=await self._engine.volumes(self._image),
            mounts=seen(spec, (INSIDE, *spec.readable)),
        )  # fmt: skip
        container = await self._attach(words, spec)
        await container.write(self._order(spec))
        return container

    async def run(
        self,
        image: str,
        command: Sequence[str],
        limits: ResourceLimits,
        *,
        workspace: ProgramFolder | None = None,
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> CommandResult:
        """Run a container of any image that is here, with its own entry point, to its end, or to the limit that it meets
        first. It is held by Docker's means alone; of the host it sees the workspace, if there is one. Raises Unavailable."""
        given = environment or {}
        if any("\0" in word for word in (*command, *given, *given.values())):
            raise InvalidInput("No argument and no variable of a program can have a null character in it.")
        begun = perf_counter()
        await self._opened()
        spec = Spec(profile="shell", argv=tuple(command), limits=limits).working_in(workspace)
        words = run_words(
            name=new_name(), image=image, argv=command, user=self._user(spec), limits=limits,
            volumes=await self._engine.volumes(image), mounts=seen(spec, ()),
            work=CONTAINER_SCRATCH if spec.workspace is None else str(spec.cwd or spec.workspace),
            environment={"HOME": CONTAINER_SCRATCH, "TMPDIR": CONTAINER_SCRATCH, **given},
        )  # fmt: skip
        container = await self._attach(words, spec)
        timer = asyncio.get_running_loop().call_later(limits.seconds, container.kill, "time")
        try:
            code, out, errors = await shell.converse(container, stdin, limits)
        finally:
            timer.cancel()
            await finish(container.close())
        if code == 125 and container.stopped is None and "Error response from daemon" in errors:
            raise Unavailable(errors.strip()[-500:])
        return CommandResult(
            exit_code=code, stdout=out, stderr=errors, stopped=container.stopped, limits=limits, jail=self.name,
            enforced=self.enforces(), seconds=perf_counter() - begun,
        )  # fmt: skip

    async def _attach(self, words: tuple[str, ...], spec: Spec) -> Container:
        told = launch.Launch(
            argv=(*self._engine.command, *words), order=ChildPipe.down(b""), environment=containers.environment()
        )
        watched = msgspec.structs.replace(spec.limits, memory=UNHELD, processes=UNHELD)
        spec = msgspec.structs.replace(spec, limits=watched)
        name = words[words.index("--name") + 1]
        container = process.begin(told, lambda child: Container(child, told, spec, self._engine, name))
        self._open = {name: other for name, other in self._open.items() if not other.gone} | {container.name: container}
        return container

    def _order(self, spec: Spec) -> bytes:
        """The starter's, for the image's own programs and without a limit that would count processes outside."""
        work = f"{CONTAINER_SCRATCH}/work" if spec.workspace is None else str(spec.cwd or spec.workspace)
        order = launch.order(
            spec, identity=None, home=f"{CONTAINER_SCRATCH}/home", temporary=f"{CONTAINER_SCRATCH}/tmp", work=work,
            filter=seccomp.program(spec.profile, machine=self._machine),
        )  # fmt: skip
        order["argv"][0] = PROGRAMS.get(spec.profile, spec.argv[0])
        del order["rlimits"]["RLIMIT_NPROC"]
        return launch.packed(order)

    def _user(self, spec: Spec) -> tuple[int, int]:
        """The user of a container: nobody else's if it has nothing of the host's, else the workspace's owner; never root."""
        if self._rootless:
            return _nobody(20_000, 60_000) if spec.workspace is None else (0, 0)
        chosen = identity.choose(spec, mapped=())
        if chosen is None:
            return _nobody(identity.FIRST, identity.LAST) if spec.workspace is None else (os.geteuid(), os.getegid())
        if spec.workspace is not None and spec.workspace.stat().st_uid == 0:
            identity.give(spec.workspace, chosen, spec.hidden)
        return chosen

    async def close(self) -> None:
        """End what is still open, and tell the watchdog that it may go."""
        if self._opening is not None:
            await asyncio.wait((self._opening,))
        await asyncio.gather(*(container.close() for container in self._open.values()))
        self._open.clear()
        if self._watchdog is not None:
            watchdog, self._watchdog = self._watchdog, None
            if watchdog.stdout is not None:
                asyncio.get_running_loop().remove_reader(watchdog.stdout)
            with suppress(subprocess.TimeoutExpired):
                await to_thread(watchdog.communicate, b"done\n", timeout=5)


def _nobody(low: int, high: int) -> tuple[int, int]:
    uid = low + secrets.randbelow(high - low)
    return uid, uid
