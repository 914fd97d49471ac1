"""The conformance suite of stores. A backend's tests run each of CHECKS on a fresh, started store.

@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_my_store(check): await check(store)
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from toolgate.errors import StoreError
from toolgate.store import artifacts, audit_log, catalog
from toolgate.store.catalog import CatalogRow, DynamicRow, RegistrationRefused
from toolgate.store.chain import Verifier
from toolgate.store.database import LogRow, Store, Transaction, now

Check = Callable[[Store], Awaitable[None]]


class Line:
    """A record with a number in it."""

    def __init__(self, number: int, tenant: str = "acme") -> None:
        self.number = number
        self.tenant = tenant

    def row(self) -> LogRow:
        call = f"call-{self.number:06d}"
        return self.number, "end", call, self.tenant, "echo", "success", b'{"persona":"p","args_hash":"h","duration_ms":1.5}'


def tool_row(name: str, description: str = "Says so") -> CatalogRow:
    return CatalogRow(name, True, description, "{}", "python", "1.0.0", "write", "custom", "{}", f"print-{description}")


async def records_are_kept_in_order_and_the_chain_holds(store: Store) -> None:
    for number in range(50):
        store.append(Line(number))
    await asyncio.gather(*(store.append_durably(Line(number)) for number in range(50, 100)))
    for number in range(100, 120):
        store.append(Line(number))
    await store.flush()
    rows = await store.read(audit_log.after(0))
    assert [row[0] for row in rows] == list(range(1, 121))
    assert sorted(row[1] for row in rows) == list(range(120))
    verdict = await audit_log.verify(store, Verifier(None))
    assert verdict.ok, verdict.faults
    assert verdict.rows == 120


async def large_batches_arrive_whole(store: Store) -> None:
    for number in range(9_000):
        store.append(Line(number))
    await store.flush()
    verdict = await audit_log.verify(store, Verifier(None))
    assert (verdict.ok, verdict.rows) == (True, 9_000)


async def the_log_is_read_by_call_tenant_and_time(store: Store) -> None:
    for number in range(30):
        store.append(Line(number, "acme" if number % 2 else "globex"))
    await store.flush()
    assert [row[1] for row in await store.read(audit_log.latest(3))] == [27, 28, 29]
    assert [row[1] for row in await store.read(audit_log.latest(2, tenant="globex"))] == [26, 28]
    assert [row[1] for row in await store.read(audit_log.of_call("call-000007"))] == [7]
    assert [row[1] for row in await store.read(audit_log.of_call("call-00001"))] == []  # ten calls begin so
    assert await store.read(audit_log.of_call("call-0000070")) == []


async def the_execution_log_of_document_d_is_there(store: Store) -> None:
    await store.append_durably(Line(1_000_000))

    def look() -> Transaction[list[tuple[object, ...]]]:
        return (
            yield (
                "SELECT tool_name, tenant_id, persona_id, session_id, args_hash, success, duration_ms, error_message, "
                "created_at FROM tool_execution_log",
                {},
            )
        )

    ((tool, tenant, persona, session, args_hash, success, duration, message, created),) = await store.read(look())
    assert (tool, tenant, persona, session, args_hash) == ("echo", "acme", "p", None, "h")
    assert (bool(success), duration, message) == (True, 1.5, None)
    assert str(created).startswith("1970-01-01 00:00:01")


async def seeding_updates_what_it_says_and_keeps_what_an_operator_set(store: Store) -> None:
    await store.transact(catalog.seed([tool_row("a"), tool_row("b")]))
    await store.transact(catalog.set_enabled("a", False, "ada"))
    await store.transact(catalog.keep_token_costs([("a", "print-Says so", 9), ("b", "print-Says so", 10)]))
    await store.transact(catalog.seed([tool_row("a", "New words")]))
    await store.transact(catalog.keep_token_costs([("a", "print-Says so", 9)]))  # of a definition that is gone
    flags = await store.read(catalog.flags())
    assert flags.operator == {"a": False}
    known = await store.read(catalog.known_tools())
    assert known == {"a": ("print-New words", None), "b": ("print-Says so", 10)}


async def many_tools_are_seeded_at_once(store: Store) -> None:
    await store.transact(catalog.seed([tool_row(f"t{number}") for number in range(1_234)]))
    assert len(await store.read(catalog.known_tools())) == 1_234


async def flags_are_kept_apart_and_every_change_counts_up_the_epoch(store: Store) -> None:
    await store.transact(catalog.seed([tool_row("a"), tool_row("b")]))
    before = await store.read(catalog.epoch())
    await store.transact(catalog.set_tenant_flags([("acme", "a", False), ("acme", "b", True), ("globex", "a", True)]))
    await store.transact(catalog.set_persona_restriction("intern", "b", False, "too young"))
    await store.transact(catalog.set_can_add_tools("admin", True))
    flags = await store.read(catalog.flags())
    assert flags.tenants == {"acme": {"a": False, "b": True}, "globex": {"a": True}}
    assert flags.personas == {"intern": {"b": "too young"}}
    assert flags.can_add_tools == {"admin": True}
    assert flags.epoch == before + 3
    await store.transact(catalog.set_tenant_flags([("acme", "a", None)]))
    await store.transact(catalog.set_persona_restriction("intern", "b", True, None))
    flags = await store.read(catalog.flags())
    assert flags.tenants["acme"] == {"b": True}
    assert flags.personas == {}


async def dynamic_tools_belong_to_their_tenant(store: Store) -> None:
    row = DynamicRow("mine", "acme", "admin", "mcp", "http://x", "{}", '{"name": "mine"}', True)
    await store.transact(catalog.add_dynamic(row))
    await store.transact(catalog.add_dynamic(row._replace(registered_by_tenant="globex")))
    stored = await store.read(catalog.dynamic_tools())
    assert [(found.name, found.registered_by_tenant, found.enabled) for found in stored] == [
        ("mine", "acme", True),
        ("mine", "globex", True),
    ]
    try:
        await store.transact(catalog.add_dynamic(row))
    except RegistrationRefused:
        pass
    else:
        raise AssertionError("the same name was taken twice for one tenant")
    await store.transact(catalog.remove_dynamic("mine", "acme"))
    assert [found.registered_by_tenant for found in await store.read(catalog.dynamic_tools())] == ["globex"]


async def a_failed_transaction_leaves_nothing_and_the_others_stand(store: Store) -> None:
    def fails() -> Transaction[None]:
        yield from catalog.seed([tool_row("ghost")])
        raise ValueError("changed my mind")

    results = await asyncio.gather(
        store.transact(catalog.seed([tool_row("one")])),
        store.transact(fails()),
        store.append_durably(Line(1)),
        store.transact(catalog.seed([tool_row("two")])),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [type(None), ValueError, type(None), type(None)]
    assert sorted(await store.read(catalog.known_tools())) == ["one", "two"]
    assert len(await store.read(audit_log.after(0))) == 1


async def a_flag_on_a_tool_that_is_not_on_record_is_refused(store: Store) -> None:
    try:
        await store.transact(catalog.set_tenant_flags([("acme", "nothing", True)]))
    except StoreError:
        return
    raise AssertionError("a flag on an unknown tool was kept")


async def artifacts_are_kept_for_their_tenant_and_their_time(store: Store) -> None:
    content = bytes(range(256)) * 100
    fresh = artifacts.ArtifactRow("art_1", "c", "acme", "u", content, now() + timedelta(hours=1))
    stale = artifacts.ArtifactRow("art_2", "c", "acme", "u", b"x", now() - timedelta(seconds=1))
    await store.transact(artifacts.keep(fresh))
    await store.transact(artifacts.keep(stale))
    assert await store.read(artifacts.fetch("art_1", "acme")) == content
    assert await store.read(artifacts.fetch("art_1", "globex")) is None
    assert await store.read(artifacts.fetch("art_2", "acme")) is None
    assert await store.read(artifacts.fetch("art_9", "acme")) is None


async def a_record_that_can_not_be_made_does_not_hold_up_the_others(store: Store) -> None:
    class Broken:
        def row(self) -> LogRow:
            raise ValueError("no row")

    store.append(Line(1))
    store.append(Broken())
    await asyncio.wait_for(store.append_durably(Line(2)), 10)
    assert [row[2] for row in await store.read(audit_log.after(0))] == ["end", "broken", "end"]
    assert (await audit_log.verify(store, Verifier(None))).ok


async def it_answers_a_ping(store: Store) -> None:
    await store.ping()


CHECKS: tuple[Check, ...] = (
    records_are_kept_in_order_and_the_chain_holds,
    large_batches_arrive_whole,
    the_log_is_read_by_call_tenant_and_time,
    the_execution_log_of_document_d_is_there,
    seeding_updates_what_it_says_and_keeps_what_an_operator_set,
    many_tools_are_seeded_at_once,
    flags_are_kept_apart_and_every_change_counts_up_the_epoch,
    dynamic_tools_belong_to_their_tenant,
    a_failed_transaction_leaves_nothing_and_the_others_stand,
    a_flag_on_a_tool_that_is_not_on_record_is_refused,
    artifacts_are_kept_for_their_tenant_and_their_time,
    a_record_that_can_not_be_made_does_not_hold_up_the_others,
    it_answers_a_ping,
)
