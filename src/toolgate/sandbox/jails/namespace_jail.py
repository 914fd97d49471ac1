"""What the jails of namespaces have in common: how a process is started in mounts, processes and a network of its own.

As root no user namespace is needed, and the starter goes on as a user that nobody else is; as an ordinary user everything
happens in one, in which no further one can be made. What builds the namespaces is for each jail to say (`_command`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from toolgate.sandbox.jails import identity, launch, placeholders, process, seccomp
from toolgate.sandbox.jails.identity import Identity
from toolgate.sandbox.jails.launch import ChildPipe, Launch
from toolgate.sandbox.jails.layers import Layers, layers_of
from toolgate.sandbox.jails.socket_handoff import SocketHandoff
from toolgate.sandbox.jails.submounts import Submounts, submounts
from toolgate.sandbox.port import Feature, Spec, Unavailable

SCRATCH = "/tmp"
"""Inside: the one place, besides a workspace, that can be written to."""
DEVICES = ("null", "zero", "full", "random", "urandom")
DEVICE_LINKS = {
    "shm": SCRATCH, "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}  # fmt: skip
"""Shared memory is in the scratch, and as big as that."""
ENFORCES: dict[Feature, str] = {
    "files": "mount namespace with a root of its own; system read-only",
    "environment": "built anew",
    "network": "network namespace without interfaces; no sockets (seccomp)",
    "processes": "pid namespace, RLIMIT_NPROC, seccomp",
    "memory": "RLIMIT_AS or RLIMIT_DATA per process; the sum is polled, and what the kernel holds for it",
    "cpu": "one core (affinity)",
    "time": "killed by the host",
    "disk": "tmpfs with a size, its files polled; a workspace is polled",
    "output": "counted by the host",
    "signals": "pid namespace",
}
"""By what means each feature is held."""


class Layout(NamedTuple):
    """What the namespaces of one process are to hold."""

    spec: Spec
    identity: Identity | None
    submounts: Submounts
    layers: Layers | None
    remap: dict[str, Any] | None

    def source(self, path: Path) -> Path:
        """Where a path of the host is found: in the layer over it, if there is one."""
        return self.layers.source(path) if self.layers else path

    def written(self) -> list[Path]:
        """The folders of the host that can be written to."""
        folders = [*([self.spec.workspace] if self.spec.workspace else []), *self.spec.writable]
        for folder in folders:
            if Path(SCRATCH).is_relative_to(folder):
                raise Unavailable(f"{folder} can't be a workspace: it holds the folder for temporary files.")
        return folders


class NamespaceJail(ABC):
    """Holds processes in namespaces of their own."""

    def __init__(self, *, scratch_parent: Path | None = None, cpu: int | None = None) -> None:  # noqa: ARG002 - as all jails
        self._cpu = cpu
        self._processes: set[process.Process] = set()

    def enforces(self) -> Mapping[Feature, str]:
        """By what means each feature is held."""
        return ENFORCES

    @abstractmethod
    def _command(self, layout: Layout, order: ChildPipe, told: ChildPipe, handoff: SocketHandoff | None) -> tuple[str, ...]:
        """The command that builds the namespaces and ends in the starter."""

    async def start(self, spec: Spec) -> process.Process:
        """Start a process in namespaces of its own."""
        self._processes = {other for other in self._processes if not other.closed}
        apart = submounts(spec)
        try:
            made = self._launch(spec, apart)
        except BaseException:
            placeholders.release(apart.held)
            raise
        started = await process.start(made, spec)
        self._processes.add(started)
        return started

    def _launch(self, spec: Spec, apart: Submounts) -> Launch:
        mapped = identity.mappable(spec)
        who = identity.choose(spec, mapped=mapped)
        if who is not None and spec.workspace is not None and spec.workspace not in (*mapped, *spec.layers):
            identity.give(spec.workspace, who, spec.hidden)
        remap = launch.remapping(spec, who, mapped, apart) if who else None
        layers = layers_of(spec, who, mapped)
        layout = Layout(spec, who, apart, layers, remap)
        layout.written()
        handoff = SocketHandoff() if spec.listen else None
        order = ChildPipe.down(
            launch.order(
                spec,
                identity=who,
                home=f"{SCRATCH}/home",
                temporary=f"{SCRATCH}/tmp",
                work=str(spec.workspace or f"{SCRATCH}/work"),
                filter=seccomp.program(spec.profile, network=spec.network),
                remap=remap,
                cpu=self._cpu,
                handing=handoff,
                gate=layers.gate if layers else None,
            )
        )
        told = ChildPipe.up()
        try:
            argv = self._command(layout, order, told, handoff)
        except BaseException:
            for pipe in (order, told):
                pipe.close_inner()
                pipe.close_outer()
            if handoff is not None:
                handoff.close_inner()
                handoff.close()
            if layers is not None:
                layers.close_inner()
                layers.close()
            raise
        return Launch(
            argv=layers.command(launch.interpreter(spec), argv) if layers else argv,
            layers=layers,
            order=order,
            told=told,
            handing=handoff,
            environment=launch.ONE_ARENA,
            places=(SCRATCH,),
            release=apart.held,
        )

    async def close(self) -> None:
        """End whatever still runs."""
        await asyncio.gather(*(started.close() for started in self._processes))
        self._processes.clear()
