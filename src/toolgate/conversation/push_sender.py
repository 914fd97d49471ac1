"""Sends messages to services that users chose, by apprise URLs, over an HTTP client that judges every address.

apprise opens connections of its own, with `requests`: by a URL of theirs, users could have this machine reach hosts of its
private network, use a proxy or a netrc file of its operator, or read a file as a template. So only kinds of services that
are asked by HTTP alone are taken, and the requests that apprise makes in the threads here go out by Toolgate's own client.
"""

import asyncio
import functools
import re
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from toolgate.conversation.channels import quiet_apprise
from toolgate.conversation.judged_requests import answered_by
from toolgate.errors import CallError, Denied, InvalidInput, NotReached, TimedOut, ToolError, printable
from toolgate.extras import is_installed, not_installed
from toolgate.network.http_client import HttpClient
from toolgate.network.http_headers import OWN_HEADERS
from toolgate.threads import DaemonExecutor

if TYPE_CHECKING:
    import requests
    from apprise.plugins.base import NotifyBase

    from toolgate.network.http_response import HttpResponse

MAX_PUSH_THREADS = 16
MAX_TENANT_SENDS = 4
"""Messages of one tenant that are sent at once: services that are slow make their own users wait."""
MAX_PUSH_URL_CHARS = 1_000
MAX_REQUESTS = 4
"""Requests of one message: some services ask who is there first."""
MAX_ANSWER_BYTES = 100_000
GONE_STATUSES = frozenset({404, 410})
PASSING_STATUSES = frozenset({408, 425, 429})
_GONE_WORDS = re.compile(rb"INVALID_TOKEN|UNREGISTERED|InvalidRegistration|NotRegistered|BadDeviceToken")
_SCHEME = re.compile(r"([a-z0-9]{1,32})://", re.ASCII)

Verdict = Literal["delivered", "gone", "passing", "failed"]
"""`gone`: the service says that there is no such receiver (any more). `passing`: it may take the message later."""


class PushResult(NamedTuple):
    """The end of a message, and its cause: for operators, without any part of the URL."""

    verdict: Verdict
    reason: str | None = None


class _Stopped(BaseException):
    """Ends the work of a plugin, which catches most exceptions."""


class _Sending:
    """One message on its way: it answers for the requests of its thread."""

    def __init__(self, ask: Callable[["requests.PreparedRequest", float], "HttpResponse"], seconds: float) -> None:
        self._ask = ask
        self._deadline = time.monotonic() + seconds
        self._requests = 0
        self.found = PushResult("failed", "apprise made no request for it")

    def answer(self, asked: "requests.PreparedRequest") -> "HttpResponse":
        """The answer to a request. Raises _Stopped if there can be none."""
        self._requests += 1
        left = self._deadline - time.monotonic()
        if left <= 0:
            self.found = PushResult("passing", "its time was over")
            raise _Stopped
        if self._requests > MAX_REQUESTS:
            self.found = PushResult("failed", f"it took more than {MAX_REQUESTS} requests")
            raise _Stopped
        try:
            found = self._ask(asked, left)
        except (CallError, ToolError) as error:
            self.found = result_of_error(error)
            raise _Stopped from None
        self.found = result_of_answer(found.status, found.body)
        return found


class PushSender:
    """Checks URLs of users and sends messages to them."""

    def __init__(self, http: HttpClient, kinds: Collection[str], seconds: float) -> None:
        self._http = http
        self._kinds = frozenset(kinds)
        self._seconds = seconds
        self._executor: DaemonExecutor | None = None
        self._tenants: dict[str, tuple[asyncio.Semaphore, list[None]]] = {}

    async def close(self) -> None:
        """Lets go of lookups that are under way."""
        await self._http.close()

    async def check(self, url: str) -> str:
        """The kind of a URL. Raises InvalidInput or Denied for one that may not be added."""
        kind = self._kind(url)
        await self._in_thread(_check, url, kind, self._http.check, self._seconds)
        return kind

    async def send(self, url: str, title: str, message: str, tenant: str) -> PushResult:
        """Sends a message, within its time."""
        try:
            kind = self._kind(url)
        except (InvalidInput, Denied) as error:
            return PushResult("failed", error.message)
        turn, here = self._tenants.setdefault(tenant, (asyncio.Semaphore(MAX_TENANT_SENDS), []))
        here.append(None)
        loop = asyncio.get_running_loop()
        sending = _Sending(functools.partial(self._from_thread, loop, tenant), self._seconds)
        try:
            async with asyncio.timeout(self._seconds), turn:
                result: PushResult = await self._in_thread(_send, sending, url, kind, title, message)
                return result
        except TimeoutError:
            return PushResult("passing", f"it did not take it within {self._seconds:g} s")
        finally:
            here.pop()
            if not here:
                self._tenants.pop(tenant, None)

    def _kind(self, url: str) -> str:
        if not is_installed("notify"):
            raise InvalidInput(not_installed("notify"))
        if len(url) > MAX_PUSH_URL_CHARS or not url.isascii() or not url.isprintable() or " " in url:
            raise InvalidInput(f"The URL of a push token has at most {MAX_PUSH_URL_CHARS:,} printable ASCII characters.")
        found = _SCHEME.match(url)
        if found is None:
            raise InvalidInput("This is not an apprise URL.", suggestion="Write it as ntfys://ntfy.example.com/TOPIC.")
        if found[1] not in self._kinds:
            allowed = ", ".join(sorted(self._kinds)) or "none"
            raise Denied(
                "PERMISSION_DENIED",
                f"Push tokens of the kind {printable(found[1])} are not allowed here. Allowed kinds: {allowed}.",
                suggestion="An operator can allow some kinds in the setting `notify.push.kinds`.",
            )
        return found[1]

    async def _in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        self._executor = self._executor or DaemonExecutor(MAX_PUSH_THREADS)
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *args)

    def _from_thread(
        self, loop: asyncio.AbstractEventLoop, tenant: str, asked: "requests.PreparedRequest", seconds: float
    ) -> "HttpResponse":
        """Sends a request of a plugin. Runs in its thread, and waits for the loop."""
        body = asked.body.encode() if isinstance(asked.body, str) else asked.body
        if body is not None and not isinstance(body, bytes):
            raise InvalidInput("The request has no plain body.")
        request = self._http.request(
            asked.method or "",
            asked.url or "",
            headers={name: _text(value) for name, value in asked.headers.items() if name.lower() not in OWN_HEADERS},
            content=body,
            timeout=seconds,
            max_bytes=MAX_ANSWER_BYTES,
            cut=True,
            tenant=tenant,
        )
        try:
            return asyncio.run_coroutine_threadsafe(request, loop).result(seconds + 1)
        except TimeoutError:
            raise TimedOut from None


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _send(sending: _Sending, url: str, kind: str, title: str, message: str) -> PushResult:
    """Sends a message. Runs in a thread of its own."""
    try:
        with quiet_apprise(), answered_by(sending):
            service = _service(url, kind)
            taken = service.notify(body=message, title=title, body_format="text")
    except (InvalidInput, Denied) as error:
        return PushResult("failed", error.message)
    except _Stopped:
        return sending.found
    except Exception as error:  # noqa: BLE001 - whatever a plugin raises; its words may hold the URL
        return PushResult("failed", f"sending failed ({type(error).__name__})")
    if taken:
        return PushResult("delivered")
    found = sending.found
    return found if found.verdict != "delivered" else PushResult("failed", "the service did not take it")


def _check(url: str, kind: str, judge: Callable[[str], None], seconds: float) -> None:
    """Raises InvalidInput or Denied for a URL that is none, or that would send to a host that is refused as it is written.
    A message is sent up to its first request, which goes nowhere."""
    refused: list[CallError | ToolError] = []

    def look(asked: "requests.PreparedRequest", _seconds: float) -> "HttpResponse":
        try:
            judge(asked.url or "")
        except (CallError, ToolError) as error:
            refused.append(error)
        raise _Stopped

    with quiet_apprise(), answered_by(_Sending(look, seconds)):
        service = _service(url, kind)
        try:
            service.notify(body="test", title="test", body_format="text")
        except _Stopped:
            if refused:
                raise refused[0] from None
            return
        except Exception:  # noqa: BLE001 - whatever a plugin raises; its words may hold the URL
            pass
    raise _no_service(kind)  # it asked nobody


def _service(url: str, kind: str) -> "NotifyBase":
    """The service of a URL. Raises InvalidInput."""
    import apprise
    from apprise.plugins import url_to_dict

    results = url_to_dict(url)  # type: ignore[no-untyped-call]
    if not results or str(results.get("schema", "")).lower() != kind:
        raise _no_service(kind)
    if results.get("template"):
        raise InvalidInput("The URL of a push token can't name a template.", suggestion="Leave `template` out.")
    asset = apprise.AppriseAsset(app_id="Toolgate", app_desc="Toolgate", app_url="", storage_mode="memory")
    service = apprise.Apprise.instantiate(results, asset=asset, suppress_exceptions=True)
    if service is None:
        raise _no_service(kind)
    if len(service) != 1:
        raise InvalidInput("The URL of a push token names one receiver.", suggestion="Add a token for each receiver.")
    return service


def _no_service(kind: str) -> InvalidInput:
    return InvalidInput(
        f"The URL is none of {kind}: apprise can't read it.",
        suggestion="https://github.com/caronc/apprise says how the URLs of each service are written.",
    )


def result_of_error(error: CallError | ToolError) -> PushResult:
    """The result of a request that got no answer."""
    if isinstance(error, NotReached):
        return PushResult("passing", "its host could not be reached")
    if isinstance(error, TimedOut):
        return PushResult("passing", "its host did not answer in time")
    if isinstance(error, Denied):
        return PushResult("failed", "its address is refused: a private host, or a port that is not allowed")
    return PushResult("passing" if error.retryable else "failed", f"the request failed ({error.code})")


def result_of_answer(status: int, body: bytes) -> PushResult:
    """The result of a request that was answered so."""
    if 200 <= status < 300:
        return PushResult("delivered")
    if status in GONE_STATUSES or (400 <= status < 500 and _GONE_WORDS.search(body)):
        return PushResult("gone", f"the service answered {status}: it knows no such receiver")
    passing = status in PASSING_STATUSES or status >= 500
    return PushResult("passing" if passing else "failed", f"the service answered {status}")
