"""`toolgate policy check` and `test`: a policy before it decides."""

from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from toolgate.app.app import App
from toolgate.cli.context import AsJson, Usage, opened
from toolgate.cli.output import emit, note, say
from toolgate.errors import ToolgateError, nearest
from toolgate.gates.policy.cases import Case, Result, decider, read_cases, run_cases
from toolgate.gates.policy.documents import GivenDocument
from toolgate.gates.policy.engine import INPUT_FIELDS, EmbeddedEngine, RemoteEngine
from toolgate.gates.policy.rego import EmbeddedRego
from toolgate.gates.policy.rego_inputs import Trap, traps
from toolgate.yamltext import YamlError, read_yaml

SLOW_MS = 1.0
"""A decision that takes longer holds up every other call of the process by as much."""

checks = typer.Typer()
DataFile = Annotated[
    Path | None, typer.Option("--data", metavar="FILE", help="Documents from this JSON file instead of the ones in force.")
]


@checks.command()
async def check(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Rego file.", show_default=False)],
    data: DataFile = None,
    as_json: AsJson = False,
) -> int:
    """Check whether a policy can be used. Shows what it reads of a call, and whether documents have the right shape."""
    text = text_of(file)
    policy = EmbeddedRego(text)
    if data is not None:
        GivenDocument(json_of(data))
    milliseconds = policy.sample_milliseconds()
    warnings = [*traps(text), *await _unknown_arguments(ctx, policy)]
    if milliseconds > SLOW_MS:
        words = f"a decision takes about {milliseconds:.1f} ms: rules that differ only in values are quicker as a table"
        warnings.append(Trap(1, words))
    reads = [field for field in INPUT_FIELDS if field in policy.reads.context]
    if as_json:
        emit(
            {
                "ok": True, "hash": policy.hash, "reasons": policy.has_decision, "reads": reads,
                "decision_ms": round(milliseconds, 3),
                "warnings": [{"line": warning.line, "message": warning.words} for warning in warnings],
            }
        )  # fmt: skip
        return 0
    say(("✓ The policy compiles", "green"), f": {policy.hash[:16]}")
    given = "it has a rule decision" if policy.has_decision else "no rule named decision, so Toolgate words the reasons"
    say(f"  reasons: {given}")
    say(f"  reads of the context: {', '.join(reads) or 'nothing'}")
    if data is not None:
        say(("✓ The data has the right shape", "green"))
    for warning in warnings:
        note((f"! line {warning.line}: {warning.words}", "yellow"))
    return 0


async def _unknown_arguments(ctx: typer.Context, policy: EmbeddedRego) -> list[Trap]:
    """Arguments that no tool takes: most likely misspelled, but the tool may be one that comes later."""
    if not policy.arguments:
        return []

    try:
        async with opened(ctx) as app:
            known = {name for entry in app.tools.entries() for name in entry.tool.input_schema.get("properties", ())}
    except ToolgateError:  # the policy in force may be the one that is being mended
        return []
    return [
        Trap(argument.line, f"no tool takes an argument {argument.name}" + _did_you_mean(argument.name, known))
        for argument in policy.arguments
        if argument.name not in known
    ]


def _did_you_mean(name: str, known: set[str]) -> str:
    near = nearest(name, known)
    return f": did you mean {near}?" if near else ""


# -- cases


@checks.command("test")
async def run_tests(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Cases, as YAML or JSON.", show_default=False)],
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="FILE", help="This Rego file instead of the one that the cases name.")
    ] = None,
    data: DataFile = None,
    as_json: AsJson = False,
) -> int:
    """Test a policy with the cases of a file. Exit 1 if it decides one of them otherwise than expected."""
    try:
        given = read_cases(read_yaml(text_of(file).encode()).value)
    except YamlError as error:
        where = f" at line {error.position.line}" if error.position else ""
        raise Usage(f"{file} can't be read{where}: {error.message}.") from None
    named = policy or (None if given.policy is None else file.parent / given.policy)
    candidate = None if named is None else EmbeddedRego(text_of(named))
    documents = (
        GivenDocument(json_of(data)) if data is not None else None if given.data is None else GivenDocument(given.data)
    )
    if candidate is not None and documents is not None:
        results = run_cases(given.cases, decider(candidate, documents))
    else:
        results = await _run_cases(ctx, candidate, documents, given.cases)
    failed = [result for result in results if not result.ok]
    if as_json:
        emit({"passed": len(results) - len(failed), "failed": len(failed), "cases": [_told(each) for each in results]})
        return 1 if failed else 0
    for result in failed:
        expected = "allow" if result.case.allow else "deny"
        if result.case.reason:
            expected += f" with {result.case.reason!r} in its reason"
        got = "allow" if result.decision.allow else "deny"
        say(("✗ ", "red"), f"{result.case.name}: expected {expected}, got {got}: {result.decision.reason}")
    say((f"{len(results) - len(failed)} passed, {len(failed)} failed", "red" if failed else "green"))
    return 1 if failed else 0


async def _run_cases(
    ctx: typer.Context, candidate: EmbeddedRego | None, documents: GivenDocument | None, cases: list[Case]
) -> list[Result]:
    async with opened(ctx) as app:
        return run_cases(cases, decider(candidate or embedded(app), documents or app.policy.data))


def _told(result: Result) -> dict[str, Any]:
    case, decision = result.case, result.decision
    expected = "allow" if case.allow else "deny"
    return {"name": case.name, "ok": result.ok, "expected": expected, "allow": decision.allow, "reason": decision.reason}


# -- what the commands share


def embedded(app: App) -> EmbeddedEngine:
    engine: EmbeddedEngine | RemoteEngine = app.policy.engine
    if engine.remote is True:
        raise Usage("An OPA server decides here, by its own data.", suggestion="Name a policy as well: --policy FILE.")
    return engine


def text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"{file} can't be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}.") from None


def json_of(file: Path) -> Any:
    try:
        return orjson.loads(text_of(file))
    except orjson.JSONDecodeError as error:
        raise Usage(f"{file} is not JSON: {error}.") from None
