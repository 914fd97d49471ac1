"""Shows a tool of an organisation to the person who may accept it: what changes against what is used now, and what it could
do here."""

from collections.abc import Callable
from datetime import datetime
from difflib import unified_diff
from typing import Any, Literal, NamedTuple

from toolgate.errors import BundleRefused
from toolgate.mcp.review import suspicious, visible
from toolgate.model import Entry
from toolgate.registry.compile import DefinitionRules
from toolgate.sandbox.custom.yaml_file import ToolFile, ToolFileError
from toolgate.store.teams import TeamToolRow
from toolgate.teams.tool_files import LOCAL_TOOLS_RULE, commands_of, hosts_of, parse_tool

ReviewState = Literal["new", "changed", "accepted", "rejected"]
CONTEXT_LINES = 3


class TeamTool(NamedTuple):
    """A tool of an organisation, or its rule on local tools, with what a reviewer has to know."""

    name: str
    kind: Literal["tool", "rule"]
    state: ReviewState
    """new or changed: it waits for a person. A changed or rejected one may be live, as it was accepted before."""
    live: bool
    hash: str
    """Of what is shown: only that can be accepted or rejected."""
    found: str
    """The file, as the newest bundle has it."""
    accepted: str | None
    """The file that was accepted; None: none is."""
    enforced: bool
    """The bundle says that nobody is to disable it."""
    accepted_enforced: bool
    version: int
    """Of the bundle that last changed it."""
    accepted_version: int | None
    accepted_by: str | None
    accepted_at: datetime | None
    tier: str | None = None
    accepted_tier: str | None = None
    description: str = ""
    schema: dict[str, Any] = {}  # noqa: RUF012 - it is never changed
    runtime: str | None = None
    commands: tuple[str, ...] = ()
    """Commands that it may have run besides those of the settings."""
    hosts: tuple[str, ...] = ()
    """Hosts that those commands may reach."""
    secrets: tuple[str, ...] = ()
    """Secrets that the settings let callers put into its arguments."""
    warnings: tuple[str, ...] = ()
    problem: str | None = None
    """The reason why it can't be used even if it is accepted."""
    may_enforce: bool = True
    """False: the setting teams.may_enforce does not let a bundle enforce, so that `enforced` has no effect here."""

    @property
    def waits(self) -> bool:
        return self.state in ("new", "changed")

    def diff(self) -> list[str]:
        """The lines that change against what was accepted, of a new one all, with invisible characters written out."""
        if self.accepted is None:
            return [f"+{visible(line)}" for line in self.found.splitlines()]
        old, new = ([visible(line) for line in text.splitlines()] for text in (self.accepted, self.found))
        return list(unified_diff(old, new, lineterm="", n=CONTEXT_LINES))[2:]

    def consequences(self) -> list[str]:
        """Short sentences on what it could do here, and on what changes of that."""
        if self.kind == "rule":
            return ["tools of local folders are refused once it is accepted"]
        told = [f"tier {self.tier}" + (f", was {self.accepted_tier}" if self.accepted_tier not in (None, self.tier) else "")]
        told.append(f"runs {self.runtime} code in the sandbox")
        told += [f"may have these commands run: {', '.join(self.commands)}"] if self.commands else []
        told.append(f"its commands may reach {', '.join(self.hosts)}" if self.hosts else "names no hosts")
        told.append(f"callers may give it the secrets {', '.join(self.secrets)}" if self.secrets else "is given no secrets")
        if self.enforced and not self.may_enforce:
            told.append("the bundle enforces it, which has no effect here: the setting teams.may_enforce is off")
        elif self.enforced != self.accepted_enforced or self.enforced:
            told.append("nobody can disable it" if self.enforced else "it can be disabled again")
        return told

    def to_dict(self) -> dict[str, Any]:
        return {
            **{name: value for name, value in self._asdict().items() if name != "schema"},
            "input_schema": self.schema,
            "accepted_at": None if self.accepted_at is None else self.accepted_at.isoformat(),
            "commands": list(self.commands),
            "hosts": list(self.hosts),
            "secrets": list(self.secrets),
            "warnings": list(self.warnings),
            "diff": self.diff(),
            "consequences": self.consequences(),
        }


class Reviewer(NamedTuple):
    """Shows rows of the record to a person, by the settings of this installation."""

    rules: DefinitionRules
    secrets_of: Callable[[Entry], list[str]]
    problem_of: Callable[[str], str | None]
    """The reason why a tool of this name can't be used."""
    may_enforce: bool
    is_live: Callable[[str], bool]

    def shown(self, row: TeamToolRow) -> TeamTool:
        """A row of the record as a person is shown it."""
        is_rule = row.name == LOCAL_TOOLS_RULE
        one = TeamTool(
            row.name, "rule" if is_rule else "tool", state_of(row), self.is_live(row.name), row.found_hash or "",
            row.found or "", row.accepted, row.found_enforced, row.accepted_enforced, row.found_version,
            row.accepted_version, row.accepted_by, row.accepted_at, may_enforce=self.may_enforce,
        )  # fmt: skip
        if is_rule:
            problem = None if self.may_enforce else "the setting teams.may_enforce does not let it enforce"
            return one._replace(problem=problem)
        try:
            tool = parse_tool(one.found, f"{one.name}.yml", self.rules)
        except ToolFileError as error:  # the settings, or this Toolgate, are others than when it was received
            return one._replace(problem=error.message)
        return self._described(one, tool, self.problem_of(one.name))

    def _described(self, one: TeamTool, tool: ToolFile, problem: str | None) -> TeamTool:
        definition = tool.entry.tool
        texts = {"description": definition.description, "inputSchema": definition.input_schema, "code": tool.program.code}
        return one._replace(
            tier=tool.entry.tier,
            accepted_tier=self._tier(one.name, one.accepted),
            description=definition.description,
            schema=definition.input_schema,
            runtime=tool.program.runtime,
            commands=tuple(commands_of(tool)),
            hosts=tuple(hosts_of(tool)),
            secrets=tuple(self.secrets_of(tool.entry)),
            warnings=tuple(suspicious(texts)),
            problem=problem,
        )

    def _tier(self, name: str, text: str | None) -> str | None:
        if text is None:
            return None
        try:
            return parse_tool(text, f"{name}.yml", self.rules).entry.tier
        except ToolFileError:
            return None


def state_of(row: TeamToolRow) -> ReviewState:
    if row.rejected_hash == row.found_hash:
        return "rejected"
    if row.accepted_hash == row.found_hash:
        return "accepted"
    return "new" if row.accepted is None else "changed"


def check_acceptable(tools: list[TeamTool]) -> None:
    """Raises BundleRefused if one of them could not be used."""
    wrong = next((one for one in tools if one.problem is not None), None)
    if wrong is not None:
        others = " ".join(one.name for one in tools if one.problem is None)
        by_name = f": `toolgate teams accept {others}`" if 0 < len(others) <= 200 else ""
        raise BundleRefused(
            f"{wrong.name} cannot be accepted: {wrong.problem}.",
            suggestion=f"Nothing was changed. Put right what is in the way, or accept the others by name{by_name}.",
            category="conflict",
        )
