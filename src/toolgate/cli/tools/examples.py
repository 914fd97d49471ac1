"""`toolgate tools test`: a custom tool's own examples, called as anybody would, and compared with what they promise."""

from typing import Any, NamedTuple

import orjson
import typer

from toolgate.app.app import App
from toolgate.cli.catalog import find
from toolgate.cli.context import NotFound, diverted, opened
from toolgate.cli.output import Part, emit, note, say
from toolgate.cli.prompt import approver_for
from toolgate.cli.table import table
from toolgate.errors import plural
from toolgate.model import LOCAL, Example, Outcome

MAX_SHOWN_CHARS = 500
"""Characters of a value that a person is shown."""
RESULT_MARKS: dict[bool, Part] = {True: ("✓", "green"), False: ("✗", "red")}


class ExampleRun(NamedTuple):
    """An example, and what came of it."""

    label: str
    example: Example
    outcome: Outcome
    why: str | None
    """Why it did not pass; None if it did."""


async def run_examples(ctx: typer.Context, name: str, *, yes: bool, as_json: bool) -> int:
    """`tools test`."""

    async with opened(ctx) as app:
        tried = await _try_all(app, name, yes=yes)
    failed = [one for one in tried if one.why is not None]
    if as_json:
        emit(
            {
                "tool": name, "passed": len(tried) - len(failed), "failed": len(failed),
                "examples": [_plain(one) for one in tried],
            }
        )  # fmt: skip
    else:
        _say(name, tried, failed)
    return 1 if failed else 0


async def _try_all(app: App, name: str, *, yes: bool) -> list[ExampleRun]:
    program = (await find(app, name, LOCAL)).entry.tool.program
    if program is None or not program.examples:
        kind = "it is no custom tool" if program is None else "its file names none"
        raise NotFound(
            f"{name} has no examples to run: {kind}.",
            suggestion=None if program is None else "Add some under `examples:`; `toolgate tools new` shows how.",
        )
    return [await _try(app, name, number, example, yes=yes) for number, example in enumerate(program.examples, 1)]


async def _try(app: App, name: str, number: int, example: Example, *, yes: bool) -> ExampleRun:
    approver = approver_for(name, app.approvals.canonical, yes=yes)
    if approver is not None and (yes or number == 1):  # a yes is for one call, a person answers all of them
        app.approvals.add_approver(approver)
    with diverted():
        outcome = await app.invoke(name, example.arguments, actor=LOCAL, door="cli")
    return ExampleRun(example.name or f"example {number}", example, outcome, _why_not(example, outcome))


def _why_not(example: Example, outcome: Outcome) -> str | None:
    """Why an outcome is not what an example promises; None if it is."""
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
    """Whether two JSON values are equal: 1 is 1.0, and true is not 1."""
    if isinstance(expected, bool) or isinstance(given, bool):
        return expected is given
    if isinstance(expected, dict) and isinstance(given, dict):
        return expected.keys() == given.keys() and all(same(value, given[key]) for key, value in expected.items())
    if isinstance(expected, list) and isinstance(given, list):
        return len(expected) == len(given) and all(map(same, expected, given))
    return bool(expected == given)


# -- words


def _plain(one: ExampleRun) -> dict[str, Any]:
    return {"name": one.label, "passed": one.why is None, "why": one.why, "outcome": one.outcome.to_dict()}


def _say(name: str, tried: list[ExampleRun], failed: list[ExampleRun]) -> None:
    rows = [
        [RESULT_MARKS[one.why is None], one.label, _ended(one.outcome), f"{one.outcome.metrics.duration_ms:,.1f}"]
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


def _ended(outcome: Outcome) -> str:
    return outcome.error.code if outcome.error is not None else outcome.status


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]} … ({len(text):,} characters)"
