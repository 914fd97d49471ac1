"""`execute_command` and `bash_execution`: one program and its arguments, in the sandbox, in the call's working directory.
`docker_run`: a container of an image that is on this machine, held as tightly as other code: no network, no host.

There is no shell. A line is split into words as the gate split it to check it, so what was checked is what runs.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from pydantic import Field
from typing_extensions import TypedDict

from toolgate.errors import InvalidInput
from toolgate.model import Capability, ErrorCase, Example
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import jails_commands, tool
from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.jail import ProgramFolder
from toolgate.sandbox.results import CommandResult, limit_error
from toolgate.sandbox.workspace_scan import ProtectedPaths, check_secrets
from toolgate.screening.safe_open import name_of
from toolgate.threads import to_thread
from toolgate.tools.call_folder import CallFolder, folder_of

if TYPE_CHECKING:
    from toolgate.sandbox.intake import Intake

Command = Annotated[str, Field(json_schema_extra={"x-command": True})]
Milliseconds = Annotated[int, Field(ge=1, le=3_600_000)]
Image = Annotated[str, Field(max_length=255, json_schema_extra={"x-path": False})]
ImageCommand = Annotated[list[str], Field(json_schema_extra={"x-command": False, "x-path": False})]
"""The program is the image's own: the list of the host's commands says nothing of it."""
GIT_MOVES = frozenset({"checkout", "cherry-pick", "merge", "pull", "reset", "restore", "revert", "rm", "stash", "switch"})
"""Commands of git that change files of the workspace, to what the repository holds."""

SANDBOX_ERRORS = (
    ErrorCase("SANDBOX_ERROR", "It raises, does not compile, or meets a limit.", "The message says where; correct it."),
    ErrorCase("TIMEOUT", "The time is up.", "Do less at once, or raise sandbox.seconds."),
    ErrorCase("SANDBOX_UNAVAILABLE", "Nothing on this machine can hold it.", "`toolgate doctor` says what is missing."),
)
COMMAND_ERRORS = (
    *SANDBOX_ERRORS,
    ErrorCase("SECURITY_VIOLATION", "The command is not in commands.allow, or needs a shell.", "Use one that is."),
)


class CommandOutput(TypedDict):
    """What a command wrote, and how it ended: 0 is success by custom."""

    stdout: str
    stderr: str
    exitCode: int


class Workspace(NamedTuple):
    work: CallFolder
    parts: ProtectedPaths
    intake: "Intake | None"
    """Decides about its changes; None: it makes them in the folder itself."""

    def given(self, cwd: Path | None = None) -> ProgramFolder:
        settle = None if self.intake is None else self.intake.settle
        fixed, hidden = self.parts.fixed, self.parts.hidden
        return ProgramFolder(path=self.work.folder, cwd=cwd, fixed=fixed, hidden=hidden, settle=settle)

    async def noted(self, stderr: str, left: Sequence[str]) -> str:
        """The output of the program, with what was done about its changes. Raises Failed if it may not be given out."""
        if self.intake is None:  # a layer keeps what is hidden hidden, whatever is put in its place
            await to_thread(check_secrets, self.work.folder, self.parts)
        if not left:
            return stderr
        return "\n".join([stderr.rstrip("\n"), *(f"toolgate: {line}" for line in left)]).lstrip("\n")


async def workspace_of(ctx: InvokeContext, command: Sequence[str] = ()) -> Workspace:
    """The working directory of a call, for a program: with all that the jail has to hold back of it. In the folder of a
    session it makes its changes itself; so does git where moving files about is what it was approved for."""
    from toolgate.screening.programs import family

    work = await folder_of(ctx)
    is_git = bool(command) and family(command[0]) == "git"
    parts = await to_thread(work.places.parts, work.folder, writes_git=is_git)
    if work.places.is_ours(work.folder) or (is_git and moves_files(command)):
        return Workspace(work, parts, None)
    max_bytes = ctx.get(Sandbox).limits.disk
    repositories = parts.repositories if is_git else ()
    by = ctx.tool.name if ctx.tool is not None else "a program"
    return Workspace(work, parts, work.places.intake(work.folder, by, max_bytes, repositories=repositories))


def moves_files(command: Sequence[str]) -> bool:
    """Tells whether a command of git puts files of the repository, in which only git writes, into the workspace."""
    word = command[1] if len(command) > 1 else ""
    return word in GIT_MOVES or (word == "init" and all(other in ("-q", "--quiet") for other in command[2:]))


def seconds_for(ctx: InvokeContext, sandbox: Sandbox, timeout: int | None) -> float:
    """The seconds that a run may take: what is asked for, within what settings, tool and caller allow."""
    most = min(sandbox.limits.seconds, ctx.time_limit)  # as `tools info` shows it
    return most if timeout is None else min(most, timeout / 1000)


@tool(
    tier="execute",
    category="development",
    tags=["commands"],
    capabilities=[Capability(action="execute", description="Run a command", requires_confirmation=True)],
    errors=COMMAND_ERRORS,
    examples=[Example(name="Run a script of package.json", arguments={"command": "npm run", "args": ["build"]})],
)
@jails_commands
async def execute_command(
    ctx: InvokeContext,
    command: Command,
    args: list[str] | None = None,
    cwd: str | None = None,
    timeout: Milliseconds | None = None,
) -> CommandOutput:
    """Run a command in the sandbox: one program and its arguments, without a shell, a network or the host's environment.

    Args:
        command: The program, perhaps with its first arguments, such as "npm run". Which may run, the setting
            commands.allow says.
        args: More arguments, each as it stands.
        cwd: The folder to run it in, relative to the working directory.
        timeout: Milliseconds after which it is ended; at most what the setting sandbox.seconds allows.
    """
    return await _run(ctx, command, args or (), cwd, timeout)


@tool(
    alias_of="execute_command",
    tier="execute",
    category="development",
    tags=["commands"],
    capabilities=[Capability(action="execute", description="Run a command", requires_confirmation=True)],
    errors=COMMAND_ERRORS,
    examples=[Example(name="Run a script of package.json", arguments={"command": "npm run build"})],
)
@jails_commands
async def bash_execution(
    ctx: InvokeContext, command: Command, args: list[str] | None = None, timeout: Milliseconds = 30_000
) -> CommandOutput:
    """Execute shell commands with permission checks: one command without pipes, redirections or variables, in the sandbox.

    Args:
        command: Command to execute.
        args: Command arguments.
        timeout: Timeout in ms.
    """
    return await _run(ctx, command, args or (), None, timeout)


async def _run(ctx: InvokeContext, command: str, args: Sequence[str], cwd: str | None, timeout: int | None) -> CommandOutput:
    from toolgate.screening.commands import parse

    words = [*parse(command), *args]
    sandbox: Sandbox = ctx.get(Sandbox)
    space = await workspace_of(ctx, words)
    folder = None if cwd is None else await to_thread(_folder, space.work, cwd)
    seconds = seconds_for(ctx, sandbox, timeout)
    words, environment = _with_login(ctx, words)
    ended = await sandbox.run_command(
        words, workspace=space.given(folder), environment=environment, seconds=seconds, hosts=ctx.hosts,
        depth=ctx.call.depth,
    )  # fmt: skip
    ctx.used(words[0], f"sandbox:{ended.jail}", *(f"host:{host}" for host in ctx.hosts))
    return done(ended, await space.noted(ended.stderr, ended.left))


def _with_login(ctx: InvokeContext, words: list[str]) -> tuple[list[str], dict[str, str]]:
    """A command of git that reaches hosts, with the credentials in its URL moved into its environment."""
    from toolgate.sandbox.git_credentials import git_login
    from toolgate.screening.programs import family

    if not ctx.hosts or family(words[0]) != "git":
        return words, {}
    login = git_login(words)
    ctx.injected += login.values  # masked in what it writes, as secrets are
    return login.words, login.environment


def _folder(work: CallFolder, cwd: str) -> Path:
    """A folder in the working directory, without links."""
    with work.opened(cwd) as opened:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            raise InvalidInput(f"{cwd} is no folder.")
        return Path(name_of(opened) or work.folder)


def done(ended: CommandResult, stderr: str) -> CommandOutput:
    """The result for the caller of a command that came to its end; raises if it was stopped."""
    if ended.stopped is not None:
        raise limit_error(msgspec.structs.replace(ended, stderr=stderr))
    return {"stdout": ended.stdout, "stderr": stderr, "exitCode": ended.exit_code}


# -- containers


@tool(
    tier="execute",
    category="development",
    tags=["commands", "docker"],
    capabilities=[Capability(action="execute", description="Run a container", requires_confirmation=True)],
    errors=SANDBOX_ERRORS,
    examples=[Example(name="Python of another version", arguments={"image": "python:3.13", "command": ["python", "-V"]})],
)
async def docker_run(
    ctx: InvokeContext,
    image: Image,
    command: ImageCommand | None = None,
    environment: dict[str, str] | None = None,
    session_files: bool = False,
    timeout: Milliseconds | None = None,
) -> CommandOutput:
    """Run a container to its end. It has no network, a read-only file system, and the sandbox's limits.

    Args:
        image: An image that is on this machine; none is fetched.
        command: The program inside and its arguments; without it, what the image runs by itself.
        environment: Variables for the program.
        session_files: Whether it works in the call's working directory.
        timeout: Milliseconds after which it is ended; at most what the setting sandbox.seconds allows.
    """
    sandbox: Sandbox = ctx.get(Sandbox)
    seconds = seconds_for(ctx, sandbox, timeout)
    ctx.used(f"image:{image}", "sandbox:docker")
    space = await workspace_of(ctx) if session_files else None
    ended = await sandbox.run_container(
        image, command or (), workspace=None if space is None else space.given(), environment=environment or {},
        seconds=seconds, depth=ctx.call.depth,
    )  # fmt: skip
    return done(ended, ended.stderr if space is None else await space.noted(ended.stderr, ended.left))
