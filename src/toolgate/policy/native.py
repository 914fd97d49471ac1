"""The shipped policy's answers on tool.view for many tools at once, without Rego: the list of an actor at 100,000 tools.

It says the same as default.rego, which a property test proves; it is used with that policy and no other.
"""

from collections.abc import Collection, Iterable

from toolgate.policy.documents import PolicyData


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


def _enabled(data: PolicyData, tenant: str, tool: str) -> bool:
    entry = data.entry(tool, tenant)
    if entry is None:
        return False
    flag = data.flag(tool, tenant)
    return entry.get("enabled") is True if flag is None else flag
