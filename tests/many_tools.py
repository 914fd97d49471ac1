"""Hundreds of tools that do something, for the tests of discovery."""

from typing import Any

from toolgate import tool

NOUNS = (
    "invoice", "parcel", "employee", "vehicle", "ticket", "meeting", "contract", "warehouse", "flight", "patient",
    "recipe", "lesson", "server", "camera", "statue",
)  # fmt: skip
VERBS = (
    "archive", "assign", "compare", "convert", "count", "describe", "export", "import", "inspect", "merge", "print",
    "reserve", "restore", "schedule", "share", "sort", "split", "summarise", "translate", "weigh",
)  # fmt: skip


def made(verb: str, noun: str) -> Any:
    """A tool named after what it does."""

    async def work(number: int, note: str = "") -> str:
        return f"{verb} {noun} {number} {note}".strip()

    work.__doc__ = f"{verb.capitalize()} the {noun} of a number, with a note beside it.\n\nArgs:\n    number: Of the {noun}."
    return tool(name=f"{verb}_{noun}", tier="read_only")(work)


def many(most: int = 300) -> list[Any]:
    """So many tools, at most 300."""
    return [made(verb, noun) for noun in NOUNS for verb in VERBS][:most]
