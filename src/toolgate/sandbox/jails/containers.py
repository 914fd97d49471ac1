"""The command line of a container engine: Docker's, or one that understands the same words.

Every container carries the labels of the process that had it started. So those of a dead one can be found: by a watchdog
that outlives the process by a moment, also if that was killed, and failing that when Toolgate next starts here.
"""

import asyncio
import os
import re
import secrets
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from math import ceil
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import orjson

from toolgate.sandbox.jail import ResourceLimits, Spec, Unavailable
from toolgate.sandbox.jails.process_tree import began
from toolgate.threads import to_thread

ENGINE_PROBE_SECONDS = 3.0
ASK_SECONDS = 20.0
KILL_SECONDS = 1.0
CONTAINER_SCRATCH = "/tmp"
"""Inside the container: a file system of its own."""
NOWHERE = "192.0.2.1"
"""An address that is nobody's, in place of the host's name servers."""
MACHINE, HOST = "toolgate.machine", "toolgate.host"
PASSED = frozenset({"HOME", "PATH", "USER", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK"})
PASSED_FAMILIES = ("DOCKER_", "CONTAINER_")
"""Variables that the command line needs to find its engine. The container gets none of them."""
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")

WATCHDOG = """
trap '' HUP INT QUIT
trap : TERM
label=$1; shift
"$@" events --filter "label=$label" --filter event=oom --format '{{.Actor.Attributes.name}}' </dev/null &
read -r told
kill $!
[ -n "$told" ] && exit
exec >/dev/null 2>&1
calm=0
while [ "$calm" -lt 3 ]; do
    left=$("$@" ps --all --quiet --filter "label=$label")
    if [ -n "$left" ]; then calm=0; "$@" rm --force $left; else calm=$((calm + 1)); sleep 0.5; fi
done
"""
"""Waits for the end of its input, which is the end of the host, and removes its containers: also one that was being made.
A line means that there is nothing left to do. Until then it says the names of those that run out of memory."""


class EngineTimeout(Unavailable):
    """The engine took too long."""


class Engine:
    """The command line of one engine."""

    def __init__(self, command: Sequence[str] = ("docker",)) -> None:
        if not command:
            raise Unavailable("no command is set for the container engine")
        self.command = tuple(command)

    async def ask(self, *words: str, seconds: float = ASK_SECONDS) -> str:
        """Its output; raises Unavailable with its complaint."""
        return await to_thread(self._ask, words, seconds)

    def _ask(self, words: tuple[str, ...], seconds: float) -> str:
        name = self.command[0]
        try:
            ended = subprocess.run(
                (*self.command, *words), stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds,
                env=environment(), check=False,
            )  # fmt: skip
        except FileNotFoundError:
            raise Unavailable(f"there is no command {name!r} here") from None
        except OSError as error:
            raise Unavailable(f"{name} cannot be run: {error.strerror}") from error
        except subprocess.TimeoutExpired:
            raise EngineTimeout(f"{name} {words[0]} gave no answer within {seconds:g} s") from None
        if ended.returncode:
            complaint = ended.stderr.decode("utf-8", "replace").strip()
            raise Unavailable(complaint[-500:] or f"{name} {words[0]} ended with exit code {ended.returncode}")
        return ended.stdout.decode("utf-8", "replace").strip()

    async def machine(self) -> str:
        """The architecture of the engine that answers; raises Unavailable if none does."""
        name = self.command[0]
        try:
            said = await self.ask("version", "--format", "{{.Server.Arch}}", seconds=ENGINE_PROBE_SECONDS)
        except Unavailable as error:
            advice = f"Install and start it (for Docker: `systemctl start docker`); `{name} version` must answer."
            raise Unavailable(f"the container engine cannot be reached: {error.message}", suggestion=advice) from error
        if said not in MACHINES:
            raise Unavailable(f"the engine of {name} runs on {said or 'nothing'}, which is not known here")
        return MACHINES[said]

    async def volumes(self, image: str) -> tuple[str, ...]:
        """The paths at which the image wants a volume. Raises Unavailable if the image is not here: nothing is fetched."""
        if not IMAGE.fullmatch(image):
            raise Unavailable(f"{image[:100]!r} is not a valid name of an image")
        try:
            told = await self.ask("image", "inspect", "--format", "{{json .Config.Volumes}}", image)
        except Unavailable as error:
            words = f"the image {image} cannot be used: {error.message}"
            advice = f"Whoever runs Toolgate can fetch it: `{self.command[0]} pull {image}`."
            raise Unavailable(words, suggestion=advice) from error
        return tuple(sorted(orjson.loads(told) or {}))

    async def kill(self, name: str) -> bool:
        """True if it was there to be killed. The engine says so late if somebody does not read what it wrote."""
        try:
            await self.ask("kill", name, seconds=KILL_SECONDS)
        except Unavailable as error:
            return isinstance(error, EngineTimeout)
        return True

    async def remove(self, *names: str) -> None:
        """End containers and wait until they are gone. The engine may be at it already, by itself, and refuses to say when
        it will be done; so it is asked again."""
        until = monotonic() + ASK_SECONDS
        for name in names:
            while monotonic() < until:
                try:
                    await self.ask("rm", "--force", "--volumes", name)
                except Unavailable as error:
                    if "no such container" not in error.message.lower():
                        await asyncio.sleep(0.05)
                        continue
                break

    async def remove_of_the_dead(self) -> None:
        """Remove the containers of processes of this machine that are no more."""
        form = f'{{{{.Names}}}} {{{{.Label "{HOST}"}}}}'
        lines = await self.ask("ps", "--all", "--filter", f"label={MACHINE}={machine()}", "--format", form)
        dead = [name for name, _, host in (line.partition(" ") for line in lines.splitlines()) if not lives(host)]
        await self.remove(*dead)

    def watchdog(self) -> subprocess.Popen[bytes]:
        """A process that waits for our end, and for theirs. Its stdin is to be held open as long as we live."""
        return subprocess.Popen(
            ("/bin/sh", "-c", WATCHDOG, "sh", f"{HOST}={host()}", *self.command),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, stderr=subprocess.DEVNULL, env=environment(),
            start_new_session=True, cwd="/",
        )  # fmt: skip


def environment() -> dict[str, str]:
    """Ours, as far as the command line needs it."""
    return {name: value for name, value in os.environ.items() if name in PASSED or name.startswith(PASSED_FAMILIES)}


# -- whose a container is


@cache
def machine() -> str:
    """This machine since it was started, as processes that can see each other's ids see it. An engine may serve several."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return sha256("\n".join(parts).encode()).hexdigest()[:16]


def host(pid: int | None = None) -> str:
    """A process, by its id and when it began: ids are used again."""
    pid = pid or os.getpid()
    return f"{pid}-{began(pid) or 0}"


def lives(told: str) -> bool:
    """True if the process of that label lives. What is no such label is left alone."""
    pid, _, when = told.partition("-")
    if not pid.isdecimal() or not when.isdecimal():
        return True
    if when != "0":
        return str(began(int(pid))) == when
    try:
        os.kill(int(pid), 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def new_name() -> str:
    return f"toolgate-{host()}-{secrets.token_hex(6)}"


# -- the words for one container


class Mount(NamedTuple):
    """Something that is seen at a path inside: of the host, or nothing (`source` None)."""

    target: Path
    source: Path | None
    writable: bool = False

    def words(self) -> tuple[str, str]:
        if self.source is None:
            fields = ["type=tmpfs", f"dst={self.target}", "tmpfs-size=4096", "readonly"]
        else:
            fields = ["type=bind", f"src={self.source}", f"dst={self.target}"]
            fields += [] if self.writable else ["readonly"]
        return "--mount", ",".join(_quoted(field) for field in fields)


def _quoted(field: str) -> str:
    if "\n" in field or "\r" in field:
        raise Unavailable(f"the engine cannot be told of a file with a line end in its name: {field!r}")
    return '"' + field.replace('"', '""') + '"' if "," in field or '"' in field else field


def seen(spec: Spec, readable: Iterable[Path]) -> tuple[Mount, ...]:
    """The mounts by which the host is seen inside, outer folders before inner ones.

    A part that is fixed or hidden is a mount of its own, and so is every folder above it up to the workspace: those could
    otherwise be renamed, and made anew without it.
    """
    mounts: dict[Path, Mount] = {}
    workspace = spec.workspace
    if workspace is not None:
        mounts[workspace] = Mount(workspace, workspace, writable=True)
        masked = _within(workspace, spec.hidden)
        kept = [part for part in _within(workspace, spec.fixed) if not any(map(part.is_relative_to, masked))]
        for part in (*masked, *kept):
            between = part.parents[: len(part.parts) - len(workspace.parts) - 1]
            mounts.update((above, Mount(above, above, writable=True)) for above in between if above not in mounts)
        mounts.update((part, Mount(part, part)) for part in kept)
        mounts.update((part, Mount(part, None if part.is_dir() else Path(os.devnull))) for part in masked)
    mounts.update((path, Mount(path, path)) for path in readable if path.exists() and path not in mounts)
    return tuple(mounts[path] for path in sorted(mounts))


def _within(workspace: Path, parts: Iterable[Path]) -> list[Path]:
    """The real paths of those parts that lie in the workspace: a link is what it leads to."""
    real = (part.resolve() for part in parts)
    return [part for part in real if workspace in part.parents and part.exists()]


def run_words(
    *,
    name: str,
    image: str,
    argv: Sequence[str],
    user: tuple[int, int],
    limits: ResourceLimits,
    mounts: Sequence[Mount] = (),
    volumes: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    work: str = CONTAINER_SCRATCH,
    entrypoint: str | None = None,
) -> tuple[str, ...]:
    """`run`, with everything that holds the container."""
    uid, gid = user
    owned = f"uid={uid},gid={gid},mode=0700"
    scratch = f"{CONTAINER_SCRATCH}:rw,exec,nosuid,nodev,size={limits.disk},nr_inodes={limits.files},{owned}"
    return (
        "run", "--rm", "--interactive", "--sig-proxy=false", "--pull", "never",
        "--name", name, "--label", f"{MACHINE}={machine()}", "--label", f"{HOST}={host()}",
        "--network", "none", "--dns", NOWHERE, "--hostname", "sandbox", "--ipc", "none",
        "--memory", str(limits.memory), "--memory-swap", str(limits.memory), "--cpus", "1",
        "--pids-limit", str(limits.processes),
        "--ulimit", "core=0", "--ulimit", "msgqueue=0", "--ulimit", "memlock=65536",
        "--ulimit", f"nofile={limits.open_files}", "--ulimit", f"fsize={limits.disk}",
        "--ulimit", f"cpu={ceil(limits.seconds) + 5}",
        "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", f"{uid}:{gid}",
        "--read-only", "--tmpfs", scratch, "--workdir", work,
        *(word for path in ("/sys", *volumes) for word in Mount(Path(path), None).words()),
        *(word for mount in mounts for word in mount.words()),
        "--log-driver", "none", "--no-healthcheck",
        *(word for key, value in (environment or {}).items() for word in ("--env", f"{key}={value}")),
        *(() if entrypoint is None else ("--entrypoint", entrypoint)),
        image, *argv,
    )  # fmt: skip
