"""Requests to one external service, and what its answers mean for a call.

The question behind most of this: may the request have had its effect? Where it changes something and no clear answer came
back, the error is OUTCOME_UNKNOWN, which the pipeline does not repeat by itself unless a tool says that it may.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from toolgate.errors import CallError, Denied, ToolError
from toolgate.network.http_client import HttpClient
from toolgate.network.http_response import HttpResponse
from toolgate.network.service_answers import CREDENTIAL, retry_after, told

REQUEST_SECONDS = 30.0
MARGIN_SECONDS = 2.0
"""The request ends so long before the tool's time does: its own error says more than that the time is over."""
LEAST_SECONDS = 1.0
NOT_PROCESSED = frozenset({408, 425})
"""Statuses which say that the request was not processed. 503 is none of them: a database says so of a connection that was
lost while it committed."""


class ServiceFault(NamedTuple):
    """What a service says of a request that it refused."""

    message: str | None = None
    code: str | None = None
    kind: str | None = None
    more: Mapping[str, Any] = {}
    """Further facts, for the error's details."""


ReadFault = Callable[[Any], ServiceFault]
"""Reads the body of an error, which may be anything, as the service documents it."""


class ServiceApi:
    """One service at one address."""

    def __init__(
        self,
        name: str,
        base_url: str,
        http: HttpClient,
        *,
        setup_url: str | None,
        read_fault: ReadFault,
        trusted: bool = True,
    ) -> None:
        """`setup_url`: where a person gets a credential. `trusted`: the address is a setting, so it may be private."""
        self.name = name
        self.setup_url = setup_url
        self._base_url = base_url
        self._http = http
        self._read_fault = read_fault
        self._trusted = trusted

    async def send(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        changes: bool,
        seconds: float = REQUEST_SECONDS,
        max_bytes: int = 2_000_000,
        redirects: int = 0,
        **content: Any,
    ) -> HttpResponse:
        """The answer of the service, if it is a success. `changes`: the request may have an effect. `redirects`: none
        unless it is said: a credential goes to the address of the settings and to no other."""
        try:
            response = await self._http.request(
                method,
                self._base_url + path,
                headers={"Accept": "application/json", **headers},
                timeout=seconds,
                max_bytes=max_bytes,
                redirects=redirects,
                trusted=self._trusted,
                **content,
            )
        except (CallError, ToolError) as error:
            if not changes or isinstance(error, Denied) or not error.charged:
                raise
            raise self._unknown(error.message) from error
        if 200 <= response.status < 300:
            return response
        raise self._refusal(response, changes)

    def json(self, response: HttpResponse, kind: type[Any], *, changes: bool) -> Any:
        """The JSON of an answer, if it is an object or a list as expected."""
        try:
            read = response.json()
        except ToolError as error:
            raise self.unreadable(changes=changes) from error
        if not isinstance(read, kind):
            raise self.unreadable(changes=changes)
        return read

    def bearer(self, credential: str | None) -> dict[str, str]:
        """The header that carries a credential."""
        return {"Authorization": f"Bearer {self.checked(credential)}"}

    def checked(self, credential: str | None) -> str:
        """A credential that can stand in a header. The error does not show it."""
        if credential is None or CREDENTIAL.match(credential) is None:
            raise self._no_access(
                "MISSING_AUTH", f"The credential for {self.name} cannot be sent: it is empty or has spaces."
            )
        return credential

    # -- what went wrong

    def _refusal(self, response: HttpResponse, changes: bool) -> ToolError:
        status, fault = response.status, self._fault(response)
        details = {"status": status, "code": fault.code, "type": fault.kind, **fault.more}
        details = {name: value for name, value in details.items() if value is not None}
        words = f"{self.name} answered {status}" + (f": {fault.message}" if fault.message else ".")
        if status == 429:
            return self._rate_limited(response, words, details)
        if status == 401:
            return self._no_access("MISSING_AUTH", words, details)
        if status == 403:
            return self._no_access("PERMISSION_DENIED", words, details)
        if status >= 500 and changes:
            return self._unknown(words, details)
        if status >= 500 or status in NOT_PROCESSED:
            return ToolError(words, code="CONNECTION_ERROR", retryable=True, details=details, charged=False)
        if status >= 400:
            advice = "Correct the arguments and call again."
            return ToolError(words, code="INVALID_INPUT", details=details, suggestion=advice)
        if status >= 300:
            words = f"{self.name} answered with a redirect to another address, which is not followed."
            return ToolError(words, details=details, charged=False, suggestion="Correct the address in the settings.")
        return ToolError(words, details=details, charged=False)

    def _fault(self, response: HttpResponse) -> ServiceFault:
        try:
            fault = self._read_fault(response.json())
        except (ToolError, CallError):
            fault = ServiceFault(response.text() if response.media_type == "text/plain" else None)
        return fault._replace(message=told(fault.message), code=told(fault.code), kind=told(fault.kind))

    def _rate_limited(self, response: HttpResponse, words: str, details: dict[str, Any]) -> ToolError:
        wait = retry_after(response.headers)
        return ToolError(
            words, code="RATE_LIMITED", retryable=True, details={**details, "retry_after": wait}, charged=False,
            suggestion=f"Wait {wait:g} s.",
        )  # fmt: skip

    def _no_access(self, code: str, words: str, details: Mapping[str, Any] | None = None) -> ToolError:
        return ToolError(
            words, code=code, charged=False, details={**(details or {}), "setup_url": self.setup_url},
            suggestion="Set a credential that may do this" + (f"; get one at {self.setup_url}" if self.setup_url else "."),
        )  # fmt: skip

    def unreadable(self, *, changes: bool) -> ToolError:
        words = f"The answer of {self.name} cannot be read."
        return self._unknown(words) if changes else ToolError(words)

    def _unknown(self, words: str, details: Mapping[str, Any] | None = None) -> ToolError:
        return ToolError(
            f"Nobody knows whether {self.name} did it: {words}",
            code="OUTCOME_UNKNOWN",
            details=details,
            suggestion=f"Look at {self.name} before you call again.",
        )


async def is_accepted(check: Awaitable[None]) -> bool:
    """The answer of a service to a credential: True if a check of it passes, False if it is refused."""
    try:
        await check
    except ToolError as error:
        if error.code in ("MISSING_AUTH", "PERMISSION_DENIED"):
            return False
        raise
    return True


def seconds_for(time_limit: float, most: float = REQUEST_SECONDS) -> float:
    """The seconds that a request may take of the time that a tool has."""
    return max(LEAST_SECONDS, min(most, time_limit - MARGIN_SECONDS))
