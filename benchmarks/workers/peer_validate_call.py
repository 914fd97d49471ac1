"""The least that checks arguments: pydantic's `validate_call`."""

import asyncio

from measure import add, serve, timed
from pydantic import validate_call

if __name__ == "__main__":
    checked = validate_call(add)
    asyncio.run(serve({"run": timed(lambda: checked(a=1, b=2))}))
