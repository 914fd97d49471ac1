"""The time zone of a caller who names none: the user's own, else the tenant's, else that of the whole installation."""

from collections.abc import Iterable

from toolgate.model import Actor


class Timezones:
    """Default time zones. Found by tools with `ctx.get(Timezones)`; the caller's identity decides, no argument does."""

    def __init__(self, everywhere: str = "UTC", named: Iterable[tuple[str, str | None, str]] = ()) -> None:
        """`named`: tenant, user of that tenant (None: all of its users), IANA name."""
        self.everywhere = everywhere
        self._named = {(tenant, user): zone for tenant, user, zone in named}

    def of(self, actor: Actor) -> str:
        """The IANA name of an actor's time zone."""
        own = self._named.get((actor.tenant, actor.user))
        return own or self._named.get((actor.tenant, None), self.everywhere)
