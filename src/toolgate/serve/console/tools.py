"""/tools: the tools, one of them with a form to try it, and for whom they are enabled."""

import json
import shlex
import uuid
from typing import Any, Literal

import msgspec

from toolgate.errors import CallError, ToolgateError
from toolgate.model import TIERS, Entry, Outcome, Tool
from toolgate.model.definition import must_ask
from toolgate.pipeline.explain import Explanation
from toolgate.serve.console.page import NOTHING_TYPED, Go, PageRequest, Pages, Typed, View
from toolgate.serve.console.schema_fields import Form, form_of, rows_of
from toolgate.serve.console.series import latency_plot, outcome_plot, success_plot
from toolgate.serve.console.spans import Span, spans_of
from toolgate.serve.console.typed_arguments import (
    WHOLE,
    Problems,
    fault_names,
    read_form,
    read_object,
    sample_of,
    shown_in,
)
from toolgate.serve.console.word_diff import diff_of
from toolgate.serve.console.words import tier_of
from toolgate.serve.http.catalog import TokenReport, ToolDetail, count_tokens, get_tool, remove_tool
from toolgate.serve.http.endpoint import ApiModel
from toolgate.serve.http.flags import FlagChange, FlagPersona, get_flags_of_tool, remove_flag, set_flag
from toolgate.serve.http.invocations import CallsQuery, CallSummary, list_invocations
from toolgate.serve.http.pages import Page
from toolgate.serve.http.servers import QuarantinedDefinition, list_quarantine
from toolgate.serve.http.statistics import StatisticsQuery, get_statistics
from toolgate.serve.http.tool_access import access_of, get_pin, known_tenants
from toolgate.serve.http.tools import InvokeBody, Question, ToolsQuery, explain_call, invoke_tool, list_tools, visible
from toolgate.serve.problems import HttpProblem
from toolgate.store.database import now

pages = Pages("tools")

LAST_CALLS = 10
DEFAULT_SPAN: Span = "30d"
MAX_REASON_CHARS = 1_000
MAX_FITTING = 5
"""Tools that a search finds besides those that have all the words."""
MAX_TOKENS_COUNTED = 2_000
"""Tools of which the tokens are counted for the list."""
CATEGORIES = (
    "filesystem", "code_analysis", "validation", "search", "api",
    "database", "service", "deployment", "development", "custom",
)  # fmt: skip


class ToolListQuery(ToolsQuery, frozen=True):
    """Filters of the list; without a state, all that one may see."""

    state: Literal["enabled", "disabled", "any", "quarantined", ""] = ""  # type: ignore[assignment]


class ToolQuery(ApiModel, frozen=True):
    """Arguments that the form begins with, whether it is JSON, and the time of the plots."""

    arguments: str | None = None
    form: Literal["fields", "json"] = "fields"
    range: Span = DEFAULT_SPAN


def about_one_tenant(request: PageRequest) -> bool:
    """Has a page that is about one tenant show the sender's where all were chosen. Gives whether that was so."""
    were_all, request.all_tenants = request.all_tenants, False
    return were_all


@pages.get("/tools", permission="own", twin="/v1/tools")
async def tools(request: PageRequest, query: ToolListQuery) -> View:
    """The tools that one may see; for admins also disabled ones, for operators also those that wait."""
    were_all = about_one_tenant(request)
    may = request.credential.may
    waiting = (await list_quarantine(request)).items if may("operate") else []
    if query.state == "quarantined":
        request.require("operate")
        found: Page[Any] = Page(waiting)
    else:
        state = query.state or ("any" if may("administer") else "enabled")
        wanted = {name: getattr(query, name) for name in ToolsQuery.__struct_fields__ if name != "state"}
        found = await list_tools(request, ToolsQuery(**wanted, state=state))
    tokens: dict[str, int] = {}
    counted: TokenReport | None = None
    if len(request.app.tools.entries()) <= MAX_TOKENS_COUNTED:
        counted = await count_tokens(request)
        tokens = {one.name: one.tokens for one in counted.tools}
    served = await request.app.tools.served(request.actor)
    values = {
        "tiers": [(one, tier_of(one).word) for one in TIERS],
        "categories": [(one, one.replace("_", " ")) for one in CATEGORIES],
        "states": [(one, one) for one in ("enabled", "disabled", *(["quarantined"] if may("operate") else []))],
        "found": found.items, "next": found.next, "tokens": tokens, "waiting": waiting, "were_all": were_all,
        "state": query.state, "may_change": may("administer"), "may_operate": may("operate"), "counted": counted,
        "served": served, "fitting": await _fitting(request, query, {one.name for one in found.items}),
    }  # fmt: skip
    return View(template="tools.html", title="Tools", values=values, listed=found.items)


async def _fitting(request: PageRequest, query: ToolListQuery, listed: set[str]) -> list[Tool]:
    """The tools that fit what is looked for though they are not listed: they do not have all of its words."""
    words = (query.q or "").strip()
    if not words or query.state == "quarantined":
        return []
    found = (await request.app.tools.search(words, request.actor, limit=MAX_FITTING)).found
    return [one.tool for one in found if one.tool.name not in listed]


@pages.get("/tools/{name}", permission="own", twin="/v1/tools/{name}")
async def tool(request: PageRequest, name: str, query: ToolQuery) -> View:
    """A tool: what it is, who may use it, and a form to try it."""
    were_all = about_one_tenant(request)
    try:
        detail = await get_tool(request, name)
    except HttpProblem as problem:
        waiting = await _waiting(request, name)
        if waiting is None:
            raise HttpProblem(
                problem.status, problem.message, suggestion="The list of tools has those that you may see."
            ) from None
        values = {"one": waiting, "diff": diff_of(waiting.accepted, waiting.definition)}
        return View(template="tool_waiting.html", title=name, values=values)
    arguments, wrong = read_object(query.arguments or "")
    return await _shown(
        request, detail, form_of(detail.definition["input_schema"]), arguments=arguments, as_json=query.form == "json",
        faults=Problems({WHOLE: wrong} if wrong else {}), were_all=were_all, span=query.range,
    )  # fmt: skip


async def _waiting(request: PageRequest, name: str) -> QuarantinedDefinition | None:
    """The definition of this name that waits to be accepted, for an operator."""
    if not request.credential.may("operate"):
        return None
    return next((one for one in (await list_quarantine(request)).items if one.name == name and one.kind == "tool"), None)


async def _shown(
    request: PageRequest,
    detail: ToolDetail,
    form: Form,
    *,
    arguments: dict[str, Any],
    as_json: bool,
    faults: Problems,
    sent: dict[str, list[str]] | None = None,
    explained: Explanation | None = None,
    outcome: Outcome | None = None,
    typed: Typed = NOTHING_TYPED,
    status: int = 200,
    were_all: bool = False,
    span: Span = DEFAULT_SPAN,
) -> View:
    """The page of a tool, with what was typed and what came of it."""
    entry = await visible(request, detail.name)
    rows, left_out = rows_of(detail.definition["input_schema"])
    may = request.credential.may
    shown = (
        {WHOLE: [json.dumps(arguments, indent=2, ensure_ascii=False) if arguments else ""]}
        if as_json
        else shown_in(form, arguments)
    )
    example = next((one["arguments"] for one in detail.definition["examples"]), None)
    values: dict[str, Any] = {
        "tool": detail, "defined": detail.definition, "rows": rows, "left_out": left_out, "form": form,
        "sent": shown if sent is None else sent, "as_json": as_json, "faults": faults, "typed": typed,
        "explained": explained, "outcome": outcome, "once": str(uuid.uuid4()), "were_all": were_all, "example": example,
        "asks": must_ask(entry.tier, destructive=entry.tool.destructive, confirms=entry.tool.confirms()),
        "copies": copies(
            detail.name, arguments or example or sample_of(form.fields), request.headers.get(b"host", b"").decode("latin-1")
        ),
        "access": await _access(request, entry), "calls": await _calls(request, detail.name),
        **await _history(request, detail.name, span), "flags": None, "pin": None, "server": None,
        "may_call": may("call"), "may_operate": may("operate"), "tenant": request.actor.tenant,
    }  # fmt: skip
    if may("administer"):
        values["flags"] = await get_flags_of_tool(request, detail.name)
    values["registration"] = await request.app.tools.registration_of(entry)
    if entry.tool.source == "mcp" and may("operate"):
        values |= {"pin": await get_pin(request, detail.name), "server": entry.implementation.server}
    return View(template="tool.html", title=detail.name, values=values, status=status)


async def _access(request: PageRequest, entry: Entry) -> dict[str, Any]:
    """The matrix as rows of cells."""
    tenants = await known_tenants(request, entry) if request.credential.may("operate") else [request.actor.tenant]
    matrix = await access_of(request, entry, tenants)
    wide = len(matrix.personas)
    rows = [(tenant, matrix.cells[at * wide : (at + 1) * wide]) for at, tenant in enumerate(matrix.tenants)]
    return {"matrix": matrix, "rows": rows}


async def _calls(request: PageRequest, name: str) -> list[CallSummary]:
    found: Page[CallSummary] = await list_invocations(request, CallsQuery(tool=name, limit=LAST_CALLS))
    return found.items


async def _history(request: PageRequest, name: str, span: Span) -> dict[str, Any]:
    """The calls of a tool in figures and plots, those that the reader may see."""
    spans = spans_of(request)
    chosen = span if span in spans else next(reversed(spans))
    words, length, step = spans[chosen]
    until = now()
    found = await get_statistics(request, StatisticsQuery(since=until - length, until=until, step=step, tool=name))
    return {
        "totals": found.totals, "behind": found.behind, "span": chosen, "period": words, "since": until - length,
        "spans": {each: one[0] for each, one in spans.items()}, "outcomes": outcome_plot(found),
        "success": success_plot(found), "latency": latency_plot(found),
    }  # fmt: skip


def copies(name: str, arguments: dict[str, Any], host: str) -> list[tuple[str, str]]:
    """The call in the words of other doors."""
    text = json.dumps(arguments, ensure_ascii=True)
    body = shlex.quote(json.dumps({"arguments": arguments}, ensure_ascii=True))
    curl = (
        f'curl -X POST http://{host}/v1/tools/{name}/invoke -H "Authorization: Bearer $TOOLGATE_KEY" '
        f"-H 'Content-Type: application/json' -d {body}"
    )
    return [
        ("Command line", f"toolgate call {name} --args {shlex.quote(text)}"),
        ("Python", f"outcome = await app.invoke({name!r}, {json.loads(text)!a})"),
        ("curl", curl),
    ]


# -- trying it


@pages.post("/tools/{name}", permission="own")
async def try_tool(request: PageRequest, name: str) -> View:
    """Explains or makes a call, or shows the form as JSON or as fields: what was typed stays."""
    about_one_tenant(request)
    detail, action = await get_tool(request, name), request.typed("action")
    form = form_of(detail.definition["input_schema"])
    was_json = WHOLE in request.form
    arguments, faults = _typed(form, request)
    shown: dict[str, Any] = {"arguments": arguments, "as_json": was_json, "sent": dict(request.form)}
    if faults:
        return await _shown(request, detail, form, faults=faults, status=422, **shown)
    if action in ("json", "fields"):
        return await _shown(request, detail, form, arguments=arguments, as_json=action == "json", faults=faults)
    raw = msgspec.Raw(msgspec.json.encode(arguments))
    if action == "run":
        request.require("call")
        outcome = await _run(request, name, raw)
        details = (
            (outcome.error.details or {}) if outcome.error is not None and outcome.error.code == "VALIDATION_ERROR" else {}
        )
        faults = fault_names(form, details.get("errors"))
        return await _shown(request, detail, form, faults=faults, outcome=outcome, status=422 if faults else 200, **shown)
    explained = await explain_call(request, name, Question(arguments=raw))
    wrong = next((one.details for one in explained.gates if one.gate == "input" and one.details), None) or {}
    return await _shown(request, detail, form, faults=fault_names(form, wrong.get("errors")), explained=explained, **shown)


def _typed(form: Form, request: PageRequest) -> tuple[dict[str, Any], Problems]:
    if WHOLE not in request.form:
        return read_form(form, request.form)
    arguments, wrong = read_object(request.typed(WHOLE))
    return arguments, Problems({WHOLE: wrong} if wrong else {})


async def _run(request: PageRequest, name: str, arguments: msgspec.Raw) -> Outcome:
    """Makes the call. The page has a key for it, so that one that is sent again is not made again."""
    once = request.typed("once")
    if once:
        request.headers = {**request.headers, b"idempotency-key": f"console-{once[:64]}".encode("ascii", "replace")}
    reply = await invoke_tool(request, name, InvokeBody(arguments=arguments))
    outcome: Outcome = reply.value
    return outcome


# -- for whom it is enabled


@pages.post("/tools/{name}/flag", permission="administer")
async def flag(request: PageRequest, name: str) -> View | Go:
    """Enables or disables it for the tenant; of operators also for everybody or a persona."""
    about_one_tenant(request)
    wish, whose, persona, reason = (request.typed(one) for one in ("enabled", "whose", "persona", "reason"))
    faults = {}
    if len(reason) > MAX_REASON_CHARS:
        faults["reason"] = f"At most {MAX_REASON_CHARS:,} characters."
    if whose == "persona" and not persona:
        faults["persona"] = "Name the persona."
    if wish not in ("yes", "no", "default") or whose not in ("tenant", "everybody", "persona", ""):
        raise HttpProblem(422, "The form is not one of this page.", suggestion="Load the page again.")
    if not faults:
        try:
            await _set(request, name, wish, whose, persona if whose == "persona" else None, reason or None)
        except (CallError, HttpProblem) as error:
            faults[""] = _words(error)
    if faults:
        detail = await get_tool(request, name)
        form = form_of(detail.definition["input_schema"])
        typed = request.typed_form(faults)
        return await _shown(request, detail, form, arguments={}, as_json=False, faults=Problems(), typed=typed, status=422)
    done = {"yes": "enabled", "no": "disabled", "default": "flag-removed"}[wish]
    return Go(request.typed("back") if request.typed("back") == "/tools" else f"/tools/{name}", done=done)


@pages.post("/tools/{name}/remove", permission="administer")
async def remove(request: PageRequest, name: str) -> Go:
    """Removes a tool that was registered at run time for the tenant; the policy says which personas may."""
    about_one_tenant(request)
    await remove_tool(request, name)
    return Go("/tools", done="removed")


def _words(error: ToolgateError) -> str:
    return error.message if isinstance(error, CallError | HttpProblem) else str(error)


async def _set(request: PageRequest, name: str, wish: str, whose: str, persona: str | None, reason: str | None) -> None:
    if whose in ("everybody", "persona"):
        request.require("operate")
    request.all_tenants = whose == "everybody"
    try:
        if wish == "default":
            await remove_flag(request, name, FlagPersona(persona=persona))
        else:
            await set_flag(request, name, FlagChange(enabled=wish == "yes", persona=persona, reason=reason))
    finally:
        request.all_tenants = False
