"""The token cost of a tool's definition, counted with a real tokenizer (o200k) where one is installed."""

from functools import lru_cache
from typing import Any

import orjson

from toolgate.model import Tool


def definition_text(tool: Tool) -> str:
    """The text that a model is given of a tool."""
    shape = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return orjson.dumps(shape).decode()


def count_tokens(text: str) -> int:
    tokenizer = _tokenizer()
    return len(tokenizer.encode(text)) if tokenizer else -(-len(text) // 4)


def is_exact() -> bool:
    """False: no tokenizer is installed, and four characters are taken for a token."""
    return _tokenizer() is not None


@lru_cache(maxsize=1)
def _tokenizer() -> Any:
    try:
        import splintr
    except ImportError:
        return None
    return splintr.Tokenizer.from_pretrained("o200k_base")
