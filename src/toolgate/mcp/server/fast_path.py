"""Answers the hot requests of protocol 2026-07-28, tools/call and tools/list, without the SDK's layers.

The SDK takes some 0.8 ms of a core for a call over HTTP; most of that goes to pydantic models, task groups and streams that
a plain request does not need. This takes a request only if it is sure of it: the headers as the protocol wants them, a body
with nothing but a tool's name, its arguments and a `_meta` that the SDK's own models accept. All others go to the SDK,
errors too; but a call that was made is answered here, whatever came of it: the SDK would make it twice. Both paths share
`results`.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec
import orjson

from toolgate.errors import Failed
from toolgate.mcp.server.identity import REQUEST_ID_KEY, Credential
from toolgate.mcp.server.request_state import seal_retry
from toolgate.mcp.server.results import ProtocolError, call_result, list_page
from toolgate.mcp.server.trace_context import TRACE_MARK, trace_context
from toolgate.model import CALL_TOOL, Actor, Entry, Tool
from toolgate.version import VERSION

if TYPE_CHECKING:
    from starlette.types import Scope, Send

    from toolgate.app.app import App

T = TypeVar("T")
PROTOCOL_VERSION = "2026-07-28"
VERSION_KEY, CAPABILITIES_KEY, INFO_KEY, SERVER_KEY = (
    f"io.modelcontextprotocol/{name}" for name in ("protocolVersion", "clientCapabilities", "clientInfo", "serverInfo")
)
HEADER_ARGUMENT_MARK = b'"x-mcp-header"'
"""In a schema: an argument that must be in a header as well."""
CLIENT_REQUEST_CAPABILITIES = frozenset({"elicitation", "sampling", "roots"})
"""Capabilities of a client that can be asked during a call."""
MAX_CACHED = 1_000
MAX_CACHED_PAGE_BYTES = 32 * 1024 * 1024
MAX_META_BYTES = 4_096
MAX_ACCEPT_BYTES = 256
MAX_NUMERIC_ID = 2**53
SERVER_INFO = {"name": "toolgate", "title": "Toolgate", "version": VERSION}
CALL_KEY = "toolgate.call"
"""In a request's scope: the task to cancel should the client disconnect (`serve.http_server`)."""
GONE_KEY = "toolgate.gone"
"""In a request's scope: True once the client has disconnected."""
REPLY_KEY = "toolgate.reply"
"""In a request's scope: a function that writes a whole response at once, given status and body; False: it could not."""


def cancel_with_connection(scope: "Scope") -> None:
    """Has the current task cancelled when the client disconnects; at once, if it did so while the request was looked at."""
    if scope.get(GONE_KEY):
        raise asyncio.CancelledError
    scope[CALL_KEY] = asyncio.current_task()


class CallParams(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The parameters of a plain tools/call. Anything else (a task, answers, a state) is not plain."""

    name: str
    meta: msgspec.Raw = msgspec.field(name="_meta")
    arguments: dict[str, Any] | None = None


class ListParams(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    meta: msgspec.Raw = msgspec.field(name="_meta")
    cursor: str | None = None


class PlainRequest(msgspec.Struct, forbid_unknown_fields=True, gc=False, tag_field="method"):
    jsonrpc: str
    id: int | str


class CallRequest(PlainRequest, tag="tools/call"):
    params: CallParams


class ListRequest(PlainRequest, tag="tools/list"):
    params: ListParams


class PlainCaller:
    """A `model.Caller` that receives nothing while its call runs: it sent no progress token and no log level. One for each
    call: the state for the next round is this call's alone."""

    input_responses: Mapping[str, Any] | None = None
    request_state: str | None = None
    log_level: str | None = None
    trace_context: Mapping[str, str] | None = None
    can_come_again = True

    def __init__(self, capabilities: Mapping[str, Any]) -> None:
        self.capabilities = capabilities
        self.reminder: str | None = None
        self.wanted: Mapping[str, Any] = {}

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        pass

    async def log(self, level: str, data: Any, logger: str | None = None) -> None:
        pass

    async def ask(self, method: str, params: Mapping[str, Any]) -> NoReturn:  # noqa: ARG002 - it can't be asked
        raise Failed("MCP_ERROR", f"The calling client does not support {method:.40}.")

    def remind(self, state: str | None, requests: Mapping[str, Any]) -> None:
        self.reminder, self.wanted = state, requests

    def goes_on(self) -> None:
        """It waits all the same: it does not have the tasks extension."""


class FastPath:
    def __init__(self, app: "App") -> None:
        self._app = app
        self.ready = False
        """True once the SDK is loaded: its models are asked."""
        self._calls = msgspec.json.Decoder(CallRequest)
        self._lists = msgspec.json.Decoder(ListRequest)
        self._callers: dict[bytes, Mapping[str, Any] | None] = {}
        """By the bytes of `_meta`, which a client repeats: its capabilities, or None for the SDK's path."""
        self._accepts: set[bytes] = set()
        self._headed: dict[str, bool] = {}
        """By the fingerprint of a tool, whether some of its arguments must be in headers."""
        self._listed = ListPageCache()
        self._is_traced = app.settings.tracing or app.settings.otlp_url is not None

    async def serve(
        self, scope: "Scope", headers: Mapping[bytes, bytes], body: bytes, credential: Credential, send: "Send"
    ) -> bool:
        if headers.get(b"mcp-protocol-version") != b"2026-07-28" or not self._is_accepted(headers.get(b"accept", b"")):
            return False
        at_once = None if b"origin" in headers else scope.get(REPLY_KEY)  # a page's script must be told more
        reply = _FastReply(send, at_once)
        method = headers.get(b"mcp-method")
        if method == b"tools/call":
            call = _read(self._calls, body)
            return call is not None and await self._call(scope, headers, call, credential, reply)
        if method == b"tools/list":
            listing = _read(self._lists, body)
            return listing is not None and await self._list(listing, credential, reply)
        return False

    # -- tools/call

    async def _call(
        self,
        scope: "Scope",
        headers: Mapping[bytes, bytes],
        request: CallRequest,
        credential: Credential,
        reply: "_FastReply",
    ) -> bool:
        params = request.params
        meta = bytes(params.meta)
        if self._is_traced and TRACE_MARK in meta:
            return False  # each call has another: they would fill the cache of `_meta`
        capabilities = self._capabilities(meta)
        if capabilities is None or not _is_plain_id(request) or headers.get(b"mcp-name") != params.name.encode():
            return False
        entry = await self._app.tools.visible(params.name, credential.actor)
        if entry is None or not self._is_plain_tool(entry, capabilities) or self._may_ask(credential, capabilities):
            return False  # a hidden tool takes the SDK's path like a missing one
        caller, arguments = PlainCaller(capabilities), {} if params.arguments is None else params.arguments
        if self._is_traced and b"traceparent" in headers:
            caller.trace_context = trace_context(scope["headers"], {})
        cancel_with_connection(scope)
        outcome = await self._app.invoke(
            entry.name, arguments, actor=credential.actor, request_id=scope.get(REQUEST_ID_KEY), door="mcp", caller=caller
        )
        del scope[CALL_KEY]
        # From here on it has been made, and is answered in any case.
        if outcome.pending is not None and outcome.pending.kind == "input" and not caller.wanted:
            asked = {"name": params.name, "arguments": arguments}
            result = await seal_retry(self._app, caller.reminder, asked, PROTOCOL_VERSION, credential)
        else:
            try:
                result = {**call_result(outcome, entry), "resultType": "complete"}
            except ProtocolError as error:
                await reply.refuse(request.id, error)
                return True
        result["_meta"] = {**result.get("_meta", {}), SERVER_KEY: SERVER_INFO}
        await reply(orjson.dumps({"jsonrpc": "2.0", "id": request.id, "result": result}))
        return True

    def _may_ask(self, credential: Credential, capabilities: Mapping[str, Any]) -> bool:
        """True if a person could be asked for approval: only the SDK's path does that."""
        return credential.may_approve and "elicitation" in capabilities and self._app.settings.mcp.approval_seconds > 0

    def _is_plain_tool(self, entry: Entry, capabilities: Mapping[str, Any]) -> bool:
        """True if nobody can have to be asked, and no argument has to be in a header."""
        may_ask_client = entry.kind == "mcp" or entry.name == CALL_TOOL  # which calls one of a server, perhaps
        if entry.riskiest.asks is not None or (may_ask_client and capabilities):
            return False
        headed = self._headed.get(entry.fingerprint)
        if headed is None:
            headed = HEADER_ARGUMENT_MARK in orjson.dumps(entry.tool.input_schema)
            if len(self._headed) >= MAX_CACHED:
                self._headed.clear()
            self._headed[entry.fingerprint] = headed
        return not headed

    # -- tools/list

    async def _list(self, request: ListRequest, credential: Credential, reply: "_FastReply") -> bool:
        params = request.params
        if self._capabilities(bytes(params.meta)) is None or not _is_plain_id(request):
            return False
        actor, cursor = credential.actor, params.cursor
        served = (await self._app.tools.served(actor)).tools
        body = self._listed.find(actor, served, cursor)
        if body is None:
            try:
                page = await list_page(self._app, actor, cursor)
            except ProtocolError as error:
                await reply.refuse(request.id, error)
                return True
            passing = "_meta" in page  # what is missing just now
            page["_meta"] = {**page.get("_meta", {}), SERVER_KEY: SERVER_INFO}
            page["resultType"] = "complete"
            body = orjson.dumps(page)
            if not passing:
                self._listed.keep(actor, served, cursor, body, page.get("nextCursor"))
        await reply(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (orjson.dumps(request.id), body))
        return True

    # -- what is common

    def _is_accepted(self, accept: bytes) -> bool:
        """True if a client surely accepts JSON and event streams; unusual spellings are left to the SDK."""
        if accept in self._accepts:
            return True
        kinds = {kind.strip() for kind in accept.split(b",")}
        if not {b"application/json", b"text/event-stream"} <= kinds:
            return False
        if len(accept) <= MAX_ACCEPT_BYTES and len(self._accepts) < MAX_CACHED:
            self._accepts.add(accept)
        return True

    def _capabilities(self, meta: bytes) -> Mapping[str, Any] | None:
        """The capabilities in a `_meta` that has nothing that needs the SDK, and that the SDK would accept. Cached."""
        if meta in self._callers:
            return self._callers[meta]
        if len(meta) > MAX_META_BYTES or not self.ready:
            return None
        if len(self._callers) >= MAX_CACHED:
            self._callers.clear()
        capabilities = self._callers[meta] = _plain_capabilities(meta)
        return capabilities


class ListPageCache:
    """Pages of tools/list as they were sent, by actor, while what the actor's model is listed is the same.

    Callers can't choose what is cached: the first page, and those that a cached page leads to. A made-up cursor is answered,
    and not cached.
    """

    def __init__(self) -> None:
        self._actors: dict[Actor, tuple[tuple[Tool, ...], dict[str | None, bytes]]] = {}
        """The very tuple that the App gave (another one means that something changed), and the pages by cursor: empty, if
        the cursor was given out and its page not asked for yet."""
        self.size = 0

    def find(self, actor: Actor, served: tuple[Tool, ...], cursor: str | None) -> bytes | None:
        known = self._actors.get(actor)
        return (known[1].get(cursor) or None) if known is not None and known[0] is served else None

    def keep(self, actor: Actor, served: tuple[Tool, ...], cursor: str | None, body: bytes, following: str | None) -> None:
        """Caches a page with the cursor of the next one, if its own cursor was given out."""
        known = self._actors.get(actor)
        if known is None or known[0] is not served:
            self.size -= 0 if known is None else sum(map(len, known[1].values()))
            known = self._actors[actor] = served, {None: b""}
        pages = known[1]
        if pages.get(cursor) != b"":
            return
        pages[cursor] = body
        if following is not None:
            pages.setdefault(following, b"")
        self.size += len(body)
        if self.size > MAX_CACHED_PAGE_BYTES or len(self._actors) > MAX_CACHED:
            self._actors.clear()
            self.size = 0


def _read(decoder: msgspec.json.Decoder[T], body: bytes) -> T | None:
    """None for a body that is not plain; the SDK says what is wrong with it."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def _plain_capabilities(raw: bytes) -> Mapping[str, Any] | None:
    from mcp_types import methods
    from pydantic import ValidationError

    try:
        meta = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    required = {VERSION_KEY, CAPABILITIES_KEY}
    if not isinstance(meta, dict) or not required <= meta.keys() <= required | {INFO_KEY}:
        return None
    capabilities = meta[CAPABILITIES_KEY]
    if meta[VERSION_KEY] != PROTOCOL_VERSION or not isinstance(capabilities, dict) or "extensions" in capabilities:
        return None
    try:
        methods.validate_client_request("tools/call", PROTOCOL_VERSION, {"name": "any", "_meta": meta})
        methods.validate_client_request("tools/list", PROTOCOL_VERSION, {"_meta": meta})
    except ValidationError:
        return None
    return {name: capabilities[name] for name in sorted(CLIENT_REQUEST_CAPABILITIES & capabilities.keys())}


def _is_plain_id(request: PlainRequest) -> bool:
    """True for a valid envelope; numbers that not every program can read are left to the SDK."""
    id = request.id
    return request.jsonrpc == "2.0" and (type(id) is str or -MAX_NUMERIC_ID < id < MAX_NUMERIC_ID)  # type: ignore[operator]


class _FastReply:
    """Sends a response: at once where the HTTP server can."""

    __slots__ = ("_at_once", "_send")

    def __init__(self, send: "Send", at_once: Callable[[int, bytes], bool] | None) -> None:
        self._send, self._at_once = send, at_once

    async def __call__(self, body: bytes, status: int = 200) -> None:
        if self._at_once is None or not self._at_once(status, body):
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
            await self._send({"type": "http.response.body", "body": body})

    async def refuse(self, id: int | str, error: ProtocolError) -> None:
        """Sends a protocol error, with the SDK's HTTP status for it."""
        from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS

        body = orjson.dumps({"jsonrpc": "2.0", "id": id, "error": error.to_dict()})
        await self(body, ERROR_CODE_HTTP_STATUS.get(error.code, 200))
