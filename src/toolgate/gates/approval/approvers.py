"""Judges who may answer, and how many must agree: the settings `approvals.rules` and `approvals.asker_may_answer`.

Asked where an answer is recorded, so it holds for every door. Names are those of the question's tenant: a door says whose
answer it brings, and the command line takes the word of whoever runs it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from toolgate.gates.approval.request import ApprovalError
from toolgate.model import LOCAL, Actor
from toolgate.screening.lookalikes import person
from toolgate.settings import ApprovalSettings

OWN_DOORS = frozenset({"cli", "python"})
"""Doors that only the person at this machine comes through."""
KEY_DOORS = frozenset({"mcp"})
"""Doors that let somebody answer only with a key that was made for it (`--may-approve`)."""


class Terms(NamedTuple):
    """The terms that answers to calls of a tool must satisfy."""

    approvers: frozenset[str] | None
    """Those who may answer; None: anybody."""
    quorum: int
    ruled: bool
    """True if a rule says so."""


FREE = Terms(None, 1, ruled=False)


class Approvers:
    """Judges whose answers count."""

    def __init__(self, settings: ApprovalSettings, second_names: Mapping[str, str]) -> None:
        """`second_names`: by each, the tool that it is a second name of; what is ruled for that one holds for both."""
        self._rules = settings.rules
        self._second_names = second_names
        self._asker = settings.asker_may_answer

    def terms(self, tool: str, tenant: str) -> Terms:
        """All rules that match hold: who answers must be on every list, and the largest quorum counts."""
        names = (tool, self._second_names.get(tool, tool))
        matching = [rule for rule in self._rules if any(rule.matches(name, tenant) for name in names)]
        if not matching:
            return FREE
        lists = [frozenset(rule.approvers) for rule in matching if rule.approvers is not None]
        return Terms(frozenset.intersection(*lists) if lists else None, max(rule.quorum for rule in matching), ruled=True)

    def why_not(self, tool: str, asker: Actor, by: str, *, own: bool) -> str | None:
        """The reason why somebody's yes to a call does not count; None: it does. `own`: the door lets its person answer for
        themselves."""
        terms = self.terms(tool, asker.tenant)
        if terms.approvers is not None and by not in terms.approvers:
            return "a rule in approvals.rules names others, each as it has to be written"
        # Where a rule says who or how many must agree, the asker is none of them, unless askers always are.
        asker_may = self._asker == "always" or (self._asker == "local" and own and not terms.ruled)
        if person(by) == person(asker.user) and not asker_may:
            return "whoever asks for a call does not approve it (setting approvals.asker_may_answer)"
        return None

    def unanswerable(self, tool: str, asker: Actor) -> str | None:
        """The reason why no answer could ever let a call of this asker run; None if one could."""
        terms = self.terms(tool, asker.tenant)
        if terms.approvers is None:
            return None
        persons = {person(name) for name in terms.approvers}
        if self._asker != "always":
            persons.discard(person(asker.user))
        if len(persons) >= terms.quorum:
            return None
        return (
            f"nobody can approve it for {asker.user}: approvals.rules wants {terms.quorum} to agree, and leaves "
            f"{len(persons)} who may, since whoever asks does not count"
        )

    def counted(self, tool: str, asker: Actor, agreed: Iterable[str]) -> list[str]:
        """Of those who agreed, each person whose yes counts, once."""
        found: dict[str, str] = {}
        for by in agreed:
            if self.why_not(tool, asker, by, own=False) is None:
                found.setdefault(person(by), by)
        return list(found.values())

    def honours(self, tool: str, asker: Actor, by: str) -> bool:
        """True if a grant that somebody gave lets a call run: one person is enough, and that one's yes would count. Whoever
        grants a tool to a whole tenant is not thereby an approver of their own calls."""
        return self.terms(tool, asker.tenant).quorum == 1 and self.why_not(tool, asker, by, own=by == LOCAL.user) is None

    def check_grant(self, tool: str, whom: Actor, by: str, *, own: bool) -> None:
        """Raise unless somebody may agree ahead of time to calls of a tool."""
        terms = self.terms(tool, whom.tenant)
        if terms.quorum > 1:
            raise ApprovalError(f"{terms.quorum} persons must agree to each call of {tool}: no grant stands in for them.")
        why = self.why_not(tool, whom, by, own=own)
        if why is not None:
            raise ApprovalError(f"{by} cannot grant {tool}: {why}.", category="forbidden")


def is_own(by: str, through: str) -> bool:
    """True of a door that lets its person answer for themselves: the one at this machine, and whoever has a key for it."""
    return through in KEY_DOORS or (through in OWN_DOORS and by == LOCAL.user)
