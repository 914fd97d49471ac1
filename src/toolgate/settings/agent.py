"""Settings of agents: how long and how far they work by themselves, which subordinates they may
call, and what models are told."""

from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from toolgate.settings.section import Section


class SubordinateRule(Section):
    """A persona that agents may call as a subordinate."""

    persona: str = Field(min_length=1, max_length=256)
    """The persona that is called. It reads its own notes and adjustments: name only those that may tell their callers."""
    by: tuple[str, ...] | None = None
    """The personas that may call it; None: every one, and callers without one."""
    tenants: tuple[str, ...] | None = None
    """The tenants whose agents may; None: all."""

    def allows(self, persona: str, *, by: str | None, tenant: str) -> bool:
        """Tells whether a persona may be called."""
        is_caller = self.by is None or by in self.by
        return self.persona == persona and is_caller and (self.tenants is None or tenant in self.tenants)


class AgentSettings(Section):
    """Agents: the loop of a model and its tools. A run may have smaller limits than these, not larger ones."""

    prompts: Path | None = None
    """A folder of prompt files in place of those that come with Toolgate: agent.system.main.md and others, and
    agent.system.tool.NAME.md for what models are told of a tool. Found in a project, they need trust, as tools do."""
    style: Literal["native", "json"] = "native"
    """How the model calls tools: as its server has it, or as JSON in its text, for models that know no other way."""
    turns: int = Field(default=40, ge=1, le=10_000)
    """Times that the model is asked until it has answered what its user said."""
    seconds: float = Field(default=1800, gt=0, le=604_800)
    """The time for that, without the time for which a run waits for people."""
    cost_usd: Decimal = Field(default=Decimal(1), ge=0, le=1_000_000)
    """Dollars for that, of the model and of all tools; budgets hold besides."""
    same_call: int = Field(default=3, ge=1, le=1_000)
    """Times that an agent may make the same call with the same result, one close to the other, before it is stopped."""
    unusable_replies: int = Field(default=3, ge=1, le=100)
    """Replies in a row that are empty or cannot be read, after which it is stopped."""
    calls_a_turn: int = Field(default=16, ge=1, le=1_000)
    """Tools that a model may have called at once."""
    context_tokens: int = Field(default=100_000, ge=1_000, le=100_000_000)
    """Tokens, roughly, above which the oldest results of tools are shortened in what the model is sent."""
    result_chars: int = Field(default=40_000, ge=1_000, le=10_000_000)
    """The longest result of one call that the model is shown."""
    depth: int = Field(default=3, ge=0, le=8)
    """How deep subordinates may call subordinates; 0: nobody may call any."""
    subordinates: tuple[SubordinateRule, ...] = ()
    """The personas that may be called as subordinates, by name or by rule: `[researcher, {persona: clerk, by: [boss]}]`. An
    agent may always call its own."""
    keep_days: float = Field(default=30.0, gt=0, le=36_500)
    """The time for which runs that have ended can be looked at and gone on with."""
    live_runs: int = Field(default=50, ge=1, le=100_000)
    """Runs of one user that may be under way or wait at once."""

    @field_validator("subordinates", mode="before")
    @classmethod
    def _named(cls, rules: Any) -> Any:
        if not isinstance(rules, list | tuple):
            return rules
        return [{"persona": rule} if isinstance(rule, str) else rule for rule in rules]
