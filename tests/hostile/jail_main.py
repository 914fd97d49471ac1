"""A host of its own for the jails that need no bubblewrap: it starts programs in one jail and says what came of each.

    python -m tests.hostile.jail_main PLAN.json

It is a process of its own so that it can be another user's, and so that it can be killed. The plan names the jail, a folder
for what the host needs, and the runs; with `"hold": true` the programs are only started, and the host waits to be killed.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from toolgate.sandbox.jail import MB, Jail, JailedProcess, ResourceLimits, Spec, Unavailable
from toolgate.sandbox.jails.bubblewrap import Bubblewrap
from toolgate.sandbox.jails.landlock import Landlock
from toolgate.sandbox.jails.namespaces import Namespaces
from toolgate.sandbox.jails.process_tree import descendants

PATIENCE = 120.0
"""Seconds within which a program has to have said something. Its limit counts from there: a busy machine may take long to
start it."""
JAILS: dict[str, Callable[[Path], Jail]] = {
    "bubblewrap": lambda _: Bubblewrap(),
    "namespaces": lambda _: Namespaces(),
    "landlock": lambda scratch: Landlock(scratch_parent=scratch),
}


def spec_of(run: dict[str, Any], folder: Path) -> Spec:
    """What a run is to be jailed as; its program is a file of the host's."""
    argv = run.get("argv")
    readable = tuple(Path(path) for path in run.get("readable", ()))
    if argv is None:
        script = folder / f"{run['name']}.py"
        script.write_text(run["code"])
        script.chmod(0o644)
        argv = (sys.executable, str(script))
        readable += (script,)
    workspace = run.get("workspace")
    limits = {"memory": 256 * MB, "seconds": 60.0, **run.get("limits", {})}
    return Spec(
        profile=run.get("profile", "python"),
        argv=tuple(argv),
        environment=tuple(run.get("environment", {}).items()),
        readable=readable,
        workspace=None if workspace is None else Path(workspace),
        fixed=tuple(Path(path) for path in run.get("fixed", ())),
        hidden=tuple(Path(path) for path in run.get("hidden", ())),
        limits=ResourceLimits(**limits),
    )


async def hear(box: JailedProcess, read: Callable[[int], Awaitable[bytes]], most: int, first: Callable[[], None]) -> str:
    heard = bytearray()
    while chunk := await read(65_536):
        if not heard:
            first()
        heard += chunk
        if len(heard) > most:
            box.kill("output")
            break
    return heard[:most].decode(errors="replace")


async def run_one(jail: Jail, run: dict[str, Any], folder: Path) -> dict[str, Any]:
    spec = spec_of(run, folder)
    begun = time.perf_counter()
    try:
        box = await jail.start(spec)
    except Unavailable as error:
        return {"name": run["name"], "unavailable": error.message}
    loop = asyncio.get_running_loop()
    timer = loop.call_later(PATIENCE, box.kill, "time")

    def begin() -> None:
        nonlocal timer
        timer.cancel()
        timer = loop.call_later(spec.limits.seconds, box.kill, "time")

    try:
        await box.close_stdin()
        most = spec.limits.output
        out, errors = await asyncio.gather(hear(box, box.read, most, begin), hear(box, box.read_errors, most, lambda: None))
        code = await box.wait()
    finally:
        timer.cancel()
        await box.close()
    return {
        "name": run["name"], "out": out, "errors": errors, "code": code, "stopped": box.stopped,
        "seconds": time.perf_counter() - begun,
    }  # fmt: skip


async def beside(jail: Jail, folder: Path) -> tuple[JailedProcess, int]:
    """A program in a jail of its own, which others will try to hit; and the number that the host knows it by."""
    waiting = {"name": "victim", "code": "print('up', flush=True)\nimport time\ntime.sleep(1000)\n"}
    victim = await jail.start(spec_of(waiting, folder))
    assert await victim.read(2) == b"up", await victim.read_errors(1000)
    return victim, descendants(victim.pid)[-1]


async def main(plan: dict[str, Any]) -> None:
    folder = Path(plan["folder"])
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    scratch.chmod(0o755)
    os.environ["TOOLGATE_TEST_SECRET"] = plan["marker"]
    jail = JAILS[plan["jail"]](scratch)
    if plan.get("hold"):
        boxes = [await jail.start(spec_of(run, folder)) for run in plan["runs"]]
        heard = await asyncio.gather(*(box.read(2) for box in boxes))
        say({"started": heard.count(b"up"), "processes": descendants(os.getpid())})
        await asyncio.sleep(300)
    # What a host may have set for itself, and a jail must not inherit.
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
    victim, number = await beside(jail, folder)
    room = asyncio.Semaphore(3)

    async def limited(run: dict[str, Any]) -> dict[str, Any]:
        async with room:
            code = run.get("code", "").replace("HOST_PID", str(os.getpid())).replace("VICTIM_PID", str(number))
            return await run_one(jail, {**run, "code": code}, folder)

    results = await asyncio.gather(*(limited(run) for run in plan["runs"] if not run.get("alone")))
    results += [await limited(run) for run in plan["runs"] if run.get("alone")]
    alive = number in descendants(victim.pid)
    await jail.close()
    left = sorted(path.name for path in scratch.iterdir())
    processes, enforces = descendants(os.getpid()), dict(jail.enforces())
    say({"results": results, "left": left, "victim": alive, "processes": processes, "enforces": enforces})


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
