"""Vercel: files are uploaded by their SHA-1, then a deployment is made of them."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from toolgate.errors import CallError, ToolError
from toolgate.network.http_client import HttpClient
from toolgate.services.deployer import Deployment, Site, SiteFile, Status, log_text, upload_all, wait_until_done
from toolgate.services.service_api import ServiceApi, ServiceFault

SETUP_URL = "https://vercel.com/account/tokens"
DONE: Mapping[str, Status] = {
    "READY": "ready",
    "ERROR": "error",
    "CANCELED": "error",
    "DELETED": "error",
    "BLOCKED": "error",
}
"""States in which a deployment stays; all others are on the way."""
DEPLOYMENT_ID = re.compile(r"[A-Za-z0-9_-]{1,100}\Z")
HOST = re.compile(r"[A-Za-z0-9.-]{1,253}\Z")
MAX_LOG_BYTES = 2_000_000


class Vercel:
    """The client, a `Deployer`."""

    def __init__(self, base_url: str, http: HttpClient, team: str | None = None) -> None:
        self._api = ServiceApi("Vercel", base_url, http, setup_url=SETUP_URL, read_fault=_fault)
        self._team = {} if team is None else {"teamId": team}

    async def deploy(self, credential: str | None, site: Site, *, deadline: float) -> Deployment:
        headers = self._api.bearer(credential)
        await upload_all({file.sha1: file for file in site.files}.values(), lambda file: self._upload(headers, file))
        made = self._api.json(
            await self._api.send(
                "POST",
                "/v13/deployments",
                headers=headers,
                query={**self._team, "skipAutoDetectionConfirmation": "1"},
                json=_request(site),
                changes=True,
            ),
            dict,
            changes=True,
        )
        first = self._read(made)
        found = await wait_until_done(lambda: self._look(headers, first.id), first, deadline)
        return found._replace(log=await self._log(headers, found)) if found.status != "building" else found

    async def check(self, credential: str | None) -> None:
        await self._api.send("GET", "/v2/user", headers=self._api.bearer(credential), changes=False)

    async def _upload(self, headers: Mapping[str, str], file: SiteFile) -> None:
        sent = {**headers, "Content-Type": "application/octet-stream", "x-vercel-digest": file.sha1}
        await self._api.send(
            "POST", "/v2/files", headers=sent, query=self._team, content=file.content, changes=False, seconds=120
        )

    async def _look(self, headers: Mapping[str, str], id: str) -> Deployment:
        response = await self._api.send("GET", f"/v13/deployments/{id}", headers=headers, query=self._team, changes=False)
        return self._read(self._api.json(response, dict, changes=False))

    async def _log(self, headers: Mapping[str, str], found: Deployment) -> str:
        """The build log, with why it failed at the end. A deployment without a log is one all the same."""
        query = {**self._team, "builds": "1", "direction": "forward", "follow": "0", "limit": "-1"}
        lines: list[str] = []
        with suppress(CallError, ToolError):
            response = await self._api.send(
                "GET", f"/v3/deployments/{found.id}/events", headers=headers, query=query, changes=False,
                max_bytes=MAX_LOG_BYTES,
            )  # fmt: skip
            lines = list(_lines(self._api.json(response, list, changes=False)))
        return log_text([*lines, found.log] if found.log else lines)

    def _read(self, made: Mapping[str, Any]) -> Deployment:
        id, host, state = (str(made.get(name) or "") for name in ("id", "url", "readyState"))
        if DEPLOYMENT_ID.match(id) is None:
            raise self._api.unreadable(changes=True)
        why = made.get("errorMessage")
        return Deployment(
            id,
            f"https://{host}" if HOST.match(host) else "",
            DONE.get(state, "building"),
            why if isinstance(why, str) else "",
        )


def _request(site: Site) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": site.project,
        "files": [{"file": file.path, "sha": file.sha1, "size": len(file.content)} for file in site.files],
    }
    if site.production:
        body["target"] = "production"
    if site.env:
        body |= {"env": dict(site.env), "build": {"env": dict(site.env)}}
    return body


def _lines(events: list[Any]) -> Iterator[str]:
    for event in events:
        payload = event.get("payload") if isinstance(event, dict) else None
        text = (payload if isinstance(payload, dict) else event).get("text") if isinstance(event, dict) else None
        if isinstance(text, str):
            yield text


def _fault(body: Any) -> ServiceFault:
    error = body.get("error") if isinstance(body, dict) else None
    return ServiceFault(error.get("message"), error.get("code")) if isinstance(error, dict) else ServiceFault()
