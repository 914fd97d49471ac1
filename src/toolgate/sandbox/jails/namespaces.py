"""The jail of Linux's own namespaces, set up by our own launcher: what bubblewrap gives, where bubblewrap is not installed.

This side decides what the program's world consists of; `inside/namespace_launcher.py` builds it. As root no user namespace
is needed, and the starter goes on as a user that nobody else is; as an ordinary user everything happens in one, in which no
further one can be made.
"""

import asyncio
import marshal
import os
from collections.abc import Mapping
from pathlib import Path

from toolgate.sandbox.jails import identity, inside_files, launch, placeholders, process, seccomp
from toolgate.sandbox.jails.identity import Identity
from toolgate.sandbox.jails.launch import OWN_WORLD, ChildPipe, Launch, SystemPath
from toolgate.sandbox.jails.layers import Layers, layers_of
from toolgate.sandbox.jails.socket_handoff import SocketHandoff
from toolgate.sandbox.jails.submounts import Submounts, parts
from toolgate.sandbox.port import Feature, Spec, Unavailable

LAUNCHER = inside_files.INSIDE / "namespace_launcher.py"
SCRATCH = "/tmp"
"""In the program's world: the one place, besides a workspace, that it may write to."""
PLACE = "/tmp"
"""Where on the host the new world is put together; what lies there is hidden from the launcher alone."""
DEVICES = ("null", "zero", "full", "random", "urandom")
LINKS = {
    "shm": SCRATCH,
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}

Step = list[str]
"""bind PATH read|write|device SOURCE, fresh PATH OPTIONS, link PATH TARGET, hide PATH: the launcher knows what to do."""

ENFORCES: dict[Feature, str] = OWN_WORLD | {"disk": "tmpfs with a size and a number of files; a workspace is polled"}


class Namespaces:
    """Holds processes in namespaces of their own."""

    name = "namespaces"

    def __init__(self, *, scratch_parent: Path | None = None, cpu: int | None = None) -> None:  # noqa: ARG002 - as all jails
        self._cpu = cpu
        self._processes: set[process.Process] = set()

    def enforces(self) -> Mapping[Feature, str]:
        """By what means each feature is held."""
        return ENFORCES

    async def start(self, spec: Spec) -> process.Process:
        """Start a process in a world of its own."""
        self._processes = {other for other in self._processes if not other.closed}
        apart = parts(spec)
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
        handing = SocketHandoff() if spec.listen else None
        layers = layers_of(spec, who, mapped)
        steps = world(spec, who, apart, layers)
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
                handing=handing,
                gate=layers.gate if layers else None,
            )
        )
        told = ChildPipe.up()
        plan = {
            "host": os.getpid(),
            "lifeline": order.inner,
            "told": told.inner,
            "through": handing.inner if handing else None,
            "network": spec.network,
            "user": None if os.geteuid() == 0 else [os.geteuid(), os.getegid()],
            "world": steps,
            "place": PLACE,
            "gate": layers.gate if layers else None,
            # To map one user onto another, which only root can; and for what can be changed there, one has to be root.
            "writes_proc": remap is not None,
            "starter": str(inside_files.STARTER),
        }
        interpreter = launch.interpreter(spec)
        argv = (interpreter, "-I", "-S", "-B", str(LAUNCHER), marshal.dumps(plan, 2).hex())
        return Launch(
            argv=layers.command(interpreter, argv) if layers else argv,
            layers=layers,
            order=order,
            told=told,
            handing=handing,
            # Read by the C library before anything of ours runs: arenas would use up the address space.
            environment={"MALLOC_ARENA_MAX": "1"},
            places=(SCRATCH,),
            release=apart.held,
        )

    async def close(self) -> None:
        """End whatever still runs."""
        await asyncio.gather(*(started.close() for started in self._processes))
        self._processes.clear()


def world(spec: Spec, who: Identity | None, apart: Submounts, layers: Layers | None = None) -> list[Step]:
    """All that the program will see, outer places before inner ones."""
    from_host = layers.source if layers else Path
    steps = [["fresh", SCRATCH, _scratch_options(spec, who)]]
    steps += [_shown(view) for view in (*launch.system_paths(), *launch.network_paths(spec.network))]
    steps += [_bind(Path("/dev") / name, "device") for name in DEVICES]
    steps += [["link", f"/dev/{name}", target] for name, target in LINKS.items()]
    steps += [_bind(path, "read", path.resolve()) for path in launch.readable_paths(spec)]
    steps += [_bind(path, "read", from_host(path)) for path in spec.projected]
    for folder in ([spec.workspace] if spec.workspace else []) + list(spec.writable):
        if Path(SCRATCH).is_relative_to(folder):
            raise Unavailable(f"{folder} can't be a workspace: it holds the folder for temporary files.")
        steps.append(_bind(folder, "write", from_host(folder) if layers else folder.resolve()))
    steps += [_bind(place, "read", source.resolve()) for source, place in spec.shown]
    for path, how in apart.mounts.items():
        steps.append(["hide", str(path)] if how == "hide" else _bind(path, how, from_host(path)))
    return sorted(steps, key=lambda step: step[1].count("/"))


def _shown(view: SystemPath) -> Step:
    if view.kind == "link":
        return ["link", str(view.path), view.target]
    return _bind(view.path, "read", Path(view.target))


def _bind(path: Path, how: str, source: Path | None = None) -> Step:
    return ["bind", str(path), how, str(source or path)]


def _scratch_options(spec: Spec, who: Identity | None) -> str:
    uid, gid = who or (os.geteuid(), os.getegid())
    return f"mode=0700,uid={uid},gid={gid},size={spec.limits.disk},nr_inodes={spec.limits.files}"
