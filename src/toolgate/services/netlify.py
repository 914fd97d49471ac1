"""Netlify: a deployment is made of the SHA-1 of each file, then the files that Netlify does not have are uploaded."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from toolgate.network.http_client import HttpClient
from toolgate.services.deployer import Deployment, Site, SiteFile, Status, log_text, upload_all, wait_until_done
from toolgate.services.service_api import ServiceApi, ServiceFault

SETUP_URL = "https://app.netlify.com/user/applications#personal-access-tokens"
DONE: Mapping[str, Status] = {"ready": "ready", "error": "error", "rejected": "error"}
"""States in which a deployment stays; all others are on the way."""
DEPLOY_ID = re.compile(r"[A-Za-z0-9-]{1,100}\Z")


class Netlify:
    """The client, a `Deployer`."""

    def __init__(self, base_url: str, http: HttpClient) -> None:
        self._api = ServiceApi("Netlify", base_url, http, setup_url=SETUP_URL, read_fault=_fault)

    async def deploy(self, credential: str | None, site: Site, *, deadline: float) -> Deployment:
        headers = self._api.bearer(credential)
        body = {"files": {f"/{file.path}": file.sha1 for file in site.files}, "draft": not site.production}
        path = f"/api/v1/sites/{quote(site.project, safe='')}/deploys"
        response = await self._api.send("POST", path, headers=headers, json=body, changes=True)
        made = self._api.json(response, dict, changes=True)
        first = self._read(made, site.production)
        required = made.get("required")
        missing = {sha for sha in required if isinstance(sha, str)} if isinstance(required, list) else set()
        files = {file.sha1: file for file in site.files if file.sha1 in missing}
        await upload_all(files.values(), lambda file: self._upload(headers, first.id, file))
        return await wait_until_done(lambda: self._look(headers, first.id, site.production), first, deadline)

    async def check(self, credential: str | None) -> None:
        await self._api.send("GET", "/api/v1/user", headers=self._api.bearer(credential), changes=False)

    async def _upload(self, headers: Mapping[str, str], id: str, file: SiteFile) -> None:
        path = f"/api/v1/deploys/{id}/files/{quote(file.path)}"
        sent = {**headers, "Content-Type": "application/octet-stream"}
        await self._api.send("PUT", path, headers=sent, content=file.content, changes=False, seconds=120)

    async def _look(self, headers: Mapping[str, str], id: str, production: bool) -> Deployment:
        response = await self._api.send("GET", f"/api/v1/deploys/{id}", headers=headers, changes=False)
        return self._read(self._api.json(response, dict, changes=False), production)

    def _read(self, made: Mapping[str, Any], production: bool) -> Deployment:
        id, state = str(made.get("id") or ""), str(made.get("state") or "")
        if DEPLOY_ID.match(id) is None:
            raise self._api.unreadable(changes=True)
        names = ("ssl_url", "url") if production else ("deploy_ssl_url", "deploy_url")
        url = next((made[name] for name in names if _is_url(made.get(name))), "")
        why = made.get("error_message")
        return Deployment(id, url, DONE.get(state, "building"), log_text([why]) if isinstance(why, str) else "")


def _is_url(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > 2_000 or not value.isprintable():
        return False
    return value.startswith(("https://", "http://"))


def _fault(body: Any) -> ServiceFault:
    return (
        ServiceFault(body.get("message"), str(body.get("code") or "") or None) if isinstance(body, dict) else ServiceFault()
    )
