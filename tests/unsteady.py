"""`make again`: a second run, one test at a time, of the few that failed in `make test`.

A test that fails among thousands on a machine with two cores and passes alone is unsteady: a fault of the test, or a race in
Toolgate. CI goes on, and ends with its name, so that it is mended and not run again by hand. More than `FEW` failures, a run
that was cut short, and a test that fails a second time end CI.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FEW = 5
ROOT = Path(__file__).resolve().parent.parent
ENDED = "toolgate/ended"


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Notes how the run ended: one that was cut short has not failed everywhere it would have."""
    cache: pytest.Cache | None = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set(ENDED, int(exitstatus))


def main(folder: Path = ROOT) -> int:
    """Runs them again; 0 if all pass."""
    kept = folder / ".pytest_cache" / "v"
    try:
        ended, failed = json.loads((kept / ENDED).read_text()), sorted(json.loads((kept / "cache/lastfailed").read_text()))
    except (OSError, ValueError):
        ended, failed = None, []
    if ended != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed) <= FEW:
        sys.stderr.write(f"Not run again: {len(failed)} tests failed, and up to {FEW} of a whole run are.\n")
        return 1
    again = subprocess.run([sys.executable, "-m", "pytest", *failed], cwd=folder, check=False).returncode
    if not again:
        sys.stderr.write("\n  ".join(["Unsteady, failed among the others and passed alone:", *failed]) + "\n")
    return again


if __name__ == "__main__":
    sys.exit(main())
