"""Sends signed JSON to addresses that the settings name. It is signed as callbacks of workflows are: HMAC-SHA256 over the
time stamp, a dot and the body."""

import time
from collections.abc import Callable
from typing import Any

import orjson

from toolgate.conversation.push_sender import PushResult, result_of_answer, result_of_error
from toolgate.errors import CallError, ToolError
from toolgate.network.http_client import HttpClient
from toolgate.settings import WebhookSettings
from toolgate.workflow.callbacks import SIGNATURE_HEADER, TIMESTAMP_HEADER, signature

MAX_ANSWER_BYTES = 10_000


class Webhooks:
    """The way to all webhooks."""

    def __init__(self, http: HttpClient, find_secret: Callable[[str], str | None], seconds: float) -> None:
        self._http = http
        self._find_secret = find_secret
        self._seconds = seconds

    async def send(self, webhook: WebhookSettings, fields: dict[str, Any]) -> PushResult:
        """Sends fields as JSON. Redirects are not followed: the signature is for this address."""
        key = self._find_secret(webhook.secret)
        if not key:
            why = f"the secret {webhook.secret!r} is not set: run `toolgate secrets set {webhook.secret} --servers`"
            return PushResult("failed", why)
        body, timestamp = orjson.dumps(fields), str(int(time.time()))
        headers = {
            "content-type": "application/json",
            TIMESTAMP_HEADER: timestamp,
            SIGNATURE_HEADER: signature(key, timestamp, body),
        }
        try:
            answer = await self._http.request(
                "POST", webhook.url, headers=headers, content=body, timeout=self._seconds, max_bytes=MAX_ANSWER_BYTES,
                redirects=0, trusted=webhook.allow_private, cut=True,
            )  # fmt: skip
        except (CallError, ToolError) as error:
            found = result_of_error(error)
            broke = found.verdict == "failed" and error.code in ("CONNECTION_ERROR", "TIMEOUT")
            # A POST that may have arrived is sent again: its receiver knows it by the approval's id.
            return PushResult("passing", found.reason) if broke else found
        return result_of_answer(answer.status, b"")
