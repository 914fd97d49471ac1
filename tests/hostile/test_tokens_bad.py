"""Tokens (JWT) that somebody forged or bent, and servers of keys that misbehave: nobody gets in, and nobody else waits."""

import asyncio
import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st
from jwt.warnings import InsecureKeyLengthWarning

from tests.issuer import AUDIENCE, Issuer, an_issuer, private_key, public_jwk, unsigned
from tests.loopback import Asked, Said
from tests.loopback import site as loopback
from tests.serving import Site, serving
from toolgate import App
from toolgate.app.json_web_tokens import MAX_TOKEN_BYTES, NotAToken, read, strict_object
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("DOOR-3")


@asynccontextmanager
async def a_site(issuer: Issuer, **issuer_settings: Any) -> AsyncIterator[tuple[App, Site]]:
    """A server that must take a good token at the end, whatever came before."""
    async with memory_app(auth={"issuers": [issuer.settings(**issuer_settings)]}) as app, serving(app) as site:
        yield app, site


async def status(site: Site, token: str) -> int:
    return (await site("GET", "/v1/session", key=token)).status


def hs256(issuer: Issuer) -> str:
    """Signed with the public key, as if that were a shared secret."""
    public = private_key("one").public_key()
    secret = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    plain = unsigned({"alg": "HS256", "typ": "JWT", "kid": "one"}, issuer.claims())[:-1]
    mac = urlsafe_b64encode(hmac.digest(secret, plain.encode(), "sha256")).rstrip(b"=").decode()
    return f"{plain}.{mac}"


def with_own_key(issuer: Issuer) -> str:
    """Signed with a key of the sender's, which the header brings along."""
    header = {"jwk": public_jwk("evil"), "jku": f"{issuer.url}/evil", "x5u": f"{issuer.url}/evil"}
    return jwt.encode(issuer.claims(), private_key("evil"), "RS256", headers={"kid": "one", **header})


def with_twice(issuer: Issuer, part: str) -> str:
    """With a name that stands twice, and a good signature."""
    claims = json.dumps(issuer.claims())
    if part == "claims":
        twice = claims[:-1] + ', "sub": "root"}'
        return jwt.api_jws.encode(twice.encode(), private_key("one"), "RS256", headers={"kid": "one"})
    signing = b".".join(
        urlsafe_b64encode(text.encode()).rstrip(b"=") for text in ('{"alg":"RS256","kid":"one","kid":"one"}', claims)
    )
    signature = jwt.get_algorithm_by_name("RS256").sign(signing, private_key("one"))
    return (signing + b"." + urlsafe_b64encode(signature).rstrip(b"=")).decode()


NOW = time.time
BAD: dict[str, Callable[[Issuer], str]] = {
    "alg none": lambda one: unsigned({"alg": "none", "typ": "JWT"}, one.claims()),
    "alg none, with a signature": lambda one: unsigned({"alg": "none", "kid": "one"}, one.claims(), b"x"),
    "alg None": lambda one: unsigned({"alg": "NoNe", "kid": "one"}, one.claims(), b"x"),
    "no alg": lambda one: unsigned({"kid": "one"}, one.claims(), b"x"),
    "HS256 with the public key": hs256,
    "signed with another key": lambda one: one.token("evil", header={"kid": "one"}),
    "own key in the header": with_own_key,
    "unknown kid": lambda one: one.token(header={"kid": "nobody"}),
    "kid is no text": lambda one: unsigned({"alg": "RS256", "kid": ["one"]}, one.claims(), b"x"),
    "wrong audience": lambda one: one.token(aud="https://other.example.com/mcp"),
    "audience longer": lambda one: one.token(aud=f"{AUDIENCE}/"),
    "no audience": lambda one: one.token(aud=None),
    "audience a number": lambda one: one.token(aud=[7]),
    "wrong issuer": lambda one: one.token(iss="https://other.example.com"),
    "issuer longer": lambda one: one.token(iss=f"{one.url}/"),
    "expired": lambda one: one.token(exp=int(NOW()) - 60),
    "never expires": lambda one: one.token(exp=None),
    "expires as text": lambda one: jwt.api_jws.encode(
        json.dumps(one.claims(exp="9999999999")).encode(), private_key("one"), "RS256", headers={"kid": "one"}
    ),
    "not yet valid": lambda one: one.token(nbf=int(NOW()) + 120),
    "made in the future": lambda one: one.token(iat=int(NOW()) + 120),
    "of another type": lambda one: one.token(header={"typ": "logout+jwt"}),
    "critical extension": lambda one: one.token(header={"crit": ["exp"], "exp": 1}),
    "not encoded": lambda one: unsigned({"alg": "RS256", "kid": "one", "b64": False}, one.claims(), b"x"),
    "for who can prove more": lambda one: one.token(cnf={"jkt": "x"}),
    "claims twice": lambda one: with_twice(one, "claims"),
    "header twice": lambda one: with_twice(one, "header"),
    "huge": lambda one: one.token(extra="x" * MAX_TOKEN_BYTES),
    "no role that is mapped": lambda one: one.token(roles=["guests"]),
    "no roles": lambda one: one.token(roles=None),
    "roles of another kind": lambda one: one.token(roles={"staff": True}),
    "no user": lambda one: one.token(sub=None),
    "user is empty": lambda one: one.token(sub=""),
    "user of two lines": lambda one: one.token(sub="a\nb"),
    "user looks like another": lambda one: one.token(sub="\u0430nn"),
    "user is the person at this machine": lambda one: one.token(sub="local"),
    "user is that of a key": lambda one: one.token(sub="key:ci"),
    "user is everybody": lambda one: one.token(sub="*"),
    "user is one of Toolgate's own": lambda one: one.token(sub="Toolgate"),
    "user is an escape": lambda one: one.token(sub="\\Uffffffff"),
    "two parts": lambda one: one.token().rpartition(".")[0],
    "four parts": lambda one: f"{one.token()}.x",
    "padded": lambda one: f"{one.token()}==",
    "changed": lambda one: _changed(one.token()),
}


def _changed(token: str) -> str:
    head, claims, signature = token.split(".")
    other = urlsafe_b64encode(json.dumps({"sub": "root"}).encode()).rstrip(b"=").decode()
    return f"{head}.{other if claims else ''}.{signature}"


async def test_no_bad_token_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.serve.key_attempts.FIRST_SECONDS", 0.0)
    async with an_issuer() as issuer, a_site(issuer) as (_, site):
        for name, bad in BAD.items():
            answer = await site("GET", "/v1/session", key=bad(issuer))
            assert answer.status == 401, (name, answer.body)
            assert "error=" in answer.headers["www-authenticate"], name
            assert await status(site, issuer.token()) == 200, f"after: {name}"
        assert issuer.asked("/evil") == 0, "no address in a token is asked"
        assert issuer.asked("/keys") <= 2


async def test_no_token_is_of_the_tenant_that_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its admin could change the budget of each tenant."""
    monkeypatch.setattr("toolgate.serve.key_attempts.FIRST_SECONDS", 0.0)
    async with an_issuer() as issuer, a_site(issuer, claims={"tenant": "org"}, tenant=None) as (_, site):
        for org in ("*", ""):
            assert await status(site, issuer.token(org=org)) == 401
        assert await status(site, issuer.token(org="acme")) == 200


async def test_a_key_of_the_set_is_used_for_what_it_is_there_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.serve.key_attempts.FIRST_SECONDS", 0.0)
    async with an_issuer() as issuer, a_site(issuer) as (_, site):
        issuer.keys = [
            public_jwk("one"),
            public_jwk("encrypts", use="enc"),
            public_jwk("wraps", key_ops=["wrapKey"]),
            public_jwk("other", alg="PS256"),
            public_jwk("short"),
            {"kty": "oct", "kid": "secret", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"},
            {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
        ]
        assert await status(site, issuer.token()) == 200
        with pytest.warns(InsecureKeyLengthWarning):
            weak = issuer.token("short")
        for token in (weak, *map(issuer.token, ("encrypts", "wraps", "other"))):
            assert await status(site, token) == 401
        assert await status(site, issuer.token(header={"kid": "broken"})) == 401
        shared = jwt.encode(issuer.claims(), "secretsecretsecretsecret" * 2, "HS256", headers={"kid": "secret"})
        assert await status(site, shared) == 401
        without = jwt.encode(issuer.claims(), private_key("one"), "RS256")
        assert await status(site, without) == 401, "a token that does not say which of several keys signed it"


async def test_keys_that_rotate_are_followed_and_those_that_are_gone_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.network.key_sets.AGAIN_SECONDS", 0.0)
    monkeypatch.setattr("toolgate.app.issuers.KNOWN_SECONDS", 0.0)
    async with an_issuer() as issuer, a_site(issuer) as (_, site):
        assert await status(site, issuer.token()) == 200
        issuer.keys = [public_jwk("two")]
        assert await status(site, issuer.token("two")) == 200
        assert await status(site, issuer.token()) == 401


async def flood(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + b'{"keys":[')
    for _ in range(1_000):
        writer.write(b'{"kty":"RSA"},' * 100)
        await writer.drain()


@pytest.mark.parametrize(
    "said",
    [
        Said(200, "<html>keys</html>"),
        Said(200, {"keys": "none"}),
        Said(200, {"keys": [{}] * 200}),
        Said(200, []),
        Said(500),
        Said(204),
        Said(200, b'{"keys":[' + b"[" * 5_000),
        Said(raw=flood),
    ],
    ids=["html", "no list", "many", "array", "500", "204", "deep", "huge"],
)
async def test_keys_that_are_none_let_nobody_in(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.network.key_sets.RETRY_SECONDS", 0.0)
    async with an_issuer() as issuer, a_site(issuer) as (app, site):
        issuer.said = said
        answer = await site("GET", "/v1/session", key=issuer.token())
        assert (answer.status, "cannot be fetched" in answer.json["detail"]) == (503, True)
        await site.with_key(app)
        assert (await site("GET", "/v1/session")).status == 200, "whoever has a key is not concerned"
        site.key, issuer.said = None, None
        assert await status(site, issuer.token()) == 200, "it goes on as soon as they are back"


async def test_no_redirect_leads_to_other_keys() -> None:
    async def evil(_: Asked) -> Said:
        return Said(200, {"keys": [public_jwk("evil", kid="one")]})

    async with an_issuer() as issuer, loopback(evil) as other, a_site(issuer) as (_, site):
        issuer.said = Said(302, headers={"location": f"{other.url}/keys"})
        assert await status(site, issuer.token("evil", header={"kid": "one"})) == 503
        assert other.asked == []


@pytest.mark.parametrize(
    "elsewhere",
    ["http://127.0.0.1:1/keys", "https://127.0.0.1:1/keys", "https://10.0.0.1/keys", "file:///etc/passwd", "//x", 7],
)
async def test_metadata_leads_to_no_private_address(elsewhere: Any) -> None:
    async with an_issuer() as issuer, a_site(issuer) as (_, site):
        issuer.metadata = {"jwks_uri": elsewhere}
        assert await status(site, issuer.token()) == 503


async def test_metadata_of_another_issuer_counts_for_nothing() -> None:
    async with an_issuer() as issuer, a_site(issuer) as (_, site):
        issuer.metadata = {"issuer": "https://other.example.com"}
        assert await status(site, issuer.token()) == 503
        assert issuer.asked("/keys") == 0


async def test_a_server_of_keys_that_hangs_holds_only_its_own_tokens_and_those_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolgate.network.key_sets.FETCH_SECONDS", 1.0)
    async with an_issuer() as hanging, an_issuer() as other:
        issuers = [hanging.settings(), other.settings(tenant="globex")]
        async with memory_app(auth={"issuers": issuers}) as app, serving(app) as site:
            hanging.hangs = True
            began = time.monotonic()
            waiting = [asyncio.ensure_future(status(site, hanging.token(sub=f"u{number}"))) for number in range(20)]
            await asyncio.sleep(0.05)
            assert await status(site, other.token()) == 200
            await site.with_key(app)
            assert (await site("GET", "/v1/session")).status == 200
            assert not any(one.done() for one in waiting), "they wait, and nobody else did"
            assert set(await asyncio.gather(*waiting)) == {503}
            assert time.monotonic() - began < 20
            assert hanging.at is not None
            assert hanging.at.connections == 1, "one fetch for all"


async def test_guesses_are_slowed_down_and_good_tokens_are_not() -> None:
    async with an_issuer() as issuer, a_site(issuer) as (_, site):
        good = issuer.token()
        assert await status(site, good) == 200
        began = time.monotonic()
        for number in range(10):
            assert await status(site, issuer.token("evil", header={"kid": "one"}, sub=f"u{number}")) == 401
        assert time.monotonic() - began > 1.0
        attempts = site.http.authenticator.attempts
        assert attempts.delay(sha256(good.encode()).digest(), "127.0.0.1", "127.0.0.1") == 0
        assert attempts.delay(b"new", "127.0.0.1", "127.0.0.1") > 0.1


@given(st.binary(max_size=300))
def test_what_is_no_token_is_told_by_its_form(text: bytes) -> None:
    with pytest.raises(NotAToken):
        read(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda one: st.lists(one) | st.dictionaries(st.text(), one),
    )
)
def test_every_header_and_claims_are_read_or_refused(value: Any) -> None:
    for token in (unsigned({"alg": value, "kid": value}, {"iss": value}, b"x"), unsigned({"alg": "RS256"}, value, b"x")):
        try:
            assert isinstance(read(token.encode()).issuer, str)
        except NotAToken:
            continue


@pytest.mark.parametrize(
    "text", [b'{"a":1,"a":2}', b'{"a":{"b":1,"b":1}}', b'{"a":NaN}', b"[]", b"{", b"\xff", b'{"a":' * 9_000]
)
def test_json_that_two_readers_would_read_differently_is_refused(text: bytes) -> None:
    with pytest.raises(NotAToken):
        strict_object(text)
