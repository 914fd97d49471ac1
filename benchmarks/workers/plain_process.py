"""What a sandbox is beside: the same addition by a process that nobody holds. Python, Deno, and `docker run` if an engine
and an image are there (its argument: the image)."""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from measure import Handler, serve


def running(command: list[str]) -> Handler:
    async def run(request: dict[str, Any]) -> dict[str, Any]:
        took = []
        for _ in range(request["calls"]):
            begin = perf_counter_ns()
            ended = subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
            took.append(perf_counter_ns() - begin)
            if ended.stdout.strip() != b"3":
                raise AssertionError(f"1 + 2 gave {ended!r}")
        took.sort()
        count = len(took)
        return {"p50": took[count // 2] / 1e6, "p95": took[count * 95 // 100] / 1e6, "mean": sum(took) / count / 1e6}

    return run


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "add.ts"
        program.write_text("const a: number = 1, b: number = 2; console.log(a + b);\n")
        deno = Path(sys.executable).with_name("deno")
        image = sys.argv[1] if len(sys.argv) > 1 else ""
        docker = ["docker", "run", "--rm", "--network", "none", "--pull", "never", image]
        await serve(
            {
                "python": running([sys.executable, "-I", "-c", "print(1 + 2)"]),
                "deno": running([str(deno), "run", "--no-prompt", "--no-remote", str(program)]),
                "docker": running([*docker, "python3", "-I", "-c", "print(1 + 2)"]),
            }
        )


if __name__ == "__main__":
    asyncio.run(main())
