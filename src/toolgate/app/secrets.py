"""`app.secrets`: secrets that tools and servers are given. Names go out, values never do."""

import inspect
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

from toolgate.app.checks import ask_tool
from toolgate.app.facets import Facet, acting_for, check_named
from toolgate.errors import Denied, SettingsError, StoreError, described
from toolgate.gates.secrets.gate import Secrets
from toolgate.gates.secrets.names import OF_LOGINS, OF_SERVERS, SERVER_PREFIX, SERVERS, Owner, key_of
from toolgate.gates.secrets.sources import ListedSecret, Readable, Vault, listed
from toolgate.model import LOCAL, Actor, Call, Entry, new_id
from toolgate.pipeline.context import InvokeContext, runs_nothing
from toolgate.tasks import uninterrupted


class SecretSource(NamedTuple):
    """A place where secrets are, and which there are."""

    name: str
    secrets: tuple[ListedSecret, ...]
    why_not: str | None
    """The reason why it can't be used; None: it can."""


class CredentialTest(NamedTuple):
    """The result of a test of a tool's credential."""

    result: Literal["works", "refused", "failed", "untested", "missing", "not needed"]
    message: str
    credential: str | None = None
    """Its name."""
    advice: str | None = None


class SecretsFacet(Facet):
    """The secrets of this installation."""

    def has(self, name: str, actor: Actor | None = None) -> bool:
        """Tells whether a secret is set for an actor."""
        return self._parts.secrets.find(name, actor or LOCAL) is not None

    def check_place(self, where: str) -> None:
        """Raises `StoreError` if no secret can be set there, before anybody is asked for a value."""
        vault = self._vault(where)
        vault.held()
        if (why_not := vault.why_not()) is not None:
            raise StoreError(f"Secrets cannot be stored in the {vault.name}: {why_not}.")

    @uninterrupted
    async def remove(
        self, name: str, owner: Owner, where: str | None = None, *, actor: Actor | None = None
    ) -> tuple[str, ...]:
        """Removes a secret from where it is said to be, or wherever it is kept. Gives where it was."""
        key = key_of(name, owner)
        vaults = self._vaults() if where is None else [self._vault(where)]
        removed = [vault.name for vault in vaults if vault.remove(key)]
        for kept in removed:
            await self._record("secret.removed", name, owner, kept, actor)
        return tuple(removed)

    async def test(self, tool: str, actor: Actor | None = None) -> CredentialTest:
        """Tests the credential that a tool would be given for an actor, by the tool's own `test_auth(credential)`: a method
        of a class-based tool or an attribute of a function. One with a parameter `ctx` finds providers and the actor there.
        Raises `CallError` if there is no such tool."""
        actor = actor or LOCAL
        tested = await self._test(self._parts.catalog.resolve(tool, actor.tenant), actor)
        details = {"credential": tested.credential, "result": tested.result}
        await self._parts.events.record("credential.tested", actor, tool, details)
        return tested

    async def _test(self, entry: Entry, actor: Actor) -> CredentialTest:
        if entry.auth is None:
            return CredentialTest("not needed", "it declares no credential")
        name = entry.auth.config_key
        try:
            value = self._parts.secrets.credential(entry, actor)
        except Denied as error:
            return CredentialTest("missing", error.reason or error.message, name, error.suggestion)
        if value is None:
            return CredentialTest("missing", f"{name} is not set; the tool can do without", name)
        code = entry.implementation
        found = [getattr(getattr(code, part, None), "test_auth", None) for part in ("instance", "function")]
        method = next((method for method in found if callable(method)), None)
        if method is None:
            advice = "Give the tool a method `async def test_auth(self, credential: str) -> bool`."
            return CredentialTest("untested", f"{name} is set, but the tool has no way to test it", name, advice)
        test = partial(method, value)
        if _takes_context(method):
            test = partial(method, value, ctx=self._context(entry, actor))
        try:
            works = await ask_tool(self._parts, code.instance, test, entry.timeout) is True
        except TimeoutError:
            return CredentialTest("failed", f"no answer within {entry.timeout:g} s", name)
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is its answer
            return CredentialTest("failed", self._parts.redactor.text(described(error), (value,)), name)
        words = f"{name} works" if works else f"{name} was refused"
        return CredentialTest("works" if works else "refused", words, name)

    def _context(self, entry: Entry, actor: Actor) -> InvokeContext:
        """The context of a call that is never made."""
        call = Call(new_id(), entry.name, {}, actor)
        return InvokeContext(call, self._parts.providers, runs_nothing, 0, 0.0, {}, None, entry=entry)

    def _vaults(self) -> list[Vault]:
        return [source for source in self._parts.secrets.sources if isinstance(source, Vault)]

    def _vault(self, where: str) -> Vault:
        found = next((vault for vault in self._vaults() if vault.name == where), None)
        if found is not None:
            return found
        advice = "Set secrets.keyring: true." if where == "keyring" else "A database in memory keeps no secrets."
        raise StoreError(f"Secrets in the {where} are not in use here.", suggestion=advice)

    async def _record(self, action: str, name: str, owner: Owner, source: str, actor: Actor | None) -> None:
        details: dict[str, Any] = {
            "name": name.upper(), "for_tenant": owner.tenant, "for_user": owner.user,
            "for_servers": owner.space == SERVERS, "source": source,
        }  # fmt: skip
        await self._parts.events.record(action, actor or acting_for(owner.tenant), "", details)

    def list(self) -> tuple[SecretSource, ...]:
        """Gives the sources that can say what they have, and the secrets in each."""
        return tuple(_source(one) for one in self._parts.secrets.sources if isinstance(one, Readable))

    @uninterrupted
    async def set(self, name: str, value: str, owner: Owner, where: str = "file", *, actor: Actor | None = None) -> None:
        """Sets a secret for its owner, in the encrypted file or the keyring."""
        check_named(tenant=owner.tenant)
        self.check_place(where)
        self._vault(where).set(key_of(name, owner), value)
        await self._record("secret.set", name, owner, where, actor)


def _takes_context(method: Any) -> bool:
    try:
        return "ctx" in inspect.signature(method).parameters
    except (TypeError, ValueError):  # a callable that does not say what it takes
        return False


def _source(source: Readable) -> SecretSource:
    try:
        why = source.why_not()
        return SecretSource(source.name, tuple(listed(source)) if why is None else (), why)
    except StoreError as error:
        return SecretSource(source.name, (), str(error))


class ServerSecrets:
    """The secrets of MCP servers: those that their settings name, and their logins. No caller can refer to either."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def find(self, name: str) -> str | None:
        """A secret that the settings of a server name."""
        return self._secrets.find_own(name, OF_SERVERS)

    def login(self, name: str) -> str | None:
        """A part of a server's login, for that server alone: settings can't name it."""
        return self._secrets.find_own(name, OF_LOGINS)

    def keep_login(self, name: str, value: str) -> None:
        """Keeps a part of a server's login."""
        vault = next((source for source in self._secrets.sources if isinstance(source, Vault)), None)
        if vault is None:
            raise StoreError("There is no place to keep a server's login in.")
        vault.set(key_of(name, OF_LOGINS), value)

    def keep(self, secrets: Mapping[str, str], own: Collection[str] = ()) -> None:
        """Keeps the credentials of servers. One that is there already stays, unless it is `own` to the server that is
        changed: something else may need it."""
        if not secrets:
            return
        vaults = (one for one in self._secrets.sources if isinstance(one, Vault) and one.why_not() is None)
        vault = next(vaults, None)
        if vault is None:
            raise StoreError(
                f"The values of {', '.join(secrets)} cannot be kept as secrets here.",
                suggestion=f"Leave them out, and set them in Toolgate's environment as {SERVER_PREFIX}NAME.",
            )
        held = vault.held()
        for name, value in secrets.items():
            if name not in own and key_of(name, OF_SERVERS) in held and self.find(name) != value:
                raise SettingsError(
                    f"There is a secret {name} already, with another value.",
                    suggestion=f"`toolgate secrets remove {name} --servers` removes it.",
                )
        for name, value in secrets.items():
            vault.set(key_of(name, OF_SERVERS), value)
