"""Settings of approvals: who must agree, how many, and how long a question stands."""

from collections.abc import Iterable
from itertools import product
from typing import Literal

from pydantic import Field, field_validator, model_validator

from toolgate.settings.section import Section, matches_tool

OTHER = "\0"
"""A name that no tool and no tenant has: stands for all that are not named."""


class ApprovalRule(Section):
    """The people who must agree to the calls that it matches."""

    tenant: str | None = None
    """Whose calls; None: every tenant's."""
    tool: str | None = None
    """Of which tool; a `*` at the end stands for any ending. None: of every tool."""
    approvers: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Users who may answer; None: anybody who can."""
    quorum: int = Field(default=1, ge=1, le=20)
    """How many of them must agree."""

    @model_validator(mode="after")
    def _can_be_met(self) -> "ApprovalRule":
        if self.approvers is None and self.quorum == 1:
            raise ValueError("says neither approvers nor a quorum above 1")
        if self.approvers is not None:
            _check_quorum(self.approvers, self.quorum)
        return self

    def matches(self, tool: str, tenant: str) -> bool:
        return matches_tool(self.tool, tool) and self.tenant in (None, tenant)


class ApprovalSettings(Section):
    """The people who may answer a question, the time they have, and the number of questions."""

    expire_seconds: float = Field(default=3600, gt=0, le=30 * 86_400)
    """An approval that is not given, or not used, within this time is void."""
    rules: tuple[ApprovalRule, ...] = ()
    """Who must agree, by tenant and tool: `[{tenant: acme, tool: deploy, approvers: [ada, bob, eve], quorum: 2}]`. All that
    match a call hold."""
    asker_may_answer: Literal["never", "local", "always"] = "local"
    """Whether people approve their own calls. local: only the person at this machine, and who has a key made with
    `--may-approve`, and only where no rule says who must agree."""
    questions_per_hour: int = Field(default=240, ge=1, le=100_000)
    """New questions of one user in an hour; beyond it a call is denied as RATE_LIMITED and nobody is asked."""
    tenant_questions_per_hour: int = Field(default=1_000, ge=1, le=1_000_000)
    """New questions of all users of a tenant in an hour, likewise."""

    @field_validator("rules")
    @classmethod
    def _rules_can_be_met(cls, rules: tuple[ApprovalRule, ...]) -> tuple[ApprovalRule, ...]:
        """Of rules that match the same call, all hold: together they must leave enough who may agree."""
        tools = {OTHER if rule.tool is None else rule.tool.replace("*", OTHER) for rule in rules}
        for tool, tenant in product(sorted(tools), sorted({rule.tenant or OTHER for rule in rules})):
            found = [rule for rule in rules if rule.matches(tool, tenant)]
            lists = [set(rule.approvers) for rule in found if rule.approvers is not None]
            if len(found) > 1 and lists:
                try:
                    _check_quorum(set.intersection(*lists), max(rule.quorum for rule in found))
                except ValueError as error:
                    which = ", ".join(str(rules.index(rule) + 1) for rule in found)
                    raise ValueError(
                        f"no answer satisfies the rules {which} at once, which match the same call: {error}"
                    ) from None
        return rules


def _check_quorum(approvers: Iterable[str], quorum: int) -> None:
    """Refuse a quorum that can't be reached: a person counts once, however the name is written."""
    from toolgate.screening.lookalikes import person

    named: dict[str, list[str]] = {}
    for name in sorted(set(approvers)):
        named.setdefault(person(name), []).append(name)
    if len(named) < quorum:
        same = next((" and ".join(names) for names in named.values() if len(names) > 1), None)
        why = f"; {same} count as one person" if same else ""
        raise ValueError(f"wants {quorum} to agree, and names {len(named)}{why}: name more approvers, or lower the quorum")
