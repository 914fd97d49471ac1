"""Where secrets come from, for whom they are, and into which tools they may go."""

import base64
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import keyring
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyring.backend import KeyringBackend
from keyring.backends.chainer import ChainerBackend
from keyring.backends.fail import Keyring as NoKeyring
from keyrings.alt.file import PlaintextKeyring  # type: ignore[import-untyped]
from msgspec.structs import replace

from toolgate import Actor, App, Auth, InvokeContext, tool
from toolgate.errors import Denied, StoreError
from toolgate.gates.secrets.encrypted_file import KEY_VARIABLE, EncryptedFile
from toolgate.gates.secrets.gate import Secrets
from toolgate.gates.secrets.keyring_source import Keyring
from toolgate.gates.secrets.names import NAME, SPACES, Owner, folded, key_of, keys_for, parsed
from toolgate.gates.secrets.sources import Environment, listed, open_sources
from toolgate.model import MASK, Entry
from toolgate.model.call import _clean as clean
from toolgate.registry.compile import entry_of
from toolgate.settings import SecretUse
from toolgate.store.audit_log import latest

pytestmark = pytest.mark.requirement("IO-4", "TIER-4")

KEY = base64.b64encode(bytes(range(32))).decode()
ANN = Actor("acme", user="ann")
BOB = Actor("acme", user="bob")
EVE = Actor("evil", user="ann")
VALUE = "s3cret/value+of=the~file"
seen: list[Any] = []
PAY = [{"tool": "pay", "tenant": "*"}]


@tool(tier="read_only", requires_auth=Auth(config_key="STRIPE", setup_url="https://stripe.example/keys"))
async def pay(ctx: InvokeContext, note: str = "") -> str:
    """Pay."""
    seen.append((ctx.credential, note))
    return "paid"


@tool(tier="read_only")
async def post(value: Any) -> str:
    """Post."""
    seen.append(value)
    return f"posted {value}"


@tool(tier="external_api", requires_auth="STRIPE")
async def charge() -> str:
    """Charge."""
    seen.append("charged")
    return "charged"


@pytest.fixture
def file(tmp_path: Path) -> EncryptedFile:
    return EncryptedFile(tmp_path / "secrets.enc", {KEY_VARIABLE: KEY})


# -- for whom


def test_the_narrowest_owner_is_asked_first(file: EncryptedFile) -> None:
    secrets = Secrets(Environment({"TOOLGATE_SECRET_TOKEN": "of the environment"}), file)
    assert [secrets.find("TOKEN", actor) for actor in (ANN, BOB, EVE)] == ["of the environment"] * 3
    file.set(key_of("TOKEN", Owner("acme")), "of acme")
    file.set(key_of("TOKEN", Owner("acme", "ann")), "of ann")
    file.set(key_of("TOKEN"), "of the file")
    assert secrets.find("TOKEN", ANN) == "of ann"
    assert secrets.find("TOKEN", BOB) == "of acme"
    assert secrets.find("TOKEN", EVE) == "of the environment"
    assert Secrets(file).find("token", EVE) == "of the file"


@pytest.mark.parametrize("name", ["acme/TOKEN", "acme/ann/TOKEN", "../TOKEN", "acme%2Fann/TOKEN", "", "TOKEN\n"])
def test_nobody_can_name_the_scope_of_another(file: EncryptedFile, name: str) -> None:
    file.set(key_of("TOKEN", Owner("acme")), "of acme")
    file.set(key_of("TOKEN", Owner("acme", "ann")), "of ann")
    variables = {"TOOLGATE_SECRET_acme/TOKEN": "odd", f"TOOLGATE_SECRET_{name}": "odd"}
    assert Secrets(Environment(variables), file).find(name, EVE) is None
    assert Secrets(Environment(variables)).find("TOKEN", ANN) is None


printable = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8)


@given(printable, printable, printable, printable)
def test_two_actors_never_share_a_place(tenant: str, user: str, other_tenant: str, other_user: str) -> None:
    mine, theirs = Actor(tenant, user=user), Actor(other_tenant, user=other_user)
    own, of_tenant, everybody = keys_for("A", mine)
    assert parsed(own) == ("A", Owner(tenant, user))
    assert key_of("a", Owner(tenant, user)) == own == folded(own)
    assert len({own, of_tenant, everybody}) == 3
    if tenant != other_tenant:
        assert not {own, of_tenant} & {*keys_for("A", theirs)}
    elif user != other_user:
        assert own not in keys_for("A", theirs)


def test_a_tenant_with_a_slash_in_its_name_is_no_user_of_another(file: EncryptedFile) -> None:
    file.set(key_of("TOKEN", Owner("acme", "ann")), "of ann")
    assert Secrets(file).find("TOKEN", Actor("acme/ann", user="x")) is None


# -- the encrypted file


def test_the_file_shows_neither_names_nor_values(file: EncryptedFile) -> None:
    file.set("TOKEN", VALUE)
    assert file("TOKEN") == VALUE
    content = file.path.read_bytes()
    assert VALUE.encode() not in content
    assert b"TOKEN" not in content
    assert VALUE not in repr(file.__dict__)


def test_what_another_process_sets_is_seen_by_the_next_look(tmp_path: Path, file: EncryptedFile) -> None:
    other = EncryptedFile(tmp_path / "secrets.enc", {KEY_VARIABLE: KEY})
    for number in range(50):
        other.set("TOKEN", f"{number:02}")
        assert file("TOKEN") == f"{number:02}"
    assert other.remove("TOKEN")
    assert file("TOKEN") is None
    assert not other.remove("TOKEN")


def test_the_file_is_decrypted_once_as_long_as_it_stays_the_same(file: EncryptedFile) -> None:
    file.set("TOKEN", VALUE)
    assert file("TOKEN") == VALUE
    content = file.path.read_bytes()
    before = file.path.stat()
    file.path.write_bytes(b"x" * len(content))
    os.utime(file.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file("TOKEN") == VALUE


def test_a_key_is_made_for_the_first_secret_and_kept_to_its_owner(tmp_path: Path) -> None:
    file = EncryptedFile(tmp_path / "home" / "secrets.enc", {})
    assert file("TOKEN") is None
    assert not file.path.parent.exists()
    file.set("TOKEN", VALUE)
    for made in (file.path, file.key_path):
        assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert len(base64.b64decode(file.key_path.read_text())) == 32
    assert EncryptedFile(file.path, {})("TOKEN") == VALUE


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_may_read_is_not_used(tmp_path: Path, mode: int) -> None:
    EncryptedFile(tmp_path / "secrets.enc", {}).set("TOKEN", VALUE)
    file = EncryptedFile(tmp_path / "secrets.enc", {})
    file.key_path.chmod(mode)
    content = file.path.read_bytes()
    for use in (lambda: file("TOKEN"), lambda: file.set("OTHER", "x"), lambda: file.remove("TOKEN")):
        with pytest.raises(StoreError, match="can be read by others") as caught:
            use()
        assert "chmod 600" in str(caught.value)
    assert file.path.read_bytes() == content


@pytest.mark.parametrize("variables", [{KEY_VARIABLE: base64.b64encode(b"k" * 32).decode()}, {}])
def test_another_key_opens_nothing_and_loses_nothing(file: EncryptedFile, variables: dict[str, str]) -> None:
    file.set("TOKEN", VALUE)
    content = file.path.read_bytes()
    other = EncryptedFile(file.path, variables)
    for use in (lambda: other("TOKEN"), lambda: other.set("OTHER", "x"), lambda: other.remove("TOKEN"), other.held):
        with pytest.raises(StoreError, match=r"another key|key .* is missing") as caught:
            use()
        assert KEY not in str(caught.value)
    assert file.path.read_bytes() == content
    assert not file.key_path.exists()
    assert "key" in (other.why_not() or "")
    assert file("TOKEN") == VALUE


@pytest.mark.parametrize("key", ["", "short", base64.b64encode(b"k" * 31).decode(), "!" * 44, "é" * 44])
def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path, key: str) -> None:
    file = EncryptedFile(tmp_path / "secrets.enc", {KEY_VARIABLE: key})
    with pytest.raises(StoreError, match="no key") as caught:
        file.set("TOKEN", VALUE)
    assert not key or key not in str(caught.value)
    assert not file.path.exists()


@given(st.data())
def test_a_damaged_file_is_refused_whatever_the_damage(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damage") / "secrets.enc"
    EncryptedFile(path, {KEY_VARIABLE: KEY}).set("TOKEN", VALUE)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    path.write_bytes(content)
    file = EncryptedFile(path, {KEY_VARIABLE: KEY})
    uses: list[Callable[[], object]] = [lambda: file("TOKEN"), lambda: file.set("OTHER", "x")]
    for use in uses:
        with pytest.raises(StoreError) as caught:
            use()
        assert VALUE not in str(caught.value)
    assert path.read_bytes() == bytes(content)


def test_a_list_names_who_and_when_and_never_the_value(file: EncryptedFile) -> None:
    file.set(key_of("TOKEN", Owner("a/c", "ü")), VALUE)
    file.set(key_of("OTHER"), VALUE)
    found = {(one.name, one.owner): one for one in listed(file)}
    assert set(found) == {("TOKEN", Owner("a/c", "ü")), ("OTHER", Owner())}
    assert all(one.set_at is not None and one.source == "file" for one in found.values())
    assert VALUE not in repr(found)
    [variable] = listed(Environment({"TOOLGATE_SECRET_A": VALUE, "TOOLGATE_SECRET_B": "", "PATH": "x"}))
    assert (variable.name, variable.source, variable.set_at) == ("A", "environment", None)


# -- the keyring


PLAINTEXT = "keyrings.alt.file.PlaintextKeyring"
"""Which is real, and used only where it is named."""


@pytest.fixture
def system_keyring(tmp_path: Path) -> Iterator[KeyringBackend]:
    """A real keyring, in a file."""
    before = keyring.get_keyring()
    backend = PlaintextKeyring()
    backend.file_path = str(tmp_path / "keyring.cfg")
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(before)


def no_keyring() -> KeyringBackend:
    """What the package offers where there is none."""
    return NoKeyring()  # type: ignore[no-untyped-call]


def test_a_secret_is_kept_in_the_keyring(tmp_path: Path, system_keyring: KeyringBackend) -> None:
    vault = Keyring(tmp_path, PLAINTEXT)
    assert vault.why_not() is None
    vault.set(key_of("TOKEN", Owner("acme", "ann")), VALUE)
    assert system_keyring.get_password("toolgate", "acme/ann/TOKEN") == VALUE
    assert VALUE not in vault.path.read_text()
    secrets = Secrets(Keyring(tmp_path, PLAINTEXT))
    assert secrets.find("token", ANN) == VALUE
    assert secrets.find("token", BOB) is None
    assert list(vault.held()) == ["acme/ann/TOKEN"]
    vault.set(key_of("TOKEN", Owner("acme", "ann")), "another")
    assert secrets.find("TOKEN", ANN) == "another"
    assert vault.remove("acme/ann/TOKEN")
    assert secrets.find("TOKEN", ANN) is None
    assert system_keyring.get_password("toolgate", "acme/ann/TOKEN") is None
    assert not vault.remove("acme/ann/TOKEN")


@pytest.mark.parametrize("backend", [None, "keyrings.alt.file.EncryptedKeyring"])
def test_a_keyring_that_does_not_encrypt_keeps_and_gives_nothing(
    tmp_path: Path, system_keyring: KeyringBackend, backend: str | None
) -> None:
    Keyring(tmp_path, PLAINTEXT).set("TOKEN", VALUE)
    vault = Keyring(tmp_path, backend)
    assert f"{PLAINTEXT} is not known to encrypt" in str(vault.why_not())
    with pytest.raises(StoreError, match="not known to encrypt"):
        vault("TOKEN")
    with pytest.raises(StoreError, match="not known to encrypt"):
        vault.set("OTHER", VALUE)
    assert system_keyring.get_password("toolgate", "OTHER") is None


def test_a_chain_of_keyrings_is_used_only_if_all_of_it_encrypt(tmp_path: Path, system_keyring: KeyringBackend) -> None:
    class Chained(ChainerBackend):
        backends = [no_keyring(), system_keyring]  # noqa: RUF012 - the base has it as a property of the class

    Chained.__module__, Chained.__qualname__ = ChainerBackend.__module__, ChainerBackend.__qualname__
    keyring.set_keyring(Chained())  # type: ignore[no-untyped-call]
    assert f"{PLAINTEXT} is not known" in str(Keyring(tmp_path).why_not())
    assert Keyring(tmp_path, PLAINTEXT).why_not() is None


def test_what_others_keep_in_the_keyring_is_out_of_reach(tmp_path: Path, system_keyring: KeyringBackend) -> None:
    system_keyring.set_password("toolgate", "TOKEN", "of another installation")
    assert Secrets(Keyring(tmp_path, PLAINTEXT)).find("TOKEN", ANN) is None


def test_a_machine_without_a_keyring_is_no_error_until_one_is_needed(tmp_path: Path) -> None:
    before = keyring.get_keyring()
    keyring.set_keyring(no_keyring())
    try:
        vault = Keyring(tmp_path, PLAINTEXT)
        assert vault.why_not() == "this machine has no keyring"
        assert vault("TOKEN") is None
        assert vault.held() == {}
        with pytest.raises(StoreError, match="not available"):
            vault.set("TOKEN", VALUE)
        assert vault.held() == {}
    finally:
        keyring.set_keyring(before)


@pytest.mark.usefixtures("system_keyring")
def test_a_secret_whose_keyring_is_gone_does_not_become_a_wider_one(tmp_path: Path) -> None:
    Keyring(tmp_path, PLAINTEXT).set(key_of("TOKEN", Owner("acme", "ann")), VALUE)
    keyring.set_keyring(no_keyring())
    with pytest.raises(StoreError):
        Secrets(Environment({"TOOLGATE_SECRET_TOKEN": "wide"}), Keyring(tmp_path, PLAINTEXT)).find("TOKEN", ANN)


@pytest.mark.requirement("IO-5")
@given(st.text(min_size=1, max_size=9).filter(clean), st.text(min_size=1, max_size=9).filter(clean),
       st.one_of(st.text(max_size=9), st.from_regex(NAME, fullmatch=True)))  # fmt: skip
def test_no_caller_reaches_what_is_toolgates_own(tenant: str, user: str, name: str) -> None:
    asked: list[str] = []
    secrets = Secrets(lambda key: asked.append(key))
    for space in SPACES:
        for tenants in (tenant, space, space.rstrip(":"), f"{space}/", quote(space)):
            for users in (user, space):
                for names in (name, space, f"{space}{name}", f"{space}/{name}"):
                    secrets.find(names, Actor(tenants, user=users))
    secrets.find("TOKEN", Actor(tenant, user=user))
    assert asked
    assert not [key for key in asked if key.startswith(tuple(SPACES))]


# -- into which tools


def entry(code: Any) -> Entry:
    return entry_of(code)


def test_a_secret_goes_into_the_tools_that_are_named_for_it_and_no_other() -> None:
    source = Environment({"TOOLGATE_SECRET_STRIPE": "sk", "TOOLGATE_SECRET_FREE": "f"})
    secrets = Secrets(source, use={"Stripe": [SecretUse(tool="pay", tenant="acme")]})
    secrets.check_present(entry(pay), b'{"note":"{{secret:STRIPE}}"}', {"note": "{{secret:STRIPE}}"}, ANN)
    with pytest.raises(Denied, match="no setting names it"):
        secrets.check_present(entry(post), b"{{secret:FREE}}", {"value": "{{secret:FREE}}"}, ANN)
    for spelled in ("STRIPE", "stripe", "StRiPe", " stripe "):
        arguments = {"value": [f"{{{{secret:{spelled}}}}}"]}
        with pytest.raises(Denied) as caught:
            secrets.check_present(entry(post), b"secret:", arguments, ANN)
        assert caught.value.code == "PERMISSION_DENIED"
        assert [error.code for error in secrets.lacking(entry(post), arguments, ANN)] == ["PERMISSION_DENIED"]
    secrets.check_present(entry(charge), b"{}", {}, ANN)  # the credential that it declares is no caller's reference


def test_a_tool_that_a_tenant_registered_under_a_trusted_name_gets_nothing() -> None:
    use = {"STRIPE": [SecretUse(tool="pay", tenant="*")]}
    secrets = Secrets(Environment({"TOOLGATE_SECRET_STRIPE": "sk"}), use=use)
    real = entry(pay)
    assert secrets.credential(real, ANN) == "sk"
    theirs = replace(real, tool=real.tool.model_copy(update={"tenant": "evil", "source": "dynamic"}))
    with pytest.raises(Denied):
        secrets.credential(theirs, EVE)


def test_what_is_missing_is_named_with_where_to_get_it() -> None:
    secrets = Secrets(Environment({}), use={name: [SecretUse(tool="pay", tenant="acme")] for name in "AB"})
    with pytest.raises(Denied) as caught:
        secrets.check_present(entry(pay), b"{}", {}, ANN)
    assert caught.value.code == "MISSING_AUTH"
    assert caught.value.details == {"missing": "STRIPE", "setup_url": "https://stripe.example/keys"}
    assert "https://stripe.example/keys" in (caught.value.suggestion or "")
    assert "toolgate secrets set STRIPE" in (caught.value.suggestion or "")
    arguments = {"note": "{{secret:B}} {{secret:A}} {{secret:B}}"}
    lacking = [error.details for error in secrets.lacking(entry(pay), arguments, ANN)]
    assert [details["missing"] for details in lacking if details] == ["B", "A", "STRIPE"]
    assert secrets.lacking(entry(post), {"value": "none"}, ANN) == []


def test_a_call_that_needs_no_secret_asks_no_source() -> None:
    def refuse(_key: str) -> str | None:
        raise AssertionError("it was asked")

    Secrets(refuse).check_present(entry(post), b'{"value":"plain"}', {"value": "plain"}, ANN)


# -- through the pipeline


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    seen.clear()
    for name in list(os.environ):
        if name.startswith("TOOLGATE_") and name != "TOOLGATE_TRUST":
            monkeypatch.delenv(name)
    use = {"ONLY": PAY, "STRIPE": [{"tool": "post", "tenant": "acme"}]}
    async with App.open(home=tmp_path / "home", secrets={"use": use}) as app:
        app.tools.register_many([pay, post, charge])
        yield app


def vault_of(app: App) -> EncryptedFile:
    return EncryptedFile(app.settings.home / "secrets.enc", {})


async def test_a_call_gets_the_secret_of_its_user(app: App) -> None:
    vault_of(app).set(key_of("STRIPE", Owner("acme", "ann")), VALUE)
    vault_of(app).set(key_of("STRIPE", Owner("acme")), "of-the-whole-tenant")
    assert (await app.invoke("pay", actor=ANN)).ok
    assert (await app.invoke("pay", actor=BOB)).ok
    refused = await app.invoke("pay", actor=EVE)
    assert seen == [(VALUE, ""), ("of-the-whole-tenant", "")]
    assert refused.error is not None
    assert refused.error.code == "MISSING_AUTH"
    assert refused.error.details == {"missing": "STRIPE", "setup_url": "https://stripe.example/keys"}
    shown = await app.invoke("post", {"value": "{{secret:STRIPE}}"}, actor=ANN)
    assert shown.output == f"posted {MASK}"
    await app.flush()
    assert VALUE not in "".join(row[7] for row in await app.parts.store.read(latest(50)))


async def test_a_secret_that_is_not_for_a_tool_denies_its_call(app: App) -> None:
    vault_of(app).set("ONLY", VALUE)
    outcome = await app.invoke("post", {"value": "{{secret:only}}"})
    assert outcome.error is not None
    assert outcome.error.code == "PERMISSION_DENIED"
    assert seen == []


async def test_a_missing_credential_is_refused_before_a_person_is_asked(app: App) -> None:
    outcome = await app.invoke("charge")
    assert outcome.status == "denied"
    assert outcome.error is not None
    assert outcome.error.code == "MISSING_AUTH"
    vault_of(app).set("STRIPE", VALUE)
    assert (await app.invoke("charge")).status == "pending"
    assert seen == []


async def test_secrets_that_can_not_be_read_deny_the_call_and_say_where_to_look(app: App) -> None:
    vault_of(app).set("STRIPE", VALUE)
    assert (await app.invoke("pay")).ok
    app_file = app.settings.home / "secrets.enc"
    app_file.write_bytes(b"rubbish")
    outcome = await app.invoke("pay")
    assert outcome.status == "denied"
    assert outcome.error is not None
    assert outcome.error.code == "MISSING_AUTH"
    assert str(app.settings.home) not in outcome.error.message
    assert "toolgate secrets list" in (outcome.error.suggestion or "")
    await app.flush()
    assert "damaged" in (await app.parts.store.read(latest(1)))[0][7]


def test_an_app_in_memory_looks_only_into_the_environment() -> None:
    assert [type(source).__name__ for source in open_sources(None, keyring=True)] == ["Environment"]
