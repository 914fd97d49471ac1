"""Trains what moves the vectors of a task towards the tools that do it, and writes it beside the search.

    pip install torch && python benchmarks/train_search.py

The models were trained on sentences that say the same. A task and a tool do not: "the parcel has left, let the buyer know"
is not "Mark an order as shipped". So a small network is fitted to tasks for tools that were made up for it
(tests/discovery/training.jsonl; nothing that is nearly in a set that is measured is in it). It sees the vectors of a task by
both models, and brings each near the task's tool, and near what the tool's server is for. Vectors of tools stay as the
models give them, so a catalog is not read anew. It takes a quarter of an hour.
"""

import asyncio
import json
import math
import sys
from collections.abc import Mapping, Sequence
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
MEMBERS = 2
"""So many networks are fitted from different beginnings, and their mean is taken: it errs less than each of them."""
HIDDEN = 1_024
"""The width of the hidden layer of each."""
ROUNDS = 6
BATCH_TASKS = 256
RATE = 5e-4
DECAY = 0.3
DROPPED = 0.2
INPUT_SCALE = 4.0
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

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        whole = sum(sizes.values())
        self.into = torch.nn.Parameter(torch.randn(whole, HIDDEN) / math.sqrt(whole))
        self.bias = torch.nn.Parameter(torch.zeros(HIDDEN))
        named = {f"{model}/{aim}": size for model, size in sizes.items() for aim in task_vectors.AIMS}
        self.linear = torch.nn.ParameterDict({name: torch.zeros(size, size) for name, size in named.items()})
        self.out = torch.nn.ParameterDict({name: torch.zeros(HIDDEN, size) for name, size in named.items()})

    def forward(self, vectors: Vectors) -> dict[str, Vectors]:
        """The vectors of tasks, by aim."""
        # Their numbers are small, since their lengths are one: four times as large, the hidden layer learns sooner.
        seen = INPUT_SCALE * torch.cat((vectors.english, vectors.multilingual), dim=-1)
        hidden = functional.dropout(functional.relu(seen @ self.into + self.bias), DROPPED)

        def moved(model: str, aim: str) -> Tensor:
            given, name = getattr(vectors, model), f"{model}/{aim}"
            return functional.normalize(given + given @ self.linear[name] + hidden @ self.out[name], dim=-1)

        return {aim: Vectors(*(moved(model, aim) for model in task_vectors.MODELS)) for aim in task_vectors.AIMS}


def packed(members: Sequence[Network]) -> dict[str, Any]:
    """The mean of networks as the arrays of the file: their hidden layers stand side by side. Matrices are whole numbers
    from -127 to 127, with a scale for each."""
    matrices = {"into": INPUT_SCALE * torch.cat([one.into for one in members], dim=1)}
    for name in members[0].linear:
        matrices[f"{name}/linear"] = torch.stack([one.linear[name] for one in members]).mean(dim=0)
        matrices[f"{name}/out"] = torch.cat([one.out[name] for one in members]) / len(members)
    arrays: dict[str, Any] = {"bias": torch.cat([one.bias for one in members]).detach().numpy().astype("<f2")}
    for name, matrix in matrices.items():
        values = matrix.detach().numpy()
        scale = numpy.abs(values).max() / 127
        arrays[name] = numpy.rint(values / scale).astype(numpy.int8)
        arrays[f"{name}/{task_vectors.SCALE}"] = numpy.asarray(scale, "<f4")
    return arrays


def train(tasks: Tasks, catalog: Catalog, seed: int) -> Network:
    torch.manual_seed(seed)
    network = Network({"english": tasks.vectors.english.shape[1], "multilingual": tasks.vectors.multilingual.shape[1]})
    matrices, others = ([part for part in network.parameters() if (part.ndim > 1) is kind] for kind in (True, False))
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE)
    steps = ROUNDS * math.ceil(len(tasks.right) / BATCH_TASKS)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.02, 1 - step / steps))
    for number in range(ROUNDS):
        losses = []
        for chosen in torch.randperm(len(tasks.right)).split(BATCH_TASKS):
            moved = network(Vectors(*(all_of_them[chosen] for all_of_them in tasks.vectors)))
            english = ENGLISH_WEIGHT * (tasks.shares[chosen] * (torch.rand(len(chosen)) > ALONE))[:, None]
            near = _scores(moved["purpose"], english, catalog.purposes)
            around = _scores(moved["context"], english, catalog.contexts)[:, catalog.context_of]
            around = torch.where(torch.rand(len(chosen), 1) < ALONE, UNKNOWN_CONTEXT * near, around)
            loss = _loss(near + CONTEXT_WEIGHT * around, tasks.right[chosen], catalog.context_of)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rate.step()
            losses.append(loss.item())
        print(
            f"network {seed + 1} of {MEMBERS}, round {number + 1} of {ROUNDS}: loss {sum(losses) / len(losses):.3f}",
            flush=True,
        )
    return network


def _scores(tasks: Vectors, english: Tensor, texts: Vectors) -> Tensor:
    return english * (tasks.english @ texts.english.T) + (1 - english) * (tasks.multilingual @ texts.multilingual.T)


def _loss(scores: Tensor, right: Tensor, context_of: Tensor) -> Tensor:
    ahead = scores - scores.mean(1, keepdim=True)
    fitting = ahead.gather(1, right[:, None])[:, 0]
    others = ahead.masked_fill(context_of[None] == context_of[right][:, None], -9.0).max(1)[0]
    told = functional.softplus(SHARPNESS * (DISTANCE - fitting)) + functional.softplus(SHARPNESS * (others - DISTANCE))
    compared = functional.cross_entropy(SHARPNESS * scores, right, label_smoothing=SMOOTHING)
    return compared + DISTANCE_WEIGHT * told.mean()


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
    vectors = await read(said, said)
    # As in a search: what is not English at all is not read by the model for English.
    vectors = vectors._replace(english=vectors.english * (shares > 0)[:, None])
    given = Tasks(vectors, shares, torch.tensor([number for _, number in tasks]))
    arrays = packed([train(given, catalog, seed) for seed in range(MEMBERS)])
    numpy.savez_compressed(Path(task_vectors.__file__).with_name(task_vectors.FILE), **arrays)


if __name__ == "__main__":
    asyncio.run(main())
