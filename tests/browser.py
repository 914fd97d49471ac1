"""A browser, as far as a server can tell: it keeps the cookies that it is given, and says where a request comes from."""

from collections.abc import Mapping

from tests.serving import Answer, Site

PAGE = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
"""What a script of our own pages sends."""
OPENED = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
"""What a person sends who opens an address."""


class Browser:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.cookies: dict[str, str] = {}

    @property
    def cookie(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())

    async def __call__(
        self, method: str, path: str, headers: Mapping[str, str] = PAGE, body: bytes = b"", *, key: str | None = None
    ) -> Answer:
        sent = {"Cookie": self.cookie, **headers}
        answer = await self.site(method, path, sent, body, key=key)
        if "set-cookie" in answer.headers:
            name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
            self.cookies[name] = value
            if not value:
                del self.cookies[name]
        return answer

    async def open(self, token: str, more: str = "", headers: Mapping[str, str] = OPENED) -> Answer:
        """Open a sign-in link."""
        return await self("GET", f"/sign-in?token={token}{more}", headers)
