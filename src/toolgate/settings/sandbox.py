"""Settings of the sandbox that runs code nobody vouches for."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from toolgate.settings.section import Section


class SandboxSettings(Section):
    """The sandbox that runs code nobody vouches for, and what it may use."""

    backend: Literal["auto", "bubblewrap", "namespaces", "landlock", "docker"] = "auto"
    """What holds it. auto: the first of bubblewrap, namespaces and landlock that passes a trial on this machine."""
    seconds: float = Field(default=30, gt=0, le=3_600)
    """How long one run may take, unless its tool has a timeout of its own."""
    memory_mb: int = Field(default=256, ge=96, le=65_536)
    """Memory of all processes of one run together."""
    disk_mb: int = Field(default=64, ge=1, le=65_536)
    """What one run may write: in its own folder for temporary files, and in its workspace."""
    processes: int = Field(default=64, ge=4, le=4_096)
    """Processes and threads of one run."""
    output_bytes: int = Field(default=1_048_576, ge=1_024, le=100_000_000)
    """The most that one run may write to each of stdout and stderr, and give as its result."""
    at_once: int = Field(default=8, ge=1, le=1_000)
    """Runs at the same time; more wait."""
    warm: int = Field(default=3, ge=0, le=100)
    """Workers of each kind that are kept ready once the first was needed."""
    warm_memory_mb: int = Field(default=512, ge=0, le=65_536)
    """What all workers that wait may take together."""
    idle_seconds: float = Field(default=300, gt=0, le=86_400)
    """Workers that nobody needed for this long are let go."""
    monty: bool = True
    """Whether small Python programs are run by Monty, which needs no process of their own."""
    python: Path | None = None
    """The interpreter in the sandbox; None: the one that runs Toolgate."""
    deno: Path | None = None
    """Deno; None: the one that is installed with `toolgate[sandbox]`."""
    packages: tuple[Path, ...] = ()
    """Folders of Python packages that sandboxed Python may import."""
    programs: tuple[Path, ...] = ()
    """Folders of programs, besides the system's, that sandboxed commands may run."""
    bring_in: tuple[str, ...] = ()
    """Patterns of files, besides formats of data, that programs and MCP servers may make, change and delete in a workspace
    that is not a session's own folder; every other change is set aside for the operator (`toolgate workspace`). A name
    (`*.txt`) counts in any folder, a path (`src/**/*.py`) from the workspace's top; wildcards match neither hidden names nor
    folders of packages."""
    docker_command: str = "docker"
    """The command line of the container engine."""
    docker_image: str | None = None
    """The image that runs code if the backend is docker: it needs Python and, for TypeScript, Deno."""
