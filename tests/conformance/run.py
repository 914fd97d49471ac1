"""`make conformance`: the official MCP conformance suite against Toolgate as a server and as a client.

As a server it is asked through `toolgate serve` with the fixture behind it, so that what is tested is a gateway: every
answer went through the pipeline and over to another server and back. Everything that a protocol revision requires has to
pass, and so has everything that it does not score (extensions, scenarios to come), but for what stands in `NOT_FOR_US` with
its reason; what stands there and passes all the same has to go from there. Exit code 0 only then.
"""

import argparse
import logging
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.conformance.gateway import REPOSITORY, fixture_server, fixture_settings, gateway
from tests.conformance.suite import Scenario, Side, Suite
from tests.needs import THINGS, is_there
from tests.npm import packages
from tests.round_robin import round_robin
from tests.servers import postgres

REVISIONS = ("2025-11-25", "2026-07-28")
REQUIRED: dict[tuple[Side, str], int] = {
    ("server", "2025-11-25"): 30,
    ("server", "2026-07-28"): 37,
    ("client", "2025-11-25"): 18,
    ("client", "2026-07-28"): 32,
}
"""How many scenarios each revision requires: frozen, so a run that leaves some out shows."""
NOT_FOR_US: dict[str, str] = {
    "server-sse-polling": "asks a server to close the stream of an answer and give the rest to whoever comes back. Toolgate "
    "holds no answers for clients that went away: a call that takes long is a task, and its record is in the audit log.",
    "tasks-status-notifications": "is optional, and skipped by the suite itself: it checks nothing.",
    "auth/client-credentials-jwt": "needs a setting for a key that signs, and there is none.",
    "auth/dpop": "needs DPoP, which the SDK's OAuth client does not have.",
    "auth/dpop-nonce": "needs DPoP, which the SDK's OAuth client does not have.",
    "auth/wif-jwt-bearer": "needs workload identity federation, which the SDK's OAuth client does not have.",
    "auth/enterprise-managed-authorization": "needs a setting for the identity provider of an enterprise, and there "
    "is none.",
}
"""Scenarios that no revision scores and that do not apply, with the reason."""
CLIENT = [sys.executable, str(Path(__file__).with_name("client.py"))]
RESULTS = REPOSITORY / "build" / "conformance"


def ask_server(suite: Suite, revisions: Iterable[str], *, old: bool = False, processes: int = 1) -> Iterator[Scenario]:
    """The server scenarios, in front of a fixture of the newest protocol, or of one that begins with a handshake. Several
    processes share a PostgreSQL, and each request goes to the next of them."""
    with tempfile.TemporaryDirectory(prefix="toolgate-conformance-") as home, ExitStack() as stack:
        folder = Path(home)
        upstream = stack.enter_context(fixture_server(*(["--old"] if old else []), log=folder / "fixture.log"))
        database = stack.enter_context(postgres()).url() if processes > 1 else None
        servers = {"fixture": fixture_settings(upstream)}
        urls, key = stack.enter_context(
            gateway(folder, servers, wait_for="test_simple_text", database=database, processes=processes)
        )
        url = stack.enter_context(round_robin(urls, key))
        for revision in revisions:
            yield from suite.server(url, revision)


def ask_client(suite: Suite, revisions: Iterable[str]) -> Iterator[Scenario]:
    for revision in revisions:
        yield from suite.client(CLIENT, revision)


def wrong(scenarios: list[Scenario], asked: Iterable[tuple[Side, str]]) -> list[str]:
    """What is not as it has to be, a sentence each."""
    found = []
    for one in scenarios:
        if one.name in NOT_FOR_US and one.unscored:
            if one.ok:
                found.append(f"{one.side} {one.revision} {one.name} passes: take it out of NOT_FOR_US")
        elif not one.ok:
            found.append(f"{one.side} {one.revision} {one.name} fails: {one.passed} checks passed, {one.failed} failed")
    ran = Counter((one.side, one.revision) for one in scenarios if not one.unscored)
    for side, revision in asked:
        if ran[side, revision] != REQUIRED[side, revision]:
            found.append(
                f"{side} {revision}: {ran[side, revision]} of {REQUIRED[side, revision]} required scenarios were run"
            )
    return found


def report(scenarios: list[Scenario]) -> str:
    """A table of sums, and all that is not plainly passed."""
    lines = ["| side | revision | required | also passed, not scored | does not apply |", "|---|---|--:|--:|--:|"]
    for side, revision in dict.fromkeys((one.side, one.revision) for one in scenarios):
        some = [one for one in scenarios if (one.side, one.revision) == (side, revision)]
        required = [one for one in some if not one.unscored]
        others = [one for one in some if one.unscored and one.name not in NOT_FOR_US]
        lines.append(
            f"| {side} | {revision} | {_sum(required)} | {_sum(others)} | {len(some) - len(required) - len(others)} |"
        )
    lines.append("")
    for one in scenarios:
        if one.name in NOT_FOR_US and one.unscored:
            lines.append(f"- {one.side} {one.revision} `{one.name}` ({one.unscored}) {NOT_FOR_US[one.name]}")
        elif not one.ok:
            lines.append(f"- **{one.side} {one.revision} `{one.name}` fails**: {one.passed} passed, {one.failed} failed")
        elif one.again:
            lines.append(f"- {one.side} {one.revision} `{one.name}` passed when it was run alone")
    return "\n".join(lines) + "\n"


def _sum(scenarios: list[Scenario]) -> str:
    return f"{sum(one.ok for one in scenarios)}/{len(scenarios)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make conformance", description="Run the official MCP conformance suite.")
    parser.add_argument("--side", choices=("server", "client"), help="only this side")
    parser.add_argument("--revision", choices=REVISIONS, help="only this revision")
    parser.add_argument("--old", action="store_true", help="server: behind the gateway, a server that knows only handshakes")
    parser.add_argument("--processes", type=int, default=1, help="server: so many, on one PostgreSQL, behind a proxy")
    chosen = parser.parse_args()
    if not is_there("npm"):
        sys.exit(f"The conformance suite is from npm, which is missing: {THINGS['npm'].how}")
    revisions = [chosen.revision] if chosen.revision else list(REVISIONS)
    sides: list[Side] = [chosen.side] if chosen.side else ["server", "client"]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started is ended
    with tempfile.TemporaryDirectory(prefix="toolgate-conformance-") as place:
        suite = Suite(packages(), Path(place), once=NOT_FOR_US)
        scenarios: list[Scenario] = []
        if "server" in sides:
            scenarios += ask_server(suite, revisions, old=chosen.old, processes=chosen.processes)
        if "client" in sides:
            scenarios += ask_client(suite, revisions)
        told = report(scenarios)
        shutil.rmtree(RESULTS, ignore_errors=True)
        shutil.copytree(place, RESULTS, symlinks=True)
    (RESULTS / "report.md").write_text(told)
    mistakes = wrong(scenarios, [(side, revision) for side in sides for revision in revisions])
    sys.stdout.write(told + "".join(f"{mistake}\n" for mistake in mistakes))
    sys.stdout.write(f"Details of each check: {RESULTS.relative_to(REPOSITORY)}\n")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
