"""Organisation tools on record: the newest bundle of an organisation, its tools as they are and as they were accepted, and
when a newer one is looked for. A change counts as one of the catalog, which all processes must see."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal, NamedTuple

from toolgate.store.catalog import changed
from toolgate.store.database import Transaction
from toolgate.store.sql import insert, is_any, select, select_one, upsert

BundleRole = Literal["received", "published"]


class BundleRow(NamedTuple):
    """The newest bundle of an organisation that was received, or that is published here."""

    org_id: str
    role: str
    version: int
    digest: str
    key_id: str
    bundle: str
    created_at: datetime
    expires_at: datetime
    received_at: datetime
    received_by: str


class TeamToolRow(NamedTuple):
    """A tool of an organisation: as its newest bundle has it, and as it was accepted."""

    org_id: str
    name: str
    found: str | None
    found_hash: str | None
    found_enforced: bool
    found_version: int
    rejected_hash: str | None
    accepted: str | None
    accepted_hash: str | None
    accepted_enforced: bool
    accepted_version: int | None
    accepted_by: str | None
    accepted_at: datetime | None


class SyncRow(NamedTuple):
    """The last look for a newer bundle, and when the next is due."""

    org_id: str
    tried_at: datetime | None
    failure: str | None
    next_at: datetime


class BundledTool(NamedTuple):
    """A tool as a bundle has it."""

    name: str
    text: str
    hash: str
    enforced: bool


class StaleBundle(Exception):
    """The bundle is older than the one on record, or has its version and other content. `row`: the one on record."""

    def __init__(self, row: BundleRow) -> None:
        self.row = row
        super().__init__(row.version)


def bundle(org_id: str, role: BundleRole) -> Transaction[BundleRow | None]:
    key = {"org_id": org_id, "role": role}
    return (yield from select_one(BundleRow, "team_bundles", "WHERE org_id = :org_id AND role = :role", key))


def tools(org_id: str) -> Transaction[list[TeamToolRow]]:
    return (yield from select(TeamToolRow, "team_tools", "WHERE org_id = :org_id ORDER BY name", {"org_id": org_id}))


def keep_bundle(row: BundleRow) -> Transaction[bool]:
    """Keeps a bundle in place of an older one; False if it is the one on record. Raises StaleBundle. Versions are those of
    a key: whoever had the one that was replaced could have signed a version that no honest one reaches."""
    # Two processes may keep one at the same moment: what is compared is what the statement itself finds.
    sql, values = insert("team_bundles", row._asdict())
    kept = ", ".join(f"{name} = excluded.{name}" for name in BundleRow._fields[2:])
    taken = yield from is_any(
        f"{sql} ON CONFLICT (org_id, role) DO UPDATE SET {kept} WHERE team_bundles.version < excluded.version "
        "OR team_bundles.key_id <> excluded.key_id RETURNING version",
        values,
    )
    if taken:
        return True
    known = yield from select_one(BundleRow, "team_bundles", "WHERE org_id = :org_id AND role = :role", values)
    assert known is not None
    if (known.version, known.digest) != (row.version, row.digest):
        raise StaleBundle(known)
    return False


def receive(row: BundleRow, found: Iterable[BundledTool]) -> Transaction[bool]:
    """Keeps a bundle that was received, and what it has of each tool. A tool that it no longer has is gone; one that is
    other than it was accepted stays as it was accepted. False: it was on record already, with its tools."""
    wanted = {one.name: one for one in found}
    is_new = yield from keep_bundle(row)
    known = {one.name: one for one in (yield from tools(row.org_id))}
    if not is_new and all(name in known and known[name].found_hash == one.hash for name, one in wanted.items()):
        return False
    for name, one in wanted.items():
        before = known.get(name)
        if before is None or before.found_hash != one.hash:
            yield upsert("team_tools", _found(row, one), ("org_id", "name"), FOUND_COLUMNS)
    for name in known.keys() - wanted.keys():
        yield "DELETE FROM team_tools WHERE org_id = :org_id AND name = :name", {"org_id": row.org_id, "name": name}
    yield from changed()
    return True


FOUND_COLUMNS = ("found", "found_hash", "found_enforced", "found_version")


def _found(row: BundleRow, one: BundledTool) -> dict[str, object]:
    return {
        "org_id": row.org_id, "name": one.name, "found": one.text, "found_hash": one.hash, "found_enforced": one.enforced,
        "found_version": row.version, "accepted_enforced": False,
    }  # fmt: skip


def accept(org_id: str, shown: Mapping[str, str], by: str, at: datetime) -> Transaction[list[str]]:
    """Accepts tools as they were shown, by name and hash, all or none; gives the names, or none if one has changed since."""
    there = {one.name: one.found_hash for one in (yield from tools(org_id))}
    if any(there.get(name) != shown[name] for name in shown):
        return []
    for name, found_hash in shown.items():
        accepted = yield from is_any(
            "UPDATE team_tools SET accepted = found, accepted_hash = found_hash, accepted_enforced = found_enforced, "
            "accepted_version = found_version, accepted_by = :by, accepted_at = :at, rejected_hash = NULL "
            "WHERE org_id = :org_id AND name = :name AND found_hash = :hash RETURNING name",
            {"org_id": org_id, "name": name, "hash": found_hash, "by": by, "at": at},
        )
        assert accepted
    yield from changed()
    return list(shown)


def reject(org_id: str, shown: Mapping[str, str]) -> Transaction[list[str]]:
    """Rejects tools as they were shown, by name and hash. One that waits stays as it was accepted before; one that is
    accepted as it is, or whose change was rejected already, is used no more."""
    rejected = []
    for name, found_hash in shown.items():
        done = yield from is_any(
            "UPDATE team_tools SET "
            + ", ".join(f"{column} = CASE WHEN {WITHDRAWN} THEN NULL ELSE {column} END" for column in ACCEPTED_COLUMNS)
            + f", accepted_enforced = CASE WHEN {WITHDRAWN} THEN FALSE ELSE accepted_enforced END, "
            "rejected_hash = found_hash WHERE org_id = :org_id AND name = :name AND found_hash = :hash RETURNING name",
            {"org_id": org_id, "name": name, "hash": found_hash},
        )
        rejected += [name] if done else []
    if rejected:
        yield from changed()
    return rejected


ACCEPTED_COLUMNS = ("accepted", "accepted_hash", "accepted_version", "accepted_by", "accepted_at")
WITHDRAWN = "(accepted_hash = found_hash OR rejected_hash = found_hash)"


def remove(org_id: str) -> Transaction[int]:
    """Forgets all tools of an organisation; gives how many there were. The version of its bundle stays known: one that is
    older is refused as before."""
    rows = yield "DELETE FROM team_tools WHERE org_id = :org_id RETURNING name", {"org_id": org_id}
    yield from changed()
    return len(rows)


# -- when a newer one is looked for


def sync_state(org_id: str) -> Transaction[SyncRow | None]:
    return (yield from select_one(SyncRow, "team_syncs", "WHERE org_id = :org_id", {"org_id": org_id}))


def claim_sync(org_id: str, at: datetime, following: datetime) -> Transaction[bool]:
    """Takes the look that is due, by planning the next; False if none is due, or another process took it."""
    sql, values = insert("team_syncs", {"org_id": org_id, "next_at": following})
    return (
        yield from is_any(
            f"{sql} ON CONFLICT (org_id) DO UPDATE SET next_at = excluded.next_at WHERE team_syncs.next_at <= :at "
            "OR team_syncs.next_at > excluded.next_at RETURNING org_id",
            {**values, "at": at},
        )
    )


def note_sync(org_id: str, at: datetime, failure: str | None, following: datetime) -> Transaction[None]:
    """Notes what came of a look."""
    row = {"org_id": org_id, "tried_at": at, "failure": failure, "next_at": following}
    yield upsert("team_syncs", row, ("org_id",))
