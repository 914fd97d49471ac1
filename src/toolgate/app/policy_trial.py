"""A policy that somebody tries: it never decides in this process, which it could stop for everybody."""

from collections.abc import Iterator, Sequence
from typing import Any

from toolgate.errors import Failed, TimedOut
from toolgate.gates.policy.documents import Documents, GivenDocument, PolicyError
from toolgate.gates.policy.engine import InputsRead
from toolgate.gates.policy.input_references import what_is_read
from toolgate.model import Decision
from toolgate.sandbox.helper_process import run_helper

SECONDS, MEMORY_MB = 20.0, 512
"""The time and the memory in which a policy must have judged the calls of one page of the log."""
MAX_BATCH_CHARS, MAX_ANSWER_BYTES = 8_000_000, 16_000_000
PACKAGES = ("msgspec", "orjson", "regorus")


class TriedPolicy:
    """The text of a policy, with the documents that it decides on."""

    def __init__(self, text: str, documents: Documents) -> None:
        self._text, self._documents = text, documents
        self.reads: InputsRead = what_is_read(text)

    async def judge(self, inputs: Sequence[str]) -> list[Decision]:
        """Gives the decision on each input. Raises PolicyError for a policy that cannot be used, or that takes too much."""
        found: list[Decision] = []
        for batch in _batches(inputs):
            asked = {"policy": self._text, "inputs": batch, "documents": self._documents}
            try:
                said = await run_helper(
                    "toolgate.gates.policy.trial:judge", asked, tenant="", packages=PACKAGES, seconds=SECONDS,
                    memory_mb=MEMORY_MB, max_bytes=MAX_ANSWER_BYTES,
                )  # fmt: skip
            except (TimedOut, Failed):
                raise PolicyError(
                    f"The policy takes too much: it has not judged the samples and {len(batch):,} calls in "
                    f"{SECONDS:.0f} seconds with {MEMORY_MB} MB.",
                    suggestion="Look for rules that go through all pairs of something, and for large ranges of numbers.",
                ) from None
            if fault := said.get("fault"):
                raise PolicyError(fault[0], line=fault[1], suggestion=fault[2])
            found += [Decision(allow, reason) for allow, reason in said["decisions"]]
        return found


def candidate_documents(in_force: Documents, given: Any) -> Documents:
    """The documents in force with those that are given in their place; allow lists, tenant by tenant. Raises PolicyError for
    malformed ones."""
    if not isinstance(given, dict):
        raise PolicyError("The policy data is refused: it is not an object of documents.")
    whole = {**in_force, **given}
    GivenDocument(whole)
    if "tenant_tool_allow" in given:
        whole["tenant_tool_allow"] = {**in_force.get("tenant_tool_allow", {}), **given["tenant_tool_allow"]}
    return whole


def _batches(inputs: Sequence[str]) -> Iterator[list[str]]:
    """The inputs in parts of a bounded size; at least one, so that the policy is looked at in any case."""
    batch: list[str] = []
    size = 0
    for one in inputs:
        if batch and size + len(one) > MAX_BATCH_CHARS:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += len(one)
    yield batch
