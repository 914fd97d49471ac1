"""Follows one call through the files of `toolgate`; `python -m tests.docs.walk` prints the walk as Markdown."""

import asyncio
import sys
from collections.abc import Awaitable, Iterator
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import toolgate
from toolgate.testing import memory_app

SOURCE = Path(toolgate.__file__).parent


class Visit(NamedTuple):
    """One function that a call passed through."""

    file: str
    """Below `src/toolgate`."""
    function: str
    code: Any
    caller: str
    """The file that it was called from; empty if that is not ours."""


async def followed(call: Awaitable[object]) -> list[Visit]:
    """The functions that a call enters, in order. One that goes on after it waited is not entered again."""
    visits: list[Visit] = []
    seen: list[FrameType] = []  # kept, so that no other frame gets the same identity

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        file = _file(frame)
        if event == "call" and file and not any(frame is other for other in seen[-200:]):
            seen.append(frame)
            caller = "" if frame.f_back is None else _file(frame.f_back)
            visits.append(Visit(file, frame.f_code.co_qualname, frame.f_code, caller))

    sys.setprofile(profile)
    try:
        await call
    finally:
        sys.setprofile(None)
    return visits


def _file(frame: FrameType) -> str:
    path = frame.f_code.co_filename
    return path[len(str(SOURCE)) + 1 :] if path.startswith(str(SOURCE)) else ""


def rooms(visits: list[Visit]) -> list[tuple[str, list[str]]]:
    """The files in the order of the walk, each with what was called in it before the next."""
    return [(file, [visit.function for visit in there]) for file, there in groupby(visits, lambda visit: visit.file)]


def figures(visits: list[Visit]) -> tuple[int, int, int]:
    """Files, function calls, changes of file."""
    return len({visit.file for visit in visits}), len(visits), len(rooms(visits)) - 1


async def walk_of_calculator() -> list[Visit]:
    """A plain call, once everything that the first one makes is made."""
    async with memory_app() as app:
        for _ in range(3):
            assert (await app.invoke("calculator", {"expression": "2 + 3"})).ok
        return await followed(app.invoke("calculator", {"expression": "2 + 3"}))


def lines() -> Iterator[str]:
    """The walk as Markdown."""
    visits = asyncio.run(walk_of_calculator())
    yield f"A call of `calculator` passes {figures(visits)[1]} functions in {figures(visits)[0]} files:"
    yield ""
    yield "| file | functions |"
    yield "|---|---|"
    for file, functions in rooms(visits):
        yield f"| `{file}` | {', '.join(f'`{name}`' for name in functions)} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
