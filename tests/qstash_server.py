"""QStash as its documentation has it: a server that takes messages, and the signatures under what it brings."""

import base64
import hashlib
import hmac
import json
import time
from typing import Any

from tests.loopback import Asked, Said

CURRENT, FOLLOWING = "sig_current_" + "k" * 32, "sig_following_" + "n" * 32
PUBLIC = "https://toolgate.example.com"
TOKEN = "qstash-token-7f"


def _part(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def signature(
    body: bytes, url: str, key: str = CURRENT, /, *, seconds: float = 300, algorithm: str = "HS256", **claims: Any
) -> str:
    """The token of the header Upstash-Signature."""
    now = int(time.time())
    said = {
        "iss": "Upstash", "sub": url, "exp": int(now + seconds), "nbf": now - 1, "iat": now - 1,
        "jti": f"jwt_{time.time_ns()}", "body": base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode(), **claims,
    }  # fmt: skip
    said = {name: value for name, value in said.items() if value is not None}
    text = f"{_part(json.dumps({'alg': algorithm, 'typ': 'JWT'}).encode())}.{_part(json.dumps(said).encode())}"
    digest = b"" if algorithm == "none" else hmac.new(key.encode(), text.encode(), "sha256").digest()
    return f"{text}.{_part(digest)}"


def delivery(job_type: str, body: bytes, id: str = "msg_1", **how: Any) -> dict[str, str]:
    """The headers of a request with which QStash brings a message."""
    signed = signature(body, f"{PUBLIC}/jobs/{job_type}", how.pop("key", CURRENT), **how)
    return {"Upstash-Signature": signed, "Upstash-Message-Id": id, "Upstash-Retried": "0", "User-Agent": "Upstash-QStash"}


class FakeQStash:
    """The part of QStash that takes messages: POST /v2/publish/{url}."""

    def __init__(self) -> None:
        self.taken: dict[str, Asked] = {}
        self.status = 200

    async def __call__(self, asked: Asked) -> Said:
        if self.status != 200:
            return Said(self.status, {"error": "not now"})
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return Said(401, {"error": "unauthorized"})
        if asked.method != "POST" or not asked.path.startswith("/v2/publish/https://"):
            return Said(404, {"error": "not found"})
        once = asked.headers.get("upstash-deduplication-id", "")
        if not once or ":" in once:
            return Said(400, {"error": "invalid deduplication id"})
        if once in self.taken:
            return Said(202, {"messageId": f"msg_{once}", "deduplicated": True})
        self.taken[once] = asked
        return Said(201, {"messageId": f"msg_{once}"})

    def bring(self, once: str) -> tuple[str, dict[str, str], bytes]:
        """Path, headers and body of the request with which it brings a message."""
        asked = self.taken[once]
        url = asked.path.removeprefix("/v2/publish/")
        forwarded = {
            name.removeprefix("upstash-forward-"): value
            for name, value in asked.headers.items()
            if name.startswith("upstash-forward-")
        }
        job_type = url.removeprefix(f"{PUBLIC}/jobs/")
        return f"/jobs/{job_type}", {**delivery(job_type, asked.body, f"msg_{once}"), **forwarded}, asked.body
