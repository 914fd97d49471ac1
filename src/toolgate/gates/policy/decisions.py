"""Decisions of the policy: who may do what. Puts the question to an engine, and remembers the answers for a while.

What is asked: tool.view (may this caller know of the tool), tool.request (may it call it), tool.enable (may it add one).
Every answer has its reason. A remembered answer is forgotten at once when policy or data change: each change begins a new
epoch, and an answer that was asked for in an earlier one is not kept.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any

import orjson

from toolgate.coordination.redis import Redis
from toolgate.gates.policy.documents import NO_POLICY_DATA, PolicyData
from toolgate.gates.policy.engine import NOT_JSON, Action, EmbeddedEngine, PolicyQuestion, PolicyVerdict, RemoteEngine
from toolgate.model import Actor, Decision
from toolgate.threads import LARGE, Offload

MAX_REMEMBERED = 100_000
MAX_REMEMBERED_KEY_BYTES = 256
"""Arguments longer than this are remembered by their hash: a caller chooses their size."""
UNSURE_SECONDS = 1.0
"""How long a denial counts that is not the policy's own: a server that is back is soon asked again."""
SLICE = 50
"""Evaluations between which other tasks get a turn."""
CONCURRENT_QUESTIONS = 16
SHARED_SECONDS = 0.25
RETRIES = 3
PARTICULARS = ("user", "session", "door", "tier")

logger = logging.getLogger("toolgate.policy")


class Digest(bytes):
    """The hash of arguments so large that a policy reads them off the event loop."""


class Guard:
    """Answers, from an engine and the data it is given."""

    def __init__(
        self,
        engine: EmbeddedEngine | RemoteEngine,
        *,
        monotonic: Callable[[], float],
        seconds: float = 60.0,
        shared: Redis | None = None,
        max_entries: int = MAX_REMEMBERED,
    ) -> None:
        """`shared`: what one process was told by an OPA server is kept there, and the others need not ask."""
        self.engine = engine
        self.data: PolicyData = NO_POLICY_DATA
        self.epoch = 0
        """Counts up with each change of policy or data."""
        self.reads_arguments = engine.reads.arguments
        """True if the policy looks at a call's arguments, so that they must be known before it is asked."""
        self._monotonic = monotonic
        self._seconds = seconds
        self._shared = shared
        self._most = max_entries
        self._simple: dict[tuple[str, str | None, str, str, tuple[str, ...]], tuple[Decision, float]] = {}
        """By who asks for what: all there is to a decision, for most policies."""
        self._particular: dict[Hashable, tuple[Decision, float]] = {}
        """By all that a policy reads besides."""
        self._offload = Offload()

    # -- what it answers from

    def use(self, data: PolicyData) -> None:
        self.data = data
        self.forget()

    def set_engine(self, engine: EmbeddedEngine | RemoteEngine) -> None:
        """Take another policy. The one before is not closed here."""
        self.engine = engine
        self.forget()

    def forget(self) -> None:
        """Drop all answers: what the data says may have changed."""
        self.epoch += 1
        self.reads_arguments = self.engine.reads.arguments
        self._simple.clear()
        self._particular.clear()

    @property
    def policy_hash(self) -> str:
        """The hash that an approval is bound to: of the policy's text, or of the server that has it."""
        return self.engine.hash

    @property
    def native(self) -> bool:
        """True if the shipped policy decides, in this process."""
        return getattr(self.engine, "shipped", False) is True

    # -- one decision

    def known(self, actor: Actor, action: Action, tool: str) -> Decision | None:
        """The remembered decision. None always for a policy that reads more than who asks for what."""
        kept = self._simple.get((actor.tenant, actor.persona, action, tool, actor.scopes))
        if kept is None or kept[1] <= self._monotonic():
            return None
        return kept[0]

    async def decide(
        self,
        actor: Actor,
        action: Action,
        tool: str,
        *,
        tier: str | None = None,
        session: str | None = None,
        door: str = "python",
        arguments: Any = None,
    ) -> Decision:
        question = PolicyQuestion(
            actor.tenant, actor.persona, action, tool, actor.user, actor.scopes, session, door, tier, arguments
        )
        fault = question.fault()
        if fault is not None:
            return Decision(False, fault)
        kept, key = self._place(question)
        if key is None:
            return Decision(False, NOT_JSON)
        found = kept.get(key)
        if found is not None and found[1] > self._monotonic():
            return found[0]
        epoch, engine = self.epoch, self.engine
        if engine.remote is True:
            verdict, seconds = await self._ask(engine, question, key)
        else:
            yes = lets_request(self.data, question) if engine.shipped and action == "tool.request" else None
            if yes is not None:
                verdict = PolicyVerdict(yes)
            elif type(key[-1]) is Digest:
                verdict = await self._offload(actor.tenant, engine.decide, question, self.data, epoch)
            else:
                verdict = engine.decide(question, self.data, epoch)
            seconds = self._seconds if verdict.sure else UNSURE_SECONDS
        decision = verdict.decision if verdict.sure else Decision(False, verdict.decision.reason, sure=False)
        if epoch == self.epoch:
            self._keep(kept, key, decision, seconds)
        return decision

    def hides(self, actor: Actor, tool: str) -> bool:
        """True if our own flags and lists keep a tool from an actor, for when the policy can't be asked."""
        return not may_view(self.data, actor.tenant, actor.persona, (tool,))

    def _place(self, question: PolicyQuestion) -> tuple[dict[Any, tuple[Decision, float]], Any]:
        """The cache and the key of the answer to a question; no key if it has arguments that are no JSON."""
        who_and_what = (question.tenant, question.persona, question.action, question.tool, question.scopes)
        reads = self.engine.reads
        if reads.only_who_and_what:
            return self._simple, who_and_what
        rest = tuple(getattr(question, name) if name in reads.context else None for name in PARTICULARS)
        arguments = _canonical(question.arguments) if reads.arguments else b""
        if arguments is not None and len(arguments) > MAX_REMEMBERED_KEY_BYTES:
            arguments = (Digest if len(arguments) > LARGE else bytes)(sha256(arguments).digest())
        return self._particular, None if arguments is None else (who_and_what, rest, arguments)

    def _keep(self, kept: dict[Any, tuple[Decision, float]], key: Any, decision: Decision, seconds: float) -> None:
        if len(kept) >= self._most:
            for old in list(islice(kept, self._most // 10 + 1)):
                del kept[old]
        kept[key] = (decision, self._monotonic() + seconds)

    # -- a server's decisions, shared between processes

    async def _ask(self, engine: RemoteEngine, question: PolicyQuestion, key: Any) -> tuple[PolicyVerdict, float]:
        """A server's answer and how long it counts."""
        place = None if self._shared is None else (self._shared, self._shared_name(engine, question, key))
        if place is not None:
            decision = await _shared_answer(*place)
            if decision is not None:
                return PolicyVerdict(decision), self._seconds / 10  # it is of some age already
        verdict = await engine.ask(question)
        if not verdict.sure:
            return verdict, UNSURE_SECONDS
        if place is not None:
            await self._share(*place, verdict.decision)
        return verdict, self._seconds

    def _shared_name(self, engine: RemoteEngine, question: PolicyQuestion, key: Any) -> str:
        """A name that operators can read, and a hash of all that the answer depends on."""
        whole = orjson.dumps([repr(key), engine.hash, self.data.epoch])
        return (
            f"tool:permission:{question.tenant}:{question.persona or ''}:{question.tool}:{question.action}:"
            f"{sha256(whole).hexdigest()}"
        )

    async def _share(self, shared: Redis, name: str, decision: Decision) -> None:
        try:
            async with asyncio.timeout(SHARED_SECONDS):
                value = orjson.dumps({"allow": decision.allow, "reason": decision.reason})
                await shared.put(name, value, self._seconds)
        except Exception as error:  # noqa: BLE001 - then the next process asks the server itself
            logger.debug("the shared cache did not take a decision: %s", type(error).__name__)

    # -- many decisions

    def hidden_from(self, actor: Actor) -> Collection[str]:
        """All tools that the shipped policy keeps from an actor by its deny and allow lists; what is off, the catalog
        knows."""
        if not self.native:
            raise RuntimeError("only the shipped policy can tell at once; ask permitted()")
        denied, unlisted = _denied_to(self.data, actor.persona), self.data.hidden_by_list(actor.tenant, actor.persona)
        return unlisted.union(denied) if unlisted else denied

    async def permitted(self, actor: Actor, names: Sequence[str]) -> list[str]:
        """Those of the tools that the actor may view. If the policy or its data change meanwhile, it begins again."""
        found: list[str] = []
        for _ in range(RETRIES):
            epoch = self.epoch
            found = await self._permitted(actor, names)
            if epoch == self.epoch:
                break
        return found

    async def _permitted(self, actor: Actor, names: Sequence[str]) -> list[str]:
        if self.native:
            return may_view(self.data, actor.tenant, actor.persona, names)
        engine = self.engine
        if engine.remote is True:
            question = PolicyQuestion(actor.tenant, actor.persona, "tool.view", "", actor.user, actor.scopes)
            found = await engine.ask_many(question, names)
            return found if found is not None else await self._ask_each(actor, names)
        permitted: list[str] = []
        for start in range(0, len(names), SLICE):
            few = names[start : start + SLICE]
            permitted += [name for name in few if (await self.decide(actor, "tool.view", name)).allow]
            await asyncio.sleep(0)
        return permitted

    async def _ask_each(self, actor: Actor, names: Sequence[str]) -> list[str]:
        permitted: list[str] = []
        for start in range(0, len(names), CONCURRENT_QUESTIONS):
            few = names[start : start + CONCURRENT_QUESTIONS]
            decisions = await asyncio.gather(*(self.decide(actor, "tool.view", name) for name in few))
            permitted += [name for name, decision in zip(few, decisions, strict=True) if decision.allow]
        return permitted


async def _shared_answer(shared: Redis, name: str) -> Decision | None:
    try:
        async with asyncio.timeout(SHARED_SECONDS):
            text = await shared.get(name)
        read = orjson.loads(text) if text is not None else None
    except Exception as error:  # noqa: BLE001 - whatever a cache does, it is a miss
        logger.debug("the shared cache did not answer: %s", type(error).__name__)
        return None
    if not isinstance(read, dict) or set(read) != {"allow", "reason"}:
        return None
    allow, reason = read["allow"], read["reason"]
    return Decision(allow, reason) if isinstance(allow, bool) and isinstance(reason, str) and reason else None


def _canonical(arguments: Any) -> bytes | None:
    """Arguments as they stand in a key; None if they are no JSON."""
    try:
        return orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)
    except (TypeError, RecursionError):
        return None


# -- the shipped policy without Rego
#
# For the list of an actor at 100,000 tools, and the yes to a call that nothing speaks against. It says the same as
# default.rego, which property tests prove; it is used with that policy and no other. A no is always the Rego's own, with
# its reason.


def _denied_to(data: PolicyData, persona: str | None) -> Collection[str]:
    """Tools that deny lists keep from a persona, whatever catalog and flags say."""
    denied = data.personas.get(persona) if persona is not None else None
    if not denied:
        return data.global_deny.keys()
    return denied.keys() | data.global_deny.keys() if data.global_deny else denied.keys()


def may_view(data: PolicyData, tenant: str, persona: str | None, tools: Iterable[str]) -> list[str]:
    """Those of the tools that the policy lets the caller see."""
    hidden, listed = _denied_to(data, persona), data.listed(tenant, persona)
    return [
        tool for tool in tools if tool not in hidden and (listed is None or tool in listed) and _enabled(data, tenant, tool)
    ]


def lets_request(data: PolicyData, question: PolicyQuestion) -> Decision | None:
    """The policy's yes to a call; None where it may say no. It reads dicts, where Rego would be given them first."""
    tenant, persona, tool = question.tenant, question.persona, question.tool
    entry = data.entry(tool, tenant)
    if entry is None or tool in data.global_deny or (persona is not None and tool in data.personas.get(persona, ())):
        return None
    if data.allow_lists and (listed := data.listed(tenant, persona)) is not None and tool not in listed:
        return None
    flag, needed = data.flag(tool, tenant), entry.get("requires_permission")
    if (entry.get("enabled") is not True) if flag is None else not flag:
        return None
    if tenant in data.restricted_tenants and (tool == "code_execute" or entry.get("runs_code", False) is not False):
        return None
    if needed is not None and needed not in question.scopes:
        return None
    return Decision(True, f"{tool} is enabled" if flag is None else f"{tool} is enabled for tenant {tenant}")


def _enabled(data: PolicyData, tenant: str, tool: str) -> bool:
    entry = data.entry(tool, tenant)
    if entry is None:
        return False
    flag = data.flag(tool, tenant)
    return entry.get("enabled") is True if flag is None else flag
