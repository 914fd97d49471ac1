"""A process that opens a sign-in link when it is told to: `python -m tests.hostile.link_opener HOME TOKEN`. Prints `ready`,
waits for a line, and prints whether it was let in."""

import asyncio
import sys

from toolgate import App


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def main(home: str, token: str) -> None:
    async with App.open(home=home) as app:
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        say("in" if await app.sign_ins.open_link(token) is not None else "out")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
