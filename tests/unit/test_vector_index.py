"""The index compares what is read with what is asked, also while it is being filled."""

from threading import Barrier, Thread
from typing import Any

import numpy
import pytest

from toolgate.tool_search import semantic_search, vector_index
from toolgate.tool_search.semantic_search import OneBlasThread
from toolgate.tool_search.text import ToolText
from toolgate.tool_search.vector_index import SearchTask, TaskVectors, ToolVectorIndex

pytestmark = pytest.mark.requirement("AGENT-3")


def _index(size: int) -> tuple[ToolVectorIndex, Any, Any]:
    chance = numpy.random.default_rng(3)
    index = ToolVectorIndex(4, 6)
    texts = {f"{number}".encode(): ToolText("", "", "", frozenset()) for number in range(size)}
    index.add(texts, chance.standard_normal((size, 6)).astype(numpy.float32))
    vectors = chance.standard_normal((size, 4)).astype(numpy.float32)
    english, multilingual = (chance.standard_normal((1, width)).astype(numpy.float32) for width in (4, 6))
    task = SearchTask(
        numpy.ones(1, numpy.float32), TaskVectors(english, english), TaskVectors(multilingual, multilingual), [frozenset()]
    )
    return index, vectors, task


def test_tools_that_are_read_during_a_search_count_as_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    index, vectors, task = _index(5)
    rows = numpy.arange(5, dtype=numpy.int32)
    before = index.scores(rows, task)
    really = vector_index.compute_both

    def compute_both(*products: Any, **more: Any) -> Any:
        done = really(*products, **more)
        index.set_english(range(5), vectors)
        return done

    monkeypatch.setattr(vector_index, "compute_both", compute_both)
    assert index.scores(rows, task) == pytest.approx(before)
    assert index.scores(rows, task) != pytest.approx(before)


def test_many_tools_are_compared_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    index, vectors, task = _index(50)
    index.set_english(range(50), vectors)
    rows = numpy.arange(50, dtype=numpy.int32)
    in_one_thread = index.scores(rows, task)
    monkeypatch.setattr(vector_index, "LARGE_ROWS", 10)
    assert index.scores(rows, task) == pytest.approx(in_one_thread)


def test_a_product_that_fails_in_the_second_thread_is_heard_of() -> None:
    with pytest.raises(ZeroDivisionError):
        vector_index.compute_both(lambda: numpy.zeros(1, numpy.float32), lambda: 1 // 0, is_large=True)  # type: ignore[arg-type, return-value]


def test_threads_of_other_products_are_as_before_after_searches_that_overlap() -> None:
    def threads() -> list[int]:
        return [one["num_threads"] for one in semantic_search._blas().info() if one["user_api"] == "blas"]

    before, limit, met = threads(), OneBlasThread(), Barrier(2)

    def search() -> None:
        with limit:
            met.wait(10)

    both = [Thread(target=search) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(10)
    assert threads() == before
    with limit:
        assert threads() == [1] * len(before)
