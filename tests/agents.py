"""Agents in tests: an App whose model is a scripted server, tools whose effects are counted in a file, and the events of a
run."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.job_worker import note, noted
from tests.loopback import Asked, Said, Site
from tests.model_servers import Reply, Wanted, _answering, model_server, model_settings
from tests.services import Answer
from toolgate import App, tool
from toolgate.agent.run import RunEvent, RunResult
from toolgate.model import Actor, Cost
from toolgate.testing import memory_app

SOON = 30.0
DIALECTS = ("openai", "anthropic")
ADA = Actor("acme", "analyst", "ada")
BOSS = Actor("acme", None, "boss")


def tools_of(folder: Path) -> list[Any]:
    """Tools with effects that outlast the process: each writes a line into a file."""

    @tool(tier="read_only")
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        note(folder / "did", f"add {a} {b}")
        return a + b

    @tool(tier="write")
    async def post(text: str) -> str:
        """Write something down."""
        note(folder / "did", f"post {text}")
        return f"posted {text}"

    @tool(tier="execute")
    async def risky(text: str) -> str:
        """Do something that a person is asked about."""
        note(folder / "did", f"risky {text}")
        return f"did {text}"

    @tool(tier="write", cost=Cost(fixed="0.30"))
    async def pay(what: str) -> str:
        """Buy something."""
        note(folder / "did", f"pay {what}")
        return f"bought {what}"

    @tool(tier="write")
    async def slow(text: str) -> str:
        """Write something down, and take long about it."""
        note(folder / "did", f"slow {text}")
        while not (folder / "go").exists():
            await asyncio.sleep(0.01)
        return f"was slow about {text}"

    @tool(tier="read_only")
    async def long(size: int) -> str:
        """Give a long text."""
        return "word " * (size // 5)

    return [add, post, risky, pay, slow, long]


def did(folder: Path) -> list[str]:
    """What the tools did, in order."""
    return noted(folder / "did")


def calls(*wanted: tuple[str, dict[str, Any] | str], text: str | None = None) -> Reply:
    """An answer that wants tools called."""
    return Reply(text, [Wanted(name, given, f"c{at}") for at, (name, given) in enumerate(wanted, 1)])


@asynccontextmanager
async def agency(
    folder: Path, dialect: str, *answers: Reply | Answer, model: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[App, Site]]:
    """An App in memory with these tools, whose model gives these answers."""
    async with model_server(dialect, *answers) as server:
        chosen = model_settings(dialect, server, secret=None, **(model or {}))
        async with memory_app(model=chosen, **settings) as app:
            app.tools.register_many(tools_of(folder))
            yield app, server


async def events_of(events: AsyncIterator[RunEvent]) -> list[RunEvent]:
    async with asyncio.timeout(SOON):
        return [event async for event in events]


async def run(app: App, text: str = "Do it.", **how: Any) -> tuple[RunResult, list[RunEvent]]:
    """Has an agent do something here; gives how that ended, and all events."""
    events = await events_of(app.agents.run(text, **how))
    return result_of(events), events


def result_of(events: Sequence[RunEvent]) -> RunResult:
    assert events[-1].kind == "end", events
    return RunResult(**{**events[-1].data, "pending": tuple(events[-1].data["pending"])})


def kinds(events: Sequence[RunEvent]) -> list[str]:
    return [event.kind for event in events]


def of_kind(events: Sequence[RunEvent], kind: str) -> list[dict[str, Any]]:
    return [event.data for event in events if event.kind == kind]


def delegate(agent: str = "helper", message: str = "Help me.") -> Reply:
    return calls(("call_subordinate", {"agent": agent, "message": message}))


def by_speaker(**replies: Sequence[Reply | Callable[[Asked], Said]]) -> Callable[[Asked], Said]:
    """Answers by who asks: the first words that its user said."""
    left = {who: list(answers) for who, answers in replies.items()}

    def answer(asked: Asked) -> Said:
        messages = [one for one in asked.json["messages"] if one["role"] == "user"]
        content = messages[0]["content"]
        words = content if isinstance(content, str) else content[0]["text"]
        who = next(name for name in left if words.startswith(name))
        reply = left[who].pop(0) if len(left[who]) > 1 else left[who][0]
        dialect = "anthropic" if "system" in asked.json else "openai"
        return (_answering(dialect, reply) if isinstance(reply, Reply) else reply)(asked)

    return answer


def told(asked: Asked, dialect: str) -> list[str]:
    """The results of tools that the model was sent in a request, in order."""
    messages = asked.json["messages"]
    if dialect == "openai":
        return [message["content"] for message in messages if message["role"] == "tool"]
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


def said(asked: Asked) -> list[str]:
    """What the model was sent as the user's words, in order."""
    found = [message["content"] for message in asked.json["messages"] if message["role"] == "user"]
    return [
        part if isinstance(part, str) else part["text"]
        for one in found
        for part in (one if isinstance(one, list) else [one])
        if isinstance(part, str) or part["type"] == "text"
    ]
