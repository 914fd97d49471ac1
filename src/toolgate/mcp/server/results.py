"""Turns tools into list entries, and outcomes of calls into MCP results.

Plain JSON values, and nothing of the SDK: the fast path and the SDK's path both use these functions, so that there is one
way from an outcome to a result. What a client may do about a result is in its text, for a model, and under `_meta`, for a
program (`toolgate/…`).
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import orjson
from jsonschema_rs import validator_for

from toolgate.errors import printable
from toolgate.gates.outputs import CUT
from toolgate.mcp.method_tools import METHOD_TAG
from toolgate.mcp.runner import parts
from toolgate.model import NANO, Actor, Entry, Outcome, Validator
from toolgate.registry.export import has_object_output, mcp_definition

if TYPE_CHECKING:
    from toolgate.app.app import App

JsonObject = dict[str, Any]
ARTIFACT_SCHEME = "toolgate://artifacts/"
"""The URIs of whole outputs that were too long for a result."""
CALL_META, ERROR_META, TOOL_META = "toolgate/call", "toolgate/error", "toolgate/tool"
APPROVAL_META, JOB_META = "toolgate/approval", "toolgate/job"
"""Keys in `_meta`: the id of the call, its error, facts on a tool; the approval that a call has, or waits for; and the job
that it was queued as."""
MISSING_META = "toolgate/missing"
"""In a list: servers whose part is missing, or can't be called now, and why."""
UNREACHABLE_REASON = "it is unreachable"
INVALID_REQUEST, INVALID_PARAMS, INTERNAL_ERROR = -32600, -32602, -32603
FORWARDED_ERROR_CODES = frozenset({-32021, -32042})
"""Protocol errors of a tool's server that clients act upon: a missing capability, a URL to be visited."""
REQUIRED_PART_FIELDS = {"text": ("text",), "image": ("data", "mimeType"), "audio": ("data", "mimeType")}
"""Fields that parts of content must have, all of them text."""
NULLABLE_STRING = {"type": ["string", "null"]}
ICON_SCHEMA = {
    "type": "object",
    "properties": {
        "src": {"type": "string"},
        "mimeType": NULLABLE_STRING,
        "sizes": {"type": ["array", "null"], "items": {"type": "string"}},
        "theme": {"enum": ["light", "dark", None]},
    },
    "required": ["src"],
}
ANNOTATIONS_VALIDATOR: Validator = validator_for(
    {
        "type": "object",
        "properties": {
            "audience": {"type": ["array", "null"], "items": {"enum": ["user", "assistant"]}},
            "priority": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
            "lastModified": NULLABLE_STRING,
        },
    }
)
LINK_VALIDATOR: Validator = validator_for(
    {
        "properties": {
            **dict.fromkeys(("title", "description", "mimeType"), NULLABLE_STRING),
            "size": {"type": ["integer", "null"]},
            "icons": {"type": ["array", "null"], "items": ICON_SCHEMA},
        }
    }
)
"""Their optional fields."""
MAX_CURSOR_CHARS = 128
CODES_WITHOUT_PREFIX = frozenset({"MCP_ERROR", "INVOCATION_ERROR"})
"""Codes that add nothing to the tool's own message."""


class ProtocolError(Exception):
    """A request that can't be answered with a result."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data

    def to_dict(self) -> JsonObject:
        told: JsonObject = {"code": self.code, "message": self.message}
        return told if self.data is None else {**told, "data": self.data}


# -- the list of tools


async def list_page(app: "App", actor: Actor, cursor: str | None) -> JsonObject:
    """One page of the tools that an actor's model is listed, by name. The next one begins after the last name of this one,
    so that what is added or removed meanwhile shifts nothing."""
    served, most = (await app.tools.served(actor)).tools, app.settings.mcp.page
    start = 0 if cursor is None else bisect_right(served, decode_cursor(cursor), key=attrgetter("name"))
    tools = (tool for tool in islice(served, start, None) if METHOD_TAG not in tool.tags)
    page = list(islice(tools, most + 1))
    listed: JsonObject = {
        "tools": [_definition(app.tools.get(tool.name, actor)) for tool in page[:most]],
        "ttlMs": int(app.settings.mcp.list_seconds * 1000),
        "cacheScope": "private",
    }
    if len(page) > most:
        listed["nextCursor"] = encode_cursor(page[most - 1].name)
    if down := app.servers.unreachable:
        seen = {tool.target for tool in await app.tools.list(actor, "mcp")}
        # Without the cause, which is for operators: a server's stderr may be about another tenant's call.
        if missing := {server: UNREACHABLE_REASON for server in sorted(down) if f"mcp:{server}" in seen}:
            listed["_meta"] = {MISSING_META: missing}
    return listed


def encode_cursor(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode()


def decode_cursor(cursor: str) -> str:
    try:
        name = urlsafe_b64decode(cursor.encode("ascii")).decode() if len(cursor) <= MAX_CURSOR_CHARS else ""
    except ValueError:
        name = ""
    if not name or encode_cursor(name) != cursor:  # the decoder lets much pass
        raise ProtocolError(INVALID_PARAMS, "Invalid cursor")
    return name


def _definition(entry: Entry) -> JsonObject:
    """A tool as tools/list has it, with facts that MCP has no field for."""
    told, entry = mcp_definition(entry), entry.riskiest
    told["annotations"]["idempotentHint"] = entry.tier == "read_only"
    facts: JsonObject = {"tier": entry.tier, "category": entry.tool.category, "version": entry.tool.version}
    if entry.priced:
        facts["cost_usd"] = max(entry.fixed_nano, entry.capability_nano) / NANO
    if entry.asks is not None:
        facts["asks"] = entry.asks
    if entry.background:
        facts["background"] = True
    if entry.tool.errors:
        facts["errors"] = [error.model_dump() for error in entry.tool.errors]
    return {**told, "_meta": {TOOL_META: facts}}


# -- the result of a call


def call_result(outcome: Outcome, entry: Entry | None) -> JsonObject:
    """The outcome as a CallToolResult. A tool that the actor does not have is a protocol error."""
    if outcome.status == "success":
        return _success(outcome, entry)
    if outcome.pending is not None:
        return pending_result(outcome)
    return _failure(outcome)


def _success(outcome: Outcome, entry: Entry | None) -> JsonObject:
    output = outcome.output
    content = parts(output)
    if content is not None and all(map(_is_sound, content)):
        structured = output.get("structuredContent")
    else:
        structured = output
        content = [_text(output if isinstance(output, str) else orjson.dumps(output).decode())]
    told: JsonObject = {"content": content, "_meta": {CALL_META: outcome.id}}
    if isinstance(structured, dict):
        told["structuredContent"] = structured
    if outcome.artifact is not None:
        told["content"] = [*map(_whole_part, content), _link(outcome)]
        _keep_promise(told, entry)
    return told


def _is_sound(part: JsonObject) -> bool:
    """True if a part of content is valid: an invalid one would spoil the whole result."""
    kind, notes, meta = part["type"], part.get("annotations"), part.get("_meta")
    held = part.get("resource") if kind == "resource" else part
    if not isinstance(held, dict) or not isinstance(meta, dict | None) or not isinstance(held.get("_meta"), dict | None):
        return False
    if kind == "resource":
        named = isinstance(held.get("uri"), str) and isinstance(held.get("mimeType"), str | None)
        sound = named and (isinstance(held.get("text"), str) or isinstance(held.get("blob"), str))
    elif kind == "resource_link":
        sound = all(isinstance(part.get(name), str) for name in ("uri", "name")) and LINK_VALIDATOR.is_valid(part)
    else:
        sound = all(isinstance(part.get(name), str) for name in REQUIRED_PART_FIELDS[kind])
    return sound and (notes is None or ANNOTATIONS_VALIDATOR.is_valid(notes))


def _keep_promise(told: JsonObject, entry: Entry | None) -> None:
    """Marks a cut output that no longer fits the tool's schema as an error, so that clients don't read it as valid."""
    structured = told.get("structuredContent")
    if entry is None or not has_object_output(entry.tool):
        return
    if structured is not None and (entry.check_output is None or entry.check_output.is_valid(structured)):
        return
    told.pop("structuredContent", None)
    told["isError"] = True
    told["content"].insert(0, _text("The output was too long and is cut; the whole output can be read at the link."))


def _whole_part(part: JsonObject) -> JsonObject:
    """A part, or a note in place of data that was cut: half a picture is none."""
    held = part.get("resource")
    data = part.get("data") if held is None else held.get("blob") if isinstance(held, dict) else None
    if isinstance(data, str) and data.endswith(CUT):
        return _text(f"[{part['type']}: too long; it can be read at the link]")
    return part


def _link(outcome: Outcome) -> JsonObject:
    artifact = outcome.artifact
    assert artifact is not None
    cut = "; ".join(artifact.cut)
    if not artifact.id:
        return _text(f"The output was cut ({artifact.bytes:,} bytes in all): {cut}")
    return {
        "type": "resource_link",
        "uri": f"{ARTIFACT_SCHEME}{artifact.id}",
        "name": artifact.id,
        "title": f"The whole output of {outcome.tool}",
        "description": f"Cut above: {cut}",
        "mimeType": "application/json",
        "size": artifact.bytes,
    }


def _failure(outcome: Outcome) -> JsonObject:
    error = outcome.error
    assert error is not None
    if error.code == "TOOL_NOT_FOUND" and not outcome.metrics.attempts:
        raise unknown_tool(outcome.tool)
    if (error.details or {}).get("number") in FORWARDED_ERROR_CODES:
        raise refusal(outcome)
    words = error.message if error.code in CODES_WITHOUT_PREFIX else f"{error.code}: {error.message}"
    told: JsonObject = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if error.suggestion:
        words = f"{words}\n{error.suggestion}"
        told["suggestion"] = error.suggestion
    if error.details:
        told["details"] = error.details
    return {"content": [_text(words)], "isError": True, "_meta": {CALL_META: outcome.id, ERROR_META: told}}


def is_refused(outcome: Outcome) -> bool:
    """True if the upstream server answered with a protocol error."""
    error = outcome.error
    return error is not None and error.code == "MCP_ERROR" and isinstance((error.details or {}).get("number"), int)


def refusal(outcome: Outcome) -> ProtocolError:
    """The outcome as a protocol error: that of the upstream server, if it gave one."""
    error = outcome.error
    if error is None:
        return ProtocolError(INTERNAL_ERROR, "The server's response is invalid")
    details = error.details or {}
    if is_refused(outcome):
        return ProtocolError(details["number"], error.message, details.get("data"))
    told = {CALL_META: outcome.id, "code": error.code, "retryable": error.retryable, "suggestion": error.suggestion}
    return ProtocolError(INTERNAL_ERROR, error.message, {name: value for name, value in told.items() if value is not None})


def unknown_tool(name: Any) -> ProtocolError:
    """Hidden and missing look the same."""
    return ProtocolError(INVALID_PARAMS, f"Unknown tool: {printable(name)}")


def pending_result(outcome: Outcome) -> JsonObject:
    """The result of a call that waits for something that this client can't be asked: what for, and how to continue.

    It is marked as an error, so that no model takes it for done and no client looks for the promised output.
    """
    pending, error = outcome.pending, outcome.error
    assert pending is not None
    waiting: JsonObject = {"status": "pending", "kind": pending.kind, pending.kind: pending.id, "call": outcome.id}
    words = [f"{error.code}: {error.message}" if error is not None else "The call waits."]
    if pending.kind == "input":
        words = [
            "The tool needs input before it continues, and this client cannot be asked for it.",
            "What it did before it asked is unknown.",
        ]
    if pending.kind == "job":
        words = [
            f"The call is queued as job {pending.id} and runs in the background. It has not ended yet; do not repeat it."
        ]
    if pending.kind == "approval":
        waiting["resume"] = "Once it is approved, call the tool again with the same arguments."
        inner = error is not None and error.details is not None and "outer_call" in error.details
        run = "That inner call has not been run." if inner else "It has not been run."
        words.append(f"{run} Approval {pending.id}: {waiting['resume']}")
    if error is not None and error.suggestion:
        words.append(error.suggestion)
    named = {"approval": APPROVAL_META, "job": JOB_META}.get(pending.kind)
    told = {CALL_META: outcome.id, **({} if named is None else {named: pending.id})}
    return {"content": [_text("\n".join(words))], "structuredContent": waiting, "isError": True, "_meta": told}


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}
