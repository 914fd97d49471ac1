"""A process that opens sign-in links when it is told to: `python -m tests.hostile.link_opener HOME`. Prints `ready`, and for
each token that it reads, a line each and up to an empty one, whether it was let in."""

import asyncio
import sys

from toolgate import App


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def main(home: str) -> None:
    async with App.open(home=home) as app:
        say("ready")
        while token := (await asyncio.to_thread(sys.stdin.readline)).strip():
            say("in" if await app.sign_ins.open_link(token) is not None else "out")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
