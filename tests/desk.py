"""A server under test with keys of several users and roles, each of which sends requests by its name."""

from typing import Any

import orjson

from tests.serving import Answer, Site
from toolgate import Actor, App
from toolgate.model.roles import Role


class Desk:
    """Sends requests with the keys of named people."""

    def __init__(self, app: App, site: Site) -> None:
        self.app = app
        self.site = site
        self.keys: dict[str, str] = {}

    async def add(self, name: str, actor: Actor, *roles: Role, **terms: Any) -> None:
        """Make a key, known here by its name."""
        self.keys[name] = (await self.app.keys.create(name, actor, roles=roles, **terms))[1]

    async def staff(self) -> None:
        """Make the usual keys: one for each role in the tenant acme, an admin of another, an operator."""
        for name, role in (("cora", "caller"), ("vera", "viewer"), ("apu", "approver"), ("adam", "admin")):
            await self.add(name, Actor("acme", user=name), role)  # type: ignore[arg-type]
        await self.add("eve", Actor("other", user="eve"), "admin")
        await self.add("op", Actor("ops", user="oscar"), "operator")

    async def __call__(
        self, who: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        sent = b"" if body is None else orjson.dumps(body)
        return await self.site(method, path, headers or {}, sent, key=self.keys[who])

    async def statuses(self, method: str, path: str, body: Any = None) -> dict[str, int]:
        """Send one request as each of the usual people; gives the status for each."""
        return {who: (await self(who, method, path, body)).status for who in ("cora", "vera", "apu", "adam", "eve", "op")}
