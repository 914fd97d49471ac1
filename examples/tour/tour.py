"""A tour of Toolgate in two minutes: the commands that a person would type, run for real in a folder of their own.

On a terminal it stops after each scene: Enter goes on, s shows the rest without stops, q ends it. Without one it runs on.
It fails if a command does not end as the tour says, so it also tells whether this installation works.
"""

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

TOOLGATE = Path(sys.executable).with_name("toolgate")
SHOP = Path(__file__).with_name("shop")
AGENT = "--tenant shop --persona support"
FORGERY = "UPDATE audit_log SET status = 'success' WHERE tool = 'refund' AND status = 'denied'"


class Unexpected(Exception):
    """A command did not end as the tour says."""


class Left(Exception):
    """The person at the terminal has seen enough."""


class Scene(NamedTuple):
    title: str
    words: str


class Step(NamedTuple):
    """A command of toolgate, and how it is to end."""

    command: str
    exit_code: int = 0


def scenes(folder: Path) -> Iterator[Scene | Step | str]:
    """The tour in its order. A scene stands before its steps; text is shown as it is."""
    yield Scene(
        "1. A call that is allowed",
        "An agent of a shop's support looks up an order. The tool is a Python function with @tool.",
    )
    yield indented(folder / "tools" / "shop.py", "@tool(tier=", 4)
    yield Step(f"call find_order number=1042 {AGENT}")

    yield Scene(
        "2. A call that is denied, and why",
        "The agent was talked into a refund of $9,000. The policy knows the persona and the arguments.",
    )
    yield indented(folder / "policy.rego", "large_refund if", 5)
    yield Step(f"call refund order=1042 amount=9000 {AGENT}", 1)
    yield Step(f"explain refund order=1042 amount=9000 {AGENT}", 1)

    yield Scene("3. A call that waits for a person",
                "$120 is within the policy. But refund is of tier external_api, and such tools never run unasked: "
                "the call waits, also over a restart, until somebody answers for exactly these arguments.")  # fmt: skip
    yield Step(f"call refund order=1042 amount=120 {AGENT}", 3)
    yield Step("approvals list --tenant shop")
    yield Step(f"approvals approve {waiting(folder)} --run")

    yield Scene("4. A budget", "Each refund costs the shop a fee of $0.40. With a dollar a day, the third does not run.")
    yield Step("budgets set --tenant shop --daily 1")
    yield Step(f"call refund order=1043 amount=15 {AGENT} --yes")
    yield Step(f"call refund order=1044 amount=15 {AGENT} --yes", 1)
    yield Step("costs --tenant shop")

    yield Scene(
        "5. What happened, and whether the record is whole",
        "Every call is on record, also those that did not run. The records are chained by hashes.",
    )
    yield Step("audit tail --lines 6")
    yield Step("audit verify")
    forge(folder)
    yield f"Now somebody who can write to the database makes a refund that was refused look as if it had run:\n    {FORGERY}"
    yield Step("audit verify", 1)


def indented(file: Path, start: str, lines: int) -> str:
    """Some lines of a file of the shop, from the one that begins with `start`."""
    text = file.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(text) if line.startswith(start))
    return "\n".join(f"    {line}" for line in text[first : first + lines])


def waiting(folder: Path) -> str:
    """The id of the approval that waits."""
    listed = toolgate(folder, "approvals list --tenant shop --json", stdout=subprocess.PIPE)
    return str(json.loads(listed.stdout)["approvals"][0]["id"])


def forge(folder: Path) -> None:
    """Changes records, as an intruder would, past Toolgate."""
    with closing(sqlite3.connect(folder / ".toolgate" / "toolgate.db")) as database, database:
        if not database.execute(FORGERY).rowcount:
            raise Unexpected("no record was found to change")


def toolgate(folder: Path, command: str, stdout: int | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs a command with nobody to ask, in the shop's folder; settings and data of the person who looks on are left out."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
    environment |= {"TOOLGATE_TRUST": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    sys.stdout.flush()  # the command writes to the same place, after what the tour has said
    return subprocess.run(
        [TOOLGATE, *shlex.split(command)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


class Screen:
    """Where the tour is shown: with colours and stops on a terminal, plain otherwise."""

    def __init__(self) -> None:
        self.stops = sys.stdin.isatty() and sys.stdout.isatty()
        self.coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def say(self, text: str, code: str = "") -> None:
        print(f"\033[{code}m{text}\033[0m" if self.coloured and code else text)

    def tell(self, text: str) -> None:
        """Prose, in lines that fit."""
        self.say(textwrap.fill(text, shutil.get_terminal_size().columns))

    def stop(self) -> None:
        """Waits for the person, if there is one."""
        if not self.stops:
            return
        try:
            answer = input("\n[Enter: next; s Enter: the rest without stops; q Enter: quit] ").strip().lower()
        except EOFError:
            answer = "q"
        if answer.startswith("q"):
            raise Left
        self.stops = not answer.startswith("s")


def show(folder: Path, screen: Screen) -> None:
    first = True
    for part in scenes(folder):
        if isinstance(part, Scene):
            if not first:
                screen.stop()
            first = False
            screen.say(f"\n{part.title}", "1;36")
            screen.tell(part.words)
        elif isinstance(part, Step):
            screen.say(f"\n$ toolgate {part.command}", "1")
            ended = toolgate(folder, part.command).returncode
            if ended != part.exit_code:
                raise Unexpected(f"toolgate {part.command} ended with exit code {ended}, not {part.exit_code}")
        else:
            screen.say(f"\n{part}", "2" if part.startswith(" ") else "")


def main() -> int:
    screen = Screen()
    screen.say("Toolgate: every call of a tool passes one gate that decides, asks, pays, runs and records.", "1")
    screen.tell("A tour of two minutes. The commands are real; they run in a folder that is removed at the end.")
    try:
        with tempfile.TemporaryDirectory(prefix="toolgate-tour-") as name:
            folder = Path(name) / "shop"
            shutil.copytree(SHOP, folder, ignore=shutil.ignore_patterns("__pycache__"))
            show(folder, screen)
    except (Left, KeyboardInterrupt):
        screen.say("\nThe tour has ended early.")
    except Unexpected as error:
        screen.say(f"\nThis should not happen: {error}. Run toolgate doctor to see what is wrong here.", "31")
        return 1
    screen.say("\nYour turn:", "1")
    print("  . .venv/bin/activate        puts toolgate on the path of this shell\n"
          "  toolgate doctor             what this machine offers\n"
          "  docs/quickstart.md          a tool of your own in five minutes")  # fmt: skip
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
