"""The runner of tools whose code runs in the sandbox, and what that code may ask of the host.

Every question it asks that touches anything (a file, a command, another tool) is a call of a tool through the pipeline, as
the same actor: the code has the rights of its caller, and the log has each of its steps.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from toolgate.errors import CallError, Failed, ToolgateError, quoted, timed_out
from toolgate.model import Actor, CommandEntry, Entry, ToolProgram
from toolgate.pipeline.context import InvokeContext
from toolgate.sandbox.completions import completion_request
from toolgate.sandbox.engine import LANGUAGES, Sandbox
from toolgate.sandbox.results import CodeResult, as_error, limit_error
from toolgate.sandbox.worker_protocol import CodeFailure, Refusal, given
from toolgate.sandbox.workspaces import Workspaces

MAX_HOST_CALLS = 1_000
"""Questions of one call of a custom tool."""
MAX_CONCURRENT_ANSWERS = 4
"""Answers that are made for it at the same time: each may be a whole file."""
MayRun = Callable[[InvokeContext, str, tuple[CommandEntry, ...] | None], Awaitable[bool]]
"""Tells whether a command would be let through for the caller, given what the tool's definition allows."""


class SandboxRunner:
    """Runs tools of kind sandbox."""

    def __init__(
        self, sandbox: Sandbox, places: Workspaces, may_run: MayRun, *, docker: bool, has_model: Callable[[Actor], bool]
    ) -> None:
        """`has_model`: tells whether there is a language model for an actor."""
        self._sandbox = sandbox
        self._places = places
        self._may_run = may_run
        self._docker = docker
        self._has_model = has_model

    async def run(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> Any:
        """Run the tool within the time that it has, whatever it waits for: a place, a worker, its code to be compiled."""
        try:
            async with asyncio.timeout(ctx.time_limit) as time:
                return await self._run(ctx, entry, arguments)
        except TimeoutError:
            if not time.expired():
                raise
            raise timed_out(ctx.time_limit) from None

    async def _run(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> Any:
        program = entry.tool.program
        if program is None:
            raise Failed("UNKNOWN_TOOL_TYPE", f"{entry.name} is to run in the sandbox, but its definition has no code.")
        bridge = Bridge(ctx, program, self._may_run, trusted=entry.tool.source != "dynamic")
        limit = ctx.time_limit if entry.run_seconds is None else min(entry.run_seconds, ctx.time_limit)
        language = LANGUAGES[program.runtime]
        wrong = await self._sandbox.check(language, program.code, depth=ctx.call.depth)
        if wrong is not None:
            raise as_error(wrong)
        running = self._sandbox.run_code(
            language,
            program.code,
            mode="tool",
            name=entry.name,
            arguments=arguments,
            context=self._context(ctx),
            serve=bridge.serve,
            seconds=limit,
            depth=ctx.call.depth,
        )
        ran = await ctx.running(running)
        value = value_of(ctx, ran)
        if value is None and ran.stdout.strip():
            words = "execute gave nothing back, and printed instead: what a tool is to give, it returns"
            raise as_error(CodeFailure("value", words), ran)
        return value

    def _context(self, ctx: InvokeContext) -> dict[str, Any]:
        """Tells the code where it runs; nothing of it is a secret."""
        try:
            folder = str(self._places.of(ctx.call))
        except ToolgateError:  # nothing may work there: whoever tries is told
            folder = None
        return {
            "config": {"workingDirectory": folder, "maxExecutionTime": round(ctx.time_limit * 1000)},
            "conversation": {"id": ctx.session or ctx.id, "workingDirectory": folder},
            "docker": self._docker,
            "llm": self._has_model(ctx.actor),
        }

    async def close(self) -> list[str]:
        await self._sandbox.close()
        return []


def value_of(ctx: InvokeContext, ran: CodeResult) -> Any:
    """The value that code gave; raises if it failed or was stopped. Its log lines, and what held it, go into the call's
    record: a model does not need them."""
    ctx.used(f"sandbox:{ran.lane}:{ran.jail}")
    means = ", ".join(f"{feature} by {how}" for feature, how in ran.enforced.items())
    ctx.log(f"held by {ran.jail}: {means}", "debug")
    for line in ran.logs:
        ctx.log(line.message, line.level)
    if ran.stopped is not None:
        raise limit_error(ran)
    if ran.failure is not None:
        raise as_error(ran.failure, ran)
    return ran.value


class Bridge:
    """Answers what one run of a tool's code may ask for."""

    def __init__(self, ctx: InvokeContext, program: ToolProgram, may_run: MayRun, *, trusted: bool) -> None:
        self._ctx = ctx
        self._asked = 0
        self._room = asyncio.Semaphore(MAX_CONCURRENT_ANSWERS)
        self._may_run = may_run
        self._allow = program.allowlist if trusted else None
        """A list that a person wrote into a file beside the settings counts as they do; one sent in at run time does not."""
        self._answers: dict[str, Callable[..., Awaitable[Any]]] = {
            "fs.readFile": self._read_file,
            "fs.writeFile": self._write_file,
            "fs.exists": self._exists,
            "fs.readdir": self._list,
            "fs.stat": self._stat,
            "fs.mkdir": self._make_folder,
            "executor.execute": self._execute,
            "permissions.check": self._check,
            "docker.run": self._docker_run,
            "llm.complete": self._complete,
        }

    async def serve(self, wanted: str, given: list[Any]) -> Any:
        """Answer a question; a Refusal is told to the code."""
        answer = self._answers.get(wanted)
        if answer is None:
            raise Refusal("PERMISSION_DENIED", f"There is no function {quoted(wanted)} here.")
        self._asked += 1
        if self._asked > MAX_HOST_CALLS:
            raise Refusal(
                "RATE_LIMITED", f"The tool has asked the host {MAX_HOST_CALLS} times, which is the most in one call."
            )
        try:
            async with self._room:
                return await answer(*given)
        except CallError as error:
            raise Refusal(error.code, error.message) from None
        except TypeError:
            raise Refusal("INVALID_INPUT", f"{wanted} cannot be called with these arguments.") from None

    # -- files

    async def _read_file(self, path: Any, _encoding: Any = None) -> str:
        output = await self._call("read_file", {"path": path})
        return str(output["content"])

    async def _write_file(self, path: Any, text: Any, *_options: Any) -> None:
        await self._call("write_file", {"path": path, "content": text})

    async def _exists(self, path: Any) -> bool:
        outcome = await self._ctx.call_inside("list_directory", {"path": path})
        if outcome.error is not None and (outcome.error.details or {}).get("missing"):
            return False
        given(outcome)
        return True

    async def _list(self, path: Any = ".", *_options: Any) -> list[str]:
        output = await self._call("list_directory", {"path": path})
        return [str(found["name"]) for found in output["entries"]]

    async def _stat(self, path: Any) -> dict[str, Any]:
        output = await self._call("list_directory", {"path": path, "self": True})
        found: dict[str, Any] = output["entries"][0]
        return found

    async def _make_folder(self, path: Any, *_options: Any) -> None:
        await self._call("create_directory", {"path": path})

    # -- commands

    async def _execute(self, command: Any, words: Any = None, options: Any = None) -> dict[str, Any]:
        """E's executor, in both its forms: (command, args, options) and ({command, args, cwd, timeout})."""
        asked = dict(command) if isinstance(command, dict) else {**_mapping(options), "command": command, "args": words}
        arguments = {name: asked.get(name) for name in ("command", "cwd", "timeout")} | {"args": asked.get("args") or []}
        given = {name: value for name, value in arguments.items() if value is not None}
        output = await self._call("execute_command", given, allow=self._allow)
        return {"stdout": output["stdout"], "stderr": output["stderr"], "exitCode": output["exitCode"]}

    async def _check(self, command: Any, *_rest: Any) -> bool:
        return isinstance(command, str) and await self._may_run(self._ctx, command, self._allow)

    async def _docker_run(self, options: Any) -> Any:
        return await self._call("docker_run", _mapping(options))

    # -- the language model

    async def _complete(self, asked: Any, options: Any = None) -> dict[str, Any]:
        arguments = {**completion_request(asked, options), "purpose": f"for the code of the tool {self._ctx.call.tool}"}
        output = given(await self._ctx.call_inside("ask_model", arguments, whole=True, internal=True))
        return {name: output[name] for name in ("text", "ending", "model", "tokens")}

    # -- through the pipeline

    async def _call(self, tool: str, arguments: dict[str, Any], allow: tuple[CommandEntry, ...] | None = None) -> Any:
        return given(await self._ctx.call_inside(tool, arguments, allow=allow, whole=True))


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}
