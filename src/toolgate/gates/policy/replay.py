"""Tries a candidate policy on the calls on record: what it would have said to what really happened.

A call was let through by the policy of its time if it started, or ended before that for another reason than the policy. What
the log does not say, or holds only masked, is unknown and is counted so.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol

import orjson

from toolgate.errors import NO_SUCH_TOOL
from toolgate.gates.policy.documents import PolicyData
from toolgate.gates.policy.engine import InputsRead, PolicyQuestion
from toolgate.model import MASK, Actor, Decision
from toolgate.store.database import Rows, Store, Transaction

REPLAY_PAGE = 2_000
SHOWN_EXAMPLES = 3
MAX_KNOWN = 20_000
"""Decisions that are remembered while calls are looked through."""
UNREAD: dict[str, Any] = {"user": "", "session": None, "door": "", "tier": None}
"""In the place of what a policy does not read."""
Change = Literal["newly_denied", "newly_allowed", "unknown"]


@dataclass(frozen=True, slots=True)
class Group:
    """Calls that would change in the same way, for the same reason."""

    change: Change
    tool: str
    tenant: str
    persona: str | None
    reason: str
    count: int
    examples: tuple[str, ...]
    """Ids of some of the calls."""


class Replay(NamedTuple):
    """The decisions that would change."""

    same: int
    newly_denied: int
    newly_allowed: int
    unknown: int
    groups: tuple[Group, ...]
    """The largest first; calls that stay as they were are in none."""

    @property
    def calls(self) -> int:
        return self.same + self.newly_denied + self.newly_allowed + self.unknown

    def to_dict(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in ("calls", "same", "newly_denied", "newly_allowed", "unknown")}
        return {**counts, "groups": [{**asdict(group), "examples": list(group.examples)} for group in self.groups]}


class RecordedDecision(NamedTuple):
    """A call as the log has it."""

    id: str
    tool: str
    tenant: str
    let_through: bool | None
    """By the policy of its time; None if the record does not say."""
    body: dict[str, Any]


class _Tally:
    """Counts changes, and groups those that are alike."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(("same", "newly_denied", "newly_allowed", "unknown"), 0)
        self._examples: dict[tuple[Change, str, str, str | None, str], list[str]] = {}
        self._sizes: Counter[tuple[Change, str, str, str | None, str]] = Counter()

    def add(self, call: RecordedDecision, change: Literal["same"] | Change, reason: str) -> None:
        self._counts[change] += 1
        if change == "same":
            return
        key = (change, call.tool, call.tenant, call.body.get("persona"), reason)
        self._sizes[key] += 1
        examples = self._examples.setdefault(key, [])
        if len(examples) < SHOWN_EXAMPLES:
            examples.append(call.id)

    def result(self) -> Replay:
        groups = [Group(*key, size, tuple(self._examples[key])) for key, size in self._sizes.most_common()]
        return Replay(**self._counts, groups=tuple(groups))


class Candidate(Protocol):
    """A policy that is tried."""

    reads: InputsRead

    async def judge(self, inputs: Sequence[str]) -> list[Decision]:
        """Gives the decision on each input, a JSON text. Raises PolicyError if the policy can't be used."""


async def replay(pages: AsyncIterable[Sequence[tuple[Any, ...]]], candidate: Candidate, data: PolicyData) -> Replay:
    """Put the calls of the log's rows before a candidate policy, with the data as it is now."""
    tally = _Tally()
    known: dict[str, Decision] = {}
    was_asked = False
    async for page in pages:
        asked = [(call, _input(call, candidate.reads, data)) for call in filter(None, map(_recorded, page))]
        if len(known) > MAX_KNOWN:
            known.clear()
        new = [*dict.fromkeys(one.text for _, one in asked if one.text is not None and one.text not in known)]
        if new or not was_asked:
            known.update(zip(new, await candidate.judge(new), strict=True))
            was_asked = True
        for call, one in asked:
            if one.text is None:
                tally.add(call, "unknown", one.unknown)
            else:
                tally.add(call, _changed(call.let_through, known[one.text].allow), known[one.text].reason)
        await asyncio.sleep(0)
    if not was_asked:
        await candidate.judge([])  # nobody is told that a policy changes nothing that is none
    return tally.result()


async def observed(pages: AsyncIterable[Sequence[tuple[Any, ...]]]) -> dict[str, Replay]:
    """Compares what observed candidates said of calls with what was done, by the name of the candidate's file."""
    tallies: dict[str, _Tally] = {}
    async for page in pages:
        for call in filter(None, map(_ended, page)):
            for said in call.body["observed"]:
                tally = tallies.setdefault(said["policy"], _Tally())
                tally.add(call, _changed(call.let_through, said["allow"]), said["reason"])
        await asyncio.sleep(0)
    return {name: tally.result() for name, tally in tallies.items()}


def _changed(let_through: bool | None, allow: bool) -> Literal["same"] | Change:
    if let_through is None:
        return "unknown"
    return "same" if allow == let_through else "newly_allowed" if allow else "newly_denied"


class RecordedInput(NamedTuple):
    """The input that a call is put before a policy with, as JSON; without one, the reason why its decision is not known."""

    text: str | None
    unknown: str = ""


def _input(call: RecordedDecision, reads: InputsRead, data: PolicyData) -> RecordedInput:
    """Leaves out what the policy does not read, so that calls that are the same to it are judged once."""
    body = call.body
    if call.let_through is None:
        return RecordedInput(None, "the record does not say whether the policy let it through")
    if data.entry(call.tool, call.tenant) is None:
        return RecordedInput(None, "the tool is not in the catalog of this process")
    if reads.arguments and body.get("arguments") is None:
        return RecordedInput(None, "the policy looks at arguments, and the record holds none")
    if reads.arguments and MASK.encode() in orjson.dumps(body["arguments"]):
        return RecordedInput(None, "the policy looks at arguments, and those on record are masked")
    try:
        actor = Actor(call.tenant, body.get("persona"), body.get("user") or "local", tuple(body.get("scopes") or ()))
    except (ValueError, TypeError):
        return RecordedInput(None, "the record does not say who called")
    about = {
        "user": actor.user,
        "session": body.get("session"),
        "door": body.get("door", "python"),
        "tier": body.get("tier"),
    }
    read = {name: value if name in reads.context else UNREAD[name] for name, value in about.items()}
    question = PolicyQuestion(
        actor.tenant, actor.persona, "tool.request", call.tool, scopes=actor.scopes, arguments=body.get("arguments"), **read
    )
    if fault := question.fault():
        return RecordedInput(None, fault)
    return RecordedInput(orjson.dumps(question.input(reads)).decode())


def _recorded(row: tuple[Any, ...]) -> RecordedDecision | None:
    """The call that a row is about; None if it is about none, or another row says more of it."""
    found = _call(row)
    if found is None or (row[2] == "end" and "arguments" not in found.body):
        return None  # a call that started is told by its start
    is_missing = found.body.get("code") == "TOOL_NOT_FOUND" and found.body.get("decision") == NO_SUCH_TOOL
    return None if is_missing else found


def _ended(row: tuple[Any, ...]) -> RecordedDecision | None:
    """The call that an end record is about, if candidates were observed; None for any other row."""
    found = _call(row) if row[2] == "end" else None
    return found if found is not None and "observed" in found.body else None


def _call(row: tuple[Any, ...]) -> RecordedDecision | None:
    _seq, _at, kind, call_id, tenant, tool, _status, text, _hash = row
    try:
        body = orjson.loads(text) if kind in ("start", "end") else None
    except orjson.JSONDecodeError:
        return None
    return RecordedDecision(call_id, tool, tenant, _let_through(kind, body), body) if isinstance(body, dict) else None


def _let_through(kind: str, body: dict[str, Any]) -> bool | None:
    """True if the policy of its time had let a call through; None if the record does not say."""
    if kind == "start" or "arguments" not in body or body.get("let_through"):
        return True  # the arguments of a call that started stand in its start record
    code, reason = body.get("code"), body.get("decision")
    if code in ("PERMISSION_DENIED", "TOOL_NOT_FOUND"):
        return False if reason else None
    if code in ("UNEXPECTED_ERROR", "CANCELLED") and not reason:
        return None  # it may have ended before it was decided
    return True


# -- the rows


async def recorded_pages(store: Store, *, since: datetime | None = None, tenant: str | None = None) -> AsyncIterator[Rows]:
    """The rows of calls, page by page, oldest first."""
    seq = 0
    while rows := await store.read(_page(seq, since, tenant)):
        yield rows
        seq = rows[-1][0]


def _page(seq: int, since: datetime | None, tenant: str | None) -> Transaction[Rows]:
    where = "seq > :seq AND kind IN ('start', 'end')"
    where += "" if since is None else " AND at >= :since"
    where += "" if tenant is None else " AND tenant = :tenant"
    begin = 0 if since is None else int(since.timestamp() * 1_000_000)
    return (
        yield (
            "SELECT seq, at, kind, call_id, tenant, tool, status, body, hash FROM audit_log "
            f"WHERE {where} ORDER BY seq LIMIT :most",
            {"seq": seq, "most": REPLAY_PAGE, "since": begin, "tenant": tenant},
        )
    )
