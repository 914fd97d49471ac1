"""Pages of the audit log: the same on every database."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from toolgate import Actor, App, tool
from toolgate.store.log_pages import CallFilter, LogFilter

pytestmark = pytest.mark.requirement("AUD-1")


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_every_filter_finds_its_calls(database: str, tmp_path: Path) -> None:
    async with App.open(None, database_url=database, home=tmp_path, auto_load_custom_tools=False) as app:
        app.register(add)
        for user in ('ann "quoted" \\ ünï', "bob"):
            for number in range(6):
                await app.invoke(
                    "add", {"a": number, "b": 1}, actor=Actor("acme", "analyst", user), session=f"s{number % 2}"
                )
            await app.invoke("add", {"a": "x", "b": 1}, actor=Actor("acme", None, user), request_id="mine")
        ann = Actor("acme", "analyst", 'ann "quoted" \\ ünï')
        nested = await app.invoke("add", {"a": 1, "b": 2}, actor=Actor("other", user="bob"))
        soon, before = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) - timedelta(hours=1)
        for wanted, count in (
            (CallFilter(), 15),
            (CallFilter(tenant="acme"), 14),
            (CallFilter(tenant="acme", user=ann.user), 7),
            (CallFilter(tenant="acme", user="ann"), 0),
            (CallFilter(user="bob"), 8),
            (CallFilter(tenant="acme", user="bob", session="s1"), 3),
            (CallFilter(tenant="acme", status="success"), 12),
            (CallFilter(tenant="acme", status="failure"), 2),
            (CallFilter(status="failure"), 2),
            (CallFilter(tenant="acme", code="VALIDATION_ERROR", tool="add"), 2),
            (CallFilter(tenant="acme", persona="analyst"), 12),
            (CallFilter(tenant="acme", persona="anal%"), 0),
            (CallFilter(tenant="acme", request_id="mine"), 2),
            (CallFilter(tenant="other", request_id="mine"), 0),
            (CallFilter(tenant="acme", parent=nested.id), 0),
            (CallFilter(tenant="acme", since=before, until=soon), 14),
            (CallFilter(tenant="acme", since=soon), 0),
            (CallFilter(tenant="acme", until=before), 0),
        ):
            found, page = [], await app.audit.calls(wanted, limit=4)
            found += page.rows
            while page.next is not None:
                page = await app.audit.calls(wanted, before=page.next, limit=4)
                found += page.rows
            seqs = [row[0] for row in found]
            assert len(seqs) == count, wanted
            assert seqs == sorted(set(seqs), reverse=True)
        await app.tools.disable("add", tenant="acme", actor=ann)
        assert len((await app.audit.rows(LogFilter(tenant="acme", kind="tool.disabled"))).rows) == 1
        assert len((await app.audit.rows(LogFilter(tenant="acme", tool="add", kind="start"), limit=100)).rows) == 12
