"""The official MCP conformance suite, as we run it: what it said of each scenario, and failures tried once more alone.

It runs all client scenarios at once, and on a small machine some fail for want of time; whether that was so, a second try by
itself shows. A scenario in which nothing was checked counts as not passed: the suite calls it a success.
"""

import logging
import re
import subprocess
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tests.npm import Npm

LOG = logging.getLogger(__name__)
Side = Literal["server", "client"]
PACKAGE = "@modelcontextprotocol/conformance"
LINE = re.compile(r"^[✓✗] (?P<name>\S+): (?P<passed>\d+) passed, (?P<failed>\d+) failed")
UNSCORED = re.compile(r"^  [✓✗] (?P<name>\S+) \((?P<why>[a-z-]+)\)")
ALONE = re.compile(r"^Passed: (?P<passed>\d+)/\d+, (?P<failed>\d+) failed", re.MULTILINE)
SCENARIO_MS = 60_000
SECONDS = 600


@dataclass(frozen=True)
class Scenario:
    """What the suite said of a scenario."""

    side: Side
    revision: str
    name: str
    passed: int
    """Checks."""
    failed: int
    unscored: str | None = None
    """Why it is run without counting for the revision: extension, pending …"""
    again: bool = False
    """It failed at first, among others; this is how it went alone."""

    @property
    def ok(self) -> bool:
        return self.failed == 0 and self.passed > 0


class Suite:
    """The suite on this machine."""

    def __init__(self, npm: Npm, folder: Path, once: Container[str] = ()) -> None:
        self._npm = npm
        self._once = once
        """Scenarios that are not tried again when they fail."""
        self.folder = folder
        """Where the details of each check are written."""

    def server(self, url: str, revision: str) -> list[Scenario]:
        """Everything that a revision asks of servers, asked of the one at `url`."""
        return self._run("server", revision, ["--url", url, "--timeout", str(SCENARIO_MS)])

    def client(self, command: Sequence[str], revision: str) -> list[Scenario]:
        """Everything that a revision asks of clients, asked of a program."""
        return self._run("client", revision, ["--command", " ".join(command), "--timeout", str(SCENARIO_MS)])

    def _run(self, side: Side, revision: str, options: list[str]) -> list[Scenario]:
        LOG.info("%s, %s", side, revision)
        said = self._say(side, [*options, "--requirements", revision, "-o", str(self.folder / f"{side}-{revision}")])
        unscored = {found["name"]: found["why"] for found in map(UNSCORED.match, said.splitlines()) if found}
        scenarios = [
            Scenario(side, revision, found["name"], int(found["passed"]), int(found["failed"]), unscored.get(found["name"]))
            for found in map(LINE.match, said.splitlines())
            if found
        ]
        if not scenarios:
            raise RuntimeError(f"The conformance suite ran nothing for {side} {revision}:\n{said[-4_000:]}")
        return [one if one.ok or one.name in self._once else self._alone(one, options) for one in scenarios]

    def _alone(self, one: Scenario, options: list[str]) -> Scenario:
        LOG.info("%s, %s: %s once more, alone", one.side, one.revision, one.name)
        place = self.folder / f"{one.side}-{one.revision}-alone"
        said = self._say(
            one.side, [*options, "--scenario", one.name, "--spec-version", one.revision, "--force", "-o", str(place)]
        )
        found = ALONE.search(said)
        if found is None:
            return one
        return replace(one, passed=int(found["passed"]), failed=int(found["failed"]), again=True)

    def _say(self, side: Side, options: list[str]) -> str:
        home = self.folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [*self._npm.command(PACKAGE), side, *options],
            env=self._npm.environment(home),
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.stdout
