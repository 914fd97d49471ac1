"""Cases in a file: questions to a policy with the answers that it must give.

A file says `cases`, and may say `policy` (a Rego file beside it) and `data` (documents; those that it leaves out are
empty). Without them the cases are put to the policy, or the data, in force.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from toolgate.errors import nearest
from toolgate.gates.policy.documents import LISTS, OBJECTS, Documents, PolicyError
from toolgate.gates.policy.question import ACTIONS, EmbeddedEngine, PolicyQuestion
from toolgate.model import Decision

FILE_KEYS = ("policy", "data", "cases")
TEXTS = ("name", "tenant", "persona", "user", "session", "door", "action", "tool", "tier", "reason")
CASE_KEYS = (*TEXTS, "scopes", "arguments", "expect")
MAX_FAULTS = 20


class Case(NamedTuple):
    """A question and the answer that is expected."""

    name: str
    question: PolicyQuestion
    allow: bool
    reason: str | None
    """Text that the reason must hold."""


class CaseFile(NamedTuple):
    """What a file of cases says."""

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
    if not isinstance(value, dict):
        raise PolicyError("A file of cases must be an object with the key cases.")
    faults = list(_unknown("", value, FILE_KEYS))
    policy, data, listed = value.get("policy"), value.get("data"), value.get("cases")
    if policy is not None and not isinstance(policy, str):
        faults.append("policy must be the path of a Rego file")
    if data is not None and not isinstance(data, dict):
        faults.append("data must be an object with the documents by name")
    if not isinstance(listed, list) or not listed:
        faults.append("cases must be a list of at least one case")
        listed = []
    for number, given in enumerate(listed):
        faults += _case_faults(f"cases[{number}]", given)
    if faults:
        raise PolicyError(f"The file of cases is refused: {'; '.join(faults[:MAX_FAULTS])}.")
    empty: Documents = {**{name: {} for name in OBJECTS}, **{name: [] for name in LISTS}}
    whole = None if data is None else {**empty, **data}
    return CaseFile(policy, whole, [_case(number, given) for number, given in enumerate(listed, 1)])


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


def _case_faults(path: str, given: Any) -> list[str]:
    if not isinstance(given, dict):
        return [f"{path} must be an object"]
    faults = list(_unknown(f"{path}.", given, CASE_KEYS))
    faults += [f"{path}.{key} must be text" for key in TEXTS if given.get(key) is not None and not _is_text(given[key])]
    if given.get("tool") is None:
        faults.append(f"{path}.tool is missing")
    if given.get("expect") not in ("allow", "deny"):
        faults.append(f"{path}.expect must be allow or deny")
    if _is_text(given.get("action", "tool.view")) and given.get("action", "tool.view") not in ACTIONS:
        faults.append(f"{path}.action must be one of {', '.join(sorted(ACTIONS))}")
    scopes = given.get("scopes", [])
    if not isinstance(scopes, list) or not all(map(_is_text, scopes)):
        faults.append(f"{path}.scopes must be a list of text")
    if not isinstance(given.get("arguments", {}), dict):
        faults.append(f"{path}.arguments must be an object")
    return faults


def _unknown(path: str, given: dict[str, Any], known: tuple[str, ...]) -> Iterable[str]:
    for key in given:
        if key not in known:
            near = nearest(key, known)
            yield f"{path}{key} is unknown" + (f", did you mean {near}" if near else f": use {', '.join(known)}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def decider(engine: EmbeddedEngine, data: Any) -> Callable[[PolicyQuestion], Decision]:
    """What an engine says on data that stays as it is; what can't be asked at all is denied, as for a call."""

    def decide(question: PolicyQuestion) -> Decision:
        fault = question.fault()
        return Decision(False, fault) if fault is not None else engine.decide(question, data, 0).decision

    return decide
