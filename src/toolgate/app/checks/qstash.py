"""The check of the way to QStash and back: what its settings need. Where it is not in use, nothing is said of it."""

from collections.abc import AsyncIterator

from toolgate.app.app import App
from toolgate.app.checks import Check, answers
from toolgate.extras import install_command, is_installed

PROBE_SECONDS = 5.0


async def qstash_checks(app: App) -> AsyncIterator[Check]:
    settings, find = app.settings.qstash, app.parts.server_secrets.find
    if settings.url is None:
        return
    if not is_installed("qstash"):
        yield Check("qstash", "warning", "QStash support is not installed: no job is taken", install_command("qstash"))
        return
    for name in (settings.signing_key, settings.next_signing_key):
        if not find(name):
            lost = "no job is taken" if name == settings.signing_key else "jobs are refused once QStash changes its key"
            advice = f"`toolgate secrets set {name} --servers` sets it."
            yield Check("qstash", "warning", f"the secret {name} is not set: {lost}", advice)
    unknown = sorted(name for name in settings.take if app.parts.jobs.handlers.get(name) is None)
    if unknown:
        yield Check("qstash", "warning", f"no handler is here for jobs of type {', '.join(unknown)}", "Correct qstash.take.")
    if settings.send:
        if not find(settings.token):
            advice = f"`toolgate secrets set {settings.token} --servers` sets it."
            yield Check("qstash", "warning", f"the secret {settings.token} is not set: jobs are run without QStash", advice)
        found = await answers(
            "qstash", lambda: app.parts.http.request("GET", settings.base_url, trusted=True), PROBE_SECONDS
        )
        yield (
            found if found.status == "ok" else found._replace(status="warning", advice="Jobs are run without it meanwhile.")
        )
    else:
        yield Check("qstash", "ok", f"jobs are taken at {settings.url}/jobs/")
