"""Moves the vectors of a task towards those of the tools that do it, and towards those of what their servers are for.

The models put texts near each other that say the same. A task does not say what its tool is for: "the parcel has left, let
the buyer know" is not "Mark an order as shipped". What to add was learned from tasks for made-up tools
(`benchmarks/train_search.py` has how). It is added to tasks alone, so vectors of tools are as the models give them.

numpy is imported here: this module is imported with the first search.
"""

from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy

from toolgate.tool_search.vector_index import Floats, TaskVectors

FILE = "task_vectors.npz"
MODELS, AIMS = ("english", "multilingual"), ("purpose", "context")
SCALE = "scale"
"""The matrices of the file are int8, with a scale for each."""


class Network(NamedTuple):
    """Gives what is added to a vector: by one hidden layer, and by a matrix that goes past it."""

    linear: Floats
    into: Floats
    bias: Floats
    out: Floats

    def moved(self, vectors: Floats) -> Floats:
        """Vectors of length one. One that is zero, of a text that its model does not know, stays so."""
        hidden = numpy.maximum(vectors @ self.into + self.bias, 0)
        moved = vectors + vectors @ self.linear + hidden @ self.out
        is_known = numpy.linalg.norm(vectors, axis=1, keepdims=True) > 0
        return numpy.asarray(is_known * moved / numpy.linalg.norm(moved, axis=1, keepdims=True).clip(1e-9), numpy.float32)


def towards_tools(english: Floats, multilingual: Floats) -> tuple[TaskVectors, TaskVectors]:
    """The vectors of tasks by both models, moved."""
    by_english, by_multilingual = (
        TaskVectors(*(_networks()[model, aim].moved(vectors) for aim in AIMS))
        for model, vectors in zip(MODELS, (english, multilingual), strict=True)
    )
    return by_english, by_multilingual


@cache
def _networks() -> dict[tuple[str, str], Network]:
    with resources.files(__package__).joinpath(FILE).open("rb") as file, numpy.load(file, allow_pickle=False) as held:

        def matrix(name: str) -> Floats:
            return numpy.asarray(held[name] * held[f"{name}/{SCALE}"], numpy.float32)

        return {
            (model, aim): Network(
                matrix(f"{model}/{aim}/linear"),
                matrix(f"{model}/{aim}/into"),
                held[f"{model}/{aim}/bias"].astype(numpy.float32),
                matrix(f"{model}/{aim}/out"),
            )
            for model in MODELS
            for aim in AIMS
        }
