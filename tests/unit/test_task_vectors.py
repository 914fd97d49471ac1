"""Vectors of tasks are moved towards those of the tools that do them."""

import numpy
import pytest

from toolgate.embeddings import Embedder, MultilingualEmbedder
from toolgate.tool_search.task_vectors import AIMS, MODELS, towards_tools
from toolgate.tool_search.vector_index import Floats

pytestmark = pytest.mark.requirement("AGENT-3")
SIZES = dict(zip(MODELS, (384, 512), strict=True))


def _vectors(size: int) -> Floats:
    made = numpy.random.default_rng(7).standard_normal((6, size)).astype(numpy.float32)
    made /= numpy.linalg.norm(made, axis=1, keepdims=True)
    made[2] = 0  # of a text that the model does not know
    return made


def test_vectors_keep_their_length_and_those_of_unknown_texts_stay_zero() -> None:
    for model in towards_tools(*map(_vectors, SIZES.values())):
        for aim in AIMS:
            moved = getattr(model, aim)
            assert moved.dtype == numpy.float32
            lengths = numpy.linalg.norm(moved, axis=1)
            assert lengths[2] == 0
            assert numpy.delete(lengths, 2) == pytest.approx(1.0, abs=1e-5)


def test_a_vector_is_moved_alike_by_itself_and_among_others() -> None:
    together = towards_tools(*map(_vectors, SIZES.values()))
    alone = towards_tools(*(_vectors(size)[:1] for size in SIZES.values()))
    for one, many in zip(alone, together, strict=True):
        assert one.purpose[0] == pytest.approx(many.purpose[0], abs=1e-5)
        assert one.context[0] == pytest.approx(many.context[0], abs=1e-5)


def test_what_the_model_for_english_does_not_read_is_moved_in_the_other_model_alone() -> None:
    english, multilingual = map(_vectors, SIZES.values())
    by_english, by_multilingual = towards_tools(0 * english, multilingual)
    read_by_both = towards_tools(english, multilingual)[1]
    for aim in AIMS:
        assert not getattr(by_english, aim).any()
        assert numpy.linalg.norm(getattr(by_multilingual, aim)[0]) == pytest.approx(1.0, abs=1e-5)
        assert not numpy.allclose(getattr(by_multilingual, aim)[0], getattr(read_by_both, aim)[0])


async def test_a_task_comes_nearer_to_its_tool_than_to_others_in_both_models() -> None:
    task, tools = (
        ["the parcel has left, let the buyer know"],
        ["Mark an order as shipped", "Send a text message", "List buyers"],
    )
    english, multilingual = await Embedder().embed([*task, *tools]), await MultilingualEmbedder().embed([*task, *tools])
    moved = towards_tools(english[:1], multilingual[:1])
    for vectors, after in zip((english, multilingual), moved, strict=True):
        before, nearness = vectors[1:] @ vectors[0], vectors[1:] @ after.purpose[0]
        assert nearness[0] - max(nearness[1:]) > before[0] - max(before[1:]), (before, nearness)
        assert nearness[0] == max(nearness)
