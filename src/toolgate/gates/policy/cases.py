"""Cases in a file: questions to a policy with the answers that it must give.

A file says `cases`, and may say `policy` (a Rego file beside it) and `data` (documents; those that it leaves out are
empty). Without them the cases are put to the policy, or the data, in force.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from toolgate.gates.policy.documents import EMPTY_DOCUMENTS, Documents, PolicyError, told_faults
from toolgate.gates.policy.engine import ACTIONS, EmbeddedEngine, PolicyQuestion
from toolgate.model import Decision

TEXT = {"type": "string", "minLength": 1}
CASE_KEYS: Documents = {
    **dict.fromkeys(("tool", "tenant", "user", "door"), TEXT),
    **{key: {**TEXT, "type": ["string", "null"]} for key in ("name", "persona", "session", "tier", "reason")},
    "action": {"enum": sorted(ACTIONS)},
    "scopes": {"type": "array", "items": TEXT},
    "arguments": {"type": "object"},
    "expect": {"enum": ["allow", "deny"]},
}
CASES_SCHEMA: Documents = {
    "type": "object",
    "required": ["cases"],
    "additionalProperties": False,
    "properties": {
        "policy": {"type": "string"},
        "data": {"type": "object"},
        "cases": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["tool", "expect"],
                "additionalProperties": False,
                "properties": CASE_KEYS,
            },
        },
    },
}


class Case(NamedTuple):
    """A question and the answer that is expected."""

    name: str
    question: PolicyQuestion
    allow: bool
    reason: str | None
    """Text that the reason must hold."""


class CaseFile(NamedTuple):
    """The content of a file of cases."""

    policy: str | None
    data: Documents | None
    cases: list[Case]


class Result(NamedTuple):
    """A case and what the policy answered."""

    case: Case
    decision: Decision

    @property
    def ok(self) -> bool:
        reason = self.case.reason
        return self.decision.allow is self.case.allow and (reason is None or reason in self.decision.reason)


def read_cases(value: Any) -> CaseFile:
    """The cases of a file that was read as plain values. Raises PolicyError with all that is wrong."""
    faults = told_faults(CASES_SCHEMA, value, "is unknown", (*CASES_SCHEMA["properties"], *CASE_KEYS))
    if faults:
        raise PolicyError(f"The file of cases is refused: {'; '.join(faults)}.")
    data = value.get("data")
    whole = None if data is None else {**EMPTY_DOCUMENTS, **data}
    cases = [_case(number, given) for number, given in enumerate(value["cases"], 1)]
    return CaseFile(value.get("policy"), whole, cases)


def run_cases(cases: Iterable[Case], decide: Callable[[PolicyQuestion], Decision]) -> list[Result]:
    """Puts each case before a policy."""
    return [Result(case, decide(case.question)) for case in cases]


def _case(number: int, given: dict[str, Any]) -> Case:
    tool, action = given["tool"], given.get("action", "tool.request")
    question = PolicyQuestion(
        given.get("tenant", "default"), given.get("persona"), action, tool, given.get("user", "local"),
        tuple(given.get("scopes", ())), given.get("session"), given.get("door", "python"), given.get("tier"),
        given.get("arguments", {}),
    )  # fmt: skip
    name = given.get("name") or f"case {number} ({action} of {tool})"
    return Case(name, question, given["expect"] == "allow", given.get("reason"))


def decider(engine: EmbeddedEngine, data: Any) -> Callable[[PolicyQuestion], Decision]:
    """Asks an engine on data that stays as it is; what can't be asked at all is denied, as for a call."""

    def decide(question: PolicyQuestion) -> Decision:
        fault = question.fault()
        return Decision(False, fault) if fault is not None else engine.decide(question, data, 0).decision

    return decide
