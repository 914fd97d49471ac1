"""A secret that comes back in another shape is masked all the same."""

import base64
import html
import json
import re
import time
from collections.abc import Callable
from urllib.parse import quote

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.secret_use import named
from toolgate import tool
from toolgate.gates.redaction import Redactor
from toolgate.model import MASK
from toolgate.screening.secret_patterns import shapes
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
    assert MASK in REDACTOR.text(f"so: {shown}!", (value,))


@given(secrets, st.binary(max_size=7), st.binary(max_size=7))
def test_base64_of_something_longer_shows_no_part_of_the_value(value: str, before: bytes, after: bytes) -> None:
    content = value.encode()
    whole = base64.b64encode(before + content + after).decode().rstrip("=")
    masked = REDACTOR.text(whole, (value,))
    assert MASK in masked
    of_others = len(before) * 8 // 6 + len(whole) - -(-(len(before) + len(content)) * 8 // 6)
    assert len(masked) - len(MASK) - of_others <= 4  # characters at its ends, which belong to its neighbours too


def test_basic_authorization_is_masked() -> None:
    header = "Authorization: Basic " + base64.b64encode(b"ann:correct horse battery").decode()
    masked = Redactor(scan=False).text(header, ("correct horse battery",))
    assert "Y29ycmVjdC" not in masked
    assert base64.b64encode(b"horse battery").decode()[4:12] not in masked


def test_lines_of_a_secret_with_many_are_masked_one_by_one() -> None:
    body = [base64.b64encode(bytes([number] * 30)).decode() for number in range(1, 4)]
    key = "\n".join(["-----BEGIN THING-----", *body, "-----END THING-----"])
    for line in body:
        assert REDACTOR.text(f"| {line} |", (key,)) == f"| {MASK} |"
    assert REDACTOR.text("-----BEGIN THING-----", (key,)) == "-----BEGIN THING-----"


@given(st.text("abcXYZ019", min_size=1, max_size=3))
def test_codes_of_a_short_secret_may_be_anything_and_are_left_alone(value: str) -> None:
    assert shapes(value) == {value.lower()}


WAYS: dict[str, Callable[[str], str]] = {
    "upper case": str.upper,
    "lower case": str.lower,
    "swapped case": str.swapcase,
    "reversed": lambda value: value[::-1],
    "reversed and upper case": lambda value: value[::-1].upper(),
    "spaced": " ".join,
    "dashed": "-".join,
    "a character a line": "\n".join,
    "hexadecimal with colons": lambda value: ":".join(f"{byte:02X}" for byte in value.encode()),
    "a list of characters": lambda value: str(list(value)),
    "base64 of UTF-16": lambda value: base64.b64encode(value.encode("utf-16-le")).decode(),
    "Python's escapes": lambda value: "".join(f"\\x{byte:02x}" for byte in value.encode()),
    "JSON's escapes": lambda value: "".join(f"\\u{ord(char):04x}" for char in value),
    "every character quoted": lambda value: "".join(f"%{byte:02x}" for byte in value.encode()),
    "HTML's numbers": lambda value: "".join(f"&#{ord(char)};" for char in value),
    "base64 reversed": lambda value: base64.b64encode(value.encode()).decode()[::-1],
    "base64 in lines": lambda value: "\n".join(re.findall(".{1,8}", base64.b64encode(value.encode()).decode())),
}
tokens = st.text("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ0123456789_-.+/=!", min_size=12, max_size=60).filter(
    lambda value: sum(char.isalnum() for char in value) >= 10
)


def pieces(value: str, size: int = 9) -> list[str]:
    return [value[at : at + size] for at in range(len(value) - size + 1)]


@pytest.mark.parametrize("way", WAYS)
@given(value=tokens)
@pytest.mark.sample(4)
def test_a_secret_is_masked_however_it_is_written(way: str, value: str) -> None:
    shown = WAYS[way](value)
    masked = REDACTOR.text(f"so: {shown} !", (value,))
    assert MASK in masked
    assert shown not in masked


LAYERS: dict[str, Callable[[str], str]] = {
    "json": lambda text: json.dumps({"v": text, "n": 1}),
    "url": lambda text: f"/a?q={quote(text, safe='')}&b=1",
    "html": lambda text: f"<p>{html.escape(text)}</p>",
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 for urls": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "hexadecimal": lambda text: text.encode().hex(),
}


@given(tokens, st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=4))
def test_every_coding_that_is_promised_is_taken_off_in_any_order(value: str, layers: list[str]) -> None:
    shown = f"user=ann, key {value}, and more"
    for layer in layers:
        shown = LAYERS[layer](shown)
    assert MASK in REDACTOR.text(shown, (value,)), shown


@given(tokens, st.integers(12, 60), st.booleans())
def test_what_is_cut_out_of_a_secret_is_masked(value: str, length: int, from_the_end: bool) -> None:
    cut = value[-length:] if from_the_end else value[:length]
    masked = REDACTOR.text(f"There is no unit {cut!r}.", (value,))
    assert not any(piece in masked for piece in pieces(cut, 12))


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ("4815162342", 4815162342), ("4815162342", -4815162342), ("4815162342", 4815162342.0), ("0042", 42.0),
        ("4815162342", 2432615184), ("4815-1623-42", 4815162342), ("4815162342", 4815162342000), ("1234.50", 1234.5),
        ("00123456", 123456),
    ],
)  # fmt: skip
def test_a_secret_of_digits_is_masked_as_a_number(value: str, output: float) -> None:
    if value == "0042":
        assert REDACTOR.mask({"n": output}, known=(value,)) == {"n": output}, "too short to be told from other numbers"
    else:
        assert REDACTOR.mask({"n": output, "m": [7]}, known=(value,)) == {"n": MASK, "m": [7]}


@given(tokens)
def test_a_secret_in_a_list_of_its_parts_is_masked(value: str) -> None:
    for parts in (list(value.encode()), list(value), list(map(ord, value))):
        assert REDACTOR.mask({"parts": parts}, known=(value,)) == {"parts": MASK}
    for halves in ([value[:5], value[5:]], [value[:6], value[6:], "z"]):
        masked = repr(REDACTOR.mask(halves, known=(value,)))
        assert not any(piece in masked for piece in pieces(value, 12))
    other = {"parts": [1, 2, 3], "words": ["one", "two"], "n": 12345.5, "b": True, "nothing": None}
    assert REDACTOR.mask(other, known=(value,)) is other


@given(tokens, st.text('abcdefghij %&\\=+/0123456789\n{}"', max_size=300))
def test_what_has_nothing_of_a_secret_in_it_stays(value: str, text: str) -> None:
    held = re.sub(r"[^a-z0-9]", "", text)
    plain = re.sub(r"[^a-z0-9]", "", value.lower())
    if not any(plain[at : at + 6] in held or plain[::-1][at : at + 6] in held for at in range(max(len(plain) - 5, 1))):
        masked = REDACTOR.text(text, (value,))
        assert masked == REDACTOR.text(text)


@pytest.mark.matrix("works on large texts")
@pytest.mark.parametrize(
    "piece", ["a", "ab1", "%25", "&amp;", "\\", "\\u0061", "YWFh", "6161", "-", "é", "İΣ", "\ud800", " a"]
)
def test_any_text_is_looked_through_in_time_that_grows_with_it(piece: str) -> None:
    known = ("a1" * 20, "ab1" * 9, "correct horse battery", "İΣ-straße-42")
    for size in (200_000, 400_000):
        began = time.process_time()
        REDACTOR.text(piece * (size // len(piece)), known)
        assert time.process_time() - began < 5  # quadratic time would be minutes


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
