"""Values that a user typed are found among the session's words; parts, look-alikes and split ones are not."""

import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.gates.flow.tokens import tokens
from toolgate.gates.flow.words import GAP, HASH_BYTES, MAX_TOKENS, SessionWords, appended

KEY = b"k" * 32
FILLER = st.lists(st.sampled_from(["please", "send", "it", "to", "the", "and", "then", "tell", "me"]), max_size=6).map(
    " ".join
)
LETTERS = string.ascii_letters
NAME = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=12).map(lambda text: f"x{text}q")
MAILS = st.builds("{}@{}.org".format, NAME, NAME)
URLS = st.builds("https://{}.com/{}?{}={}".format, NAME, NAME, NAME, NAME)
WORDS = st.text(LETTERS + "äöüßñЖж", min_size=4, max_size=12)
NAMES = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
AMOUNTS = st.decimals(min_value=0, max_value=10**9, places=2, allow_nan=False, allow_infinity=False).map(str)
PHONES = st.integers(10**8, 10**11).map(lambda number: f"+49{number}")
VALUES = st.one_of(MAILS, URLS, NAMES, AMOUNTS, PHONES)


def said(*messages: str) -> SessionWords:
    """The words of a session with these messages."""
    words, hashes = SessionWords(KEY), b""
    for message in messages:
        hashes = appended(hashes, words.hashed(message)) or hashes
    return SessionWords(KEY, hashes)


@pytest.mark.requirement("FLOW-1")
@given(VALUES, FILLER, FILLER, st.sampled_from(["{}", "({})", '"{}"', "“{}”,", "{}.", "<{}>"]))
def test_a_value_that_was_typed_is_named(value: str, before: str, after: str, around: str) -> None:
    message = f"{before} {around.format(value)} {after}"
    assert said(message).names(value), message
    if message.upper().lower() == message.lower():  # ß has no capital that is one letter
        assert said("something else", message.upper(), "and more").names(value), "whatever its case"


@pytest.mark.requirement("FLOW-1")
@given(st.one_of(MAILS, URLS, WORDS, AMOUNTS, PHONES), st.data())
def test_a_part_of_a_token_is_not_named(value: str, data: st.DataObject) -> None:
    [token] = tokens(value)
    words, cut = said(value), data.draw(st.integers(1, len(value) - 1))
    for piece in (value[:cut], value[cut:], f"{value}x", f"x{value}"):
        same = [found[:2] for found in tokens(piece)] == [token[:2]]  # as 1.0 is 1.00, and an address without https://
        assert words.names(piece) is same, piece


@pytest.mark.requirement("FLOW-1")
@given(st.one_of(MAILS, URLS, NAMES), st.sampled_from([("a", "\u0430"), ("e", "\u0435"), ("o", "\u043e"), ("q", "\uff51")]))
def test_a_look_alike_is_not_named(value: str, letters: tuple[str, str]) -> None:
    plain, alike = letters
    if plain in value:
        assert not said(f"to {value} please").names(value.replace(plain, alike))
    for hidden in ("\u200b", "\u00ad", "\u202e", "\ufeff"):
        for at in (0, len(value) // 2, len(value)):
            assert not said(f"to {value} please").names(value[:at] + hidden + value[at:])
            assert not said(f"to {value[:at]}{hidden}{value[at:]} please").names(value[:at] + hidden + value[at:])


@pytest.mark.requirement("FLOW-1")
@given(st.lists(WORDS, min_size=2, max_size=4, unique_by=str.lower), st.sampled_from(["between", "17", "x@y.org"]))
def test_a_value_in_pieces_is_not_named(parts: list[str], between: str) -> None:
    value = " ".join(parts)
    assert said(value).names(value)
    assert not said(*parts).names(value), "over several messages"
    assert not said(f" {between} ".join(parts)).names(value), "with something between"
    if value.lower() != " ".join(reversed(parts)).lower():
        assert not said(" ".join(reversed(parts))).names(value), "in another order"


@pytest.mark.requirement("FLOW-1")
@pytest.mark.parametrize(
    ("typed", "value", "named"),
    [
        ("look at https://acme.com/a", "https://acme.com/a", True),
        ("look at acme.com", "https://acme.com/", True),
        ("look at http://ACME.com:80", "https://acme.com", True),
        ("look at https://acme.com/a.", "https://acme.com/a", True),
        ("look at https://acme.com/a", "https://acme.com/b", False),
        ("look at https://acme.com/a", "https://acme.com/a/", False),
        ("look at https://acme.com/a", "https://acme.com/a?x=1", False),
        ("look at https://acme.com/a", "https://acme.com/a...", False),
        ("look at https://acme.com", "https://acme.com.evil.org", False),
        ("look at https://acme.com", "https://acme.com@evil.org", False),
        ("look at https://acme.com", "https://user@acme.com", False),
        ("look at https://acme.com", "https://acme.com:8443", False),
        ("look at https://acme.com", "https://acme.com\\@evil.org", False),
        ("look at https://acme.com", "https://evil.org/acme.com", False),
        ("look at https://acme.com", "ftp://acme.com", False),
        ("read README.md", "https://readme.md/", False),
        ("read README.md", "README.md", True),
        ("write to ann@acme.com", "Ann@Acme.com", True),
        ("write to ann@acme.com", "mailto:ann@acme.com", True),
        ("write to ann@acme.com", "joann@acme.com", False),
        ("write to ann@acme.com", "ann@acme.com.evil.org", False),
        ("write to ann@acme.com", "ann@acme.com, eve@evil.org", False),
        ("write to ann@acme.com", "ann@acme.com\r\nBcc: eve@evil.org", False),
        ("write to ann@acme.com", '"ann@acme.com" <eve@evil.org>', False),
        ("write to ann@acme.com", "ann @acme.com", False),
        ("write to \u212aim@acme.com", "kim@acme.com", False),
        ("in #general-2", "general", False),
        ("in #general-2", "general-2", True),
        ("pay $1,000.50", "1000.5", True),
        ("pay 1.000,50 €", "1000.50", True),
        ("pay 1000", "100", False),
        ("pay 1000", "10000", False),
        ("account 0012", "12", False),
        ("to DE89 3704 0044 0532 0130 00", "DE89370400440532013000", True),
        ("to DE89370400440532013000", "DE89 3704 0044 0532 0130 00", True),
        ("to DE89 3704 0044 0532 0130 00", "DE89370400440532013001", False),
        ("call +49 170 123 45 67", "+491701234567", True),
        ("call 0049 170 1234567", "+49 170 1234567", True),
        ("call +49 170 1234567", "+49 170 123456", False),
        ("on 05/10/2024 at 12:30", "05/10/2024", True),
        ("ping 10.0.0.1", "10.0.0.1", True),
        ("ping 10.0.0.1", "10.0.0.11", False),
        ("发给ann@acme.com吧", "ann@acme.com", True),
        ("open ~/notes", "/notes", False),
        ("anything", "", False),
        ("...", "...", False),
    ],
)
def test_spelling_is_levelled_and_nothing_else(typed: str, value: str, named: bool) -> None:
    assert said(f"please {typed} now").names(value) is named


@pytest.mark.requirement("FLOW-1")
def test_numbers_of_json_are_named_too() -> None:
    words = said("pay 500 and 12.50 then 0.1")
    assert all(words.names(value) for value in (500, 500.0, 12.5, 0.1))
    assert not any(words.names(value) for value in (50, 12, True, float("nan"), float("inf"), 1e300))


@pytest.mark.requirement("FLOW-1")
@pytest.mark.parametrize(
    ("typed", "value", "named"),
    [
        ("mail the report", "mail", False),
        ("mail Bob the report", "bob", True),
        ('rename it to "draft"', "draft", True),
        ("tell @bob in #random", "random", True),
        ("use prod-2", "prod-2", True),
        ("tell mark black", "mark black", True),
    ],
)
def test_a_plain_word_is_a_name_only_where_it_is_marked_as_one(typed: str, value: str, named: bool) -> None:
    words = said(typed)
    assert words.names(value)
    assert words.names(value, marked=True) is named


@pytest.mark.requirement("FLOW-1")
def test_what_is_kept_is_bounded_and_says_nothing_without_the_key() -> None:
    words = said("the secret plan of ann@acme.com")
    assert b"ann" not in words._hashes and len(words) == 5
    assert not SessionWords(b"another key", words._hashes).names("ann@acme.com")
    long = said(*[" ".join(f"w{number}x{part}" for part in range(1_000)) for number in range(25)])
    assert len(long) == MAX_TOKENS
    assert long.names("w24x999") and not long.names("w0x0"), "the oldest are forgotten first"
    hashes = SessionWords(KEY).hashed("again and again")
    assert appended(hashes, hashes) is None and appended(GAP + hashes, hashes) is None
    assert len(appended(hashes, hashes[HASH_BYTES:]) or b"") == 6 * HASH_BYTES


HOSTILE = [
    "a ", "0 ", "(0", "DE89 ", "DE89 3704 0044 0532 0130 01 ", "1,", "1,000,", "1.000", "+1 ", "0-", "http://", "ahttps://",
    "a@", "a.", "a.b.", "x@y.zz ", "::1 ", ":", "'", "#", "$", "\u4e00", "é", "\ud800", "\u212a", "-", "/", "\\", "10.",
]  # fmt: skip


@pytest.mark.requirement("FLOW-1")
@pytest.mark.parametrize("piece", HOSTILE, ids=ascii)
def test_a_hundred_kilobytes_of_anything_take_little_time(piece: str) -> None:
    text = (piece * 100_000)[:100_000]
    start = time.process_time()
    hashes = SessionWords(KEY).hashed(text)
    SessionWords(KEY, hashes or GAP).names(text[:10_000])
    assert time.process_time() - start < 2.0, "some 0.08 s here, five times as long where lines are counted"


@pytest.mark.requirement("FLOW-1")
@given(st.text(max_size=300))
def test_any_text_at_all_can_be_read(text: str) -> None:
    words = said(text)
    places = [(token.start, token.end) for token in tokens(text)]
    assert places == sorted(places) and all(start < end for start, end in places)
    if text.isprintable() and places and [token.kind for token in tokens(text)] != ["url"]:
        assert words.names(text)
