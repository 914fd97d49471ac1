"""The OpenAPI document holds: whatever is generated from it is answered as it says, and nothing fails.

Schemathesis makes requests from the document, valid ones and broken ones, and compares each answer with it.
"""

import asyncio
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


async def generated(tmp_path: Path, *words: str) -> str:
    """Runs schemathesis against a server whose client may do everything. Gives what it says."""
    home = tmp_path / "home"
    async with memory_app(home=home, database_url=f"sqlite:///{tmp_path}/t.db") as app, serving(app) as site:
        _, key = await app.keys.create("schemathesis", Actor("acme", user="ann"), roles=["operator"])
        command = [
            str(Path(sys.executable).with_name("schemathesis")), "run", f"http://{site.host}/v1/openapi.json",
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
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_answers_to_many_requests_are_as_the_document_says(tmp_path: Path) -> None:
    said = await generated(tmp_path, "--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "25")
    assert "passed" in said
