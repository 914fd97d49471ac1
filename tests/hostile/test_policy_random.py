"""Random data, whole and malformed, and random questions: the engine in this process never allows what OPA denies, the list
made without Rego is the list that Rego makes, and nothing stale is ever given out."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.examples import at_most
from tests.opa_server import Opa, running
from tests.soma_policy import POLICY, policy_data
from toolgate import Actor
from toolgate.gates.policy.decisions import Guard, lets_request
from toolgate.gates.policy.documents import GivenDocument, validate
from toolgate.gates.policy.embedded_rego import EmbeddedRego, default_policy
from toolgate.gates.policy.engine import ACTIONS, EVERYTHING, PolicyQuestion
from toolgate.testing import ManualClock

pytestmark = pytest.mark.requirement("POL-1", "POL-2")

TOOLS = ("memory_load", "code_execute", "Code_Execute", "code_execute ", "dangerous", 'qu"ote', "ünï")
TENANTS = ("acme", "Acme", "globex", "ten\tant")
PERSONAS = ("admin", "user", "ädmin")
SCOPES = ("tool:a", "tool:A", "b")


@pytest.fixture(scope="module")
def opa() -> Iterator[Opa]:
    with running() as server:
        yield server


# -- data

Documents = dict[str, Any]
Asked = dict[str, Any]

tenants, personas = st.sampled_from(TENANTS), st.sampled_from([None, *PERSONAS])
odd = st.sampled_from(
    [None, False, True, 0, 1, 1.5, "", "true", "acme", [], ["memory_load"], [""], [None], {}, {"enabled": "true"}]
)


def now_and_then_odd(usual: st.SearchStrategy[Any], one_in: int = 12) -> st.SearchStrategy[Any]:
    return st.integers(0, one_in - 1).flatmap(lambda number: odd if number == 0 else usual)


def documents(spoil: Any) -> st.SearchStrategy[dict[str, Any]]:
    """The first policy's documents and ours; `spoil` makes parts of them something else."""
    entry = st.fixed_dictionaries(
        {"enabled": spoil(st.booleans())},
        optional={
            "requires_permission": spoil(st.sampled_from([None, "tool:a", "b"])),
            "runs_code": spoil(st.booleans()),
        },
    )
    flag = st.fixed_dictionaries({"enabled": spoil(st.booleans())})
    may = st.fixed_dictionaries({"can_add_tools": spoil(st.booleans())})
    flags = st.dictionaries(st.sampled_from(TOOLS), spoil(flag), max_size=4)
    reasons = st.dictionaries(st.sampled_from(TOOLS), spoil(st.just("why")), max_size=2)
    some_tools = st.dictionaries(st.sampled_from(TOOLS), spoil(entry), max_size=5)
    names = st.lists(spoil(st.sampled_from(TOOLS)), max_size=3)
    return st.fixed_dictionaries(
        {
            "tool_catalog": spoil(some_tools),
            "tenant_tool_flags": spoil(st.dictionaries(tenants, spoil(flags), max_size=3)),
            "persona_tool_deny": spoil(st.dictionaries(st.sampled_from(PERSONAS), spoil(names), max_size=2)),
            "global_tool_deny": spoil(st.lists(spoil(st.sampled_from(TOOLS)), max_size=2)),
            "code_execution_restricted_tenants": spoil(st.lists(spoil(st.sampled_from(TENANTS)), max_size=2)),
            "persona_permissions": spoil(st.dictionaries(st.sampled_from(PERSONAS), spoil(may), max_size=2)),
        },
        optional={
            "tenant_tool_catalog": spoil(st.dictionaries(st.sampled_from(TENANTS), spoil(some_tools), max_size=2)),
            "deny_reasons": spoil(st.fixed_dictionaries({"everybody": spoil(reasons)})),
        },
    )


sound = documents(lambda usual: usual)
spoilt = documents(now_and_then_odd)
with_holes = st.builds(
    lambda whole, gone: {name: value for name, value in whole.items() if name != gone},
    spoilt,
    st.sampled_from([None, None, None, "tool_catalog", "tenant_tool_flags", "global_tool_deny", "persona_permissions"]),
)


# -- questions


def build(tenant: Any, persona: Any, action: Any, tool: Any, scopes: Any) -> dict[str, Any]:
    return PolicyQuestion(tenant, persona, action, tool, "ann", scopes).input(EVERYTHING, resources=list(TOOLS))


usual_question = st.builds(
    build,
    tenants,
    personas,
    st.sampled_from(sorted(ACTIONS)),
    st.sampled_from(TOOLS),
    st.lists(st.sampled_from(SCOPES), max_size=2),
)
odd_question = st.builds(
    lambda whole, key, value, gone: {name: value if name == key else part for name, part in whole.items() if name != gone},
    usual_question,
    st.sampled_from(["tenant", "persona_id", "action", "resource", "context", "resources", None]),
    odd,
    st.sampled_from(["tenant", "persona_id", "action", "resource", "context", "resources", None, None, None]),
)
questions = st.lists(st.one_of(usual_question, odd_question), min_size=8, max_size=8)


@at_most(80)
@given(data=st.one_of(sound, spoilt, with_holes), asked=questions)
def test_the_shipped_policy_says_what_opa_says_in_every_engine(opa: Opa, data: Documents, asked: list[Asked]) -> None:
    opa.load(default_policy(), data)
    for question in asked:
        said = opa.evaluate("decision", question)
        assert said["allow"] is opa.evaluate("allow", question)
        for policy in (SHIPPED, AS_A_USERS):
            verdict = policy.evaluate(question, data)
            assert {"allow": verdict.decision.allow, "reason": verdict.decision.reason} == said
            assert verdict.sure


SHIPPED, AS_A_USERS = EmbeddedRego.default(), EmbeddedRego(default_policy())


@at_most(40)
@given(data=st.one_of(sound, spoilt, with_holes), asked=questions)
def test_the_shipped_policy_never_allows_what_document_d_denies(opa: Opa, data: Documents, asked: list[Asked]) -> None:
    allowed = [question for question in asked if SHIPPED.evaluate(question, data).decision.allow]
    opa.load(POLICY, data)
    for question in allowed:
        # its catalog is one for all; what a tenant has of its own is in no catalog there, so it lets that through
        assert opa.evaluate("allow", question) is True


@at_most(40)
@given(data=st.one_of(sound, spoilt), asked=st.lists(usual_question, min_size=8, max_size=8))
def test_a_users_policy_never_allows_here_what_opa_denies(opa: Opa, data: Documents, asked: list[Asked]) -> None:
    """The first policy, with all its holes: with the five keys there, both see the same holes."""
    policy = EmbeddedRego(POLICY)
    opa.load(POLICY, data)
    for question in asked:
        assert policy.evaluate(question, data).decision.allow is opa.evaluate("allow", question)


@at_most(40)
@given(data=sound, tenant=tenants, persona=personas)
def test_the_batch_rule_permits_what_the_single_rule_allows(
    opa: Opa, data: Documents, tenant: str, persona: str | None
) -> None:
    opa.load(default_policy(), data)
    for action in sorted(ACTIONS):
        batch = build(tenant, persona, action, "", ["tool:a"])
        one_by_one = [tool for tool in TOOLS if opa.evaluate("allow", build(tenant, persona, action, tool, ["tool:a"]))]
        assert sorted(opa.evaluate("permitted", batch)) == sorted(one_by_one)


# -- without Rego


@pytest.mark.requirement("POL-7")
@given(
    data=sound,
    tenant=st.sampled_from(TENANTS),
    persona=st.sampled_from([None, *PERSONAS]),
    enforced=st.sets(st.sampled_from(TOOLS)),
)
def test_the_list_made_without_rego_is_the_list_that_rego_makes(
    data: dict[str, Any], tenant: str, persona: str | None, enforced: set[str]
) -> None:
    given_data = policy_data(data, enforced=enforced)
    guard = Guard(SHIPPED, monotonic=ManualClock().monotonic)
    guard.use(given_data)
    actor = Actor(tenant.replace("\t", " "), persona)
    decided = []
    for tool in TOOLS:
        decision = asyncio.run(guard.decide(actor, "tool.view", tool))
        whole = AS_A_USERS.evaluate(build(actor.tenant, persona, "tool.view", tool, ()), given_data.whole())
        assert whole.decision == decision
        if decision.allow:
            decided.append(tool)
    assert asyncio.run(guard.permitted(actor, TOOLS)) == decided
    assert not set(guard.hidden_from(actor)) & set(decided)


@given(
    data=sound,
    tenant=st.sampled_from(TENANTS),
    persona=st.sampled_from([None, *PERSONAS]),
    scopes=st.lists(st.sampled_from(SCOPES), max_size=2).map(tuple),
    enforced=st.sets(st.sampled_from(TOOLS)),
)
def test_the_yes_given_without_rego_is_the_yes_that_rego_gives(
    data: dict[str, Any], tenant: str, persona: str | None, scopes: tuple[str, ...], enforced: set[str]
) -> None:
    given_data = policy_data(data, enforced=enforced)
    for tool in TOOLS:
        question = PolicyQuestion(tenant.replace("\t", " "), persona, "tool.request", tool, "user", scopes)
        rego = SHIPPED.decide(question, given_data, 0).decision
        without = lets_request(given_data, question)
        assert (without == rego) if rego.allow else without is None


# -- what is not malformed is not refused, and the other way round


@at_most(80)
@given(data=sound)
def test_sound_documents_are_taken_and_their_slices_decide_the_same(data: dict[str, Any]) -> None:
    assert validate(data) == []
    question = PolicyQuestion("acme", "admin", "tool.request", "memory_load", "ann", ("tool:a",))
    sliced = SHIPPED.decide(question, GivenDocument(data), 0).decision
    assert sliced == SHIPPED.evaluate(question.input(EVERYTHING), data).decision


@at_most(80)
@given(data=st.one_of(spoilt, with_holes, st.dictionaries(st.text(max_size=5), odd), odd))
def test_whatever_documents_are_given_the_answer_is_a_list_of_faults(data: Any) -> None:
    faults = validate(data)
    assert all(isinstance(fault, str) and fault for fault in faults)
    if not faults:
        assert set(data) >= {"tool_catalog", "tenant_tool_flags", "persona_tool_deny", "persona_permissions"}


# -- never stale


class Changing(RuleBasedStateMachine):
    """Flags, policies and time change in any order; a remembered answer is always the one that would be made now."""

    @initialize()
    def begin(self) -> None:
        self.clock = ManualClock()
        self.guard = Guard(SHIPPED, monotonic=self.clock.monotonic, seconds=60.0, max_entries=6)
        self.documents: dict[str, Any] = {
            "tool_catalog": {"a": {"enabled": True}, "b": {"enabled": True}},
            "tenant_tool_flags": {}, "persona_tool_deny": {}, "global_tool_deny": [],
            "code_execution_restricted_tenants": [], "persona_permissions": {},
        }  # fmt: skip
        self.guard.use(policy_data(self.documents))

    @rule(tenant=st.sampled_from(["x", "y"]), tool=st.sampled_from("ab"))
    def ask(self, tenant: str, tool: str) -> None:
        asyncio.run(self.guard.decide(Actor(tenant), "tool.request", tool))

    @rule(tenant=st.sampled_from(["x", "y"]), tool=st.sampled_from("ab"), on=st.booleans())
    def flag(self, tenant: str, tool: str, on: bool) -> None:
        self.documents["tenant_tool_flags"] = {**self.documents["tenant_tool_flags"], tenant: {tool: {"enabled": on}}}
        self.guard.use(policy_data(self.documents))

    @rule(tools=st.lists(st.sampled_from("ab"), unique=True))
    def deny(self, tools: list[str]) -> None:
        self.documents["global_tool_deny"] = tools
        self.guard.use(policy_data(self.documents))

    @rule(own=st.booleans())
    def replace_policy(self, own: bool) -> None:
        self.guard.set_engine(EmbeddedRego(POLICY) if own else SHIPPED)

    @rule(seconds=st.floats(0, 100))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def what_is_remembered_is_true(self) -> None:
        for tenant in ("x", "y"):
            for tool in "ab":
                known = self.guard.known(Actor(tenant), "tool.request", tool)
                if known is not None:
                    fresh = Guard(self.guard.engine, monotonic=self.clock.monotonic)
                    fresh.use(policy_data(self.documents))
                    assert known == asyncio.run(fresh.decide(Actor(tenant), "tool.request", tool))


@pytest.mark.requirement("POL-4")
def test_nothing_stale_is_ever_given_out() -> None:
    run_state_machine_as_test(Changing, settings=settings(at_most(25), stateful_step_count=20))
