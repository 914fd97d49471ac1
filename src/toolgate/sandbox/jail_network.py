"""The network of a jail that reaches the allowed hosts and nothing else: of a server, or of a command.

The program inside has a loopback of its own and no other interface: no DNS, no route. The host listens on that loopback:
once as an HTTP proxy, and once for each host and port that were named (`network.egress_proxy`).
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from toolgate.network.allowed_hosts import AllowedHosts
from toolgate.sandbox.jail import JailedProcess, Spec, Unavailable

if TYPE_CHECKING:
    from toolgate.network.egress_proxy import EgressProxy
    from toolgate.network.resolver import Resolve

SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
NSSWITCH = "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n"


class JailNetwork:
    """The allowed hosts of one program, as its jail is set up for them."""

    means = "network namespace with a loopback; a proxy to the hosts that were named"
    """How the network is held, for results."""

    def __init__(self, hosts: AllowedHosts, *, owner: str, setting: str, resolve: "Resolve | None" = None) -> None:
        """`owner`: names the program in the log. `setting`: where its hosts are named, for what the proxy says to it.
        `resolve`: resolves host names; None: as this machine does."""
        self._hosts = hosts
        self._owner = owner
        self._setting = setting
        self._resolve = resolve
        self._layout = hosts.layout()

    @property
    def listen(self) -> tuple[tuple[str, int], ...]:
        """For `Spec.listen`."""
        return tuple((place.address, place.port) for place in self._layout.places)

    def variables(self) -> dict[str, str]:
        return proxy_variables(self._layout.proxy_port)

    def write_files(self, folder: Path) -> list[tuple[Path, Path]]:
        """Writes hosts and nsswitch.conf into a folder of the host; gives them for `Spec.shown`."""
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        shown: list[tuple[Path, Path]] = []
        hosts = "".join(f"{address} {host}\n" for host, address in self._layout.names.items())
        for file, text in (("hosts", hosts), ("nsswitch.conf", NSSWITCH)):
            new = folder / f".{file}-{os.getpid()}"
            new.write_text(text)
            new.chmod(0o644)
            new.replace(folder / file)  # atomic, for others who start the same program
            shown.append((folder / file, Path("/etc") / file))
        return shown

    def connect(self, spec: Spec, folder: Path) -> Spec:
        """A command in this network. `folder`: for the files that it finds in /etc."""
        environment = {**self.variables(), **dict(spec.environment)}
        if SYSTEM_CERTIFICATES.exists():
            # Node has a list of its own: without this, it would not trust what this machine does, a company's registry say.
            environment.setdefault("NODE_EXTRA_CA_CERTS", str(SYSTEM_CERTIFICATES))
        return structs.replace(
            spec,
            environment=tuple(sorted(environment.items())),
            network="loopback",
            listen=self.listen,
            shown=(*spec.shown, *self.write_files(folder)),
        )

    async def open(self, process: JailedProcess) -> "EgressProxy":
        """Answers the program from now on. Raises Unavailable if its jail has no network of its own."""
        from toolgate.network import egress_proxy, resolver
        from toolgate.sandbox.jails.process import Process

        if not isinstance(process, Process):
            raise Unavailable("This jail has no network of its own.")
        listeners = await process.listeners()
        resolve = self._resolve or resolver.resolve
        opened = egress_proxy.EgressProxy(self._owner, self._hosts, setting=self._setting, resolve=resolve)
        await opened.serve(listeners, self._layout.places)
        return opened


def proxy_variables(port: int) -> dict[str, str]:
    """The proxy variables that programs read, in both spellings."""
    address = f"http://127.0.0.1:{port}"
    found = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), address) | {"NO_PROXY": "localhost,127.0.0.1,::1"}
    return found | {key.lower(): value for key, value in found.items()} | {"NODE_USE_ENV_PROXY": "1"}
