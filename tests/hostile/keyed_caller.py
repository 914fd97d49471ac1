"""A process that calls a tool of tier write with idempotency keys, and notes what it asked for, what happened and what it
was told.

    python -m tests.hostile.keyed_caller FOLDER CALLERS together|apart|stalled PREFIX [DATABASE_URL]

`together`: all callers make one call, with one key, the prefix; each notes its outcome, and the process ends.
`stalled`: the same, but each stands still when it has its key and has not begun: it prints `stalled`, and goes on when it is
sent another line.
`apart`: each caller makes calls with keys of their own that begin with the prefix, until somebody kills the process.

Writes to FOLDER: `asked` (a call is about to be made: key, number), `effects` (the tool ran: key, call id), `returned` (the
caller has the outcome: key, outcome). Notes are plain appends straight to the file, so that a kill loses none of them. It
prints `ready` before the first call, and begins when it is sent a line.
"""

import asyncio
import os
import sys
from pathlib import Path

import orjson

from toolgate import App, Hook, InvokeContext, Outcome, tool


def code(outcome: Outcome) -> str | None:
    return outcome.error.code if outcome.error is not None else None


def note(file: int, *words: str) -> None:
    os.write(file, ("\t".join(words) + "\n").encode())


async def told(word: str) -> None:
    """Say a word, and wait for a line."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)


class Stall(Hook):
    """Stands still between the claim of the key and the start record."""

    async def will_inject_secrets(self, ctx: InvokeContext) -> None:  # noqa: ARG002 - a stage's signature
        await told("stalled")


async def main(folder: Path, callers: int, how: str, prefix: str, database_url: str | None) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    asked, effects, returned = (os.open(folder / name, flags, 0o600) for name in ("asked", "effects", "returned"))

    @tool(tier="write")
    async def effect(ctx: InvokeContext, number: int) -> dict[str, str | int]:
        """Leaves a trace."""
        note(effects, str(ctx.call.idempotency_key), ctx.id)
        await asyncio.sleep(0.2 if how == "together" else 0.001)
        return {"by": ctx.id, "number": number}

    async with App.open(home=folder / "home", database_url=database_url) as app:
        app.register(effect)
        await app.flush()
        if how == "stalled":
            app.add_hook(Stall())
        await told("ready")

        async def call(key: str, number: int) -> None:
            note(asked, key, str(number))
            outcome = await app.invoke("effect", {"number": number}, idempotency_key=key)
            note(returned, key, orjson.dumps([outcome.status, outcome.output or code(outcome)]).decode())

        async def caller(name: int) -> None:
            number = 0
            while True:
                await call(f"{prefix}-{name}-{number}", number)
                number += 1

        if how != "apart":
            await asyncio.gather(*(call(prefix, 5) for _ in range(callers)))
        else:
            await asyncio.gather(*(caller(name) for name in range(callers)))


if __name__ == "__main__":
    folder, callers, how, prefix, *url = sys.argv[1:]
    asyncio.run(main(Path(folder), int(callers), how, prefix, url[0] if url else None))
