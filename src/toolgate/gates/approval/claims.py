"""What calls took with a person's consent: an approval, or a place and money under a grant. A call that does not run gives
it back.

Whatever takes something is done to its end, also if its caller goes away meanwhile, so that it is known what there is to
give back; and what can't be given back at once, because the store can't be written, is given back when it can.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from toolgate.store import approvals, grants
from toolgate.store.approvals import ApprovalRow
from toolgate.store.database import Store, Transaction
from toolgate.store.grants import GrantRow
from toolgate.tasks import BackgroundTasks, finish, start_task

T = TypeVar("T")
SOONEST, LATEST = 0.1, 5.0
"""Seconds between two tries to give back."""
CLOSE_WAIT_SECONDS = 1.0
"""Seconds that are left to what is being written when the App closes."""

logger = logging.getLogger("toolgate.approval")


class ConsentTaken(NamedTuple):
    """The approval or the share of a grant that a call took."""

    approval: str | None = None
    grants: tuple[str, ...] = ()
    nano: int = 0


def taken_by(covering: Sequence[GrantRow], row: ApprovalRow | None, draft: ApprovalRow) -> ConsentTaken | None:
    if covering:
        return ConsentTaken(grants=tuple(grant.id for grant in covering), nano=draft.estimate)
    return ConsentTaken(approval=row.id) if row is not None and row.used_by else None


class ConsentsTaken:
    """By call, between consent and the end of the call."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._taken: dict[str, ConsentTaken] = {}
        self._taking: dict[str, asyncio.Future[Any]] = {}
        self._tasks = BackgroundTasks()

    async def take(
        self,
        call_id: str,
        work: Coroutine[Any, Any, T],
        what: Callable[[T], ConsentTaken | None],
        perhaps: ConsentTaken | None = None,
    ) -> T:
        """Do what takes something for a call; `what` tells from its result what that was. If it fails, the store may have
        done it all the same: then the call took `perhaps`."""

        async def to_its_end() -> T:
            if perhaps is not None:
                self._taken[call_id] = perhaps
            result = await work
            taken = what(result)
            if taken is None:
                self._taken.pop(call_id, None)
            else:
                self._taken[call_id] = taken
            return result

        taking = start_task(to_its_end())
        self._taking[call_id] = taking
        try:
            return await finish(taking)
        finally:
            if taking.done():
                self._taking.pop(call_id, None)

    def keep(self, call_id: str) -> None:
        """Leaves taken what the call took, if anything."""
        self._taken.pop(call_id, None)
        self._taking.pop(call_id, None)

    def settle(self, call_id: str, actual: int) -> Awaitable[None] | None:
        """The call has run, and did cost so much: that counts for its grants in place of what it might have cost. Gives what
        has to be awaited."""
        taken = self._taken.get(call_id)
        self.keep(call_id)
        if taken is None or not taken.grants or taken.nano == actual:
            return None
        return self._tasks.finish(self._settle(call_id, taken, actual))

    async def _settle(self, call_id: str, taken: ConsentTaken, actual: int) -> None:
        for grant in taken.grants:
            try:
                await self._store.transact(grants.settle(grant, taken.nano, actual))
            except Exception as error:  # noqa: BLE001 - the safe side: it counts as much as it might have cost
                logger.warning("grant %s counts the estimate of call %s, not its cost: %s", grant, call_id, error)

    async def give_back(self, call_id: str, *, grants_only: bool = False) -> None:
        """Nothing came of the call. Awaited, what it took is given back, or will be when the store can be written; also if
        whoever waits goes away. `grants_only`: it goes on later, with the approval that it has used."""
        taken = self._taken.get(call_id)
        if grants_only and (taken is None or not taken.grants):
            return self.keep(call_id)
        if call_id in self._taken or call_id in self._taking:
            await self._tasks.finish(self._give_back(call_id))

    async def close(self) -> None:
        """Let what is being written be written, and give up what can't be: it stays taken, which is the safe side."""
        # What a server that does not answer leaves running after that ends with the store.
        await self._tasks.close(grace=CLOSE_WAIT_SECONDS, limit=CLOSE_WAIT_SECONDS)

    async def _give_back(self, call_id: str) -> None:
        taking = self._taking.pop(call_id, None)
        if taking is not None:
            await asyncio.wait((taking,))
        taken = self._taken.pop(call_id, None)
        if taken is None:
            return
        try:
            await self._write(call_id, taken)
        except Exception as error:  # noqa: BLE001 - whatever the driver raises
            logger.error("what call %s took cannot be given back yet: %s", call_id, error)
            self._tasks.start(self._insist(call_id, taken))

    async def _insist(self, call_id: str, taken: ConsentTaken) -> None:
        pause = SOONEST
        while True:
            await asyncio.sleep(pause)
            try:
                return await self._write(call_id, taken)
            except Exception:  # noqa: BLE001 - it was logged the first time
                pause = min(pause * 2, LATEST)

    async def _write(self, call_id: str, taken: ConsentTaken) -> None:
        if taken.approval is not None:
            await self._store.transact(approvals.put_back(taken.approval, call_id))
        for grant in taken.grants:
            await self._put_back_grant(call_id, grant, taken.nano)

    async def _put_back_grant(self, call_id: str, grant: str, nano: int) -> None:
        """Nothing on record tells whether a grant was given something back already. So where the connection was lost while
        that was committed it is not tried again: better one use too many on the grant than more than was granted."""
        commits = False

        def work() -> Transaction[None]:
            nonlocal commits
            yield from grants.put_back(grant, nano)
            commits = True

        try:
            await self._store.transact(work())
        except Exception as error:
            if not commits or self._store.name != "postgres":  # SQLite undoes what it can't commit
                raise
            logger.warning("call %s may still count for grant %s although it did not run: %s", call_id, grant, error)
