"""The question that a person is asked, and the answer: one question and one answer for every channel.

Knows nothing of channels or stores. A channel (a terminal, a callback, HTTP, a console) shows `ApprovalRequest.text()`,
or shows its fields, and gives an `Answer`.
"""

import os
from base64 import b32encode
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from typing import Any, Literal

import msgspec
import orjson

from toolgate.errors import ToolgateError, plural
from toolgate.model import EXACT, MAX_DOLLARS, NANO, PROPOSES, Actor, Tier, UserMessage

Verdict = Literal["approve", "reject", "edit"]
GrantScope = Literal["session", "user", "persona", "tenant"]
SCOPES: tuple[GrantScope, ...] = ("session", "user", "persona", "tenant")
State = Literal["waiting", "approved", "rejected", "used", "expired"]
Listed = State | Literal["over"]
"""A state that is looked for; `over`: any but waiting."""

LONGEST_GRANT = 366 * 86_400
"""Seconds. A grant without an end would be a setting that nobody sees."""
SMALLEST_CAP = Decimal("1e-9")
"""Dollars. Money is counted in nano-dollars, and what is less can't be told from nothing."""
MOST_USES = 1_000_000_000
LONGEST_REASON = 1_000
MOST_SHOWN = 50_000
"""Characters of arguments in the text for a person; that more were left out is said loudly."""
LOOKALIKES = "letters that can be taken for others are written out, as in p\\u0430ypal."
WHOLE = 1_000_000_000
"""For `text()` where nothing is to be left out, however long it is."""
FILLERS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\ufffc\U00016fe4\U0001d159"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)
"""Letters, marks and symbols that show as nothing, though Python takes them for printable; with them, any text can be hidden
in another."""


class ApprovalError(ToolgateError):
    """The approval or grant can't be given, answered or found."""


class GrantTerms(msgspec.Struct, frozen=True):
    """The terms of a grant: for whom a tool may run unasked, for how long, up to which sum, how often, and with what."""

    scope: GrantScope
    seconds: float
    cap_usd: Decimal | None = None
    max_uses: int | None = None
    """The number of calls that it covers; the one that was asked about is none of them. None: any number."""
    same_arguments: bool = False
    """True: it covers calls with the very arguments that were approved, and no others."""

    def __post_init__(self) -> None:
        if self.scope not in SCOPES:
            raise ApprovalError(f"A grant is for a session, user, persona or tenant, not for {self.scope!r:.40}.")
        if not isinstance(self.seconds, int | float) or isinstance(self.seconds, bool) or not self.seconds > 0:
            raise ApprovalError(f"A grant needs a time above 0, not {self.seconds!r:.40}.")
        if self.seconds > LONGEST_GRANT:
            raise ApprovalError(f"A grant cannot last longer than {LONGEST_GRANT // 86_400} days.")
        if self.cap_usd is not None:
            if not isinstance(self.cap_usd, Decimal) or not self.cap_usd.is_finite() or self.cap_usd < 0:
                raise ApprovalError(f"A grant's sum must be a Decimal of 0 or more dollars, not {self.cap_usd!r:.40}.")
            if self.cap_usd > MAX_DOLLARS:
                raise ApprovalError(f"A grant's sum is too large: at most ${MAX_DOLLARS:,}.")
            if 0 < self.cap_usd < SMALLEST_CAP:
                raise ApprovalError("A grant's sum is too small: at least a nano-dollar, $0.000000001.")
        if self.max_uses is not None and (type(self.max_uses) is not int or not 1 <= self.max_uses <= MOST_USES):
            raise ApprovalError(f"A grant covers 1 to {MOST_USES:,} calls, not {self.max_uses!r:.40}.")
        if type(self.same_arguments) is not bool:
            raise ApprovalError(f"A grant is for the same arguments or not: True or False, not {self.same_arguments!r:.40}.")

    @property
    def cap(self) -> int | None:
        """The sum in nano-dollars, rounded down: never more than was agreed to."""
        if self.cap_usd is None:
            return None
        return int(EXACT.multiply(self.cap_usd, Decimal(NANO)).to_integral_value(ROUND_FLOOR))


class Answer(msgspec.Struct, frozen=True):
    """The answer of a person. An edit approves the given arguments in place of those that were asked about."""

    verdict: Verdict
    reason: str | None = None
    arguments: dict[str, Any] | None = None
    grant: GrantTerms | None = None
    by: str = ""
    through: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in ("approve", "reject", "edit"):
            raise ApprovalError(f"An answer is approve, reject or edit, not {self.verdict!r:.40}.")
        if (self.verdict == "edit") != (self.arguments is not None):
            raise ApprovalError("An edit needs the arguments that are to run, and no other answer has any.")
        if self.arguments is not None and type(self.arguments) is not dict:
            raise ApprovalError(f"Edited arguments are named values, not a {type(self.arguments).__name__}.")
        if self.verdict == "reject" and self.grant is not None:
            raise ApprovalError("What is rejected cannot be granted.")
        if self.grant is not None and type(self.grant) is not GrantTerms:
            raise ApprovalError(f"A grant is given by GrantTerms, not by a {type(self.grant).__name__}.")
        for name, value in (("reason", self.reason or ""), ("by", self.by), ("through", self.through)):
            if not isinstance(value, str):
                raise ApprovalError(f"An answer's {name} is text, not a {type(value).__name__}.")


class ApprovalRequest(msgspec.Struct, frozen=True):
    """The question that a person is asked: may this tool run with these arguments, for this actor?"""

    id: str
    call_id: str
    actor: Actor
    session: str | None
    workspace: str
    """The folder that the call works in, without links; one of Toolgate's own is named from its home: `sessions/…`;
    one chosen for the call alone ends in `/`."""
    door: str
    tool: str
    tool_version: str
    description: str
    tier: Tier
    destructive: bool
    reason: str
    arguments: dict[str, Any]
    """For an approver: all of them, but for secrets that Toolgate holds. On record: what looks like a secret is masked."""
    complete: bool
    """True if nothing of the arguments is masked."""
    estimate_usd: float
    confidence: str
    expected_ms: int | None
    created_at: datetime
    expires_at: datetime
    outer_call: str | None = None
    """The call from inside which it was asked for, and its tool."""
    outer_tool: str | None = None
    on_record: bool = False
    """True if the arguments are those that records hold, and not those that an approver is shown."""
    quorum: int = 1
    """The number of persons who must agree."""
    approvers: tuple[str, ...] | None = None
    """Those who may answer; None: anybody who can."""
    user_messages: tuple[UserMessage, ...] = ()
    """For an approver: the last messages that the user typed in the session before the call, oldest first."""

    @property
    def fits(self) -> bool:
        """True if `text()` leaves nothing out."""
        return len(self.description.strip()) <= MOST_SHOWN and len(self._arguments()) <= MOST_SHOWN

    @property
    def proposes_grant(self) -> bool:
        """True if the tool's definition proposes that it be granted once and for all."""
        return PROPOSES in self.reason and not self.destructive

    def text(self, most: int = MOST_SHOWN) -> str:
        """All that a person should know before saying yes. Nothing that a caller or a tool's author wrote looks like ours: a
        bar stands before each line of theirs, and whatever moves, turns or hides text is written out."""
        who = "/".join(part for part in (self.actor.tenant, self.actor.persona, self.actor.user) if part)
        session = "" if self.session is None else f', session "{plain(self.session)}"'
        tier = f"{self.tier}, destructive: no grant can cover it" if self.destructive else self.tier
        return "\n".join(
            (
                f"{visible(self.tool)} {visible(self.tool_version)} asks for approval",
                *_barred(self.description.strip(), most),
                "",
                f"  Arguments{self._hidden()}",
                *_barred(self._arguments(), most),
                *self._asked_for(),
                "",
                f"  Cost      {self._cost()}",
                f"  Time      {'not known' if self.expected_ms is None else f'about {self.expected_ms / 1000:,g} s'}",
                f"  Tier      {tier}",
                f"  Why       {visible(self.reason)}",
                f"  Who       {plain(who)}{session}, through {visible(self.door)}",
                f"  Where     {plain(self.workspace)}{'' if self.workspace.startswith('/') else ' of Toolgate itself'}",
                *self._outer(),
                *self._needs(),
                f"  Expires   {self.expires_at.astimezone():%Y-%m-%d %H:%M %Z}",
                f"  Approval  {self.id}",
            )
        )

    def _asked_for(self) -> list[str]:
        """The lines with what the user typed, each message with its age when the call was made."""
        lines = ["", "  What the user asked for, as typed"] if self.user_messages else []
        for one in self.user_messages:
            lines.append(f"  {age(self.created_at - one.said_at)} before the call{', its beginning' if one.is_cut else ''}")
            lines += _barred(one.text, MOST_SHOWN)
        return lines

    def _outer(self) -> tuple[str, ...]:
        """From inside what it is asked, which goes on after the answer."""
        if self.outer_call is None:
            return ()
        return (
            f"  Inside    asked by {visible(self.outer_tool or '')} (call {self.outer_call}), which waits for the answer",
        )

    def _needs(self) -> tuple[str, ...]:
        """The line that says who must agree, where a rule does."""
        if self.quorum == 1 and self.approvers is None:
            return ()
        who = "" if self.approvers is None else f" of {plain(', '.join(self.approvers) or 'nobody')}"
        return (f"  Needs     {self.quorum} to agree{who}",)

    def _arguments(self) -> str:
        return orjson.dumps(self.arguments, option=orjson.OPT_INDENT_2).decode()

    def _hidden(self) -> str:
        """Says what of the arguments is not shown."""
        if self.complete:
            return ""
        return " (on record: what looks like a secret is masked)" if self.on_record else " (secrets of Toolgate are hidden)"

    def _cost(self) -> str:
        if self.confidence == "unknown" and not self.estimate_usd:
            return "not known: the tool names no price"
        whole, _, decimals = f"{self.estimate_usd:,.9f}".partition(".")
        amount = f"${whole}.{decimals.rstrip('0'):0<2}"
        return amount if self.confidence == "exact" else f"about {amount} ({visible(self.confidence)})"


class Approval(msgspec.Struct, frozen=True):
    """A question, and what became of it."""

    request: ApprovalRequest
    state: State
    answered_by: str | None
    answered_through: str | None
    answer_reason: str | None
    edited: dict[str, Any] | None
    used_by: str | None
    answered_at: datetime | None
    used_at: datetime | None
    idempotency_key: str | None
    agreed: tuple[str, ...] = ()
    """Those who have agreed so far, where several must."""
    connection: str | None = None
    """The session of the connection that the call came over."""


class Grant(msgspec.Struct, frozen=True):
    """A tool that may run unasked for some time. Where persona, user or session is None, it is for all of them."""

    id: str
    tool: str
    tenant: str
    persona: str | None
    user: str | None
    session: str | None
    cap_usd: float | None
    spent_usd: float
    uses: int
    max_uses: int | None
    """The calls that it covers in all; None: any number."""
    arguments: dict[str, Any] | None
    """The arguments that it is for, as records hold them; None: whatever the arguments."""
    granted_by: str
    reason: str | None
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None

    def has_room(self, nano: int) -> bool:
        """True if there is room for one more call, that may cost so many nano-dollars."""
        within_cap = self.cap_usd is None or round(self.spent_usd * NANO) + nano <= round(self.cap_usd * NANO)
        return within_cap and not self.is_used_up

    @property
    def is_used_up(self) -> bool:
        """True if it has covered all calls that it was for."""
        return self.max_uses is not None and self.uses >= self.max_uses

    def holds(self, at: datetime) -> bool:
        return self.revoked_at is None and at < self.expires_at

    @property
    def whom(self) -> str:
        """For whom it is, in words."""
        named = (("persona", self.persona), ("user", self.user), ("session", self.session))
        return ", ".join(f"{word} {visible(value)}" for word, value in named if value) or f"all of tenant {self.tenant}"


Approver = Callable[[ApprovalRequest], Awaitable[Answer | bool | None] | Answer | bool | None]
"""A channel: True and False are answers too, None passes the question on to the next one."""


def new_id(prefix: str) -> str:
    """An id that a person can type the beginning of: 80 random bits. It opens nothing by itself."""
    return f"{prefix}_{b32encode(os.urandom(10)).decode().lower()}"


def age(time: timedelta) -> str:
    """A time in the one unit that says most."""
    seconds = max(round(time.total_seconds()), 0)
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            return plural(seconds // size, unit)
    return plural(seconds, "second")


def visible(text: str) -> str:
    """The text on one line, with all that can't be seen written out: control characters, marks that turn the direction of
    writing, spaces of no width or of odd ones, and what is no character at all."""
    return text if text.isascii() and text.isprintable() else "".join(map(_shown, text))


def plain(text: str) -> str:
    """`visible`, with letters that can be taken for others written out as well."""
    from toolgate.screening.lookalikes import marked

    return visible(marked(text))


def is_seen(char: str) -> bool:
    """Tells whether a reader sees a character: it is no control, format, surrogate, private or unassigned one, no space but
    " ", and shows as something."""
    return char.isprintable() and char not in FILLERS


def _shown(char: str) -> str:
    return char if is_seen(char) else char.encode("unicode_escape").decode()


def _barred(text: str, most: int) -> list[str]:
    """Text of others, line by line behind a bar. What is left out, and letters that look like others, are pointed out."""
    from toolgate.screening.lookalikes import marked

    cut = text[:most]
    seen = marked(cut)
    shown = [f"  │ {visible(line)}" for line in seen.split("\n")]
    if seen != cut:
        shown.append(f"  LOOK-ALIKES: {LOOKALIKES}")
    if len(text) > most:
        shown.append(f"  NOT ALL IS SHOWN: {len(text) - most:,} characters more; `toolgate approvals show` has them all.")
    return shown


def words(text: str | None) -> str | None:
    """The text of a person as one line that every record can hold."""
    return visible(text.strip())[:LONGEST_REASON] if text and text.strip() else None
