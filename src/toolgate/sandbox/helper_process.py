"""A program of Toolgate's own that does one piece of work in a process of its own: for parsers in C that read what others
wrote. What goes wrong there (a crash, memory, a loop without an end) goes wrong there alone, and it can be ended.

It is no jail: the program is ours, and what it reads is not run. Where code of others is run, `Sandbox` runs it.
"""

import asyncio
import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from toolgate.errors import Failed, timed_out
from toolgate.tasks import finish

READ_BYTES = 65_536


def packages_of(*modules: str) -> list[str]:
    """The folders that modules are imported from; none is imported for that."""
    found = (find_spec(module) for module in modules)
    return list(dict.fromkeys(str(Path(spec.origin).parent.parent) for spec in found if spec is not None and spec.origin))


async def run_helper(script: Path, request: bytes, *, packages: list[str], seconds: float, max_bytes: int) -> bytes:
    """Runs a script of ours on a request and gives what it wrote. It sees no environment, and of packages only those named.

    Raises TimedOut, or Failed (SANDBOX_ERROR) if it did not come to its end.
    """
    environment = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(script), *packages,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env=environment, cwd=script.parent, start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(seconds):
            answer = await _ask(process, request, max_bytes)
            code = await process.wait()
    except TimeoutError:
        raise timed_out(seconds) from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await finish(process.wait())
    if code != 0 or len(answer) > max_bytes:
        raise Failed("SANDBOX_ERROR", "The source is too much for the parser.", suggestion="Give it a smaller part.")
    return answer


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
