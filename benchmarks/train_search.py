"""Trains what moves the vectors of a task towards the tools that do it, and writes it beside the search.

    pip install torch && python benchmarks/train_search.py

The models were trained on sentences that say the same. A task and a tool do not: "the parcel has left, let the buyer know"
is not "Mark an order as shipped". So four small networks are fitted to tasks for tools that were made up for it
(tests/discovery/training.jsonl; nothing that is nearly in a set that is measured is in it): for each model one that brings a
task near its tool, and one that brings it near what the tool's server is for. Vectors of tools stay as the models give them,
so a catalog is not read anew. It takes five minutes.
"""

import asyncio
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from toolgate.embeddings import Embedder, MultilingualEmbedder
from toolgate.model import Tool
from toolgate.tool_search import task_vectors
from toolgate.tool_search.language import english_share
from toolgate.tool_search.text import name_words, tool_text
from toolgate.tool_search.vector_index import CONTEXT_WEIGHT, ENGLISH_WEIGHT, UNKNOWN_CONTEXT

DATA = Path(__file__).resolve().parent.parent / "tests" / "discovery" / "training.jsonl"
HIDDEN = 512
ROUNDS = 6
BATCH_TASKS = 256
RATE = 5e-4
DECAY = 0.3
DROPPED = 0.2
SHARPNESS = 20.0
"""By which scores are multiplied before they are compared as probabilities."""
SMOOTHING = 0.1
"""The share of a task that is given to all tools alike: near twins of the right one are not wrong."""
ALONE = 0.3
"""The share of tasks that see one thing less: English ones the model for English, all of them what servers are for."""
DISTANCE = 0.3
"""How far ahead of the average a tool that fits must be, and the best of other servers must not be."""
DISTANCE_WEIGHT = 0.2


class Vectors(NamedTuple):
    """By both models."""

    english: Tensor
    multilingual: Tensor


class Catalog(NamedTuple):
    purposes: Vectors
    contexts: Vectors
    context_of: Tensor


class Tasks(NamedTuple):
    vectors: Vectors
    shares: Tensor
    """How much of each is English."""
    right: Tensor
    """Numbers of the tools that do them."""


class Network(torch.nn.Module):
    """Moves vectors; `task_vectors.Network` is the same in numpy."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = torch.nn.Parameter(torch.zeros(size, size))
        self.into = torch.nn.Parameter(torch.randn(size, HIDDEN) / math.sqrt(size))
        self.bias = torch.nn.Parameter(torch.zeros(HIDDEN))
        self.out = torch.nn.Parameter(torch.zeros(HIDDEN, size))

    def forward(self, vectors: Tensor) -> Tensor:
        # The vectors' numbers are small, since their lengths are one: four times as large, the hidden layer learns sooner.
        hidden = functional.dropout(functional.relu(4 * vectors @ self.into + self.bias), DROPPED)
        return functional.normalize(vectors + vectors @ self.linear + hidden @ self.out, dim=-1)

    def as_arrays(self) -> task_vectors.Network:
        parts = (self.linear, 4 * self.into, self.bias, self.out)
        return task_vectors.Network(*(part.detach().numpy() for part in parts))


class Networks(torch.nn.Module):
    """Those of both models for one aim: to be near tools, or near what servers are for."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.english, self.multilingual = map(Network, sizes)

    def scores(self, tasks: Vectors, english: Tensor, texts: Vectors) -> Tensor:
        near = self.english(tasks.english) @ texts.english.T
        return english * near + (1 - english) * (self.multilingual(tasks.multilingual) @ texts.multilingual.T)


def train(tasks: Tasks, catalog: Catalog) -> dict[tuple[str, str], task_vectors.Network]:
    torch.manual_seed(0)
    aims = dict(zip(task_vectors.AIMS, (Networks([384, 512]), Networks([384, 512])), strict=True))
    parameters = [part for networks in aims.values() for part in networks.parameters()]
    matrices, others = ([part for part in parameters if (part.ndim > 1) is kind] for kind in (True, False))
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE)
    steps = ROUNDS * math.ceil(len(tasks.right) / BATCH_TASKS)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.02, 1 - step / steps))
    for number in range(ROUNDS):
        losses = []
        for chosen in torch.randperm(len(tasks.right)).split(BATCH_TASKS):
            vectors = Vectors(*(all_of_them[chosen] for all_of_them in tasks.vectors))
            english = ENGLISH_WEIGHT * (tasks.shares[chosen] * (torch.rand(len(chosen)) > ALONE))[:, None]
            near = aims["purpose"].scores(vectors, english, catalog.purposes)
            around = aims["context"].scores(vectors, english, catalog.contexts)[:, catalog.context_of]
            around = torch.where(torch.rand(len(chosen), 1) < ALONE, UNKNOWN_CONTEXT * near, around)
            loss = _loss(near + CONTEXT_WEIGHT * around, tasks.right[chosen], catalog.context_of)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rate.step()
            losses.append(loss.item())
        print(f"round {number + 1} of {ROUNDS}: loss {sum(losses) / len(losses):.3f}", flush=True)
    return {
        (model, aim): getattr(networks, model).as_arrays() for aim, networks in aims.items() for model in task_vectors.MODELS
    }


def _loss(scores: Tensor, right: Tensor, context_of: Tensor) -> Tensor:
    ahead = scores - scores.mean(1, keepdim=True)
    fitting = ahead.gather(1, right[:, None])[:, 0]
    others = ahead.masked_fill(context_of[None] == context_of[right][:, None], -9.0).max(1)[0]
    told = functional.softplus(SHARPNESS * (DISTANCE - fitting)) + functional.softplus(SHARPNESS * (others - DISTANCE))
    compared = functional.cross_entropy(SHARPNESS * scores, right, label_smoothing=SMOOTHING)
    return compared + DISTANCE_WEIGHT * told.mean()


def packed(networks: dict[tuple[str, str], task_vectors.Network]) -> dict[str, Any]:
    """Networks as arrays of the file: matrices as whole numbers from -127 to 127, with a scale for each."""
    arrays: dict[str, Any] = {}
    for (model, aim), network in networks.items():
        for part, values in network._asdict().items():
            name = f"{model}/{aim}/{part}"
            if values.ndim == 1:
                arrays[name] = values.astype("<f2")
                continue
            scale = numpy.abs(values).max() / 127
            arrays[name] = numpy.rint(values / scale).astype(numpy.int8)
            arrays[f"{name}/{task_vectors.SCALE}"] = numpy.asarray(scale, "<f4")
    return arrays


async def main() -> None:
    rows = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
    schema = {"type": "object"}
    texts = [
        tool_text(Tool(name=row["name"], description=row["description"], input_schema=schema), row["server"]) for row in rows
    ]
    contexts = sorted({text.context for text in texts})
    tasks = [(task, number) for number, row in enumerate(rows) for task in row["tasks"]]
    # Each tool is also asked for as an agent does it, by its purpose or the words of its name: that is to go on.
    tasks += [(name_words(row["name"]) if at % 2 else texts[at].purpose, at) for at, row in enumerate(rows)]
    english, multilingual = Embedder(), MultilingualEmbedder()

    async def read(for_english: Sequence[str], for_all: Sequence[str]) -> Vectors:
        return Vectors(torch.tensor(await english.embed(for_english)), torch.tensor(await multilingual.embed(for_all)))

    said = [task for task, _ in tasks]
    shares = torch.tensor([english_share(task) for task in said])
    catalog = Catalog(
        await read([text.purpose for text in texts], [text.named_purpose for text in texts]),
        await read(contexts, contexts),
        torch.tensor([contexts.index(text.context) for text in texts]),
    )
    networks = train(Tasks(await read(said, said), shares, torch.tensor([number for _, number in tasks])), catalog)
    numpy.savez_compressed(Path(task_vectors.__file__).with_name(task_vectors.FILE), **packed(networks))


if __name__ == "__main__":
    asyncio.run(main())
