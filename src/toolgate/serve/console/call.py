"""/calls/{id}: one call with all that is on record about it; and to explain it, make it again, undo it."""

from typing import Any, Literal
from uuid import uuid4

import msgspec
import orjson

from toolgate.errors import CODES, ToolgateError
from toolgate.gates.ledger.check_proof import check
from toolgate.pipeline.explain import Explanation
from toolgate.serve.console.call_copies import copies_of, is_masked
from toolgate.serve.console.page import NOTHING_TYPED, Go, PageRequest, Pages, Typed, View
from toolgate.serve.console.waterfall import bars_of, tree_of
from toolgate.serve.http.audit import prove_call
from toolgate.serve.http.endpoint import ApiModel, Reply
from toolgate.serve.http.invocations import (
    MAX_LEVELS,
    MAX_WITHIN,
    CallDetail,
    get_invocation,
    list_calls_within,
    moment_of,
)
from toolgate.serve.http.tools import InvokeBody, Question, explain_call, invoke_tool
from toolgate.serve.http.undo import UndoWish, undo_call
from toolgate.serve.problems import HttpProblem, problem_of
from toolgate.threads import to_thread

pages = Pages("calls")

FOLDED_CHARS = 1_500
"""Of an output or of arguments; what is longer is folded."""


class CallPageQuery(ApiModel, frozen=True):
    """The parts that are worked out only when somebody asks."""

    explain: Literal["now"] | None = None
    prove: Literal["now"] | None = None


class ProofResult(msgspec.Struct, frozen=True):
    """The result of proving that the records of a call are in the signed log."""

    head: dict[str, Any] | None
    faults: list[str]


@pages.get("/calls/{id}", permission="own", twin="/v1/invocations/{id}")
async def call(request: PageRequest, id: str, query: CallPageQuery) -> View:
    """Everything about one call."""
    found = await get_invocation(request, id)
    kept = found.details[-1] if found.details else None
    within = await list_calls_within(request, id) if found.children else None
    values = {
        "call": found, "kept": kept, "bars": bars_of(kept.stages) if kept else [], "copies": copies_of(found),
        "tree": tree_of(id, within.items) if within else [], "most": (MAX_LEVELS, MAX_WITHIN),
        "is_masked": is_masked(found.arguments), "folded": FOLDED_CHARS, "output": _output(found),
        "hint": _hint(found), "retryable": _is_retryable(found),
        "explanation": await _explanation(request, found) if query.explain else None,
        "proof": await _proof(request, found) if query.prove else None,
        "may_undo": found.can_be_undone and request.credential.may("call") and _is_own(request, found),
    }  # fmt: skip
    return View(template="call.html", title=found.tool, values=values, twin={})


def _is_own(request: PageRequest, found: CallDetail) -> bool:
    return (found.tenant, found.user) == (request.sender.tenant, request.sender.user)


def _output(found: CallDetail) -> str | None:
    """The output as text, as far as it is kept."""
    kept = found.details[-1] if found.details else None
    if kept is None or kept.output_bytes is None:
        return None
    if kept.output_beginning is not None:
        return kept.output_beginning
    if isinstance(kept.output, str):
        return kept.output
    return orjson.dumps(kept.output, option=orjson.OPT_INDENT_2).decode()


def _is_retryable(found: CallDetail) -> bool:
    code = found.call.code if found.call else None
    return code in CODES and CODES[code].retryable


def _hint(found: CallDetail) -> str | None:
    """The suggestion that an error's record has."""
    ends = [record.body for record in found.records if record.kind == "end" and isinstance(record.body, msgspec.Raw)]
    said = orjson.loads(bytes(ends[-1])) if ends else {}
    hint = said.get("suggestion") if isinstance(said, dict) else None
    return hint if isinstance(hint, str) else None


async def _explanation(request: PageRequest, found: CallDetail) -> Explanation | HttpProblem:
    """The answers that the gates would give to the same call today, made by whoever looks."""
    question = Question(arguments=_arguments(found))
    try:
        explained: Explanation = await explain_call(request, found.tool, question)
    except ToolgateError as error:
        problem = error if isinstance(error, HttpProblem) else problem_of(error)
        if problem is None:
            raise
        return problem
    return explained


async def _proof(request: PageRequest, found: CallDetail) -> ProofResult:
    """The records of the call, proven against the latest signed head, and that proof checked."""
    try:
        proof = await prove_call(request, found.id)
    except ToolgateError as error:
        problem = error if isinstance(error, HttpProblem) else problem_of(error)
        if problem is None:
            raise
        return ProofResult(None, [f"The proof could not be made. {problem.message}"])
    faults = await to_thread(check, proof, proof["public_key"])
    return ProofResult({**proof["head"], "at": moment_of(proof["head"]["at"])}, faults)


def _arguments(found: CallDetail) -> msgspec.Raw:
    return msgspec.Raw(orjson.dumps(found.arguments if isinstance(found.arguments, dict) else {}))


# -- again


@pages.get("/calls/{id}/again", permission="call")
async def look_before_again(request: PageRequest, id: str) -> View:
    """The call that would be made, and what the gates would say to it."""
    found = await get_invocation(request, id)
    cannot = _why_not_again(found)
    explanation = None if cannot else await _explanation(request, found)
    values = {"call": found, "cannot": cannot, "explanation": explanation, "key": f"again-{uuid4().hex}"}
    return View(template="call_again.html", title=f"Run {found.tool} again", values=values)


def _why_not_again(found: CallDetail) -> str | None:
    if not isinstance(found.arguments, dict):
        return "Its arguments are not on record: they did not fit the tool's schema, or there is no such tool."
    if is_masked(found.arguments):
        return "Some of its arguments are masked on record, so they are not known here."
    return None


@pages.post("/calls/{id}/again", permission="call")
async def again(request: PageRequest, id: str) -> Go:
    """Makes a new call with the same arguments, through the same gates, as whoever is signed in."""
    found = await get_invocation(request, id)
    if cannot := _why_not_again(found):
        raise HttpProblem(409, f"The call cannot be made again. {cannot}", suggestion="Call the tool from its own page.")
    if key := request.typed("key"):  # a form that is sent twice makes one call
        request.headers = {**request.headers, b"idempotency-key": key.encode("ascii", "replace")}
    reply = await invoke_tool(request, found.tool, InvokeBody(arguments=_arguments(found)))
    outcome = reply.value if isinstance(reply, Reply) else reply
    return Go(f"/calls/{outcome.id}", done="ran-again")


# -- undo


@pages.get("/calls/{id}/undo", permission="call")
async def look_before_undo(request: PageRequest, id: str) -> View:
    """The files that would be put back."""
    return await _undo_page(request, id)


async def _undo_page(request: PageRequest, id: str, typed: Typed = NOTHING_TYPED, status: int = 200) -> View:
    found = await get_invocation(request, id)
    preview = await undo_call(request, id, UndoWish(preview=True, force=True))
    values = {"call": found, "paths": preview.paths, "typed": typed}
    return View(template="call_undo.html", title=f"Undo {found.tool}", values=values, status=status)


@pages.post("/calls/{id}/undo", permission="call")
async def undo(request: PageRequest, id: str) -> View | Go:
    """Puts the files back."""
    try:
        await undo_call(request, id, UndoWish(force=bool(request.typed("force"))))
    except ToolgateError as error:
        words = " ".join(part for part in (error.message, error.suggestion) if part)
        return await _undo_page(request, id, request.typed_form({"force": words}), 409)
    return Go(f"/calls/{id}", done="undone")
