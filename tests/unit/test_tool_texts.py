"""The texts of a tool that are compared with a task."""

import pytest

from toolgate.model import Tool
from toolgate.tool_search.text import MAX_PURPOSE_CHARS, server_of, tool_text

pytestmark = pytest.mark.requirement("AGENT-3")


@pytest.mark.parametrize(
    ("description", "purpose"),
    [
        ("Get a pet.", "Get a pet."),
        ("Get a pet by its number.\n\nAnswers an object.", "Get a pet by its number."),
        ("Get a pet by its number.\r\n \r\nAnswers an object.", "Get a pet by its number."),
        ("Get a pet\nby its number.", "Get a pet by its number."),
        ("Pets.\n\nGet one by its number.", "Pets. Get one by its number."),
        ("\n\n\n\nGet a pet by its number.", "Get a pet by its number."),
        ("Get\u200b a\x00 pet by its number.", "Get a pet by its number."),
        ("\u200b\n\n\x00", "get pet"),
        ("宠物" * 400, "宠物" * (MAX_PURPOSE_CHARS // 2)),
    ],
)
def test_the_first_paragraph_says_what_a_tool_is_for(description: str, purpose: str) -> None:
    text = tool_text(Tool(name="get_pet", description=description))
    assert text.purpose == purpose
    assert text.named_purpose == f"get pet. {purpose}"


@pytest.mark.parametrize(
    ("fields", "server", "named"),
    [
        ({"name": "mcp_my-pets_get_pet", "source": "mcp", "target": "mcp:my-pets"}, "mcp:my-pets", "get pet"),
        ({"name": "pets_getPet", "source": "openapi", "tags": ("openapi", "pets")}, "openapi:pets", "get pet"),
        ({"name": "mcp_pets_get", "source": "dynamic", "target": "mcp:pets", "tenant": "acme"}, "", "mcp pets get"),
        ({"name": "pets_get", "source": "dynamic", "tags": ("openapi", "pets"), "tenant": "acme"}, "", "pets get"),
        ({"name": "pets_get", "source": "openapi"}, "", "pets get"),
    ],
)
def test_a_tool_has_a_server_if_toolgate_says_so(fields: dict[str, object], server: str, named: str) -> None:
    tool = Tool.model_validate({"description": "Get a pet by its number.", **fields})
    assert server_of(tool) == server
    assert tool_text(tool).named_purpose == f"{named}. Get a pet by its number."


def test_tools_of_other_words_are_not_found_by_each_others() -> None:
    """One tenant's tool could be found by the tags of another's, and could push that one down by its own."""
    one, other, same = (
        tool_text(
            Tool.model_validate({"name": "lookup", "description": "Look something up.", "tags": tags, "tenant": tenant})
        )
        for tags, tenant in ((("northwind",), "acme"), (("weather",), "globex"), (("northwind",), "globex"))
    )
    assert one.named_purpose == other.named_purpose
    assert one.key != other.key
    assert one.key == same.key
