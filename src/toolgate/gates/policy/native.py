"""The shipped policy without Rego: the list of an actor at 100,000 tools, and the yes to a call that nothing speaks against.

It says the same as default.rego, which property tests prove; it is used with that policy and no other. A no is always the
Rego's own, with its reason.
"""

from collections.abc import Collection, Iterable

from toolgate.gates.policy.documents import PolicyData
from toolgate.gates.policy.question import PolicyQuestion
from toolgate.model import Decision


def hidden_from(data: PolicyData, persona: str | None) -> Collection[str]:
    """Tools that deny lists keep from a persona, whatever catalog and flags say."""
    denied = data.personas.get(persona) if persona is not None else None
    if not denied:
        return data.global_deny.keys()
    return denied.keys() | data.global_deny.keys() if data.global_deny else denied.keys()


def may_view(data: PolicyData, tenant: str, persona: str | None, tools: Iterable[str]) -> list[str]:
    """Those of the tools that the policy lets the caller see."""
    hidden = hidden_from(data, persona)
    return [tool for tool in tools if tool not in hidden and _enabled(data, tenant, tool)]


def lets_request(data: PolicyData, question: PolicyQuestion) -> Decision | None:
    """The policy's yes to a call; None where it may say no. It reads dicts, where Rego would be given them first."""
    tenant, persona, tool = question.tenant, question.persona, question.tool
    entry = data.entry(tool, tenant)
    if entry is None or tool in data.global_deny or (persona is not None and tool in data.personas.get(persona, ())):
        return None
    flag, needed = data.flag(tool, tenant), entry.get("requires_permission")
    if (entry.get("enabled") is not True) if flag is None else not flag:
        return None
    if tenant in data.restricted_tenants and (tool == "code_execute" or entry.get("runs_code", False) is not False):
        return None
    if needed is not None and needed not in question.scopes:
        return None
    return Decision(True, f"{tool} is enabled" if flag is None else f"{tool} is enabled for tenant {tenant}")


def _enabled(data: PolicyData, tenant: str, tool: str) -> bool:
    entry = data.entry(tool, tenant)
    if entry is None:
        return False
    flag = data.flag(tool, tenant)
    return entry.get("enabled") is True if flag is None else flag
