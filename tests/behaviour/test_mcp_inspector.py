"""The official MCP inspector lists and calls Toolgate's tools: of `toolgate mcp` as a program, and of /mcp with a key."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance.gateway import REPOSITORY, gateway
from tests.npm import packages
from tests.terminal import SCRIPT

pytestmark = [
    pytest.mark.requirement("MCP-4", "DOOR-3"),
    pytest.mark.matrix("runs a program of npm"),
    pytest.mark.timeout(900),  # the first test on a machine installs the inspector
]

SECONDS = 60
NO_SUCH_TOOL = 5
BUILT_IN = {"calculator", "datetime", "echo", "read_file"}

both_eras = pytest.mark.parametrize("era", ["legacy", "modern"])


class Inspector:
    """The inspector, looking at one server."""

    def __init__(self, folder: Path, *target: str) -> None:
        self._folder, self._target = folder, target

    def run(self, method: str, *options: str) -> subprocess.CompletedProcess[str]:
        npm = packages()
        command = [*npm.command("@modelcontextprotocol/inspector", "mcp-inspector"), "--cli", *self._target]
        return subprocess.run(
            [*command, "--method", method, "--stored-auth-only", "--format", "json", *options],
            cwd=self._folder,
            env=npm.environment(self._folder),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def result(self, method: str, *options: str) -> dict[str, Any]:
        done = self.run(method, *options)
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)["result"]
        return result


@pytest.fixture
def program(tmp_path: Path) -> Inspector:
    """Looking at `toolgate mcp`."""
    return Inspector(tmp_path, str(SCRIPT), "mcp")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A `toolgate serve` that wants a key: its URL, and a key."""
    with gateway(tmp_path, {}) as ([url], key):
        yield url, key


def calculates(inspector: Inspector, era: str) -> None:
    called = inspector.result(
        "tools/call", "--tool-name", "calculator", "--tool-args-json", '{"expression": "6*7"}', "--protocol-era", era
    )
    assert called["structuredContent"]["result"] == 42
    assert not called.get("isError")


@both_eras
def test_the_inspector_lists_the_tools_of_the_program_and_finds_no_fault_with_them(program: Inspector, era: str) -> None:
    listed = program.result("tools/list", "--strict", "--protocol-era", era)
    assert {tool["name"] for tool in listed["tools"]} >= BUILT_IN


@both_eras
def test_the_inspector_calls_a_tool_of_the_program(program: Inspector, era: str) -> None:
    calculates(program, era)


def test_tools_of_servers_are_called_through_the_program(tmp_path: Path) -> None:
    """A server that was added and accepted is behind `toolgate mcp` like the built-in tools."""
    command = [sys.executable, "-m", "tests.conformance.upstream", "--stdio"]
    settings = {"command": command, "cwd": str(REPOSITORY), "isolation": "none", "tier": "read_only"}
    (tmp_path / "toolgate.yaml").write_text(yaml.safe_dump({"servers": {"fixture": settings}}))
    person = packages().environment(tmp_path)  # clients hand on the home of a person, and few other variables
    for words in (("trust",), ("servers", "refresh", "fixture"), ("tools", "accept", "fixture", "--yes")):
        subprocess.run([SCRIPT, *words], cwd=tmp_path, env=person, capture_output=True, check=True, timeout=SECONDS)
    called = Inspector(tmp_path, str(SCRIPT), "mcp").result("tools/call", "--tool-name", "mcp_fixture_test_image_content")
    assert [part["type"] for part in called["content"]] == ["image"]


def test_a_tool_that_is_not_there_is_not_found(program: Inspector) -> None:
    done = program.run("tools/call", "--tool-name", "no_such_tool")
    assert done.returncode == NO_SUCH_TOOL, done.stderr


def test_what_a_tool_refuses_is_its_result(program: Inspector) -> None:
    done = program.run("tools/call", "--tool-name", "calculator", "--tool-args-json", '{"expression": "6*"}')
    assert json.loads(done.stdout)["result"]["isError"] is True


@both_eras
def test_the_inspector_lists_and_calls_tools_over_http_with_a_key(tmp_path: Path, served: tuple[str, str], era: str) -> None:
    url, key = served
    inspector = Inspector(tmp_path, url, "--header", f"Authorization: Bearer {key}")
    listed = inspector.result("tools/list", "--strict", "--protocol-era", era)
    assert {tool["name"] for tool in listed["tools"]} >= BUILT_IN
    calculates(inspector, era)


def test_without_a_key_the_inspector_gets_nothing(tmp_path: Path, served: tuple[str, str]) -> None:
    url, _ = served
    done = Inspector(tmp_path, url).run("tools/list")
    assert done.returncode != 0
    assert "calculator" not in done.stdout
