"""The jail of Linux's own namespaces, set up by our own launcher: what bubblewrap gives, where bubblewrap is not installed.

This side decides what the program's world consists of; `inside/namespace_launcher.py` builds it.
"""

import marshal
import os
from collections.abc import Mapping
from pathlib import Path

from toolgate.sandbox.jails import inside_files, launch
from toolgate.sandbox.jails.launch import ChildPipe, SystemPath
from toolgate.sandbox.jails.namespace_jail import DEVICE_LINKS, DEVICES, ENFORCES, SCRATCH, Layout, NamespaceJail
from toolgate.sandbox.jails.socket_handoff import SocketHandoff
from toolgate.sandbox.port import Feature

NAMESPACE_LAUNCHER = inside_files.INSIDE / "namespace_launcher.py"
PLACE = "/tmp"
"""Where on the host the new world is put together; what lies there is hidden from the launcher alone."""

Step = list[str]
"""bind PATH read|write|device SOURCE, fresh PATH OPTIONS, link PATH TARGET, hide PATH: the launcher knows what to do."""


class Namespaces(NamespaceJail):
    """Holds processes in namespaces that our own launcher makes."""

    name = "namespaces"

    def enforces(self) -> Mapping[Feature, str]:
        """By what means each feature is held."""
        return ENFORCES | {"disk": "tmpfs with a size and a number of files; a workspace is polled"}

    def _command(self, layout: Layout, order: ChildPipe, told: ChildPipe, handoff: SocketHandoff | None) -> tuple[str, ...]:
        plan = {
            "host": os.getpid(),
            "lifeline": order.inner,
            "told": told.inner,
            "through": handoff.inner if handoff else None,
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
