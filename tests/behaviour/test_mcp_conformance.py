"""The official conformance suite has nothing to say against Toolgate as a gateway and as a client.

`make conformance` runs the same, in CI too: here it is for who runs only tests.
"""

from pathlib import Path

import pytest

from tests.conformance.run import NOT_FOR_US, ask_client, ask_server, wrong
from tests.conformance.suite import Suite
from tests.npm import packages

pytestmark = pytest.mark.timeout(900)  # the first test on a machine installs the suite


@pytest.mark.requirement("MCP-4")
@pytest.mark.slow
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_gateway_conforms(tmp_path: Path, revision: str) -> None:
    scenarios = list(ask_server(Suite(packages(), tmp_path, once=NOT_FOR_US), [revision]))
    assert wrong(scenarios, [("server", revision)]) == []


@pytest.mark.requirement("MCP-4")
@pytest.mark.slow
def test_the_gateway_conforms_in_front_of_a_server_that_is_not_of_today(tmp_path: Path) -> None:
    scenarios = list(ask_server(Suite(packages(), tmp_path, once=NOT_FOR_US), ["2025-11-25"], old=True))
    assert wrong(scenarios, [("server", "2025-11-25")]) == []


@pytest.mark.requirement("MCP-1")
@pytest.mark.slow
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_client_conforms(tmp_path: Path, revision: str) -> None:
    scenarios = list(ask_client(Suite(packages(), tmp_path, once=NOT_FOR_US), [revision]))
    assert wrong(scenarios, [("client", revision)]) == []
