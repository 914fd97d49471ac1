"""`toolgate teams`: the tools of an organisation, packed and signed on one side, got and reviewed on the other."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from toolgate.app.app import App
from toolgate.app.team_sync import ReceivedBundle
from toolgate.cli.context import CommandGroup, Usage, argument, opened, option, text_option
from toolgate.cli.output import Unwritable, answer, answered, as_json, clean, note, say
from toolgate.cli.prompt import ask, at_a_terminal
from toolgate.cli.table import listing
from toolgate.cli.times import seconds_of, shown
from toolgate.errors import BundleRefused, plural
from toolgate.mcp.review import visible
from toolgate.settings.teams import PUBLIC_KEY
from toolgate.store.database import now
from toolgate.teams.bundle import open_bundle
from toolgate.teams.pack import SigningKey, create_key, open_key, pack
from toolgate.teams.review import TeamTool
from toolgate.teams.sources import read_bundle
from toolgate.trust import replace_file

group = CommandGroup(help="Tools that an organisation signs and shares.", no_args_is_help=True)
DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
MAX_DIFF_LINES = 400

Names = Annotated[list[str] | None, argument("NAME", "Tools of the organisation.")]
KeyOption = Annotated[Path, option("--key FILE", "The organisation's private key.")]


# -- for who publishes


@group.command("create-key")
def create_signing_key(file: Annotated[Path, argument("FILE", "Where the private key is put; keep it off servers.")]) -> int:
    """Make the key that signs bundles. Its public half goes into teams.public_key of every installation."""
    made = create_key(file)
    value = {"public_key": made.public_key, "key_id": made.key_id, "file": str(file)}
    return answer(value, ("✓ Created", "green"), f" key {made.key_id}; teams.public_key: {made.public_key}")


@group.command("pack")
def pack_folder(
    folder: Annotated[Path, argument("FOLDER", "YAML tools, and nothing else.")],
    key: KeyOption,
    org_id: Annotated[str, text_option("--org ID", "The id of the organisation.")],
    out: Annotated[Path | None, option("--out FILE", "The bundle; without it, ORG.bundle.json here.")] = None,
    version: Annotated[int | None, option("--version N", "Without it, one more than that of the bundle in FILE.")] = None,
    expires: Annotated[str, option("--expires TIME", "How long installations may take it: 12h, 90d, 52w.")] = "90d",
    enforce: Annotated[
        list[str] | None, text_option("--enforce TOOL", "A tool that nobody may disable; repeatable.")
    ] = None,
    disable_local_tools: Annotated[
        bool, option("--disable-local-tools", "Installations are to refuse tools of local folders.")
    ] = False,
) -> int:
    """Pack a folder of YAML tools as a signed bundle."""
    target, signing, moment = out or Path(f"{org_id}.bundle.json"), open_key(key), now()
    if version is not None and version < 1:
        raise Usage("--version must be 1 or more.")
    number = version or _next_version(target, org_id, signing)
    packed = pack(
        folder, key=signing, org_id=org_id, version=number, created=moment, enforced=enforce or (),
        expires=moment + timedelta(seconds=seconds_of(expires, "--expires")), disable_local_tools=disable_local_tools,
    )  # fmt: skip
    try:
        replace_file(target, packed.encode(), mode=0o666)
    except OSError as error:
        raise Unwritable(target, error) from None
    value = {"file": str(target), "org_id": org_id, "version": number, "key_id": signing.key_id}
    return answer(value, ("✓ Packed", "green"), f" version {number} of {org_id} into {target}")


def _next_version(target: Path, org_id: str, key: SigningKey) -> int:
    if not target.exists():
        return 1
    try:
        before = open_bundle(
            read_bundle(target), org_id=org_id, public_key=key.public_key, now=now() - timedelta(days=36_500)
        )
    except BundleRefused as error:
        raise Usage(
            f"{target} is there, and its version cannot be told: {error.message}",
            suggestion="Say --version, or another --out.",
        ) from None
    return before.manifest.version + 1


@group.command()
async def publish(
    ctx: typer.Context,
    file: Annotated[Path, argument("FILE", "A bundle.")],
    org_id: Annotated[str | None, text_option("--org ID", "The id of the organisation; without it, teams.org_id.")] = None,
    public_key: Annotated[
        str | None, text_option("--public-key HEX", "The key that signed it; without it, teams.public_key.")
    ] = None,
) -> int:
    """Publish a bundle. API keys with the scope teams:read get it at /v1/teams/ORG/bundle of this Toolgate."""
    if public_key is not None and not PUBLIC_KEY.match(public_key):
        raise Usage("--public-key is not a key: 64 hexadecimal digits, as `toolgate teams create-key` prints them.")
    content = read_bundle(file)
    async with opened(ctx) as app:
        settings = app.settings.teams
        org_id, public_key = org_id or settings.org_id, public_key or settings.public_key
        if org_id is None or public_key is None:
            raise Usage("Say --org and --public-key, or set teams.org_id and teams.public_key.")
        row = await app.teams.publish(content, org_id=org_id, public_key=public_key)
    value = {"org_id": row.org_id, "version": row.version, "digest": row.digest}
    return answer(value, ("✓ Published", "green"), f" version {row.version} of {row.org_id}")


# -- for who uses them


@group.command()
async def sync(ctx: typer.Context) -> int:
    """Get the newest bundle. It comes from teams.url or teams.folder, and what it brings waits to be accepted."""
    async with opened(ctx) as app:
        return _say_received(await app.teams.sync())


@group.command()
async def add(ctx: typer.Context, file: Annotated[Path, argument("FILE", "A bundle.")]) -> int:
    """Take a bundle from a file, as sync does from a URL."""
    content = read_bundle(file)
    async with opened(ctx) as app:
        return _say_received(await app.teams.add(content))


def _say_received(received: ReceivedBundle) -> int:
    if answered(received._asdict()):
        return 0
    if not received.is_new:
        say(("✓ ", "green"), f"Version {received.version} is the newest, and was here already")
        return 0
    say(("✓ Received", "green"), f" version {received.version}")
    for words, names in (("new", received.new), ("changed", received.changed), ("removed", received.removed)):
        if names:
            say(f"  {words}: {', '.join(names)}")
    if received.new or received.changed:
        note(("`toolgate teams accept` shows them and asks. Until then nobody can call what is new.", "dim"))
    return 0


@group.command("list")
async def list_tools(ctx: typer.Context) -> int:
    """List the tools of the newest bundle. Each with how it stands here."""
    async with opened(ctx) as app:
        status, found = await app.teams.status(), await app.teams.list()
    if not as_json():
        for words in _standing(status.to_dict()):
            note((words, "yellow"))
    return listing(
        {"organisation": status.to_dict(), "tools": [one.to_dict() for one in found]},
        ["name", "state", "in use", "tier", "version", "accepted by"],
        [
            [one.name, one.state, _in_use(one), one.tier or "", str(one.version), one.accepted_by or ""]
            for one in found
        ],
        none=f"Organisation {status.org_id} has no tools here. `toolgate teams sync` gets its bundle.",
    )  # fmt: skip


def _in_use(one: TeamTool) -> str:
    if not one.live:
        return "no"
    return "yes" if one.accepted_version in (None, one.version) else f"version {one.accepted_version}"


def _standing(status: dict[str, Any]) -> list[str]:
    told = []
    if status["failure"] is not None:
        told.append(f"The last look for a newer bundle gave none: {status['failure']}")
    if status["expired"]:
        told.append("The bundle has expired: what was accepted stays in use, and a newer one is overdue.")
    return told


@group.command()
async def show(ctx: typer.Context, name: Annotated[str, argument("NAME", "A tool of the organisation.")]) -> int:
    """Show a tool, against what was accepted."""
    async with opened(ctx) as app:
        found = await app.teams.get(name)
    if not answered(found.to_dict()):
        say_tool(found)
    return 0


def say_tool(one: TeamTool) -> None:
    """A tool for whoever reviews it."""
    say((visible(one.name), "bold"), "  ", (one.state, "yellow"), (f"  sha256 {one.hash[:16]}", "dim"))
    for words in one.consequences():
        say("  ", clean(words))
    if one.state == "accepted":
        say(
            ("  accepted by ", "dim"),
            one.accepted_by or "",
            " at ",
            "" if one.accepted_at is None else shown(one.accepted_at),
        )
    lines = one.diff() if one.waits or one.state == "rejected" else one.found.splitlines()
    for line in lines[:MAX_DIFF_LINES]:
        say("  ", (clean(visible(line)), DIFF_STYLES.get(line[:1], "")))
    if len(lines) > MAX_DIFF_LINES:
        say((f"  … {plural(len(lines) - MAX_DIFF_LINES, 'line')} more; `--json` shows all.", "dim"))
    for warning in one.warnings:
        say(("  ! ", "red"), (warning, "red"))
    if one.problem is not None:
        say(("  ! ", "yellow"), (f"it cannot be used: {one.problem}", "yellow"))
    say("")


@group.command()
async def accept(
    ctx: typer.Context,
    names: Names = None,
    yes: Annotated[bool, option("--yes", "Accept what is shown without asking.")] = False,
) -> int:
    """Accept what waits of the newest bundle. All of it, or the tools that are named. It is shown first."""
    async with opened(ctx) as app:
        chosen = [await app.teams.get(name) for name in names or ()] or await app.teams.waiting()
        return await accept_shown(app, chosen, yes=yes)


async def accept_shown(app: App, chosen: list[TeamTool], *, yes: bool) -> int:
    """Shows tools and accepts them as they were shown, if the person says so."""
    if not chosen:
        return answer({"waiting": [], "accepted": []}, "Nothing waits to be accepted.")
    if not yes and as_json():
        return answer({"waiting": [one.to_dict() for one in chosen], "accepted": []})
    if not as_json():
        for one in chosen:
            say_tool(one)
    if not yes and not await _agrees(f"Accept {plural(len(chosen), 'definition')}?"):
        note(("Nothing was accepted.", "dim"))
        return 0
    accepted = await app.teams.accept(chosen)
    value = {"accepted": [one.name for one in accepted], "waiting": [] if accepted else [one.to_dict() for one in chosen]}
    if accepted:
        return answer(value, ("✓ Accepted ", "green"), ", ".join(one.name for one in accepted))
    return answer(value, "A tool has changed since it was shown, and nothing was accepted: look again.", code=1)


async def _agrees(question: str) -> bool:
    if not at_a_terminal():
        raise Usage(
            "There is no terminal to ask at.", suggestion="Say --yes if you have seen what waits (`--json` shows it)."
        )
    return await ask(question, "[y] yes", "[n] no") in ("y", "yes")


@group.command()
async def reject(ctx: typer.Context, names: Annotated[list[str], argument("NAME", "Tools of the organisation.")]) -> int:
    """Reject tools. A change that waits is not taken; what is in use as it is, is used no more."""
    async with opened(ctx) as app:
        chosen = [await app.teams.get(name) for name in names]
        done = await app.teams.reject(chosen)
    words = ", ".join(one.name for one in done)
    return answer({"rejected": [one.name for one in done]}, ("✓ Rejected ", "green"), words)


@group.command()
async def remove(ctx: typer.Context) -> int:
    """Take all tools of the organisation out of use. What was accepted is forgotten; older bundles stay refused."""
    async with opened(ctx) as app:
        count = await app.teams.remove()
    return answer({"removed": count}, ("✓ Removed", "green"), f" {plural(count, 'definition')}")
