"""Gets the newest bundle of an organisation: from a URL, be it another Toolgate's, or from a folder."""

from collections.abc import Callable
from pathlib import Path

from toolgate.errors import BundleRefused, CallError, ToolError
from toolgate.network.http_client import HttpClient
from toolgate.settings.teams import TeamSettings
from toolgate.teams.bundle import MAX_BUNDLE_BYTES
from toolgate.threads import to_thread
from toolgate.trust import read_regular

FETCH_SECONDS = 30.0
MAX_REDIRECTS = 3
KEPT = "What was accepted before stays in use."


class BundleSource:
    """The place that the settings name."""

    def __init__(self, settings: TeamSettings, http: HttpClient, find_secret: Callable[[str], str | None]) -> None:
        self._settings = settings
        self._http = http
        self._find_secret = find_secret

    @property
    def place(self) -> str | None:
        """The address of the bundle; None: there is none."""
        org_id = self._settings.org_id or ""
        if self._settings.url is not None:
            return self._settings.url.replace("{org_id}", org_id)
        return None if self._settings.folder is None else str(self._settings.folder / f"{org_id}.bundle.json")

    async def fetch(self) -> bytes:
        """The bundle as it is there now, unchecked but for its size. Raises BundleRefused."""
        if self.place is None:
            raise BundleRefused(
                "There is nowhere to get the organisation's bundle from.",
                suggestion="Set teams.url or teams.folder, or add a bundle by hand: `toolgate teams add FILE`.",
            )
        if self._settings.url is None:
            return await to_thread(read_bundle, Path(self.place))
        return await self._download(self.place)

    async def _download(self, url: str) -> bytes:
        headers = {"accept": "application/json"}
        if self._settings.token_secret is not None:
            token = self._find_secret(self._settings.token_secret)
            if token is None:
                name = self._settings.token_secret
                raise BundleRefused(
                    f"The secret {name}, which teams.token_secret names, is not set.",
                    suggestion=f"toolgate secrets set {name} --servers",
                )
            headers["authorization"] = f"Bearer {token}"
        try:
            answer = await self._http.request(
                "GET", url, headers=headers, timeout=FETCH_SECONDS, max_bytes=MAX_BUNDLE_BYTES, redirects=MAX_REDIRECTS,
                trusted=True,
            )  # fmt: skip
        except (CallError, ToolError) as error:
            raise BundleRefused(f"The bundle cannot be had: {error.message}", suggestion=KEPT) from None
        if answer.status != 200:
            raise BundleRefused(
                f"The bundle cannot be had: {url} answered with status {answer.status}.",
                suggestion="401 or 403: the key lacks the scope teams:read. 404: nothing is published there for this "
                f"organisation. {KEPT}",
            )
        return answer.body


def read_bundle(file: Path) -> bytes:
    """The content of a bundle's file. Raises BundleRefused."""
    try:
        return read_regular(file)
    except OSError as error:
        raise BundleRefused(f"The bundle {file} cannot be read: {error.strerror or error}.", suggestion=KEPT) from None
