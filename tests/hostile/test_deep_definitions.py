"""Definitions that are nested so deeply that whatever calls itself can't follow: refused one by one, with the reason."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.terminal import Terminal
from toolgate import tool
from toolgate.errors import DefinitionError
from toolgate.jsontext import MAX_DEFINITION_DEPTH, is_deeper
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("MCP-1", "TOOL-3")

SERVER = """
import json, sys

levels = int(sys.argv[1])
deep = '{"type":"object","properties":{"a":' * levels + '{"type":"string"}' + "}}" * levels  # whatever its depth
plain = '{"type":"object","properties":{"a":{"type":"string"}}}'
tools = [("deep", deep), ("fine", plain)]
listed = ",".join('{"name":"%s","description":"d","inputSchema":%s}' % one for one in tools)
prompts = '{"name":"talk","arguments":%s},{"name":"chat"}' % ("[" * levels * 2 + "]" * levels * 2)
began = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "prompts": {}}}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    method, answer = asked["method"], '"result":{}'
    if method == "initialize":
        answer = '"result":' + json.dumps({**began, "serverInfo": {"name": "d", "version": "1"}})
    elif method == "tools/list":
        answer = '"result":{"tools":[%s]}' % listed
    elif method == "prompts/list":
        answer = '"result":{"prompts":[%s]}' % prompts
    elif method == "tools/call":
        answer = '"result":{"content":[{"type":"text","text":"here"}]}'
    print('{"jsonrpc":"2.0","id":%s,%s}' % (json.dumps(asked["id"]), answer), flush=True)
"""


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


def with_server(terminal: Terminal, levels: int) -> None:
    program = terminal.folder / "deep.py"
    program.write_text(SERVER, encoding="utf-8")
    command = json.dumps([sys.executable, str(program), str(levels)])
    how = "isolation: none, trust_first_seen: true, tier: read_only"
    terminal.settings(f"servers: {{d: {{command: {command}, {how}}}}}")


@pytest.mark.matrix("builds definitions that are very deep")
@pytest.mark.parametrize("levels", [70, 400])
def test_a_tool_that_is_too_deep_is_left_out_with_its_reason_and_all_else_goes_on(terminal: Terminal, levels: int) -> None:
    with_server(terminal, levels)
    assert terminal.run("servers", "refresh", "d").code == 0
    doctor = terminal.run("doctor")
    assert doctor.code == 0, doctor.err
    assert "tool deep: its definition is nested more than 128 levels deep" in doctor.out.replace("\n", " ")
    assert "Traceback" not in doctor.out + doctor.err
    for words in (
        ["tools", "list"],
        ["tools", "search", "fine"],
        ["tools", "tokens"],
        ["servers", "list"],
        ["servers", "show", "d"],
    ):
        done = terminal.run(*words)
        assert done.code == 0, (words, done.err)
        assert "mcp_d_deep" not in done.out
    called = terminal.run("call", "mcp_d_fine", "a=b")
    assert called.code == 0, called.err
    assert "here" in called.out


@pytest.mark.matrix("builds definitions that are very deep")
@pytest.mark.parametrize("levels", [600, 20_000])
def test_a_list_that_nothing_can_read_is_its_servers_fault_alone(terminal: Terminal, levels: int) -> None:
    with_server(terminal, levels)
    doctor = terminal.run("doctor")
    assert doctor.code == 1
    assert "✗ servers" in doctor.out
    assert "telemetry" in doctor.out, "the checks after it are made all the same"
    assert "unexpected" not in doctor.out + doctor.err
    assert terminal.run("call", "calculator", "expression=6*7").code == 0
    assert terminal.run("tools", "list").code == 0


async def test_no_source_of_tools_takes_what_is_too_deep() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(300):
        schema = {"type": "object", "properties": {"a": schema}}

    @tool(tier="read_only")
    async def good(a: int) -> int:
        """Good."""
        return a

    async with memory_app() as app:
        fields = {"name": "deep", "description": "d", "kind": "http", "input_schema": schema}
        with pytest.raises(DefinitionError, match="levels deep"):
            await app.tools.add_dynamic(fields)
        app.register(good)
        assert (await app.invoke("good", {"a": 1})).output == 1


def test_depth_is_counted_also_where_parts_are_shared() -> None:
    shared: list[Any] = []
    for _ in range(MAX_DEFINITION_DEPTH):
        shared = [shared, shared]
    assert not is_deeper(shared, MAX_DEFINITION_DEPTH + 1)
    assert is_deeper(shared, MAX_DEFINITION_DEPTH - 2)
    round_about: list[Any] = []
    round_about.append(round_about)
    assert is_deeper(round_about, 1_000)
    assert not is_deeper("text", 0)
