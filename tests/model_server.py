"""A language model's server on loopback, in either dialect: it answers what a test says, and notes what it was asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.loopback import Said, Site, site
from tests.services import Answer, scripted
from toolgate import App
from toolgate.testing import memory_app

KEY = "test-key-4fT9xQ2mL7"
PATHS = {"openai": "/v1", "anthropic": ""}
"""What stands before the dialect's own path."""


def openai(text: str | None, *, finish: str = "stop", read: int = 19, written: int = 10, **message: Any) -> Said:
    """A chat completion, as OpenAI documents it."""
    return Said(
        body={
            "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
            "object": "chat.completion",
            "created": 1741569952,
            "model": "gpt-5.1-2026-08-07",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": None, "annotations": [], **message},
                    "logprobs": None,
                    "finish_reason": finish,
                }
            ],
            "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
            "service_tier": "default",
        }
    )


def anthropic(*blocks: dict[str, Any], stop: str = "end_turn", read: int = 19, written: int = 10, **usage: int) -> Said:
    """A message, as Anthropic documents it."""
    return Said(
        body={
            "id": "msg_013Zva2CMHLNnjNjtJKqJ2EF",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-6",
            "content": list(blocks),
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {"input_tokens": read, "output_tokens": written, **usage},
        }
    )


def spoken(dialect: str, text: str) -> Said:
    """An answer of one text."""
    return openai(text) if dialect == "openai" else anthropic({"type": "text", "text": text})


@asynccontextmanager
async def modelled(
    dialect: str, *answers: Answer, model: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[App, Site]]:
    """An App whose model is on loopback, and everybody agrees to every call."""
    async with site(scripted(answers)) as server:
        named = {"provider": dialect, "name": "m-1", "base_url": f"{server.url}{PATHS[dialect]}", **(model or {})}
        async with memory_app(model=named, **settings) as app:
            app.approvals.add_approver(lambda _request: True)
            yield app, server
