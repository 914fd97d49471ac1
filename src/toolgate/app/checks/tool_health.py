"""The check of tools that tell themselves how they are."""

from collections.abc import AsyncIterator

from toolgate.app.app import App
from toolgate.app.checks import Check


async def health_checks(app: App) -> AsyncIterator[Check]:
    """Asks class-based tools for their own health check, and tells what came of the last one on schedule."""
    health = app.parts.health
    for entry in health.entries():
        if not app.parts.catalog.is_on(entry.name):
            continue
        answer = await health.ask(entry)
        words = f"{entry.name}: {answer.message or 'healthy'}"
        row = await health.of(entry.name)
        if row is None or row.last_check is None:
            yield Check("tool", "ok" if answer.healthy else "fault", words)
            continue
        details = {name: str(value) for name, value in row.to_dict().items() if value is not None}
        words += f" (on schedule: {row.state} at {details['lastCheck']}, next check at {details['nextCheck']})"
        yield Check("tool", "ok" if answer.healthy else "fault", words, details=details)
