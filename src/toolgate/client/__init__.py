"""A client of a Toolgate server, which calls it by the names of `App`.

    async with AsyncClient.open("https://gate.example.com", key="tg_…") as app:   # in place of App.open()
        outcome = await app.invoke("add", {"a": 1, "b": 2})

`Client` is the same without async. Who calls is decided by the key, so that there is no `actor`; some methods take plain
arguments where those of `App` take objects, and give the answers of the routes.
"""

from toolgate.client.async_client import AsyncClient
from toolgate.client.connection import RequestRefused, ServerUnreachable
from toolgate.client.sync_client import Client

__all__ = ["AsyncClient", "Client", "RequestRefused", "ServerUnreachable"]
