"""`app.secrets`: secrets that tools and servers are given. Names go out, values never do."""

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from toolgate.errors import Denied, StoreError, described
from toolgate.gates.secrets.names import SERVERS, Owner, key_of
from toolgate.gates.secrets.sources import ListedSecret, Readable, Vault, listed
from toolgate.model import LOCAL, Actor, Entry
from toolgate.tasks import uninterrupted

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts


class SecretSource(NamedTuple):
    """A place where secrets are, and which there are."""

    name: str
    secrets: tuple[ListedSecret, ...]
    why_not: str | None
    """Why it can't be used; None: it can."""


class CredentialTest(NamedTuple):
    """The result of a test of a tool's credential."""

    result: Literal["works", "refused", "failed", "untested", "missing", "not needed"]
    message: str
    credential: str | None = None
    """Its name."""
    advice: str | None = None


class SecretsFacet:
    """The secrets of this installation."""

    def __init__(self, parts: "Parts") -> None:
        self._catalog = parts.catalog
        self._events = parts.events
        self._redactor = parts.redactor
        self._secrets = parts.secrets
        self._threads = parts.local.threads

    def has(self, name: str, actor: Actor | None = None) -> bool:
        """Tells whether a secret is set for an actor."""
        return self._secrets.find(name, actor or LOCAL) is not None

    def check_place(self, where: str) -> None:
        """Raises `StoreError` if no secret can be set there, before anybody is asked for a value."""
        vault = self._vault(where)
        vault.held()
        if (why_not := vault.why_not()) is not None:
            raise StoreError(f"Secrets can't be stored in the {vault.name}: {why_not}.")

    @uninterrupted
    async def remove(self, name: str, owner: Owner, where: str | None = None) -> tuple[str, ...]:
        """Removes a secret from where it is said to be, or wherever it is kept. Gives where it was."""
        key = key_of(name, owner)
        vaults = self._vaults() if where is None else [self._vault(where)]
        removed = [vault.name for vault in vaults if vault.remove(key)]
        for kept in removed:
            await self._record("secret.removed", name, owner, kept)
        return tuple(removed)

    async def test(self, tool: str, actor: Actor | None = None) -> CredentialTest:
        """Tests the credential that a tool would be given for an actor, by the tool's own `test_auth(credential)`: a method
        of a class-based tool or an attribute of a function. Raises `CallError` if there is no such tool."""
        actor = actor or LOCAL
        tested = await self._test(self._catalog.resolve(tool, actor.tenant), actor)
        details = {"credential": tested.credential, "result": tested.result}
        await self._events.record("credential.tested", actor, tool, details)
        return tested

    async def _test(self, entry: Entry, actor: Actor) -> CredentialTest:
        if entry.auth is None:
            return CredentialTest("not needed", "it declares no credential")
        name = entry.auth.config_key
        try:
            value = self._secrets.credential(entry, actor)
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
        trouble, works = await self._ask(entry, partial(method, value))
        if trouble is not None:
            return CredentialTest("failed", self._redactor.text(trouble, (value,)), name)
        words = f"{name} works" if works else f"{name} was refused"
        return CredentialTest("works" if works else "refused", words, name)

    async def _ask(self, entry: Entry, method: "partial[Any]") -> tuple[str | None, bool]:
        """What went wrong, and the tool's answer. The tool is made ready as for a call and cleaned up again."""
        instance: Any = entry.implementation.instance
        try:
            async with asyncio.timeout(entry.timeout):
                if hasattr(instance, "initialize"):
                    await self._run(instance.initialize)
                try:
                    return None, await self._run(method) is True
                finally:
                    if hasattr(instance, "cleanup"):
                        await self._run(instance.cleanup)
        except TimeoutError:
            return f"no answer within {entry.timeout:g} s", False
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is its answer
            return described(error), False

    async def _run(self, method: Any) -> Any:
        if inspect.iscoroutinefunction(method.func if isinstance(method, partial) else method):
            return await method()
        future = self._threads.submit(method)
        try:
            return await future
        except asyncio.CancelledError:
            self._threads.give_up()
            raise

    def _vaults(self) -> list[Vault]:
        return [source for source in self._secrets.sources if isinstance(source, Vault)]

    def _vault(self, where: str) -> Vault:
        found = next((vault for vault in self._vaults() if vault.name == where), None)
        if found is not None:
            return found
        advice = "Set secrets.keyring: true." if where == "keyring" else "A database in memory keeps no secrets."
        raise StoreError(f"Secrets in the {where} are not in use here.", suggestion=advice)

    async def _record(self, action: str, name: str, owner: Owner, source: str) -> None:
        details: dict[str, Any] = {
            "name": name.upper(), "for_tenant": owner.tenant, "for_user": owner.user,
            "for_servers": owner.space == SERVERS, "source": source,
        }  # fmt: skip
        await self._events.record(action, LOCAL, "", details)

    def list(self) -> tuple[SecretSource, ...]:
        """Gives the sources that can say what they have, and the secrets in each."""
        return tuple(_source(one) for one in self._secrets.sources if isinstance(one, Readable))

    @uninterrupted
    async def set(self, name: str, value: str, owner: Owner, where: str = "file") -> None:
        """Sets a secret for its owner, in the encrypted file or the keyring."""
        self.check_place(where)
        self._vault(where).set(key_of(name, owner), value)
        await self._record("secret.set", name, owner, where)


def _source(source: Readable) -> SecretSource:
    try:
        why = source.why_not()
        return SecretSource(source.name, tuple(listed(source)) if why is None else (), why)
    except StoreError as error:
        return SecretSource(source.name, (), str(error))
