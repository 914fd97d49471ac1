"""MCP clients for tests of the server door: the SDK's own, of both protocol eras, over HTTP with a real key."""

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.serving import Site
from toolgate import App
from toolgate.model import Actor
from toolgate.network.tls import tls

ERAS = ("legacy", "2026-07-28")
"""How the SDK's client is told which protocol to speak."""


async def key_for(app: App, actor: Actor, **terms: Any) -> str:
    """A new key of an actor's."""
    return (await app.keys.create(f"test {uuid.uuid4()}", actor, **terms))[1]


@asynccontextmanager
async def connected(site: Site, key: str | None, era: str, **abilities: Any) -> AsyncIterator[Client]:
    """A client that has this key and can do this much."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60, verify=tls()) as http:
        transport = streamable_http_client(f"http://{site.host}/mcp", http_client=http)
        async with Client(transport, mode=era, **abilities) as client:
            yield client


class Person:
    """Whoever fills in the forms that a client shows: says the same each time, and remembers what was shown."""

    def __init__(self, action: str = "accept", **filled: Any) -> None:
        self._answer = types.ElicitResult.model_validate(
            {"action": action, "content": filled} if action == "accept" else {"action": action}
        )
        self.shown: list[str] = []

    async def __call__(self, _context: Any, asked: types.ElicitRequestParams) -> types.ElicitResult:
        self.shown.append(asked.message)
        return self._answer


def meta(values: Mapping[str, Any]) -> types.RequestParamsMeta:
    """What a client sends along with a request, of whatever kind."""
    return cast(types.RequestParamsMeta, dict(values))


def text_of(result: Any) -> str:
    """The words of a result."""
    return "\n".join(part.text for part in result.content if isinstance(part, types.TextContent))
