"""Jails of Linux's own namespaces: each process has mounts, processes and a network of its own.

As root no user namespace is needed, and the starter goes on as a user that nobody else is; as an ordinary user everything
happens in one, in which no further one can be made. `NamespaceJail` is what such jails have in common. `Namespaces` has the
namespaces made by our own launcher (`inside/namespace_launcher.py`), where bubblewrap is not installed.
"""

import marshal
import os
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from toolgate.sandbox.jail import Feature, Spec, Unavailable
from toolgate.sandbox.jails import identity, inside_files, launch, process, seccomp
from toolgate.sandbox.jails.child_descriptors import ChildPipe, SocketHandoff
from toolgate.sandbox.jails.identity import Identity
from toolgate.sandbox.jails.launch import Launch, SystemPath
from toolgate.sandbox.jails.layers import Layers
from toolgate.sandbox.jails.submounts import Submounts, release, submounts

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
    "environment": "built for it",
    "network": "network namespace without interfaces; no sockets (seccomp)",
    "processes": "pid namespace, RLIMIT_NPROC, seccomp",
    "memory": "RLIMIT_AS or RLIMIT_DATA per process; the sum is polled, and what the kernel holds for it",
    "cpu": "one core (affinity)",
    "time": "killed by the host",
    "disk": "tmpfs with a size, its files polled; a workspace is polled",
    "output": "counted by the host",
    "signals": "pid namespace",
}
NAMESPACE_LAUNCHER = inside_files.INSIDE / "namespace_launcher.py"
PLACE = "/tmp"
"""The folder of the host in which the new world is put together; its files are hidden from the launcher alone."""

Step = list[str]
"""bind PATH read|write|device SOURCE, fresh PATH OPTIONS, link PATH TARGET, hide PATH: the launcher knows what to do."""


class Layout(NamedTuple):
    """The content of one process's namespaces."""

    spec: Spec
    identity: Identity | None
    submounts: Submounts
    layers: Layers | None
    remap: dict[str, Any] | None

    def source(self, path: Path) -> Path:
        """The place of a path of the host: in the layer over it, if there is one."""
        return self.layers.source(path) if self.layers else path

    def written(self) -> list[Path]:
        """The folders of the host that can be written to."""
        folders = self.spec.writable_folders()
        for folder in folders:
            if Path(SCRATCH).is_relative_to(folder):
                raise Unavailable(f"{folder} cannot be a workspace: it holds the folder for temporary files.")
        return folders


class NamespaceJail(process.LocalJail):
    """Holds processes in namespaces of their own."""

    def enforces(self) -> Mapping[Feature, str]:
        return ENFORCES

    @abstractmethod
    def _command(self, layout: Layout, order: ChildPipe, told: ChildPipe, handoff: SocketHandoff | None) -> tuple[str, ...]:
        """The command that builds the namespaces and ends in the starter."""

    async def start(self, spec: Spec) -> process.Process:
        with ExitStack() as failed:
            made = self._launch(spec, failed)
            failed.pop_all()
        return self._started(made, spec)

    def _launch(self, spec: Spec, failed: ExitStack) -> Launch:
        """Makes all that the process needs; `failed` gives it back if a step fails."""
        apart = submounts(spec)
        failed.callback(release, apart.held)
        mapped = frozenset(filter(identity.can_remap, identity.lent(spec)))
        who = identity.choose(spec, mapped=mapped)
        if who is not None and spec.workspace is not None and spec.workspace not in (*mapped, *spec.layers):
            identity.give(spec.workspace, who, spec.hidden)
        remap = launch.remapping(spec, who, mapped, apart) if who else None
        layers = Layers(spec, who, mapped) if spec.layers or spec.projected else None
        if layers is not None:
            failed.callback(layers.close_all)
        layout = Layout(spec, who, apart, layers, remap)
        layout.written()
        handoff = SocketHandoff() if spec.listen else None
        if handoff is not None:
            failed.callback(handoff.close_all)
        said = launch.order(
            spec,
            identity=who,
            home=f"{SCRATCH}/home",
            temporary=f"{SCRATCH}/tmp",
            work=str(spec.workspace or f"{SCRATCH}/work"),
            filter=seccomp.program(spec.profile, network=spec.network),
            remap=remap,
            handoff=handoff,
            gate=layers.gate if layers else None,
        )
        order = ChildPipe.down(launch.packed(said))
        failed.callback(order.close_all)
        told = ChildPipe.up()
        failed.callback(told.close_all)
        argv = self._command(layout, order, told, handoff)
        return Launch(
            argv=layers.command(launch.interpreter(spec), argv) if layers else argv,
            layers=layers,
            order=order,
            told=told,
            handoff=handoff,
            environment=launch.ONE_ARENA,
            places=(SCRATCH,),
            release=apart.held,
        )


class Namespaces(NamespaceJail):
    """Holds processes in namespaces that our own launcher makes."""

    name = "namespaces"

    def enforces(self) -> Mapping[Feature, str]:
        return ENFORCES | {"disk": "tmpfs with a size and a number of files; a workspace is polled"}

    def _command(self, layout: Layout, order: ChildPipe, told: ChildPipe, handoff: SocketHandoff | None) -> tuple[str, ...]:
        plan = {
            "host": os.getpid(),
            "lifeline": order.number,
            "told": told.number,
            "through": handoff.number if handoff else None,
            "network": layout.spec.network,
            "user": None if os.geteuid() == 0 else [os.geteuid(), os.getegid()],
            "world": world(layout),
            "place": PLACE,
            "gate": layout.layers.gate if layout.layers else None,
            # To map one user onto another, which only root can; and for what can be changed there, one has to be root.
            "writes_proc": layout.remap is not None,
            "starter": str(inside_files.STARTER),
        }
        interpreter = launch.interpreter(layout.spec)
        return (interpreter, "-I", "-S", "-B", str(NAMESPACE_LAUNCHER), marshal.dumps(plan, 2).hex())


def world(layout: Layout) -> list[Step]:
    """All that the program will see, outer places before inner ones."""
    spec, source = layout.spec, layout.source
    uid, gid = layout.identity or (os.geteuid(), os.getegid())
    options = f"mode=0700,uid={uid},gid={gid},size={spec.limits.disk},nr_inodes={spec.limits.files}"
    steps = [["fresh", SCRATCH, options]]
    steps += [_shown(view) for view in (*launch.system_paths(), *launch.network_paths(spec.network))]
    steps += [_bind(Path("/dev") / name, "device") for name in DEVICES]
    steps += [["link", f"/dev/{name}", target] for name, target in DEVICE_LINKS.items()]
    steps += [_bind(path, "read", path.resolve()) for path in launch.readable_paths(spec)]
    steps += [_bind(path, "read", source(path)) for path in spec.projected]
    steps += [_bind(folder, "write", source(folder) if layout.layers else folder.resolve()) for folder in layout.written()]
    steps += [_bind(place, "read", file.resolve()) for file, place in spec.shown]
    for path, how in layout.submounts.mounts.items():
        steps.append(["hide", str(path)] if how == "hide" else _bind(path, how, source(path)))
    return sorted(steps, key=lambda step: step[1].count("/"))


def _shown(view: SystemPath) -> Step:
    if view.kind == "link":
        return ["link", str(view.path), view.target]
    return _bind(view.path, "read", Path(view.target))


def _bind(path: Path, how: str, source: Path | None = None) -> Step:
    return ["bind", str(path), how, str(source or path)]
