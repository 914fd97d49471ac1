"""`code_execute` and `run_program`: code that a model wrote, in the sandbox.

A program may call tools. Each such call goes through the whole pipeline as the same actor, so a program can do what its
caller could do one call at a time, and no more; what the tools give goes to the program, not to the model.
"""

from decimal import Decimal
from typing import Annotated, Any, NotRequired

from msgspec import structs
from pydantic import Field
from typing_extensions import TypedDict

from toolgate.errors import CallError, InvalidInput
from toolgate.model import CALL_TOOL, NANO, Capability, ErrorCase, Example, SpendingLimit, nano
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool
from toolgate.sandbox.engine import Language, Sandbox
from toolgate.sandbox.runner import value_of
from toolgate.sandbox.worker_protocol import Refusal, given
from toolgate.tools.commands import SANDBOX_ERRORS, Milliseconds, Workspace, seconds_for, workspace_of

Code = Annotated[str, Field(min_length=1, max_length=1_000_000, json_schema_extra={"x-command": False, "x-path": False})]
MAX_PROGRAM_CALLS = 10_000
NO_LIMIT = 10**30
NOT_INSIDE = frozenset({"run_program", CALL_TOOL})
"""Tools that a program may not call: another of its kind would have limits of its own, and the tools that a program calls
are called as a program's."""


class LogLine(TypedDict):
    """What the code gave to its logger."""

    level: str
    message: str


class Executed(TypedDict):
    """What code gave: its value, and what it wrote."""

    result: Any
    stdout: str
    stderr: str
    logs: NotRequired[list[LogLine]]


class ProgramRan(TypedDict):
    """What a program gave, and what its calls came to."""

    result: Any
    stdout: str
    stderr: str
    calls: int
    cost_usd: float


@tool(
    tier="execute",
    category="development",
    tags=["executor", "code"],
    capabilities=[Capability(action="execute", description="Run code", requires_confirmation=True)],
    errors=[*SANDBOX_ERRORS, ErrorCase("INVALID_INPUT", "session_files is asked for with TypeScript.", "Use Python.")],
    examples=[
        Example(name="Add squares", arguments={"code": "sum(n * n for n in range(10))"},
                output={"result": 285, "stdout": "", "stderr": ""}),
        Example(name="TypeScript", arguments={"code": "return [3, 1, 2].sort();", "language": "typescript"}),
    ],
)  # fmt: skip
async def code_execute(
    ctx: InvokeContext,
    code: Code,
    language: Language = "python",
    session_files: bool = False,
    timeout: Milliseconds | None = None,
) -> Executed:
    """Execute Python, TypeScript or JavaScript code in the sandbox: no network, no files of the host, no environment.

    Args:
        code: What to run. The result is the value of the last expression (Python) or what the code returns (TypeScript).
        language: python, typescript or javascript.
        session_files: Whether Python works in the call's working directory, with the files of earlier calls of the
            session, rather than in an empty folder that is gone afterwards.
        timeout: Milliseconds after which it is ended; at most what the setting sandbox.seconds allows.
    """
    sandbox: Sandbox = ctx.get(Sandbox)
    seconds = seconds_for(ctx, sandbox, timeout)
    space: Workspace | None = None
    if session_files:
        if language != "python":
            raise InvalidInput(
                f"{language} has no files here.",
                suggestion="Use Python, or run_program with the tools read_file and write_file.",
            )
        space = await workspace_of(ctx)
    ran = await sandbox.run_code(
        language, code, workspace=None if space is None else space.given(), seconds=seconds, depth=ctx.call.depth
    )
    if space is not None:
        ran = structs.replace(ran, stderr=await space.noted(ran.stderr, ran.left))
    executed: Executed = {
        "result": value_of(ctx, ran),
        "stdout": ran.stdout,
        "stderr": ran.stderr,
    }
    if ran.logs:
        executed["logs"] = [{"level": line.level, "message": line.message} for line in ran.logs]
    return executed


@tool(
    tier="execute",
    category="development",
    tags=["code", "agent"],
    capabilities=[Capability(action="execute", description="Run a program that calls tools", requires_confirmation=True)],
    errors=[*SANDBOX_ERRORS, ErrorCase("BUDGET_EXCEEDED", "Its calls would cost more than max_cost_usd.", "Raise it.")],
    examples=[
        Example(
            name="Two calls, one result",
            arguments={"code": "return (await tools.calculator({expression: '6 * 7'})).result + 1;"},
        )
    ],
)
async def run_program(
    ctx: InvokeContext,
    code: Code,
    language: Language = "typescript",
    max_calls: Annotated[int, Field(ge=0, le=MAX_PROGRAM_CALLS)] = 50,
    max_cost_usd: Annotated[float, Field(ge=0, le=1_000_000)] | None = None,
    timeout: Milliseconds | None = None,
) -> ProgramRan:
    """Run a program in the sandbox that calls tools: `await tools.NAME({...})` in TypeScript, `tools.NAME(key=value)` in
    Python. Only its result comes back. A call that fails throws ToolError.

    Args:
        code: The program. The result is what it returns (TypeScript) or the value of its last expression (Python).
        language: typescript, javascript or python.
        max_calls: Tool calls that it may make.
        max_cost_usd: What all its calls together may cost.
        timeout: Milliseconds after which it is ended.
    """
    sandbox: Sandbox = ctx.get(Sandbox)
    seconds = seconds_for(ctx, sandbox, timeout)
    calls = ProgramCalls(ctx, max_calls, None if max_cost_usd is None else nano(Decimal(str(max_cost_usd))))
    ran = await ctx.running(
        sandbox.run_code(language, code, mode="program", serve=calls.serve, seconds=seconds, depth=ctx.call.depth)
    )
    return {
        "result": value_of(ctx, ran),
        "stdout": ran.stdout,
        "stderr": ran.stderr,
        "calls": calls.made,
        "cost_usd": calls.spent / NANO,
    }


class ProgramCalls:
    """The calls of one program: how many it has left, and how much money."""

    def __init__(self, ctx: InvokeContext, most: int, most_nano: int | None) -> None:
        self._ctx = ctx
        self._most = most
        self._had = NO_LIMIT if most_nano is None else most_nano
        self._limit = SpendingLimit(self._had, above=ctx.call.spending_limit)
        self.made = 0

    @property
    def spent(self) -> int:
        """The cost of its calls, and of those that they made, in nano-dollars."""
        return self._had - self._limit.left

    async def serve(self, wanted: str, given: list[Any]) -> Any:
        """Answer the program: it may call tools, and ask for nothing else."""
        if wanted != "tool" or len(given) != 2 or not isinstance(given[0], str) or not isinstance(given[1], dict):
            raise Refusal("INVALID_INPUT", "A program can call tools: by a name, with named arguments.")
        name, arguments = given
        if name in NOT_INSIDE:
            raise Refusal("PERMISSION_DENIED", f"A program cannot call {name}.")
        try:
            return await self._counted(name, arguments)
        except CallError as error:
            raise Refusal(error.code, error.message) from None

    async def _counted(self, name: str, arguments: dict[str, Any]) -> Any:
        if self.made >= self._most:
            raise Refusal("RATE_LIMITED", f"The program has made the {self._most} calls that it may make.")
        self.made += 1
        return given(await self._ctx.call_inside(name, arguments, spending_limit=self._limit, whole=True))
