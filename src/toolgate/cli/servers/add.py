"""`toolgate servers add` and `toolgate servers import`."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
import typer

from toolgate.app.app import App
from toolgate.app.server_status import ServerStatus
from toolgate.cli.context import AsJson, Usage, interruptible, opened
from toolgate.cli.output import emit, note, say
from toolgate.cli.servers.failures import say_not_added
from toolgate.cli.servers.options import check_words, settings_of
from toolgate.cli.servers.status import Name, compared_words, say_compared
from toolgate.cli.spinner import StepProgress
from toolgate.errors import CallError
from toolgate.extras import require
from toolgate.mcp.definitions import Comparison
from toolgate.mcp.import_files import ImportedServer
from toolgate.mcp.presets import PRESETS
from toolgate.mcp.server_settings import described, lacks_version
from toolgate.model import Tier
from toolgate.settings import ServerSettings

MAX_FILE_BYTES = 4_194_304
"""Of a file that is imported."""
Texts = list[str] | None
Paths = list[Path] | None


async def add(
    ctx: typer.Context,
    name: Name,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND", help="The program and its arguments.", show_default=False)
    ] = None,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="A remote server.")] = None,
    npm: Annotated[str | None, typer.Option("--npm", metavar="PACKAGE@VERSION", help="A package of npm.")] = None,
    pypi: Annotated[str | None, typer.Option("--pypi", metavar="PACKAGE==VERSION", help="A package of PyPI.")] = None,
    preset: Annotated[str | None, typer.Option("--preset", metavar="P", help="A server that Toolgate knows.")] = None,
    transport: Annotated[
        Literal["stdio", "http", "sse"] | None, typer.Option("--transport", help="How it is reached.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="K=V", help="A variable; a key is kept as a secret.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option("--header", metavar="K:V", help="A header, likewise.")] = None,
    cwd: Annotated[Path | None, typer.Option("--cwd", metavar="DIR", help="Where it is started.")] = None,
    read: Annotated[list[Path] | None, typer.Option("--read", metavar="PATH", help="What it may read.")] = None,
    write: Annotated[list[Path] | None, typer.Option("--write", metavar="PATH", help="What it may read and change.")] = None,
    blocked: Annotated[
        list[str] | None, typer.Option("--block", metavar="PATTERN", help="Paths it may not be given.")
    ] = None,
    bring_in: Annotated[
        list[str] | None, typer.Option("--bring-in", metavar="PATTERN", help="Files it may change besides data: '*.py'.")
    ] = None,
    domain: Annotated[list[str] | None, typer.Option("--domain", metavar="HOST", help="A host that it may reach.")] = None,
    network: Annotated[
        Literal["none", "domains", "host"] | None, typer.Option("--network", help="What it may reach.")
    ] = None,
    isolation: Annotated[Literal["required", "none"] | None, typer.Option("--isolation", help="Its jail.")] = None,
    prefix: Annotated[str | None, typer.Option("--prefix", metavar="TEXT", help="Stands before its tools' names.")] = None,
    tier: Annotated[Tier | None, typer.Option("--tier", help="Of tools of which nothing else is said.")] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", metavar="S", help="Seconds that a call may take.")] = None,
    start_seconds: Annotated[
        float | None, typer.Option("--start-seconds", metavar="S", help="Seconds that its start may take.")
    ] = None,
    idle_seconds: Annotated[
        float | None, typer.Option("--idle-seconds", metavar="S", help="Stop it when nobody called it for this long.")
    ] = None,
    memory_mb: Annotated[int | None, typer.Option("--memory-mb", metavar="MB", help="Memory that it may use.")] = None,
    disk_mb: Annotated[int | None, typer.Option("--disk-mb", metavar="MB", help="What it may write to disk.")] = None,
    output_bytes: Annotated[
        int | None, typer.Option("--output-bytes", metavar="N", help="The longest message that is taken from it.")
    ] = None,
    login: Annotated[bool, typer.Option("--oauth", help="It needs a login: `toolgate servers login`.")] = False,
    trust: Annotated[bool, typer.Option("--trust", help="Accept tools that were never seen before without asking.")] = False,
    trust_annotations: Annotated[
        bool, typer.Option("--trust-annotations", help="Trust its hints that a tool only reads.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Change the server of this name.")] = False,
    start: Annotated[bool, typer.Option("--start/--no-start", help="Start it, and see what it has.")] = True,
    keep: Annotated[bool, typer.Option("--keep", help="Add it even if it can't be started.")] = False,
    as_json: AsJson = False,
) -> int:
    """Start a server, see what it has, and add it. One that can't be started is not kept, unless you say --keep.

    \b
      toolgate servers add files --preset filesystem --write ./notes
      toolgate servers add mine -- python server.py --verbose
      toolgate servers add far --url https://example.com/mcp --header "X-Key: …"
    """
    options: dict[str, Any] = {
        "url": url, "npm": npm, "pypi": pypi, "preset": preset, "transport": transport, "cwd": cwd, "read": read,
        "write": write, "blocked": blocked, "domains": domain, "network": network, "isolation": isolation,
        "bring_in": bring_in, "memory_mb": memory_mb, "disk_mb": disk_mb, "output_bytes": output_bytes,
        "start_seconds": start_seconds, "idle_seconds": idle_seconds,
        "tier": tier, "timeout": timeout, "trust_first_seen": trust, "trust_annotations": trust_annotations,
        "oauth": {} if login else None,
    }  # fmt: skip
    require("mcp")  # before advice on the rest
    check_words(name, command or [], is_named=any((url, npm, pypi, preset)))
    values, secrets = settings_of(name, command or [], options, env=env or (), headers=header or ())
    if login:
        values["oauth"] = {}
    if prefix is not None:
        values["prefix"] = prefix
    async with opened(ctx) as app:
        tried, failure = await _tried(app, name, values, secrets, replace=replace) if start else (False, None)
        if failure is not None and not keep and not (login and failure.code == "MISSING_AUTH"):
            return say_not_added(name, failure, command or [], as_json=as_json)
        added = await app.servers.add(name, values, secrets=secrets, replace=replace)
        compared = await app.servers.refresh(name) if tried else None
        status, lacking = await app.servers.get(name), app.servers.missing_secrets(added.settings)
    missing = {"secrets": sorted(secrets), "missing_secrets": list(lacking)}
    return _say_added(status, compared, failure, missing, as_json=as_json)


async def _tried(
    app: App, name: str, values: dict[str, Any], secrets: dict[str, str], *, replace: bool
) -> tuple[bool, CallError | None]:
    """Tries a server; gives whether it was tried, and why it can't be used."""
    try:
        with StepProgress() as steps:
            app.servers.on_step(name, steps)
            return await app.servers.try_out(name, values, secrets=secrets, replace=replace), None
    except asyncio.CancelledError:  # Ctrl-C
        note(("Interrupted: ", "yellow"), f"server {name} was not added.")
        raise
    except CallError as error:
        return False, error


def _say_added(
    status: ServerStatus,
    compared: Comparison | None,
    failure: CallError | None,
    missing: dict[str, list[str]],
    *,
    as_json: bool,
) -> int:
    name = status.name
    needs_login = failure is not None and status.settings.oauth is not None and failure.code == "MISSING_AUTH"
    code = 1 if failure is not None and not needs_login else 0
    if as_json:
        why = {} if failure is None else {"failure": failure.message}
        emit({**status.to_dict(), **missing, **compared_words(compared), **why})
        return code
    say(("✓ Added ", "green"), f"{name}: {status.to_dict()['what']}")
    for secret in missing["secrets"]:
        say(f"  Stored as the secret {secret}.")
    _say_version(status.settings, status.version)
    _say_lacking(status, missing["missing_secrets"])
    if not status.settings.enabled:
        note(("It is not started: the setting mcp.enabled is false.", "yellow"))
    if compared is not None:
        say_compared(status, compared)
    if needs_login:
        note((f"It needs a login: toolgate servers login {name}", "yellow"))
    elif failure is not None:
        note((f"It can't be used yet: {failure.message}", "red"))
        note(failure.suggestion or f"When that is corrected: toolgate servers refresh {name}")
    return code


def _say_version(settings: ServerSettings, version: str | None) -> None:
    """The version that is started, where the person named none."""
    if lacks_version(settings):
        named = f"{settings.npm}@{version or 'VERSION'}" if settings.npm else f"{settings.pypi}=={version or 'VERSION'}"
        when = f"{version}, the newest, was installed" if version else "the newest is installed at its first start"
        note((f"  No version was named: {when}, and is kept. To pin it everywhere, name it: {named}", "yellow"))


def _say_lacking(status: ServerStatus, lacking: Sequence[str]) -> None:
    """Which secrets have to be set before it can work, and where to get them."""
    preset = PRESETS.get(status.settings.preset or "")
    known = {need.secret: need for need in preset.needs} if preset is not None else {}
    for secret in lacking:
        need = known.get(secret)
        words = f" ({need.what}{f', from {need.url}' if need.url else ''})" if need is not None else ""
        note((f"It needs the secret {secret}{words}: toolgate secrets set {secret} --servers", "yellow"))
    if lacking:
        note((f"Then: toolgate servers refresh {status.name}", "dim"))
    if preset is not None and preset.advice:
        note((preset.advice, "dim"))


async def import_file(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file; - is stdin.", show_default=False)],
    replace: Annotated[bool, typer.Option("--replace", help="Change servers of the same name.")] = False,
    use: Annotated[
        list[str] | None, typer.Option("--use-secret", metavar="NAME", help="A secret of yours that it may be given.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Add the servers of a client's file (mcpServers). Desktop clients and editors have one. Keys in it are kept as
    secrets.

    Nothing is started before you say so (`toolgate servers refresh NAME`). What `npx` and `uvx` would fetch each time
    becomes a package that is installed once.
    """
    document = _read(file)

    async with opened(ctx) as app:
        added, problems = await app.servers.import_from(document, replace=replace, use=use or ())
    if as_json:
        emit({"servers": [_imported(one) for one in added], "problems": [problem._asdict() for problem in problems]})
        return 1 if problems else 0
    for one in added:
        say(("✓ Added ", "green"), f"{one.name}: {described(one.settings)}")
        for secret in one.secrets:
            say(f"  Stored as the secret {secret}.")
        _say_version(one.settings, None)
        for secret in one.missing:
            if secret not in (use or ()):
                note((f"  It needs the secret {secret}: toolgate secrets set {secret} --servers", "yellow"))
    for problem in problems:
        note((f"{problem.where}: {problem.why}", "red"))
    if added:
        name, each = (added[0].name, "") if len(added) == 1 else ("NAME", "For each: ")
        note((f"Nothing is started yet. {each}toolgate servers refresh {name}, then toolgate tools accept {name}", "dim"))
    return 1 if problems else 0


def _imported(one: ImportedServer) -> dict[str, Any]:
    return {"name": one.name, "secrets": sorted(one.secrets), "missing_secrets": list(one.missing)}


def _read(file: str) -> Any:
    try:
        with interruptible():
            content = sys.stdin.buffer.read(MAX_FILE_BYTES + 1) if file == "-" else _bytes(Path(file))
    except OSError as error:
        raise Usage(f"{file} can't be read: {error.strerror or error}.") from None
    if len(content) > MAX_FILE_BYTES:
        raise Usage(f"{file} is larger than {MAX_FILE_BYTES:,} bytes: that is no list of servers.")
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise Usage(f"{file} is not JSON: {error}.", suggestion="Comments and commas at the end are not JSON.") from None


def _bytes(file: Path) -> bytes:
    with file.open("rb") as opened_file:
        return opened_file.read(MAX_FILE_BYTES + 1)
