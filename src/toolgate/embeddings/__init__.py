"""Embeddings: texts as vectors, of which those of like meaning point in like directions. `embedder` computes them with a
model that runs in this process, `multilingual` with another that knows more languages; the vectors of two models can't be
compared, so each is kept with its model's name."""

from toolgate.embeddings.embedder import DIMENSIONS, Embedder
from toolgate.embeddings.multilingual import MultilingualEmbedder

__all__ = ["DIMENSIONS", "Embedder", "MultilingualEmbedder"]
