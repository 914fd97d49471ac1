"""`toolgate secrets`: put secrets where tools get them from, see which there are and whether they work. Names, no values."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import typer

from toolgate.cli.catalog import why_missing
from toolgate.cli.completion import secret_names
from toolgate.cli.context import (
    CommandGroup,
    NotFound,
    Usage,
    actor_of,
    argument,
    diverted,
    opened,
    option,
    sentence,
    text_option,
)
from toolgate.cli.credentials import read_credential
from toolgate.cli.output import answer, answered, note, say
from toolgate.cli.table import table
from toolgate.cli.times import iso, shown
from toolgate.errors import Failed
from toolgate.gates.secrets.names import LOGINS, OF_SERVERS, SERVERS, Owner, key_of
from toolgate.gates.secrets.sources import ListedSecret

PASSING = ("works", "not needed")
RESULT_STYLES = {
    "works": "green", "refused": "red", "failed": "red", "untested": "yellow", "missing": "red", "not needed": "dim",
}  # fmt: skip

group = CommandGroup(help="Secrets that tools are given: names, never values.", no_args_is_help=True)


Name = Annotated[str, argument("NAME", "The secret: letters, digits and _.", autocompletion=secret_names)]
In = Annotated[Literal["file", "keyring"] | None, option("--in", "Where it is kept.", show_default=False)]


@dataclass(frozen=True, slots=True)
class OwnerOptions:
    """Whom a secret is for."""

    tenant: Annotated[str | None, text_option("--tenant T", "For this tenant; without it, for everybody.")] = None
    user: Annotated[str | None, text_option("--user U", "For this user of the tenant.")] = None
    servers: Annotated[
        bool, option("--servers", "For the settings (MCP servers, channels, event keys, QStash); no caller can refer to it.")
    ] = False

    def owner_of(self, name: str) -> Owner:
        """The owner; raises if there can be no secret of this name for it."""
        if self.servers and (self.tenant is not None or self.user is not None):
            raise Usage("--servers cannot be combined with --tenant or --user: a secret is for servers, or for people.")
        owner = OF_SERVERS if self.servers else Owner(self.tenant, self.user)
        try:
            key_of(name, owner)
        except ValueError as error:
            raise Usage(sentence(error)) from None
        return owner


@group.callback()
def secrets() -> None: ...


@group.command("set")
async def set_secret(ctx: typer.Context, name: Name, whose: OwnerOptions, where: In = None) -> int:
    """Set a secret. Its value is asked for, or read from stdin; it is never an argument, which other programs could see.

    \b
      toolgate secrets set STRIPE_KEY
      toolgate secrets set STRIPE_KEY --tenant acme --user ann < key.txt
      toolgate secrets set BRAVE_API_KEY --servers
    """
    owner = whose.owner_of(name)
    actor_of(owner.tenant, None, owner.user)  # of a name that nobody can have, nobody could use it
    async with opened(ctx) as app:
        kept = where or "file"
        app.secrets.check_place(kept)  # told before anybody is asked for a value
        await app.secrets.set(name, read_credential(f"Value of {name}: ", f"toolgate secrets set {name}"), owner, kept)
    words = f" {name.upper()} for {owner}, in the {'encrypted file' if kept == 'file' else kept}"
    return answer({"name": name.upper(), **asdict(whose), "source": kept}, ("✓ Set", "green"), words)


@group.command("list")
async def list_secrets(ctx: typer.Context) -> int:
    """List the secrets. Of each: name, for whom, where it is kept, when it was set."""
    async with opened(ctx) as app:
        sources = app.secrets.list()
    found = [one for source in sources for one in source.secrets]
    states = [(source.name, source.why_not) for source in sources]
    told = {
        "secrets": [_plain(one) for one in found],
        "sources": [{"name": name, "available": why is None, "why_not": why} for name, why in states],
    }  # fmt: skip
    if answered(told):
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
async def remove_secret(ctx: typer.Context, name: Name, whose: OwnerOptions, where: In = None) -> int:
    """Remove a secret. From the named store, or from every store that has it."""
    owner = whose.owner_of(name)
    async with opened(ctx) as app:
        removed = await app.secrets.remove(name, owner, where)
    if not removed:
        raise NotFound(
            f"There is no secret named {name!r} for {owner} that could be removed: see toolgate secrets list.",
            suggestion="Those of the environment are removed there.",
        )
    words = f" {name.upper()} for {owner} from: {', '.join(removed)}"
    return answer({"name": name.upper(), **asdict(whose), "removed_from": removed}, ("✓ Removed", "green"), words)


@group.command("test")
async def test_secret(
    ctx: typer.Context,
    tool: Annotated[str, argument("TOOL", "The tool whose credential is tested.")],
    tenant: Annotated[str | None, option("--tenant T", "As this tenant; without it, default.")] = None,
    user: Annotated[str | None, option("--user U", "As this user; without it, local.")] = None,
) -> int:
    """Test whether a tool's credential works. The tool's own test is used (`test_auth`).

    Exit 0 if it works or the tool needs none, 1 if it is refused, missing, or cannot be tested.
    """
    actor = actor_of(tenant, None, user)
    async with opened(ctx) as app:
        try:
            with diverted():
                tested = await app.secrets.test(tool, actor)
        except Failed as error:
            error.suggestion = await why_missing(app, tool, actor)
            raise
    if not answered({"tool": tool, **tested._asdict()}):
        say((tested.result, RESULT_STYLES[tested.result]), f"  {tool}: {tested.message}")
        if tested.advice:
            note(tested.advice)
    return 0 if tested.result in PASSING else 1


# -- what is shown


def _plain(one: ListedSecret) -> dict[str, Any]:
    when = iso(one.set_at) if one.set_at is not None else None
    tenant, user, space = one.owner
    return {
        "name": one.name, "tenant": tenant, "user": user, "servers": space == SERVERS, "login": space == LOGINS,
        "source": one.source, "set_at": when,
    }  # fmt: skip
