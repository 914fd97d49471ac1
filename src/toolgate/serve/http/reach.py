"""The part of the installation that a request is about: one tenant or all, one user or all."""

from datetime import datetime
from typing import Annotated

import msgspec

from toolgate.model import Actor
from toolgate.serve.http.endpoint import ApiRequest
from toolgate.serve.problems import HttpProblem

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256, pattern="^[^\\x00-\\x1f\\x7f]+(?!\\n)$")]
"""The name of a tool, user, persona, session or tenant."""
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""An instant with its time zone; of which years it may be, the handler checks."""
Reason = Annotated[str, msgspec.Meta(max_length=1_000)]
Dollars = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,10}(\.[0-9]{1,9})?$", description="Dollars, such as 12.50.")]


def tenant_of(request: ApiRequest) -> str | None:
    """Gives the tenant whose things are looked at; None: an operator looks at those of all."""
    return None if request.all_tenants else request.actor.tenant


def user_of(request: ApiRequest, named: str | None = None) -> str | None:
    """Gives the user whose things are looked at: whoever has no other permission sees their own; None: all, or the one that
    a filter names."""
    return named if request.all_users else request.actor.user


def named_actor(tenant: str, persona: str | None, user: str, scopes: tuple[str, ...] = ()) -> Actor:
    """Gives the actor that a request names. Raises a problem for a name that nobody can have."""
    try:
        return Actor(tenant, persona, user, scopes)
    except ValueError as error:
        raise HttpProblem(422, f"{str(error)[:300].rstrip('.')}.") from None
