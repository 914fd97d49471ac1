"""A secret that comes back in another shape is masked all the same."""

import base64
import html
import json
import re
from collections.abc import Callable
from urllib.parse import quote

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.secret_use import named
from toolgate import tool
from toolgate.hazards.shapes import shapes
from toolgate.model import MASK
from toolgate.redact import Redactor
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("IO-4")
REDACTOR = Redactor(scan=False)
SHAPES: dict[str, Callable[[str], str]] = {
    "itself": str,
    "json": json.dumps,
    "json in utf-8": lambda value: orjson.dumps(value).decode(),
    "json in json": lambda value: json.dumps(json.dumps({"v": value})),
    "json in json in utf-8": lambda value: orjson.dumps(orjson.dumps([value]).decode()).decode(),
    "json of php": lambda value: json.dumps(value).replace("/", "\\/"),
    "repr": repr,
    "url": lambda value: f"/?q={quote(value, safe='')}",
    "path of a url": quote,
    "url in small letters": lambda value: re.sub("%..", lambda found: found[0].lower(), quote(value, safe="")),
    "html": html.escape,
    "html text": lambda value: html.escape(value, quote=False),
    "html of templates": lambda value: html.escape(value).replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 for urls": lambda value: base64.urlsafe_b64encode(value.encode()).decode().rstrip("="),
    "hexadecimal": lambda value: value.encode().hex(),
}
secrets = st.text(st.characters(codec="utf-8", min_codepoint=32, exclude_characters="%"), min_size=8, max_size=40)


@given(secrets, st.sampled_from(sorted(SHAPES)))
def test_every_shape_is_masked(value: str, name: str) -> None:
    shown = SHAPES[name](value)
    assert MASK in REDACTOR.text(f"so: {shown}!", tuple(shapes(value)))


@given(secrets, st.binary(max_size=7), st.binary(max_size=7))
def test_base64_of_something_longer_shows_no_part_of_the_value(value: str, before: bytes, after: bytes) -> None:
    content = value.encode()
    whole = base64.b64encode(before + content + after).decode().rstrip("=")
    masked = REDACTOR.text(whole, tuple(shapes(value)))
    assert MASK in masked
    of_others = len(before) * 8 // 6 + len(whole) - -(-(len(before) + len(content)) * 8 // 6)
    assert len(masked) - len(MASK) - of_others <= 4  # characters at its ends, which belong to its neighbours too


def test_basic_authorization_is_masked() -> None:
    header = "Authorization: Basic " + base64.b64encode(b"ann:correct horse battery").decode()
    masked = Redactor(scan=False).text(header, tuple(shapes("correct horse battery")))
    assert "Y29ycmVjdC" not in masked
    assert base64.b64encode(b"horse battery").decode()[4:12] not in masked


def test_lines_of_a_secret_with_many_are_masked_one_by_one() -> None:
    body = [base64.b64encode(bytes([number] * 30)).decode() for number in range(1, 4)]
    key = "\n".join(["-----BEGIN THING-----", *body, "-----END THING-----"])
    for line in body:
        assert REDACTOR.text(f"| {line} |", tuple(shapes(key))) == f"| {MASK} |"
    assert REDACTOR.text("-----BEGIN THING-----", tuple(shapes(key))) == "-----BEGIN THING-----"


@given(st.text("abcXYZ019", min_size=1, max_size=3))
def test_codes_of_a_short_secret_may_be_anything_and_are_left_alone(value: str) -> None:
    assert shapes(value) == {value}


async def test_a_tool_that_encodes_its_credential_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_KEY", "correct horse battery")

    @tool(tier="read_only")
    async def encode(value: str) -> dict[str, str]:
        """Encode."""
        return {name: write(value) for name, write in SHAPES.items()}

    async with memory_app(secrets=named("KEY", "encode")) as app:
        app.register(encode)
        outcome = await app.invoke("encode", {"value": "{{secret:KEY}}"})
    assert isinstance(outcome.output, dict)
    assert sorted(outcome.output) == sorted(SHAPES)
    assert all(MASK in shown for shown in outcome.output.values())
