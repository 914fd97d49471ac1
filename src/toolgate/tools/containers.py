"""`docker_run`: a container of an image that is on this machine, held as tightly as other code: no network, no host."""

from functools import partial
from typing import Annotated

from pydantic import Field

from toolgate.model import Capability
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.declare import tool
from toolgate.sandbox.engine import Sandbox
from toolgate.tools.commands import CommandOutput, Milliseconds, done, seconds_for, workspace_of

Image = Annotated[str, Field(max_length=255, json_schema_extra={"x-path": False})]
Words = Annotated[list[str], Field(json_schema_extra={"x-command": False, "x-path": False})]
"""What runs inside is the image's own program: the list of the host's commands says nothing of it."""


@tool(
    name="docker_run",
    tier="execute",
    category="development",
    version="1.0.0",
    tags=["commands", "docker"],
    capabilities=[Capability(action="execute", description="Run a container", requires_confirmation=True)],
)
async def docker_run(
    ctx: InvokeContext,
    image: Image,
    command: Words | None = None,
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
    run = partial(
        sandbox.run_container,
        image,
        command or (),
        environment=environment or {},
        seconds=seconds_for(ctx, sandbox, timeout),
        depth=ctx.call.depth,
    )
    ctx.used(f"image:{image}", "sandbox:docker")
    if not session_files:
        ended = await run()
        return done(ended, ended.stderr)
    space = await workspace_of(ctx)
    ended = await run(workspace=space.given())
    return done(ended, await space.noted(ended.stderr, ended.left))
