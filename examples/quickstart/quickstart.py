"""The quickstart: declare a tool, open an App, call it."""

import asyncio

from toolgate import Actor, App, tool


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    async with App.open() as app:
        app.register(add)
        outcome = await app.invoke(add, {"a": 1, "b": 2}, actor=Actor(tenant="acme", persona="analyst", user="u-1"))
        print(outcome.status, outcome.output, outcome.error, outcome.metrics)


if __name__ == "__main__":
    asyncio.run(main())
