"""What servers list is passed on with words that a reader can see."""

from toolgate.mcp.server.prompts_resources import _readable, _sound


def test_words_are_cleaned_and_cut_and_names_are_not() -> None:
    prompt = {
        "name": "a\u202eb",
        "title": "seen\u200b\x1b[31m",
        "description": "x" * 10_000,
        "arguments": [{"name": "n", "description": "hid\u2060den"}],
    }
    [told] = map(_readable, _sound([prompt], "prompts"))
    assert told["name"] == "a\u202eb"
    assert told["title"] == "seen[31m"
    assert len(told["description"]) == 8_192
    assert told["arguments"] == [{"name": "n", "description": "hidden"}]
    resource = {"uri": "file:///a\u200b", "name": "r", "description": "d\u202e"}
    assert list(map(_readable, _sound([resource], "resources"))) == [{**resource, "description": "d"}]
