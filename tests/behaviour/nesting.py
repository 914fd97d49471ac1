"""Tools that call tools which must be asked about, for the tests of nested approvals. What really happened is in a file, so
that it can be counted across processes."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from toolgate import App, InvokeContext, Outcome, tool
from toolgate.gates.approval.request import Answer
from toolgate.model import Actor, Tool

LIMITED = Actor(tenant="acme", user="ada")
BOSS = Actor(tenant="acme", user="boss")


class Bench:
    """`note` writes unasked, `risky` is asked about, `peek` only reads; the others call them."""

    def __init__(self, file: Path) -> None:
        self.file = file

        def did(what: str) -> None:
            with file.open("a") as out:
                out.write(f"{what}\n")

        @tool(tier="write")
        async def note(text: str) -> str:
            """Note something."""
            did(f"note {text}")
            return f"noted {text}"

        @tool(tier="execute")
        async def risky(text: str) -> str:
            """Do something that is asked about."""
            did(f"risky {text}")
            return f"did {text}"

        @tool(tier="read_only")
        async def peek(text: str) -> str:
            """Look at something."""
            did(f"peek {text}")
            return f"saw {text}"

        @tool(tier="read_only")
        async def follow(ctx: InvokeContext, steps: list[list[str]]) -> list[Any]:
            """Make calls one after the other; what fails is given as its code."""
            did("follow")
            return [_told(await ctx.call_tool(name, text=text)) for name, text in steps]

        @tool(tier="execute")
        async def guarded(ctx: InvokeContext, steps: list[list[str]]) -> list[Any]:
            """As follow, and asked about itself."""
            return [_told(await ctx.call_tool(name, text=text)) for name, text in steps]

        @tool(tier="write")
        async def together(ctx: InvokeContext, steps: list[list[str]]) -> list[Any]:
            """Make calls side by side."""
            return [_told(one) for one in await asyncio.gather(*(ctx.call_tool(name, text=text) for name, text in steps))]

        @tool(tier="write")
        async def deep(ctx: InvokeContext, steps: list[list[str]]) -> list[Any]:
            """Note, have others call, and note again."""
            before = await ctx.call_tool("note", text="before")
            inner = await ctx.call_tool("guarded", steps=steps)
            after = await ctx.call_tool("note", text="after")
            return [_told(one) for one in (before, inner, after)]

        self.tools: list[Any] = [note, risky, peek, follow, guarded, together, deep]

    def move_into(self, app: App) -> App:
        app.tools.register_many(self.tools)
        return app

    @property
    def did(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []

    @property
    def effects(self) -> Counter[str]:
        """What was done, and how often; looking does not count."""
        return Counter(line for line in self.did if line.startswith(("note", "risky")))


def _told(outcome: Outcome) -> Any:
    return outcome.output if outcome.ok else outcome.error.code if outcome.error is not None else outcome.status


def waits(outcome: Outcome) -> str:
    """The id of the approval that a call waits for."""
    assert outcome.status == "pending", outcome
    assert outcome.pending is not None and outcome.pending.kind == "approval"
    assert outcome.error is not None and outcome.error.code == "APPROVAL_REQUIRED"
    return outcome.pending.id


async def approve(app: App, id: str, actor: Actor = BOSS) -> None:
    await app.parts.consent.questions.answer(id, Answer("approve"), actor, "test")


async def reject(app: App, id: str, actor: Actor = BOSS) -> None:
    await app.parts.consent.questions.answer(id, Answer("reject", "no"), actor, "test")


async def left(app: App) -> int:
    """How many continuations and steps are on record."""

    def count() -> Any:
        rows = yield "SELECT (SELECT count(*) FROM continuations) + (SELECT count(*) FROM continuation_steps)", {}
        return int(rows[0][0])

    found: int = await app.parts.store.read(count())
    return found


__all__ = ["BOSS", "LIMITED", "Bench", "Tool", "approve", "left", "reject", "waits"]
