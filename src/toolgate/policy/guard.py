"""Who may do what. Until the Rego policy takes over, the restrictions of personas in the store decide.

Every answer has its reason. What is asked: tool.view (may this actor know of the tool), tool.request (may it call it),
tool.enable (may it add one).
"""

from collections.abc import Collection, Mapping
from typing import Literal

from toolgate.model import Actor, Decision

Action = Literal["tool.view", "tool.request", "tool.enable"]
ALLOWED = Decision(True, "no restriction on this persona")


class Guard:
    """Answers from data that it is given whole, and again whenever it changes."""

    def __init__(self) -> None:
        self._denied: Mapping[str, Mapping[str, str]] = {}
        self._can_add: Mapping[str, bool] = {}

    def use(self, denied: Mapping[str, Mapping[str, str]], can_add_tools: Mapping[str, bool]) -> None:
        """Take what the store says now: tools denied to personas with the reason, and personas that may add tools."""
        self._denied, self._can_add = denied, can_add_tools

    def decide(self, actor: Actor, action: Action, tool: str) -> Decision:
        persona = actor.persona
        if action == "tool.enable":
            return self._decide_enable(persona)
        if persona is not None and persona in self._denied:
            reason = self._denied[persona].get(tool)
            if reason is not None:
                return Decision(False, f"persona {persona}: {reason}")
        return ALLOWED

    def _decide_enable(self, persona: str | None) -> Decision:
        if persona is not None and self._can_add.get(persona) is True:
            return Decision(True, f"persona {persona} may add tools")
        return Decision(False, f"persona {persona} was not given the right to add tools")

    def hidden_from(self, actor: Actor) -> Collection[str]:
        """All tools that an actor may not view, at once."""
        return self._denied.get(actor.persona, {}) if actor.persona is not None else ()

    def may_view(self, actor: Actor, tool: str) -> bool:
        return self.decide(actor, "tool.view", tool).allow
