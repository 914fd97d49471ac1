"""A bank: tools of every kind that an agent meets, people with different rights, and an App that has just these."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.serving import serving
from toolgate import Actor, Answer, App, InvalidInput, InvokeContext, tool
from toolgate.client import AsyncClient
from toolgate.serve.http.invocations import CallSummary, summary_of
from toolgate.store.log_pages import CallFilter
from toolgate.testing import memory_app

ANN = Actor(tenant="acme", persona="clerk", user="ann")
BOB = Actor(tenant="acme", persona="auditor", user="bob")
EVE = Actor(tenant="acme", persona="visitor", user="eve")
BOSS = Actor(tenant="acme", persona="manager", user="boss")
SECONDS = 30.0
CLERKS_TOOLS = {"balance", "pay", "deposit", "payroll", "statement", "slow", "audit", "odd"}
ODD = {"config": "a", "run_manager": "b", "runtime": "c", "state": "d", "name": "e"}

POLICY = """package soma.policy
import rego.v1
default allow := false
clerks := {"balance", "pay", "deposit", "payroll", "statement", "slow", "audit", "odd"}
allow if { input.persona_id == "clerk"; input.resource in clerks }
allow if { input.persona_id == "auditor"; input.resource == "balance" }
allow if input.persona_id == "manager"
"""


class Bank:
    """The tools of one bank, and what they did."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, float]] = []
        self.deposits: list[float] = []
        self.payrolls = 0
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()

    def tools(self) -> list[Any]:
        @tool(tier="read_only")
        async def balance(account: str) -> dict[str, Any]:
            """Say how much is in an account."""
            return {"account": account, "euros": 1200}

        @tool(tier="external_api", cost=0.25)
        async def pay(to: str, amount: float) -> str:
            """Pay somebody."""
            if amount > 1000:
                raise InvalidInput("Nobody is paid more than 1000.", suggestion="Pay it in parts.")
            self.paid.append((to, amount))
            return f"paid {amount:.2f} to {to}"

        @tool(tier="write")
        async def deposit(amount: float) -> str:
            """Put money into the account."""
            self.deposits.append(amount)
            return f"deposit {len(self.deposits)}"

        @tool(tier="write")
        async def payroll(ctx: InvokeContext, names: list[str]) -> str:
            """Pay everybody their wages."""
            self.payrolls += 1
            return ", ".join([(await ctx.call_tool("pay", to=name, amount=7)).output or "not paid" for name in names])

        @tool(tier="read_only")
        async def statement(lines: int) -> str:
            """Give the lines of an account's statement."""
            return "one line of a statement\n" * lines

        @tool(tier="read_only", timeout=0.2)
        async def slow() -> str:
            """Take longer than it may."""
            await asyncio.sleep(SECONDS)
            return "at last"

        @tool(tier="read_only")
        async def audit() -> str:
            """Look through all books until somebody cancels it."""
            self.begun.set()
            try:
                await asyncio.sleep(SECONDS)
            finally:
                self.cancelled.set()
            return "nothing is wrong"

        @tool(tier="read_only")
        async def odd(config: str, run_manager: str, runtime: str, state: str, name: str) -> str:
            """Take arguments that frameworks have names of their own for."""
            return f"{config} {run_manager} {runtime} {state} {name}"

        return [balance, pay, deposit, payroll, statement, slow, audit, odd]


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[tuple[App, Bank]]:
    """An App with the tools of a bank. With `database_url`, what waits there outlives it."""
    policy, bank = folder / "bank.rego", Bank()
    policy.write_text(POLICY)
    async with memory_app(policy={"file": policy}, **settings) as app:
        app.tools.register_many(bank.tools())
        yield app, bank


@asynccontextmanager
async def reached(app: App, how: str, actor: Actor = ANN) -> AsyncIterator[tuple[App | AsyncClient, dict[str, Any]]]:
    """Where adapters call: the App itself, or a client of its server; and what says who calls."""
    if how == "app":
        yield app, {"actor": actor}
        return
    async with serving(app) as site:
        key = (await app.keys.create(f"{actor.user} at work", actor))[1]
        async with AsyncClient.open(f"http://{site.host}", key=key) as client:
            yield client, {}


async def answer(app: App, id: str, verdict: Answer | bool = True) -> None:
    await app.approvals.answer(id, verdict, actor=BOSS)


async def waiting(app: App) -> list[str]:
    """The questions that wait."""
    return [one.request.id for one in await app.approvals.list(actor=BOSS)]


async def last_call(app: App) -> CallSummary:
    """The record of the call that ended last."""
    (row,) = (await app.audit.calls(CallFilter(tenant=ANN.tenant), limit=1)).rows
    return summary_of(*row)
