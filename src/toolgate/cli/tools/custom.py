"""`toolgate tools add`, `new` and `test`: custom tools as files, and their own examples."""

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import orjson
import typer

from toolgate.app.app import App
from toolgate.app.tools import AddedTool
from toolgate.cli.catalog import find
from toolgate.cli.context import NotFound, Usage, argument, diverted, opened, option
from toolgate.cli.openapi import add_document
from toolgate.cli.output import Part, Unwritable, answered, note, say
from toolgate.cli.prompt import approver_for
from toolgate.cli.table import table
from toolgate.errors import plural
from toolgate.model import LOCAL, TOOL_NAME, Example, Outcome, Runtime
from toolgate.sandbox.custom.yaml_file import read_tool_file
from toolgate.yamltext import scalar


async def add(
    ctx: typer.Context,
    from_file: Annotated[
        Path | None, option("--from-file FILE", "The YAML file of a custom tool.", show_default=False)
    ] = None,
    openapi: Annotated[
        str | None, option("--openapi FILE_OR_URL", "An OpenAPI document: each of its operations is a tool.")
    ] = None,
    name: Annotated[str | None, option("--name PREFIX", "Of a document: what the names of its tools begin with.")] = None,
    operations: Annotated[
        list[str] | None,
        option("--operations GLOB", "Of a document: only these, by operationId or 'GET /path'. Repeatable."),
    ] = None,
    server: Annotated[str | None, option("--server URL", "Of a document: the base URL in place of its own.")] = None,
    secret: Annotated[
        list[str] | None,
        option("--secret SCHEME=NAME", "Of a document: the secret that a security scheme sends. Repeatable."),
    ] = None,
    force: Annotated[bool, option("--force", "Replace the custom tool or the document of the same name.")] = False,
) -> int:
    """Add a custom tool, or an OpenAPI document.

    The tool from its file, of which all is checked, its code too; or the operations of the document.
    What comes from a document waits until it is accepted (`toolgate tools accept`)."""
    if openapi is not None and from_file is None:
        return await add_document(
            ctx, openapi, name=name, operations=operations or [], server=server, secrets=secret or [], force=force
        )
    if from_file is None or openapi is not None or name or operations or server or secret:
        raise Usage("Say either --from-file FILE or --openapi FILE_OR_URL; --name and the like are for a document.")
    if not from_file.exists():
        raise NotFound(f"There is no file {from_file}.")
    content = read_tool_file(from_file)
    async with opened(ctx) as app:
        added, loads = await _add(app, content, from_file, force=force), app.settings.auto_load_custom_tools
    if answered(_plain(added, loads)):
        return 0
    entry, examples = added.tool.entry, added.tool.entry.tool.examples
    say(
        ("✓ Replaced tool" if added.replaced else "✓ Added tool", "green"),
        f": {entry.name} ({added.tool.program.runtime}, tier {entry.tier}) in {added.file}",
    )
    if entry.asks:
        note(f"A person is asked before it runs: {entry.asks}.")
    _note_troubles(added, loads)
    if examples:
        note(f"Run its {plural(len(examples), 'example')}: toolgate tools test {entry.name}")
    return 0


async def new(
    ctx: typer.Context,
    name: Annotated[str, argument("NAME", "What the tool is to be called.")],
    runtime: Annotated[Runtime, option("--runtime", "What it is written in.")] = "typescript",
) -> int:
    """Write a custom tool to start from. It works as it is, and is to be changed into the one that is wanted."""
    if not TOOL_NAME.match(name):
        raise Usage(
            f"{name!r:.80} is not a valid name of a tool.",
            suggestion="A name is a letter, then letters, digits, _ and -, at most 64 characters in all.",
        )
    async with opened(ctx) as app:
        added = await _add(app, template(name, runtime), app.settings.home / "tools" / f"{name}.yml")
        loads = app.settings.auto_load_custom_tools
    if answered(_plain(added, loads)):
        return 0
    say(("✓ New tool", "green"), f": {name} ({runtime}) in {added.file}")
    _note_troubles(added, loads)
    steps = {
        f"toolgate tools test {name}": f"runs its {plural(len(added.tool.entry.tool.examples), 'example')}",
        f"toolgate call {name} name=Ada": "calls it",
        "toolgate trust": "accepts the file after you edited it",
    }
    width = max(map(len, steps))
    lines = [f"  {command:<{width}}  {does}" for command, does in steps.items()]
    note("\n".join(("It greets somebody. Change it into the tool that you need. Next:", *lines)), lines=True)
    return 0


async def _add(app: App, content: bytes, file: Path, *, force: bool = False) -> AddedTool:
    try:
        return await app.tools.add_custom(content, file, replace=force)
    except OSError as error:
        raise Unwritable(error.filename or file, error) from None


def _plain(added: AddedTool, loads: bool) -> dict[str, Any]:
    entry, program = added.tool.entry, added.tool.program
    return {
        "tool": entry.name, "file": str(added.file), "replaced": added.replaced, "tier": entry.tier,
        "runtime": program.runtime, "asks": entry.asks, "examples": len(entry.tool.examples), "loads": loads,
        "unchecked": added.unchecked, "fingerprint": entry.fingerprint,
    }  # fmt: skip


def _note_troubles(added: AddedTool, loads: bool) -> None:
    if added.unchecked:
        note((f"Its code could not be checked. {added.unchecked}", "yellow"))
    if not loads:
        note(("It is not loaded by itself: the setting auto_load_custom_tools is false.", "yellow"))


# -- examples

MAX_SHOWN_CHARS = 500
"""Characters of a value that a person is shown."""
RESULT_MARKS: dict[bool, Part] = {True: ("✓", "green"), False: ("✗", "red")}


class ExampleRun(NamedTuple):
    """An example, and what came of it."""

    label: str
    example: Example
    outcome: Outcome
    why: str | None
    """The reason why it did not pass; None if it did."""


async def test(
    ctx: typer.Context,
    name: Annotated[str, argument("NAME", "The custom tool.")],
    yes: Annotated[bool, option("--yes", "Approve each example as the person at this machine.")] = False,
) -> int:
    """Run a custom tool's own examples, and compare. Exit 0 if all of them pass."""
    async with opened(ctx) as app:
        tried = await _try_all(app, name, yes=yes)
    failed = [one for one in tried if one.why is not None]
    told = {
        "tool": name, "passed": len(tried) - len(failed), "failed": len(failed),
        "examples": [
            {"name": one.label, "passed": one.why is None, "why": one.why, "outcome": one.outcome.to_dict()}
            for one in tried
        ],
    }  # fmt: skip
    if not answered(told):
        _say_examples(name, tried, failed)
    return 1 if failed else 0


async def _try_all(app: App, name: str, *, yes: bool) -> list[ExampleRun]:
    tool = (await find(app, name, LOCAL)).entry.tool
    if not tool.examples:
        raise NotFound(
            f"{name} has no examples to run: its {'definition' if tool.program is None else 'file'} names none.",
            suggestion=None if tool.program is None else "Add some under `examples:`; `toolgate tools new` shows how.",
        )
    return [await _try(app, name, number, example, yes=yes) for number, example in enumerate(tool.examples, 1)]


async def _try(app: App, name: str, number: int, example: Example, *, yes: bool) -> ExampleRun:
    approver = approver_for(name, app.approvals.canonical, yes=yes)
    if approver is not None and (yes or number == 1):  # a yes is for one call, a person answers all of them
        app.approvals.add_approver(approver)
    with diverted():
        outcome = await app.invoke(name, example.arguments, actor=LOCAL, door="cli")
    return ExampleRun(example.name or f"example {number}", example, outcome, _why_not(example, outcome))


def _why_not(example: Example, outcome: Outcome) -> str | None:
    """The reason why an outcome is not what an example promises; None if it is."""
    error = outcome.error
    if error is not None and error.code == example.error:
        return None
    if outcome.pending is not None:
        return f"it waits for a person's approval ({outcome.pending.id}): use --yes, or a terminal"
    if error is not None:
        expected = f"{example.error} was expected; " if example.error else ""
        return f"{expected}{error.code}: {error.message}"
    if example.error is not None:
        return f"{example.error} was expected, it gave {_shown(outcome.output)}"
    if "output" in example.model_fields_set and not same(example.output, outcome.output):
        return f"expected {_shown(example.output)}, it gave {_shown(outcome.output)}"
    return None


def same(expected: Any, given: Any) -> bool:
    """True if two JSON values are equal: 1 is 1.0, and true is not 1."""
    if isinstance(expected, bool) or isinstance(given, bool):
        return expected is given
    if isinstance(expected, dict) and isinstance(given, dict):
        return expected.keys() == given.keys() and all(same(value, given[key]) for key, value in expected.items())
    if isinstance(expected, list) and isinstance(given, list):
        return len(expected) == len(given) and all(map(same, expected, given))
    return bool(expected == given)


def _say_examples(name: str, tried: list[ExampleRun], failed: list[ExampleRun]) -> None:
    rows = [
        [
            RESULT_MARKS[one.why is None],
            one.label,
            one.outcome.error.code if one.outcome.error is not None else one.outcome.status,
            f"{one.outcome.metrics.duration_ms:,.1f}",
        ]
        for one in tried
    ]
    table(["", "example", "outcome", ">ms"], rows)
    for one in failed:
        note((f"{one.label}: ", "bold"), (one.why or "", "red"))
        if one.outcome.error is not None and one.outcome.error.suggestion and one.outcome.pending is None:
            note(f"  {one.outcome.error.suggestion}")
    say(
        f"\n{name}: {plural(len(tried) - len(failed), 'example')} passed",
        (f", {len(failed)} failed" if failed else "", "red"),
        lines=True,
    )


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]} … ({len(text):,} characters)"


# -- what `new` writes: a tool in each runtime that works as it stands, with comments for its author

HEAD_LINES = """\
# A custom tool, which Toolgate loads from here. After an edit, run `toolgate trust`: then it is loaded again.
name: {name}
description: Greet somebody by name.  # what a model reads when it chooses a tool

schema:  # JSON Schema of the arguments
  type: object
  properties:
    name:
      type: string
      minLength: 1
      description: Who is greeted.
    loud:
      type: boolean
      description: Whether to shout.
  required: [name]
  additionalProperties: false

runtime: {runtime}

permissions:
  riskLevel: low  # low: read_only, medium: write, high or critical: execute, which asks before each call
  # autoAccept: false  # ask before each call, whatever the risk
  # allowlist: ["npm test"]  # commands that it may run, word by word

"""

TYPESCRIPT = """\
code: |
  interface Args {
    name: string;
    loud?: boolean;
  }

  // context has config, conversation, logger, permissions.check, platform.fs and platform.executor.
  // What it asks of the platform is a call of its own: checked, asked about and recorded like any other.
  export async function execute(args: Args, context: ToolContext): Promise<string> {
    context.logger.info(`greeting ${args.name}`);
    const greeting = `Hello, ${args.name}!`;
    return args.loud ? greeting.toUpperCase() : greeting;
  }
"""

NODE = """\
code: |
  // context has config, conversation, logger, permissions.check, platform.fs and platform.executor.
  // What it asks of the platform is a call of its own: checked, asked about and recorded like any other.
  export async function execute(args, context) {
    context.logger.info(`greeting ${args.name}`);
    const greeting = `Hello, ${args.name}!`;
    return args.loud ? greeting.toUpperCase() : greeting;
  }
"""

PYTHON = """\
code: |
  # context has config, conversation, logger, permissions.check, platform.fs and platform.executor.
  # What it asks of the platform is a call of its own: checked, asked about and recorded like any other.
  # `async def` works as well; then these methods are awaited.
  def execute(args, context):
      context.logger.info(f"greeting {args['name']}")
      greeting = f"Hello, {args['name']}!"
      return greeting.upper() if args.get("loud") else greeting
"""

EXAMPLE_LINES = """
examples:  # run by `toolgate tools test {name}`
  - name: a greeting
    arguments: {{name: Ada}}
    output: Hello, Ada!
  - name: a loud one
    arguments: {{name: Ada, loud: true}}
    output: HELLO, ADA!
  - name: somebody has to be greeted
    arguments: {{}}
    error: VALIDATION_ERROR
"""

CODE_LINES: dict[Runtime, str] = {"typescript": TYPESCRIPT, "node": NODE, "python": PYTHON}


def template(name: str, runtime: Runtime) -> bytes:
    """The file of a new tool."""
    written = name if scalar(name) == name else orjson.dumps(name).decode()  # a tool may be called true
    text = HEAD_LINES.format(name=written, runtime=runtime) + CODE_LINES[runtime] + EXAMPLE_LINES.format(name=name)
    return text.encode()
