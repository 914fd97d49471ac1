"""A function of Toolgate's own that does one piece of work in a process of its own: for parsers that read what others wrote.
What goes wrong there (a crash, memory, a loop without an end) goes wrong there alone, and it can be ended.

It is no jail: the function is ours, and what it reads is not run. Where code of others is run, `Sandbox` runs it.
"""

import asyncio
import math
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from toolgate.errors import Failed, timed_out
from toolgate.sandbox.tenant_places import tenant_places
from toolgate.tasks import finish
from toolgate.threads import LARGE, to_thread

MAIN = Path(__file__).parent / "inside" / "helper_main.py"
OURS = Path(__file__).resolve().parent.parent.parent
"""The folder that Toolgate is imported from."""
MB = 1024 * 1024
READ_BYTES = 65_536


async def run_helper(
    work: str,
    value: Any,
    *,
    tenant: str,
    packages: Sequence[str],
    seconds: float,
    memory_mb: int = 512,
    max_bytes: int = 4_000_000,
) -> Any:
    """Has a function of ours, `module:function`, work on a JSON value, and gives its result. It sees no environment, and of
    packages those that are named. `tenant`: for whom it works; empty for Toolgate itself.

    Raises TimedOut, or Failed (SANDBOX_ERROR) if it crashed, or took or gave too much.
    """
    module, _, function = work.partition(":")
    folders = dict.fromkeys((str(OURS), *_folders(packages)))
    environment = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}
    argv = [sys.executable, "-I", "-S", str(MAIN), module, function, str(memory_mb * MB), str(math.ceil(seconds)), *folders]
    async with tenant_places().place(tenant):
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env=environment, cwd=MAIN.parent, start_new_session=True,
        )  # fmt: skip
        try:
            async with asyncio.timeout(seconds):
                answer = await _ask(process, orjson.dumps(value), max_bytes)
                code = await process.wait()
        except TimeoutError:
            raise timed_out(seconds) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await finish(process.wait())
    if code != 0 or len(answer) > max_bytes:
        raise Failed("SANDBOX_ERROR", "It is too much for the parser.", suggestion="Give it a smaller part.")
    return await to_thread(orjson.loads, answer) if len(answer) > LARGE else orjson.loads(answer)


def _folders(packages: Sequence[str]) -> list[str]:
    """The folders that packages are imported from; none is imported for that."""
    found = (find_spec(package) for package in packages)
    return [str(Path(spec.origin).parent.parent) for spec in found if spec is not None and spec.origin]


async def _ask(process: asyncio.subprocess.Process, request: bytes, max_bytes: int) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(request)
        await process.stdin.drain()
    process.stdin.close()
    heard = bytearray()
    while (chunk := await process.stdout.read(READ_BYTES)) and len(heard) <= max_bytes:
        heard += chunk
    if len(heard) > max_bytes:
        process.kill()
    return bytes(heard)
