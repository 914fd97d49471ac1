"""`toolgate policy test`: cases in a file; and what `policy check` warns of."""

from pathlib import Path

import pytest

from tests.terminal import Terminal

pytestmark = pytest.mark.requirement("POL-8")
POLICY = """\
package soma.policy
import rego.v1
default allow := false
allow if {
	input.persona_id == "accountant"
	input.context.arguments.amount <= 100
}
decision := {"allow": true, "reason": "within the limit"} if allow
else := {"allow": false, "reason": "too much, or no accountant"}
"""
CASES = """\
policy: own.rego
data:
  tool_catalog: {pay: {enabled: true}}
cases:
  - {tool: pay, persona: accountant, arguments: {amount: 100}, expect: allow, reason: within}
  - {tool: pay, persona: accountant, arguments: {amount: 101}, expect: deny, reason: too much}
  - {name: clerks do not pay, tool: pay, persona: clerk, arguments: {amount: 1}, expect: deny}
"""


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "own.rego").write_text(POLICY)
    (tmp_path / "policies" / "cases.yaml").write_text(CASES)
    return Terminal(tmp_path, monkeypatch, capsys)


def test_cases_that_hold_pass_and_the_policy_is_found_beside_them(terminal: Terminal) -> None:
    done = terminal("policy", "test", "policies/cases.yaml")
    assert (done.code, done.lines) == (0, ["3 passed, 0 failed"])


def test_a_case_that_does_not_hold_fails_with_what_the_policy_said(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "policies" / "own.rego").write_text(POLICY.replace("100", "1000"))
    done = terminal("policy", "test", "policies/cases.yaml")
    assert done.code == 1
    assert done.lines == [
        "✗ case 2 (tool.request of pay): expected deny with 'too much' in its reason, got allow: within the limit",
        "2 passed, 1 failed",
    ]
    told = terminal("policy", "test", "policies/cases.yaml", "--json")
    assert told.code == 1
    assert [case["ok"] for case in told.json["cases"]] == [True, False, True]
    (tmp_path / "policies" / "own.rego").write_text(POLICY.replace("too much, or", "is"))
    assert terminal("policy", "test", "policies/cases.yaml").lines[-1] == "2 passed, 1 failed"  # the reason counts too


def test_without_a_policy_and_data_the_cases_are_put_to_those_in_force(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "cases.json").write_text(
        '{"cases": [{"tool": "echo", "expect": "allow"}, {"tool": "echo", "tenant": "acme", "expect": "deny"}]}'
    )
    assert terminal("policy", "test", "cases.json").lines[-1] == "1 passed, 1 failed"
    terminal("tools", "disable", "echo", "--tenant", "acme")
    assert terminal("policy", "test", "cases.json").lines[-1] == "2 passed, 0 failed"
    assert terminal("policy", "test", "cases.json", "--policy", "policies/own.rego").lines[-1] == "1 passed, 1 failed"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "it must be of type object, not array"),
        ("cases: []", "cases must have at least 1 items"),
        ("policy: own.rego", "cases is required"),
        ("cases: [{tol: x, tool: echo, expect: allow}]", "cases[0].tol is unknown, did you mean tool"),
        ("cases: [{tool: echo}]", "cases[0].expect is required"),
        ("cases: [{tool: echo, expect: yes}]", 'cases[0].expect must be one of "allow","deny"'),
        ("cases: [{expect: deny}]", "cases[0].tool is required"),
        ("cases: [{tool: echo, expect: deny, action: tool.run}]", "cases[0].action must be one of"),
        ("cases: [{tool: echo, expect: deny, scopes: x}]", "cases[0].scopes must be of type array"),
        ("cases: [{tool: echo, expect: deny, arguments: []}]", "cases[0].arguments must be of type object"),
        ("cases: [{tool: 1, expect: deny}]", "cases[0].tool must be of type string"),
        ("data: []\ncases: [{tool: echo, expect: deny}]", "data must be of type object"),
        ("data: {tool_catalogue: {}}\ncases: [{tool: echo, expect: deny}]", "tool_catalogue is no document"),
        ("cases: [{", "bad.yaml cannot be read at line 2: it is not valid YAML"),
        ("policy: none.rego\ncases: [{tool: echo, expect: deny}]", "none.rego cannot be read"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(terminal: Terminal, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    done = terminal("policy", "test", "bad.yaml")
    assert done.code in (1, 2)
    assert words in done.err


# -- check


def test_check_refuses_what_can_not_exist_and_warns_of_arguments_that_no_tool_takes(
    terminal: Terminal, tmp_path: Path
) -> None:
    own = tmp_path / "own.rego"
    own.write_text(POLICY.replace("context.arguments", "context.argumnets"))
    done = terminal("policy", "check", "own.rego")
    assert done.code == 1
    assert "line 6: input.context.argumnets does not exist (did you mean input.context.arguments?)" in done.err
    own.write_text(POLICY.replace(".amount", ".expresion"))
    told = terminal("policy", "check", "own.rego", "--json").json
    assert told["warnings"] == [{"line": 6, "message": "no tool takes an argument expresion: did you mean expression?"}]
    own.write_text(POLICY.replace(".amount", ".expression"))
    assert terminal("policy", "check", "own.rego", "--json").json["warnings"] == []


@pytest.mark.matrix("a policy that is slow")
def test_check_warns_of_a_policy_that_decides_slowly(terminal: Terminal, tmp_path: Path) -> None:
    rules = "".join(f'allow if {{ input.resource == "t{n}"; input.context.arguments.x <= {n} }}\n' for n in range(4_000))
    (tmp_path / "many.rego").write_text(POLICY.split("allow if", 1)[0] + rules)
    warnings = terminal("policy", "check", "many.rego", "--json").json["warnings"]
    assert any("are quicker as a table" in warning["message"] for warning in warnings)
