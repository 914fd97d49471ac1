"""`type_check`: the types of TypeScript and Python, checked by Deno and pyrefly in the sandbox.

Both read hostile sources, so each works in the jail, on a copy of the sources alone, with a configuration of ours.
"""

from pathlib import Path
from typing import Literal

import msgspec
from typing_extensions import TypedDict

from toolgate.errors import NotReached, ToolError
from toolgate.extras import install_command, not_installed, program_of
from toolgate.model import Capability, ErrorCase, Example
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool
from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.jail import MB, ProgramFolder, Spec, Unavailable
from toolgate.sandbox.results import CommandResult, limit_error, unavailable
from toolgate.sandbox.runtimes.deno import find_deno
from toolgate.sandbox.tenant_places import tenant_places
from toolgate.tasks import finish
from toolgate.threads import to_thread
from toolgate.tools import python_check, typescript_check
from toolgate.tools.call_folder import folder_of
from toolgate.tools.source_copy import CheckedLanguage, SourceCopy
from toolgate.tools.typescript_check import TypeFault, TypeScriptReport

MAX_LISTED_FAULTS = 200


class TypeChecked(TypedDict):
    """What the checkers found. `complete`: false if some of it was not checked, or there are more faults than are listed."""

    success: bool
    errors: list[TypeFault]
    warnings: list[TypeFault]
    filesChecked: int
    complete: bool


@tool(
    tier="read_only",
    category="validation",
    timeout=120,
    tags=["code", "typescript", "python"],
    capabilities=[Capability(action="check", description="Run TypeScript compiler to check types")],
    errors=[
        ErrorCase("INVALID_INPUT", "projectPath holds no TypeScript or Python", "name a source or a folder with some"),
        ErrorCase("SECURITY_VIOLATION", "projectPath leads out of the working directory", "name a path in it"),
        ErrorCase("SANDBOX_UNAVAILABLE", "nothing can hold the checker, or it is not installed", "see toolgate doctor"),
        ErrorCase("SANDBOX_ERROR", "the checker met a limit of the sandbox", "check a smaller folder"),
        ErrorCase("TIMEOUT", "the checker takes longer than sandbox.seconds", "check a smaller folder"),
    ],
    examples=[Example(name="folder", arguments={"projectPath": "src"})],
)
async def type_check(
    ctx: InvokeContext,
    projectPath: str = ".",
    strict: bool = True,
    language: Literal["typescript", "python"] | None = None,
) -> TypeChecked:
    """Check the types of TypeScript and Python sources. Packages are not installed: their imports count as any.

    Args:
        projectPath: A source or a folder, relative to the working directory.
        strict: Whether the strict rules of the checker hold.
        language: Only this one.
    """
    sandbox: Sandbox = ctx.get(Sandbox)
    work = await folder_of(ctx)
    languages: tuple[CheckedLanguage, ...] = ("typescript", "python") if language is None else (language,)
    copied = await to_thread(SourceCopy, work, projectPath, languages, sandbox.limits.disk // 2)
    try:
        async with tenant_places().place(ctx.actor.tenant):
            errors, warnings, complete = await _check(ctx, sandbox, copied, strict)
    finally:
        await finish(to_thread(copied.remove))
    ctx.used(projectPath, "sandbox")
    complete = complete and not copied.truncated and max(len(errors), len(warnings)) <= MAX_LISTED_FAULTS
    return {
        "success": not errors, "errors": errors[:MAX_LISTED_FAULTS], "warnings": warnings[:MAX_LISTED_FAULTS],
        "filesChecked": sum(map(len, copied.checked.values())), "complete": complete,
    }  # fmt: skip


async def _check(
    ctx: InvokeContext, sandbox: Sandbox, copied: SourceCopy, strict: bool
) -> tuple[list[TypeFault], list[TypeFault], bool]:
    errors: list[TypeFault] = []
    warnings: list[TypeFault] = []
    complete = True
    if "typescript" in copied.checked:
        report = await _check_typescript(ctx, sandbox, copied, strict)
        errors, warnings, complete = report.errors, report.warnings, not report.stopped_early
    if "python" in copied.checked:
        found = await _check_python(ctx, sandbox, copied, strict)
        errors, warnings = errors + found[0], warnings + found[1]
    return errors, warnings, complete


async def _check_typescript(ctx: InvokeContext, sandbox: Sandbox, copied: SourceCopy, strict: bool) -> TypeScriptReport:
    try:
        deno = find_deno(sandbox.settings.deno)
    except Unavailable as error:
        raise unavailable(error.message, error.suggestion) from error
    arguments = await to_thread(typescript_check.configure, copied.top, copied.texts(), strict=strict)
    heap = f"--v8-flags=--max-old-space-size={max(64, sandbox.limits.memory // MB - 64)}"
    files = [str(copied.folder / name) for name in copied.checked["typescript"]]
    ended = await _run(ctx, sandbox, deno, [*arguments, heap, *files], copied, **typescript_check.environment(copied.top))
    report = TypeScriptReport(ended.stderr, copied.folder)
    if ended.exit_code != 0 and not report.errors and not report.warnings:
        raise ToolError("The checker of TypeScript gave no report.", suggestion="Check fewer files.")
    return report


async def _check_python(
    ctx: InvokeContext, sandbox: Sandbox, copied: SourceCopy, strict: bool
) -> tuple[list[TypeFault], list[TypeFault]]:
    pyrefly = program_of("pyrefly")
    if pyrefly is None:
        raise NotReached("SANDBOX_UNAVAILABLE", not_installed("code"), suggestion=install_command("code"))
    files = copied.checked["python"]
    arguments = await to_thread(python_check.configure, copied.top, copied.folder, files, strict=strict)
    ended = await _run(ctx, sandbox, pyrefly.resolve(), arguments, copied)
    return python_check.read_report(ended.stdout, copied.folder)


async def _run(
    ctx: InvokeContext, sandbox: Sandbox, program: Path, arguments: list[str], copied: SourceCopy, **environment: str
) -> CommandResult:
    """Runs a checker to its end. It is of the kind that may start no other program."""
    seconds = min(sandbox.limits.seconds, ctx.time_limit)
    spec = Spec(
        profile="deno", argv=(str(program), *arguments), environment=tuple(sorted(environment.items())),
        readable=(program,), limits=msgspec.structs.replace(sandbox.limits, seconds=seconds),
    )  # fmt: skip
    ended = await sandbox.run_own(spec, b"", workspace=ProgramFolder(path=copied.top), depth=ctx.call.depth)
    if ended.stopped is not None:
        raise limit_error(msgspec.structs.replace(ended, stdout="", stderr=""))  # it names folders of this machine
    return ended
