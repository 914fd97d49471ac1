"""Moves the vectors of a task towards those of the tools that do it, and towards those of what their servers are for.

The models put texts near each other that say the same. A task does not say what its tool is for: "the parcel has left, let
the buyer know" is not "Mark an order as shipped". What to add was learned from tasks for made-up tools
(`benchmarks/train_search.py` has how). It is added to tasks alone, so vectors of tools are as the models give them.

numpy is imported here: this module is imported with the first search.
"""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy

from toolgate.tool_search.vector_index import Floats, TaskVectors

FILE = "task_vectors.npz"
MODELS, AIMS = ("english", "multilingual"), ("purpose", "context")
SCALE = "scale"
"""The matrices of the file are int8, with a scale for each."""


class Network(NamedTuple):
    """One hidden layer that sees the vectors of both models, since each knows what the other does not, and a matrix for each
    model and aim that goes past it."""

    into: Floats
    bias: Floats
    out: Floats
    """From the hidden layer to the vectors of `linear`, side by side: one product is done in half the time of four."""
    linear: Mapping[tuple[str, str], Floats]
    """By model and aim."""

    def moved(self, english: Floats, multilingual: Floats) -> tuple[TaskVectors, TaskVectors]:
        """The vectors of tasks by both models, of length one. Those that are zero, of texts that a model does not know,
        stay so."""
        hidden = numpy.maximum(numpy.concatenate((english, multilingual), axis=1) @ self.into + self.bias, 0)
        ends = numpy.cumsum([len(matrix) for matrix in self.linear.values()])[:-1]
        added = dict(zip(self.linear, numpy.split(hidden @ self.out, ends, axis=1), strict=True))

        def moved(model: str, aim: str, vectors: Floats) -> Floats:
            to = vectors + vectors @ self.linear[model, aim] + added[model, aim]
            is_known = numpy.linalg.norm(vectors, axis=1, keepdims=True) > 0
            return numpy.asarray(is_known * to / numpy.linalg.norm(to, axis=1, keepdims=True).clip(1e-9), numpy.float32)

        by_english, by_multilingual = (
            TaskVectors(*(moved(model, aim, vectors) for aim in AIMS))
            for model, vectors in zip(MODELS, (english, multilingual), strict=True)
        )
        return by_english, by_multilingual


def towards_tools(english: Floats, multilingual: Floats) -> tuple[TaskVectors, TaskVectors]:
    """The vectors of tasks by both models, moved."""
    return _network().moved(english, multilingual)


@cache
def _network() -> Network:
    with resources.files(__package__).joinpath(FILE).open("rb") as file, numpy.load(file, allow_pickle=False) as held:
        return unpacked(held)


def unpacked(held: Mapping[str, Any]) -> Network:
    """The network of a file's arrays."""

    def matrix(name: str) -> Floats:
        return numpy.asarray(held[name] * held[f"{name}/{SCALE}"], numpy.float32)

    linear = {(model, aim): matrix(f"{model}/{aim}/linear") for model in MODELS for aim in AIMS}
    out = numpy.concatenate([matrix(f"{model}/{aim}/out") for model, aim in linear], axis=1)
    return Network(matrix("into"), held["bias"].astype(numpy.float32), out, linear)
