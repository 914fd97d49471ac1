"""The same as `sync_connection.py`, for programs without an event loop: written from it by `make reference`."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import httpx2

from toolgate.client.connection import (
    ANYTHING,
    START_IT,
    TIMEOUT_SECONDS,
    AnswerParts,
    Cursors,
    Query,
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
EVENTS = "text/event-stream"
STREAM_TIMEOUT = httpx2.Timeout(TIMEOUT_SECONDS)
"""Of a stream: so long without a byte, not even a keep-alive, and its server is gone."""


class ServerConnection:
    """Sends requests, and gives what they are answered with."""

    def __init__(self, url: str | None, key: str | None, timeout: float, tenant: str | None) -> None:
        self._tenant = {} if tenant is None else {"tenant": tenant}
        self._timeout = timeout
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
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        always: bool = False,
    ) -> T:
        """Makes a request. `always`: its answer has the same form whatever its status. Raises `RequestRefused` or
        `ServerUnreachable`."""
        sent = {**(JSON_HEADERS if body is not None else {}), **(headers or {})}
        limit = self._timeout if timeout is None else timeout
        asked = self._http.build_request(
            method, path, params={**self._tenant, **(query or {})}, content=body_bytes(body), headers=sent, timeout=limit
        )
        try:
            answer = self._http.send(asked, stream=True)
            try:
                content = _content(answer, limit)
            finally:
                answer.close()
        except httpx2.RequestError as error:
            words = f"{self._http.base_url} cannot be reached: {described(error)}."
            advice = START_IT if isinstance(error, httpx2.ConnectError) else None
            raise ServerUnreachable(words, suggestion=advice) from error
        return read(answer.status_code, content, gives, always=always)

    def pages(self, path: str, kind: type[T], limit: int | None = None, **query: Any) -> list[T]:
        """Gives all items of a list, or so many, in as many requests as it takes."""
        found: list[T] = []
        cursor: str | None = None
        cursors = Cursors()
        while limit is None or len(found) < limit:
            size = MAX_PAGE if limit is None else min(MAX_PAGE, limit - len(found))
            asked = query_of(**query, limit=size, cursor=cursor)
            page: Page[T] = self.send("GET", path, Page[kind], query=asked)  # type: ignore[valid-type]
            found += page.items
            cursor = page.next
            cursors.check(cursor, len(page.items), len(found))
            if cursor is None:
                break
        return found[:limit]

    def stream(self, path: str, query: Query, last: int | None) -> Iterator[bytes]:
        """Gives the bytes of an answer that does not end, as they come."""
        headers = {"accept": EVENTS} | ({} if last is None else {"last-event-id": str(last)})
        asked = {**self._tenant, **query}
        try:
            with self._http.stream("GET", path, params=asked, headers=headers, timeout=STREAM_TIMEOUT) as answer:
                if answer.status_code != 200 or not answer.headers.get("content-type", "").startswith(EVENTS):
                    read(answer.status_code, _content(answer, self._timeout), ANYTHING)
                    raise ServerUnreachable("The server's answer is no stream of events.")
                yield from answer.iter_raw()
        except httpx2.RequestError as error:
            raise ServerUnreachable(f"The events of {self._http.base_url} were cut off: {described(error)}.") from error


def _content(answer: httpx2.Response, seconds: float) -> bytes:
    """The bytes of an answer as they are sent: who compresses them all the same is not understood."""
    parts = AnswerParts(seconds)
    for part in answer.iter_raw():
        parts.add(part)
    return parts.whole()
