"""Starts the program of a server: in a jail with only what its settings give it, or without one where they say so.

In the jail it has a home and a temporary folder of its own, in memory; its package and interpreter; the files in `read` and
`write`; the variables in `env`; and no network, or a loopback on which only `domains` are reachable, or the host's. Time is
not limited, since a server runs as long as it is used; memory, processes and open files are.
"""

import math
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from toolgate.errors import NotReached
from toolgate.mcp.client import executables, packages
from toolgate.mcp.client.errors import Unreachable
from toolgate.mcp.client.mounts import FolderLayers, MountPlan, MountScan
from toolgate.mcp.client.secret_refs import fill, hide_argument_secrets
from toolgate.sandbox.jail import MB, Jail, JailedProcess, Network, ResourceLimits, Spec, Unavailable
from toolgate.sandbox.workspaces import Workspaces
from toolgate.settings import ServerSettings
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.mcp.client.executables import LaunchCommand
    from toolgate.network.egress_proxy import EgressProxy
    from toolgate.network.resolver import Resolve
    from toolgate.sandbox.engine import Sandbox
    from toolgate.sandbox.jail_network import JailNetwork
    from toolgate.screening.paths import SensitivePaths

NetworkReach = Literal["none", "domains", "host"]

MAX_SCRATCH_FILES = 50_000
MAX_PROCESSES = 128
"""Including threads: Node alone has a dozen."""
MAX_OPEN_FILES = 1024
LOCALE_VARIABLES = ("LANG", "LANGUAGE", "TZ")
JAIL_NETWORKS: dict[NetworkReach, Network] = {"none": "none", "domains": "loopback", "host": "host"}
SUBREAPER = Path(__file__).with_name("subreaper.py")
SUBREAPER_SECONDS = 6.0
"""Seconds for the subreaper to end everything that a program started; after that it is killed itself."""


class ServerProcess:
    """A started server program."""

    def __init__(self, box: JailedProcess, jail: str | None, network: NetworkReach) -> None:
        self.box = box
        self.jail = jail
        """The name of its jail; None: it has none."""
        self.network = network
        self.layers: FolderLayers | None = None
        """The layers over its writable folders; None: it has none, or no jail."""
        self.proxy: EgressProxy | None = None

    def terminate(self) -> None:
        """Sends SIGTERM to the program and its descendants. Does not wait."""
        from toolgate.sandbox.jails.process_tree import descendants

        # Below the first process inside; or, where there is none, below the launcher.
        for process in descendants(getattr(self.box, "init", None) or self.box.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGTERM)

    async def close(self) -> None:
        """Ends the program and all that it started. May be called twice."""
        try:
            await (self.box.close() if self.layers is None else self.layers.close())
        finally:
            if self.proxy is not None:
                await self.proxy.close()


async def launch_server(
    name: str,
    settings: ServerSettings,
    secrets: Callable[[str], str | None],
    sandbox: "Sandbox",
    home: Path | None,
    *,
    rules: "SensitivePaths | None" = None,
    places: Workspaces | None = None,
    resolve: "Resolve | None" = None,
    step: Callable[[str], None] = lambda _: None,
) -> ServerProcess:
    """Starts the program. Raises Unreachable. Must be called on the event loop's thread.

    `rules`: what no tool may open. `places`: decides which of its changes are applied. `resolve`: resolves host names.
    `step`: is told the next step.
    """
    given = {key: fill(value, secrets, f"The variable {key} of server {name!r}") for key, value in settings.env.items()}
    if settings.isolation != "none":
        _refuse_runners(name, settings)
    command = await packages.command(name, settings, home, step) or executables.find_command(
        name, settings.command, settings.cwd
    )
    step("starting")
    command, values = hide_argument_secrets(name, command, secrets)
    given |= values
    if settings.isolation == "none":
        return _start_unsandboxed(name, command, given, settings.cwd)
    jail = await _jail(name, sandbox)
    try:
        network = _network(name, settings, resolve) if reach_of(settings) == "domains" else None
        own = command.own

        def plan() -> MountPlan:
            return MountScan(name, settings, home, rules, own).plan()

        mounts = await to_thread(plan)
        program = ServerProcess(
            await jail.start(_spec(name, settings, command, given, home, network, mounts)), jail.name, reach_of(settings)
        )
        if mounts.writable or mounts.projected:
            known = places or Workspaces(home or Path.home() / ".toolgate")
            program.layers = FolderLayers(name, settings, program.box, known, mounts, plan)
        if network is not None:
            try:
                program.proxy = await network.open(program.box)
            except BaseException:
                await program.close()
                raise
    except Unavailable as error:
        raise Unreachable(
            "SANDBOX_UNAVAILABLE",
            f"Server {name!r} cannot be started in a jail: {error.message}",
            suggestion=error.suggestion
            or "Run `toolgate doctor` to see which jails work on this machine; installing bubblewrap usually helps.",
        ) from error
    return program


def reach_of(settings: ServerSettings) -> NetworkReach:
    """The network that settings give a server in a jail."""
    return settings.network or ("domains" if settings.domains else "none")


async def _jail(name: str, sandbox: "Sandbox") -> Jail:
    try:
        return await sandbox.server_jail()
    except NotReached as error:
        raise Unreachable(
            "SANDBOX_UNAVAILABLE",
            f"Server {name!r} must run in a jail. {error.message}",
            suggestion=f"{error.suggestion or 'Run `toolgate doctor`.'} To run it with your own rights: `--isolation none` "
            "(setting `isolation: none`).",
        ) from error


def _start_unsandboxed(name: str, command: "LaunchCommand", given: Mapping[str, str], cwd: Path | None) -> ServerProcess:
    """Starts a program with only the given environment, below a subreaper that ends all of it when we are gone."""
    from toolgate.sandbox.jails.child_descriptors import ChildPipe
    from toolgate.sandbox.jails.launch import Launch
    from toolgate.sandbox.jails.process import Process, begin

    own = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
    order = ChildPipe.down(b"")
    subreaper = (sys.executable, "-I", "-S", str(SUBREAPER), str(order.number), str(os.getpid()), str(cwd or "/"))
    launch = Launch(
        argv=(*subreaper, *command.argv),
        order=order,
        environment={**own, **locale(), **given},
        kill_signal=signal.SIGUSR1,
        end_seconds=SUBREAPER_SECONDS,
        watched=False,
    )
    try:
        box = begin(launch, lambda child: Process(child, launch, Spec(profile="server", argv=command.argv)))
    except Unavailable as error:
        raise Unreachable(message=f"Server {name!r} cannot be started: {error.message}") from error
    return ServerProcess(box, None, "host")


def locale() -> dict[str, str]:
    """Language and time zone, the only variables of ours that a server gets."""
    return {key: value for key, value in os.environ.items() if key in LOCALE_VARIABLES or key.startswith("LC_")}


def _refuse_runners(name: str, settings: ServerSettings) -> None:
    if not settings.command or settings.npm is not None or settings.pypi is not None:
        return
    setting = executables.package_setting(settings.command[0])
    if settings.command[:2] == ("uv", "run"):
        raise Unreachable(
            message="`uv run` updates an environment at each start, which it cannot do inside a jail.",
            suggestion="Create the environment first (`uv sync`), and start its Python: `-- .venv/bin/python server.py`.",
        )
    program = executables.find_program(settings.command[0], settings.cwd)
    if program is not None and program.parent.name == executables.SHIM_FOLDER and setting is None:
        raise Unreachable(
            message=f"{program} is a shim that looks for the real program, which it cannot do inside a jail.",
            suggestion=f"Name the real program (`pyenv which {program.name}` shows it), or that of an environment: "
            "`.venv/bin/python`.",
        )
    if setting is not None and reach_of(settings) != "host":
        raise Unreachable(
            message=f"{Path(settings.command[0]).name} cannot download server {name!r} inside a jail.",
            suggestion=f"Name the package in the setting `{setting}` (`--{setting}`): it is installed once, outside it.",
        )


def _network(name: str, settings: ServerSettings, resolve: "Resolve | None") -> "JailNetwork":
    from toolgate.network.allowed_hosts import AllowedHosts
    from toolgate.sandbox.jail_network import JailNetwork

    try:
        hosts = AllowedHosts(settings.domains)
    except ValueError as error:
        raise Unreachable(
            message=f"The setting `domains` of server {name!r} is invalid: {error}.",
            suggestion="Correct the setting `domains`, or set `network: none`.",
        ) from None
    return JailNetwork(hosts, owner=f"server {name}", setting="the server's setting `domains`", resolve=resolve)


def _spec(
    name: str,
    settings: ServerSettings,
    command: "LaunchCommand",
    given: Mapping[str, str],
    home: Path | None,
    network: "JailNetwork | None",
    mounts: MountPlan,
) -> Spec:
    variables = {**locale(), **(network.variables() if network else {}), **given}
    cwd = None if settings.cwd is None else Path(os.path.realpath(settings.cwd.expanduser()))
    return Spec(
        profile="server",
        argv=command.argv,
        environment=tuple(sorted(variables.items())),
        readable=(*command.readable, *mounts.readable),
        writable=mounts.writable,
        layers=mounts.writable,
        projected=mounts.projected,
        pieces=tuple(mounts.pieces.items()),
        fixed=mounts.fixed,
        hidden=mounts.hidden,
        cwd=cwd,
        path=command.path,
        shown=tuple(_shown(name, home, network)),
        network=JAIL_NETWORKS[reach_of(settings)],
        listen=network.listen if network else (),
        limits=ResourceLimits(
            seconds=math.inf,
            memory=settings.memory_mb * MB,
            disk=settings.disk_mb * MB,
            files=MAX_SCRATCH_FILES,
            processes=MAX_PROCESSES,
            output=settings.output_bytes,
            open_files=MAX_OPEN_FILES,
        ),
    )


def _shown(name: str, home: Path | None, network: "JailNetwork | None") -> "list[tuple[Path, Path]]":
    """Small files of /etc: the time zone and, for allowed hosts, hosts and nsswitch.conf."""
    zone = Path("/etc/localtime")
    shown = [(zone.resolve(), zone)] if zone.exists() else []
    return shown if network is None else shown + network.write_files(packages.place(name, home) / "etc")
