"""What a call of a tool on an MCP server gives: as plain as it can be, and nothing of it lost."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import CallError
from toolgate.mcp.runner import parts, result

TEXT = {"type": "text", "text": "hello"}
IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        ({"content": [TEXT]}, "hello"),
        ({"content": [TEXT, TEXT]}, {"content": [TEXT, TEXT]}),
        ({"content": [IMAGE]}, {"content": [IMAGE]}),
        ({"content": []}, {"content": []}),
        ({"content": [{**TEXT, "annotations": {"priority": 1}}]}, {"content": [{**TEXT, "annotations": {"priority": 1}}]}),
        ({"content": [{"type": "text", "text": '{"a": 1}'}], "structuredContent": {"a": 1}}, {"a": 1}),
        ({"content": [], "structuredContent": {"a": 1}}, {"a": 1}),
        ({"content": [TEXT], "structuredContent": {"a": 1}}, {"content": [TEXT], "structuredContent": {"a": 1}}),
        ({"content": [{"type": "text", "text": "null"}], "structuredContent": None}, None),
        ({"contents": [{"uri": "a:b", "text": "x"}], "_meta": {}, "ttlMs": 5}, {"contents": [{"uri": "a:b", "text": "x"}]}),
    ],
)
def test_an_answer_becomes_an_output(answer: dict[str, Any], output: Any) -> None:
    assert result(answer) == output


def test_a_failure_is_told_in_the_servers_words() -> None:
    with pytest.raises(CallError, match=r"^no such file\nreally$") as raised:
        result({"content": [{"type": "text", "text": "no such file"}, {"type": "text", "text": "really"}], "isError": True})
    assert raised.value.code == "MCP_ERROR"
    with pytest.raises(CallError, match="without a message"):
        result({"content": [IMAGE], "isError": True})


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
BLOCKS = st.lists(
    st.builds(lambda text: {"type": "text", "text": text}, st.text(max_size=20))
    | st.builds(lambda data: {"type": "image", "mimeType": "image/png", "data": data}, st.text("AB", max_size=8)),
    max_size=3,
)


@given(BLOCKS, st.none() | st.dictionaries(st.text(max_size=5), ANY, max_size=3))
def test_nothing_of_an_answer_is_lost(content: list[dict[str, Any]], structured: dict[str, Any] | None) -> None:
    """Whoever speaks MCP can be given all of it again."""
    answer: dict[str, Any] = {"content": content}
    if structured is not None:
        answer["structuredContent"] = structured
    output = result(answer)
    again = parts(output)
    if again is not None and output != structured:
        assert again == content
        assert output.get("structuredContent") == structured
    elif structured is not None:
        assert output == structured
        assert not content or orjson.loads(content[0]["text"]) == structured
    else:
        assert content == [{"type": "text", "text": output}]


@pytest.mark.parametrize(
    "value", [None, 1, "a", [], {}, {"content": 1}, {"content": [{"type": "odd"}]}, {"content": [], "x": 1}]
)
def test_other_values_are_no_parts(value: Any) -> None:
    assert parts(value) is None
