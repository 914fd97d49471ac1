"""The calls that an agent framework makes: through an App in this process, or through a client of a Toolgate server.

A framework that pauses for a person makes the same call again when it goes on, perhaps in another process. The call is found
again by its request id, which is made of the framework's own id for it: the record of the first attempt names the approval
that it waits for, and its idempotency key. With that key, a call that somebody else ran meanwhile (“Run it now”) gives what
came of it.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from toolgate.app.app import App
from toolgate.errors import ToolgateError
from toolgate.mcp.server.results import ProtocolError, call_result
from toolgate.model import CALL_TOOL, LOCAL, Actor, Outcome
from toolgate.serve.http.invocations import CallSummary, summary_of
from toolgate.store.log_pages import CallFilter

if TYPE_CHECKING:
    from toolgate.client import AsyncClient

Arguments = Mapping[str, Any] | str
MAX_ATTEMPTS = 20
"""Earlier attempts of one call that are looked at for the approval that the last of them waits for."""


class ToolForModels(NamedTuple):
    """A tool as a model is told of it."""

    name: str
    description: str
    schema: dict[str, Any]
    is_read_only: bool


class WaitingCall(NamedTuple):
    """A call that was made before and waits for a person, or did."""

    approval: str
    key: str | None


class HostCalls:
    """The calls of one actor, in one session."""

    def __init__(self, app: "App | AsyncClient", actor: Actor | None, session: str | None) -> None:
        self._app = app
        self._actor = actor or LOCAL
        self._session = session
        if isinstance(app, App):
            return
        if not iscoroutinefunction(getattr(app, "invoke", None)):
            raise TypeError(f"app must be an App or an AsyncClient, not a {type(app).__name__}.")
        if actor is not None:
            raise ValueError("The key of a client says who calls: give no actor with it.")

    async def tools(self) -> list[ToolForModels]:
        """Gives the tools that the actor may see now."""
        app = self._app
        found = await (app.tools.export("mcp", self._actor) if isinstance(app, App) else app.tools.export("mcp"))
        return [
            ToolForModels(one["name"], one["description"], one["inputSchema"], one["annotations"]["readOnlyHint"])
            for one in found
        ]

    def id_of(self, tool: str, arguments: Any, *host: str | None) -> str:
        """Gives the id of a call, the same whenever it is made again: `host` are the framework's own ids for it."""
        actor = self._actor
        whose = (actor.tenant, actor.persona, actor.user, self._session)
        parts = json.dumps((host, whose, tool, arguments), sort_keys=True, default=str)
        return f"{host[0]}-{sha256(parts.encode()).hexdigest()[:40]}"

    async def asks(self, tool: str, arguments: Arguments) -> bool:
        """Tells whether a person would be asked about a call. What comes of it otherwise, the call itself tells."""
        app, (tool, arguments) = self._app, _called(tool, arguments)
        try:
            if isinstance(app, App):
                said = await app.explain(tool, arguments, actor=self._actor, session=self._session)
            else:
                said = await app.explain(tool, arguments, session=self._session)
        except ToolgateError:  # a server's answer where the tool is gone, or the arguments are no object
            return False
        return said.verdict == "ask"

    async def waiting(self, tool: str, id: str) -> WaitingCall | None:
        """Gives the approval that the last attempt of a call waits for; None: there was none, or it did not wait."""
        for call in await self._attempts(tool, id):
            if call.pending is not None and call.pending.kind == "approval":
                return WaitingCall(call.pending.id, call.idempotency_key)
        return None

    async def is_answered(self, approval: str) -> bool:
        """Tells whether a question is over: answered, used or expired."""
        app = self._app
        if isinstance(app, App):
            return await app.approvals.state(approval, self._actor.tenant) != "waiting"
        return (await app.approvals.get(approval)).state != "waiting"

    async def _attempts(self, tool: str, id: str) -> list[CallSummary]:
        """The earlier attempts of a call, newest first."""
        app, actor = self._app, self._actor
        if not isinstance(app, App):
            return await app.audit.calls(tool=tool, request_id=id, limit=MAX_ATTEMPTS)
        wanted = CallFilter(tenant=actor.tenant, user=actor.user, tool=tool, request_id=id)
        return [summary_of(*row) for row in (await app.audit.calls(wanted, limit=MAX_ATTEMPTS)).rows]

    async def call(
        self, tool: str, arguments: Arguments, id: str, waiting: WaitingCall | None = None, *, key: str | None = None
    ) -> Outcome:
        """Makes a call, or goes on with one that waits. `key`: it has its effect once for this key."""
        approval = None
        if waiting is not None:
            approval, key = waiting
        elif key is None and await self.asks(tool, arguments):
            key = f"{id[:40]}-{uuid4().hex}"
        app = self._app
        if isinstance(app, App):
            return await app.invoke(
                tool, arguments, actor=self._actor, session=self._session, request_id=id, approval=approval,
                idempotency_key=key,
            )  # fmt: skip
        return await app.invoke(
            tool, arguments, session=self._session, request_id=id, approval=approval, idempotency_key=key
        )


def _called(tool: str, arguments: Arguments) -> tuple[str, Arguments]:
    """The tool that a call is about: that of `call_tool` is the one that it calls."""
    if tool != CALL_TOOL:
        return tool, arguments
    try:
        given = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return tool, arguments
    name, inner = (given.get("name"), given.get("arguments")) if isinstance(given, Mapping) else (None, None)
    return (name, inner) if isinstance(name, str) and isinstance(inner, Mapping) else (tool, arguments)


def approval_of(outcome: Outcome) -> str | None:
    """Gives the approval that a call waits for; None: it waits for none."""
    return outcome.pending.id if outcome.pending is not None and outcome.pending.kind == "approval" else None


def content_of(outcome: Outcome) -> list[dict[str, Any]]:
    """Gives what a model is told of a call, as MCP's parts of content: the output, or the error and what to do about it."""
    try:
        parts: list[dict[str, Any]] = call_result(outcome, None)["content"]
    except ProtocolError as error:  # no such tool, or an error of the tool's own server
        advice = outcome.error.suggestion if outcome.error is not None else None
        parts = [{"type": "text", "text": "\n".join(filter(None, (error.message, advice)))}]
    return parts


def text_of(outcome: Outcome) -> str:
    """Gives what a model is told of a call, as text. Of pictures and sound it is told that they are there."""
    return "\n".join(map(_text_of_part, content_of(outcome)))


def _text_of_part(part: Mapping[str, Any]) -> str:
    kind = part["type"]
    if kind == "text":
        return str(part["text"])
    if kind == "resource_link":
        return " ".join(str(part[name]) for name in ("title", "uri", "description") if part.get(name))
    held = part.get("resource") or part
    return str(held["text"]) if "text" in held else f"[{held.get('mimeType') or kind}: not shown here]"
