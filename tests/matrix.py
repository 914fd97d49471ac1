"""The test matrix: what `make test` runs, and what only `make test-matrix` runs.

`make test` proves each promise once: on SQLite, with the embedded policy, in the best jail of the machine, as the user who
runs the tests, over one transport. `make test-matrix` runs the rest: the same tests on every other choice, and those marked
`@pytest.mark.matrix("why")` because they take long while a quicker test holds the same promise.

A test need not say which of its parameters belong to the matrix. A parameter whose values all stand in one of the axes below
is a choice along that axis, whatever its name. `make test` takes the value that stands first there; cases with another one
get the mark. So a test function without the mark keeps every one of its cases in `make test`, each on one choice.

A module of many tests that take long may name those that stay in `make test` in its `QUICK`; the others are of the matrix.
Of a test with many cases of one kind, marked `@pytest.mark.sample(6)`, `make test` takes six that stand far apart.

    make test-list              # which tests are left to the matrix, and what holds each requirement without them
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

from tests.needs import is_there, needed_by_jail
from tests.requirements.catalog import requirements

STORES = ("sqlite", "memory", "sqlite and redis", "redis", "postgres", "postgres and redis")
JOB_ENGINES = ("store", "dbos")
POLICY_ENGINES = ("embedded", "opa", "oracle")
JAILS = ("bubblewrap", "namespaces", "landlock")
USERS = ("root", "ordinary")
EVENT_STREAMS = ("nats", "kafka")
# Revisions of MCP among them, and the two ways of the client over HTTP: with and without a session of the SDK.
TRANSPORTS = (
    "2026-07-28", "modern", "new", "quick", "modern quick", "http", "stdio", "session", "modern session",
    "legacy", "old", "old quick", "old session", "oldest",
)  # fmt: skip

OTHER_CHOICE = "another choice along an axis"
NOT_SAMPLED = "one of many cases of one kind, of which make test takes a few"
NOT_QUICK = "a longer look at what the QUICK tests of its module hold"

T = TypeVar("T")
Axes = Sequence[Sequence[str]]


def axes() -> Axes:
    """The choices along each axis, the one that `make test` takes first."""
    # The best jail that works here: without bubblewrap it is another than in CI.
    jails = sorted(JAILS, key=lambda jail: not all(map(is_there, needed_by_jail(jail))))
    users = USERS if os.geteuid() == 0 else USERS[::-1]
    return STORES, POLICY_ENGINES, jails, users, TRANSPORTS, EVENT_STREAMS, JOB_ENGINES


def is_left_to_matrix(cases: list[dict[str, Any]], choices: Axes) -> list[bool]:
    """For each case of one test function, by its parameters: whether the same case stands on a preferred choice too."""
    axis_of = _choices_among(cases, choices)
    # Parameters may be of any kind; where two cases have the same, it is one object.
    rest = [frozenset((name, id(value)) for name, value in case.items() if name not in axis_of) for case in cases]
    ranks = [[axis.index(case[name]) for name, axis in axis_of.items()] for case in cases]
    best: dict[frozenset[tuple[str, int]], list[int]] = {}
    for same, rank in zip(rest, ranks, strict=True):
        best[same] = min(rank, best.get(same, rank))
    return [rank != best[same] for same, rank in zip(rest, ranks, strict=True)]


def not_sampled(cases: list[T], most: int) -> list[T]:
    """The cases that `make test` leaves out when it takes so many of them: the first, the last, and others between them."""
    taken = {round(at * (len(cases) - 1) / (most - 1)) for at in range(most)} if len(cases) > most else range(len(cases))
    return [case for at, case in enumerate(cases) if at not in taken]


def others_in_matrix(values: Iterable[str], *quick: str, why: str) -> list[ParameterSet]:
    """Values of a parameter that is no such choice: `make test` takes those that are named, the matrix the others."""
    values = list(values)
    assert set(quick) <= set(values)
    put_off = pytest.mark.matrix(why)
    return [pytest.param(value, marks=() if value in quick else put_off, id=value) for value in values]


def of_jail(jail: str) -> list[pytest.MarkDecorator]:
    """The mark of a module about one jail, which `make test` runs where no better one works."""
    return [] if axes()[2][0] == jail else [pytest.mark.matrix("a jail that is not the best of this machine")]


def _choices_among(cases: list[dict[str, Any]], choices: Axes) -> dict[str, Sequence[str]]:
    """The parameters that are choices, each with its axis."""
    return {
        name: axis
        for name in cases[0]
        for axis in choices
        if all(isinstance(case[name], str) and case[name] in axis for case in cases)
    }


# -- the hooks of pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--matrix-report", type=Path, help="write which tests are left to make test-matrix into this file")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sample(most): make test takes so many of its cases, the matrix the others")
    config.addinivalue_line(
        "markers", "matrix(why): run by make test-matrix only, while a quicker test holds the same promise"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the cases on other choices, before pytest selects by marks."""
    if silent := [item.nodeid for item in items for mark in item.iter_markers("matrix") if not mark.args]:
        raise pytest.UsageError(f"Marked matrix without saying why: {', '.join(silent)}")
    functions, choices = defaultdict(list), axes()
    for item in items:
        quick = getattr(getattr(item, "module", None), "QUICK", None)
        if quick is not None and getattr(item, "originalname", item.name) not in quick:
            item.add_marker(pytest.mark.matrix(NOT_QUICK))
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            functions[_function(item)].append(item)
    for cases in functions.values():
        for item, is_left in zip(cases, is_left_to_matrix([case.callspec.params for case in cases], choices), strict=True):
            if is_left:
                item.add_marker(pytest.mark.matrix(OTHER_CHOICE))
        sample = cases[0].get_closest_marker("sample")
        if sample is not None:
            here = [item for item in cases if item.get_closest_marker("matrix") is None]
            for item in not_sampled(here, *sample.args):
                item.add_marker(pytest.mark.matrix(NOT_SAMPLED))


def pytest_collection_finish(session: pytest.Session) -> None:
    if path := session.config.getoption("--matrix-report"):
        path.write_text("\n".join(report(session.items)) + "\n", encoding="utf-8")


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


# -- the report


def report(items: list[pytest.Item]) -> Iterator[str]:
    """Lines of Markdown."""
    cases, quick, why = Counter(map(_function, items)), Counter[str](), {}
    held: dict[str, set[str]] = defaultdict(set)
    for item in items:
        put_off = item.get_closest_marker("matrix")
        if put_off:
            why[_function(item)] = put_off.args[0]
        elif not item.get_closest_marker("slow"):
            quick[_function(item)] += 1
            for mark in item.iter_markers("requirement"):
                for id in mark.args:
                    held[id].add(_function(item))
    yield f"make test runs {quick.total()} cases of {len(quick)} tests, of {cases.total()} cases of {len(cases)}."
    yield from ("", "| left to make test-matrix | cases, of | why |", "|---|---|---|")
    yield from (f"| {name} | {cases[name] - quick[name]}, of {cases[name]} | {why[name]} |" for name in cases if name in why)
    yield from ("", "| requirement | tests in make test | for example |", "|---|---|---|")
    for id, requirement in requirements().items():
        tests = sorted(held[id])
        yield f"| {id} | {len(tests)} | {tests[0] if tests else requirement.matrix_only or 'a gap'} |"
