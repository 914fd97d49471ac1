"""A real OPA server, over HTTP on connections that are kept open.

Only `{"result": {"allow": true}}` of the rule `decision`, or where that is undefined `{"result": true}` of `allow`, allows.
Whatever else comes back, or does not, denies with that as the reason; asking never raises.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlsplit

import orjson

from toolgate.extras import require
from toolgate.gates.policy.documents import Documents, PolicyError
from toolgate.gates.policy.engine import EVERYTHING, NOT_JSON, InputsRead, PolicyQuestion, PolicyVerdict, plain, understood
from toolgate.gates.policy.input_references import looks_elsewhere, what_is_read
from toolgate.model import Decision

if TYPE_CHECKING:
    import aiohttp

POLICY_PATH = "/v1/data/soma/policy"
MAX_ANSWER_BYTES = 8_000_000
BATCH = 1_000
"""Tools that are asked about in one request."""
OPA_CONNECTIONS = 32

logger = logging.getLogger("toolgate.policy")


class OpaFailed(Exception):
    """The server gave no answer that can be used; says why, in the words of a decision's reason."""


class OpaServer:
    """The policy, its data and its decisions are the server's; what Toolgate knows is sent to it by `push`."""

    remote: Literal[True] = True

    def __init__(self, url: str, seconds: float = 2.0, *, token: str | None = None) -> None:
        self.url = _root(url)
        self.hash = sha256(f"opa:{self.url}".encode()).hexdigest()
        self.reads: InputsRead = EVERYTHING
        """Until the policy was pushed, nobody here knows what the server's looks at."""
        self._seconds = seconds
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        self._session: aiohttp.ClientSession | None = None
        self._one_push = asyncio.Lock()
        self._pushes = 0
        self._unpushed: str | None = None
        """The reason why what the server has is not what it should have."""
        require("opa")

    async def ask(self, question: PolicyQuestion) -> PolicyVerdict:
        """The server's decision. One that was made while the server was given something new is not to be relied on."""
        pushes = -1 if self._one_push.locked() else self._pushes
        try:
            if self._unpushed is not None:
                raise OpaFailed(self._unpushed)
            asked = _body(question.input(self.reads))
            answer = await self._post("decision", asked)
            if "result" in answer:
                decision = understood(answer["result"])
                if decision is None:
                    raise OpaFailed("the OPA server's decision is not {allow, reason}")
                return PolicyVerdict(decision, sure=pushes == self._pushes)
            answer = await self._post("allow", asked)
            if "result" not in answer:
                raise OpaFailed("the OPA server has no policy soma.policy that answers")
            if not isinstance(answer["result"], bool):
                raise OpaFailed("the OPA server's answer is neither true nor false")
            return PolicyVerdict(plain(answer["result"]), sure=pushes == self._pushes)
        except OpaFailed as error:
            return PolicyVerdict(Decision(False, str(error)), sure=False)

    async def ask_many(self, question: PolicyQuestion, tools: Sequence[str]) -> list[str] | None:
        """Those of the tools for which the action is allowed, by the batch rule `permitted`; None if there is no such rule.
        None of them where the server does not answer."""
        allowed: set[str] = set()
        try:
            if self._unpushed is not None:
                raise OpaFailed(self._unpushed)
            for start in range(0, len(tools), BATCH):
                batch = tools[start : start + BATCH]
                answer = await self._post("permitted", _body(question.input(self.reads, resources=batch)))
                if "result" not in answer:
                    return None
                result = answer["result"]
                if not isinstance(result, list) or not all(isinstance(name, str) for name in result):
                    raise OpaFailed("the OPA server's list of permitted tools is malformed")
                allowed.update(result)
        except OpaFailed as error:
            logger.warning("no tool is listed: %s", error)
            return []
        return [tool for tool in tools if tool in allowed]

    @property
    def is_ready(self) -> bool:
        return self._unpushed is None

    async def push(self, text: str, documents: Documents) -> None:
        """Make the server decide by this policy on these documents. Raises PolicyError if it does not take them all; then it
        is asked no more until a push succeeds, since nobody knows what it would decide by."""
        async with self._one_push:
            self._pushes += 1
            try:
                for name, document in documents.items():
                    await self._put(f"/v1/data/{quote(name, safe='')}", orjson.dumps(document))
                await self._put("/v1/policies/toolgate", text.encode(), {"Content-Type": "text/plain"})
            except OpaFailed as error:
                self._unpushed = f"the OPA server did not take policy and data: {error}"
                raise PolicyError(f"The policy could not be pushed: {error}.") from None
            except BaseException:
                self._unpushed = "the OPA server was not given policy and data to the end"
                raise
            self.hash = sha256(f"opa:{self.url}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()
            self.reads = EVERYTHING if looks_elsewhere(text) else what_is_read(text)
            self._unpushed = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    # -- HTTP

    async def _post(self, rule: str, body: bytes) -> dict[str, Any]:
        text = await self._send("POST", f"{POLICY_PATH}/{rule}", body, {200})
        try:
            answer = orjson.loads(text)
        except orjson.JSONDecodeError:
            raise OpaFailed("the OPA server's answer is not JSON") from None
        if not isinstance(answer, dict):
            raise OpaFailed("the OPA server's answer is not an object")
        return answer

    async def _put(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        await self._send("PUT", path, body, {200, 201, 204, 304}, headers)

    async def _send(
        self, method: str, path: str, body: bytes, fine: set[int], headers: Mapping[str, str] | None = None
    ) -> bytes:
        import aiohttp

        try:
            async with self._open().request(
                method, self.url + path, data=body, headers=headers, allow_redirects=False
            ) as response:
                if response.status not in fine:
                    raise OpaFailed(f"the OPA server answered with status {response.status}")
                return await _read(response)
        except TimeoutError:
            raise OpaFailed(f"the OPA server did not answer within {self._seconds:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise OpaFailed(f"the OPA server cannot be reached ({type(error).__name__})") from None

    def _open(self) -> "aiohttp.ClientSession":
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=self._seconds),
                connector=aiohttp.TCPConnector(limit=OPA_CONNECTIONS),
            )
        return self._session


async def _read(response: "aiohttp.ClientResponse") -> bytes:
    text = b""
    async for piece in response.content.iter_chunked(65_536):
        text += piece
        if len(text) > MAX_ANSWER_BYTES:
            raise OpaFailed("the OPA server's answer is too long")
    return text


def _body(asked: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps({"input": asked})
    except (TypeError, RecursionError):
        raise OpaFailed(NOT_JSON) from None


def _root(url: str) -> str:
    """The server's address, also if it is given as that of the policy or of its rule `allow`."""
    root = url.rstrip("/").removesuffix("/allow").removesuffix(POLICY_PATH).rstrip("/")
    try:
        parts = urlsplit(root)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise PolicyError("The OPA server's URL must be like http://127.0.0.1:8181.")
    return root
