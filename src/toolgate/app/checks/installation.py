"""All checks of an installation, in the order in which `toolgate doctor` prints them. None changes anything that is kept."""

import asyncio
import inspect
import os
import platform
import re
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

from toolgate import __version__
from toolgate.app.app import App
from toolgate.app.checks.check import Check
from toolgate.app.checks.sandbox import sandbox_checks
from toolgate.app.checks.servers import server_checks
from toolgate.app.checks.services import service_checks
from toolgate.coordination.redis import BusError
from toolgate.discovery import SETTINGS_FILE, discover
from toolgate.errors import SettingsError, StoreError, ToolgateError, did_you_mean, nearest
from toolgate.extras import EXTRAS, MissingExtra, install_command, is_installed
from toolgate.gates.policy.documents import PolicyError
from toolgate.model import MASK
from toolgate.registry.export import is_exact
from toolgate.settings import NOT_SETTINGS, SECRET_PREFIX, VARIABLE_PREFIX, Settings, load_settings
from toolgate.store import log
from toolgate.store.data_folder import make_home
from toolgate.store.database import Transaction
from toolgate.trust import Untrusted, working_directory

TOOL_CHECK_SECONDS = 5.0
"""The time that a tool's own health check has."""
LOW_DISK_BYTES = 200_000_000
CHECK_OF_ERROR: dict[type[ToolgateError], str] = {
    Untrusted: "trust", SettingsError: "settings", MissingExtra: "extras", PolicyError: "policy", BusError: "redis",
}  # fmt: skip
"""The check that an error at the opening belongs to."""


async def examine(file: Path | None, overrides: Mapping[str, Any]) -> AsyncGenerator[Check]:
    """All checks, as far as what they need is there. What tools print meanwhile goes to stdout."""
    yield Check("python", "ok", f"{platform.python_version()}, toolgate {__version__}, SQLite {sqlite3.sqlite_version}")
    for check in _extras():
        yield check
    try:
        for check in _project():
            yield check
        settings = load_settings(file, overrides)
    except SettingsError as error:
        yield Check("settings", "fault", error.message, error.suggestion)
        return
    yield _settings(settings)
    for check in _unknown_variables():
        yield check
    yield _home(settings)
    try:
        app = App(settings, keeps_servers=False)  # each is asked once, below
        await app.__aenter__()
        await app.tools.check()
    except ToolgateError as error:
        yield Check(CHECK_OF_ERROR.get(type(error), "database"), "fault", error.message, error.suggestion)
        return
    try:
        async for check in _opened(app):
            yield check
    finally:
        await app.__aexit__(None, None, None)


async def _opened(app: App) -> AsyncIterator[Check]:
    yield await _database(app)
    yield await _audit(app)
    for check in (*_tools(app), *_unknown_tools(app)):
        yield check
    async for check in _health_checks(app):
        yield check
    async for check in service_checks(app):
        yield check
    async for check in sandbox_checks(app):
        yield check
    async for check in server_checks(app):
        yield check
    yield _tokenizer()
    yield _scanner(app)
    yield _dates()
    yield _telemetry(app)


# -- where it works


def _extras() -> Iterator[Check]:
    """The optional parts that are installed and those that are not. One that the settings ask for and that is missing is
    a fault of its own, when the App is opened."""
    there = [name for name in EXTRAS if is_installed(name)]
    absent = [f"{name} ({extra.part})" for name, extra in EXTRAS.items() if name not in there]
    if there:
        yield Check("extras", "ok", f"installed: {', '.join(there)}" if absent else "all are installed")
    if absent:
        yield Check("extras", "unused", f"not installed: {', '.join(absent)}", f"To add one: {install_command('NAME')}")


def _project() -> Iterator[Check]:
    here, found = working_directory(), discover()
    if found.folder != here:
        words = f"{found.folder}, found above the working directory {here}"
        yield Check("project", "ok", words, "Settings and data are the project's; tools work in the working directory.")
    else:
        yield Check("project", "ok", f"{here}")
    if found.ignored is not None:
        yield Check("project", "unused", found.ignored)


def _settings(settings: Settings) -> Check:
    names = sorted(
        name for name in os.environ if name.startswith(VARIABLE_PREFIX) and _setting(name) in Settings.model_fields
    )
    file = settings.read_from
    nothing = f"no {SETTINGS_FILE} here or above, so defaults; `toolgate init` writes one"
    words = f"read from {file.absolute()}" if file else nothing
    return Check("settings", "ok", f"{words}; environment: {', '.join(names)}" if names else words)


def _unknown_variables() -> Iterator[Check]:
    for name in sorted(os.environ):
        if not name.startswith(VARIABLE_PREFIX) or name.startswith(SECRET_PREFIX) or name in NOT_SETTINGS:
            continue
        if _setting(name) not in Settings.model_fields:
            near = nearest(_setting(name), Settings.model_fields)
            advice = f"Did you mean {VARIABLE_PREFIX}{near.upper()}?" if near else None
            yield Check("settings", "warning", f"the variable {name} is no setting of this version", advice)


def _setting(variable: str) -> str:
    return variable.removeprefix(VARIABLE_PREFIX).lower().split("__")[0]


def _home(settings: Settings) -> Check:
    home = settings.home
    if settings.in_memory and not home.exists():
        return Check("home", "unused", "not needed: the database is in memory")
    try:
        make_home(home)
        with tempfile.TemporaryFile(dir=home) as file:
            file.write(b"toolgate doctor")
        free = shutil.disk_usage(home).free
    except StoreError as error:
        return Check("home", "fault", error.message, error.suggestion)
    except OSError as error:
        advice = "Run where you may write, or set TOOLGATE_HOME to a folder where you may."
        return Check("home", "fault", f"{home.absolute()} can't be written: {error.strerror or error}", advice)
    message = f"{home.absolute()} can be written, {free / 1e9:,.1f} GB are free"
    return (
        Check("home", "warning", message, "Free some disk space.") if free < LOW_DISK_BYTES else Check("home", "ok", message)
    )


# -- what is kept


async def _database(app: App) -> Check:
    place = re.sub(r"//[^@/]*@", "//", app.settings.database)
    try:
        begun = perf_counter()
        schema = await app.parts.store.read(_schema())
        read = perf_counter()
        await app.parts.store.transact(_write_the_same())
        written = perf_counter()
    except ToolgateError as error:
        return Check("database", "fault", error.message, error.suggestion)
    times = f"read in {(read - begun) * 1000:.1f} ms, written durably in {(written - read) * 1000:.1f} ms"
    return Check("database", "ok", f"{place}, schema {schema}, {times}")


def _schema() -> Transaction[int]:
    rows = yield "SELECT max(number) FROM toolgate_schema", {}
    return int(rows[0][0])


def _write_the_same() -> Transaction[None]:
    """There and back: SQLite would not write a value that stays the same."""
    yield "UPDATE catalog_epoch SET value = value + 1 WHERE id = 1", {}
    yield "UPDATE catalog_epoch SET value = value - 1 WHERE id = 1", {}


async def _audit(app: App) -> Check:
    """A quick look; `audit verify` walks the whole log."""
    try:
        noted, end = await app.audit.heads()
        at_noted = await app.parts.store.read(log.after(noted.seq - 1, 1)) if noted is not None else []
    except (ToolgateError, OSError, ValueError) as error:
        return Check("audit log", "fault", f"the end of the log can't be read: {error}")
    ends = f"ends at row {end.seq:,}"
    if app.settings.in_memory:
        return Check("audit log", "ok", f"{ends}; in memory, it ends with this process")
    if noted is None:
        if end.seq == 0:
            return Check("audit log", "ok", "empty")
        words = f"{ends}, but no head is noted outside the database, so a cut tail can't be seen"
        return Check("audit log", "warning", words, "Find out who removed the file.")
    if not at_noted or (at_noted[0][0], at_noted[0][-1]) != tuple(noted):
        words = f"{ends}, but row {noted.seq:,} differs from what was noted outside the database"
        return Check("audit log", "fault", words, "`toolgate audit verify` shows what is missing or changed.")
    signed = await _signed(app)
    if signed is not None:
        return Check("audit log", "warning", f"{ends}, but its head is not signed: {signed}", "See `toolgate audit verify`.")
    return Check("audit log", "ok", f"{ends}, as is noted outside the database; `toolgate audit verify` walks all of it")


async def _signed(app: App) -> str | None:
    """Why the head of the log can't be signed; None if it can."""
    if app.parts.heads is None:
        return "audit.key is none"
    try:
        await app.parts.heads.check()
    except ToolgateError as error:
        return error.message
    return None


# -- what it runs


def _unknown_tools(app: App) -> Iterator[Check]:
    """Settings that are about tools which are not here: misspelled, they protect nothing."""
    settings, known = app.settings, {entry.name for entry in app.parts.catalog.entries()}
    for setting, names in (
        ("tools", settings.tools),
        ("tier_overrides", settings.tier_overrides),
        ("enforcement.enforced_tools", settings.enforcement.enforced_tools),
    ):
        for name in sorted(set(names) - known):
            advice = did_you_mean(name, known) or "Correct the name, or remove it."
            yield Check("settings", "warning", f"{setting} names {name!r}, and there is no such tool", advice)


def _tools(app: App) -> Iterator[Check]:
    entries = app.parts.catalog.entries()
    sources = Counter(entry.tool.source for entry in entries)
    words = ", ".join(f"{count} {source}" for source, count in sources.items()) or "none"
    off = sum(not app.parts.catalog.is_on(entry.name) for entry in entries)
    yield Check("tools", "ok", f"{words}; {off} disabled" if off else words)
    for problem in app.tools.problems:
        yield Check("tools", "warning", f"{problem.where} could not be loaded: {problem.why}", "Correct or remove it.")


async def _health_checks(app: App) -> AsyncIterator[Check]:
    """What class-based tools say of themselves, made ready as for a call and cleaned up again."""
    for entry in app.parts.catalog.entries():
        instance: Any = getattr(entry.implementation, "instance", None)
        if not hasattr(instance, "health_check") or not app.parts.catalog.is_on(entry.name):
            continue
        words: str | None
        try:
            if hasattr(instance, "initialize"):
                await _asked(app, instance.initialize)
            words = _unwell(await _asked(app, instance.health_check))
            if hasattr(instance, "cleanup"):
                await _asked(app, instance.cleanup)
        except TimeoutError:
            words = f"no answer within {TOOL_CHECK_SECONDS:g} s"
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is its answer
            words = f"{type(error).__name__}: {error}"
        found = f"{entry.name}: {words or 'healthy'}"
        yield Check("tool", "ok" if words is None else "fault", found)


async def _asked(app: App, method: Any) -> Any:
    if inspect.iscoroutinefunction(method):
        return await asyncio.wait_for(method(), TOOL_CHECK_SECONDS)
    future = app.parts.local.threads.submit(partial(method))
    done, _ = await asyncio.wait((future,), timeout=TOOL_CHECK_SECONDS)
    if not done:
        future.cancel()
        app.parts.local.threads.give_up()
        raise TimeoutError
    return future.result()


def _unwell(answer: Any) -> str | None:
    """Why a tool is not well, from True or False, or from {healthy, message}; None if it is."""
    healthy = answer.get("healthy", True) if isinstance(answer, dict) else getattr(answer, "healthy", answer)
    message = answer.get("message") if isinstance(answer, dict) else getattr(answer, "message", None)
    return None if healthy is None or healthy else str(message or "unhealthy")


# -- what makes it better


def _tokenizer() -> Check:
    if is_exact():
        return Check("tokenizer", "ok", "tokens are counted (o200k)")
    return Check(
        "tokenizer", "warning", "not installed: tokens are estimated, four characters each", install_command("tokens")
    )


def _scanner(app: App) -> Check:
    if not app.settings.scan_secrets:
        return Check("secrets", "warning", "scan_secrets is off: only keys and well-known forms are masked")
    try:
        masked = app.parts.redactor.mask({"password": "x" * 12, "text": "AKIA" + "Q3EGR7K2LMNWX5ZT"})
    except Exception as error:  # noqa: BLE001 - whatever the scanner raises
        return Check("secrets", "fault", f"masking fails: {type(error).__name__}: {error}", "Set scan_secrets: false.")
    if masked != {"password": MASK, "text": MASK}:
        return Check("secrets", "fault", "a test secret was not masked")
    if app.parts.redactor.scanner_name is None:
        words = "masked by key and by well-known forms; no scanner is installed"
        return Check("secrets", "warning", words, install_command("scan"))
    return Check("secrets", "ok", f"masked by key, by well-known forms, and by {app.parts.redactor.scanner_name}")


def _dates() -> Check:
    try:
        import_module("dateparser")
    except ImportError:
        advice = install_command("dates")
        return Check("dates", "warning", "dateparser is not installed: datetime reads ISO 8601 and timestamps only", advice)
    return Check("dates", "ok", "dateparser reads dates in English")


def _telemetry(app: App) -> Check:
    wanted = [name for name in ("metrics", "tracing") if getattr(app.settings, name)]
    if wanted:
        return Check("telemetry", "ok", f"on: {', '.join(wanted)}")
    return Check("telemetry", "unused", "off; the settings metrics and tracing turn it on")
