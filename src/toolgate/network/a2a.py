"""A client of agents that speak A2A over JSON-RPC: protocol 1.0, and 0.3 where an agent's card names no newer one.

What an agent says is data: its card and answers are bounded and read with suspicion. A card can't send a message elsewhere:
the address that it names must be at the agent's own origin. https://a2a-protocol.org/v1.0.0/specification
"""

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import orjson

from toolgate.errors import Denied, InvalidInput, TimedOut, ToolError
from toolgate.jsontext import valid_text
from toolgate.network.http_client import HttpClient
from toolgate.network.http_response import HttpResponse
from toolgate.network.urls import Url, parse_url

CARD_PATH, OLD_CARD_PATH = "/.well-known/agent-card.json", "/.well-known/agent.json"
VERSION_HEADER = "A2A-Version"
CARD_SECONDS = 20.0
MAX_CARD_BYTES = 500_000
MAX_MESSAGE_BYTES = 2_000_000
MAX_REPLY_CHARS = 100_000
MAX_ID_CHARS = 200
MAX_WORDS = 500
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 5.0
MODES = ["text/plain", "application/json"]

AgentState = Literal[
    "completed", "working", "submitted", "input_required", "auth_required", "failed", "canceled", "rejected", "unknown"
]
STATES: tuple[AgentState, ...] = (
    "completed", "working", "submitted", "input_required", "auth_required", "failed", "canceled", "rejected",
)  # fmt: skip
UNDER_WAY: tuple[AgentState, ...] = ("working", "submitted", "unknown")


class AgentEndpoint(NamedTuple):
    """Where and how an agent is spoken to."""

    name: str
    url: str
    modern: bool
    """True: protocol 1.0; False: 0.3."""
    tenant: str | None
    trusted: bool
    caller: str
    """The tenant that talks to it."""


class AgentReply(NamedTuple):
    """What an agent answered: the state of its task, which is completed for a plain message."""

    text: str
    state: AgentState
    context_id: str | None
    task_id: str | None


class A2aClient:
    """Talks with agents: those that the operator named, and any at a public address."""

    def __init__(self, http: HttpClient, agents: Mapping[str, str]) -> None:
        """`agents`: by name, the URL of each that the operator named."""
        self._http = http
        self._named = {name: url.rstrip("/") for name, url in agents.items()}

    async def find(self, agent: str, headers: Mapping[str, str], caller: str, *, confidential: bool) -> AgentEndpoint:
        """Reads the card of an agent, which is named as in the settings or by its URL. Raises ToolError; or Denied, as for
        an unencrypted connection where what will be sent is confidential."""
        base = self._named.get(agent, agent).rstrip("/")
        for end in (CARD_PATH, OLD_CARD_PATH):
            base = base.removesuffix(end)
        trusted = base in self._named.values()
        home = parse_url(base)
        if confidential and home.scheme != "https" and not trusted and not self._http.is_allowed(base):
            raise Denied("SECURITY_VIOLATION", "Credentials are sent over https only.", suggestion="Use an https URL.")
        response = await self._card(base, {}, caller, trusted=trusted)
        if response.status in (401, 403) and headers:
            response = await self._card(base, headers, caller, trusted=trusted)
        if not response.is_success:
            raise ToolError(
                f"{home.host} has no agent card: it answered with status {response.status}.",
                suggestion="Check agent_url.",
                details={"status": response.status},
            )
        if parse_url(response.url).origin != home.origin:
            raise _elsewhere(home, "its agent card is")
        return _endpoint(response.json(), home, caller, trusted=trusted)

    async def send(
        self, agent: AgentEndpoint, message: str, headers: Mapping[str, str], *, context: str | None, task: str | None
    ) -> AgentReply:
        """Sends a message. The reply may be a task that is under way."""
        part: dict[str, Any] = {"text": message} if agent.modern else {"kind": "text", "text": message}
        sent: dict[str, Any] = {
            "messageId": str(uuid.uuid4()), "role": "ROLE_USER" if agent.modern else "user", "parts": [part],
        }  # fmt: skip
        sent |= {"contextId": context} if context else {}
        sent |= {"taskId": task} if task else {}
        configuration: dict[str, Any] = {"acceptedOutputModes": MODES}
        if agent.modern:
            configuration["returnImmediately"] = True
        else:
            sent["kind"], configuration["blocking"] = "message", False
        method = "SendMessage" if agent.modern else "message/send"
        return _reply(await self._ask(agent, method, {"message": sent, "configuration": configuration}, headers))

    async def wait(self, agent: AgentEndpoint, task: str, headers: Mapping[str, str], seconds: float) -> AgentReply:
        """The task when it has ended or needs something; after so many seconds, as it is."""
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE_SECONDS
        end, method = loop.time() + seconds, "GetTask" if agent.modern else "tasks/get"
        while True:
            try:
                reply = _reply(await self._ask(agent, method, {"id": task}, headers, end - loop.time()))
            except TimedOut:
                return AgentReply("", "working", None, task)
            if reply.state not in UNDER_WAY or loop.time() + pause >= end:
                return reply._replace(task_id=reply.task_id or task)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _card(self, base: str, headers: Mapping[str, str], caller: str, *, trusted: bool) -> HttpResponse:
        for path in (CARD_PATH, OLD_CARD_PATH):
            response = await self._http.request(
                "GET", f"{base}{path}", headers={"accept": "application/json", **headers}, timeout=CARD_SECONDS,
                max_bytes=MAX_CARD_BYTES, trusted=trusted, tenant=caller,
            )  # fmt: skip
            if response.status != 404:
                break
        return response

    async def _ask(
        self, agent: AgentEndpoint, method: str, params: dict[str, Any], headers: Mapping[str, str], seconds: float = 60.0
    ) -> Any:
        """The result of one JSON-RPC request."""
        if agent.tenant:
            params["tenant"] = agent.tenant
        id = str(uuid.uuid4())
        response = await self._http.request(
            "POST",
            agent.url,
            json={"jsonrpc": "2.0", "id": id, "method": method, "params": params},
            headers={"accept": "application/json", VERSION_HEADER: "1.0" if agent.modern else "0.3", **headers},
            timeout=max(seconds, 0.1),
            max_bytes=MAX_MESSAGE_BYTES,
            redirects=0,
            trusted=agent.trusted,
            tenant=agent.caller,
        )
        if response.status in (401, 403):
            raise ToolError(
                f"The agent {agent.name} wants a credential.", code="MISSING_AUTH",
                suggestion='Give authorization, such as "Bearer {{secret:NAME}}".',
            )  # fmt: skip
        if not response.is_success and response.media_type != "application/json":
            raise ToolError(f"The agent answered with status {response.status}.", retryable=response.status >= 500)
        answer = response.json()
        if not isinstance(answer, dict) or answer.get("id") != id or ("result" in answer) == ("error" in answer):
            raise ToolError("The agent did not answer as A2A says.")
        if "error" in answer:
            raise _failure(answer["error"])
        return answer["result"]


def _endpoint(card: Any, home: Url, caller: str, *, trusted: bool) -> AgentEndpoint:
    if not isinstance(card, dict):
        raise ToolError("The agent card is not a JSON object.")
    found = [one for one in _interfaces(card) if one[0] == "JSONRPC"]
    if not found:
        raise ToolError("The agent speaks no JSON-RPC, which is what a2a_chat speaks.")
    modern = [one for one in found if not one[1].startswith("0.")]
    _, version, url, tenant = (modern or found)[0]
    try:
        at = parse_url(url)
    except InvalidInput:
        raise ToolError("The agent card names no valid address.") from None
    if at.origin != home.origin:
        raise _elsewhere(home, "its agent card sends messages")
    name = card.get("name")
    shown = valid_text(name)[:80] if isinstance(name, str) and name else home.host
    return AgentEndpoint(shown, str(at), not version.startswith("0."), tenant, trusted, caller)


def _interfaces(card: dict[str, Any]) -> Iterator[tuple[str, str, str, str | None]]:
    """Binding, version, address and tenant of each interface; a card of 0.3 has its own at the top."""
    listed = card.get("supportedInterfaces")
    for one in listed[:20] if isinstance(listed, list) else ():
        if isinstance(one, dict) and isinstance(one.get("url"), str):
            tenant = one.get("tenant")
            yield (
                str(one.get("protocolBinding", "")).upper(), str(one.get("protocolVersion") or "1.0"), one["url"],
                tenant[:MAX_ID_CHARS] if isinstance(tenant, str) and tenant else None,
            )  # fmt: skip
    if not listed and isinstance(card.get("url"), str):
        yield str(card.get("preferredTransport") or "JSONRPC").upper(), "0.3", card["url"], None
        more = card.get("additionalInterfaces")
        for one in more[:20] if isinstance(more, list) else ():
            if isinstance(one, dict) and isinstance(one.get("url"), str):
                yield str(one.get("transport", "")).upper(), "0.3", one["url"], None


def _elsewhere(home: Url, what: str) -> Denied:
    return Denied(
        "SECURITY_VIOLATION",
        f"The agent at {home.host} is refused: {what} at another origin.",
        suggestion="Give the URL that the agent itself is at.",
    )


def _failure(error: Any) -> ToolError:
    message = error.get("message") if isinstance(error, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    words = valid_text(" ".join(message.split()))[:MAX_WORDS] if isinstance(message, str) else "it does not say what"
    return ToolError(f"The agent answered with an error: {words}", details={"code": code} if isinstance(code, int) else None)


def _reply(result: Any) -> AgentReply:
    """A message or a task, of either protocol."""
    if not isinstance(result, dict):
        raise ToolError("The agent did not answer as A2A says.")
    message = result.get("message") if "message" in result else result if result.get("kind") == "message" else None
    if isinstance(message, dict):
        return AgentReply(_text([message]), "completed", _id(message.get("contextId")), _id(message.get("taskId")))
    inner = result.get("task")
    task = inner if isinstance(inner, dict) else result
    status = task.get("status")
    if not isinstance(status, dict) or _id(task.get("id")) is None:
        raise ToolError("The agent did not answer as A2A says.")
    said = str(status.get("state", "")).lower().removeprefix("task_state_").replace("-", "_")
    state: AgentState = next((known for known in STATES if known == said), "unknown")
    artifacts = task.get("artifacts")
    text = _text(artifacts if isinstance(artifacts, list) else []) or _text([status.get("message")])
    return AgentReply(text, state, _id(task.get("contextId")), _id(task.get("id")))


def _id(value: Any) -> str | None:
    return valid_text(value) if isinstance(value, str) and 0 < len(value) <= MAX_ID_CHARS else None


def _text(holders: list[Any]) -> str:
    """The parts of messages or artifacts as text: of files, their names and addresses."""
    shown: list[str] = []
    for holder in holders:
        parts = holder.get("parts") if isinstance(holder, dict) else None
        shown += [_part(part) for part in (parts if isinstance(parts, list) else ()) if isinstance(part, dict)]
    return valid_text("\n".join(filter(None, shown)))[:MAX_REPLY_CHARS]


def _part(part: dict[str, Any]) -> str:
    if isinstance(part.get("text"), str):
        return str(part["text"])
    if part.get("data") is not None:
        return orjson.dumps(part["data"]).decode()
    file = part["file"] if isinstance(part.get("file"), dict) else part
    named = (file.get(key) for key in ("filename", "name", "mediaType", "mimeType", "url", "uri"))
    words = [word[:MAX_WORDS] for word in named if isinstance(word, str) and word]
    return f"[file: {' '.join(words)}]" if words else ""
