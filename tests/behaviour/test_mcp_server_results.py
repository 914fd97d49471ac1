"""Whatever a tool gives, the result is one that clients of every protocol version can read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types.methods import serialize_server_result

from toolgate.errors import CODES
from toolgate.mcp.server.results import ProtocolError, call_result
from toolgate.model import Artifact, ErrorInfo, Outcome, PendingInfo

pytestmark = pytest.mark.requirement("MCP-4", "MCP-2")

VERSIONS = ("2024-11-05", "2025-11-25", "2026-07-28")
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=6)
NAMES = (
    "type", "text", "data", "mimeType", "uri", "name", "resource", "blob", "annotations", "audience", "priority", "size",
    "icons", "src", "_meta",
)  # fmt: skip
KEYS = st.sampled_from(NAMES)
INNER = st.dictionaries(KEYS, SCALARS, max_size=3)
LOOSE = st.dictionaries(KEYS, SCALARS | INNER | st.lists(SCALARS | INNER, max_size=2), max_size=4)
PARTS = st.builds(
    lambda kind, most, loose: {**most[kind], **loose, "type": kind},
    st.sampled_from(["text", "image", "audio", "resource", "resource_link"]),
    st.just(
        {
            "text": {"text": "words"},
            "image": {"data": "aGk=", "mimeType": "image/png"},
            "audio": {"data": "aGk=", "mimeType": "audio/wav"},
            "resource": {"resource": {"uri": "test://it", "text": "words"}},
            "resource_link": {"uri": "test://it", "name": "it"},
        }
    ),
    LOOSE,
)
"""Parts as servers give them, most of them odd in some way."""
OUTPUTS = (
    SCALARS
    | LOOSE
    | st.lists(LOOSE, max_size=2)
    | st.builds(
        lambda content, more: {"content": content, **more},
        st.lists(PARTS, max_size=3),
        st.just({}) | st.builds(lambda value: {"structuredContent": value}, SCALARS | LOOSE),
    )
)


def as_read(outcome: Outcome) -> dict[str, Any]:
    """The result, after each version's own check."""
    result = {"resultType": "complete", **call_result(outcome, None)}
    for version in VERSIONS:
        serialize_server_result("tools/call", version, result)
    return result


@given(OUTPUTS, st.booleans())
def test_every_output_is_a_result_that_all_versions_take(output: Any, cut: bool) -> None:
    artifact = Artifact("art_1", 10, ("the text",)) if cut else None
    result = as_read(Outcome("1", "any", "success", output, artifact=artifact))
    assert "isError" not in result and result["_meta"] == {"toolgate/call": "1"}
    if cut:
        assert result["content"][-1]["uri"] == "toolgate://artifacts/art_1"


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_error_is_a_result_that_says_its_code_but_for_a_tool_that_is_not_there(code: str) -> None:
    status = CODES[code].status
    pending = PendingInfo("approval", "ap_1") if status == "pending" else None
    outcome = Outcome("1", "any", status, error=ErrorInfo(code, "Why.", suggestion="Do this."), pending=pending)
    if code == "TOOL_NOT_FOUND":
        with pytest.raises(ProtocolError):
            as_read(outcome)
        return
    result = as_read(outcome)
    assert result["isError"] is True and "Do this." in result["content"][0]["text"]
    assert pending is not None or result["_meta"]["toolgate/error"]["code"] == code


def test_parts_are_given_as_they_came_and_half_a_picture_is_none() -> None:
    picture = {"type": "image", "data": "aGk=", "mimeType": "image/png", "annotations": {"priority": 0.5}}
    assert as_read(Outcome("1", "any", "success", {"content": [picture]}))["content"] == [picture]
    half = {**picture, "data": "aGk=...[truncated]"}
    result = as_read(Outcome("1", "any", "success", {"content": [half]}, artifact=Artifact("art_1", 10, ("data",))))
    assert [part["type"] for part in result["content"]] == ["text", "resource_link"]
