"""A call: who makes it, through which door, and what it asks for."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

import msgspec
from uuid_utils import uuid7

from toolgate.model.allowed_command import CommandEntry

MAX_REQUEST_ID_CHARS = 128
EVERY = "*"
"""Stands for all tenants, or for each, where a request, a setting or a budget names one; for personas and users too. So none
can have this name: what its holder does as one tenant would hold for all. In a grant for a whole tenant it is the user."""


class Actor(msgspec.Struct, frozen=True, gc=False):
    """The caller: a user of a tenant, in the role of a persona."""

    tenant: str = "default"
    persona: str | None = None
    user: str = "local"
    scopes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field, value in (("tenant", self.tenant), ("user", self.user), ("persona", self.persona)):
            if value is None and field == "persona":
                continue
            if value == EVERY and field != "user":
                raise ValueError(f"Actor.{field} cannot be '{EVERY}', which stands for all of them")
            if not _is_name(value):
                raise ValueError(f"Actor.{field} must be 1 to 256 printable characters, not {value!r:.80}")


def can_name_actor(name: object) -> bool:
    """Tells whether a tenant or persona can have this name."""
    return _is_name(name) and name != EVERY


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= 256 and _clean(name)


def _clean(text: str) -> bool:
    return text.isprintable() and not any("\ud800" <= char <= "\udfff" for char in text)


def check_request_id(given: str) -> None:
    """Raises `ValueError` for a request id of a caller's that no record should hold."""
    if not isinstance(given, str) or not 0 < len(given) <= MAX_REQUEST_ID_CHARS or not _clean(given):
        raise ValueError(f"request_id must be 1 to {MAX_REQUEST_ID_CHARS} printable characters, not {given!r:.80}")


def new_id() -> str:
    """An id for a call: unique, and later ones sort after earlier ones."""
    return str(uuid7())


LOCAL = Actor()
"""The actor of a call that names none: the person at this machine."""


class SpendingLimit(msgspec.Struct):
    """Money that the calls of one program, or of one run of an agent, share, in nano-dollars, whatever budgets say."""

    left: int
    above: "SpendingLimit | None" = None
    """The limit within which this one is: what is taken here is taken there too."""
    is_run: bool = False
    """True if it is that of an agent's run, not of a program."""

    @property
    def room(self) -> int:
        """The most that a call may take."""
        return self.left if self.above is None else min(self.left, self.above.room)

    def take(self, nano: int) -> None:
        """Takes money; a negative sum is given back."""
        self.left -= nano
        if self.above is not None:
            self.above.take(nano)


class Caller(Protocol):
    """The way back to whoever called, while the call runs. Only doors that keep in touch with whoever called
    have one (MCP); the methods never raise, except that `ask` raises a CallError where there is no answer."""

    capabilities: Mapping[str, Any]
    """The things that the client says it can be asked for: elicitation, sampling, roots, as MCP spells them."""
    input_responses: Mapping[str, Any] | None
    """Answers to what the tool asked when it was called before with the same arguments (protocol 2026-07-28)."""
    request_state: str | None
    """And what the tool wanted to be reminded of."""
    log_level: str | None
    """The least severe messages that the client wants to see; None: none at all."""
    can_come_again: bool
    """True if the client, told what a tool needs to know, calls again with the answers; otherwise it has to be asked."""

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the call has got."""

    async def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Pass on a message of the tool's."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Put a request of the tool's to the client (elicitation/create, sampling/createMessage, roots/list)."""

    def remind(self, state: str | None, requests: Mapping[str, Any]) -> None:
        """Keeps what the tool asked, and what it wants back when it is called again with the answers."""

    def goes_on(self) -> None:
        """The tool takes long: whoever called need not wait for it."""


LOCAL_DOORS = frozenset({"python", "cli"})
"""The doors that only whoever runs Toolgate's own process comes through. Over any other, known or not, a call comes from
somebody whose tenant and user are names in a credential: what belongs to the person at this machine is not theirs."""


class Background(msgspec.Struct, frozen=True, gc=False):
    """The wish that a call be made in the background, as a job."""

    delay: float = 0.0
    """Seconds from now before which it is not made."""
    priority: int = 0
    """The higher, the sooner among the jobs of its tenant."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """One request to run one tool."""

    id: str
    tool: str
    arguments: Any
    actor: Actor = LOCAL
    session: str | None = None
    idempotency_key: str | None = None
    approval: str | None = None
    timeout: float | None = None
    parent: str | None = None
    """The call from inside which this one is made."""
    depth: int = 0
    door: str = "python"
    allow: tuple[CommandEntry, ...] | None = None
    """Commands that the tool which makes this call is defined to run, instead of the settings'. Said by no door."""
    covered: bool = False
    """True if a person agreed to the call that makes this one, knowing what it may run (`allow`). Said by no door."""
    from_code: bool = False
    """True if code in the sandbox made this call."""
    spending_limit: SpendingLimit | None = None
    """The money left to the program that makes this call, and to all that it calls in turn."""
    whole: bool = False
    """True if the output goes to a program: then it is not cut to what a model can read."""
    caller: Caller | None = None
    """The way back to whoever called while the call runs, where there is one."""
    place: Any = None
    """The place of the call among those inside its outer call (`call_tree.CallNode`). Said by no door."""
    request_id: str | None = None
    """The caller's own name for this request: kept with the records, and nothing goes by it."""
    hooks: tuple[Any, ...] = ()
    """Hooks for this call alone, after those of its tool."""
    workspace: str | None = None
    """The folder that whoever runs the door chose for it; None: what settings and session say. No argument leads here."""
    background: Background | None = None
    """Set if it is to be queued; its caller is given the job's id."""
    job: str | None = None
    """The job that makes it. Said by workers alone."""
    is_counted: bool = False
    """True if rate limits have counted it already: when it was queued. Said by workers alone."""
    here: str | None = None
    """The folder that a call which works in the current folder was queued from. Said by workers alone."""
    governed: bool = False
    """True if another Toolgate of the same operator asked, counted and charged for this call before it sent it here. Said
    only by the door of the event stream, for keys that the settings trust so."""
    internal: bool = False
    """True if Toolgate's own code makes it: then it can be one of a tool that is `internal`. Said by no door."""
    is_repeatable: bool = False
    """True if it can be made again whatever became of it: its idempotency key is for the tool to pass on, and is not kept.
    Said by workers and the agent loop alone."""
    connection: str | None = None
    """The session of the connection that it came over, of which `session` may name a part. Said by the door: a client that
    names another part keeps the history of the whole (`sessions.lineage`)."""
    run: str | None = None
    """The run of an agent whose turn of the model it is, the outermost one: a grant may be for its turns alone. Said by the
    agent loop alone; no call inside this one has it."""
    on_behalf_of: tuple[Actor, ...] = ()
    """The actors for whom a subordinate agent makes it, outermost first. Whatever it may do, each of them may. Said by no
    door."""

    @property
    def has_own_key(self) -> bool:
        """True if what comes of it is kept under its idempotency key: the key of one that is to be queued is its job's, and
        one that can be made again needs none."""
        return self.idempotency_key is not None and self.background is None and not self.is_repeatable

    @property
    def actors(self) -> tuple[Actor, ...]:
        """All whose rights and money count: whoever makes it, and those for whom it is made."""
        return (self.actor, *self.on_behalf_of) if self.on_behalf_of else (self.actor,)

    @property
    def has_quota(self) -> bool:
        """True if it was counted, and its money reserved, when it was queued."""
        return self.job is not None and self.is_counted


class UserMessage(msgspec.Struct, frozen=True):
    """The beginning of what the user typed, secrets masked."""

    text: str
    said_at: datetime
    is_cut: bool = False
    """True if it went on."""


class Decision(msgspec.Struct, frozen=True, gc=False):
    """A gate's answer, never without its reason."""

    allow: bool
    reason: str
    sure: bool = True
    """False for a denial because nobody could be asked: what should have decided is out of reach or broken."""
