"""A scripted model, with the clients of OpenAI's API that frameworks reach it by, which a test closes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from httpx import AsyncClient
from openai import AsyncOpenAI

from tests.adapters.scripted_models import ScriptedModel, Turn, scripted

MODEL = "m-1"
KEY = "none-is-needed"


class ChatModel(NamedTuple):
    """A model and its clients."""

    script: ScriptedModel
    http: AsyncClient
    openai: AsyncOpenAI

    @property
    def base_url(self) -> str:
        return f"{self.script.url}/v1"

    def told(self) -> list[tuple[str, str]]:
        return self.script.told()

    def tools(self) -> list[str]:
        return self.script.tools()


@asynccontextmanager
async def chatting(*turns: Turn) -> AsyncIterator[ChatModel]:
    async with scripted(*turns) as script, AsyncClient() as http:
        client = AsyncOpenAI(base_url=f"{script.url}/v1", api_key=KEY, max_retries=0, http_client=http)
        yield ChatModel(script, http, client)
