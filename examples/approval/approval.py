"""Govern a function of your own: a policy says who may call it and up to which amount, and a person agrees to each call.

Prints one line for each of four callers: one whom the policy refuses, one who asks for too much, one whose call a person
rejects, and one whose call is approved. The policy is beside this file.
"""

import asyncio
from pathlib import Path

from toolgate import Actor, Answer, App, ApprovalRequest, tool

POLICY = Path(__file__).with_name("payments.rego")


@tool(tier="external_api", cost=0.25)
async def pay(to: str, amount: float) -> str:
    """Pay somebody."""
    return f"paid {amount:.2f} to {to}"


async def ask_the_boss(request: ApprovalRequest) -> Answer:
    """Where a chat, a ticket or a dialog would be: shows `request.text()` to a person and gives their answer."""
    if request.arguments["to"] == "bob":
        return Answer("approve", by="boss", through="chat")
    return Answer("reject", "we don't know them", by="boss", through="chat")


async def main() -> None:
    ann = Actor(tenant="acme", persona="accountant", user="ann")
    tim = Actor(tenant="acme", persona="intern", user="tim")
    async with App.open(policy={"file": str(POLICY)}) as app:
        app.register(pay)
        app.approvals.add_approver(ask_the_boss)
        for actor, to, amount in ((tim, "bob", 10), (ann, "bob", 5000), (ann, "mallory", 10), (ann, "bob", 10)):
            outcome = await app.invoke("pay", {"to": to, "amount": amount}, actor=actor)
            said = outcome.output if outcome.ok else f"{outcome.error.code}: {outcome.error.message}"
            print(f"{actor.user} pays {to} {amount}: {outcome.status}: {said}")


asyncio.run(main())
