"""What commands say when there is nothing to list, and how they mark what they did."""

from pathlib import Path

import pytest

from tests.terminal import Terminal

pytestmark = pytest.mark.requirement("DOOR-6")
EMPTY = {
    ("tools", "list", "--source", "mcp"): "toolgate servers add",
    ("tools", "list", "--source", "custom"): "toolgate tools new",
    ("tools", "search", "zzzzzz"): "toolgate tools list",
    ("approvals", "list"): "toolgate call",
    ("approvals", "list", "--state", "rejected"): "--state all",
    ("approvals", "list", "--state", "all"): "toolgate explain",
    ("grants", "list"): "toolgate grants add TOOL --for 1h",
    ("grants", "list", "--tenant", "acme", "--all"): "toolgate grants add TOOL --for 1h --tenant acme",
    ("keys", "list"): "toolgate keys create",
    ("budgets", "list"): "toolgate budgets set",
    ("secrets", "list"): "toolgate secrets set",
    ("idempotency", "list"): "--idempotency-key",
    ("idempotency", "list", "--state", "running"): "--idempotency-key",
    ("idempotency", "list", "--state", "done"): "--idempotency-key",
    ("jobs", "list"): "--async",
    ("jobs", "list", "--state", "failed"): "--all-users",
    ("jobs", "list", "--tenant", "*"): "--async",
    ("workspace", "list"): "code_execute",
    ("policy", "observed"): "policy.observe",
    ("audit", "tail", "--tool", "nothing"): "toolgate audit tail",
    ("audit", "tail"): "toolgate call",
    ("costs",): "toolgate call",
}


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_an_empty_list_is_a_sentence_that_says_what_would_fill_it(terminal: Terminal) -> None:
    terminal.settings("budgets: {external_api_daily: null}")
    for words, told in EMPTY.items():
        done = terminal(*words)
        said = (done.err or done.out).splitlines()[0]
        assert done.code == 0, words
        assert told in said, (words, said)
        assert said[0].isupper(), (words, said)
        assert terminal(*words, "--json").err == "", words


def test_a_success_is_never_marked_with_a_cross(terminal: Terminal) -> None:
    terminal.add_tools(
        '''
        from toolgate import tool

        @tool(tier="external_api")
        async def post(text: str) -> str:
            """Post a message."""
            return text
        '''
    )
    waiting = [terminal("call", "post", f"text={n}", "--json").json["pending"]["id"] for n in "ab"]
    key = terminal("keys", "create", "mine", "--json").json["id"]
    grant = terminal("grants", "add", "post", "--for", "1h", "--json").json["id"]
    terminal("budgets", "set", "--daily", "5")
    for words in (
        ("approvals", "reject", waiting[0]),
        ("approvals", "approve", waiting[1]),
        ("grants", "revoke", grant),
        ("keys", "revoke", key),
        ("budgets", "set", "--daily", "none"),
        ("tools", "disable", "echo"),
        ("tools", "disable", "echo", "--persona", "intern"),
        ("policy", "deny", "echo"),
        ("policy", "restrict-code", "acme"),
        ("policy", "permit", "intern"),
        ("policy", "forbid", "intern"),
    ):
        done = terminal(*words)
        assert (done.code, done.out[:1]) == (0, "✓"), (words, done)
