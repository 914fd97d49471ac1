"""`toolgate servers add` and `toolgate servers import`."""

import asyncio
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from toolgate.app.app import App
from toolgate.app.checks.servers import waiting_words
from toolgate.app.server_status import ServerStatus
from toolgate.cli.completion import server_names
from toolgate.cli.context import NotFound, Usage, argument, opened, option
from toolgate.cli.files import content_of, json_of
from toolgate.cli.output import as_json, complain, emit, note, say
from toolgate.cli.spinner import StepProgress
from toolgate.errors import CallError, Failed, SettingsError, plural
from toolgate.extras import require
from toolgate.mcp.client.backoff import STDERR_PREFIX
from toolgate.mcp.client.executables import INTERPRETERS, PACKAGE_RUNNERS, find_program, script_in
from toolgate.mcp.client.mounts import is_shared
from toolgate.mcp.definitions import ITEM_KINDS, Comparison
from toolgate.mcp.import_files import packaged, with_secret_references, without_secrets
from toolgate.mcp.pins import label
from toolgate.mcp.presets import PRESETS
from toolgate.mcp.server_settings import described, lacks_version
from toolgate.model import TOOL_NAME, Tier
from toolgate.settings import ServerSettings

MAX_FILE_BYTES = 4_194_304
"""Of a file that is imported."""
MAX_NAMED_TOOLS = 20
METHOD_WORDS = {
    "resources/read": "reading its resources",
    "prompts/get": "getting its prompts",
    "completion/complete": "completing arguments",
}
"""Requests to a server besides calls of its tools, for people: each has to be accepted as a tool has."""
Name = Annotated[str, argument("NAME", "The server.", autocompletion=server_names)]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of a server. But for variables and headers, each is the setting of its name."""

    url: Annotated[str | None, option("--url URL", "A remote server.")] = None
    npm: Annotated[str | None, option("--npm PACKAGE@VERSION", "A package of npm.")] = None
    pypi: Annotated[str | None, option("--pypi PACKAGE==VERSION", "A package of PyPI.")] = None
    preset: Annotated[str | None, option("--preset P", "A server that Toolgate knows.")] = None
    transport: Annotated[Literal["stdio", "http", "sse"] | None, option("--transport", "How it is reached.")] = None
    env: Annotated[list[str] | None, option("--env K=V", "A variable; a key is kept as a secret.")] = None
    headers: Annotated[list[str] | None, option("--header K:V", "A header, likewise.")] = None
    cwd: Annotated[Path | None, option("--cwd DIR", "Where it is started.")] = None
    read: Annotated[list[Path] | None, option("--read PATH", "What it may read.")] = None
    write: Annotated[list[Path] | None, option("--write PATH", "What it may read and change.")] = None
    blocked: Annotated[list[str] | None, option("--block PATTERN", "Paths it may not be given.")] = None
    bring_in: Annotated[list[str] | None, option("--bring-in PATTERN", "Files it may change besides data: '*.py'.")] = None
    domains: Annotated[list[str] | None, option("--domain HOST", "A host that it may reach.")] = None
    network: Annotated[Literal["none", "domains", "host"] | None, option("--network", "What it may reach.")] = None
    isolation: Annotated[Literal["required", "none"] | None, option("--isolation", "Its jail.")] = None
    prefix: Annotated[str | None, option("--prefix TEXT", "Stands before its tools' names.")] = None
    tier: Annotated[Tier | None, option("--tier", "Of tools of which nothing else is said.")] = None
    timeout: Annotated[float | None, option("--timeout S", "Seconds that a call may take.")] = None
    start_seconds: Annotated[float | None, option("--start-seconds S", "Seconds that its start may take.")] = None
    idle_seconds: Annotated[float | None, option("--idle-seconds S", "Stop it when nobody called it for this long.")] = None
    memory_mb: Annotated[int | None, option("--memory-mb MB", "Memory that it may use.")] = None
    disk_mb: Annotated[int | None, option("--disk-mb MB", "What it may write to disk.")] = None
    output_bytes: Annotated[int | None, option("--output-bytes N", "The longest message that is taken from it.")] = None
    oauth: Annotated[bool, option("--oauth", "It needs a login: `toolgate servers login`.")] = False
    trust_first_seen: Annotated[bool, option("--trust", "Accept tools that were never seen before without asking.")] = False
    trust_annotations: Annotated[bool, option("--trust-annotations", "Trust its hints that a tool only reads.")] = False


async def add(
    ctx: typer.Context,
    name: Name,
    options: ServerOptions,
    command: Annotated[list[str] | None, argument("-- COMMAND", "The program and its arguments.")] = None,
    replace: Annotated[bool, option("--replace", "Change the server of this name.")] = False,
    start: Annotated[bool, option("--start/--no-start", "Start it, and see what it has.")] = True,
    keep: Annotated[bool, option("--keep", "Add it even if it cannot be started.")] = False,
) -> int:
    """Start a server, see what it has, and add it. One that cannot be started is not kept, unless you say --keep.

    \b
      toolgate servers add files --preset filesystem --write ./notes
      toolgate servers add mine -- python server.py --verbose
      toolgate servers add far --url https://example.com/mcp --header "X-Key: …"
    """
    require("mcp")  # before advice on the rest
    words = command or []
    check_words(name, words, is_named=any((options.url, options.npm, options.pypi, options.preset)))
    values, secrets = settings_of(name, words, options)
    async with opened(ctx) as app:
        tried, failure = await _tried(app, name, values, secrets, replace=replace) if start else (False, None)
        if failure is not None and not keep and not (options.oauth and failure.code == "MISSING_AUTH"):
            return say_not_added(name, failure, words)
        added = await app.servers.add(name, values, secrets=secrets, replace=replace)
        compared = await app.servers.refresh(name) if tried else None
        status, lacking = await app.servers.get(name), app.servers.missing_secrets(added.settings)
    missing = {"secrets": sorted(secrets), "missing_secrets": list(lacking)}
    return _say_added(status, compared, failure, missing)


async def _tried(
    app: App, name: str, values: dict[str, Any], secrets: dict[str, str], *, replace: bool
) -> tuple[bool, CallError | None]:
    """Tries a server; gives whether it was tried, and why it cannot be used."""
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
) -> int:
    name = status.name
    needs_login = failure is not None and status.settings.oauth is not None and failure.code == "MISSING_AUTH"
    code = 1 if failure is not None and not needs_login else 0
    if as_json():
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
        note((f"It cannot be used yet: {failure.message}", "red"))
        note(failure.suggestion or f"When that is corrected: toolgate servers refresh {name}")
    return code


def _say_version(settings: ServerSettings, version: str | None) -> None:
    """The version that is started, where the person named none."""
    if lacks_version(settings):
        named = f"{settings.npm}@{version or 'VERSION'}" if settings.npm else f"{settings.pypi}=={version or 'VERSION'}"
        when = f"{version}, the newest, was installed" if version else "the newest is installed at its first start"
        note((f"  No version was named: {when}, and is kept. To pin it everywhere, name it: {named}", "yellow"))


def _say_lacking(status: ServerStatus, lacking: Sequence[str]) -> None:
    """Notes which secrets have to be set before it can work, and where to get them."""
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


# -- options as settings, with the credentials among them taken out

STARTERS = frozenset((*PACKAGE_RUNNERS, *INTERPRETERS, "docker"))
"""First words of commands: somebody who gives such a name to a server has mostly left the name out."""


def pairs(option: str, given: Iterable[str], between: str = "=") -> dict[str, str]:
    """NAME=VALUE options as a mapping."""
    read = {}
    for text in given:
        name, found, value = text.partition(between)
        if not found or not name.strip():
            raise Usage(f"{option} must be NAME{between}VALUE.")
        read[name.strip()] = value.strip() if between == ":" else value
    return read


def check_words(name: str, command: Sequence[str], *, is_named: bool) -> None:
    """Refuses words that are mistyped in a way that would otherwise be blamed on the server. `is_named`: an option says what
    it is, and the command holds only arguments."""
    if not TOOL_NAME.match(name):
        if "://" in name:
            raise Usage(
                "The name of a server comes first, not its address.", suggestion="toolgate servers add NAME --url URL"
            )
        raise Usage(
            f"The name of a server is a letter, then letters, digits, _ and -, at most 64 in all: not {name[:64]!r}."
        )
    if is_named:
        return
    if not command:
        raise Usage(
            f"Server {name} has neither a program nor a url.",
            suggestion=f"`toolgate servers add {name} -- COMMAND …`, or with --url URL, --npm PACKAGE, --pypi PACKAGE or "
            "--preset P (`toolgate servers presets` lists them).",
        )
    if find_program(command[0]) is None and (command[0].startswith("-") or name in STARTERS):
        words = shlex.join([name, *command])
        raise Usage(
            f"{name} would be the name of the server, and {command[0]} its program, which is not here.",
            suggestion=f"The name comes first: toolgate servers add NAME -- {words}",
        )


def settings_of(name: str, command: list[str], options: ServerOptions) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings that options describe, and the secrets that were among them. What was not said is not in it."""
    said = {field.name: getattr(options, field.name) for field in fields(options)}
    values = {key: value for key, value in said.items() if value is not None and value is not False and value != []}
    for folders in ("read", "write"):
        if folders in values:
            values[folders] = [str(Path(folder).expanduser().resolve()) for folder in values[folders]]
    if options.cwd is not None:
        values["cwd"] = str(options.cwd.expanduser().resolve())
    if options.oauth:
        values["oauth"] = {}
    secrets: dict[str, str] = {}
    if command:
        starts, words = values.keys() & {"npm", "pypi", "preset"}, without_secrets(name, command, secrets)
        values |= {"command": words} if starts else packaged(words)
        if values.keys().isdisjoint({"npm", "pypi", "preset", "cwd"}):
            values |= _begun(words, Path.cwd())
    if options.env:
        values["env"] = with_secret_references(name, pairs("--env", options.env), secrets)
    if options.headers:
        values["headers"] = with_secret_references(name, pairs("--header", options.headers, ":"), secrets, header=True)
    return values, secrets


def _begun(command: list[str], here: Path) -> dict[str, Any]:
    """The folder in which a command begins that runs a script of this folder: this one, which it may then read.
    From a folder that no server is given whole, a home for one, it begins in the script's own."""
    script = script_in(command, here)
    if script is None:
        return {}
    if not is_shared(here):
        return {"cwd": str(here.resolve())}
    folder = script.parent
    if is_shared(folder):
        raise Usage(
            f"{script.name} lies in {folder}, which no server is given as a whole.",
            suggestion=f"Give it a folder of its own: mkdir my-server && mv {script.name} my-server/ and name it there.",
        )
    whole = [str(script) if Path(here, word).expanduser().resolve() == script else word for word in command]
    return {"command": whole, "cwd": str(folder)}


# -- a server that could not be added: the cause, the last that it said, and what to do

JAIL = "Its jail shows it the system's programs and its own folder, and gives it no network."
HINTS = {
    r"No module named '?([\w.]+)|Cannot find (?:module|package) '([^'/.][^']*)'": (
        "{found} is missing where it runs. Install it there, or start it with the interpreter that has it, such as "
        "`-- .venv/bin/python server.py`. If {found} is a file of yours in another folder: `--cwd DIR`."
    ),
    r"No such file or directory|ENOENT": f"{JAIL} If it needs that file: `--read PATH`, or `--cwd DIR` for a whole folder.",
    r"Read-only file system|Permission denied|EROFS|EACCES": f"{JAIL} If it is to write there: `--write DIR`.",
    r"Name or service not known|Temporary failure in name resolution|Network is unreachable|ENOTFOUND|EAI_AGAIN": (
        f"{JAIL} If it needs a host: `--domain HOST`."
    ),
    r"SyntaxError|IndentationError": "Correct the file, and add it again.",
}
"""Last words of programs, and what they mostly mean."""


def say_not_added(name: str, failure: CallError, command: Sequence[str]) -> int:
    """Tell that a server was not added. Gives the exit code; raises the failure where a program is to read it."""
    lines = (failure.details or {}).get("stderr", [])
    advice = failure.suggestion or _hint(lines) or _default(command, failure)
    if as_json():
        words = f"Server {name} was not added. {failure.message}"
        raise Failed(failure.code, words, suggestion=advice, details=failure.details)
    complain(f"Server {name} was not added. {failure.message.partition(STDERR_PREFIX)[0] if lines else failure.message}")
    for line in lines:
        if not line.startswith("Traceback ("):  # what follows says it all
            note((f"  {line}", "dim"))
    note(advice)
    note(("Nothing was saved. `--keep` adds a server that cannot be started yet.", "dim"))
    return 1


def _hint(lines: Sequence[str]) -> str | None:
    for line in reversed(lines):
        for pattern, hint in HINTS.items():
            if (match := re.search(pattern, line)) is not None:
                return hint.format(found=next((group for group in match.groups() if group), ""))
    return None


def _default(command: Sequence[str], failure: CallError) -> str:
    if not command:
        return "Check its address or package, then add it again."
    by_itself = f"`{shlex.join(command)}`"
    if "start_seconds" in failure.message:
        return (
            f"A server answers on stdout when it is asked on stdin: see whether {by_itself} is one (transport stdio). "
            "If it only takes longer to start: `--start-seconds 120`."
        )
    if "exited with code 0" in failure.message:
        return (
            f"An MCP server keeps running and answers on stdout when it is asked on stdin: see whether {by_itself} is one."
        )
    return f"Run {by_itself} by itself: its stderr usually says why."


# -- import


async def import_file(
    ctx: typer.Context,
    file: Annotated[str, argument("FILE", "The file; - is stdin.")],
    replace: Annotated[bool, option("--replace", "Change servers of the same name.")] = False,
    use: Annotated[list[str] | None, option("--use-secret NAME", "A secret of yours that it may be given.")] = None,
) -> int:
    """Add the servers of a client's file (mcpServers). Desktop clients and editors have one. Keys in it are kept as
    secrets.

    Nothing is started before you say so (`toolgate servers refresh NAME`). What `npx` and `uvx` would fetch each time
    becomes a package that is installed once.
    """
    content = content_of(file, limit=MAX_FILE_BYTES)
    document = json_of(content, file, "Comments and commas at the end are not JSON.")
    async with opened(ctx) as app:
        added, problems = await app.servers.import_from(document, replace=replace, use=use or ())
    if as_json():
        servers = [{"name": one.name, "secrets": sorted(one.secrets), "missing_secrets": list(one.missing)} for one in added]
        emit({"servers": servers, "problems": [problem._asdict() for problem in problems]})
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


# -- what a new listing has changed


async def known(app: App, name: str) -> ServerStatus:
    """The server of a name."""
    try:
        return await app.servers.get(name)
    except SettingsError as error:
        raise NotFound(error.message, suggestion=error.suggestion) from None


def compared_words(compared: Comparison | None) -> dict[str, Any]:
    """The changes of a listing, for programs."""
    return {} if compared is None else {what: [label(key) for key in keys] for what, keys in compared._asdict().items()}


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED_TOOLS:,} more" if len(names) > MAX_NAMED_TOOLS else ""
    return f"{', '.join(names[:MAX_NAMED_TOOLS])}{more}"


def say_compared(status: ServerStatus, compared: Comparison) -> None:
    """Prints the changes of a listing, for people."""
    words = {"new": "new", "changed": "changed", "gone": "gone", "taken": "in use from now on"}
    for what, keys in compared._asdict().items():
        tools = [label(key) for key in keys if key[0] == "tools/call"]
        items = [label(key) for key in keys if key[0] in ITEM_KINDS]
        methods = [METHOD_WORDS[key[0]] for key in keys if key[0] in METHOD_WORDS]
        if tools:
            say(f"  {plural(len(tools), 'tool')} {words[what]}: {_some(tools)}")
        if items:
            say(f"  {plural(len(items), 'definition')} of prompts and resources {words[what]}: {_some(items)}")
        if methods:
            say(f"  {'also ' if tools or items else ''}{words[what]}: {', '.join(methods)}")
    if not compared.any:
        has_any = any((*status.tools, *status.items))
        say(f"  Nothing has changed: {plural(status.accepted, 'tool')} in use." if has_any else "  It has no tools.")
    if status.waiting:
        note((f"{waiting_words(status)} to look at: toolgate tools accept {status.name}", "yellow"))
