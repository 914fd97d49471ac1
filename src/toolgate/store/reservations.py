"""Money that is spent and reserved: the tables spending and reservations.

Money is taken from an account (a budget, and for whom it counts) for one period. It is reserved before a call and settled
after it, each exactly once, whatever the number of processes:

    reserve   reserved += estimate, in every account or in none, only where spent + reserved stays within the cap
    settle    reserved -= estimate, spent += actual
    reap      the same, for a call whose process died: what the log says it cost, the estimate if it began, else nothing

All of them lock the reservation first and the accounts after it, in the order of their names, so that none waits for another
that waits for it.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, NamedTuple

import orjson

from toolgate.store.database import Transaction, now
from toolgate.store.live_processes import IS_DEAD
from toolgate.store.sql import NO_VALUES, column, is_any, select_one, value

THRESHOLDS = (100, 80)
"""Percent of a cap at which somebody is told, the highest first."""
MAX_ACCOUNT_NANO = 2**62
"""No account holds more: the sums in the statements below must fit into 64 bits."""
RETENTION = {"settled": timedelta(days=1), "reaped": timedelta(days=30)}
"""The time that a reservation is remembered, so that settling it again has no effect."""
QUEUE = "queue"
"""In place of the process that has a reservation: it waits with its job."""
_Key = dict[str, Any]
_State = Literal["held", "settled", "reaped"]


class Account(NamedTuple):
    """The account that money is taken from: one budget, for one of those whom it counts separately, in one period."""

    name: str
    starts: str
    """The first day of the period."""
    cap: int


class AccountBalance(NamedTuple):
    """The money that an account holds."""

    account: str
    starts: str
    spent: int
    reserved: int


class CrossedThreshold(NamedTuple):
    """An account that has just reached a threshold."""

    account: str
    starts: str
    spent: int
    percent: int


class BudgetExceeded(Exception):
    """An account can't give what was asked of it. Raised inside the transaction, so that no other account gives it."""

    def __init__(self, held: AccountBalance) -> None:
        super().__init__(held.account)
        self.held = held


def reserve(call: str, process: str, amount: int, accounts: Iterable[Account]) -> Transaction[None]:
    """Reserves an amount in all accounts, or raises BudgetExceeded. What the call has reserved already stays as it is, and
    belongs to this process from now on. If it was reaped meanwhile, it is reserved anew, in place of what was assumed."""
    wanted = sorted(accounts)
    taken = yield (
        "INSERT INTO reservations (call_id, process_id, amount, accounts, state, created_at) "
        "VALUES (:call, :process, :amount, '[]', 'held', :moment) ON CONFLICT (call_id) DO UPDATE "
        "SET process_id = excluded.process_id, amount = excluded.amount, accounts = '[]', state = 'held', "
        "created_at = excluded.created_at WHERE reservations.state = 'settled' RETURNING call_id",
        {"call": call, "process": process, "amount": amount, "moment": now()},
    )
    if not taken:  # the statement has locked the row all the same
        kept = yield (
            "UPDATE reservations SET process_id = :process WHERE call_id = :call AND state = 'held' RETURNING call_id",
            {"call": call, "process": process},
        )
        if not kept:
            yield from _give_back(call)
            yield from reserve(call, process, amount, wanted)
        return
    given: list[tuple[str, str]] = []
    for account in wanted:
        held = yield from _take(account, amount)
        given.append((held.account, held.starts))
    yield (
        "UPDATE reservations SET accounts = :accounts WHERE call_id = :call",
        {"call": call, "accounts": orjson.dumps(given).decode()},
    )


def _give_back(call: str) -> Transaction[None]:
    """Undoes what a reaper assumed to be spent."""
    ended = yield from _end(call, "reaped")
    if ended is not None:
        yield from _count_all(ended.accounts, ended.reserved, -ended.spent, {})


def _take(account: Account, amount: int) -> Transaction[AccountBalance]:
    while True:
        key = yield from _current(account)
        taken = yield (
            "UPDATE spending SET reserved = reserved + :amount WHERE account = :account AND starts = :starts "
            "AND spent + reserved + :amount <= :cap RETURNING account, starts, spent, reserved",
            {**key, "amount": amount, "cap": account.cap},
        )
        if taken:
            return AccountBalance(*taken[0])
        held = yield from select_one(AccountBalance, "spending", "WHERE account = :account AND starts = :starts", key)
        if held is not None:
            raise BudgetExceeded(held)
        # It was removed with its budget, between two of these statements: it begins anew.


def _current(account: Account) -> Transaction[_Key]:
    """The key of an account's row in this period, which is there from now on. If the clock went back, a later period has
    begun already: it goes on, so that nothing can be spent twice."""
    latest = yield from value("SELECT max(starts) FROM spending WHERE account = :account", {"account": account.name})
    starts = max(account.starts, latest or "")
    key = {"account": account.name, "starts": starts}
    if latest != starts:
        yield "INSERT INTO spending (account, starts) VALUES (:account, :starts) ON CONFLICT DO NOTHING", key
    return key


def settle(call: str, process: str, actual: int, accounts: Iterable[Account]) -> Transaction[list[CrossedThreshold]]:
    """Counts what a call cost: in place of what it had reserved, or, if it had reserved nothing, in these accounts. Their
    caps say which thresholds are now crossed. To settle a call again has no effect."""
    listed = sorted(accounts)
    caps = {account.name: account.cap for account in listed}
    ended = (yield from _end(call, "held")) or (yield from _end(call, "reaped"))
    if ended is None:
        if (yield from _was_never_reserved(call, process)):
            crossed: list[CrossedThreshold] = []
            for account in listed:
                crossed += yield from _count_all([(yield from _current(account))], 0, actual, caps)
            return crossed
        # Settled before; or its reservation was committed only now, by a connection that was lost meanwhile.
        ended = (yield from _end(call, "held")) or (yield from _end(call, "reaped"))
    if ended is None:
        return []
    return (yield from _count_all(ended.accounts, ended.reserved, actual - ended.spent, caps))


def _was_never_reserved(call: str, process: str) -> Transaction[bool]:
    """Tells whether a call has no row; it has one from now on, as settled. Waits for one that is being written."""
    return is_any(
        "INSERT INTO reservations (call_id, process_id, amount, accounts, state, created_at) "
        "VALUES (:call, :process, 0, '[]', 'settled', :moment) ON CONFLICT (call_id) DO NOTHING RETURNING call_id",
        {"call": call, "process": process, "moment": now()},
    )


def hand_over(call: str, process: str) -> Transaction[None]:
    """Has what a call of this process reserved belong to no process, but to the job that will make the call. A worker that
    makes it already keeps what it has taken."""
    yield (
        "UPDATE reservations SET process_id = :queue WHERE call_id = :call AND process_id = :process AND state = 'held'",
        {"call": call, "queue": QUEUE, "process": process},
    )


def release(call: str) -> Transaction[None]:
    """Gives back what waits with a job that will not make the call. What a process has taken over it settles itself, or a
    reaper does: the call may have begun."""
    ended = yield from _end(call, "held", "settled", " AND process_id = :queue", {"queue": QUEUE})
    if ended is not None:
        yield from _count_all(ended.accounts, ended.reserved, 0, {})


def dead(alive_since: Mapping[str, Any], most: int = 1_000) -> Transaction[list[str]]:
    """Calls that have something reserved and whose process is dead."""
    return column(
        "SELECT call_id FROM reservations WHERE state = 'held' AND process_id <> :queue "
        f"AND {IS_DEAD} ORDER BY call_id LIMIT :most",
        {**alive_since, "most": most, "queue": QUEUE},
    )


def reap(call: str, alive_since: Mapping[str, Any]) -> Transaction[bool]:
    """Settles a call for its dead process. What is assumed to be spent is kept in `amount`: should the process live after
    all, its own `settle` puts that right."""
    held = yield from _end(call, "held", "reaped", f" AND {IS_DEAD}", alive_since)
    if held is None:
        return False
    records = yield (
        "SELECT kind, body FROM audit_log WHERE call_id = :call AND kind IN ('start', 'end') AND status <> 'pending'",
        {"call": call},
    )
    assumed = _assumed({str(kind): str(body) for kind, body in records}, held.reserved)
    yield "UPDATE reservations SET amount = :assumed WHERE call_id = :call", {"call": call, "assumed": assumed}
    yield from _count_all(held.accounts, held.reserved, assumed, {})
    return True


def _assumed(records: Mapping[str, str], estimate: int) -> int:
    """The cost of a call by its records: what the last one says, the estimate if it began, nothing if it did not."""
    if "end" not in records:
        return estimate if "start" in records else 0
    try:
        cost = orjson.loads(records["end"]).get("cost", 0)
    except (orjson.JSONDecodeError, AttributeError):  # somebody changed it
        return estimate
    return cost if type(cost) is int and 0 <= cost < MAX_ACCOUNT_NANO else estimate


def forget() -> Transaction[None]:
    """Deletes the reservations that were settled long ago. Those of dead processes are kept longer: one may wake up."""
    for state, kept in RETENTION.items():
        yield (
            "DELETE FROM reservations WHERE state = :state AND created_at < :past",
            {"state": state, "past": now() - kept},
        )


class _EndedReservation(NamedTuple):
    """An ended reservation, as its accounts had counted it."""

    reserved: int
    spent: int
    """As a reaper assumed."""
    accounts: list[_Key]


def _end(
    call: str, state: _State, becomes: _State = "settled", condition: str = "", parameters: Mapping[str, Any] = NO_VALUES
) -> Transaction[_EndedReservation | None]:
    """Ends a reservation that is in this state; None: there is none."""
    rows = yield (
        "UPDATE reservations SET state = :becomes WHERE call_id = :call AND state = :state"
        f"{condition} RETURNING amount, accounts",
        {**parameters, "call": call, "state": state, "becomes": becomes},
    )
    if not rows:
        return None
    keys = [{"account": account, "starts": starts} for account, starts in orjson.loads(rows[0][1])]
    amount = int(rows[0][0])
    return _EndedReservation(amount, 0, keys) if state == "held" else _EndedReservation(0, amount, keys)


def _count_all(
    keys: Iterable[_Key], released: int, spent: int, caps: Mapping[str, int]
) -> Transaction[list[CrossedThreshold]]:
    crossed: list[CrossedThreshold] = []
    for key in keys:
        rows = yield (
            "UPDATE spending SET reserved = reserved - :released, spent = CASE WHEN spent + :delta < 0 THEN 0 "
            "WHEN spent + :delta > :ceiling THEN :ceiling ELSE spent + :delta END "
            "WHERE account = :account AND starts = :starts RETURNING spent, alerted",
            {**key, "released": released, "delta": spent, "ceiling": MAX_ACCOUNT_NANO},
        )
        if not rows or key["account"] not in caps:
            continue
        total, alerted = int(rows[0][0]), int(rows[0][1])
        cap = caps[key["account"]]
        percent = next((one for one in THRESHOLDS if total and total * 100 >= cap * one), 0)
        if percent > alerted:
            yield (
                "UPDATE spending SET alerted = :percent WHERE account = :account AND starts = :starts",
                {**key, "percent": percent},
            )
            crossed.append(CrossedThreshold(key["account"], key["starts"], total, percent))
    return crossed


def balances(accounts: Iterable[Account]) -> Transaction[list[AccountBalance]]:
    """The balances of these accounts in their period, or in a later one that has begun."""
    found: list[AccountBalance] = []
    for account in accounts:
        held = yield from select_one(
            AccountBalance,
            "spending",
            "WHERE account = :account AND starts >= :starts ORDER BY starts DESC LIMIT 1",
            {"account": account.name, "starts": account.starts},
        )
        found.append(held or AccountBalance(account.name, account.starts, 0, 0))
    return found
