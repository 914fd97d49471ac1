"""/policy: the policy in force, the data that it decides by, and what another policy would have said to real calls."""

import asyncio
from datetime import timedelta
from typing import Any

from toolgate.errors import ToolgateError
from toolgate.gates.policy.documents import PolicyError
from toolgate.serve.console.page import NOTHING_TYPED, Go, PageRequest, Pages, Typed, View
from toolgate.serve.console.rego_text import marked_lines
from toolgate.serve.http.flags import FlagChange, FlagPersona, FlagsQuery, FlagView, list_flags, remove_flag, set_flag
from toolgate.serve.http.pages import MAX_PAGE
from toolgate.serve.http.policy import (
    DeniedTool,
    ObservedQuery,
    PersonaPermissions,
    ReplayView,
    ReplayWish,
    deny_tool,
    get_observed,
    get_policy,
    get_policy_data,
    replay_policy,
    restrict_code,
    set_persona_permissions,
    undeny_tool,
    unrestrict_code,
)
from toolgate.serve.problems import HttpProblem, problem_of
from toolgate.store.database import now

pages = Pages("system")

MAX_REGO_CHARS, MAX_DAYS, DEFAULT_DAYS = 200_000, 366, 7
REPLAY_SECONDS = 30.0
"""The time that a page waits for a replay."""
SHOWN_GROUPS = 200
"""A policy can give each call a reason of its own."""
AROUND = 2
"""Lines of a policy that are shown before and after the one that is wrong."""


@pages.get("/policy", permission="read", twin="/v1/policy")
async def policy(request: PageRequest) -> View:
    """The policy in force, and where it comes from."""
    found = await get_policy(request)
    values = {"policy": found, "lines": marked_lines(found.text or ""), "source": _source(request, found.engine)}
    return View(template="policy.html", title="Policy", values=values)


def _source(request: PageRequest, engine: str) -> str:
    file = request.app.settings.policy.file
    if engine == "opa":
        return "An OPA server decides (setting policy.opa_url)."
    if file is None:
        return "The policy that comes with Toolgate. The setting policy.file names one of your own."
    return (
        f"From the file {file.name} (setting policy.file)."
        if request.credential.may("operate")
        else "A policy of this installation's own."
    )


# -- the data


@pages.get("/policy/data", permission="administer", twin="/v1/policy/data")
async def policy_data(request: PageRequest) -> View:
    """The data that the policy decides by, as tables."""
    return await _data(request)


async def _data(request: PageRequest, typed: Typed = NOTHING_TYPED, status: int = 200) -> View:
    documents = await get_policy_data(request)
    is_operator = request.credential.may("operate")
    flags = await _flags(request)
    reasons = documents.get("deny_reasons", {}).get("everybody", {})
    values = {
        "denied": [(tool, reasons.get(tool, "")) for tool in documents["global_tool_deny"]],
        "restricted": documents["code_execution_restricted_tenants"],
        "personas": {name: said["can_add_tools"] for name, said in documents.get("persona_permissions", {}).items()},
        "flags": flags, "may_operate": is_operator, "typed": typed,
    }  # fmt: skip
    return View(template="policy_data.html", title="Policy data", values=values, status=status, listed=flags)


async def _flags(request: PageRequest) -> list[FlagView]:
    found: list[FlagView] = (await list_flags(request, FlagsQuery(scope="tenant", limit=MAX_PAGE))).items
    if request.credential.may("operate"):
        found = [*found, *(await list_flags(request, FlagsQuery(scope="persona", limit=MAX_PAGE))).items]
        found = [*found, *(await list_flags(request, FlagsQuery(scope="everybody", limit=MAX_PAGE))).items]
    return found


@pages.post("/policy/data", permission="administer")
async def change_data(request: PageRequest) -> View | Go:
    """Changes one entry: a flag, a denied tool, a restricted tenant, or the permissions of a persona."""
    change = request.typed("change")
    field, wrong = NAMED.get(change, ("", ""))
    name = request.typed(field).strip()
    if not field:
        raise HttpProblem(422, "The page does not know this change.", suggestion="Load it again.")
    if not (0 < len(name) <= 256 and name.isprintable()):
        return await _data(request, request.typed_form({field: wrong}), 422)
    try:
        await _apply(request, change, name)
    except ToolgateError as error:
        problem = error if isinstance(error, HttpProblem) else problem_of(error)
        if problem is None or problem.status >= 500:
            raise
        return await _data(request, request.typed_form({field: problem.message}), problem.status)
    return Go("/policy/data", done="removed" if change in ("unflag", "undeny", "unrestrict") else "saved")


NAMED = {
    "flag": ("flag_tool", "Write the name of a tool."),
    "unflag": ("flag_tool", "Write the name of a tool."),
    "deny": ("denied_tool", "Write the name of a tool."),
    "undeny": ("denied_tool", "Write the name of a tool."),
    "restrict": ("tenant_name", "Write the name of a tenant."),
    "unrestrict": ("tenant_name", "Write the name of a tenant."),
    "persona": ("persona_name", "Write the name of a persona."),
}
"""Of each change, the field that names what is changed, and what is said if that is wrong."""


async def _apply(request: PageRequest, change: str, name: str) -> None:
    reason = request.typed("reason").strip()[:1_000] or None
    if change in ("flag", "unflag"):
        persona = request.typed("flag_persona").strip() or None
        if change == "flag":
            await set_flag(
                request, name, FlagChange(enabled=request.typed("enabled") == "yes", persona=persona, reason=reason)
            )
        else:
            await remove_flag(request, name, FlagPersona(persona=persona))
        return
    request.require("operate")
    if change == "deny":
        await deny_tool(request, name, DeniedTool(reason=reason))
    elif change == "undeny":
        await undeny_tool(request, name)
    elif change == "restrict":
        await restrict_code(request, name)
    elif change == "unrestrict":
        await unrestrict_code(request, name)
    else:
        await set_persona_permissions(
            request, name, PersonaPermissions(can_add_tools=request.typed("can_add_tools") == "yes")
        )


# -- what if


@pages.get("/policy/what-if", permission="administer")
async def what_if(request: PageRequest) -> View:
    """The policy in force, to be edited and tried on real calls, and what observed policies would have changed."""
    return await _tried(request)


async def _tried(
    request: PageRequest,
    replay: ReplayView | None = None,
    typed: Typed = NOTHING_TYPED,
    wrong: int | None = None,
    days: int = DEFAULT_DAYS,
) -> View:
    found = await get_policy(request)
    text = typed.values.get("rego", found.text or "")
    values: dict[str, Any] = {
        "text": text, "replay": replay, "typed": typed, "days": days, "may_operate": request.credential.may("operate"),
        "observed": await get_observed(request, ObservedQuery(since=now() - timedelta(days=days))),
        "excerpt": [] if wrong is None else _excerpt(text, wrong), "wrong": wrong, "changes": CHANGES,
        "most": SHOWN_GROUPS,
    }  # fmt: skip
    return View(template="policy_what_if.html", title="What if", values=values, status=422 if typed.faults else 200)


CHANGES = {
    "newly_denied": ("would be denied", "bad", "⊘"),
    "newly_allowed": ("would be allowed", "ok", "✓"),
    "unknown": ("unknown", "quiet", "·"),
}


def _excerpt(text: str, line: int) -> list[tuple[int, Any]]:
    lines = marked_lines(text)
    return [(number, lines[number - 1]) for number in range(max(1, line - AROUND), min(len(lines), line + AROUND) + 1)]


@pages.post("/policy/what-if", permission="operate")
async def try_policy(request: PageRequest) -> View:
    """Tries the policy that was typed on the calls of the last days."""
    rego, typed = request.typed("rego").replace("\r\n", "\n"), request.typed("days").strip()
    days = int(typed) if typed.isascii() and typed.isdigit() and len(typed) <= 3 else 0
    faults: dict[str, str] = {}
    if not 1 <= days <= MAX_DAYS:
        faults["days"] = f"A number of days from 1 to {MAX_DAYS}."
    if not 0 < len(rego) <= MAX_REGO_CHARS:
        faults["rego"] = f"Paste a policy of at most {MAX_REGO_CHARS:,} characters."
    wrong: int | None = None
    replay: ReplayView | None = None
    if not faults:
        try:
            async with asyncio.timeout(REPLAY_SECONDS):
                replay = await replay_policy(request, ReplayWish(rego=rego, since=now() - timedelta(days=days)))
        except PolicyError as error:
            faults["rego"], wrong = error.message, error.line
        except TimeoutError:
            faults["days"] = f"It takes more than {REPLAY_SECONDS:.0f} seconds: choose fewer days."
    return await _tried(request, replay, Typed({"rego": rego, "days": typed}, faults), wrong, days or DEFAULT_DAYS)
