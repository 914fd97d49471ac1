"""The check of the event stream: it is asked for real, and every key that signs has to be there."""

from collections.abc import AsyncIterator
from time import perf_counter

from toolgate.app.app import App
from toolgate.app.checks import Check
from toolgate.errors import ToolgateError


async def event_checks(app: App) -> AsyncIterator[Check]:
    settings, calls = app.settings.events, app.parts.event_calls
    if settings.url is None:
        yield Check("events", "unused", "no event stream: the setting events.url names one")
        return
    begun = perf_counter()
    try:
        answer = await calls.stream().ping()
    except ToolgateError as error:
        yield Check("events", "fault", error.message, error.suggestion)
    else:
        takes = f"calls from {settings.requests}" if settings.take_requests else "calls are only sent out"
        yield Check("events", "ok", f"{answer} in {(perf_counter() - begun) * 1000:.1f} ms; {takes}")
    for name, key in settings.keys.items():
        why = calls.keys.why_not(name)
        if why is not None:
            yield Check("events", "warning", why, f"`toolgate secrets set {key.secret} --servers` sets it.")
    if not settings.keys:
        yield Check("events", "warning", "no key is named, so every message is put aside", "Name one in events.keys.")
    sent = [entry.name for entry in app.parts.catalog.entries() if entry.is_sent_out]
    if sent and settings.sign_with is None:
        words = f"{', '.join(sorted(sent)[:5])} cannot be sent out: no key signs for it"
        yield Check("events", "warning", words, "Name one in events.sign_with.")
