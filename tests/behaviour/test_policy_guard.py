"""What the guard remembers and when it forgets, what users' policies can look at, and lists of permitted tools."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import pytest

from tests.servers import Redis as RedisProcess
from tests.soma_policy import DATA, POLICY, policy_data
from toolgate import Actor
from toolgate.coordination.redis import Redis
from toolgate.gates.policy.decisions import Guard
from toolgate.gates.policy.documents import PolicyData
from toolgate.gates.policy.embedded_rego import EmbeddedRego
from toolgate.gates.policy.engine import EVERYTHING, NOTHING_ELSE, Action, InputsRead, PolicyQuestion, PolicyVerdict
from toolgate.gates.policy.input_references import what_is_read
from toolgate.model import Decision
from toolgate.testing import ManualClock

pytestmark = pytest.mark.requirement("POL-4")
ANN = Actor("acme", "analyst", "ann")
BOB = Actor("acme", "analyst", "bob")
REQUEST: Action = "tool.request"
VIEW: Action = "tool.view"

HEAD = "package soma.policy\nimport rego.v1\ndefault allow := false\n"


def data(*denied: str) -> PolicyData:
    return policy_data({**DATA, "global_tool_deny": list(denied)})


def guard_of(policy: str | None = None, clock: ManualClock | None = None, **more: Any) -> Guard:
    engine = EmbeddedRego.default() if policy is None else EmbeddedRego(HEAD + policy)
    guard = Guard(engine, monotonic=(clock or ManualClock()).monotonic, **more)
    guard.use(data())
    return guard


# -- remembering and forgetting


async def test_a_decision_is_remembered_for_as_long_as_it_is_said() -> None:
    clock = ManualClock()
    guard = guard_of(clock=clock, seconds=60.0)
    assert guard.known(ANN, REQUEST, "memory_load") is None
    made = await guard.decide(ANN, REQUEST, "memory_load")
    assert guard.known(ANN, REQUEST, "memory_load") is made
    clock.advance(59.9)
    assert guard.known(ANN, REQUEST, "memory_load") is made
    clock.advance(0.2)
    assert guard.known(ANN, REQUEST, "memory_load") is None


@pytest.mark.parametrize(
    ("actor", "action", "tool"),
    [
        (Actor("globex", "analyst", "ann"), REQUEST, "memory_load"),
        (Actor("acme", None, "ann"), REQUEST, "memory_load"),
        (Actor("acme", "analyst", "ann", ("more",)), REQUEST, "memory_load"),
        (ANN, VIEW, "memory_load"),
        (ANN, REQUEST, "memory_save"),
    ],
)
async def test_what_is_remembered_is_for_that_question_alone(actor: Actor, action: Action, tool: str) -> None:
    guard = guard_of()
    await guard.decide(ANN, REQUEST, "memory_load")
    assert guard.known(actor, action, tool) is None
    assert guard.known(BOB, REQUEST, "memory_load"), "the shipped policy does not look at the user"


async def test_new_data_is_obeyed_at_once() -> None:
    guard = guard_of()
    assert (await guard.decide(ANN, REQUEST, "memory_load")).allow
    guard.use(data("memory_load"))
    assert guard.known(ANN, REQUEST, "memory_load") is None
    assert not (await guard.decide(ANN, REQUEST, "memory_load")).allow
    guard.use(data())
    assert (await guard.decide(ANN, REQUEST, "memory_load")).allow


async def test_a_new_policy_is_obeyed_at_once() -> None:
    guard = guard_of()
    before = guard.policy_hash
    assert (await guard.decide(ANN, REQUEST, "memory_load")).allow
    guard.set_engine(EmbeddedRego(HEAD))
    assert await guard.decide(ANN, REQUEST, "memory_load") == Decision(False, "the policy does not allow it")
    assert guard.policy_hash != before


async def test_a_tool_that_comes_into_the_catalog_is_there_once_answers_are_forgotten() -> None:
    catalog: dict[str, Any] = {}
    guard = guard_of()
    guard.use(PolicyData(lambda tool, _tenant: catalog.get(tool), lambda: catalog))
    assert not (await guard.decide(ANN, REQUEST, "late")).allow
    catalog["late"] = {"enabled": True}
    guard.forget()
    assert (await guard.decide(ANN, REQUEST, "late")).allow


async def test_what_is_remembered_has_a_bound_and_the_oldest_go_first() -> None:
    guard = guard_of(max_entries=20)
    for number in range(50):
        await guard.decide(Actor(f"t{number}"), REQUEST, "memory_load")
    known = [number for number in range(50) if guard.known(Actor(f"t{number}"), REQUEST, "memory_load")]
    assert 10 <= len(known) <= 20
    assert known[-1] == 49
    assert known == list(range(known[0], 50))


class Slow:
    """An engine that answers when it is told to, with what was true when it was asked."""

    remote: Literal[True] = True
    hash = "slow"

    def __init__(self, reads: InputsRead = NOTHING_ELSE) -> None:
        self.reads = reads
        self.asked = 0
        self.truth = True
        self.sure = True
        self.go = asyncio.Event()

    async def ask(self, question: PolicyQuestion) -> PolicyVerdict:
        self.asked += 1
        answer = PolicyVerdict(Decision(self.truth, f"{question.tool}: {self.truth}"), self.sure)
        await self.go.wait()
        return answer

    async def ask_many(self, question: PolicyQuestion, tools: Sequence[str]) -> list[str] | None:  # noqa: ARG002
        return None

    is_ready = True

    async def push(self, text: str, documents: Any) -> None: ...

    async def close(self) -> None: ...


async def test_an_answer_that_was_overtaken_by_a_change_is_not_remembered() -> None:
    engine = Slow()
    guard = Guard(engine, monotonic=ManualClock().monotonic)
    waiting = asyncio.create_task(guard.decide(ANN, REQUEST, "x"))
    await asyncio.sleep(0)
    engine.truth = False
    guard.use(data())
    engine.go.set()
    assert (await waiting).allow, "it was asked before the change"
    assert guard.known(ANN, REQUEST, "x") is None
    assert not (await guard.decide(ANN, REQUEST, "x")).allow
    assert engine.asked == 2


async def test_a_denial_that_is_not_the_policys_own_is_soon_asked_again() -> None:
    clock, engine = ManualClock(), Slow()
    engine.go.set()
    engine.truth = engine.sure = False
    guard = Guard(engine, monotonic=clock.monotonic, seconds=60.0)
    assert not (await guard.decide(ANN, REQUEST, "x")).allow
    engine.truth = engine.sure = True
    clock.advance(1.1)
    assert (await guard.decide(ANN, REQUEST, "x")).allow


# -- what is asked


@pytest.mark.requirement("POL-2")
@pytest.mark.parametrize(
    ("actor", "action", "tool", "reason"),
    [
        (ANN, "tool.destroy", "memory_load", "there is no such action"),
        (ANN, REQUEST, "", "no tool is named"),
        (ANN, REQUEST, None, "no tool is named"),
        (Actor("acme", "analyst", "ann", ("",)), REQUEST, "memory_load", "the caller's scopes are malformed"),
        (Actor("acme", "analyst", "ann", (7,)), REQUEST, "memory_load", "the caller's scopes are malformed"),  # type: ignore[arg-type]
    ],
)
async def test_what_can_not_be_asked_is_denied(actor: Actor, action: Any, tool: Any, reason: str) -> None:
    guard = guard_of("allow := true\n")
    assert await guard.decide(actor, action, tool) == Decision(False, reason)


@pytest.mark.requirement("POL-2")
async def test_without_data_everything_is_denied() -> None:
    guard = Guard(EmbeddedRego.default(), monotonic=time.monotonic)
    for action in ("tool.view", "tool.request", "tool.enable"):
        assert not (await guard.decide(ANN, action, "memory_load")).allow


@pytest.mark.requirement("POL-1")
async def test_a_policy_sees_the_five_keys_and_all_of_the_context() -> None:
    guard = guard_of("""
allow if {
    object.keys(input) == {"tenant", "persona_id", "action", "resource", "context"}
    input.context == {
        "user": "ann", "scopes": ["a", "b"], "session": "s", "door": "mcp", "tier": "write", "arguments": {"n": [1, null]}
    }
}
""")
    caller = Actor("acme", None, "ann", ("a", "b"))
    given: dict[str, Any] = {"tier": "write", "session": "s", "door": "mcp", "arguments": {"n": [1, None]}}
    assert (await guard.decide(caller, REQUEST, "x", **given)).allow
    assert not (await guard.decide(caller, REQUEST, "x", **{**given, "door": "http"})).allow


# -- rules on what is special about a call


LIMIT = """
allow if { input.context.arguments.amount <= 100 }
decision := {"allow": true, "reason": "small enough"} if allow
else := {"allow": false, "reason": "more than 100"}
"""


@pytest.mark.requirement("POL-3")
async def test_rules_look_at_arguments() -> None:
    guard = guard_of(LIMIT)
    assert guard.reads_arguments
    for amount, allow in ((100, True), (101, False), (100, True), ("100", False)):
        decision = await guard.decide(ANN, REQUEST, "pay", arguments={"amount": amount, "to": "x"})
        assert decision.allow is allow, amount
        assert guard.known(ANN, REQUEST, "pay") is None
    assert not (await guard.decide(ANN, REQUEST, "pay")).allow, "no arguments"
    assert not (await guard.decide(ANN, REQUEST, "pay", arguments={"amount": {1, 2}})).allow, "no JSON"


@pytest.mark.requirement("POL-3")
async def test_the_order_of_arguments_makes_no_difference_and_their_values_do() -> None:
    engine = Slow(EVERYTHING)
    engine.go.set()
    guard = Guard(engine, monotonic=ManualClock().monotonic)
    for arguments in ({"a": 1, "b": 2}, {"b": 2, "a": 1}):
        await guard.decide(ANN, REQUEST, "x", arguments=arguments)
    assert engine.asked == 1
    await guard.decide(ANN, REQUEST, "x", arguments={"a": 1, "b": 3})
    await guard.decide(BOB, REQUEST, "x", arguments={"a": 1, "b": 2})
    await guard.decide(ANN, REQUEST, "x", arguments={"a": 1, "b": 2}, session="s")
    assert engine.asked == 4


@pytest.mark.requirement("POL-3")
@pytest.mark.parametrize(
    ("rule", "read"),
    [
        ('allow if input.tenant == "acme"', set()),
        ('allow if input.context.user == "ann"', {"user"}),
        ("allow if input.context.arguments.path", {"arguments"}),
        ("# input.context.arguments\nallow if input.persona_id", set()),
        ('allow if input.action == "input.context.arguments"', set()),
        ("allow if { x := `\ninput.context.user`; x == input.resource }", set()),
        ('allow if "a" in input.context.scopes', {"scopes"}),
        ('allow if input.context.door == "mcp"', {"door"}),
        ('allow if { input["context"].user }', None),
        ("allow if { c := input.context; c.user }", None),
        ("allow if { i := input; i.context.user }", None),
        ('allow if { object.get(input, "context", {}).user }', None),
        ("allow if { some k; input.context[k] }", None),
        ('allow if { input.context ["user"] }', None),
        ('allow if { input ["tenant"] }', None),
        ("allow if { walk(input, x); x }", None),
        ("import input.context as c\nallow if c.user", None),
        ("import input\nallow if input.tenant", None),
        ('allow if input.tenant == "a#b" # input', set()),
        ("allow if { input.unheard }", None),
    ],
)
def test_what_a_policy_reads_is_found_or_everything_is_assumed(rule: str, read: set[str] | None) -> None:
    assert what_is_read(f"package soma.policy\nimport rego.v1\n{rule}\n") == (
        EVERYTHING if read is None else InputsRead(frozenset(read))
    )


def test_a_template_string_counts_as_reading_everything() -> None:
    assert what_is_read('allow if $"{input.context.arguments.x}" == "y"') == EVERYTHING


@pytest.mark.requirement("POL-3")
async def test_a_rule_on_the_user_holds_for_each_user() -> None:
    guard = guard_of('allow if input.context.user == "ann"\n')
    for _ in range(2):
        assert [(await guard.decide(actor, REQUEST, "x")).allow for actor in (ANN, BOB)] == [True, False]


# -- users' policies


@pytest.mark.requirement("POL-1")
async def test_document_ds_own_policy_runs_unchanged() -> None:
    guard = Guard(EmbeddedRego(POLICY), monotonic=time.monotonic)
    guard.use(data("dangerous_tool"))
    assert await guard.decide(ANN, REQUEST, "memory_load") == Decision(True, "allowed by the policy")
    assert not (await guard.decide(Actor("tenant-1"), REQUEST, "code_execute")).allow


@pytest.mark.requirement("POL-5")
@pytest.mark.parametrize(
    ("rules", "decision"),
    [
        ("allow := true", Decision(True, "allowed by the policy")),
        ("allow := false", Decision(False, "the policy does not allow it")),
        ("allow := 1", Decision(False, "the policy does not allow it")),
        ('allow := "true"', Decision(False, "the policy does not allow it")),
        ("allow if false", Decision(False, "the policy does not allow it")),
        ('allow := true\ndecision := {"allow": false, "reason": "not today"}', Decision(False, "not today")),
        ('allow := false\ndecision := {"allow": true, "reason": "why not"}', Decision(True, "why not")),
        ('allow := true\ndecision := {"allow": true}', Decision(True, "allowed by the policy")),
        (
            'allow := true\ndecision := {"allow": 1, "reason": "?"}',
            Decision(False, "the policy's decision is not {allow, reason}"),
        ),
        ("allow := true\ndecision := true", Decision(False, "the policy's decision is not {allow, reason}")),
        ("allow := true\ndecision := null", Decision(False, "the policy's decision is not {allow, reason}")),
        ("allow := true\ndecision := 7 if false", Decision(True, "allowed by the policy")),
    ],
)
async def test_only_a_clear_yes_of_a_policy_allows(rules: str, decision: Decision) -> None:
    guard = Guard(EmbeddedRego(f"package soma.policy\nimport rego.v1\n{rules}\n"), monotonic=time.monotonic)
    guard.use(data())
    assert await guard.decide(ANN, REQUEST, "memory_load") == decision


@pytest.mark.requirement("POL-2")
async def test_a_policy_that_fails_denies_and_says_where_but_not_with_what() -> None:
    guard = guard_of("allow if {\n  object.get(input.context.arguments.key, 1, 2)\n}\n")
    decision = await guard.decide(ANN, REQUEST, "x", arguments={"key": "s3cret"})
    assert decision == Decision(False, "the policy failed at line 5", sure=False)


@pytest.mark.requirement("POL-2")
async def test_after_a_failure_nobody_gets_the_answer_of_the_caller_before() -> None:
    guard = guard_of('allow if { input.context.user == "ann"; not input.context.arguments.bad }\n')
    assert (await guard.decide(ANN, REQUEST, "x", arguments={})).allow
    deep: Any = []
    for _ in range(200):  # JSON for us, too deep for the engine: it keeps the input that it had
        deep = [deep]
    assert await guard.decide(BOB, REQUEST, "x", arguments={"deep": deep}) == Decision(
        False, "the policy failed", sure=False
    )
    assert not (await guard.decide(BOB, REQUEST, "x", arguments={})).allow
    assert (await guard.decide(ANN, REQUEST, "x", arguments={"again": True})).allow


@pytest.mark.requirement("POL-2")
@pytest.mark.parametrize("policy", [EmbeddedRego.default(), EmbeddedRego(POLICY)], ids=["shipped", "own"])
def test_a_policy_answers_in_every_thread_with_the_data_of_now(policy: EmbeddedRego) -> None:
    question = PolicyQuestion("acme", None, REQUEST, "memory_load", "ann")
    off = policy_data({**DATA, "tool_catalog": {"memory_load": {"enabled": False}}})
    with ThreadPoolExecutor(1) as thread:
        for given, epoch, allow in ((data(), 1, True), (off, 2, False), (data(), 3, True)):
            assert policy.decide(question, given, epoch).decision.allow is allow
            assert thread.submit(policy.decide, question, given, epoch).result().decision.allow is allow


# -- lists


OWN = """
allow if {
    input.action == "tool.view"
    input.resource in ["memory_load", "http_fetch"]
    input.context.user == "ann"
}
"""


@pytest.mark.requirement("POL-7")
async def test_the_list_of_an_actor_is_what_the_policy_lets_it_view() -> None:
    names = sorted(DATA["tool_catalog"])
    guard = guard_of(OWN)
    assert not guard.native
    assert await guard.permitted(ANN, names) == ["http_fetch", "memory_load"]
    assert await guard.permitted(BOB, names) == []
    with pytest.raises(RuntimeError):
        guard.hidden_from(ANN)


@pytest.mark.requirement("POL-7")
async def test_the_shipped_policys_list_needs_no_evaluation() -> None:
    guard = guard_of()
    assert guard.native
    restricted = Actor("tenant-1", "persona-restricted")
    guard.use(policy_data({**DATA, "global_tool_deny": ["memory_save"]}))
    assert set(guard.hidden_from(restricted)) == {"code_execute", "http_fetch", "memory_save"}
    assert set(guard.hidden_from(Actor("tenant-1"))) == {"memory_save"}
    assert await guard.permitted(restricted, [*DATA["tool_catalog"], "no_such_tool"]) == ["memory_load"]


@pytest.mark.requirement("POL-7")
async def test_a_list_of_many_tools_lets_others_have_their_turn() -> None:
    guard = guard_of(OWN)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await guard.permitted(ANN, [f"t{number}" for number in range(500)])
    task.cancel()
    assert turns >= 10


@pytest.mark.requirement("POL-7")
async def test_a_list_that_a_change_overtook_is_made_again() -> None:
    guard = guard_of("allow if not input.resource in data.global_tool_deny\n")
    task = asyncio.create_task(guard.permitted(ANN, [f"t{number}" for number in range(200)]))
    await asyncio.sleep(0)
    guard.use(data("t3"))
    assert "t3" not in await task


# -- shared between processes


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    server = Redis(redis_url)
    yield server
    await server.close()


def sharing(redis: Redis) -> tuple[Guard, Slow]:
    """The guard of a process that asks a server, and shares what it is told."""
    engine = Slow()
    engine.go.set()
    guard = Guard(engine, monotonic=ManualClock().monotonic, seconds=60.0, shared=redis)
    guard.use(policy_data(DATA, epoch=1))
    return guard, engine


async def keys(redis: Redis) -> list[bytes]:
    return [key async for key in redis.client().scan_iter()]


@pytest.mark.matrix("needs Redis")
async def test_a_servers_decision_is_shared_with_other_processes(redis: Redis) -> None:
    (one, first), (two, second) = sharing(redis), sharing(redis)
    made = await one.decide(ANN, REQUEST, "memory_load")
    assert await two.decide(ANN, REQUEST, "memory_load") == made
    assert (first.asked, second.asked) == (1, 0)
    (key,) = await keys(redis)
    assert b"tool:permission:acme:analyst:memory_load:tool.request:" in key
    assert 50 < await redis.client().ttl(key) <= 60


@pytest.mark.matrix("needs Redis")
async def test_what_is_shared_is_not_taken_for_the_answer_to_another_question(redis: Redis) -> None:
    (one, _), (two, second) = sharing(redis), sharing(redis)
    await one.decide(ANN, REQUEST, "memory_load")
    two.use(policy_data(DATA, epoch=2))
    await two.decide(ANN, REQUEST, "memory_load")
    await two.decide(Actor("acme", "analyst", "ann", ("more",)), REQUEST, "memory_load")
    await two.decide(Actor("acme", None, "ann"), REQUEST, "memory_load")
    assert second.asked == 3


@pytest.mark.matrix("needs Redis")
@pytest.mark.parametrize(
    "value",
    [
        b"", b"null", b"true", b"{}", b'{"allow":true}', b'{"allow":1,"reason":"x"}', b'{"allow":true,"reason":""}',
        b'{"allow":true,"reason":"x","more":1}', b"\xff", b'["allow"]',
    ],
)  # fmt: skip
async def test_what_is_not_a_decision_is_not_read_as_one(redis: Redis, value: bytes) -> None:
    one, _ = sharing(redis)
    await one.decide(ANN, REQUEST, "memory_load")
    for key in await keys(redis):
        await redis.client().set(key, value)
    two, second = sharing(redis)
    second.truth = False
    assert not (await two.decide(ANN, REQUEST, "memory_load")).allow
    assert second.asked == 1


@pytest.mark.matrix("needs Redis")
async def test_a_failure_is_not_shared(redis: Redis) -> None:
    guard, engine = sharing(redis)
    engine.sure = False
    await guard.decide(ANN, REQUEST, "memory_load")
    assert await keys(redis) == []


@pytest.mark.matrix("needs Redis")
async def test_what_is_decided_in_this_process_is_not_sent_anywhere(redis: Redis) -> None:
    guard = Guard(EmbeddedRego.default(), monotonic=time.monotonic, shared=redis)
    guard.use(data())
    assert (await guard.decide(ANN, REQUEST, "memory_load")).allow
    assert await keys(redis) == []


@pytest.mark.matrix("needs Redis")
async def test_without_its_redis_a_process_asks_the_server_itself(own_redis: RedisProcess) -> None:
    redis = Redis(own_redis.url)
    guard, engine = sharing(redis)
    await guard.decide(ANN, REQUEST, "memory_load")
    own_redis.stop()
    assert (await guard.decide(ANN, REQUEST, "memory_save")).allow
    assert engine.asked == 2
    await redis.close()
