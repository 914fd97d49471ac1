"""The order in which the processes of a run take the tests: those that take long come first.

Each process is given a part of the list, and what is left of it when another has nothing to do is divided again. A test of
minutes that comes last would keep one process busy while the others have ended. A test that says with
`@pytest.mark.timeout` that it may take longer than others is one of those.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import chain, islice
from typing import TypeVar

import pytest

WORKERS = "PYTEST_XDIST_WORKER_COUNT"
T = TypeVar("T")


def long_ones_first(
    items: Sequence[T], workers: int, seconds: Callable[[T], float], file: Callable[[T], Hashable]
) -> list[T]:
    """The items with those that take long at the beginning of the workers' parts, those of one file together; otherwise
    as they were."""
    files = defaultdict[Hashable, list[T]](list)
    for item in items:
        if seconds(item):
            files[file(item)].append(item)
    long = sorted(files.values(), key=lambda group: max(map(seconds, group)), reverse=True)
    rest, ordered = iter([item for item in items if not seconds(item)]), list[T]()
    for worker in range(workers):
        first = list(chain.from_iterable(long[worker::workers]))
        part = (len(items) - len(ordered)) // (workers - worker)
        ordered += [*first, *islice(rest, max(0, part - len(first)))]
    return [*ordered, *rest]


def _seconds(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0]) if mark is not None else 0.0


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After pytest has selected by marks. One process alone takes them in any order as long."""
    if WORKERS in os.environ:
        items[:] = long_ones_first(items, int(os.environ[WORKERS]), _seconds, lambda item: item.path)
