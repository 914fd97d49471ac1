"""Limit what tenants spend and how often they call: a budget of a dollar a day and six calls a minute, for each tenant.

One tenant runs into its budget, another into its rate; neither uses up what is the other's.
"""

import asyncio
from collections import Counter

from toolgate import Actor, App, tool
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.gates.quota.money import parse_dollars


@tool(tier="write", cost=0.40)
async def render(scene: str) -> str:
    """Render a picture, which costs money."""
    return f"picture of {scene}"


@tool(tier="read_only")
async def look_up(word: str) -> str:
    """Look up a word, which is free."""
    return word


async def main() -> None:
    acme, globex = Actor(tenant="acme", user="ann"), Actor(tenant="globex", user="gus")
    async with App.open(rate_limits=[{"by": ["tenant"], "per_minute": 6}]) as app:
        app.tools.register_many([render, look_up])
        app.add_listener(lambda event, about: print(f"{event}: {about['message']}"))
        await app.budgets.set(new_budget("day", parse_dollars("1"), tenant="*"))  # each tenant on its own

        # All at once: what a call may cost is reserved before it runs, so that they can't overspend together.
        pictures = await asyncio.gather(*(app.invoke(render, {"scene": "a gate"}, actor=acme) for _ in range(5)))
        words = await asyncio.gather(*(app.invoke(look_up, {"word": "gate"}, actor=globex) for _ in range(8)))
        for actor, outcomes in ((acme, pictures), (globex, words)):
            print(actor.tenant, dict(Counter(one.error.code if one.error else "success" for one in outcomes)))

        for line in await app.budgets.costs("tenant"):
            print(f"{line.name} spent ${line.nano / 1e9:.2f}")


asyncio.run(main())
