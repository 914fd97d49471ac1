"""The people of the tests of /v1: keys of each role, of another user, and of another tenant, at one server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from tests.serving import Answer, Site, serving
from toolgate import Actor, App
from toolgate.model.roles import ROLES, Role

ANN = Actor("acme", user="ann")
BOB = Actor("acme", user="bob")
EVE = Actor("other", user="ann")
"""Another tenant's user, who has the same name as one of ours."""


class Person:
    """Somebody with a key, who sends requests."""

    def __init__(self, site: Site, key: str, actor: Actor) -> None:
        self._site, self.key, self.actor = site, key, actor

    async def get(self, path: str, headers: dict[str, str] | None = None, **query: Any) -> Answer:
        text = f"?{urlencode(query, quote_via=quote)}" if query else ""
        return await self._site("GET", path + text, headers or {}, key=self.key)

    async def post(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        sent = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        return await self._site("POST", path, headers or {}, sent, key=self.key)

    async def delete(self, path: str) -> Answer:
        return await self._site("DELETE", path, key=self.key)

    async def all(self, path: str, **query: Any) -> list[Any]:
        """All items of a list, page by page."""
        items: list[Any] = []
        while True:
            answer = await self.get(path, **query)
            assert answer.status == 200, answer.body
            items += answer.json["items"]
            if answer.json["next"] is None:
                return items
            query["cursor"] = answer.json["next"]


class People:
    """Everybody who asks: one of each role in the tenant acme, another caller there, and an admin of another tenant."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.of: dict[Role, Person] = {}
        self.bob: Person
        self.eve: Person

    @property
    def ann(self) -> Person:
        """A caller."""
        return self.of["caller"]


async def person(app: App, site: Site, actor: Actor, *roles: Role) -> Person:
    name = f"{actor.tenant} {actor.user} {' '.join(roles)}"
    return Person(site, (await app.keys.create(name, actor, roles=roles))[1], actor)


@asynccontextmanager
async def people(app: App) -> AsyncIterator[People]:
    """The server of an open App, and everybody who asks it."""
    async with serving(app) as site:
        found = People(site)
        for role in ROLES:
            found.of[role] = await person(app, site, Actor("acme", user="ann" if role == "caller" else role), role)
        found.bob = await person(app, site, BOB, "caller")
        found.eve = await person(app, site, EVE, "admin")
        yield found
        await app.keys.close()


def same(one: Answer, other: Answer) -> bool:
    """Tells whether two answers can't be told apart, but for the ids of the requests."""
    return one.status == other.status and {**one.json, "request_id": ""} == {**other.json, "request_id": ""}
