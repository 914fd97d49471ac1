"""A client of SearXNG, the search engine that an operator can run: https://docs.searxng.org/dev/search_api.html"""

from typing import Any, NamedTuple

from toolgate.errors import ToolError
from toolgate.jsontext import valid_text
from toolgate.network.http_client import HttpClient

MAX_SEARCH_BYTES = 2_000_000
MAX_TITLE_CHARS = 300
MAX_SNIPPET_CHARS = 1_000
MAX_RESULT_URL_CHARS = 2_000


class SearchResult(NamedTuple):
    """One page that was found."""

    title: str
    url: str
    snippet: str


class SearxngClient:
    """Searches by the SearXNG instance of the settings. `url` is None if there is none."""

    def __init__(self, http: HttpClient, url: str | None) -> None:
        self._http = http
        self.url = url.rstrip("/") if url else None

    async def search(self, query: str, most: int, seconds: float) -> list[SearchResult]:
        """The first results. Raises ToolError if what answers is no SearXNG that gives JSON."""
        response = await self._http.request(
            "GET",
            f"{self.url}/search",
            query={"q": query, "format": "json"},
            headers={"accept": "application/json"},
            timeout=seconds,
            max_bytes=MAX_SEARCH_BYTES,
            trusted=True,
        )
        if response.status == 403:
            raise ToolError(
                "The search engine gives no JSON.",
                suggestion="In SearXNG's settings.yml, add json to search.formats.",
            )
        if response.status == 429:
            raise ToolError("The search engine limits how often it is asked.", retryable=True, suggestion="Wait a minute.")
        if not response.is_success:
            raise ToolError(f"The search engine answered with status {response.status}.", retryable=response.status >= 500)
        answer = response.json()
        found = answer.get("results") if isinstance(answer, dict) else None
        if not isinstance(found, list):
            raise ToolError("The search engine did not answer as SearXNG does.", suggestion="Check `search.searxng_url`.")
        return [result for one in found if (result := search_result(one)) is not None][:most]


def search_result(found: Any) -> SearchResult | None:
    """A result of SearXNG or of Brave; None for anything else."""
    if not isinstance(found, dict) or not isinstance(found.get("url"), str):
        return None
    url = valid_text(found["url"])
    if len(url) > MAX_RESULT_URL_CHARS or not url.lower().startswith(("http://", "https://")):
        return None
    snippet = found.get("content") or found.get("description") or found.get("snippet")
    return SearchResult(_short(found.get("title"), MAX_TITLE_CHARS), url, _short(snippet, MAX_SNIPPET_CHARS))


def _short(text: Any, most: int) -> str:
    return valid_text(" ".join(text.split()))[:most] if isinstance(text, str) else ""
