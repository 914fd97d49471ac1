"""Tools that must be asked about, and the persons who ask and answer: what the tests of approvals and grants share."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

from toolgate import App, Outcome, tool
from toolgate.gates.approval.request import Answer
from toolgate.model import Actor, Capability, Cost
from toolgate.store.database import Transaction, moment

ADA = Actor(tenant="acme", persona="analyst", user="ada")
BOSS = Actor(tenant="acme", user="boss")


class Workshop:
    """Tools of every kind that asks. `ran` holds what really ran, in order."""

    def __init__(self) -> None:
        self.ran: list[dict[str, Any]] = []
        ran = self.ran

        @tool(tier="execute")
        async def run(task: str, password: str = "", times: int = 1) -> str:
            """Run a command."""
            ran.append({"task": task, "password": password, "times": times})
            return f"ran {task}"

        @tool(tier="external_api", cost=Cost(fixed=Decimal("0.10")))
        async def send(to: str) -> str:
            """Send a letter."""
            ran.append({"to": to})
            return f"sent to {to}"

        @tool(tier="write")
        async def delete_file(file: str) -> str:
            """Delete a file."""
            ran.append({"file": file})
            return f"deleted {file}"

        @tool(tier="execute")
        async def remove_server(name: str) -> str:
            """Remove a server."""
            ran.append({"name": name})
            return f"removed {name}"

        @tool(tier="read_only", capabilities=(Capability(action="look", requires_confirmation=True),))
        async def look(at: str) -> str:
            """Look at something private."""
            ran.append({"at": at})
            return f"looked at {at}"

        self.tools: list[Callable[..., Any]] = [run, send, delete_file, remove_server, look]

    def move_into(self, app: App) -> App:
        app.tools.register_many(self.tools)
        return app


ASKING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("run", {"task": "ls"}),
    ("send", {"to": "bob"}),
    ("delete_file", {"file": "a.txt"}),
    ("remove_server", {"name": "s1"}),
    ("look", {"at": "diary"}),
)
"""A call to each."""


async def ask(app: App, tool: str = "run", arguments: Any = None, **more: Any) -> str:
    """Call without anybody to ask; gives the id of the approval that it waits for."""
    outcome = await app.invoke(tool, {"task": "ls"} if arguments is None else arguments, **{"actor": ADA, **more})
    assert outcome.status == "pending", outcome
    assert outcome.pending is not None
    assert outcome.pending.kind == "approval"
    return outcome.pending.id


async def approved(app: App, tool: str = "run", arguments: Any = None, **more: Any) -> str:
    """The id of an approval that the boss has given."""
    id = await ask(app, tool, arguments, **more)
    await app.parts.consent.questions.answer(id, Answer("approve"), BOSS, "console")
    return id


def refused(outcome: Outcome, code: str, *words: str) -> None:
    assert outcome.status == "denied", outcome
    assert outcome.error is not None
    assert outcome.error.code == code, outcome.error
    for word in words:
        assert word in outcome.error.message, outcome.error.message


async def let_pass(app: App, seconds: float) -> None:
    """Make everything on record older by so much: as good as waiting, and quicker."""

    def age() -> Transaction[None]:
        for table in ("approvals", "grants"):
            for id, created, expires in (yield f"SELECT id, created_at, expires_at FROM {table}", {}):
                yield (
                    f"UPDATE {table} SET created_at = :created, expires_at = :expires WHERE id = :id",
                    {"id": id, "created": _earlier(created, seconds), "expires": _earlier(expires, seconds)},
                )

    await app.parts.store.transact(age())


def _earlier(value: Any, seconds: float) -> Any:
    return moment(value) - timedelta(seconds=seconds)
