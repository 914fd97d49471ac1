"""SendGrid: sending mail."""

from collections.abc import Mapping
from typing import Any

from toolgate.network.http_client import HttpClient
from toolgate.network.service_answers import told
from toolgate.services.service_api import ServiceApi, ServiceFault

SETUP_URL = "https://app.sendgrid.com/settings/api_keys"
MAX_FAULTS = 5


class SendGrid:
    """The client."""

    def __init__(self, base_url: str, http: HttpClient) -> None:
        self._api = ServiceApi("SendGrid", base_url, http, setup_url=SETUP_URL, read_fault=_fault)

    async def send(self, credential: str | None, mail: Mapping[str, Any], *, seconds: float) -> str:
        """Has a mail queued; gives its message id. There is no idempotency key: an attempt without a clear answer is not
        repeated."""
        response = await self._api.send(
            "POST", "/v3/mail/send", headers=self._api.bearer(credential), json=mail, changes=True, seconds=seconds
        )
        return told(response.headers.get("x-message-id")) or ""

    async def check(self, credential: str | None) -> None:
        """Raises if the credential is not accepted."""
        await self._api.send("GET", "/v3/scopes", headers=self._api.bearer(credential), changes=False)


def mail(*, to: str, sender: str, subject: str, text: str | None, html: str | None) -> dict[str, Any]:
    """The body of a mail to one address. Plain text stands before HTML, as SendGrid demands."""
    content = [{"type": kind, "value": value} for kind, value in (("text/plain", text), ("text/html", html)) if value]
    return {
        "personalizations": [{"to": [{"email": to}]}],
        "from": {"email": sender},
        "subject": subject,
        "content": content,
    }


def _fault(body: Any) -> ServiceFault:
    errors = body.get("errors") if isinstance(body, dict) else None
    if not isinstance(errors, list):
        return ServiceFault()
    found = [error for error in errors[:MAX_FAULTS] if isinstance(error, dict)]
    words = [f"{told(error.get('field'))}: {told(error.get('message'))}".removeprefix("None: ") for error in found]
    fields = [field for error in found if (field := told(error.get("field"))) is not None]
    return ServiceFault("; ".join(words), more={"fields": fields} if fields else {})
