"""Hostile programs in every jail, as root and as an ordinary user: none gets anything, and each one's control works.

The default run takes half of the programs in each jail, so that each runs in one jail at least and no jail sees fewer than
40 of a language; `make slow` takes all of them everywhere. What a jail is said to hold is also tried by the suite that ships
with the port, and that suite is tried on a jail that holds nothing.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.battery import LANGUAGES, Language, programs
from tests.hostile.jailed import ROOT, USERS, environment, interpreter, room_for
from tests.matrix import others_in_matrix
from tests.needs import is_there
from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.jail import FEATURES, Feature, Spec, Stopped
from toolgate.sandbox.runtimes.deno import find_deno
from toolgate.sandbox.self_check import check

pytestmark = pytest.mark.requirement("SBX-2", "SBX-3")

JAILS = ("bubblewrap", "namespaces", "landlock")
OF = 4
SHARES = {
    ("bubblewrap", "root"): 0, ("bubblewrap", "ordinary"): 1,
    ("namespaces", "root"): 2, ("namespaces", "ordinary"): 3,
    ("landlock", "root"): 1, ("landlock", "ordinary"): 2,
}  # fmt: skip
"""Which quarter of the programs the default run takes."""
NOBODY_ELSE = 61_000 + os.getpid() % 1_000
"""A user whose only processes are this battery's: programs signal whatever they can, and use up what he may have."""
LEAST = 40
SECONDS = 250
SLOW_SECONDS = 600


def shares(jail: str, user: str) -> list[int]:
    """Where there is but one user, he takes the other's share too."""
    return [SHARES[jail, user]] if is_there("root") else [SHARES[jail, each] for each in USERS]


def run(user: str, order: Mapping[str, Any], seconds: float) -> list[dict[str, Any]]:
    """What the driver said, line by line."""
    command = [interpreter(), "-B", "-m", "tests.hostile.battery_main", json.dumps({**order, "deno": str(find_deno(None))})]
    with room_for(order["jail"]):
        ran = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=seconds, start_new_session=True,
            check=False, **as_user(user),
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    return [json.loads(line) for line in ran.stdout.splitlines()]


def as_user(user: str) -> dict[str, Any]:
    """What makes a process a user's."""
    if os.geteuid() == 0 and user != "root":
        return {"user": NOBODY_ELSE, "group": NOBODY_ELSE, "extra_groups": []}
    return {}


def judge(lines: list[dict[str, Any]], least: int) -> None:
    """None escaped, all controls worked, nothing was left, and it was not too few."""
    *verdicts, end = lines
    assert "unavailable" not in end, end
    assert [f"{each['name']}: {each['why']}" for each in verdicts if not (each["held"] and each["control"])] == []
    assert end["wrong"] == []
    assert end["host_mb"] < 256
    assert len(verdicts) == end["done"] >= least


@pytest.mark.parametrize("language", others_in_matrix(LANGUAGES, "python", why="a share of the battery for each language"))
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("jail", JAILS)
def test_no_program_gets_out(jail: str, user: str, language: Language) -> None:
    """A share of the programs."""
    parts = shares(jail, user)
    judge(run(user, {"jail": jail, "language": language, "of": OF, "parts": parts}, SECONDS), LEAST // 2)


@pytest.mark.slow
@pytest.mark.timeout(SLOW_SECONDS)
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("jail", JAILS)
def test_no_program_gets_out_of_any_jail(jail: str, user: str, language: Language) -> None:
    """All of them."""
    judge(run(user, {"jail": jail, "language": language, "of": 1, "parts": [0]}, SLOW_SECONDS), 2 * LEAST)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_battery_is_whole(language: Language) -> None:
    """Every feature is attacked, names are not taken twice, and the shares of each jail leave at least 40."""
    found = programs(language)
    assert {program.feature for program in found} == set(FEATURES)
    assert [name for name, times in Counter(program.name for program in found).items() if times > 1] == []
    assert all(program.control.strip() and program.code.strip() for program in found)
    for jail in JAILS:
        taken = {share for user in USERS for share in shares(jail, user)}
        assert sum(number % OF in taken for number in range(len(found))) >= LEAST
    assert {share for jail in JAILS for user in USERS for share in shares(jail, user)} == set(range(OF))


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("jail", JAILS)
def test_every_jail_passes_the_suite_of_the_port(jail: str, user: str) -> None:
    """At least two checks of every feature, all of them held, with their controls."""
    checked = run(user, {"jail": jail, "language": "self_check"}, SECONDS)
    count = Counter(each["feature"] for each in checked)
    assert all(count[feature] >= 2 for feature in FEATURES), count
    assert [f"{each['name']}: {each['detail']}" for each in checked if not (each["held"] and each["control"])] == []


async def test_something_holds_code_here() -> None:
    """Where the battery runs, at least one jail must be there for it to mean anything; those that are not say why."""
    sandbox = Sandbox()
    found = {each.name: each for each in await sandbox.survey()}
    await sandbox.close()
    assert any(found[name].available for name in JAILS), found
    assert all(found[name].reason for name in JAILS if not found[name].available)


@pytest.mark.slow
def test_a_loop_is_ended_at_the_real_limit() -> None:
    """Thirty seconds, as set by default, for each language at once."""
    script = "import asyncio, sys, tests.hostile.test_sandbox_battery as t; asyncio.run(t.loop_for_thirty_seconds())"
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "ended" in ran.stderr


async def loop_for_thirty_seconds() -> None:
    """Three endless programs with nothing said about their time."""
    sandbox = Sandbox()
    ended = await asyncio.gather(
        sandbox.run_command(("/bin/bash", "-c", "while :; do :; done")),
        sandbox.run_code("python", "import os\nwhile True: os.getpid()"),
        sandbox.run_code("typescript", "while (true) {}"),
    )
    await sandbox.close()
    assert [each.stopped for each in ended] == ["time"] * 3
    assert all(29.5 < each.seconds < 60 for each in ended), [each.seconds for each in ended]
    sys.stderr.write("ended\n")


class Bare:
    """A jail that holds nothing: a process like any other."""

    name = "bare"

    def enforces(self) -> Mapping[Feature, str]:
        """Nothing."""
        return {}

    async def start(self, spec: Spec) -> "BareBox":
        """In a folder of its own, so that what it leaves can be removed."""
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        return BareBox(
            await asyncio.create_subprocess_exec(
                *spec.argv, cwd=folder.name, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ),
            folder,
        )

    async def close(self) -> None:
        """Nothing is kept."""


class BareBox:
    """A process without a jail."""

    def __init__(self, process: asyncio.subprocess.Process, folder: "tempfile.TemporaryDirectory[str]") -> None:
        self._process = process
        self._folder = folder
        self.pid = process.pid
        self.stopped: Stopped | None = None
        self.busy = True

    def uppers(self) -> list[int]:
        return []

    def is_alive(self) -> bool:
        return self._process.returncode is None

    async def write(self, data: bytes) -> None:
        """To its stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        await self._process.stdin.drain()

    async def close_stdin(self) -> None:
        """The end of it."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def read(self, most: int) -> bytes:
        """From its stdout."""
        assert self._process.stdout is not None
        return await self._process.stdout.read(most)

    async def read_errors(self, most: int) -> bytes:
        """From its stderr."""
        assert self._process.stderr is not None
        return await self._process.stderr.read(most)

    async def wait(self) -> int:
        """Its exit code."""
        return await self._process.wait()

    def kill(self, why: Stopped | None = None) -> None:
        """It alone."""
        if self._process.returncode is None:
            self.stopped = why
            self._process.kill()

    async def close(self) -> None:
        """Kill it, and hear the rest, so that nothing is left open."""
        self.kill()
        await self._process.communicate()
        self._folder.cleanup()


@pytest.mark.matrix("runs the whole suite of the port without a jail")
async def test_the_suite_of_the_port_finds_out_a_jail_that_holds_nothing() -> None:
    """For each feature that is the jail's to hold, something got through, and was seen."""
    checked = await check(Bare(), python=Path(sys.executable))
    let_through = {each.feature for each in checked if not each.held}
    assert let_through >= set(FEATURES) - {"time", "output"}, checked
    assert [each for each in checked if not each.control] == []
    assert {each.feature for each in checked if each.name == "seen_by_the_host"} == {"files", "network", "signals"}
