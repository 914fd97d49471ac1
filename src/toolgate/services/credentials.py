"""Credentials that only some calls of a tool need, besides the one that it declares."""

from collections.abc import Callable

from toolgate.model import Auth
from toolgate.pipeline.context import InvokeContext


class Credentials:
    """Finds such a credential for the actor of a call, as the gate of secrets does, which then masks it everywhere."""

    def __init__(self, lend: Callable[[InvokeContext, Auth], str]) -> None:
        self._lend = lend

    def lend(self, ctx: InvokeContext, auth: Auth) -> str:
        """The credential. Raises Denied (MISSING_AUTH) with where to get one."""
        return self._lend(ctx, auth)
