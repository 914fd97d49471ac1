"""Checks of the sandbox: which backends can be used here, each tried, and what runs in the one in use."""

from collections.abc import AsyncIterator

from toolgate.app.app import App
from toolgate.app.checks import Check
from toolgate.errors import NotReached, ToolgateError
from toolgate.extras import install_command, is_installed
from toolgate.sandbox.engine import Language, Sandbox

LANES: tuple[tuple[str, Language, str], ...] = (
    ("python", "python", "import sys; sys.version.split()[0]"),
    ("monty", "python", "6 * 7"),
    ("typescript", "typescript", "return 6 * 7 as number"),
)
"""By lane, a program that gives something."""


async def sandbox_checks(app: App) -> AsyncIterator[Check]:
    """The backend in use, those that could take its place, and whether each lane works."""
    sandbox = app.parts.sandbox
    in_use = None
    try:
        jail = await sandbox.jail()
    except NotReached as error:
        yield _without(sandbox.settings.backend, error)
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


def _without(backend: str, error: NotReached) -> Check:
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
