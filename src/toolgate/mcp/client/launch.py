"""Starts the program of a server: in a jail with only what its settings give it, or without one where they say so.

In the jail it has a home and a temporary folder of its own, in memory; its package and interpreter; the files in `read` and
`write`; the variables in `env`; and no network, or a loopback on which only `domains` are reachable, or the host's. Time is
not limited, since a server runs as long as it is used; memory, processes and open files are.
"""

import math
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from toolgate.errors import NotReached
from toolgate.mcp.client import executables as finding
from toolgate.mcp.client import packages
from toolgate.mcp.client.errors import Unreachable
from toolgate.mcp.client.executables import LaunchCommand
from toolgate.mcp.client.mounts import MountPlan, plan_mounts
from toolgate.mcp.client.secret_refs import fill, hide_argument_secrets
from toolgate.sandbox.jail import MB, Jail, JailedProcess, ResourceLimits, Spec, Unavailable
from toolgate.settings import ServerSettings
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.mcp.client.allowed_hosts import AllowedHosts, LoopbackLayout
    from toolgate.mcp.client.egress_proxy import EgressProxy, Resolve
    from toolgate.mcp.client.folder_layers import FolderLayers
    from toolgate.sandbox.engine import Sandbox
    from toolgate.sandbox.workspaces import Workspaces
    from toolgate.screening.paths import SensitivePaths

NetworkReach = Literal["none", "domains", "host"]

MAX_SCRATCH_FILES = 50_000
MAX_PROCESSES = 128
"""Including threads: Node alone has a dozen."""
MAX_OPEN_FILES = 1024
LOCALE_VARIABLES = ("LANG", "LANGUAGE", "TZ")
NSSWITCH = "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n"


class ServerProcess:
    """A started server program."""

    def __init__(
        self,
        box: JailedProcess,
        *,
        jail: str | None,
        network: NetworkReach,
        proxy: "EgressProxy | None" = None,
        layers: "FolderLayers | None" = None,
    ) -> None:
        self.box = box
        self.layers = layers
        """The layers over its writable folders; None: it has none, or no jail."""
        self.jail = jail
        """The name of its jail; None: it has none."""
        self.network = network
        self.proxy = proxy

    def terminate(self) -> None:
        """Sends SIGTERM to the program and its descendants. Does not wait."""
        ask = getattr(self.box, "terminate", None)
        if ask is not None:
            ask()
            return
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
    places: "Workspaces | None" = None,
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
    command = await packages.command(name, settings, home, step) or finding.find_command(
        name, settings.command, settings.cwd
    )
    step("starting")
    command, values = hide_argument_secrets(name, command, secrets)
    given |= values
    jail = None if settings.isolation == "none" else await _jail(name, sandbox)
    if jail is None:
        return await _start_plainly(name, command, given, settings.cwd)
    reach = reach_of(settings)
    try:
        domains = _domains(name, settings) if reach == "domains" else None
        layout = domains.layout() if domains is not None else None
        look = partial(plan_mounts, name, settings, home, rules, command.own)
        mounts = await to_thread(look)
        spec = _spec(name, settings, command, given, home, layout, mounts)
        box = await jail.start(spec)
    except Unavailable as error:
        raise _not_held(name, error.message, error.suggestion) from error
    program = ServerProcess(
        box, jail=jail.name, network=reach, layers=_layers(name, settings, mounts, look, box, home, places)
    )
    if domains is not None and layout is not None:
        try:
            program.proxy = await _open_proxy(name, box, domains, layout, resolve)
        except BaseException as error:
            await program.close()
            if isinstance(error, Unavailable):
                raise _not_held(name, error.message, None) from error
            raise
    return program


def reach_of(settings: ServerSettings) -> NetworkReach:
    """The network that settings give a server in a jail."""
    return settings.network or ("domains" if settings.domains else "none")


# -- without a jail


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


async def _start_plainly(name: str, command: LaunchCommand, given: Mapping[str, str], cwd: Path | None) -> ServerProcess:
    from toolgate.mcp.client import unsandboxed as plain

    own = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
    try:
        box = await plain.start(command.argv, {**own, **locale(), **given}, cwd)
    except OSError as error:
        raise Unreachable(message=f"Server {name!r} can't be started: {error.strerror or error}.") from error
    return ServerProcess(box, jail=None, network="host")


def locale() -> dict[str, str]:
    """Language and time zone, the only variables of ours that a server gets."""
    return {key: value for key, value in os.environ.items() if key in LOCALE_VARIABLES or key.startswith("LC_")}


# -- in a jail


def _refuse_runners(name: str, settings: ServerSettings) -> None:
    if not settings.command or settings.npm is not None or settings.pypi is not None:
        return
    setting = finding.package_setting(settings.command[0])
    if settings.command[:2] == ("uv", "run"):
        raise Unreachable(
            message="`uv run` updates an environment at each start, which it can't do inside a jail.",
            suggestion="Create the environment first (`uv sync`), and start its Python: `-- .venv/bin/python server.py`.",
        )
    program = finding.find_program(settings.command[0], settings.cwd)
    if program is not None and program.parent.name == finding.SHIM_FOLDER and setting is None:
        raise Unreachable(
            message=f"{program} is a shim that looks for the real program, which it can't do inside a jail.",
            suggestion=f"Name the real program (`pyenv which {program.name}` shows it), or that of an environment: "
            "`.venv/bin/python`.",
        )
    if setting is not None and reach_of(settings) != "host":
        raise Unreachable(
            message=f"{Path(settings.command[0]).name} can't download server {name!r} inside a jail.",
            suggestion=f"Name the package in the setting `{setting}` (`--{setting}`): it is installed once, outside it.",
        )


def _domains(name: str, settings: ServerSettings) -> "AllowedHosts":
    from toolgate.mcp.client.allowed_hosts import AllowedHosts

    try:
        return AllowedHosts(settings.domains)
    except ValueError as error:
        raise Unreachable(
            message=f"The setting `domains` of server {name!r} is invalid: {error}.",
            suggestion="Correct the setting `domains`, or set `network: none`.",
        ) from None


def _spec(
    name: str,
    settings: ServerSettings,
    command: LaunchCommand,
    given: Mapping[str, str],
    home: Path | None,
    layout: "LoopbackLayout | None",
    mounts: MountPlan,
) -> Spec:
    network = {"none": "none", "domains": "loopback", "host": "host"}[reach_of(settings)]
    variables = {**locale(), **(proxy_variables(layout.proxy_port) if layout else {}), **given}
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
        shown=tuple(_shown(name, home, layout)),
        network=network,  # type: ignore[arg-type]  # from the table above
        listen=tuple((place.address, place.port) for place in layout.places) if layout else (),
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


def _layers(
    name: str,
    settings: ServerSettings,
    mounts: MountPlan,
    look: Callable[[], MountPlan],
    box: JailedProcess,
    home: Path | None,
    places: "Workspaces | None",
) -> "FolderLayers | None":
    if not mounts.writable and not mounts.projected:
        return None
    from toolgate.mcp.client.folder_layers import FolderLayers
    from toolgate.sandbox.workspaces import Workspaces

    known = places or Workspaces(home or Path.home() / ".toolgate")
    intakes = [
        known.intake(
            folder, f"server {name}", settings.disk_mb * MB, bring_in=settings.bring_in, setting=f"servers.{name}.bring_in",
            repositories=[path for path in mounts.repositories if path.is_relative_to(folder)],
        )
        for folder in mounts.writable
    ]  # fmt: skip
    return FolderLayers(name, box, intakes, mounts, look)


def proxy_variables(port: int) -> dict[str, str]:
    """The proxy variables that programs read, in both spellings."""
    address = f"http://127.0.0.1:{port}"
    found = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), address) | {"NO_PROXY": "localhost,127.0.0.1,::1"}
    return found | {key.lower(): value for key, value in found.items()} | {"NODE_USE_ENV_PROXY": "1"}


def _shown(name: str, home: Path | None, layout: "LoopbackLayout | None") -> "list[tuple[Path, Path]]":
    """Small files of /etc: the time zone and, for allowed hosts, hosts and nsswitch.conf."""
    zone = Path("/etc/localtime")
    shown = [(zone.resolve(), zone)] if zone.exists() else []
    if layout is None:
        return shown
    folder = packages.place(name, home) / "etc"
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    hosts = "".join(f"{address} {host}\n" for host, address in layout.names.items())
    for file, text in (("hosts", hosts), ("nsswitch.conf", NSSWITCH)):
        _replace(folder / file, text)
        shown.append((folder / file, Path("/etc") / file))
    return shown


def _replace(file: Path, text: str) -> None:
    """Atomic, for others who start the same server."""
    new = file.with_name(f".{file.name}-{os.getpid()}")
    new.write_text(text)
    new.chmod(0o644)
    new.replace(file)


async def _open_proxy(
    name: str, box: JailedProcess, domains: "AllowedHosts", layout: "LoopbackLayout", resolve: "Resolve | None"
) -> "EgressProxy":
    from toolgate.mcp.client import egress_proxy
    from toolgate.sandbox.jails.process import Process

    if not isinstance(box, Process):
        raise Unavailable("This jail has no network of its own.")
    listeners = await box.listeners()
    opened = egress_proxy.EgressProxy(name, domains, resolve=resolve or egress_proxy.resolve)
    await opened.serve(listeners, layout.places)
    return opened


def _not_held(name: str, why: str, suggestion: str | None) -> Unreachable:
    return Unreachable(
        "SANDBOX_UNAVAILABLE",
        f"Server {name!r} can't be started in a jail: {why}",
        suggestion=suggestion or "Run `toolgate doctor` to see which jails work here; installing bubblewrap usually helps.",
    )
