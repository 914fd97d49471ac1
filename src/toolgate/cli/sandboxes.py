"""The doctor's probes of the sandbox: what could hold code here, found out by having each try to, and what runs in it."""

from collections.abc import AsyncIterator

from toolgate.app import App
from toolgate.cli.checks import Check
from toolgate.errors import NotReached, ToolgateError
from toolgate.extras import install_command, is_installed
from toolgate.sandbox.engine import Language, Sandbox

LANES: tuple[tuple[str, Language, str], ...] = (
    ("python", "python", "import sys; sys.version.split()[0]"),
    ("monty", "python", "6 * 7"),
    ("typescript", "typescript", "return 6 * 7 as number"),
)
"""By lane, a program that gives something."""


async def sandboxes(app: App) -> AsyncIterator[Check]:
    """What holds code, and whether each lane works in it."""
    sandbox = app.sandbox
    try:
        jail = await sandbox.jail()
    except NotReached as error:
        advice = "Until one can be had, tools of tier execute and custom tools are refused; small Python runs in Monty."
        yield Check("sandbox", "warning", error.message, f"{error.suggestion or ''} {advice}".strip())
    else:
        yield Check("sandbox", "ok", f"{jail.name} holds code: tried just now")
        yield Check("sandbox", "ok", "held: " + "; ".join(f"{what}: {how}" for what, how in jail.enforces().items()))
    for found in await sandbox.survey():
        if found.available:
            yield Check("sandbox", "ok", f"{found.name} could be used")
        else:
            yield Check("sandbox", "ok", f"{found.name} can't: {found.reason}")
    for name, language, code in LANES:
        yield await _lane(sandbox, name, language, code)


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
        return Check("sandbox", "warning", f"Monty can't be used, so small Python runs in {ran.lane}", advice)
    return Check("sandbox", "ok", f"{name}: runs in {ran.lane}, {ran.seconds * 1000:.0f} ms from cold")
