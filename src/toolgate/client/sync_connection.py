"""The same as `sync_connection.py`, for programs without an event loop: written from it by `make reference`."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import httpx2

from toolgate.client.connection import (
    ServerUnreachable,
    address_of,
    body_bytes,
    headers_of,
    query_of,
    read,
)
from toolgate.errors import described
from toolgate.serve.http.pages import MAX_PAGE, Page

T = TypeVar("T")
CONNECT_ATTEMPTS = 2
JSON_HEADERS = {"content-type": "application/json"}


class ServerConnection:
    """Sends requests, and gives what they are answered with."""

    def __init__(self, url: str | None, key: str | None, timeout: float, tenant: str | None) -> None:
        self._tenant = {} if tenant is None else {"tenant": tenant}
        self._http = httpx2.Client(
            base_url=address_of(url),
            headers=headers_of(key),
            timeout=httpx2.Timeout(timeout),
            # A connection that could not be made has sent nothing, so it may be tried again whatever was to be sent.
            transport=httpx2.HTTPTransport(retries=CONNECT_ATTEMPTS),
        )

    def close(self) -> None:
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        gives: type[T],
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        always: bool = False,
    ) -> T:
        """Makes a request. `always`: its answer has the same form whatever its status. Raises `RequestRefused` or
        `ServerUnreachable`."""
        sent = {**(JSON_HEADERS if body is not None else {}), **(headers or {})}
        limit = httpx2.USE_CLIENT_DEFAULT if timeout is None else timeout
        try:
            answer = self._http.request(
                method, path, params={**self._tenant, **(query or {})}, content=body_bytes(body), headers=sent, timeout=limit
            )
        except httpx2.TransportError as error:
            raise ServerUnreachable(f"{self._http.base_url} cannot be reached: {described(error)}.") from error
        return read(answer.status_code, answer.content, gives, always=always)

    def pages(self, path: str, kind: type[T], limit: int | None = None, **query: Any) -> list[T]:
        """Gives all items of a list, or so many, in as many requests as it takes."""
        found: list[T] = []
        cursor: str | None = None
        while limit is None or len(found) < limit:
            size = MAX_PAGE if limit is None else min(MAX_PAGE, limit - len(found))
            asked = query_of(**query, limit=size, cursor=cursor)
            page: Page[T] = self.send("GET", path, Page[kind], query=asked)  # type: ignore[valid-type]
            found += page.items
            cursor = page.next
            if cursor is None:
                break
        return found

    def lines(self, path: str, query: Mapping[str, str], last: int | None) -> Iterator[str]:
        """Gives the lines of an answer that does not end."""
        headers = {"accept": "text/event-stream"} | ({} if last is None else {"last-event-id": str(last)})
        asked = {**self._tenant, **query}
        try:
            with self._http.stream("GET", path, params=asked, headers=headers, timeout=None) as answer:
                if answer.status_code != 200:
                    read(answer.status_code, answer.read(), str)
                yield from answer.iter_lines()
        except httpx2.TransportError as error:
            raise ServerUnreachable(f"The events of {self._http.base_url} were cut off: {described(error)}.") from error
