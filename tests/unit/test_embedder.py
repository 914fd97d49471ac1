"""Texts as vectors: of like meaning alike, of length one, whatever the text is."""

import asyncio
import sys
from pathlib import Path

import numpy
import pytest

from toolgate.embeddings import DIMENSIONS, Embedder, embedder
from toolgate.errors import ToolError
from toolgate.extras import MissingExtra

pytestmark = pytest.mark.requirement("BUILTIN-4")


async def test_texts_of_like_meaning_are_nearer_than_others() -> None:
    texts = ["The user's cat sleeps all day", "Deployments on Fridays are forbidden", "Paris is the capital of France"]
    queries = ["When does the feline rest?", "May I ship a release before the weekend?", "French government seat"]
    vectors, asked = await Embedder().embed(texts), await Embedder().embed(queries)
    assert vectors.shape == (3, DIMENSIONS)
    assert vectors.dtype == numpy.float32
    assert (asked @ vectors.T).argmax(axis=1).tolist() == [0, 1, 2]


async def test_a_text_has_one_vector_however_many_are_asked_for_with_it() -> None:
    texts = [f"note {number}: " + "word " * (number % 40) for number in range(50)]
    together = await Embedder().embed(texts)
    for index in (0, 17, 39, 49):
        alone = await Embedder().embed([texts[index]])
        assert float(together[index] @ alone[0]) > 0.999


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\x00",
        "\ud800 lone surrogate",
        "a" * 100_000,
        " " * 100_000 + "end",
        "日本語 " * 3_000,
        "🙂" * 500,
        "[CLS] [PAD]",
    ],
)
async def test_any_text_has_a_vector_of_length_one(text: str) -> None:
    (vector,) = await Embedder().embed([text])
    assert numpy.isfinite(vector).all()
    assert float(numpy.linalg.norm(vector)) == pytest.approx(1, abs=1e-5)


async def test_of_a_long_text_its_beginning_counts() -> None:
    begin = "Tea is served at four. " * 100
    first, second, other = await Embedder().embed([begin + "Rockets fly.", begin + "Cats purr.", "Rockets fly."])
    assert float(first @ second) > 0.9999
    assert float(first @ other) < 0.5


async def test_nothing_is_given_for_nothing() -> None:
    assert (await Embedder().embed([])).shape == (0, DIMENSIONS)


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_query_does_not_wait_for_a_library() -> None:
    await Embedder().embed(["loaded"])
    library = asyncio.ensure_future(Embedder().embed(["a page of a book about birds"] * embedder.BATCH_TEXTS * 20))
    await asyncio.sleep(0)
    await Embedder().embed(["query"])
    assert not library.done()
    await library


async def test_another_model_than_the_known_one_is_not_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "planted_model"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "model.onnx").write_bytes(b"something else")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(embedder, "MODEL_PACKAGE", "planted_model")
    with pytest.raises(ToolError, match="not the one that this Toolgate was made for"):
        embedder._weights()
    (package / "model.onnx").unlink()
    with pytest.raises(ToolError, match="its file is damaged"):
        embedder._weights()


def test_texts_are_read_as_the_model_was_taught() -> None:
    """Numbers that BERT's own tokenizer gives (lower case)."""
    tokenizer = embedder._tokenizer()
    assert tokenizer.encode("Hello, world!").ids == [101, 7592, 1010, 2088, 999, 102]
    assert tokenizer.encode("unbelievably").tokens == ["[CLS]", "un", "##bel", "##ie", "##va", "##bly", "[SEP]"]
    assert tokenizer.encode("café").ids == tokenizer.encode("CAFE").ids
    assert tokenizer.encode("x" * 101).tokens == ["[CLS]", "[UNK]", "[SEP]"]
    assert tokenizer.encode("[SEP]").tokens == ["[CLS]", "[", "sep", "]", "[SEP]"]  # a text can't end itself
    assert len(tokenizer.encode("word " * 1_000).ids) == embedder.WINDOW_TOKENS
    assert tokenizer.get_vocab_size() == 30_522


async def test_without_the_extra_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder._model.cache_clear()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtra, match=r"Search by meaning is not installed: install the extra toolgate\[embeddings\]"):
        await Embedder().embed(["text"])
