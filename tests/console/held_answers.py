"""Answers of the server that reach a page only when a test lets them: what somebody does in between is done before them."""

import asyncio
import re

from playwright.async_api import Page, Route


class HeldAnswers:
    """The answers to requests for some addresses. They are made at once, and held back until `release`."""

    def __init__(self, method: str, is_boosted: bool) -> None:
        self.made = asyncio.Event()
        """Set when the server has made the first answer."""
        self.number = 0
        self._method = method
        self._is_boosted = is_boosted
        self._enough = asyncio.Event()

    def release(self) -> None:
        self._enough.set()

    async def __call__(self, route: Route) -> None:
        request = route.request
        if request.method != self._method or (self._is_boosted and "hx-boosted" not in request.headers):
            await route.fallback()
            return
        self.number += 1
        answer = await route.fetch(max_redirects=0)
        self.made.set()
        await self._enough.wait()
        await route.fulfill(response=answer)


async def hold(page: Page, address: str, method: str = "GET", *, is_boosted: bool = True) -> HeldAnswers:
    """Holds the answers to requests whose address matches a pattern; `is_boosted`: of clicks only, not of live parts."""
    held = HeldAnswers(method, is_boosted)
    await page.route(re.compile(address), held)
    return held
