"""The tools of a bundle: its files, read as those of custom tools are, but with less taken at their word."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from toolgate.errors import BundleRefused
from toolgate.model import AllowedCommand
from toolgate.registry.compile import NO_RULES, DefinitionRules
from toolgate.sandbox.custom.yaml_file import ToolFile, ToolFileError, parse_tool_file
from toolgate.teams.bundle import ASK, BundleManifest

LOCAL_TOOLS_RULE = "enforcement.disable_local_tools"
"""The name under which a bundle's wish to refuse local tools is reviewed. No tool can be called so."""
RULE_TEXT = "Tools of local folders (YAML and Python files) are refused on every installation of the organisation.\n"


class BundleItem(NamedTuple):
    """Something of a bundle that a person accepts: a tool, or the rule on local tools."""

    name: str
    text: str
    enforced: bool

    @property
    def hash(self) -> str:
        """The fingerprint: of what is accepted, no character may be another, nor may it be enforced where it was not."""
        return sha256(f"{self.name}\0{self.enforced}\0{self.text}".encode()).hexdigest()


def parse_tool(text: str, file: str, rules: DefinitionRules = NO_RULES) -> ToolFile:
    """A tool's file as a tool of an organisation. Raises ToolFileError."""
    return parse_tool_file(text.encode(), Path(file), rules, "teams")


def parse_tools(manifest: BundleManifest, files: Mapping[str, str], rules: DefinitionRules = NO_RULES) -> list[BundleItem]:
    """All that a bundle brings, by name. Raises BundleRefused if any of it is wrong."""
    items: dict[str, BundleItem] = {}
    for file in sorted(files):
        try:
            tool = parse_tool(files[file], file, rules)
        except ToolFileError as error:
            raise BundleRefused(f"A tool of the bundle is wrong: {error.message}", suggestion=ASK) from None
        name = tool.entry.name
        if name in items:
            raise BundleRefused(f"Two files of the bundle have a tool named {name}.", suggestion=ASK)
        items[name] = BundleItem(name, files[file], name in manifest.enforced)
    stranger = next((name for name in manifest.enforced if name not in items), None)
    if stranger is not None:
        raise BundleRefused(
            f"The bundle enforces {stranger}, which is none of its tools: an organisation enforces only its own.",
            suggestion=ASK,
        )
    if manifest.disable_local_tools:
        items[LOCAL_TOOLS_RULE] = BundleItem(LOCAL_TOOLS_RULE, RULE_TEXT, enforced=False)
    return [items[name] for name in sorted(items)]


def commands_of(tool: ToolFile) -> list[str]:
    """The commands that a tool names for itself."""
    return [one if isinstance(one, str) else one.command for one in tool.program.allowlist or ()]


def hosts_of(tool: ToolFile) -> list[str]:
    """The hosts that its commands may reach."""
    named = [host for one in tool.program.allowlist or () if isinstance(one, AllowedCommand) for host in one.hosts]
    return list(dict.fromkeys(named))
