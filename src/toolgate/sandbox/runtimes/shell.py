"""Commands: one program and its arguments, in the jail, with no shell between."""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from toolgate.errors import InvalidInput
from toolgate.sandbox.jail import JailedProcess, ResourceLimits, Spec
from toolgate.tasks import start_task

OUTPUT_READ_BYTES = 65_536
SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")


def spec(
    argv: Sequence[str],
    limits: ResourceLimits,
    *,
    programs: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
) -> Spec:
    """The process to jail for a command; raises InvalidInput if there is no such program."""
    if not argv or not argv[0]:
        raise InvalidInput("The command is empty.")
    found = argv[0] if argv[0].startswith("/") else find_program(argv[0], programs)
    if found is None:
        raise InvalidInput(
            f"There is no program {argv[0]!r} here.", suggestion="The setting sandbox.programs can name more."
        )
    return Spec(
        profile="shell",
        argv=(found, *argv[1:]),
        environment=tuple(sorted({"LANG": "C.UTF-8", **(environment or {})}.items())),
        readable=tuple(_root_of(folder) for folder in programs),
        path=_search_path(programs),
        limits=limits,
    )


def find_program(name: str, programs: Sequence[Path]) -> str | None:
    """The path of a program that commands may run; None: it is neither in these folders nor in the system's."""
    return shutil.which(name, path=os.pathsep.join(_search_path(programs)))


def _search_path(programs: Sequence[Path]) -> tuple[str, ...]:
    return (*(str(folder.resolve()) for folder in programs), *SYSTEM_PATH)


def _root_of(folder: Path) -> Path:
    """Programs in a folder named bin use what is beside it, lib and share."""
    folder = folder.resolve()
    return folder.parent if folder.name == "bin" and len(folder.parts) > 2 else folder


async def converse(process: JailedProcess, stdin: bytes, limits: ResourceLimits) -> tuple[int, str, str]:
    """Feed a command, hear it out, and give its exit code and what it wrote."""
    feeding = start_task(_feed(process, stdin))
    try:
        out, errors = await asyncio.gather(
            _hear(process, process.read, limits.output), _hear(process, process.read_errors, limits.output)
        )
        code = await process.wait()
    finally:
        feeding.cancel()
    return code, out.decode("utf-8", "replace"), errors.decode("utf-8", "replace")


async def _feed(process: JailedProcess, stdin: bytes) -> None:
    if stdin:
        await process.write(stdin)
    await process.close_stdin()


async def _hear(process: JailedProcess, read: Callable[[int], Awaitable[bytes]], most: int) -> bytes:
    """Everything that comes, up to the limit; whoever writes more is ended."""
    heard = bytearray()
    while chunk := await read(OUTPUT_READ_BYTES):
        heard += chunk
        if len(heard) > most:
            process.kill("output")
            process.stopped = process.stopped or "output"  # also if it has just ended by itself
            del heard[most:]
            break
    return bytes(heard)
