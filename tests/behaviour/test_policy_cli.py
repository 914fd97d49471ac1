"""`toolgate policy`: ask, check, replay, show, and the lists that the policy looks at."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.soma_policy import DATA, POLICY
from tests.terminal import Terminal
from toolgate.gates.policy.embedded_rego import default_policy

pytestmark = pytest.mark.requirement("POL-5")
HEAD = "package soma.policy\nimport rego.v1\ndefault allow := false\n"


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    (tmp_path / "own.rego").write_text(HEAD + 'allow if input.resource == "echo"\n')
    (tmp_path / "d.rego").write_text(POLICY)
    (tmp_path / "d.json").write_text(json.dumps(DATA))
    return terminal


# -- eval


def test_eval_says_what_the_policy_in_force_decides_and_why(terminal: Terminal) -> None:
    done = terminal("policy", "eval", "echo")
    assert (done.code, done.lines) == (0, ["allow  echo is enabled"])
    done = terminal("policy", "eval", "no_such_tool", "--tenant", "acme", "--json")
    assert done.code == 1
    assert done.json == {
        "tool": "no_such_tool", "action": "tool.request", "tenant": "acme", "persona": None, "user": "local", "scopes": [],
        "allow": False, "reason": "no_such_tool is not in the catalog",
    }  # fmt: skip


@pytest.mark.requirement("POL-1")
@pytest.mark.parametrize(
    ("words", "allow"),
    [
        (("memory_load",), True),
        (("code_execute", "--tenant", "tenant-1"), False),
        (("code_execute", "--tenant", "tenant-sandbox"), False),
        (("code_execute", "--tenant", "tenant-sandbox", "--action", "tool.view"), True),
        (("http_fetch", "--persona", "persona-restricted"), False),
        (("x", "--action", "tool.enable", "--persona", "persona-admin"), True),
        (("dangerous_tool", "--action", "tool.enable", "--persona", "persona-admin"), False),
    ],
)
@pytest.mark.sample(4)
def test_eval_on_documents_of_a_file(terminal: Terminal, words: tuple[str, ...], allow: bool) -> None:
    for more in ((), ("--policy", "d.rego")):
        done = terminal("policy", "eval", *words, "--data", "d.json", *more, "--json")
        assert (done.json["allow"], done.code) == (allow, 0 if allow else 1)


@pytest.mark.requirement("POL-3")
def test_eval_of_a_policy_of_ones_own_with_scopes_and_arguments(terminal: Terminal) -> None:
    rule = 'allow if { input.context.arguments.n < 3; "s" in input.context.scopes; input.context.user == "ann" }\n'
    (terminal.folder / "own.rego").write_text(HEAD + rule)
    words = ("policy", "eval", "echo", "--policy", "own.rego", "--user", "ann", "--scope", "r", "--scope", "s", "--args")
    assert terminal(*words, '{"n": 2}').code == 0
    assert terminal(*words, '{"n": 3}').lines == ["deny  the policy does not allow it"]


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (("eval", "echo", "--action", "tool.destroy"), "USAGE_ERROR", 2),
        (("eval", "echo", "--policy", "none.rego"), "USAGE_ERROR", 2),
        (("eval", "echo", "--data", "own.rego"), "USAGE_ERROR", 2),
        (("eval", "echo", "--args", "[]"), "USAGE_ERROR", 2),
        (("eval", "echo", "--scope", ""), "USAGE_ERROR", 2),
        (("eval", "echo", "--policy", "bad.rego"), "POLICY_ERROR", 1),
        (("eval", "echo", "--data", "bad.json"), "POLICY_ERROR", 1),
        (("check", "bad.rego"), "POLICY_ERROR", 1),
        (("check", "own.rego", "--data", "bad.json"), "POLICY_ERROR", 1),
        (("check", "."), "USAGE_ERROR", 2),
        (("replay", "bad.rego"), "POLICY_ERROR", 1),
        (("replay", "own.rego", "--since", "yesterday"), "USAGE_ERROR", 2),
        (("replay", "own.rego", "--since", "999999w"), "USAGE_ERROR", 2),
        (("replay", "own.rego", "--since", "2999-01-01"), "USAGE_ERROR", 2),
        (("deny", ""), "USAGE_ERROR", 2),
        (("restrict-code", "\x1b"), "USAGE_ERROR", 2),
        (("permit", ""), "USAGE_ERROR", 2),
    ],
)
def test_what_is_wrong_is_said(terminal: Terminal, words: tuple[str, ...], code: str, exit_code: int) -> None:
    (terminal.folder / "bad.rego").write_text(HEAD + "allow if {\n")
    (terminal.folder / "bad.json").write_text(json.dumps({**DATA, "global_tool_deny": "dangerous_tool"}))
    done = terminal("policy", *words, "--json")
    assert (done.json["error"]["code"], done.code) == (code, exit_code)


# -- check


def test_check_says_what_a_policy_reads(terminal: Terminal) -> None:
    (terminal.folder / "own.rego").write_text(HEAD + "allow if { input.context.arguments.n; input.context.user }\n")
    done = terminal("policy", "check", "own.rego", "--data", "d.json")
    assert done.code == 0
    assert "✓ The policy compiles" in done.out
    assert "reads of the context: user, arguments" in done.out
    assert "✓ The data has the right shape" in done.out
    assert terminal("policy", "check", "own.rego", "--json").json["reads"] == ["user", "arguments"]


def test_check_names_the_line_of_a_fault(terminal: Terminal) -> None:
    (terminal.folder / "own.rego").write_text(HEAD + "\nallow if no_such_function(1)\n")
    done = terminal("policy", "check", "own.rego")
    assert done.code == 1
    assert "does not compile at line 5" in done.err


def test_check_warns_of_what_holds_for_names_that_nobody_wrote_down(terminal: Terminal) -> None:
    warnings = terminal("policy", "check", "d.rego", "--json").json["warnings"]
    lines = POLICY.splitlines()
    assert [lines[warning["line"] - 1].strip()[:8] for warning in warnings] == ["not data"] * 4
    (terminal.folder / "shipped.rego").write_text(default_policy())
    assert terminal("policy", "check", "shipped.rego", "--json").json["warnings"] == []


# -- replay


@pytest.mark.requirement("POL-6")
def test_replay_shows_what_would_change(terminal: Terminal) -> None:
    terminal("call", "echo", "text=hello")
    call = terminal("call", "calculator", "expression=1+1", "--tenant", "acme", "--persona", "p", "--json").json["id"]
    lines = terminal("policy", "replay", "own.rego", "--since", "1h").lines
    assert lines[0].startswith("2 calls on record: 1 would end the same, 1 would be denied")
    assert "newly denied" in lines[2]
    assert "calculator  acme/p" in lines[2]
    assert call in lines[2]
    found = terminal("policy", "replay", "own.rego", "--json").json
    assert (found["calls"], found["same"], found["newly_denied"]) == (2, 1, 1)
    assert terminal("policy", "replay", "own.rego", "--tenant", "default", "--json").json["calls"] == 1
    assert terminal("policy", "replay", "own.rego", "--since", "2000-01-01", "--json").json["calls"] == 2


# -- what is in force


def test_show_gives_the_policy_in_force(terminal: Terminal) -> None:
    assert terminal("policy", "show").out == default_policy()
    shown = terminal("policy", "show", "--json").json
    assert (shown["engine"], shown["policy"]) == ("embedded", "shipped")
    assert shown["hash"] == terminal("policy", "check", _shipped(terminal), "--json").json["hash"]


def _shipped(terminal: Terminal) -> str:
    (terminal.folder / "shipped.rego").write_text(default_policy())
    return "shipped.rego"


def _data(terminal: Terminal) -> Any:
    return terminal("policy", "data", "--json").json


@pytest.mark.requirement("POL-1")
def test_data_gives_the_documents_in_force(terminal: Terminal) -> None:
    terminal("tools", "disable", "echo", "--tenant", "acme")
    terminal("tools", "disable", "echo", "--persona", "intern", "--reason", "too loud")
    documents = _data(terminal)
    assert documents["tool_catalog"]["echo"]["enabled"] is True
    assert documents["tenant_tool_flags"] == {"acme": {"echo": {"enabled": False}}}
    assert documents["persona_tool_deny"] == {"intern": ["echo"]}
    assert documents["deny_reasons"]["personas"] == {"intern": {"echo": "too loud"}}
    (terminal.folder / "now.json").write_text(json.dumps(documents))
    done = terminal("policy", "eval", "echo", "--persona", "intern", "--data", "now.json")
    assert done.lines == ["deny  persona intern: too loud"]


# -- the lists


@pytest.mark.requirement("POL-1")
def test_a_tool_is_denied_to_everybody_and_given_back(terminal: Terminal) -> None:
    assert terminal("policy", "deny", "echo", "--reason", "it repeats itself").lines == ["✓ Denied to everybody: echo"]
    assert _data(terminal)["global_tool_deny"] == ["echo"]
    assert terminal("policy", "eval", "echo").lines == ["deny  echo is denied to everybody: it repeats itself"]
    assert terminal("call", "echo", "text=x", "--json").json["error"]["code"] == "TOOL_NOT_FOUND"
    assert "✗ echo" in terminal("tools", "list").out
    assert terminal("policy", "deny", "echo").lines == ["Already denied to everybody: echo"], "and the reason stays"
    assert terminal("policy", "eval", "echo").lines == ["deny  echo is denied to everybody: it repeats itself"]
    assert terminal("policy", "deny", "echo", "--reason", "too loud", "--json").json["changed"] is True
    assert terminal("policy", "undeny", "echo", "--json").json == {
        "tool": "echo", "denied": False, "reason": None, "changed": True,
    }  # fmt: skip
    assert terminal("call", "echo", "text=x").code == 0


def test_what_was_so_already_is_said_and_leaves_no_record(terminal: Terminal) -> None:
    rows = terminal("audit", "verify", "--json").json["rows"]
    for words, said in (
        (("undeny", "echo"), "It was not denied to everybody: echo"),
        (("unrestrict-code", "acme"), "It was not kept from running code: tenant acme"),
        (("forbid", "maker"), "It already may not add tools: persona maker"),
    ):
        done = terminal("policy", *words)
        assert (done.code, done.lines) == (0, [said])
        assert terminal("policy", *words, "--json").json["changed"] is False
    assert terminal("audit", "verify", "--json").json["rows"] == rows


def test_denying_a_tool_that_is_not_there_is_pointed_out(terminal: Terminal) -> None:
    done = terminal("policy", "deny", "ecoh")
    assert (done.code, done.lines) == (0, ["✓ Denied to everybody: ecoh"])
    assert "There is no tool named 'ecoh' now; the denial applies once there is." in done.err
    assert terminal("policy", "deny", "echo").err == ""


@pytest.mark.requirement("POL-1")
def test_a_tenant_is_kept_from_running_code(terminal: Terminal) -> None:
    assert terminal("policy", "restrict-code", "acme", "--json").json == {
        "tenant": "acme", "restricted": True, "changed": True,
    }  # fmt: skip
    assert _data(terminal)["code_execution_restricted_tenants"] == ["acme"]
    terminal("policy", "unrestrict-code", "acme")
    assert _data(terminal)["code_execution_restricted_tenants"] == []


@pytest.mark.requirement("POL-1")
def test_a_persona_is_let_add_tools_and_kept_from_it(terminal: Terminal) -> None:
    ask = ("policy", "eval", "new", "--action", "tool.enable", "--persona", "maker")
    assert terminal(*ask).code == 1
    assert terminal("policy", "permit", "maker").lines == ["✓ May add tools: persona maker"]
    assert terminal(*ask).code == 0
    assert terminal("policy", "forbid", "maker").code == 0
    assert terminal(*ask).code == 1


@pytest.mark.requirement("POL-9")
def test_a_suggestion_is_written_tried_applied_and_taken_back(terminal: Terminal) -> None:
    terminal("call", "echo", "text=a")
    done = terminal("policy", "suggest", "--tenant", "default", "--out", "s.json")
    assert done.code == 0
    assert "Nothing is applied. Try it first: toolgate policy replay --data s.json" in done.err
    assert json.loads((terminal.folder / "s.json").read_text()) == {
        "tenant_tool_allow": {"default": {"personas": {}, "no_persona": ["echo"]}}
    }
    assert terminal("policy", "replay", "--data", "s.json").out.startswith("1 call on record: 1 would end the same")
    assert terminal("call", "timestamp").code == 0
    told = json.loads(terminal("policy", "replay", "--data", "s.json", "--json").out)
    assert [(one["change"], one["tool"]) for one in told["groups"]] == [("newly_denied", "timestamp")]
    assert terminal("policy", "set-allow-list", "s.json", "--reason", "least privilege").out == "✓ Allow list set: default\n"
    refused = terminal("call", "timestamp")
    assert refused.code == 1
    assert "timestamp is not on the allow list of tenant default" in refused.err
    assert terminal("call", "echo", "text=b").code == 0
    assert terminal("policy", "remove-allow-list", "default").out == "✓ Allow list removed: tenant default\n"
    assert terminal("policy", "remove-allow-list", "default").out == "Tenant default has no allow list.\n"
    assert terminal("call", "timestamp").code == 0
    (terminal.folder / "s.json").write_text(
        '{"tenant_tool_allow": {"acme": {"personas": {"a": ["ecoh"]}, "everybody": ["echo"]}}}'
    )
    done = terminal("policy", "set-allow-list", "s.json")
    assert "There is no tool named 'ecoh' now; the allow list applies once there is." in done.err


@pytest.mark.requirement("POL-9")
def test_what_is_wrong_with_a_suggestion_is_said(terminal: Terminal) -> None:
    (terminal.folder / "bad.json").write_text('{"tenant_tool_allow": {"default": {"persona": {}}}}')
    (terminal.folder / "other.json").write_text('{"tenant_tool_alow": {}}')
    (terminal.folder / "list.json").write_text("[]")
    for words, said in (
        (("replay",), "Name a Rego file, or documents with --data FILE."),
        (("replay", "--data", "bad.json"), "personas"),
        (("replay", "--data", "other.json"), "is no document of a policy"),
        (("replay", "--data", "list.json"), "it is not an object of documents"),
        (("set-allow-list", "bad.json"), "The allow list is refused"),
        (("set-allow-list", "other.json"), "holds no allow list"),
        (("set-allow-list", "bad.json", "--tenant", "acme"), "holds no allow list for tenant acme"),
        (("suggest", "--rego", "x.rego"), "There are no rules on arguments to write"),
        (("suggest", "--days", "0"), "--days"),
    ):
        done = terminal("policy", *words)
        assert done.code in (1, 2), words
        assert said in done.err, words
