"""`toolgate tools`: the list, token costs, switches, search and export."""

import json
import re
from pathlib import Path

import pytest

from tests.builtin_tools import ALIASES, BUILTIN, INTERNAL, SHIPPED
from tests.terminal import Terminal
from toolgate.model import DISCOVERY_TOOLS

TOOLS = """
    from toolgate import Capability, Cost, tool


    @tool(tier="read_only", declared_tokens=320, cost="0.05", retry=3, requires_auth="WEATHER_KEY", tags=["forecast"],
          capabilities=[Capability(action="delete_forecast", requires_confirmation=True)], documentation="A long story.")
    async def weather(city: str) -> str:
        \"\"\"Tell how it will rain.

        Args:
            city: Where.
        \"\"\"
        return "rain"
"""


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


@pytest.fixture
def equipped(terminal: Terminal) -> Terminal:
    terminal.add_tools(TOOLS)
    return terminal


def marks(lines: list[str]) -> dict[str, str]:
    """The mark in front of each tool of a list."""
    return {line.split()[1]: line[0] for line in lines if line[:2] in ("✓ ", "✗ ")}


# -- the list


@pytest.mark.requirement("REG-7", "REG-1")
def test_the_list_looks_as_document_e_draws_it(equipped: Terminal) -> None:
    done = equipped("tools", "list")
    assert (done.code, done.err) == (0, "")
    assert done.lines[:2] == ["Available Tools:", ""]
    for row in (
        r"✓ a2a_chat {17} \[Built-in\]   ~\d+ tokens +external_api",
        r"✓ bash_execution {11} \[Built-in\]   as execute_command +execute",
        r"✓ calculator {15} \[Built-in\]   ~\d+ tokens +read_only",
        r"✓ weather {18} \[Python\]     ~\d+ tokens \(declared 320\) +write",
    ):
        assert any(re.fullmatch(row, line) for line in done.lines), row
    tokens = [int(found) for found in re.findall(r"~(\d+) tokens", done.out)]
    assert f"Total system prompt cost: ~{sum(tokens[:-1])} tokens" in done.lines
    assert tokens[-1] == sum(tokens[:-1])
    assert done.lines[-5:] == [
        "Usage:",
        "  toolgate tools enable <name>   - Enable a tool",
        "  toolgate tools disable <name>  - Disable a tool",
        "  toolgate tools info <name>     - Show tool details",
        "  toolgate tools tokens          - Show token breakdown",
    ]


@pytest.mark.requirement("REG-7")
def test_tools_alone_is_the_list(terminal: Terminal) -> None:
    assert terminal("tools").out == terminal("tools", "list").out
    assert terminal("tools", "--json").json == terminal("tools", "list", "--json").json
    assert terminal("tools", "--json", "list").code == 2


@pytest.mark.requirement("REG-7", "REG-4")
def test_a_disabled_tool_is_marked_and_does_not_count(terminal: Terminal) -> None:
    before = terminal("tools", "list", "--json").json
    terminal("tools", "disable", "echo")
    after = terminal("tools", "list", "--json").json
    cost = next(tool["token_cost"] for tool in before["tools"] if tool["name"] == "echo")
    assert after["total_tokens"] == before["total_tokens"] - cost
    assert marks(terminal("tools").lines) == dict.fromkeys(SHIPPED, "✓") | {"echo": "✗"}


@pytest.mark.requirement("REG-4")
def test_for_an_actor_the_list_shows_what_that_actor_has(terminal: Terminal) -> None:
    terminal("tools", "disable", "echo", "--tenant", "acme")
    terminal("tools", "disable", "timestamp", "--persona", "intern", "--reason", "no clocks")
    seen = set(marks(terminal("tools", "list", "--tenant", "acme", "--persona", "intern").lines))
    assert seen == SHIPPED - {"echo", "timestamp"}
    everything = terminal("tools", "list", "--tenant", "acme", "--persona", "intern", "--all")
    assert marks(everything.lines) == dict.fromkeys(SHIPPED, "✓") | {"echo": "✗", "timestamp": "✗"}
    assert "echo is disabled for tenant acme" in everything.out
    assert "persona intern: no clocks" in everything.out
    assert set(marks(terminal("tools", "list", "--user", "u-1").lines)) == SHIPPED


@pytest.mark.requirement("REG-1")
def test_the_list_can_be_limited_to_a_source(equipped: Terminal) -> None:
    assert set(marks(equipped("tools", "list", "--source", "python").lines)) == {"weather"}
    assert [tool["source"] for tool in equipped("tools", "list", "--source", "builtin", "--json").json["tools"]] == [
        "builtin"
    ] * len(BUILTIN)
    assert equipped("tools", "list", "--source", "mcp").lines[0].startswith("No tools of source mcp: `toolgate servers add")
    assert equipped("tools", "list", "--source", "elsewhere").code == 2


@pytest.mark.requirement("REG-7")
def test_token_costs_can_be_hidden_from_the_list(terminal: Terminal) -> None:
    terminal.settings("show_token_costs: false")
    done = terminal("tools", "list")
    assert "~" not in done.out
    assert "Total" not in done.out


@pytest.mark.requirement("TOOL-3", "REG-1")
def test_what_could_not_be_loaded_is_told_and_the_rest_is_there(equipped: Terminal) -> None:
    equipped.add_tools("import no_such_module", name="broken")
    done = equipped("tools", "list")
    assert marks(done.lines)["weather"] == "✓"
    assert "Could not be loaded:" in done.err
    assert "broken.py:1: ModuleNotFoundError: No module named 'no_such_module'" in done.err
    assert equipped("tools", "list", "--json").json["problems"][0]["why"].startswith("ModuleNotFoundError")


# -- one tool, and what they cost


@pytest.mark.requirement("TOOL-1", "REG-7")
def test_info_shows_the_whole_definition(equipped: Terminal) -> None:
    equipped.set("TOOLGATE_SECRET_WEATHER_KEY", "abc")
    done = equipped("tools", "info", "weather")
    assert done.code == 0
    expected = [
        "Tool: weather",
        "Description: Tell how it will rain.",
        "Source: [Python]",
        "Enabled: Yes",
        "Version: 1.0.0",
        "Category: custom",
        "Tier: write (declared read_only)",
        "Cost: $0.05 a call",
        "Timeout: none (the function never awaits, so nothing can interrupt it)",
        "Retry: 3 attempts, on TIMEOUT, CONNECTION_ERROR",
        "Credential: WEATHER_KEY (set)",
        "Capabilities: delete_forecast (asks first)",
        "Tags: forecast",
        "A long story.",
    ]
    assert [line for line in expected if line not in done.lines] == []
    assert re.search(r"^Token Cost: ~\d+ tokens \(declared 320\)$", done.out, re.MULTILINE)
    schema = done.out.partition("Parameters:\n")[2].partition("\n\nOutput:")[0]
    assert json.loads(schema)["properties"]["city"] == {"description": "Where.", "type": "string"}


@pytest.mark.requirement("TOOL-1")
def test_info_for_programs_has_the_effective_and_the_declared(equipped: Terminal) -> None:
    told = equipped("tools", "info", "weather", "--json").json
    assert (told["tier"], told["declared_tier"], told["timeout"], told["enforced"]) == ("write", "read_only", None, False)
    assert told["definition"]["input_schema"]["required"] == ["city"]


@pytest.mark.requirement("REG-4", "TOOL-4")
def test_a_tool_that_an_actor_does_not_have_is_not_found_for_it(terminal: Terminal) -> None:
    terminal("tools", "disable", "echo", "--tenant", "acme")
    assert terminal("tools", "info", "echo").code == 0
    hidden = terminal("tools", "info", "echo", "--tenant", "acme")
    assert (hidden.code, hidden.err.splitlines()[0]) == (1, "Error: Tool not found: echo")
    missing = terminal("tools", "info", "ecco")
    assert (missing.code, missing.err) == (1, "Error: Tool not found: ecco\nDid you mean echo?\n")
    assert terminal("tools", "info", "Echo", "--json").json["error"]["code"] == "TOOL_NOT_FOUND"
    assert terminal("tools", "info", "a\n\x1b[2Jb").err.splitlines()[0] == r"Error: Tool not found: a\n\x1b[2Jb"


@pytest.mark.requirement("REG-7")
def test_tokens_are_drawn_as_bars_by_cost(equipped: Terminal) -> None:
    equipped("tools", "disable", "timestamp")
    done = equipped("tools", "tokens")
    assert done.lines[:2] == ["Token Cost Breakdown:", ""]
    rows = [re.fullmatch(r"(\S+) +([█░]{40}) (\d+)( \(declared 320\))?", line) for line in done.lines[2:-2]]
    found = [(row[1], len(row[2].rstrip("░")), int(row[3])) for row in rows if row]
    assert len(found) == len(rows) == len(SHIPPED - INTERNAL - DISCOVERY_TOOLS) - len(ALIASES)
    assert [tokens for _, _, tokens in found] == sorted((tokens for _, _, tokens in found), reverse=True)
    listed = SHIPPED - INTERNAL - DISCOVERY_TOOLS - ALIASES.keys() - {"timestamp"} | {"weather"}
    assert {name for name, _, _ in found} == listed
    assert all(filled == round(tokens / 1000 * 40) for _, filled, tokens in found)
    total = sum(tokens for _, _, tokens in found)
    assert done.lines[-1] == f"Total: {total} tokens (~${total / 1_000_000:.4f})"
    assert equipped("tools", "tokens", "--json").json["total_tokens"] == total


@pytest.mark.requirement("REG-7")
def test_the_price_of_tokens_is_a_setting_and_a_large_tool_fills_its_bar(equipped: Terminal) -> None:
    equipped.settings("token_price: 1000")
    equipped.add_tools(
        f"""
        from toolgate import tool


        @tool(tier="read_only", description={" ".join(f"word{number}" for number in range(2000))!r})
        async def large() -> None: ...
        """,
        name="large",
    )
    done = equipped("tools", "tokens")
    first = done.lines[2].split()
    assert (first[0], first[1]) == ("large", "█" * 40)
    total = int(re.findall(r"Total: (\d+)", done.out)[0])
    assert f"(~${total / 1000:.4f})" in done.lines[-2]
    assert done.lines[-1].startswith("Discovery is on: a model is listed 3 tools of")


# -- switches


@pytest.mark.requirement("REG-4", "REG-3")
def test_switching_says_what_document_e_says_and_lasts(terminal: Terminal) -> None:
    cost = terminal("tools", "info", "echo", "--json").json["token_cost"]
    assert terminal("tools", "enable", "echo").out == "Tool already enabled: echo\n"
    assert terminal("tools", "disable", "echo").out == f"✓ Disabled tool: echo (-{cost} tokens)\n"
    assert terminal("tools", "disable", "echo").out == "Tool already disabled: echo\n"
    assert terminal("call", "echo", "text=a", "--json").json["error"]["code"] == "TOOL_NOT_FOUND"
    assert terminal("tools", "enable", "echo").out == f"✓ Enabled tool: echo (+{cost} tokens)\n"
    assert terminal("call", "echo", "text=a").code == 0
    for command in ("enable", "disable", "info"):
        done = terminal("tools", command, "no_such_tool")
        assert (done.code, done.err.splitlines()[0]) == (1, "Error: Tool not found: no_such_tool")


@pytest.mark.requirement("REG-4")
def test_a_tenant_has_a_flag_of_its_own(terminal: Terminal) -> None:
    cost = terminal("tools", "info", "echo", "--json").json["token_cost"]
    assert terminal("tools", "enable", "echo", "--tenant", "acme").out == "✓ Enabled tool for tenant acme: echo\n"
    terminal("tools", "disable", "echo")
    assert terminal("call", "echo", "text=a", "--tenant", "acme").code == 0
    assert terminal("call", "echo", "text=a").code == 1
    off = terminal("tools", "disable", "echo", "--tenant", "acme")
    assert off.out == f"✓ Disabled tool for tenant acme: echo (-{cost} tokens)\n"
    assert terminal("tools", "disable", "echo", "--tenant", "acme").out == "Tool already disabled for tenant acme: echo\n"


@pytest.mark.requirement("REG-4")
def test_a_persona_is_denied_a_tool_with_its_reason(terminal: Terminal) -> None:
    terminal("tools", "disable", "echo", "--persona", "intern", "--reason", "too loud")
    assert terminal("call", "echo", "text=a", "--persona", "intern").code == 1
    assert terminal("call", "echo", "text=a").code == 0
    again = terminal("tools", "enable", "echo", "--persona", "intern", "--json").json
    assert (again["enabled"], again["changed"], again["persona"]) == (True, True, "intern")
    assert terminal("call", "echo", "text=a", "--persona", "intern").code == 0


@pytest.mark.requirement("REG-4")
def test_a_switch_that_does_not_reach_the_caller_says_so(terminal: Terminal) -> None:
    terminal("tools", "disable", "echo")
    done = terminal("tools", "enable", "echo", "--persona", "intern")
    assert "It is still not available: echo is disabled." in done.err
    terminal("tools", "enable", "echo", "--tenant", "default")
    terminal("tools", "enable", "echo")
    assert "Tenant default still has it, because it has a flag of its own." in terminal("tools", "disable", "echo").err


@pytest.mark.requirement("REG-4")
def test_what_an_organisation_enforces_cannot_be_disabled(terminal: Terminal) -> None:
    terminal.settings(
        """
        enforcement:
          enforced_tools: [echo]
        """
    )
    for words in ((), ("--tenant", "acme"), ("--persona", "intern")):
        done = terminal("tools", "disable", "echo", *words)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("Error: Cannot disable tool: echo (enforced by enterprise policy)")
    assert terminal("tools", "disable", "echo", "--json").json["error"]["code"] == "PERMISSION_DENIED"
    assert "Enabled: Yes (enforced)" in terminal("tools", "info", "echo").lines


@pytest.mark.requirement("REG-4", "AUD-1")
def test_a_switch_is_on_record_with_its_reason(terminal: Terminal) -> None:
    terminal("tools", "disable", "echo", "--reason", "it is late")
    terminal("tools", "disable", "echo", "--reason", "it was off already")
    record = json.loads(terminal("audit", "tail", "--json").out)
    assert (record["kind"], record["tool"], record["body"]["reason"]) == ("tool.disabled", "echo", "it is late")
    assert "echo         tool.disabled         default/local  because: it is late" in terminal("audit", "tail").out


@pytest.mark.requirement("REG-4")
@pytest.mark.parametrize(
    "words", [("--tenant", "a", "--persona", "b"), ("--tenant", ""), ("--persona", "\x1b"), ("--reason", "a\nb")]
)
def test_a_switch_for_nobody_in_particular_is_usage(terminal: Terminal, words: tuple[str, ...]) -> None:
    assert terminal("tools", "disable", "echo", *words, "--json").json["error"]["code"] == "USAGE_ERROR"
    assert marks(terminal("tools").lines)["echo"] == "✓"


# -- finding and exporting


@pytest.mark.requirement("REG-1")
@pytest.mark.parametrize(
    ("query", "first"),
    [("calculator", "calculator"), ("calc", "calculator"), ("calculater", "calculator"), ("time zone", "datetime"),
     ("FORECAST", "weather"), ("rain", "weather"), ("logarithm", "calculator")],
)  # fmt: skip
@pytest.mark.sample(4)
def test_search_finds_by_name_tag_and_description(equipped: Terminal, query: str, first: str) -> None:
    found = equipped("tools", "search", *query.split(), "--json").json["tools"]
    assert found[0]["name"] == first
    assert all(0 < tool["score"] <= 1 for tool in found)
    shown = equipped("tools", "search", query)
    assert shown.lines[0].split() == ["name", "score", "description"]
    name, score, *_ = shown.lines[1].split()  # the score need not be the same: of the two, one may still search by words
    assert name == first and re.fullmatch(r"[01]\.\d\d", score)
    assert "Compared by words, not by meaning: " in shown.err or "Compared by meaning." in shown.err


@pytest.mark.requirement("REG-1", "REG-4")
def test_search_knows_only_what_the_actor_has(equipped: Terminal) -> None:
    equipped("tools", "disable", "weather", "--tenant", "acme")
    found = equipped("tools", "search", "weather", "--tenant", "acme", "--json").json["tools"]
    assert "weather" not in [tool["name"] for tool in found]
    nothing = equipped("tools", "search", "qqqq")
    assert (nothing.code, nothing.out) == (0, "")
    assert "Nothing fits" in nothing.err


@pytest.mark.requirement("TOOL-6")
@pytest.mark.parametrize(
    ("shape", "schema"),
    [("openai", "parameters"), ("anthropic", "input_schema"), ("gemini", "parameters"), ("mcp", "inputSchema")],
)
def test_definitions_are_exported_in_the_shape_asked_for(equipped: Terminal, shape: str, schema: str) -> None:
    equipped("tools", "disable", "echo")
    found = equipped("tools", "export", "--format", shape, "--json").json
    tools = [tool.get("function", tool) for tool in found]
    listed = SHIPPED - INTERNAL - DISCOVERY_TOOLS - ALIASES.keys() - {"echo"} | {"weather"}
    assert [tool["name"] for tool in tools] == sorted(listed)
    (weather,) = [tool for tool in tools if tool["name"] == "weather"]
    assert weather[schema]["properties"]["city"]["type"] == "string"
    assert json.loads(equipped("tools", "export", "--format", shape).out) == found
    assert equipped("tools", "export").code == 2
