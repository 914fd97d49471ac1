"""Somebody who is signed in and whose browser is nothing but HTTP: for what needs no Chromium."""

import re
from urllib.parse import quote, urlencode

from tests.serving import Answer, Site
from toolgate import Actor, App
from toolgate.model.roles import Role

CSRF = re.compile(rb'name="csrf" value="([^"]+)"')


class PlainBrowser:
    """Sends the cookie of its session, and with forms the hidden field of its last page."""

    def __init__(self, site: Site, cookie: str) -> None:
        self._site, self._cookie, self._csrf = site, cookie, ""

    async def get(self, path: str) -> Answer:
        answer = await self._site("GET", path, {"Cookie": self._cookie})
        found = CSRF.search(answer.body)
        self._csrf = found[1].decode() if found else self._csrf
        return answer

    async def post(self, path: str, fields: dict[str, str], csrf: str | None = None) -> Answer:
        body = urlencode({"csrf": csrf or self._csrf, **fields}, quote_via=quote).encode()
        headers = {
            "Cookie": self._cookie, "Content-Type": "application/x-www-form-urlencoded",
            "Origin": f"http://{self._site.host}", "Sec-Fetch-Site": "same-origin",
        }  # fmt: skip
        return await self._site("POST", path, headers, body)


async def signed_in(app: App, site: Site, actor: Actor, *roles: Role) -> PlainBrowser:
    """Opens the link of an actor with some roles."""
    _, token = await app.sign_ins.create_link(actor, roles=roles)
    answer = await site("GET", f"/sign-in?token={token}")
    browser = PlainBrowser(site, answer.headers["set-cookie"].partition(";")[0])
    await browser.get("/")
    return browser
