"""The newest versions of packages, from the registries of npm and PyPI or from mirrors of them.

npm: `GET /-/package/{name}/dist-tags` (https://github.com/npm/registry/blob/main/docs/REGISTRY-API.md), PyPI:
`GET /pypi/{name}/json` (https://docs.pypi.org/api/json/). A registry learns the names that it is asked for.
"""

import asyncio
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from toolgate.errors import CallError, ToolError
from toolgate.network.http_client import HttpClient

MAX_ANSWER_BYTES = 8_000_000
MAX_VERSION_CHARS = 128
AT_ONCE = 6
REQUEST_SECONDS = 15.0


class PackageRegistries:
    """Asks the registries of the settings. A URL that is None: that registry is asked nothing."""

    def __init__(self, http: HttpClient, npm: str | None, pypi: str | None) -> None:
        self._http = http
        self._urls = {"npm": npm.rstrip("/") if npm else None, "PyPI": pypi.rstrip("/") if pypi else None}

    def is_on(self, ecosystem: str) -> bool:
        """True if there is a registry to ask."""
        return self._urls.get(ecosystem) is not None

    async def latest(self, ecosystem: str, names: Iterable[str]) -> dict[str, str | None]:
        """By name, the newest version; None where the registry did not tell."""
        places = asyncio.Semaphore(AT_ONCE)

        async def ask(name: str) -> tuple[str, str | None]:
            async with places:
                return name, await self._latest(ecosystem, name)

        return dict(await asyncio.gather(*(ask(name) for name in names)))

    async def _latest(self, ecosystem: str, name: str) -> str | None:
        part = quote(name, safe="@")
        path = f"/-/package/{part}/dist-tags" if ecosystem == "npm" else f"/pypi/{part}/json"
        try:
            response = await self._http.request(
                "GET", f"{self._urls[ecosystem]}{path}", headers={"accept": "application/json"}, timeout=REQUEST_SECONDS,
                max_bytes=MAX_ANSWER_BYTES, trusted=True,
            )  # fmt: skip
            answer: Any = response.json() if response.status == 200 else None
        except (CallError, ToolError):
            return None
        info = answer.get("info") if isinstance(answer, dict) and ecosystem == "PyPI" else answer
        version = info.get("version" if ecosystem == "PyPI" else "latest") if isinstance(info, dict) else None
        usable = isinstance(version, str) and 0 < len(version) <= MAX_VERSION_CHARS and version.isprintable()
        return version if usable else None
