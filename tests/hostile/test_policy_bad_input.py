"""Policies that do not compile, documents of the wrong shape, engines on the wrong thread: a clear error, never an allow."""

import asyncio
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.soma_policy import DATA, policy_data
from toolgate import Actor
from toolgate.gates.policy import embedded_rego
from toolgate.gates.policy.decisions import Guard
from toolgate.gates.policy.documents import GivenDocument, PolicyData, PolicyError, validate
from toolgate.gates.policy.embedded_rego import ENGINES, EmbeddedRego, default_policy
from toolgate.gates.policy.engine import PolicyQuestion
from toolgate.model import Decision

pytestmark = pytest.mark.requirement("POL-2")
HEAD = "package soma.policy\nimport rego.v1\n"
QUESTION = PolicyQuestion("tenant-2", None, "tool.request", "memory_load", "ann")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "package"),
        ("pakage soma.policy", 1, "package"),
        ("package other.policy\nallow := true", 1, "must begin with `package soma.policy`"),
        ("package soma.policy.more\nallow := true", 1, "must begin with `package soma.policy`"),
        ("package soma.policy\ndecision := true", None, "has no rule `allow`"),
        (HEAD + "allow if {\n", 4, "expecting expression"),
        (HEAD + "allow = 1 2", 3, "expecting identifier"),
        (HEAD + "allow {input.x}", 3, "`if` keyword is required"),
        (HEAD + "allow if { x }", 3, "unsafe"),
        (HEAD + "allow if no_such_function(1)", 3, "no_such_function"),
        (HEAD + "allow if { input.nothing; no_such_function(1) }", 3, "no_such_function"),
        (HEAD + "allow if allow", 3, "recursion"),
        (HEAD + 'allow if "unterminated', 3, ""),
        (HEAD + "allow := true\n\x00\nallow if 1 2", 4, "NUL"),
        ("package soma.policy\n\ud800", None, "surrogates"),
        (HEAD + "allow if { " + "(" * 5_000, 3, ""),
    ],
    ids=range(16),
)
def test_a_policy_that_can_not_be_used_is_refused_with_its_line(text: str, line: int | None, words: str) -> None:
    with pytest.raises(PolicyError) as caught:
        EmbeddedRego(text)
    assert caught.value.line == line
    assert words in str(caught.value)
    assert "backtrace" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"tool_catalog": ...}, "tool_catalog is required"),
        ({"global_tool_deny": ...}, "global_tool_deny is required"),
        ({"tool_catalog": []}, "tool_catalog must be of type object, not array"),
        ({"tool_catalog": {"x": True}}, "tool_catalog.x must be of type object"),
        ({"tool_catalog": {"x": {"enabled": 1}}}, "tool_catalog.x.enabled must be of type boolean, not integer"),
        ({"tool_catalog": {"": {"enabled": True}}}, "tool_catalog has a name that must have at least 1"),
        (
            {"tool_catalog": {"x": {"enabled": True, "requires_permission": []}}},
            "requires_permission must be of type null or string",
        ),
        ({"tenant_tool_flags": {"t": []}}, "tenant_tool_flags.t must be of type object"),
        ({"tenant_tool_flags": {"t": {"x": False}}}, "tenant_tool_flags.t.x must be of type object"),
        ({"persona_tool_deny": {"p": {"x": 1}}}, "persona_tool_deny.p must be of type array"),
        ({"persona_tool_deny": {"p": "x"}}, "persona_tool_deny.p must be of type array"),
        ({"persona_tool_deny": {"p": [["x"]]}}, "persona_tool_deny.p[0] must be of type string"),
        (
            {"persona_permissions": {"p": {"can_add_tools": "yes"}}},
            "persona_permissions.p.can_add_tools must be of type boolean",
        ),
        ({"global_tool_deny": {"x": True}}, "global_tool_deny must be of type array"),
        ({"global_tool_deny": [None]}, "global_tool_deny[0] must be of type string"),
        ({"code_execution_restricted_tenants": "t"}, "code_execution_restricted_tenants must be of type array"),
        ({"tool_catalogue": {}}, "tool_catalogue is no document of a policy"),
        ({"deny_reasons": {"p": {}}}, "deny_reasons.p is no document of a policy"),
        ({"deny_reasons": {"everybody": {"x": 1}}}, "deny_reasons.everybody.x must be of type string"),
        ({"tenant_tool_catalog": {"t": {"x": {}}}}, "tenant_tool_catalog.t.x.enabled is required"),
    ],
)
def test_documents_of_the_wrong_shape_are_refused(change: dict[str, Any], fault: str) -> None:
    documents = {name: value for name, value in {**DATA, **change}.items() if value is not ...}
    assert any(fault in found for found in validate(documents))
    with pytest.raises(PolicyError, match="The policy data is refused"):
        GivenDocument(documents)


def test_all_faults_are_named_up_to_a_limit() -> None:
    assert len(validate({**DATA, "tool_catalog": {f"t{number}": None for number in range(1000)}})) == 20
    assert validate([]) == ["it must be of type object, not array"]
    assert validate({**DATA, "tool_catalog": {"": {"enabled": 1}, "0": {"enabled": 1}}})


async def test_data_that_the_engine_can_not_hold_denies() -> None:
    guard = Guard(EmbeddedRego(default_policy()), monotonic=time.monotonic)
    catalog: dict[str, Any] = {"x": {"enabled": True, "odd": object()}}
    guard.use(PolicyData(lambda tool, _tenant: catalog.get(tool), lambda: catalog))
    assert (await guard.decide(Actor(), "tool.request", "x")).reason == "the policy failed"
    del catalog["x"]["odd"]
    guard.forget()
    assert (await guard.decide(Actor(), "tool.request", "x")).allow


async def test_a_catalog_that_is_broken_denies_or_raises_but_never_allows() -> None:
    def broken(_tool: str, _tenant: str) -> dict[str, Any]:
        raise LookupError("no catalog")

    guard = Guard(EmbeddedRego.default(), monotonic=time.monotonic)
    guard.use(PolicyData(broken, tuple))
    with pytest.raises(LookupError):
        await guard.decide(Actor(), "tool.request", "x")
    assert guard.known(Actor(), "tool.request", "x") is None


@pytest.mark.matrix("compiles policies in many threads")
@pytest.mark.parametrize("make", [EmbeddedRego.default, lambda: EmbeddedRego(default_policy())], ids=["shipped", "own"])
def test_a_policy_may_be_let_go_by_any_thread(make: Any) -> None:
    """The engine's objects may not: whoever collects a policy must not drop what other threads made for it."""
    data = policy_data(DATA)
    for _ in range(3):
        policy = make()
        assert policy.decide(QUESTION, data, 0).decision.allow
        cycle: list[Any] = [policy]
        cycle.append(cycle)
        del policy, cycle
        collector = threading.Thread(target=gc.collect)
        collector.start()
        collector.join()


@pytest.mark.parametrize("make", [EmbeddedRego.default, lambda: EmbeddedRego(default_policy())], ids=["shipped", "own"])
def test_an_engine_in_the_wrong_hands_panics_and_denies(make: Any) -> None:
    """A panic is no Exception; it must not get past the policy, and the thread must get an engine of its own."""
    policy, data = make(), policy_data(DATA)
    assert policy.decide(QUESTION, data, 0).decision.allow
    engine = embedded_rego._HERE.engines[policy._key]

    def steal() -> list[Decision]:
        embedded_rego._HERE.engines[policy._key] = engine
        return [policy.decide(QUESTION, data, epoch).decision for epoch in (1, 2)]

    with ThreadPoolExecutor(1) as thread:
        first, second = thread.submit(steal).result()
    assert first == Decision(False, "the policy failed")
    assert second.allow
    assert policy.decide(QUESTION, data, 3).decision.allow


def test_a_thread_keeps_a_few_policies_and_answers_for_all() -> None:
    data = policy_data(DATA)
    policies = [EmbeddedRego(f"{HEAD}allow if input.resource == {name!r}".replace("'", '"')) for name in "abcdefghijklmnop"]
    assert len(policies) > ENGINES
    for _ in range(2):
        for name, policy in zip("abcdefghijklmnop", policies, strict=True):
            allowed = [
                tool
                for tool in "ahp"
                if policy.decide(PolicyQuestion("t", None, "tool.view", tool, "u"), data, 0).decision.allow
            ]
            assert allowed == ([name] if name in "ahp" else [])


def test_two_guards_with_one_policy_never_share_data() -> None:
    policy = EmbeddedRego(default_policy())
    guards = []
    for denied in ([], ["memory_load"]):
        guard = Guard(policy, monotonic=time.monotonic)
        guard.use(policy_data({**DATA, "global_tool_deny": denied}))
        guards.append(guard)
    assert guards[0].epoch == guards[1].epoch
    for _ in range(2):
        answers = [asyncio.run(guard.decide(Actor(), "tool.request", "memory_load")).allow for guard in guards]
        assert answers == [True, False]
        for guard in guards:
            guard.forget()
