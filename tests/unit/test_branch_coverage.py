"""A package that tests run less of than before fails `make coverage`."""

import pytest

from tests.branch_coverage import faults, figures, floors_of


def test_lines_and_branches_are_counted_by_package() -> None:
    def file(lines: int, branches: int, run: int, taken: int) -> dict[str, dict[str, int]]:
        told = {"num_statements": lines, "num_branches": branches, "covered_lines": run, "covered_branches": taken}
        return {"summary": told}

    report = {
        "files": {
            "src/toolgate/model.py": file(10, 0, 10, 0),
            "src/toolgate/store/open.py": file(6, 4, 6, 2),
            "src/toolgate/store/sqlite/writer.py": file(10, 0, 0, 0),
        }
    }
    assert figures(report) == {"modules": 100.0, "store": 40.0}


def test_a_floor_is_a_whole_per_cent_below_what_was_measured() -> None:
    measured = {"gates": 99.97, "cli": 40.0, "new": 0.4}
    assert floors_of(measured) == {"gates": 98, "cli": 39, "new": 0}
    assert not faults(measured, floors_of(measured))


@pytest.mark.parametrize(
    ("floors", "fault"),
    [
        ({"store": 40}, None),
        ({"store": 41}, "store: 40.0 % of lines and branches are run, below the floor of 41 %"),
        ({}, "store: has no floor"),
        ({"store": 40, "gone": 1}, "gone: has a floor and is not there"),
    ],
)
def test_what_is_below_its_floor_is_a_fault(floors: dict[str, float], fault: str | None) -> None:
    found = faults({"store": 40.0}, floors)
    assert not found if fault is None else len(found) == 1 and fault in found[0]
