"""The promises of Toolgate: one file per area beside this one, id by id.

An id is proved by the tests marked with it. A `gap` has none yet and says in which part of the plan it comes; a
`partial` has tests for what is there, and says what is missing. Each has a test in `make test`, or `matrix_only` says why
only `make test-matrix` proves it.
"""

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

FOLDER = Path(__file__).parent
AREAS = ("TOOL", "REG", "PIPE", "POL", "TIER", "COST", "IO", "AUD", "MCP", "WF", "SBX", "BUILTIN", "AGENT", "DOOR", "FLOW")
PARTS = {
    1: "spine",
    2: "governance",
    3: "sandbox and custom tools",
    4: "MCP",
    5: "built-in tools",
    6: "workflows and jobs",
    7: "HTTP API and console",
    8: "agent, discovery and learning",
    9: "proof",
}


class Missing(BaseModel):
    """What is not there, and the part of the plan that brings it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    part: int = Field(ge=min(PARTS), le=max(PARTS))
    reason: str = Field(min_length=10)


class Requirement(BaseModel):
    """One promise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    promise: str = Field(min_length=10, max_length=140)
    gap: Missing | None = None
    partial: Missing | None = None
    matrix_only: str | None = Field(default=None, min_length=10)
    """Why no test of it is run by `make test`."""

    @model_validator(mode="after")
    def _one_kind_of_missing(self) -> "Requirement":
        if self.gap and self.partial:
            raise ValueError("a requirement is a gap or partial, not both")
        return self


def requirements(folder: Path = FOLDER) -> dict[str, Requirement]:
    """Every requirement by id."""
    found: dict[str, Requirement] = {}
    for area in AREAS:
        for name, fields in yaml.safe_load((folder / f"{area.lower()}.yaml").read_text(encoding="utf-8")).items():
            if name in found:
                raise ValueError(f"{name} stands in two files")
            found[name] = Requirement.model_validate(fields)
    return found


def faults(known: dict[str, Requirement], proved: set[str], proved_quickly: set[str]) -> list[str]:
    """Where the promises and the tests disagree: all the tests, and those of `make test`."""
    unknown = [f"{name}: a test names it, the catalog does not" for name in sorted(proved - known.keys())]
    return unknown + [
        fault
        for name, requirement in known.items()
        if (fault := _fault(name, requirement, name in proved, name in proved_quickly))
    ]


def _fault(name: str, requirement: Requirement, tested: bool, tested_quickly: bool) -> str | None:
    if requirement.gap and tested:
        return f"{name}: has a test, so it is no gap; say partial, or nothing"
    if requirement.partial and not tested:
        return f"{name}: partial without a test for what is there; say gap"
    if not requirement.gap and not requirement.partial and not tested:
        return f"{name}: neither a test nor a gap"
    if tested and not tested_quickly and not requirement.matrix_only:
        return f"{name}: no test in make test; take the mark matrix from one of its tests, or say matrix_only and why"
    if tested_quickly and requirement.matrix_only:
        return f"{name}: has a test in make test, so it is not matrix_only"
    return None
