"""Settings of approvals: who must agree, how many, how long a question stands, and where people are told of one."""

from collections.abc import Iterable
from itertools import product
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from toolgate.model import Tier
from toolgate.settings.qstash import SecretName
from toolgate.settings.section import Section, matches_tool
from toolgate.settings.services import ServiceUrl

OTHER = "\0"
"""A name that no tool and no tenant has: stands for all that are not named."""
NoticeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


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


class WebhookSettings(Section):
    """An address that takes signed JSON."""

    url: ServiceUrl
    """Where it is sent by POST: `https://chat.example.com/hooks/approvals`."""
    secret: SecretName
    """The name of the secret, among those of servers, that it is signed with."""
    allow_private: bool = False
    """Whether the address may be one of this machine or of a private network."""


class ApprovalNoticeSettings(Section):
    """A place where people are told of calls that wait for them: one of `to`, `user` and `webhook`."""

    to: str | None = Field(default=None, min_length=1)
    """An apprise URL: `mailtos://smtp.example.com?to=ops@example.com`. It may refer to secrets, or be one:
    `{{secret:NAME}}`."""
    user: str | None = Field(default=None, min_length=1)
    """A user of the tenant whose call waits: told by their notifications, channels and push tokens."""
    webhook: WebhookSettings | None = None
    tenants: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Whose calls; None: every tenant's."""
    tools: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Of which tools; a `*` at the end stands for any ending. None: of every tool."""
    tiers: tuple[Tier, ...] | None = Field(default=None, min_length=1)
    """Of which tiers; None: of every tier."""
    arguments: bool = False
    """Whether the message has the arguments of the call, as records have them: with secrets masked."""
    per_hour: int = Field(default=30, ge=1, le=10_000)
    """Messages about single calls of one tenant in an hour. Those beyond it come as one message with their number."""

    @model_validator(mode="after")
    def _leads_somewhere(self) -> "ApprovalNoticeSettings":
        if sum(given is not None for given in (self.to, self.user, self.webhook)) != 1:
            raise ValueError("names one of: to (an apprise URL), user, webhook")
        return self

    def matches(self, tool: str, tier: str, tenant: str) -> bool:
        """Tells whether people are told of such a call."""
        return (
            (self.tenants is None or tenant in self.tenants)
            and (self.tiers is None or tier in self.tiers)
            and (self.tools is None or any(matches_tool(pattern, tool) for pattern in self.tools))
        )


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
    notify: dict[NoticeName, ApprovalNoticeSettings] = Field(default_factory=dict)
    """Where people are told of calls that wait, by name: `{ops: {to: "{{secret:OPS_CHAT}}", tiers: [execute]}}`."""

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
