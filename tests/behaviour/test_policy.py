"""The shipped policy on the example data of soma.policy: that policy's answers, but for those that let too much through,
from every engine alike."""

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.opa_server import Opa, running
from tests.soma_policy import DATA, POLICY, policy_data
from toolgate import Actor
from toolgate.gates.policy.decisions import Guard
from toolgate.gates.policy.documents import GivenDocument
from toolgate.gates.policy.embedded_rego import EmbeddedRego, default_policy
from toolgate.gates.policy.engine import EVERYTHING, Action, PolicyQuestion
from toolgate.gates.policy.opa import OpaServer
from toolgate.model import Decision

pytestmark = pytest.mark.requirement("POL-1", "POL-2", "POL-5")
Ask = Callable[[Actor, Action, str], Awaitable[Decision]]


@pytest.fixture(scope="module")
def opa() -> Iterator[Opa]:
    """A server with our policy on the example data."""
    with running() as server:
        server.load(default_policy(), DATA)
        yield server


@pytest.fixture(scope="module")
def d(opa: Opa) -> Iterator[Opa]:  # noqa: ARG001 - two of them start no quicker at once
    """A server with the first soma.policy on the example data."""
    with running() as server:
        server.load(POLICY, DATA)
        yield server


@pytest.fixture(params=["embedded", "opa", "oracle"])
async def ask(request: pytest.FixtureRequest, opa: Opa) -> Any:
    """How the question is put: in this process, through our client to a server, or to OPA's evaluator directly."""
    if request.param == "oracle":

        async def evaluate(actor: Actor, action: Action, tool: str) -> Decision:
            return Decision(**opa.evaluate("decision", asked(actor, action, tool)))

        yield evaluate
        return
    engine = EmbeddedRego.default() if request.param == "embedded" else OpaServer(opa.url)
    guard = Guard(engine, monotonic=time.monotonic)
    guard.use(policy_data(DATA))
    yield guard.decide
    if isinstance(engine, OpaServer):
        await engine.close()


def asked(actor: Actor, action: str, tool: str) -> dict[str, Any]:
    return PolicyQuestion(actor.tenant, actor.persona, action, tool, actor.user, actor.scopes).input(EVERYTHING)


class Case(NamedTuple):
    """A question, and its answer: whether it is allowed, words of the reason, and whether D says so too."""

    action: Action
    tenant: str
    persona: str | None
    tool: str
    allow: bool
    reason: str
    as_d: bool = True

    def __str__(self) -> str:
        return f"{self.action} {self.tenant} {self.persona} {self.tool}"


VIEW: Action = "tool.view"
REQUEST: Action = "tool.request"
ENABLE: Action = "tool.enable"

CASES = [
    # the catalog's own flags: a tenant that nobody wrote down, and a persona that nobody wrote down, get them
    *(
        Case(action, tenant, persona, tool, True, f"{tool} is enabled")
        for action in (VIEW, REQUEST)
        for tenant, persona, tool in (
            ("tenant-2", None, "memory_load"),
            ("tenant-2", "persona-user", "memory_save"),
            ("tenant-9", "nobody-knows", "http_fetch"),
            ("tenant-1", None, "memory_load"),
            ("tenant-2", "persona-admin", "code_execute"),
        )
    ),
    # a tenant's flag
    Case(VIEW, "tenant-1", None, "code_execute", False, "code_execute is disabled for tenant tenant-1"),
    Case(REQUEST, "tenant-1", "persona-admin", "code_execute", False, "code_execute is disabled for tenant tenant-1"),
    # a persona's deny list
    Case(
        VIEW, "tenant-2", "persona-restricted", "code_execute", False, "persona persona-restricted: denied to this persona"
    ),
    Case(REQUEST, "tenant-2", "persona-restricted", "code_execute", False, "persona persona-restricted"),
    Case(VIEW, "tenant-2", "persona-restricted", "http_fetch", False, "persona persona-restricted"),
    Case(REQUEST, "tenant-2", "persona-restricted", "http_fetch", False, "persona persona-restricted"),
    Case(REQUEST, "tenant-2", "persona-restricted", "memory_load", True, "memory_load is enabled"),
    # tenants that may not run code see the tool all the same
    Case(REQUEST, "tenant-sandbox", None, "code_execute", False, "tenant tenant-sandbox may not run code"),
    Case(VIEW, "tenant-sandbox", None, "code_execute", True, "code_execute is enabled"),
    Case(REQUEST, "tenant-sandbox", None, "http_fetch", True, "http_fetch is enabled"),
    # adding tools
    Case(ENABLE, "tenant-2", "persona-admin", "brand_new", True, "persona persona-admin may add tools"),
    Case(ENABLE, "tenant-1", "persona-admin", "code_execute", True, "persona persona-admin may add tools"),
    Case(
        ENABLE, "tenant-2", "persona-user", "brand_new", False, "persona persona-user was not given the right to add tools"
    ),
    Case(ENABLE, "tenant-2", "persona-admin", "dangerous_tool", False, "dangerous_tool is denied to everybody"),
    # where D allows and we do not: CONTRACTS section 4
    Case(VIEW, "tenant-2", None, "no_such_tool", False, "no_such_tool is not in the catalog", as_d=False),
    Case(REQUEST, "tenant-2", None, "no_such_tool", False, "no_such_tool is not in the catalog", as_d=False),
    Case(REQUEST, "tenant-2", None, "Code_Execute", False, "Code_Execute is not in the catalog", as_d=False),
    Case(REQUEST, "tenant-sandbox", None, "code_execute ", False, "is not in the catalog", as_d=False),
    Case(VIEW, "tenant-2", None, "dangerous_tool", False, "dangerous_tool is denied to everybody", as_d=False),
    Case(REQUEST, "tenant-2", None, "dangerous_tool", False, "dangerous_tool is denied to everybody", as_d=False),
    Case(ENABLE, "tenant-2", "nobody-knows", "brand_new", False, "persona nobody-knows was not given", as_d=False),
    Case(ENABLE, "tenant-2", None, "brand_new", False, "nobody may add tools without a persona", as_d=False),
]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_question_has_its_answer_and_its_reason(ask: Ask, case: Case) -> None:
    decision = await ask(Actor(case.tenant, case.persona, "ann"), case.action, case.tool)
    assert decision.allow is case.allow
    assert case.reason in decision.reason


@pytest.mark.parametrize("case", CASES, ids=str)
def test_document_d_says_so_too_unless_it_is_an_exception(d: Opa, case: Case) -> None:
    said = d.evaluate("allow", asked(Actor(case.tenant, case.persona, "ann"), case.action, case.tool))
    assert said is (case.allow if case.as_d else True)


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 30
    assert {(case.action, case.allow) for case in CASES} == {
        (action, allow) for action in (VIEW, REQUEST, ENABLE) for allow in (True, False)
    }


# -- what input and data could be, and the first policy lets through


@pytest.mark.parametrize("key", ["tenant", "persona_id", "action", "resource", "context"])
@pytest.mark.parametrize("value", [..., None, "", 7, False, [], {}], ids=repr)
@pytest.mark.parametrize("action", [VIEW, REQUEST])
def test_an_input_that_is_not_whole_is_denied(opa: Opa, key: str, value: Any, action: str) -> None:
    whole = asked(Actor("tenant-2", "persona-user"), action, "memory_load")
    if value is ...:
        del whole[key]
    else:
        whole[key] = value
    answer = EmbeddedRego.default().evaluate(whole, DATA).decision
    assert Decision(**opa.evaluate("decision", whole)) == answer
    assert opa.evaluate("allow", whole) is answer.allow
    assert answer.allow is (key == "persona_id" and value is None), "no persona is a persona that nobody wrote down"


DOCUMENTS = sorted(DATA)


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("value", [..., None, False, True, "", "memory_load", 7], ids=repr)
def test_a_document_that_is_missing_or_no_document_denies_everything(document: str, value: Any) -> None:
    documents = {name: content for name, content in DATA.items() if name != document}
    if value is not ...:
        documents[document] = value
    for action, tool in ((VIEW, "memory_load"), (REQUEST, "memory_load"), (ENABLE, "brand_new")):
        answer = EmbeddedRego.default().evaluate(asked(Actor("tenant-2", "persona-admin"), action, tool), documents)
        assert answer.decision == Decision(False, "the policy's data is missing or malformed")


@pytest.mark.parametrize(
    ("document", "value"),
    [
        ("tool_catalog", {"memory_load": False}),
        ("tool_catalog", {"memory_load": None}),
        ("tool_catalog", {"memory_load": {}}),
        ("tool_catalog", {"memory_load": {"enabled": "true"}}),
        ("tool_catalog", {"memory_load": {"enabled": 1}}),
        ("tool_catalog", {"memory_load": {"enabled": True, "requires_permission": 7}}),
        ("tool_catalog", {"memory_load": {"enabled": True, "requires_permission": ""}}),
        ("tenant_tool_flags", {"tenant-2": {"memory_load": False}}),
        ("tenant_tool_flags", {"tenant-2": {"memory_load": None}}),
        ("tenant_tool_flags", {"tenant-2": {"memory_load": {}}}),
        ("tenant_tool_flags", {"tenant-2": False}),
        ("persona_tool_deny", {"persona-user": {"0": "memory_load"}}),
        ("persona_tool_deny", {"persona-user": "memory_load"}),
        ("persona_tool_deny", {"persona-user": [["memory_load"]]}),
        ("persona_tool_deny", {"persona-user": None}),
        ("global_tool_deny", {"memory_load": True}),
        ("global_tool_deny", [None]),
        ("code_execution_restricted_tenants", [""]),
    ],
    ids=str,
)
def test_a_malformed_value_denies(document: str, value: Any) -> None:
    whole = asked(Actor("tenant-2", "persona-user"), REQUEST, "memory_load")
    assert EmbeddedRego.default().evaluate(whole, DATA).decision.allow
    assert not EmbeddedRego.default().evaluate(whole, {**DATA, document: value}).decision.allow


# -- scopes and reasons


SCOPED: dict[str, Any] = {**DATA, "tool_catalog": {"web": {"enabled": True, "requires_permission": "tool:web"}}}


@pytest.mark.parametrize(
    ("scopes", "allow"),
    [((), False), (("tool:web",), True), (("a", "tool:web"), True), (("tool:Web",), False), (("tool:web_search",), False)],
)
async def test_a_tool_that_requires_a_permission_is_called_only_with_it_but_seen_without(
    scopes: tuple[str, ...], allow: bool
) -> None:
    guard = Guard(EmbeddedRego.default(), monotonic=time.monotonic)
    guard.use(policy_data(SCOPED))
    caller = Actor("acme", None, "ann", scopes)
    decision = await guard.decide(caller, REQUEST, "web")
    assert decision.allow is allow
    assert allow or "web needs the permission tool:web" in decision.reason
    assert (await guard.decide(caller, VIEW, "web")).allow


async def test_a_denial_gives_the_reason_that_an_operator_gave() -> None:
    reasons = {
        "personas": {"persona-restricted": {"http_fetch": "no network in exams"}},
        "everybody": {"dangerous_tool": "it bites"},
    }
    guard = Guard(EmbeddedRego.default(), monotonic=time.monotonic)
    guard.use(policy_data({**DATA, "deny_reasons": reasons}))
    learner = Actor("tenant-2", "persona-restricted")
    assert (await guard.decide(learner, REQUEST, "http_fetch")).reason == "persona persona-restricted: no network in exams"
    assert (await guard.decide(learner, VIEW, "dangerous_tool")).reason == "dangerous_tool is denied to everybody: it bites"


async def test_a_tool_of_one_tenant_is_in_the_catalog_for_that_tenant_alone(opa: Opa) -> None:
    documents = {**DATA, "tenant_tool_catalog": {"acme": {"theirs": {"enabled": True}}}}
    guard = Guard(EmbeddedRego.default(), monotonic=time.monotonic)
    data = policy_data(documents)
    guard.use(data)
    whole = data.whole()
    opa.load(default_policy(), whole)
    try:
        for tenant, allow in (("acme", True), ("globex", False)):
            actor = Actor(tenant)
            assert (await guard.decide(actor, REQUEST, "theirs")).allow is allow
            assert opa.evaluate("allow", asked(actor, REQUEST, "theirs")) is allow
            assert EmbeddedRego(default_policy()).evaluate(asked(actor, REQUEST, "theirs"), whole).decision.allow is allow
    finally:
        opa.load(default_policy(), DATA)


async def test_an_enforced_tool_is_beyond_a_tenants_flag() -> None:
    documents = {**DATA, "tenant_tool_flags": {"acme": {"memory_load": {"enabled": False}}}}
    guard = Guard(EmbeddedRego.default(), monotonic=time.monotonic)
    guard.use(policy_data(documents))
    assert not (await guard.decide(Actor("acme"), REQUEST, "memory_load")).allow
    enforced = policy_data(documents, enforced=("memory_load",))
    guard.use(enforced)
    assert (await guard.decide(Actor("acme"), REQUEST, "memory_load")).allow
    assert enforced.whole()["tenant_tool_flags"] == {"acme": {}}


def test_a_slice_and_the_whole_give_the_same_answers() -> None:
    policy, data = EmbeddedRego.default(), policy_data(DATA)
    for case in CASES:
        question = PolicyQuestion(case.tenant, case.persona, case.action, case.tool, "ann")
        expected = policy.evaluate(question.input(EVERYTHING), data.whole()).decision
        assert policy.decide(question, data, 0).decision == expected
        assert policy.decide(question, GivenDocument(DATA), 0).decision.allow is expected.allow
