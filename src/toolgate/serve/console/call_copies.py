"""A call in the words of other doors: as a line for a shell, and as a program in Python."""

import json
import pprint
import shlex
from typing import Any

from toolgate.model import LOCAL, MASK, Actor
from toolgate.serve.http.invocations import CallDetail

MAX_CHARS = 20_000
"""Of arguments that are offered for copying; larger ones are in the page's twin."""


def is_masked(value: Any) -> bool:
    """Tells whether something in a value, at whatever depth, was masked."""
    if isinstance(value, dict):
        return any(is_masked(name) or is_masked(part) for name, part in value.items())
    if isinstance(value, list):
        return any(map(is_masked, value))
    return isinstance(value, str) and MASK in value


def copies_of(call: CallDetail) -> dict[str, str]:
    """The call as JSON, as a command and in Python, by the name of each; nothing if its arguments are not on record."""
    if not isinstance(call.arguments, dict):
        return {}
    text = json.dumps(call.arguments)
    if len(text) > MAX_CHARS:
        return {}
    actor = Actor(call.tenant, call.persona, call.user)
    return {
        "JSON": json.dumps(call.arguments, indent=2),
        "Command": command_of(call.tool, text, actor),
        "Python": program_of(call.tool, call.arguments, actor),
    }


def command_of(tool: str, arguments: str, actor: Actor) -> str:
    """A line for a shell. Everything in it is quoted, so that it means one thing, whatever a caller put there."""
    words = ["toolgate", "call"]
    for name in ("tenant", "persona", "user"):
        value = getattr(actor, name)
        if value not in (None, getattr(LOCAL, name)):
            words.append(f"--{name}={value}")
    words += [f"--args={arguments}", "--", tool]
    return shlex.join(words)


def program_of(tool: str, arguments: dict[str, Any], actor: Actor) -> str:
    given = pprint.pformat(arguments, width=100, sort_dicts=False)
    lines = ascii_only(given).replace("\n", "\n            ")
    who = ", ".join(f"{name}={getattr(actor, name)!a}" for name in ("tenant", "persona", "user"))
    return (
        "import asyncio\n\nfrom toolgate import Actor, App\n\n\nasync def main() -> None:\n"
        "    async with App.open() as app:\n"
        f"        outcome = await app.invoke(\n            {tool!a},\n            {lines},\n"
        f"            actor=Actor({who}),\n        )\n        print(outcome)\n\n\nasyncio.run(main())\n"
    )


def ascii_only(source: str) -> str:
    """Python source in which every character of a text that is not ASCII is written as its number."""
    return source.encode("ascii", "backslashreplace").decode("ascii")
