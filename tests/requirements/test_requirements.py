"""Every promise has a test or a written gap; every behaviour test proves a promise."""

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from tests.requirements.catalog import AREAS, FOLDER, Requirement, faults, requirements
from tests.requirements.marks import marked_tests, read

TESTS = FOLDER.parent
GAP = {"part": 2, "reason": "comes with governance"}


def test_promises_and_tests_agree() -> None:
    tests = marked_tests(TESTS)
    proved_quickly = {name for test in tests if test.is_quick for name in test.ids}
    found = faults(requirements(), {name for test in tests for name in test.ids}, proved_quickly)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", ["behaviour", "hostile"])
def test_every_behaviour_test_names_its_requirement(folder: str) -> None:
    silent = [f"{test.path.relative_to(TESTS)}::{test.name}" for test in marked_tests(TESTS / folder) if not test.ids]
    assert not silent


def test_each_id_stands_in_the_file_of_its_area() -> None:
    assert {path.stem.upper() for path in FOLDER.glob("*.yaml")} == set(AREAS)
    for area in AREAS:
        names = yaml.safe_load((FOLDER / f"{area.lower()}.yaml").read_text(encoding="utf-8"))
        assert {name.rpartition("-")[0] for name in names} == ({"WF", "JOB"} if area == "WF" else {area})


def _known(**fields: object) -> dict[str, Requirement]:
    return {"IO-1": Requirement.model_validate({"promise": "a promise of some length", **fields})}


@pytest.mark.parametrize(
    ("known", "proved", "slowly", "fault"),
    [
        (_known(), {"IO-1"}, set(), None),
        (_known(), set(), set(), "neither a test nor a gap"),
        (_known(gap=GAP), set(), set(), None),
        (_known(gap=GAP), {"IO-1"}, set(), "no gap"),
        (_known(partial=GAP), {"IO-1"}, set(), None),
        (_known(partial=GAP), set(), set(), "partial without a test"),
        (_known(), {"IO-1", "IO-9"}, set(), "IO-9: a test names it"),
        (_known(), {"IO-1"}, {"IO-1"}, "no test in make test"),
        (_known(partial=GAP), {"IO-1"}, {"IO-1"}, "no test in make test"),
        (_known(matrix_only="it needs a server"), {"IO-1"}, {"IO-1"}, None),
        (_known(matrix_only="it needs a server"), {"IO-1"}, set(), "not matrix_only"),
    ],
)
def test_disagreement_is_found(known: dict[str, Requirement], proved: set[str], slowly: set[str], fault: str | None) -> None:
    found = faults(known, proved, proved - slowly)
    assert not found if fault is None else len(found) == 1 and fault in found[0]


@pytest.mark.parametrize("gap", [{"part": 2}, {"part": 2, "reason": ""}, {"part": 10, "reason": GAP["reason"]}])
def test_a_gap_needs_a_part_and_a_reason(gap: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        _known(gap=gap)


def _ids(source: str) -> dict[str, set[str]]:
    return {test.name: set(test.ids) for test in read(source, Path("test_it.py"))}


def test_marks_are_read_from_function_class_and_module() -> None:
    source = """
pytestmark = [pytest.mark.slow, pytest.mark.requirement("A-1")]

@pytest.mark.requirement("A-2", "A-3")
async def test_function(): ...

@pytest.mark.requirement("A-4")
class TestClass:
    pytestmark = pytest.mark.requirement("A-5")

    @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.requirement("A-6"))])
    def test_method(self, x): ...

@pytest.mark.requirement("A-7")
def helper(): ...
"""
    assert _ids(source) == {
        "test_function": {"A-1", "A-2", "A-3"},
        "TestClass::test_method": {"A-1", "A-4", "A-5", "A-6"},
    }


def test_a_test_that_only_the_matrix_runs_is_seen_as_such() -> None:
    source = """
@pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.matrix("takes long"))])
def test_one(x): ...

@pytest.mark.matrix("takes long")
def test_two(): ...

class TestClass:
    pytestmark = [pytest.mark.slow, pytest.mark.requirement("A-1")]

    def test_three(self): ...
"""
    assert [test.is_quick for test in read(source, Path("test_it.py"))] == [True, False, False]


def test_a_test_without_a_mark_is_seen_as_such() -> None:
    assert _ids("@pytest.mark.slow\ndef test_it(): ...") == {"test_it": set()}


def test_an_id_that_is_not_written_out_is_refused() -> None:
    with pytest.raises(ValueError, match=r"test_it\.py:1: a requirement is named by a string"):
        _ids("@pytest.mark.requirement(NAME)\ndef test_it(): ...")
