"""The gate of secrets: `{{secret:NAME}}` in an argument becomes the value at the last moment before the tool runs, looked up
for the actor, and is masked wherever it shows up again.

A reference is a caller's wish, so it is filled only where a setting names the tool for it (`Uses`). The credential that a
tool declares is the wish of whoever registered the tool: code that the operator installed gets it, others if named.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from toolgate.errors import CallError, Denied, StoreError
from toolgate.gates.secrets.names import ENVIRONMENT_PREFIX, NAME, REFERENCE, Owner, key_of, keys_for
from toolgate.gates.secrets.sources import Source
from toolgate.gates.secrets.uses import Uses, gets_its_credential
from toolgate.jsontext import texts_in, with_texts
from toolgate.model import Actor, Auth, Entry, Outcome
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import GateVerdict
from toolgate.pipeline.held_resources import HoldingGate, hold
from toolgate.settings import SecretUse

SECRET_MARK = b"secret:"
"""What the canonical arguments must hold for a look at them to be worth it."""
MAX_ENDED_CALLS = 1_000
"""Ended calls whose secrets are kept in mind."""


class Secrets(HoldingGate):
    """Finds secrets in its sources: the narrowest owner first, and for each owner the first source first.

    `use` says into which tools callers may have them put.
    """

    def __init__(self, *sources: Source, use: Mapping[str, Iterable[SecretUse]] | None = None) -> None:
        self.sources = sources
        self.uses = Uses(use or {})
        self._in_use: dict[str, tuple[str, ...]] = {}
        """By call, the values that it was given: what it hands on to calls of its own is masked there too."""
        self._ended: dict[str, tuple[str, ...]] = {}

    def find(self, name: str, actor: Actor) -> str | None:
        """The value that a name has for an actor. Raises StoreError if a source can't tell."""
        if NAME.match(name) is None:
            return None
        return self._first(keys_for(name, actor))

    def key_of(self, name: str, actor: Actor) -> str:
        """The key under which an actor's secret is kept, which tells whose it is; empty if there is none."""
        if NAME.match(name) is None:
            return ""
        return next((key for key in keys_for(name, actor) if self._first([key]) is not None), "")

    def find_own(self, name: str, owner: Owner) -> str | None:
        """The value that a name has in one of Toolgate's own spaces, which no actor reaches."""
        return self._first([key_of(name, owner)]) if NAME.match(name) else None

    def _first(self, keys: Iterable[str]) -> str | None:
        for key in keys:
            for source in self.sources:
                value = source(key)
                if value:
                    return value
        return None

    # -- in the pipeline

    def check_present(self, entry: Entry, canonical: bytes, arguments: Any, actor: Actor, hosts: Sequence[str] = ()) -> None:
        """Refuses a call that lacks a secret, before a person is asked about it. `hosts`: those that its command reaches."""
        if entry.auth is None and SECRET_MARK not in canonical:
            return
        for name in names_in(_fillable(entry, arguments)):
            self._value(name, entry, actor, arguments, hosts)
        self.credential(entry, actor)

    def lacking(self, entry: Entry, arguments: Any, actor: Actor, hosts: Sequence[str] = ()) -> list[CallError]:
        """The errors that a call would be told, one for each secret that it needs and would not get."""
        names = list(dict.fromkeys(names_in(_fillable(entry, arguments))))
        errors = [_error(self._value, name, entry, actor, arguments, hosts) for name in names]
        if entry.auth is not None and entry.auth.config_key not in names:
            errors.append(_error(self.credential, entry, actor))
        return [error for error in errors if error is not None]

    async def explain(self, ctx: InvokeContext, entry: Entry) -> AsyncIterator[GateVerdict]:
        errors = self.lacking(entry, ctx.arguments, ctx.call.actor, ctx.hosts)
        lacking = " ".join(error.message for error in errors)
        yield GateVerdict("credentials", "deny" if lacking else "pass", lacking or "all that it needs are there")

    def enter(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments with references replaced. The context gets the values, to mask them, and the tool's credential."""
        is_marked = SECRET_MARK in ctx.canonical
        if is_marked and entry.literal_input:
            is_marked = next(names_in(_fillable(entry, arguments)), None) is not None
        if entry.auth is None and not is_marked:
            return arguments
        if ctx.call.from_code and is_marked:
            raise Denied(
                "SECURITY_VIOLATION", "Code in the sandbox cannot name secrets: nobody saw what it would do with them."
            )
        used: dict[str, str] = {}

        def value(name: str) -> str:
            if name not in used:
                used[name] = self._value(name, entry, ctx.call.actor, arguments, ctx.hosts)
            return used[name]

        filled: dict[str, Any] = arguments
        if is_marked:
            fillable = _fillable(entry, arguments)
            filled = with_texts(fillable, lambda text: REFERENCE.sub(lambda found: value(found[1].strip()), text))
        if entry.auth is not None:
            ctx.credential = self.credential(entry, ctx.call.actor)
            if ctx.credential is not None:
                used[entry.auth.config_key] = ctx.credential
        if used:
            hold(ctx, self)
            ctx.injected = tuple(dict.fromkeys((*ctx.injected, *used.values())))
            self._in_use[ctx.id] = ctx.injected
        return {**arguments, **filled} if entry.literal_input else filled

    def inherit(self, ctx: InvokeContext) -> None:
        """Let a call know the secrets of the call that makes it: what is handed on is masked there too."""
        parent = ctx.call.parent or ""
        known = self._in_use.get(parent) or self._ended.get(parent, ())
        if known:
            hold(ctx, self)
            ctx.injected, ctx.inherits_secrets = known, True
            self._in_use[ctx.id] = known

    def leave(self, ctx: InvokeContext, _token: Any, _outcome: Outcome | None) -> None:
        """The call has ended. What it was given is kept in mind for a while: what it started may still hand it on."""
        known = self._in_use.pop(ctx.id, None)
        if known is not None:
            self._ended[ctx.id] = known
            while len(self._ended) > MAX_ENDED_CALLS:
                del self._ended[next(iter(self._ended))]

    # -- one secret

    def lend(self, ctx: InvokeContext, auth: Auth) -> str:
        """A credential that some calls of a tool need besides the one that it declares; masked as that one is. Raises Denied
        if there is none."""
        if ctx.entry is None:
            raise LookupError("no tool was found for this call")
        value = self._credential(auth, ctx.entry, ctx.call.actor)
        if value is None:
            raise _missing(auth)
        if ctx.id not in self._in_use:
            hold(ctx, self)
        ctx.injected = self._in_use[ctx.id] = tuple(dict.fromkeys((*ctx.injected, value)))
        return value

    def credential(self, entry: Entry, actor: Actor) -> str | None:
        """The credential that a tool declared it needs."""
        return None if entry.auth is None else self._credential(entry.auth, entry, actor)

    def _credential(self, auth: Auth, entry: Entry, actor: Actor) -> str | None:
        refusal = None if gets_its_credential(entry) else self.uses.refusal(auth.config_key, entry, actor.tenant)
        if refusal is not None and auth.required:
            raise refusal
        value = None if refusal is not None else self._look_up(auth.config_key, actor)
        if value is None and auth.required:
            raise _missing(auth)
        return value

    def _value(self, name: str, entry: Entry, actor: Actor, arguments: Any, hosts: Sequence[str]) -> str:
        """The value that a reference stands for. Only those who may use a secret learn whether it exists."""
        if NAME.match(name):
            refusal = _own_credential(name, entry) or self.uses.refusal(name, entry, actor.tenant, arguments, hosts)
            if refusal is not None:
                raise refusal
        value = self._look_up(name, actor)
        if value is not None:
            return value
        auth = entry.auth
        url = auth.setup_url if auth is not None and auth.config_key.upper() == name.upper() else None
        raise Denied(
            "MISSING_AUTH",
            f"There is no secret named {name!r}.",
            suggestion=_how_to_set(name, url),
            details={"missing": name, "setup_url": url} if url else {"missing": name},
        )

    def _look_up(self, name: str, actor: Actor) -> str | None:
        try:
            return self.find(name, actor)
        except StoreError as error:
            raise Denied(
                "MISSING_AUTH",
                f"The secret {name!r} cannot be looked up.",
                suggestion="`toolgate secrets list`, run where Toolgate runs, says what is wrong.",
                details={"missing": name},
                reason=f"secrets cannot be read: {error.message}",
            ) from None


def _own_credential(name: str, entry: Entry) -> Denied | None:
    """The denial of a secret that the tool's endpoint sends by itself. `secrets.use` names it for that: in an argument it
    would be content, which the service may show to others."""
    endpoint = entry.tool.http
    if endpoint is None or all(one.secret.upper() != name.upper() for one in endpoint.credentials):
        return None
    return Denied(
        "PERMISSION_DENIED",
        f"The secret {name!r} is sent by {entry.name} itself, and may not be put into its arguments.",
        suggestion="Leave it out of the arguments.",
    )


def _missing(auth: Auth) -> Denied:
    return Denied(
        "MISSING_AUTH",
        f"The tool needs the credential {auth.config_key}, which is not set.",
        suggestion=_how_to_set(auth.config_key, auth.setup_url),
        details={"missing": auth.config_key, "setup_url": auth.setup_url},
    )


def _error(look: Callable[..., object], *of: object) -> CallError | None:
    try:
        look(*of)
    except CallError as error:
        return error
    return None


def _fillable(entry: Entry, arguments: Any) -> Any:
    """The arguments in which references to secrets are meant."""
    if not entry.literal_input or not isinstance(arguments, Mapping):
        return arguments
    return {name: part for name, part in arguments.items() if name not in entry.literal_input}


def names_in(value: Any) -> Iterator[str]:
    """The names that references in a value give, at any depth."""
    return (found[1].strip() for text in texts_in(value) if "{{" in text for found in REFERENCE.finditer(text))


def _how_to_set(name: str, url: str | None) -> str:
    if NAME.match(name) is None:
        return "The name of a secret has letters, digits and _, and does not begin with a digit."
    words = f"`toolgate secrets set {name}`, or set {ENVIRONMENT_PREFIX}{name} in Toolgate's environment"
    return f"{words}; get one at {url}" if url else f"{words}."
