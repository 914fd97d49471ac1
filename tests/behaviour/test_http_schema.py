"""The OpenAPI document holds: whatever is generated from it is answered as it says, and nothing fails.

Schemathesis makes requests from the document, valid ones and broken ones, and compares each answer with it.
"""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.serving import serving
from toolgate import Actor
from toolgate.testing import memory_app

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,negative_data_rejection,ignored_auth,unsupported_method"
)
"""All but that every request of the right form is accepted: a cursor or a tool's arguments have to make sense, too."""
STREAMS = "/v1/events"
"""Its answers do not end."""
PARTS = ("[a-f]", "[g-j]", "[l-p]", "[q-s]", "[t-z]", "k")
"""How the names of operations begin that are tried together, on a server of their own: by several processes at once, and the
keys apart, since who removes its own is served no longer."""
CONFIG = """
[[operations]]
include-path-regex = "^/v1/servers"
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 502]
"""
"""A program that is to be a server but can't be started is a bad gateway."""


@pytest.fixture(autouse=True)
def _quick_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests with a wrong key are part of it, and are not to be slowed down."""
    monkeypatch.setattr("toolgate.serve.key_attempts.FIRST_SECONDS", 0.0)


async def generated(tmp_path: Path, *words: str) -> str:
    """Runs schemathesis against a server whose client may do everything. Gives what it says."""
    home = tmp_path / "home"
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    async with memory_app(home=home, database_url=f"sqlite:///{tmp_path}/t.db") as app, serving(app) as site:
        _, key = await app.keys.create("schemathesis", Actor("acme", user="ann"), roles=["operator"])
        command = [
            str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(config),
            "run", f"http://{site.host}/v1/openapi.json",
            "-H", f"Authorization: Bearer {key}", "--checks", CHECKS, "--exclude-path", STREAMS, "--request-timeout", "30",
            "--generation-deterministic", "--no-color", *words,
        ]  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            *command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await process.communicate()
        await app.keys.close()
    assert process.returncode == 0, said.decode()[-6000:]
    return said.decode()


@pytest.mark.requirement("DOOR-1")
async def test_answers_are_as_the_document_says(tmp_path: Path) -> None:
    said = await generated(
        tmp_path, "--phases", "fuzzing", "--max-examples", "1", "--include-path-regex", "^/v1/(tools|approvals|jobs)"
    )
    assert "passed" in said


@pytest.mark.requirement("DOOR-1")
@pytest.mark.matrix("it takes minutes")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", PARTS)
async def test_answers_to_many_requests_are_as_the_document_says(tmp_path: Path, part: str) -> None:
    said = await generated(
        tmp_path, "--phases", "examples,coverage,fuzzing", "--max-examples", "25", "--include-path-regex", f"^/v1/{part}"
    )
    assert "passed" in said
    assert part == "k" or "Authentication failed" not in said


@pytest.mark.requirement("DOOR-1")
@pytest.mark.matrix("a longer look at what is tried above")
async def test_answers_to_requests_that_follow_each_other_are_as_the_document_says(tmp_path: Path) -> None:
    said = await generated(tmp_path, "--phases", "stateful", "--max-examples", "25", "--exclude-path-regex", "^/v1/keys")
    assert "passed" in said and "Authentication failed" not in said


@pytest.mark.requirement("DOOR-1")
async def test_each_operation_is_tried_in_one_part() -> None:
    async with memory_app() as app, serving(app) as site:
        paths = site.http.openapi["paths"]
    assert {path: sum(bool(re.match(f"/v1/{part}", path)) for part in PARTS) for path in paths} == dict.fromkeys(paths, 1)
