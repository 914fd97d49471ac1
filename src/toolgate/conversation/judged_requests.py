"""Has the requests that a library makes with `requests` answered by somebody else, in one thread.

A library that opens connections of its own can't be told which it may open. In a thread that is inside `answered_by`, each
session of `requests` has one adapter only, which hands every request on. Other threads are not concerned.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, wraps
from io import BytesIO
from typing import TYPE_CHECKING, Any, Protocol

from toolgate.network.http_response import HttpResponse

if TYPE_CHECKING:
    import requests


class Answerer(Protocol):
    """The port of what answers the requests of a thread."""

    def answer(self, asked: "requests.PreparedRequest") -> HttpResponse: ...


_here = threading.local()
"""`answerer`: of this thread; unset in all others."""


@contextmanager
def answered_by(answerer: Answerer) -> Iterator[None]:
    """Has the requests of this thread answered."""
    _install()
    _here.answerer = answerer
    try:
        yield
    finally:
        del _here.answerer


@cache
def _install() -> None:
    """Has each new session of `requests` look whether its thread has an answerer."""
    import requests
    from requests.adapters import BaseAdapter
    from requests.structures import CaseInsensitiveDict
    from requests.utils import get_encoding_from_headers

    class JudgedAdapter(BaseAdapter):
        def __init__(self, answerer: Answerer) -> None:
            super().__init__()
            self._answerer = answerer

        def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
            found, answer = self._answerer.answer(request), requests.Response()
            plain = {name: value for name, value in found.headers.items() if name not in ("content-encoding", "location")}
            answer.status_code, answer.headers = found.status, CaseInsensitiveDict(plain)
            answer.raw, answer.url, answer.request = BytesIO(found.body), found.url, request
            answer.encoding = get_encoding_from_headers(answer.headers)
            return answer

        def close(self) -> None: ...

    begin = requests.Session.__init__

    @wraps(begin)
    def begin_judged(session: requests.Session) -> None:
        begin(session)
        answerer = getattr(_here, "answerer", None)
        if answerer is not None:
            session.trust_env = False  # no proxy and no netrc file of the operator
            session.adapters.clear()
            session.mount("", JudgedAdapter(answerer))

    requests.Session.__init__ = begin_judged  # type: ignore[method-assign,assignment]
