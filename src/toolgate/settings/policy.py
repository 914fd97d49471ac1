"""Settings of what is allowed: the policy, what an organisation enforces, files and commands."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from toolgate.model import CommandEntry
from toolgate.settings.section import Section


class ToolSettings(Section):
    """Settings of one tool; what the store says (CLI, API, console) wins over them."""

    enabled: bool | None = None
    route: Literal["events"] | None = None
    """`events`: its calls are published to the event stream (`events`), and run by whoever takes them from there."""


class EnforcementSettings(Section):
    """Decisions of an organisation for everyone who uses this installation."""

    disable_local_tools: bool = False
    """Refuse tools that people keep in their own folders: Python files and YAML tools."""
    enforced_tools: tuple[str, ...] = ()
    """Tools that nobody can disable."""


class PolicySettings(Section):
    """The policy that decides, and how long a decision is remembered."""

    file: Path | None = None
    """A Rego file of package soma.policy; None: the policy that comes with Toolgate."""
    observe: tuple[Path, ...] = ()
    """Rego files that are asked about every call too, and whose answers are only put on record: candidates, before one of
    them decides. `toolgate policy observed` shows what they would change."""
    permission_seconds: float = Field(default=60, ge=0)
    """How long a decision is remembered. A change of policy or data drops it at once; this bounds what an OPA server does
    not tell us."""
    enabled_seconds: float = Field(default=300, gt=0)
    """Flags are read again after this long, even if no change was announced."""
    schema_seconds: float = Field(default=3600, gt=0)
    """Definitions of dynamic tools are read again after this long, even if no change was announced."""
    opa_seconds: float = Field(default=2, gt=0)
    """An OPA server that takes longer than this to answer has not answered: the call is denied."""
    push: bool = False
    """Send the policy and its data to the OPA server, at the start and whenever they change."""


class PathSettings(Section):
    """Files that no tool may open."""

    sensitive: tuple[str, ...] = ()
    """More of them: patterns such as `*.sqlite` or `/srv/private/*`."""
    allowed: tuple[str, ...] = ()
    """Exceptions: patterns of files that are fine although their name looks sensitive, or they are hidden in a home."""


class CommandSettings(Section):
    """The commands that tools of tier execute may run."""

    allow: tuple[CommandEntry, ...] = (
        "npm install", "npm run", "git commit", "git push", "npx prisma", "docker build",
    )  # fmt: skip
    """Beginnings of commands, word by word; a word may end in `*`. What is not here is refused. An entry can name the hosts
    that its command may reach: `{command: npm install, hosts: [registry.npmjs.org]}`."""
    deny: tuple[str, ...] = ()
    """More that is refused, besides what always is (sudo, rm -rf, shells …)."""
