"""Users who share a library of documents: whoever takes one in can't remove or rename another's by that."""

from pathlib import Path

import pytest

from toolgate import Actor
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("BUILTIN-4")
ANN, BOB = Actor("acme", user="ann"), Actor("acme", user="bob")
CONTRACT = "The contract with Globex ends in May 2031."


async def test_a_copy_of_a_document_and_its_next_version_leave_the_first_one(tmp_path: Path) -> None:
    own, other = tmp_path / "ann", tmp_path / "bob"
    for folder in (own, other):
        folder.mkdir()
    (own / "contract.md").write_text(CONTRACT)
    async with memory_app() as app:
        kept = (await app.invoke("document_ingest", {"path": "contract.md"}, actor=ANN, workspace=own)).output
        for text in (CONTRACT, "The contract with Globex never ends."):
            (other / "copy.md").write_text(text)
            taken = await app.invoke("document_ingest", {"path": "copy.md"}, actor=BOB, workspace=other)
            assert taken.ok, taken.error
        asked = {"query": "When does the contract with Globex end?", "threshold": 0, "document_id": kept["document_id"]}
        [found] = (await app.invoke("document_query", asked, actor=ANN)).output["passages"]
        assert (found["document"], found["text"]) == ("contract.md", CONTRACT)
