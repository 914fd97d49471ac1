"""That the run of the conformance suite can fail: each way in which it has to."""

from dataclasses import replace

import pytest

from tests.conformance.run import NOT_FOR_US, REQUIRED, report, wrong
from tests.conformance.suite import Scenario, Side

ASKED: list[tuple[Side, str]] = [("server", "2026-07-28")]
FINE = [Scenario("server", "2026-07-28", f"scenario-{number}", 2, 0) for number in range(REQUIRED["server", "2026-07-28"])]
SKIPPED = Scenario("server", "2026-07-28", next(iter(NOT_FOR_US)), 0, 1, "pending")


def test_a_run_in_which_all_passes_is_right() -> None:
    assert wrong([*FINE, SKIPPED], ASKED) == []


@pytest.mark.parametrize(
    "changed",
    [
        replace(FINE[0], failed=1),
        replace(FINE[0], passed=0),  # nothing was checked
        replace(FINE[0], passed=0, failed=1),
    ],
)
def test_a_scenario_that_does_not_pass_is_wrong(changed: Scenario) -> None:
    (said,) = wrong([changed, *FINE[1:]], ASKED)
    assert "scenario-0 fails" in said
    assert "**server 2026-07-28 `scenario-0` fails**" in report([changed, *FINE[1:]])


def test_an_unscored_scenario_has_to_pass_too_unless_it_does_not_apply() -> None:
    extension = Scenario("server", "2026-07-28", "tasks-lifecycle", 3, 1, "extension")
    assert len(wrong([*FINE, extension], ASKED)) == 1


def test_what_does_not_apply_and_passes_is_wrong() -> None:
    (said,) = wrong([*FINE, replace(SKIPPED, passed=1, failed=0)], ASKED)
    assert "take it out" in said


def test_what_is_required_always_applies() -> None:
    required = replace(SKIPPED, unscored=None)
    assert f"{required.name} fails" in wrong([*FINE[1:], required], ASKED)[0]


def test_a_run_that_leaves_some_out_is_wrong() -> None:
    (said,) = wrong(FINE[1:], ASKED)
    assert "36 of 37" in said
