"""The check of the n8n server: it is asked whether it is there, not whether its workflows are."""

from collections.abc import AsyncIterator

from toolgate.app.app import App
from toolgate.app.checks import Check, answers
from toolgate.errors import plural
from toolgate.model import LOCAL

NAME = "n8n"
DOCTOR_SECONDS = 5.0


async def workflow_checks(app: App) -> AsyncIterator[Check]:
    """The server, and the secret that its webhooks check."""
    n8n = app.settings.n8n
    if n8n.base_url is None:
        yield Check(NAME, "unused", "none: tools that are workflows are refused", "The setting n8n.base_url names one.")
        return
    found = await n8n_check(app, DOCTOR_SECONDS)
    more = f", {plural(len(app.settings.workflows), 'workflow')} in the settings" if app.settings.workflows else ""
    found = found._replace(message=f"{n8n.base_url}: {found.message}{more}")
    if found.status == "ok" and app.parts.secrets.find(n8n.webhook_secret, LOCAL) is None:
        words = f"{found.message}, but the secret {n8n.webhook_secret} is not set for everybody"
        found = Check(NAME, "warning", words, f"`toolgate secrets set {n8n.webhook_secret}` sets it.")
    yield found


async def n8n_check(app: App, seconds: float) -> Check:
    """Whether the server answers. One that is down makes its own tools fail and no others: that is a warning."""
    found = await answers(NAME, app.parts.n8n.ping, seconds)
    return found._replace(status="warning") if found.status == "fault" else found
