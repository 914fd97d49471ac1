"""Policies are checked before they decide: references that can't exist, and rules that fail on a sample call."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.opa_server import running
from tests.soma_policy import POLICY
from toolgate import tool
from toolgate.errors import ToolgateError
from toolgate.gates.policy.documents import PolicyError
from toolgate.gates.policy.embedded_rego import EmbeddedRego, default_policy
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("POL-8")
HEAD = "package soma.policy\nimport rego.v1\ndefault allow := false\n"
MISSPELLED = HEAD + "denied if input.context.argumnets.amount > 100\nallow if not denied\n"


@tool(tier="write")
async def pay(amount: int) -> int:
    """Pay an amount."""
    return amount


async def test_a_misspelled_field_under_not_keeps_the_policy_from_loading(tmp_path: Path) -> None:
    file = tmp_path / "own.rego"
    file.write_text(MISSPELLED)
    with pytest.raises(
        ToolgateError, match=r"line 4: input\.context\.argumnets does not exist \(did you mean input\.context"
    ):
        async with memory_app(policy={"file": file}):
            pass
    file.write_text(MISSPELLED.replace("argumnets", "arguments"))
    async with memory_app(policy={"file": file}) as app:
        app.register(pay)
        assert (await app.invoke("pay", {"amount": 100})).ok
        assert (await app.invoke("pay", {"amount": 101})).status == "denied"


@pytest.mark.parametrize(
    ("rules", "line", "path"),
    [
        ("allow if input.tennant == 1", 4, "input.tennant"),
        ('allow if input["tennant"] == 1', 4, "input.tennant"),
        ("allow if input.context.scope == 1", 4, "input.context.scope"),
        ("allow if input.tenant.name == 1", 4, "input.tenant.name"),
        ("allow if {\n  c := input.context\n  c.argumnets.x > 1\n}", 6, "input.context.argumnets"),
        ("c := input.context\nallow if not c.argumnets", 5, "input.context.argumnets"),
        ("allow if not bad\nbad contains x if some x in input.context.argument", 5, "input.context.argument"),
        ('allow if object.get(input.context, "argumnets", {}) == {}', 4, "input.context.argumnets"),
        ("allow if every x in input.contxt.scopes { x }", 4, "input.contxt"),
        ("allow if count([x | x := input.context.argumnets[_]]) == 0", 4, "input.context.argumnets"),
        ("f(x) if x > 1\nallow if not f(input.context.argumnets.amount)", 5, "input.context.argumnets"),
        ("allow if data.tool_catalogue[input.resource].enabled", 4, "data.tool_catalogue"),
        ("allow if data.tool_catalog[input.resource].enabld", 4, "data.tool_catalog[…].enabld"),
        ('allow if not data["blocked"][input.resource]', 4, "data.blocked"),
        ("allow if not data.persona_permissions[input.persona_id].can_add", 4, "data.persona_permissions[…].can_add"),
        ("allow if not data.tenant_tool_flags[input.tenant][input.resource].on", 4, "data.tenant_tool_flags[…][…].on"),
        ("allow if not data.soma.policy.denyed\ndenied if false", 4, "data.soma.policy.denyed"),
        ("allow if input.context.user == data.tool_catalog[input.contxt.x].enabled", 4, "input.contxt"),
        ("import input.context as c\nallow if not c.argumnets", 5, "input.context.argumnets"),
        ("import data.tool_catalog as known\nallow if not known[input.resource].enbaled", 5, "data.tool_catalog[…].enbaled"),
        ("allow if true with input.contxt as {}", 4, "input.contxt"),
    ],
)  # fmt: skip
def test_a_reference_that_can_not_exist_is_refused_with_its_line(rules: str, line: int, path: str) -> None:
    imports, others = [part for part in rules.split("\n") if part.startswith("import")], HEAD
    if imports:  # imports stand before all rules
        others = HEAD.replace("default", "\n".join([*imports, "default"]), 1)
        rules = "\n".join(part for part in rules.split("\n") if not part.startswith("import"))
    with pytest.raises(PolicyError) as caught:
        EmbeddedRego(others + rules + "\n")
    assert caught.value.line == line
    assert f"line {line}: {path} does not exist" in str(caught.value)


@pytest.mark.parametrize(
    "rules",
    [
        "allow if input.context.arguments.anything.at[2].all",
        "allow if { some k; input.context[k] == 1 }",
        "allow if input[data.global_tool_deny[0]]",
        "allow if { some tool, entry in data.tool_catalog; entry.enabled; tool == input.resource }",
        'allow if { c := {"argumnets": 1}; c.argumnets == 1 }',
        "f(input_) := input_.whatever\nallow if f(input.context.arguments)",
        "allow if { some input_ in input.context.scopes; input_ == input.tenant }",
        "allow if data.soma.policy.helper\nhelper if input.context.door",
        "allow if input.resource in input.resources",
        "allow if data.tool_catalog[input.resource].runs_code == false",
        'allow if "input.nothing" == input.tenant # input.nothing',
    ],
)
def test_a_reference_that_may_exist_is_not_refused(rules: str) -> None:
    EmbeddedRego(f"{HEAD}{rules}\n")


def test_the_policies_that_others_wrote_are_taken() -> None:
    for text in (POLICY, default_policy()):
        EmbeddedRego(text)


FIELDS = st.sampled_from(["user", "scopes", "session", "door", "tier", "arguments"])
KEYS = st.text(st.sampled_from("abcdefgostuvxyz_"), min_size=1, max_size=8)


@given(field=st.one_of(FIELDS, KEYS), bracket=st.booleans(), negated=st.booleans())
def test_exactly_the_fields_that_a_call_has_are_taken(field: str, bracket: bool, negated: bool) -> None:
    if field in ("if", "in", "as", "not", "some", "every", "else", "with"):
        return
    path = f'input.context["{field}"]' if bracket else f"input.context.{field}"
    text = f"{HEAD}allow if {'not ' if negated else ''}{path}\n"
    if field in ("user", "scopes", "session", "door", "tier", "arguments"):
        EmbeddedRego(text)
    else:
        with pytest.raises(PolicyError, match="does not exist"):
            EmbeddedRego(text)


# -- rules that fail


@pytest.mark.parametrize(
    ("rules", "line", "words"),
    [
        ('allow if startswith(input.context.session, "a")', 4, "session null"),
        ("allow if sum(input.context.arguments) > 1", 4, "`sum` requires"),
        ('x := 1 if input.action == "tool.enable"\nx := 2 if input.persona_id == null\nallow if x', 5, "tool.enable"),
        ('allow if true\ndecision := {"allow": 1 / 0 == 1}', 5, "divide by zero"),
    ],
)
def test_a_policy_that_fails_on_a_sample_call_is_refused(rules: str, line: int, words: str) -> None:
    with pytest.raises(PolicyError, match="fails on a sample") as caught:
        EmbeddedRego(f"{HEAD}{rules}\n")
    assert caught.value.line == line
    assert words in str(caught.value)


def test_a_policy_nested_too_deeply_is_refused_before_the_engine_reads_it() -> None:
    """Reading a term takes Regorus twice as long for each bracket around it."""
    with pytest.raises(PolicyError, match="nests brackets more than 10 deep at line 4") as caught:
        EmbeddedRego(f"{HEAD}allow if {'[' * 300}1{']' * 300}\n")
    assert caught.value.line == 4
    EmbeddedRego(f'{HEAD}allow if input.tenant == "{"[" * 300}" # {"[" * 300}\n')


# -- a server


async def test_a_policy_with_such_a_reference_is_not_pushed_to_a_server(tmp_path: Path) -> None:
    file = tmp_path / "own.rego"
    file.write_text(MISSPELLED)
    with running() as opa:
        settings: dict[str, Any] = {"opa_url": opa.url, "policy": {"push": True, "file": file}}
        with pytest.raises(ToolgateError, match="argumnets does not exist"):
            async with memory_app(**settings):
                pass
        file.write_text(HEAD + "allow if data.of_the_servers_own.x == input.tenant\n")  # which only the server knows
        async with memory_app(**settings) as app:
            app.register(pay)
            assert (await app.invoke("pay", {"amount": 1})).status in ("denied", "failure")
