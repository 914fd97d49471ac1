"""The question that is put to a policy, its verdict, and the engines that answer.

The input has always the same five keys. An engine may be in this process (it answers at once) or a server (it is awaited).
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, get_args

import msgspec

from toolgate.gates.policy.documents import Data, Documents
from toolgate.jsontext import valid_text
from toolgate.model import Decision

Action = Literal["tool.view", "tool.request", "tool.enable"]
ACTIONS: frozenset[str] = frozenset(get_args(Action))
INPUT_FIELDS = ("user", "scopes", "session", "door", "tier", "arguments")
"""What the input's context holds."""


class InputsRead(NamedTuple):
    """The fields that a policy can make its answer depend on, besides tenant, persona, action, tool and scopes."""

    context: frozenset[str]

    @property
    def arguments(self) -> bool:
        return "arguments" in self.context

    @property
    def only_who_and_what(self) -> bool:
        return self.context <= {"scopes"}


NOT_JSON = "the call cannot be put before the policy: its arguments are not JSON"
NOTHING_ELSE = InputsRead(frozenset())
EVERYTHING = InputsRead(frozenset(INPUT_FIELDS))


class PolicyQuestion(msgspec.Struct, frozen=True, gc=False):
    """May this caller do this with this tool?"""

    tenant: str
    persona: str | None
    action: str
    tool: str
    user: str
    scopes: tuple[str, ...] = ()
    session: str | None = None
    door: str = "python"
    tier: str | None = None
    arguments: Any = None

    def fault(self) -> str | None:
        """The reason why it can't be asked at all, or None. Engines differ on odd values, so none gets to see one."""
        if self.action not in ACTIONS:
            return "there is no such action"
        if not _is_name(self.tenant):
            return "the caller has no tenant"
        if not _is_name(self.tool):
            return "no tool is named"
        if self.persona is not None and not _is_name(self.persona):
            return "the persona is neither absent nor named"
        if not all(_is_name(scope) for scope in self.scopes):
            return "the caller's scopes are malformed"
        return None

    def input(self, reads: InputsRead, **more: Any) -> dict[str, Any]:
        """The input document; the arguments are in it only for a policy that looks at them. Callers name their sessions as
        they like: half of a surrogate pair in one must not become a denial that others are given as well."""
        return {
            "tenant": self.tenant,
            "persona_id": self.persona,
            "action": self.action,
            "resource": self.tool,
            "context": {
                "user": self.user,
                "scopes": self.scopes,
                "session": None if self.session is None else valid_text(self.session),
                "door": valid_text(self.door),
                "tier": self.tier,
                "arguments": self.arguments if reads.arguments and self.arguments is not None else {},
            },
            **more,
        }


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


class PolicyVerdict(NamedTuple):
    """A decision, and whether it is the policy's own; if not, something went wrong that may pass."""

    decision: Decision
    sure: bool = True


class EmbeddedEngine(Protocol):
    """An engine in this process."""

    remote: Literal[False]
    hash: str
    reads: InputsRead
    shipped: bool

    def decide(self, question: PolicyQuestion, data: Data, epoch: int) -> PolicyVerdict:
        """Answer. `epoch` counts up when the data may have changed."""


class RemoteEngine(Protocol):
    """An engine on the other side of a network."""

    remote: Literal[True]
    hash: str
    reads: InputsRead

    async def ask(self, question: PolicyQuestion) -> PolicyVerdict:
        """Answer; a denial with its reason where that fails."""

    async def ask_many(self, question: PolicyQuestion, tools: Sequence[str]) -> list[str] | None:
        """Those of the tools that are allowed; None if the policy there can't answer for many at once."""

    @property
    def is_ready(self) -> bool:
        """True once it has all that was to be pushed to it."""

    async def push(self, text: str, documents: Documents) -> None:
        """Have it decide by this policy on these documents. Raises PolicyError."""

    async def close(self) -> None: ...


def understood(value: Any) -> Decision | None:
    """The decision that a policy gave as {allow, reason}; None if it gave something else."""
    if not isinstance(value, dict) or not isinstance(value.get("allow"), bool):
        return None
    allow, reason = value["allow"], value.get("reason")
    if not isinstance(reason, str) or not reason:
        return plain(allow)
    return Decision(allow, reason)


def plain(allow: bool) -> Decision:
    """The decision of a policy that gives no reasons."""
    return Decision(allow, "allowed by the policy" if allow else "the policy does not allow it")
