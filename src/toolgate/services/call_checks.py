"""Checks of a built-in tool's own that refuse what cannot succeed before a person is asked about it."""

from collections.abc import Callable
from typing import NamedTuple

from toolgate.errors import CallError, Denied, ToolError
from toolgate.network.http_client import HttpClient
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import GateVerdict
from toolgate.pipeline.hooks import Hook


class CallCheck(Hook):
    """Ends a call with what a check raises; `toolgate explain` shows the same under the check's name."""

    def __init__(self, name: str, check: Callable[[InvokeContext], None], passed: str) -> None:
        """`check` raises a CallError or ToolError; `passed`: the words of `explain` where it raises nothing."""
        self._name, self._check, self._passed = name, check, passed

    def will_check_consent(self, ctx: InvokeContext) -> None:
        refused = self._refusal(ctx)
        if refused is not None:
            ctx.abort(str(refused), refused.code)

    def explain(self, ctx: InvokeContext) -> GateVerdict:
        refused = self._refusal(ctx)
        return GateVerdict(self._name, "pass" if refused is None else "deny", str(refused or self._passed))

    def _refusal(self, ctx: InvokeContext) -> CallError | ToolError | None:
        try:
            self._check(ctx)
        except (CallError, ToolError) as error:
            return error
        return None


def check_encrypted(ctx: InvokeContext, client: HttpClient, url: str) -> None:
    """Raises Denied if a secret among the arguments would be sent in the clear to a host that the operator did not name."""
    if ctx.injected and not url.lower().startswith("https:") and not client.is_allowed(url):
        raise Denied("SECURITY_VIOLATION", "A secret is sent over https only.", suggestion="Use an https URL.")


class ToolLookup(NamedTuple):
    """Tells tools which other tools there are, without calling them."""

    find: Callable[[str, str], object | None]

    def has(self, name: str, tenant: str) -> bool:
        return self.find(name, tenant) is not None
