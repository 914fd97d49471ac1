"""The tour of `make tour`, with nobody there and at a terminal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.teletype import Teletype
from tests.terminal import Terminal

TOUR = Path(__file__).resolve().parents[2] / "examples" / "tour" / "tour.py"
IN_ORDER = (
    "1. A call that is allowed", '"customer": "Ada"',
    "2. A call that is denied", "PERMISSION_DENIED: refund is not permitted: only a manager may refund more than $500.",
    "3. A call that waits", "APPROVAL_REQUIRED", "waiting  refund", "refunded $120.00 for order 1042",
    "4. A budget", "refunded $15.00 for order 1043", "BUDGET_EXCEEDED", "$0.80",
    "5. What happened", "✓ The audit log is whole", "✗ The audit log is not what was written",
    "Your turn",
)  # fmt: skip


@pytest.mark.matrix("the whole tour, which make tour shows too")
@pytest.mark.requirement("DOOR-6")
def test_the_tour_runs_through_where_nobody_looks_on(tmp_path: Path) -> None:
    # Settings of the person who starts it must not reach the tour: this database can't be opened.
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TOOLGATE_DATABASE_URL": "postgresql://127.0.0.1:1/none"}
    done = subprocess.run(
        [sys.executable, TOUR], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\033" not in done.stdout
    at = 0
    for words in IN_ORDER:
        at = done.stdout.index(words, at)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.matrix("the tour, which make tour shows too")
@pytest.mark.requirement("DOOR-6")
# The line after Ctrl-C wakes a Python that was interrupted just before it began to read.
@pytest.mark.parametrize("keys", ["q\n", "\x04", "\x03\n"], ids=["q", "end-of-input", "Ctrl-C"])
def test_the_tour_stops_for_a_person_who_may_leave(
    tmp_path: Path, keys: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    person = Teletype(Terminal(tmp_path, monkeypatch, capsys), program=(sys.executable, TOUR), NO_COLOR="", TERM="xterm")
    person.type(after="q Enter: quit]", keys=keys)
    assert person.end() == 0
    assert "\033[1;36m" in person.shown
    assert "1. A call that is allowed" in person.shown
    assert "2. A call" not in person.shown
    assert "The tour has ended early." in person.shown
    assert "Traceback" not in person.shown
