"""Completions that a shell offers at Tab: tools and their arguments, servers, approvals, secrets.

It reads the catalog as any command does, starts no server, asks nobody, makes no data folder or database, and is silent
about whatever goes wrong. What it offers is written into the shell's own code (zsh evaluates it), and names and values come
from servers and files: whatever has other characters than plain ones is not offered.
"""

import asyncio
import os
import re
import shlex
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from toolgate.app.app import App
from toolgate.cli.arguments import parts_of, properties_of, types_of
from toolgate.cli.context import GlobalOptions, actor_of, argument, diverted, entry_named, option
from toolgate.settings import load_settings

COMPLETION_VARIABLE = "_TOOLGATE_COMPLETE"
"""Set by the shell's own function when it asks: complete_bash, complete_zsh …"""
MAX_IDS = 100
_OFFERABLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@/+-]{0,99}\Z")
_NOT_WORDS = re.compile(r"[^A-Za-z0-9 ,.-]+")

Offered = list[tuple[str, str]]
"""The completions, each with a few words about it."""


def words_before() -> list[str]:
    """The words of the command line that the shell asks about, without the program and the word that is not ended yet."""
    with suppress(ValueError):
        if os.environ.get(COMPLETION_VARIABLE, "").endswith("_bash"):
            return shlex.split(os.environ.get("COMP_WORDS", ""))[1 : int(os.environ.get("COMP_CWORD", "0"))]
        line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
        words = shlex.split(line)[1:]
        return words if line.endswith(" ") else words[:-1]
    return []


Look = Callable[[App, typer.Context], Awaitable[Offered]]


def completion(look: Look) -> Callable[[typer.Context, str], Offered]:
    """The function that typer asks for completions, of one that looks them up in an App."""

    def complete(ctx: typer.Context, incomplete: str) -> Offered:
        return _offer(ctx, look, incomplete)

    return complete


@completion
async def tool_names(app: App, ctx: typer.Context) -> Offered:
    """The tools that the caller of the command line has."""
    return [(tool.name, _few_words(tool.description)) for tool in await app.tools.list(_actor(ctx))]


@completion
async def server_names(app: App, _ctx: typer.Context) -> Offered:
    return [(status.name, "") for status in await app.servers.list()]


@completion
async def approval_ids(app: App, _ctx: typer.Context) -> Offered:
    """Those that wait."""
    found = await app.approvals.list(limit=MAX_IDS, all_tenants=True)
    return [(one.request.id, _few_words(one.request.tool)) for one in found]


@completion
async def job_ids(app: App, _ctx: typer.Context) -> Offered:
    """The latest."""
    found = await app.jobs.list(limit=MAX_IDS, all_tenants=True)
    return [(job.id, _few_words(f"{job.state} {job.type}")) for job in found]


@completion
async def secret_names(app: App, _ctx: typer.Context) -> Offered:
    return [(name, "") for name in sorted({one.name for source in app.secrets.list() for one in source.secrets})]


def argument_words(ctx: typer.Context, incomplete: str) -> Offered:
    """`key=` for the arguments of the tool that are not given yet, and values where the schema names them."""
    given: Sequence[str] = ctx.params.get("words") or ()
    key, value = _broken_off(given, incomplete)

    async def look(app: App, ctx: typer.Context) -> Offered:
        entry = entry_named(app, ctx.params.get("name") or "", _actor(ctx))
        if entry is None or entry.name not in {tool.name for tool in await app.tools.list(_actor(ctx))}:
            return []
        schema = entry.tool.input_schema
        rules = properties_of(schema, schema)
        if key is not None:  # bash takes the word apart at its equals sign, and wants what follows it
            return [(one, "") for one in _values(rules.get(key), schema)]
        there = {word.partition("=")[0].removesuffix(":") for word in given}
        open_names = [name for name in rules if _OFFERABLE.match(name) and name not in there]
        return [pair for name in open_names for pair in _words(name, rules[name], schema)]

    return _offer(ctx, look, incomplete if key is None else value, check=key is not None)


# -- arguments


def _broken_off(given: Sequence[str], incomplete: str) -> tuple[str | None, str]:
    """The key whose value is asked for, where the shell gives key, equals sign and value as words of their own."""
    if not incomplete and given and os.environ.get("COMP_WORDS", "").rstrip(" ").endswith(("=", "=\n")):
        return given[-1].removesuffix(":"), ""
    if len(given) > 1 and given[-1] == "=":
        return given[-2].removesuffix(":"), incomplete
    return None, incomplete


def _words(name: str, rule: Any, schema: Any) -> Iterator[tuple[str, str]]:
    """An argument with each of its values; or with none, and with the sign of a file: two, lest a shell end the word."""
    about = next((_few_words(part["description"]) for part in parts_of(rule, schema) if "description" in part), "")
    values = _values(rule, schema)
    yield from ((f"{name}={value}", about) for value in values or ("", "@"))


def _values(rule: Any, schema: Any) -> list[str]:
    """The values that a rule names."""
    found: list[Any] = []
    for part in parts_of(rule, schema):
        found += [*part.get("enum", ()), *([part["const"]] if "const" in part else [])]
    if not found and "boolean" in types_of(rule, schema):
        found = ["true", "false"]
    texts = [str(one) for one in found if isinstance(one, str | int) and not isinstance(one, bool)]
    return [text for text in texts if _OFFERABLE.match(text)]


# -- how it is looked up


def _offer(ctx: typer.Context, look: Look, incomplete: str, *, check: bool = True) -> Offered:
    """Finds the completions that begin as the word does; none if anything goes wrong."""
    try:
        with diverted():
            found = asyncio.run(_looked(ctx, look))
    except Exception:  # noqa: BLE001 - a person is typing: nothing is said
        return []
    return [(name, about) for name, about in found if name.startswith(incomplete) and (_OFFERABLE.match(name) or not check)]


async def _looked(ctx: typer.Context, look: Look) -> Offered:
    named = ctx.find_root().params
    place = GlobalOptions(*(Path(named[name]) if named.get(name) is not None else None for name in ("settings", "home")))
    overrides = place.overrides
    settings = load_settings(place.settings, overrides)
    file = settings.database.removeprefix("sqlite:///")
    if not settings.home.exists() or (file != settings.database and not Path(file).exists()):
        overrides = {**overrides, "database_url": "memory://"}  # Tab makes nothing, and has nothing recorded as trusted
    async with App(load_settings(place.settings, overrides), keeps_servers=False) as app:
        return await look(app, ctx)


def _actor(ctx: typer.Context) -> Any:
    given = ctx.params
    return actor_of(given.get("tenant"), given.get("persona"), given.get("user"))


def _few_words(text: Any) -> str:
    """The beginning of a description, of plain characters only: a shell evaluates it."""
    lines = str(text).splitlines() or [""]
    return _NOT_WORDS.sub("", lines[0])[:60].strip()


# -- options and arguments that several commands complete

ToolName = Annotated[str, argument("NAME", "The tool.", autocompletion=tool_names)]
ArgumentWords = Annotated[
    list[str] | None, argument("KEY=VALUE", "Arguments: key=value, key:=JSON or key=@FILE.", autocompletion=argument_words)
]
ArgumentsJson = Annotated[str | None, option("--args JSON|@FILE|-", "Arguments as a JSON object; key=value wins.")]
