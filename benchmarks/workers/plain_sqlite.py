"""What the disk gives: plain sqlite3 in WAL mode, one durable commit for each row, as a log without grouping would do."""

import asyncio
import sqlite3
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from measure import serve


async def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        database = sqlite3.connect(Path(home) / "plain.db", isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, row TEXT)")

        async def run(request: dict[str, Any]) -> dict[str, Any]:
            begin = perf_counter()
            for _ in range(request["calls"]):
                database.execute("INSERT INTO log (row) VALUES (?)", ("x" * 300,))
            return {"per_second": request["calls"] / (perf_counter() - begin)}

        await serve({"run": run})
        database.close()


if __name__ == "__main__":
    asyncio.run(main())
