"""The App of a command, and the options that many commands share."""

import asyncio
import inspect
import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from toolgate.app.app import App
from toolgate.cli.output import clean, use_json
from toolgate.errors import CallError, ToolgateError
from toolgate.model import LOCAL, Actor, Entry
from toolgate.registry.catalog import PROBLEMS
from toolgate.settings import Settings, load_settings
from toolgate.threads import DaemonExecutor
from toolgate.trust import Untrusted

T = TypeVar("T")


class Usage(ToolgateError):
    """The command line is not right."""


class NotFound(ToolgateError):
    """The thing that was named is not there."""


def option(words: str, about: str, **more: Any) -> Any:
    """An option in the words of its help: `--tenant T`, `-n --limit N`, `--yes`."""
    flags = [word for word in words.split() if word.startswith("-")]
    metavar = words.removeprefix(" ".join(flags)).strip() or None
    return typer.Option(*flags, metavar=metavar, help=about, **more)


def argument(metavar: str, about: str, **more: Any) -> Any:
    return typer.Argument(metavar=metavar, help=about, show_default=False, **more)


def readable(param: typer.CallbackParam, value: Any) -> Any:
    """Refuses what no record could hold, and no terminal should be shown."""
    for one in value if isinstance(value, list | tuple) else [value]:
        if one is not None and (clean(one) != one or not 0 < len(one) <= 256):
            name = param.opts[0] if param.opts[0].startswith("-") else str(param.metavar)
            raise Usage(f"{name} must be 1 to 256 printable characters.")
    return value


def text_option(words: str, about: str) -> Any:
    """An option whose value is kept or shown."""
    return option(words, about, callback=readable)


AsJson = Annotated[bool, option("--json", "Print JSON, for programs.")]
Tenant = Annotated[str | None, option("--tenant T", "The tenant; without it, default.")]
Persona = Annotated[str | None, option("--persona P", "The persona, the role of the user.")]
User = Annotated[str | None, option("--user U", "The user; without it, local.")]
Scopes = Annotated[list[str] | None, text_option("--scope S", "A scope that the caller has; repeatable.")]
OnlyTenant = Annotated[str | None, text_option("--tenant T", "Only of this tenant.")]
Reason = Annotated[str | None, text_option("--reason TEXT", "Why; it is kept in the audit log, and told to those who ask.")]
Session = Annotated[str | None, text_option("--session S", "The session that the call belongs to.")]
WorkspaceFolder = Annotated[
    Path | None, option("--workspace DIR", "The folder that it works in. Without it: that of the session, or this one.")
]
ToFile = Annotated[Path | None, option("--output -o FILE", "Write to this file instead of stdout.")]


def check_workspace(folder: Path | None) -> None:
    """Refuses a --workspace that is not there."""
    if folder is not None and not folder.is_dir():
        raise Usage(f"--workspace: there is no folder {folder}.")


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """The global options: where a command works."""

    settings: Path | None = None
    home: Path | None = None

    @property
    def overrides(self) -> dict[str, Any]:
        return {} if self.home is None else {"home": self.home}


def global_options(ctx: typer.Context) -> GlobalOptions:
    place = ctx.obj
    return place if isinstance(place, GlobalOptions) else GlobalOptions()


@asynccontextmanager
async def opened(
    ctx: typer.Context, *, serving: bool = False, keeps_servers: bool | None = None, **overrides: Any
) -> AsyncIterator[App]:
    """The App of this command, open. Where a person can be asked whether to trust what is there, they are. One that ends at
    once asks no MCP server of its own accord what it has, nor starts one again that has failed; nor does one beside another
    that does. Within `sharing` it is the App that is open already."""
    if (shared := _shared.get()) is not None:
        yield shared
        return
    asyncio.get_running_loop().set_default_executor(DaemonExecutor())  # a hook's thread that hangs holds no command
    keeps = serving if keeps_servers is None else keeps_servers
    app = await trusted(ctx, overrides, lambda settings: App(settings, keeps_servers=keeps))
    with problems_logged(serving):
        with diverted():
            await app.__aenter__()
        try:
            yield app
        finally:
            with diverted():
                await app.__aexit__(*sys.exc_info())


_shared: ContextVar[App | None] = ContextVar("shared", default=None)


@contextmanager
def sharing(app: App) -> Iterator[None]:
    """Has commands that are run within another one, as those of a chat are, use its App."""
    before = _shared.set(app)
    try:
        yield
    finally:
        _shared.reset(before)


def typed_as(command: str) -> str:
    """A command as whoever reads it types it: at the shell's prompt, or after the slash of a chat."""
    return f"toolgate {command}" if _shared.get() is None else f"/{command}"


async def trusted(ctx: typer.Context, overrides: Mapping[str, Any], made: Callable[[Settings], T]) -> T:
    """Something made from the settings of this command. Where a person can be asked whether to trust what is there, they
    are."""
    place = global_options(ctx)
    overrides = {**place.overrides, **overrides}
    try:
        return made(load_settings(place.settings, overrides))
    except Untrusted:
        from toolgate.cli.trust import ask

        if not await ask(place):
            raise
        return made(load_settings(place.settings, overrides))


@contextmanager
def problems_logged(wanted: bool) -> Iterator[None]:
    """Has the log tell which tools could not be loaded, or not: `tools list` and `doctor` show them, not every command."""
    problems = logging.getLogger(PROBLEMS)
    before, problems.disabled = problems.disabled, not wanted
    try:
        yield
    finally:
        problems.disabled = before


@contextmanager
def diverted() -> Iterator[None]:
    """Sends what tools and the programs that they start print to stderr: stdout is for the answer alone."""
    with suppress(OSError):  # whoever wrote what is left has told, or will, that it cannot be written
        sys.stdout.flush()
    with redirect_stdout(sys.stderr):
        try:
            kept = os.dup(1)
            os.dup2(2, 1)
        except OSError:  # one of them is closed
            yield
            return
        try:
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)


@contextmanager
def interruptible() -> Iterator[None]:
    """Lets Ctrl-C end a read that blocks the event loop: the loop's own handler would wait for the read to return."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


Command = TypeVar("Command", bound=Callable[..., Any])


class CommandGroup(typer.Typer):
    """Commands of one kind. What a dataclass of options annotates is one parameter of a command, and many on its line."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Command], Command]:
        def add(function: Command) -> Command:
            super(CommandGroup, self).command(name, **settings)(with_options(function))
            return function

        return add


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command as typer takes it: each parameter that is a dataclass of options is replaced by these options, and all
    commands take --json."""
    known = inspect.signature(function).parameters
    groups: dict[str, Any] = {name: one.annotation for name, one in known.items() if is_dataclass(one.annotation)}
    flat = [
        option.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in known.items()
        for option in (inspect.signature(groups[name]).parameters.values() if name in groups else (one,))
    ]
    flat.append(inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson))

    @wraps(function)
    def command(**given: Any) -> Any:
        use_json(given.pop("as_json"))
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return function(**given)

    command.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    command.__annotations__ = {option.name: option.annotation for option in flat}
    return command


@dataclass(frozen=True, slots=True)
class ActorOptions:
    """The actor that a command is about."""

    tenant: Tenant = None
    persona: Persona = None
    user: User = None

    def __bool__(self) -> bool:
        """True if one of the options was given."""
        return (self.tenant, self.persona, self.user) != (None, None, None)

    @property
    def actor(self) -> Actor:
        return actor_of(self.tenant, self.persona, self.user)


@dataclass(frozen=True, slots=True)
class CallerOptions(ActorOptions):
    """The actor that a call is made as, or would be."""

    scope: Scopes = None

    @property
    def actor(self) -> Actor:
        return actor_of(self.tenant, self.persona, self.user, self.scope or ())


def actor_of(tenant: str | None, persona: str | None, user: str | None, scopes: Iterable[str] = ()) -> Actor:
    """The actor that the options name."""
    try:
        who = LOCAL.tenant if tenant is None else tenant, persona, LOCAL.user if user is None else user
        return Actor(*who, tuple(scopes))
    except ValueError as error:
        raise Usage(f"{error}.".replace("Actor.", "--")) from None


def naming(actor: Actor, *, user: bool = False) -> str:
    """The options that a suggested command needs to be about this actor's tenant, and with `user` about the user too."""
    tenant = "" if actor.tenant == LOCAL.tenant else f" --tenant {shlex.quote(actor.tenant)}"
    return tenant if not user or actor.user == LOCAL.user else f"{tenant} --user {shlex.quote(actor.user)}"


def entry_named(app: App, tool: str, actor: Actor) -> Entry | None:
    """The tool of a name, if the actor's tenant has one."""
    try:
        return app.tools.get(tool, actor)
    except CallError:
        return None


def sentence(error: Exception) -> str:
    """The words of an error as a sentence."""
    words = str(error)
    return f"{words[:1].upper()}{words[1:]}."
