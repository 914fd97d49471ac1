"""The redactor by itself: which names, which values, and what it may never do."""

import asyncio
import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolgate.errors import Failed
from toolgate.gates.redaction import Redactor
from toolgate.model import MASK
from toolgate.screening import secret_scanner

PLAIN = Redactor(scan=False)
SCANNING = Redactor(scan=True)
VALUE = "correct horse battery"


MASKED_NAMES = [
    "password", "Password", "PASSWORD", "user_password", "userPassword", "dbpassword", "password1", "passwd", "pwd",
    "passphrase", "api_key", "apiKey", "API_KEY", "apikey", "APIKey", "x-api-key", "X-Api-Key", "OPENAI_API_KEY",
    "api_keys", "secret", "clientSecret", "client_secret", "client-secret", "CLIENTSECRET", "secrets",
    "aws_secret_access_key", "token", "access_token", "accessToken", "refresh-token", "accesstoken", "authToken",
    "GITHUB_TOKEN", "id_token", "csrf_token", "private-key", "privateKey", "private_key", "ssh.private.key",
    "signing_key", "encryption_key", "accessKey", "access_key", "Authorization", "authorization",
    "proxy-authorization", "Cookie", "set-cookie", "cookies", "credential", "credentials",
]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    MASKED_NAMES,
)
def test_a_field_of_this_name_is_masked(name: str) -> None:
    assert PLAIN.mask({name: VALUE}) == {name: MASK}
    assert PLAIN.mask([{"a": ({name: [VALUE]},)}]) == [{"a": [{name: MASK}]}]
    assert not PLAIN.is_harmless({name: "short"})


OTHER_NAMES = [
    "tokens_used", "max_tokens", "maxTokens", "total_tokens", "tokens", "token_count", "token_limit", "tokenType",
    "token_usage", "tokenizer", "next_page_token", "nextPageToken", "pageToken", "NextToken", "continuation_token",
    "syncToken", "keyboard", "monkey", "key", "keys", "primary_key", "foreignKey", "author", "authors", "authority",
    "secretary", "passenger", "compass", "pass", "passed", "session", "session_id", "sessions", "cookiecutter",
    "name", "text",
]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    OTHER_NAMES,
)
def test_a_field_of_this_name_is_left_alone(name: str) -> None:
    fields = {name: VALUE, "nested": [{name: [VALUE]}]}
    assert PLAIN.mask(fields) is fields


@pytest.mark.parametrize("name", ["key", "session", "auth", "sessionKey", "jwt", "tokens", "sid"])
def test_a_weak_name_masks_what_looks_like_a_credential(name: str) -> None:
    assert PLAIN.mask({name: "9f86d081884c7d659a2f"}) == {name: MASK}
    assert PLAIN.mask({name: ["9f86d081884c7d659a2f"]}) == {name: MASK}
    for value in (
        "user:1234:profile",
        "invoice-2024-000123",
        "photos/2024/01/9f86d081884c7d659a2f.jpg",
        "a sentence of 1 line",
    ):
        assert PLAIN.mask({name: value}) == {name: value}


@pytest.mark.parametrize("value", [0, 1, 123456789012345678, 1.5, True, False, None, "", [], {}])
def test_numbers_truths_and_nothing_are_never_masked(value: Any) -> None:
    fields = {"password": value}
    assert PLAIN.mask(fields) is fields


def test_more_names_can_be_given_and_public_ones_are_left_to_their_values() -> None:
    redactor = Redactor(["Badge-No"], scan=False)
    assert redactor.mask({"badge-no": VALUE, "BADGE-NO": VALUE}) == {"badge-no": MASK, "BADGE-NO": MASK}
    public = frozenset({"token"})
    key = "ghp_" + "a1B2" * 9
    assert PLAIN.mask({"token": VALUE, "deep": {"token": key}}, public) == {"token": VALUE, "deep": {"token": MASK}}


SECRETS = {
    "GitHub": "ghp_" + "a1B2" * 9,
    "GitHub, fine-grained": "github_pat_" + "11ABCDEFG0_" * 5,
    "GitLab": "glpat-" + "a1B2" * 5,
    "OpenAI": "sk-proj-" + "aB3_" * 12,
    "Anthropic": "sk-ant-api03-" + "aB3-" * 20,
    "Slack": "xoxb-123456789012-1234567890123-" + "aB3d" * 6,
    "AWS": "AKIA" + "Q3EGRIZ7" * 2,
    "Stripe": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "Google": "AIza" + "SyD3aB4cD5eF6gH7iJ8kL9mN0oP1qR2sT3u",
    "Hugging Face": "hf_" + "aB3dE5gH7j" * 4,
    "npm": "npm_" + "aB3dE5gH7j" * 4,
    "SendGrid": "SG." + "aB3dE5gH7jK9" * 2 + "." + "aB3dE5gH7jK9" * 3,
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "PEM": "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA0Z3VS5JJcds3xfn\n-----END RSA PRIVATE KEY-----",
    "PEM that is cut off": "-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEA0Z3VS5JJcds3xfn",
}


@pytest.mark.parametrize("redactor", [PLAIN, SCANNING], ids=["forms", "kingfisher"])
@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_found_anywhere_in_a_text(redactor: Redactor, kind: str) -> None:
    secret = SECRETS[kind]
    assert redactor.text(secret) == MASK
    masked = redactor.text(f'before {{"x": "{secret}')
    assert masked == f'before {{"x": "{MASK}'
    assert redactor.mask({secret: 1, "a": [secret]}) == {MASK: 1, "a": [MASK]}


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://ann:hunter2@db:5432/x", f"postgresql://{MASK}@db:5432/x"),
        ("redis://:hunter2@cache/0", f"redis://{MASK}@cache/0"),
        ("amqp://a:p@ss@mq and http://b:c@d/", f"amqp://{MASK}@mq and http://{MASK}@d/"),
        ("Authorization: Bearer abcdef123456xyz", f"Authorization: Bearer {MASK}"),
        ("BEARER " + "abcdefgh" * 4, f"BEARER {MASK}"),
        ("authorization: basic dXNlcjpwYXNz", f"authorization: basic {MASK}"),
        ("https://x.org/a?page=2&api_key=abcdef123456&b=c", f"https://x.org/a?page=2&api_key={MASK}&b=c"),
        ("https://x.org/?access_token=abcdefgh12", f"https://x.org/?access_token={MASK}"),
    ],
)
def test_a_secret_is_known_by_its_surroundings(text: str, masked: str) -> None:
    assert PLAIN.text(text) == masked


ASSIGNED = [
    ("password = 'hunter2'", f"password = '{MASK}'"),
    ('password="hunter 2"', f'password="{MASK}"'),
    ("DB_PASSWORD=hunter2", f"DB_PASSWORD={MASK}"),
    ("export DB_PASSWORD=hunter; run", f"export DB_PASSWORD={MASK}; run"),
    ("pwd=1", f"pwd={MASK}"),
    ("host=db password=hunter2 dbname=x", f"host=db password={MASK} dbname=x"),
    ("[db]\npassword = hunter2\nuser = ann\n", f"[db]\npassword = {MASK}\nuser = ann\n"),
    ("db:\n  user: ann\n  password: hunter2\n", f"db:\n  user: ann\n  password: {MASK}\n"),
    ("- apiKey: hunter  # of ann\n", f"- apiKey: {MASK}  # of ann\n"),
    ("{user: ann, password: hunter2}", f"{{user: ann, password: {MASK}}}"),
    ("secret: |\n  line one\n  line two\nuser: ann\n", f"secret: |\n  {MASK}\nuser: ann\n"),
    ('{"user":"ann","dbPassWord":"hunter2"}', f'{{"user":"ann","dbPassWord":"{MASK}"}}'),
    ('{"credentials": {"user": "ann", "pw": "hunter2"}}', f'{{"credentials":"{MASK}"}}'),
    ('got {"a": 1, "password": "hunter2"} from it', f'got {{"a": 1, "password": "{MASK}"}} from it'),
    ('got "{\\"password\\": \\"hunter2\\"}" from it', f'got "{{\\"password\\": \\"{MASK}\\"}}" from it'),
    ("config = {'client_secret': 'hunter2'}", f"config = {{'client_secret': '{MASK}'}}"),
    ("'token' => 'hunter2',", f"'token' => '{MASK}',"),
    ("key=aB3dE5gH7j", f"key={MASK}"),
    ('api-key: "hunter2"', f'api-key: "{MASK}"'),
]


@pytest.mark.parametrize(("text", "masked"), ASSIGNED)
def test_what_is_assigned_to_the_name_of_a_secret_is_masked_in_a_text(text: str, masked: str) -> None:
    assert PLAIN.text(text) == masked
    assert PLAIN.text(masked) == masked
    assert not PLAIN.is_harmless(text)
    assert "hunter" not in repr(PLAIN.mask({"log": [text]}))


@pytest.mark.parametrize(
    "name", ["dbPassWord", "DBpassWORD", "pAsSwOrD", "aPiKeY", "clientSECRET", "Access-ToKen", "user_PassPhrase"]
)
def test_capitals_do_not_hide_the_name_of_a_field(name: str) -> None:
    assert PLAIN.mask({name: VALUE}) == {name: MASK}


@pytest.mark.parametrize("value", ["aB3dE5gH7j", "9xK2mQ7vT4", "9f86d081884c7d659a2f"])
def test_a_key_is_masked_if_its_value_is_no_word(value: str) -> None:
    assert PLAIN.mask({"key": value, "my_key": [value]}) == {"key": MASK, "my_key": MASK}


INNOCENT = [
    "The bearer certification of 2024-01-01T12:00:00Z is a long sentence about tokenization and passwords.",
    "550e8400-e29b-41d4-a716-446655440000",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "/usr/lib/python3.11/site-packages/some_package/module_name.py",
    "C:\\Users\\ann\\Documents\\report-2024-final.docx",
    "https://example.org/a/b?page=2&sort=name#section-3",
    "http://localhost:8080/x and mail to me@example.org",
    'http://localhost:8080","mail":"me@example.org',
    "sk-fading-circle-container-element",
    "hf_model_configuration_loader_for_training",
    "task-1234567890-abcdefghijklmnop",
    "data-testid=button-primary-large-0001",
    "The quick brown fox jumps over 13 lazy dogs.",
    "SELECT key, session FROM monkeys WHERE token_count > 4096",
    "naïve café — 日本語のテキスト",
    "def login(user: str, password: str, token: Token | None = None) -> str:",
    "connect(password=password, token=self.token)",
    "password = getpass()",
    "token = request.headers['authorization']",
    "    password: str",
    "  token: string;",
    "password: SecretStr",
    "secret = os.environ['KEY']",
    "api_key: ${API_KEY}",
    "DB_PASSWORD=$DB_PASSWORD run",
    "Authorization: {{secret:KEY}}",
    "{secret:SESAME}",
    "The password: at least eight characters.",
    "Note: the token is valid for 3600 seconds, and the secret: nobody knows it.",
    "key=value&page=2",
    "max_tokens=4096, total_tokens: 17",
    "if password == expected:",
    '{"tokens_used": 12, "next_page_token": "abc", "key": "PROJ-1234"}',
]


@pytest.mark.parametrize("redactor", [PLAIN, SCANNING], ids=["forms", "kingfisher"])
@pytest.mark.parametrize("text", INNOCENT)
def test_innocent_text_is_left_alone(redactor: Redactor, text: str) -> None:
    assert redactor.text(text) is text


@given(
    words=st.lists(st.sampled_from([*SECRETS.values(), *INNOCENT, " ", "=", "://", "a:b", "@", "Bearer ", MASK, "&token="]))
)
@example([SECRETS["AWS"], SECRETS["GitHub, fine-grained"], SECRETS["GitHub"]])
def test_masking_twice_is_masking_once(words: list[str]) -> None:
    for redactor in (PLAIN, SCANNING):
        once = redactor.text("".join(words))
        assert redactor.text(once) == once


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(list(SECRETS.values())),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["password", "key", *SECRETS.values()]), inner)
    ),
    max_leaves=30,
)


@given(value=anything, known=st.lists(st.text(max_size=5), max_size=2).map(tuple))
def test_any_json_can_be_masked_and_masking_it_again_changes_nothing(value: Any, known: tuple[str, ...]) -> None:
    PLAIN.mask(value, known=known)
    once = PLAIN.mask(value)
    assert repr(PLAIN.mask(once)) == repr(once)
    assert not any(secret in repr(once) for secret in SECRETS.values())


@given(value=anything)
def test_what_is_harmless_is_not_changed(value: Any) -> None:
    if PLAIN.is_harmless(value):
        assert PLAIN.mask(value) is value


def test_of_known_secrets_none_leaves_a_rest_of_another() -> None:
    assert PLAIN.text("abc abcdef RED", ("abc", "abcdef", "RED")) == f"{MASK} {MASK} {MASK}"


ADVERSARIES = [
    "a", "1", "-", "A1", "=-", "eyJ-", "eyJaaaaaaaa.", "sk-", "ghp_", "github_pat_", "SG.aaaaaaaaaaaaaaaaaaaa",
    "xoxb-", "AKIA", "AIza", "npm_", "://", "://a:b", "@", "&", "-----BEGIN ", "-----BEGIN A PRIVATE KEY-----",
    "-----END ", "-----END A A A ", "bearer ", "bearer a", "?token=", "authorization: basic ", ".eyJ", "a:",
    "aaaaaaaaaaaaaaaaaaaaaaaa1 ", "password=", "password: ", "password: |\n ", "a.", "token=\"", "token='\\\\", "\\\\\"key",
    "{\"token\":", "[", " key:\n",
]  # fmt: skip


STARTS = ("", "://a:", "-----BEGIN PRIVATE KEY-----", "bearer ", "eyJ")


@pytest.mark.matrix("two hundred megabytes")
@pytest.mark.parametrize("piece", ADVERSARIES)
@pytest.mark.parametrize("start", STARTS)
def test_a_megabyte_is_masked_in_linear_time(piece: str, start: str) -> None:
    text = start + piece * (1_000_000 // len(piece))
    began = time.process_time()
    PLAIN.mask({"key": text})
    assert time.process_time() - began < 3  # quadratic time would be minutes


async def test_an_error_is_told_without_secrets_and_as_valid_json() -> None:
    error = Failed(
        "INVOCATION_ERROR",
        f"bad \ud800 {SECRETS['GitHub']}",
        suggestion=f"try {SECRETS['AWS']}",
        details={"password": "hunter2", "deep": [SECRETS["Stripe"], "known"], "object": object(), "half": "\ud800"},
    )
    told = await PLAIN.error(error, ("known",))
    assert told.message == f"bad \\ud800 {MASK}"
    assert told.suggestion == f"try {MASK}"
    assert told.details == {"unreadable": "the details cannot be written as JSON"}
    error = Failed("TIMEOUT", "x", details={"password": "hunter2", "deep": [SECRETS["Stripe"], "known"], "o": object()})
    told = await PLAIN.error(error, ("known",))
    assert told.details == {"password": MASK, "deep": [MASK, MASK], "o": "<object>"}
    assert told.suggestion is None


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> Redactor:
    """One whose scanner nobody has used."""
    monkeypatch.setattr(secret_scanner, "SHARED", secret_scanner.SecretScanner())
    return Redactor()


async def test_the_event_loop_goes_on_while_the_scanner_loads(unloaded: Redactor) -> None:
    loading = asyncio.ensure_future(unloaded.prepare(["abcdefghijklmnop0123456789"]))
    ticks = 0
    while not loading.done():
        await asyncio.sleep(0.001)
        ticks += 1
    assert unloaded.ready
    assert ticks > 5


async def test_the_scanner_is_loaded_only_for_a_value_that_may_hold_a_secret(unloaded: Redactor) -> None:
    await unloaded.prepare({"a": ["prose and 550e8400-e29b-41d4-a716-446655440000"]})
    assert not unloaded.ready
    assert Redactor(scan=False).ready


def test_redactors_share_one_scanner(unloaded: Redactor) -> None:
    assert unloaded.text("abcdefghijklmnop0123456789") == "abcdefghijklmnop0123456789"
    assert Redactor().ready


def test_without_kingfisher_the_known_forms_are_still_masked() -> None:
    program = (
        "import sys; sys.modules['kingfisher_sdk'] = None\n"
        "from toolgate.gates.redaction import Redactor\n"
        f"print(Redactor().text({SECRETS['GitHub'] + ' and abcdefghijklmnop0123456789'!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"{MASK} and abcdefghijklmnop0123456789\n"


PIECES = [
    "the quick brown fox",
    "ghp_" + "a1B2" * 6,
    "sk-ant-" + "x9" * 12,
    "https://u:pw@h",
    "a://:p@h",
    "Bearer abc123def456",
]
PIECES += [
    "xoxb-1234567890",
    "?token=12345678",
    "Authorization: Basic abcdef=",
    "AKIA" + "A1" * 8,
    "eyJabcdefgh1.eyJabcdefgh2",
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=20), max_size=6), st.sampled_from([" ", "", "\n", ","]))
def test_the_quick_look_at_short_texts_changes_no_answer(pieces: list[str], between: str) -> None:
    text = between.join(pieces)
    quick, slow = Redactor(scan=False), Redactor(scan=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("toolgate.gates.redaction.PROSE", -1)
        expected = slow.text(text)
    assert quick.text(text) == expected
    if quick.is_harmless(text):
        assert expected == text
    if quick.is_harmless({"note": text}):
        assert expected == text
