"""All checks of an installation, in the order in which `toolgate doctor` prints them. None changes anything that is kept."""

import logging
import os
import platform
import re
import shlex
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from toolgate import __version__
from toolgate.app.app import App
from toolgate.app.checks import Check, ask_policy
from toolgate.app.checks.builtin_tools import builtin_checks
from toolgate.app.checks.events import event_checks
from toolgate.app.checks.jobs import job_checks
from toolgate.app.checks.memory import memory_checks
from toolgate.app.checks.models import model_checks
from toolgate.app.checks.qstash import qstash_checks
from toolgate.app.checks.servers import server_checks
from toolgate.app.checks.tool_health import health_checks
from toolgate.app.checks.workflows import workflow_checks
from toolgate.coordination.redis import CoordinationError
from toolgate.discovery import SETTINGS_FILE, discover
from toolgate.errors import NotReached, SettingsError, StoreError, ToolgateError, did_you_mean, nearest, plural
from toolgate.extras import EXTRAS, MissingExtra, install_command, is_installed
from toolgate.gates.policy.documents import PolicyError
from toolgate.gates.secrets.sources import Vault
from toolgate.model import LOCAL, MASK
from toolgate.registry.export import is_exact
from toolgate.runners.breaker import named_targets
from toolgate.sandbox.engine import Language, Sandbox
from toolgate.settings import VARIABLE_PREFIX, Settings, load_settings, variables_of_settings
from toolgate.store import audit_log
from toolgate.store.data_folder import make_home
from toolgate.store.database import Transaction
from toolgate.store.sql import value
from toolgate.trust import Untrusted, working_directory

LOW_DISK_BYTES = 200_000_000
PACKAGES = {"file": "cryptography", "keyring": "keyring"}
"""The package that each store of secrets needs."""
CHECK_OF_ERROR: dict[type[ToolgateError], str] = {
    Untrusted: "trust", SettingsError: "settings", MissingExtra: "extras", PolicyError: "policy", CoordinationError: "redis",
}  # fmt: skip
"""The check that an error at the opening belongs to."""

LANES: tuple[tuple[str, Language, str], ...] = (
    ("python", "python", "import sys; sys.version.split()[0]"),
    ("monty", "python", "6 * 7"),
    ("typescript", "typescript", "return 6 * 7 as number"),
)
"""By lane, a program that gives something."""
UNEXPECTED_ADVICE = "That is a defect of Toolgate: `TOOLGATE_DEBUG=1 toolgate doctor` shows where."
logger = logging.getLogger(__name__)


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
    for check in _settings(settings):
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
        for name, checks in CHECKS:
            try:
                async for check in checks(app):
                    yield check
            except ToolgateError as error:
                yield Check(name, "fault", error.message, error.suggestion)
            except Exception as error:  # one check that breaks must not hide what the others found
                logger.exception("The check of %s failed", name)
                yield Check(name, "fault", f"the check itself failed: {type(error).__name__}: {error}", UNEXPECTED_ADVICE)
    finally:
        await app.__aexit__(None, None, None)


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


def _settings(settings: Settings) -> Iterator[Check]:
    variables = variables_of_settings(os.environ)
    names = [name for name, path in variables.items() if path[0] in Settings.model_fields]
    file = settings.read_from
    nothing = f"no {SETTINGS_FILE} here or above, so defaults; `toolgate init` writes one"
    words = f"read from {file.absolute()}" if file else nothing
    yield Check("settings", "ok", f"{words}; environment: {', '.join(names)}" if names else words)
    for name in sorted(variables.keys() - names):
        near = nearest(variables[name][0], Settings.model_fields)
        advice = f"Did you mean {VARIABLE_PREFIX}{near.upper()}?" if near else None
        yield Check("settings", "warning", f"the variable {name} is no setting of this version", advice)


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
        return Check("home", "fault", f"{home.absolute()} cannot be written: {error.strerror or error}", advice)
    message = f"{home.absolute()} can be written, {free / 1e9:,.1f} GB are free"
    return (
        Check("home", "warning", message, "Free some disk space.") if free < LOW_DISK_BYTES else Check("home", "ok", message)
    )


# -- what is kept


async def _database(app: App) -> AsyncIterator[Check]:
    place, store, begun = re.sub(r"//[^@/]*@", "//", app.settings.database), app.parts.store, perf_counter()
    schema = await store.read(value("SELECT max(number) FROM toolgate_schema"))
    read = perf_counter()
    await store.transact(_write_the_same())
    times = f"read in {(read - begun) * 1000:.1f} ms, written durably in {(perf_counter() - read) * 1000:.1f} ms"
    yield Check("database", "ok", f"{place}, schema {schema}, {times}")


def _write_the_same() -> Transaction[None]:
    """There and back: SQLite would not write a value that stays the same."""
    yield "UPDATE catalog_epoch SET value = value + 1 WHERE id = 1", {}
    yield "UPDATE catalog_epoch SET value = value - 1 WHERE id = 1", {}


async def _audit(app: App) -> AsyncIterator[Check]:
    """A quick look; `audit verify` walks the whole log."""
    yield await _end_of_log(app)


async def _end_of_log(app: App) -> Check:
    try:
        noted, end = await app.audit.heads()
        at_noted = await app.parts.store.read(audit_log.after(noted.seq - 1, 1)) if noted is not None else []
    except (ToolgateError, OSError, ValueError) as error:
        return Check("audit log", "fault", f"the end of the log cannot be read: {error}")
    ends = f"ends at row {end.seq:,}"
    if app.settings.in_memory:
        return Check("audit log", "ok", f"{ends}; in memory, it ends with this process")
    if noted is None:
        if end.seq == 0:
            return Check("audit log", "ok", "empty")
        words = f"{ends}, but no head is noted outside the database, so a cut tail cannot be seen"
        return Check("audit log", "warning", words, "Find out who removed the file.")
    if not at_noted or (at_noted[0][0], at_noted[0][-1]) != tuple(noted):
        words = f"{ends}, but row {noted.seq:,} differs from what was noted outside the database"
        return Check("audit log", "fault", words, "`toolgate audit verify` shows what is missing or changed.")
    signed = await _signed(app)
    if signed is not None:
        return Check("audit log", "warning", f"{ends}, but its head is not signed: {signed}", "See `toolgate audit verify`.")
    return Check("audit log", "ok", f"{ends}, as is noted outside the database; `toolgate audit verify` walks all of it")


async def _signed(app: App) -> str | None:
    """Gives the reason why the head of the log cannot be signed; None if it can."""
    if app.parts.heads is None:
        return "audit.key is none"
    try:
        await app.parts.heads.check()
    except ToolgateError as error:
        return error.message
    return None


# -- what it runs


async def _unknown_tools(app: App) -> AsyncIterator[Check]:
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


async def _tools(app: App) -> AsyncIterator[Check]:
    entries = app.parts.catalog.entries()
    sources = Counter(entry.tool.source for entry in entries)
    words = ", ".join(f"{count} {source}" for source, count in sources.items()) or "none"
    off = sum(not app.parts.catalog.is_on(entry.name) for entry in entries)
    yield Check("tools", "ok", f"{words}; {off} disabled" if off else words)
    for problem in app.tools.problems:
        yield Check("tools", "warning", f"{problem.where} could not be loaded: {problem.why}", "Correct or remove it.")


# -- what decides, counts and keeps, and what waits for a person


async def _policy(app: App) -> AsyncIterator[Check]:
    """The engine must deny a tool that can't exist."""
    engine = app.parts.guard.engine
    if engine.remote is True:
        name = "an OPA server decides"
    else:
        name = "the shipped policy decides" if engine.shipped else f"{app.settings.policy.file} decides"
    begun = perf_counter()
    verdict = await ask_policy(app.parts)
    took = f"asked in {(perf_counter() - begun) * 1000:.1f} ms"
    if not verdict.sure:
        advice = "Until it answers, everything is denied. See the settings opa_url and policy."
        yield Check("policy", "fault", f"{name}, but {verdict.decision.reason}", advice)
    elif verdict.decision.allow:
        words = f"{name}, and allows a tool that does not exist: {verdict.decision.reason}"
        yield Check("policy", "warning", words, "Begin the policy with `default allow := false`, and look the tool up.")
    else:
        yield Check("policy", "ok", f"{name} ({app.parts.guard.policy_hash[:12]}), {took}")


async def _redis(app: App) -> AsyncIterator[Check]:
    """Of circuits, only what processes share can be told: the doctor's own has just begun."""
    redis, begun = app.parts.redis, perf_counter()
    if redis is None:
        words = "not set: each process counts its own limits, and has its own breakers and caches"
        yield Check("redis", "unused", words)
        return
    await redis.ping()
    yield Check("redis", "ok", f"{redis.place} answers in {(perf_counter() - begun) * 1000:.1f} ms")
    if circuits := await app.parts.breakers.open_everywhere():
        advice = "Their targets failed; each is tried again by itself."
        yield Check("circuits", "warning", f"open: {', '.join(named_targets(circuits))}", advice)
    else:
        yield Check("circuits", "ok", "no circuit is open in the processes that share Redis")


async def _vaults(app: App) -> AsyncIterator[Check]:
    for source in app.parts.secrets.sources:
        if isinstance(source, Vault):
            yield _vault(source)


def _vault(source: Vault) -> Check:
    """A store of secrets that can't be read is broken. One that lacks its package is not in use; that is worth knowing."""
    broken: Literal["warning", "fault"] = "fault" if find_spec(PACKAGES[source.name]) is not None else "warning"
    try:
        held, why_not = len(source.held()), source.why_not()
    except ToolgateError as error:
        return Check("credentials", broken, f"{source.name}: {error.message}", error.suggestion)
    if why_not is not None:
        lost = f"; its {plural(held, 'secret')} cannot be read" if held else ""
        return Check("credentials", broken if held else "warning", f"{source.name}: {why_not}{lost}")
    return Check("credentials", "ok", f"{source.name}: {plural(held, 'secret')}")


async def _waiting(app: App) -> AsyncIterator[Check]:
    """Counts the things that only a person can settle."""
    approvals, keys = await app.approvals.counts(), await app.idempotency.unsettled()
    definitions, changes = await app.servers.quarantined(), app.workspace.changes()
    words, advice = [], []
    if approvals:
        tenants = ", ".join(f"{number} of tenant {tenant}" for tenant, number in sorted(approvals.items()))
        whose = "" if approvals.keys() == {LOCAL.tenant} else f" ({tenants})"
        words.append(f"{plural(sum(approvals.values()), 'approval')}{whose}")
        tenant = "'*'" if len(approvals) > 1 else shlex.quote(next(iter(approvals)))
        option = "" if tenant == LOCAL.tenant else f" --tenant {tenant}"
        advice.append(f"`toolgate approvals list{option}` shows what waits for a yes.")
    if keys:
        words.append(f"{plural(len(keys), 'idempotency key')} whose outcome is unknown")
        advice.append("`toolgate idempotency list` shows the keys; `settle` settles them.")
    if definitions:
        words.append(f"{plural(len(definitions), 'definition')} of MCP servers to be accepted")
        advice.append("`toolgate tools accept --all` shows them, and asks.")
    if changes:
        words.append(f"{plural(len(changes), 'set')} of changes in workspaces")
        advice.append("`toolgate workspace list` shows what programs changed and was not brought in.")
    found = ", ".join(words) or "nothing waits for a person"
    yield Check("waiting", "warning" if keys else "ok", found, " ".join(advice) or None)


# -- the jails that code and servers run in


async def _sandbox(app: App) -> AsyncIterator[Check]:
    """The backend in use, those that could take its place, and whether each lane works."""
    sandbox = app.parts.sandbox
    in_use = None
    try:
        jail = await sandbox.jail()
    except NotReached as error:
        yield _no_backend(sandbox.settings.backend, error)
    else:
        in_use = jail.name
        limits = {str(what): how for what, how in jail.enforces().items()}
        yield Check("sandbox", "ok", f"{in_use} (self-test passed) limits {', '.join(limits)}", details=limits)
    for found in await sandbox.survey():
        if not found.available:
            advice = None if in_use is None else f"Not needed: {in_use} is in use."
            yield Check("sandbox", "unused", f"{found.name} cannot be used: {found.reason}", advice)
        elif found.name == "docker" and in_use != "docker":
            yield Check("sandbox", "ok", "docker answers: `docker_run` uses it")
        elif found.name != in_use:
            yield Check("sandbox", "ok", f"{found.name} (self-test passed) can be used instead: set sandbox.backend")
    for name, language, code in LANES:
        if in_use is None and name != "monty":
            continue  # the same again
        yield await _lane(sandbox, name, language, code)


def _no_backend(backend: str, error: NotReached) -> Check:
    """No backend: a fault if one was asked for by name."""
    refused = "tools of tier execute, custom tools and MCP servers in a jail are refused"
    if backend != "auto":
        return Check(
            "sandbox", "fault", f"{backend}, which sandbox.backend names, cannot be used: {refused}", error.suggestion
        )
    words = f"no backend can be used: {refused}; small Python runs in Monty"
    return Check("sandbox", "warning", words, "Install bubblewrap: `apt install bubblewrap`, or your system's package.")


async def _lane(sandbox: Sandbox, name: str, language: Language, code: str) -> Check:
    try:
        ran = await sandbox.run_code(language, code)
    except ToolgateError as error:
        advice = install_command("sandbox") if not is_installed("sandbox") else error.suggestion
        return Check("sandbox", "warning", f"{name}: {error.message}", advice)
    if ran.failure is not None:
        return Check("sandbox", "fault", f"{name}: {ran.failure}")
    if name == "monty" and ran.lane != name and sandbox.settings.monty:
        advice = "The log says why it does not start." if is_installed("sandbox") else install_command("sandbox")
        return Check("sandbox", "warning", f"Monty cannot be used, so small Python runs in {ran.lane}", advice)
    return Check("sandbox", "ok", f"{name}: runs in {ran.lane}, {ran.seconds * 1000:.0f} ms from cold")


# -- what makes it better


async def _optional(app: App) -> AsyncIterator[Check]:
    if is_exact():
        yield Check("tokenizer", "ok", "tokens are counted (o200k)")
    else:
        words = "not installed: tokens are estimated, four characters each"
        yield Check("tokenizer", "warning", words, install_command("tokens"))
    yield _scanner(app)
    if find_spec("dateparser") is not None:
        yield Check("dates", "ok", "dateparser reads dates in English")
    else:
        words = "dateparser is not installed: datetime reads ISO 8601 and timestamps only"
        yield Check("dates", "warning", words, install_command("dates"))
    wanted = [name for name in ("metrics", "tracing") if getattr(app.settings, name)]
    if wanted:
        yield Check("telemetry", "ok", f"on: {', '.join(wanted)}")
    else:
        yield Check("telemetry", "unused", "off; the settings metrics and tracing turn it on")


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


CHECKS: tuple[tuple[str, Callable[[App], AsyncIterator[Check]]], ...] = (
    ("database", _database),
    ("audit log", _audit),
    ("tools", _tools),
    ("settings", _unknown_tools),
    ("tool", health_checks),
    ("policy", _policy),
    ("redis", _redis),
    ("events", event_checks),
    ("credentials", _vaults),
    ("waiting", _waiting),
    ("jobs", job_checks),
    ("sandbox", _sandbox),
    ("servers", server_checks),
    ("memory", memory_checks),
    ("model", model_checks),
    ("n8n", workflow_checks),
    ("qstash", qstash_checks),
    ("search", builtin_checks),
    ("optional", _optional),
)
"""The checks of an App that is open, each by the name that a check of it has which fails."""
