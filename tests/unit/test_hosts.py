"""Host, Origin and forwarded addresses, against a reference that builds what is allowed and refuses all else."""

import ipaddress
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolgate.serve.hosts import LOOPBACK, TrustedProxies, host_names, is_local_page, matches, parse_host

LETTERS = string.ascii_letters + string.digits
labels = st.builds(
    lambda first, middle, last: first + middle + last,
    st.sampled_from(LETTERS + "_"), st.text(LETTERS + "-_", max_size=20), st.sampled_from(LETTERS + "_"),
)  # fmt: skip
names = st.one_of(
    st.lists(labels, min_size=1, max_size=4).map(".".join),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(lambda address: f"[{address}]"),
    st.sampled_from(["localhost", "127.0.0.1", "[::1]", "[0:0:0:0:0:0:0:1]", "LocalHost"]),
)
ports = st.one_of(st.none(), st.integers(1, 65_535))
odd = st.sampled_from(
    ["\t", " ", "\n", "\r", "\0", "@", "/", "\\", "#", "?", "%", "[", "]", ":", "::1", "evil.example", "\x7f"]
)


def written(name: str, port: int | None) -> str:
    return name if port is None else f"{name}:{port}"


def reference(text: str) -> bool:
    """Whether a text is a host that means this machine: one of few spellings, and perhaps a port, and nothing besides."""
    for name in ("localhost", "127.0.0.1"):
        if text.lower() == name:
            return True
        if text.lower().startswith(f"{name}:"):
            return _is_port(text[len(name) + 1 :])
    if not text.startswith("["):
        return False
    inner, bracket, rest = text[1:].partition("]")
    try:
        loopback = set(inner) <= set("0123456789abcdefABCDEF:.") and ipaddress.IPv6Address(inner) == ipaddress.ip_address(
            "::1"
        )
    except ValueError:
        return False
    return bool(bracket) and loopback and (rest == "" or (rest[0] == ":" and _is_port(rest[1:])))


def _is_port(text: str) -> bool:
    return 1 <= len(text) <= 5 and set(text) <= set(string.digits) and 0 < int(text) < 65_536


@given(names, ports)
def test_a_host_and_its_port_are_read_back(name: str, port: int | None) -> None:
    place = parse_host(written(name, port).encode())
    assert place is not None
    assert place.port == port
    assert place.name == (str(ipaddress.ip_address(name[1:-1])) if name.startswith("[") else name.lower())


@given(
    st.one_of(
        st.text(max_size=40), st.builds(lambda a, b, c: a + b + c, names, odd, names), st.tuples(names, odd).map("".join)
    )
)
@example("[::1]evil.example")
@example("local\thost")
@example("[::1]:80:80")
def test_only_what_the_reference_takes_is_taken_for_this_machine(text: str) -> None:
    raw = text.encode("utf-8")
    place = parse_host(raw)
    assert (place is not None and place.name in LOOPBACK) == reference(raw.decode("latin-1"))
    assert is_local_page(b"http://" + raw) == reference(raw.decode("latin-1"))


@given(st.text(max_size=30))
def test_only_two_schemes_are_pages(text: str) -> None:
    scheme = text.encode()
    assert is_local_page(scheme + b"://localhost") == (scheme in (b"http", b"https"))


@given(st.binary(max_size=60))
def test_any_bytes_are_answered(raw: bytes) -> None:
    parse_host(raw)
    is_local_page(raw)
    TrustedProxies(["127.0.0.1"]).client("127.0.0.1", [(b"forwarded", raw), (b"x-forwarded-for", raw)])


def test_names_of_settings_hold_with_their_port_or_with_any() -> None:
    names = host_names(["Gate.Example", "other.example:8443", "::1", "[::2]:1"])
    for host, known in (
        (b"gate.example", True), (b"GATE.example:1", True), (b"other.example", False), (b"other.example:8443", True),
        (b"[::1]:9", True), (b"[::2]", False), (b"[::2]:1", True), (b"x.gate.example", False),
    ):  # fmt: skip
        place = parse_host(host)
        assert place is not None
        assert matches(place, names) == known, host


@pytest.mark.parametrize(
    ("peer", "headers", "client"),
    [
        ("192.0.2.1", {"x-forwarded-for": "198.51.100.1"}, "192.0.2.1"),
        ("10.0.0.1", {}, "10.0.0.1"),
        ("10.0.0.1", {"x-forwarded-for": "198.51.100.1"}, "198.51.100.1"),
        ("10.0.0.1", {"x-forwarded-for": "1.1.1.1, 198.51.100.1, 10.0.0.2"}, "198.51.100.1"),
        ("10.0.0.1", {"x-forwarded-for": "1.1.1.1, nonsense"}, "10.0.0.1"),
        ("10.0.0.1", {"x-forwarded-for": "10.0.0.3, 10.0.0.2"}, "10.0.0.3"),
        ("10.0.0.1", {"forwarded": 'for=198.51.100.1;proto=https, for="10.0.0.2:80"'}, "198.51.100.1"),
        ("10.0.0.1", {"forwarded": 'by=x;For="[2001:db8::1]:4711"'}, "2001:db8::1"),
        ("10.0.0.1", {"forwarded": "for=_hidden", "x-forwarded-for": "198.51.100.1"}, "10.0.0.1"),
        ("::ffff:10.0.0.1", {"x-forwarded-for": "198.51.100.1"}, "198.51.100.1"),
        # A proxy writes one of the two and passes on whatever a client wrote into the other.
        ("10.0.0.1", {"forwarded": "for=192.0.2.9", "x-forwarded-for": "198.51.100.1"}, "10.0.0.1"),
        ("10.0.0.1", {"forwarded": "for=198.51.100.1", "x-forwarded-for": "192.0.2.9"}, "10.0.0.1"),
        ("10.0.0.1", {"forwarded": "for=198.51.100.1", "x-forwarded-for": "1.1.1.1, 198.51.100.1"}, "198.51.100.1"),
    ],
)
def test_only_trusted_hops_are_passed_over(peer: str, headers: dict[str, str], client: str) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert TrustedProxies(["10.0.0.0/8"]).client(peer, pairs) == client
