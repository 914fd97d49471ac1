"""Toolgate's sandbox, without the pipeline around it: one addition in TypeScript, in Python, in Monty.

Its argument is the jail. `warm` calls find a worker that waits for them: between calls there is a pause, as between the
calls of an agent, in which the next worker is started. `cold` calls start theirs. `busy` calls come back to back, from as
many callers as there are CPUs, so that they wait for starts too. `remains` looks at what calls leave behind.
"""

import asyncio
import gc
import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from measure import Handler, serve

from toolgate.sandbox.engine import Language, Sandbox
from toolgate.settings import SandboxSettings

CODE: dict[str, tuple[Language, str]] = {
    "typescript": ("typescript", "return args.a + args.b"),
    "python": ("python", "args['a'] + args['b']"),
    "monty": ("python", "args['a'] + args['b']"),
}


def made(**more: Any) -> Sandbox:
    """A sandbox with the jail that is asked for."""
    given = {"backend": sys.argv[1], "docker_image": os.environ.get("TOOLGATE_SANDBOX__DOCKER_IMAGE"), **more}
    return Sandbox(SandboxSettings.model_validate(given))


async def once(sandbox: Sandbox, lane: str) -> int:
    """One call; how many nanoseconds it took. A wrong result is an error, not a fast call."""
    language, code = CODE[lane]
    begin = perf_counter_ns()
    ran = await sandbox.run_code(language, code, arguments={"a": 1, "b": 2})
    took = perf_counter_ns() - begin
    expected = {"typescript": "deno"}.get(lane, lane)
    if ran.failure is not None or ran.value != 3 or ran.lane != expected:
        raise AssertionError(f"1 + 2 gave {ran!r}")
    return took


def figures(took: list[int]) -> dict[str, float]:
    """In milliseconds."""
    took.sort()
    count = len(took)
    return {"p50": took[count // 2] / 1e6, "p95": took[count * 95 // 100] / 1e6, "mean": sum(took) / count / 1e6}


def calling(sandbox: Sandbox, lane: str, pause: float) -> Handler:
    async def run(request: dict[str, Any]) -> dict[str, Any]:
        await once(sandbox, lane)
        took = []
        for _ in range(request["calls"]):
            await asyncio.sleep(pause)
            took.append(await once(sandbox, lane))
        return figures(took)

    return run


def busy(sandbox: Sandbox, lane: str) -> Handler:
    async def run(request: dict[str, Any]) -> dict[str, Any]:
        callers = os.cpu_count() or 1
        each = request["calls"] // callers

        async def caller() -> None:
            for _ in range(each):
                await once(sandbox, lane)

        begin = perf_counter_ns()
        await asyncio.gather(*(caller() for _ in range(callers)))
        return {"per_second": each * callers / (perf_counter_ns() - begin) * 1e9}

    return run


# -- what is left


def descendants() -> list[int]:
    """Every process below this one, zombies too."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {os.getpid()})


def resident() -> float:
    """Our own memory, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def temporary() -> int:
    """Files and folders of ours among the temporary ones."""
    return sum(1 for _ in Path(tempfile.gettempdir()).rglob("*"))


async def remains(request: dict[str, Any]) -> dict[str, Any]:
    """Calls in a sandbox of their own, which is closed; what is there afterwards that was not before. The first calls, in
    which libraries are loaded and memory grows to its working size, are not counted."""
    after: list[dict[str, float]] = []
    for calls in (request["calls"] // 4, request["calls"]):
        sandbox = made(monty=False)
        for number in range(calls):
            await once(sandbox, "python" if number % 2 else "typescript")
        await sandbox.close()
        gc.collect()
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        count = {"processes": len(descendants()), "descriptors": descriptors, "files": temporary(), "MB": resident()}
        after.append(count)
    return {key: after[1][key] - after[0][key] for key in after[0]}


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        tempfile.tempdir = folder
        warm = made(monty=False)
        cold = made(monty=False, warm=0)
        small = made()

        async def jails(_request: dict[str, Any]) -> dict[str, Any]:
            return {found.name: found.reason if not found.available else None for found in await warm.survey()}

        pause = 0.6 if sys.argv[1] == "docker" else 0.1
        await serve(
            {
                "jails": jails,
                "remains": remains,
                "warm typescript": calling(warm, "typescript", pause),
                "warm python": calling(warm, "python", pause),
                "monty": calling(small, "monty", 0.0),
                "cold typescript": calling(cold, "typescript", 0.0),
                "cold python": calling(cold, "python", 0.0),
                "busy typescript": busy(warm, "typescript"),
                "busy python": busy(warm, "python"),
            }
        )
        for sandbox in (warm, cold, small):
            await sandbox.close()


if __name__ == "__main__":
    asyncio.run(main())
