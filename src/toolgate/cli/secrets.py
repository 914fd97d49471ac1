"""`toolgate secrets`: put secrets where tools get them from, see which there are and whether they work. Names, no values."""

import asyncio
import inspect
import sys
import time
from enum import StrEnum
from functools import partial
from getpass import getpass
from typing import Annotated, Any, Literal, NamedTuple

import typer

from toolgate.app.app import App
from toolgate.cli.catalog import why_missing
from toolgate.cli.completion import secret_names
from toolgate.cli.context import AsJson, NotFound, Usage, actor_of, diverted, interruptible, opened, readable, sentence
from toolgate.cli.output import emit, note, say
from toolgate.cli.table import table
from toolgate.cli.times import iso, shown
from toolgate.errors import Denied, Failed, StoreError, described
from toolgate.gates.secrets import ListedSecret, Vault
from toolgate.gates.secrets.names import LOGINS, OF_SERVERS, SERVERS, Owner, key_of
from toolgate.gates.secrets.sources import Readable, listed
from toolgate.model import LOCAL, Actor, Entry, new_id

MAX_VALUE_CHARS = 65_536
PASSING = ("works", "not needed")
RESULT_STYLES = {
    "works": "green",
    "refused": "red",
    "failed": "red",
    "untested": "yellow",
    "missing": "red",
    "not needed": "dim",
}

group = typer.Typer(help="Secrets that tools are given: names, never values.", no_args_is_help=True)


class SecretStore(StrEnum):
    """Where a secret can be put."""

    file = "file"
    keyring = "keyring"


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The secret: letters, digits and _.", show_default=False, autocompletion=secret_names
    ),
]
ForTenant = Annotated[str | None, typer.Option("--tenant", metavar="T", help="For this tenant; without it, for everybody.")]
ForUser = Annotated[str | None, typer.Option("--user", metavar="U", help="For this user of the tenant.")]
ForServers = Annotated[bool, typer.Option("--servers", help="For the settings of MCP servers; no caller can refer to it.")]
In = Annotated[SecretStore | None, typer.Option("--in", help="Where it is kept.", show_default=False)]


@group.callback()
def secrets() -> None: ...


@group.command("set")
async def set_secret(
    ctx: typer.Context,
    name: Name,
    tenant: ForTenant = None,
    user: ForUser = None,
    servers: ForServers = False,
    where: In = None,
    as_json: AsJson = False,
) -> int:
    """Set a secret. Its value is asked for, or read from stdin; it is never an argument, which other programs could see.

    \b
      toolgate secrets set STRIPE_KEY
      toolgate secrets set STRIPE_KEY --tenant acme --user ann < key.txt
      toolgate secrets set BRAVE_API_KEY --servers
    """
    owner, key = _named(name, tenant, user, servers)
    async with opened(ctx) as app:
        vault = _vault(app, where or SecretStore.file)
        vault.held()
        if (why_not := vault.why_not()) is not None:  # told before anybody is asked for a value
            raise StoreError(f"Secrets can't be stored in the {vault.name}: {why_not}.")
        vault.set(key, _read_value(name))
        await _note(app, "secret.set", name, owner, vault.name)
    kept = (where or SecretStore.file).value
    if as_json:
        emit({"name": name.upper(), "tenant": tenant, "user": user, "servers": servers, "source": kept})
    else:
        say(("✓ Set", "green"), f" {name.upper()} for {owner}, in the {'encrypted file' if kept == 'file' else kept}")
    return 0


@group.command("list")
async def list_secrets(ctx: typer.Context, as_json: AsJson = False) -> int:
    """List the secrets. Of each: name, for whom, where it is kept, when it was set."""

    async with opened(ctx) as app:
        looked = [_look(source) for source in app.parts.secrets.sources if isinstance(source, Readable)]
    found = [one for _, secrets, _ in looked for one in secrets]
    states = [(name, why) for name, _, why in looked]
    if as_json:
        emit(
            {
                "secrets": [_plain(one) for one in found],
                "sources": [{"name": name, "available": why is None, "why_not": why} for name, why in states],
            }
        )
        return 0
    table(
        ["name", "for", "kept in", "set"],
        [[one.name, str(one.owner), one.source, shown(one.set_at) if one.set_at is not None else ""] for one in found],
    )
    if not found and all(why is None for _, why in states):
        note("There are no secrets. `toolgate secrets set NAME` sets one.")
    for name, why in states:
        if why is not None:
            note((f"{name}: not available: {why}", "yellow"))
    return 0


@group.command("remove")
async def remove_secret(
    ctx: typer.Context,
    name: Name,
    tenant: ForTenant = None,
    user: ForUser = None,
    servers: ForServers = False,
    where: In = None,
    as_json: AsJson = False,
) -> int:
    """Remove a secret: from the named store, or from every store that has it."""
    owner, key = _named(name, tenant, user, servers)

    async with opened(ctx) as app:
        vaults = [_vault(app, where)] if where is not None else _vaults(app)
        removed = [vault.name for vault in vaults if vault.remove(key)]
        for kept in removed:
            await _note(app, "secret.removed", name, owner, kept)
    if not removed:
        raise NotFound(
            f"There is no secret {name} for {owner} that could be removed.",
            suggestion="`toolgate secrets list` shows them; those of the environment are removed there.",
        )
    if as_json:
        emit({"name": name.upper(), "tenant": tenant, "user": user, "servers": servers, "removed_from": removed})
    else:
        say(("✓ Removed", "green"), f" {name.upper()} for {owner} from: {', '.join(removed)}")
    return 0


@group.command("test")
async def test_secret(
    ctx: typer.Context,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool whose credential is tested.", show_default=False)],
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="T", help="As this tenant; without it, default.")] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="U", help="As this user; without it, local.")] = None,
    as_json: AsJson = False,
) -> int:
    """Test whether a tool's credential works. The tool's own test is used (`test_auth`).

    Exit 0 if it works or the tool needs none, 1 if it is refused, missing, or can't be tested.
    """
    actor = actor_of(tenant, None, user)

    async with opened(ctx) as app:
        tested = await test_credential(app, tool, actor)
        details = {"credential": tested.credential, "result": tested.result}
        await app.parts.ledger.act("credential.tested", actor, tool, details, at=time.time_ns(), id=new_id())
    if as_json:
        emit({"tool": tool, **tested._asdict()})
    else:
        say((tested.result, RESULT_STYLES[tested.result]), f"  {tool}: {tested.message}")
        if tested.advice:
            note(tested.advice)
    return 0 if tested.result in PASSING else 1


# -- what was said


def _named(name: str, tenant: str | None, user: str | None, servers: bool) -> tuple[Owner, str]:
    readable("--tenant", tenant)
    readable("--user", user)
    if servers and (tenant is not None or user is not None):
        raise Usage("A secret is for servers, or for a tenant or user: give --servers alone.")
    owner = OF_SERVERS if servers else Owner(tenant, user)
    try:
        return owner, key_of(name, owner)
    except ValueError as error:
        raise Usage(sentence(error)) from None


def _read_value(name: str) -> str:
    """The value, typed without echo or piped in; one line end at its end is not part of it."""
    if sys.stdin is not None and sys.stdin.isatty():
        try:
            with interruptible():
                value = getpass(f"Value of {name}: ")
        except EOFError:
            value = ""
    else:
        try:
            with interruptible():
                content = sys.stdin.buffer.read(MAX_VALUE_CHARS * 4) if sys.stdin is not None else b""
            value = content.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise Usage("The value is not text in UTF-8.") from None
    if not value.strip():
        raise Usage(
            "There is no value.", suggestion=f"Type it when asked, or pipe it in: `toolgate secrets set {name} < FILE`."
        )
    if len(value) > MAX_VALUE_CHARS:
        raise Usage(f"The value has more than {MAX_VALUE_CHARS:,} characters.")
    return value


# -- where it goes


def _vaults(app: App) -> list[Vault]:
    return [source for source in app.parts.secrets.sources if isinstance(source, Vault)]


def _vault(app: App, where: SecretStore) -> Vault:
    found = next((vault for vault in _vaults(app) if vault.name == where.value), None)
    if found is not None:
        return found
    advice = "Set secrets.keyring: true." if where is SecretStore.keyring else "A database in memory keeps no secrets."
    raise StoreError(f"Secrets in the {where.value} are not in use here.", suggestion=advice)


async def _note(app: App, action: str, name: str, owner: Owner, source: str) -> None:
    details: dict[str, Any] = {
        "name": name.upper(), "for_tenant": owner.tenant, "for_user": owner.user,
        "for_servers": owner.space == SERVERS, "source": source,
    }  # fmt: skip
    await app.parts.ledger.act(action, LOCAL, "", details, at=time.time_ns(), id=new_id())


# -- what is shown


def _look(source: Readable) -> tuple[str, list[ListedSecret], str | None]:
    """What a source holds, or why it can't be used."""
    try:
        why = source.why_not()
        return source.name, listed(source) if why is None else [], why
    except StoreError as error:
        return source.name, [], str(error)


def _plain(one: ListedSecret) -> dict[str, Any]:
    when = iso(one.set_at) if one.set_at is not None else None
    tenant, user, space = one.owner
    return {
        "name": one.name, "tenant": tenant, "user": user, "servers": space == SERVERS, "login": space == LOGINS,
        "source": one.source, "set_at": when,
    }  # fmt: skip


# -- the test that a tool brings: `test_auth(credential)`, a method of a class-based tool or an attribute of a function


class CredentialTest(NamedTuple):
    """What came of a test."""

    result: Literal["works", "refused", "failed", "untested", "missing", "not needed"]
    message: str
    credential: str | None = None
    """Its name."""
    advice: str | None = None


async def test_credential(app: App, tool: str, actor: Actor) -> CredentialTest:
    """Test the credential that a tool would be given for an actor."""
    try:
        entry = app.parts.catalog.resolve(tool, actor.tenant)
    except Failed as error:
        error.suggestion = await why_missing(app, tool, actor)
        raise
    if entry.auth is None:
        return CredentialTest("not needed", "it declares no credential")
    name = entry.auth.config_key
    try:
        value = app.parts.secrets.credential(entry, actor)
    except Denied as error:
        return CredentialTest("missing", error.reason or error.message, name, error.suggestion)
    if value is None:
        return CredentialTest("missing", f"{name} is not set; the tool can do without", name)
    method = _method(entry)
    if method is None:
        advice = "Give the tool a method `async def test_auth(self, credential: str) -> bool`."
        return CredentialTest("untested", f"{name} is set, but the tool has no way to test it", name, advice)
    with diverted():
        trouble, works = await _ask(app, entry, method, value)
    if trouble is not None:
        return CredentialTest("failed", app.parts.redactor.text(trouble, (value,)), name)
    return (
        CredentialTest("works", f"{name} works", name) if works else CredentialTest("refused", f"{name} was refused", name)
    )


def _method(entry: Entry) -> Any:
    code = entry.implementation
    found = [getattr(getattr(code, part, None), "test_auth", None) for part in ("instance", "function")]
    return next((method for method in found if callable(method)), None)


async def _ask(app: App, entry: Entry, method: Any, value: str) -> tuple[str | None, bool]:
    """What went wrong, and the tool's answer. The tool is made ready as for a call and cleaned up again."""
    instance: Any = entry.implementation.instance
    try:
        async with asyncio.timeout(entry.timeout):
            if hasattr(instance, "initialize"):
                await _run(app, instance.initialize)
            try:
                return None, await _run(app, partial(method, value)) is True
            finally:
                if hasattr(instance, "cleanup"):
                    await _run(app, instance.cleanup)
    except TimeoutError:
        return f"no answer within {entry.timeout:g} s", False
    except Exception as error:  # noqa: BLE001 - whatever a tool raises is its answer
        return described(error), False


async def _run(app: App, method: Any) -> Any:
    if inspect.iscoroutinefunction(method.func if isinstance(method, partial) else method):
        return await method()
    future = app.parts.local.threads.submit(method)
    try:
        return await future
    except asyncio.CancelledError:
        app.parts.local.threads.give_up()
        raise
