"""The floor: the function itself, awaited."""

import asyncio

from measure import add, serve, timed

if __name__ == "__main__":
    asyncio.run(serve({"run": timed(lambda: add(a=1, b=2))}))
