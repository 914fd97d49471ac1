"""People at a real browser: Debian's Chromium, driven by Playwright, signed in by a link as a person would be."""

import gc
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright

from tests.needs import chromium_program
from tests.serving import Site
from toolgate import Actor, App
from toolgate.model.roles import Role

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
SEARCH_MS = 20_000
"""How long a page may take whose tools are the first that are searched: the models are loaded then."""
EXPECTED = ("status of 4",)
"""Messages of the browser about answers that a test asks for: those of 4xx."""

COLOURS = ("color-contrast", "link-in-text-block")
"""The rules of axe about colours, which are all that the dark scheme changes."""
SERIOUS = """(rules) => axe.run({resultTypes: ["violations"], ...(rules.length && {runOnly: rules})}).then((found) =>
    found.violations.filter((one) => ["serious", "critical"].includes(one.impact)).map((one) => ({
        rule: one.id, elements: one.nodes.slice(0, 3).map((node) => node.html.slice(0, 120)),
    })))"""
"""Not all that axe finds: bringing that here takes as long as finding it."""


async def inaccessible(page: Page, *rules: str) -> list[dict[str, Any]]:
    """What axe finds on a page that is serious or worse, by all of its rules or by some."""
    await page.evaluate(Axe().axe_script)
    found: list[dict[str, Any]] = await page.evaluate(SERIOUS, rules)
    return found


class People:
    """Those who are signed in at a site, each with cookies of their own. What a page's policy forbids, and what its
    scripts raise, is kept in `faults`, and must be nothing at the end."""

    def __init__(self, app: App, site: Site, browser: Browser) -> None:
        self._app = app
        self._site = site
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.faults: list[str] = []

    async def sign_in(self, actor: Actor, *roles: Role, path: str = "/", **terms: Any) -> Page:
        """A page of somebody who has opened their link and gone to an address. `terms`: as of Playwright's new_context."""
        context = await self._browser.new_context(**{"viewport": DESKTOP, **terms})
        self._contexts.append(context)
        context.set_default_timeout(10_000)
        page = await context.new_page()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        _, token = await self._app.sign_ins.create_link(actor, roles=roles)
        await page.goto(f"{self.url}/sign-in?token={token}")
        if path != "/":
            await page.goto(self.url + path)
        return page

    async def leave(self) -> None:
        """Nothing of theirs is there for the people of another test."""
        for context in self._contexts:
            await context.close()

    @property
    def url(self) -> str:
        return f"http://{self._site.host}"

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not any(words in message.text for words in EXPECTED):
            self.faults.append(message.text)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_program(), args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()
    with warnings.catch_warnings():
        # Playwright leaves the pipes of its driver to be collected, which another test would be told of.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@asynccontextmanager
async def people_of(app: App, site: Site, browser: Browser) -> AsyncIterator[People]:
    people = People(app, site, browser)
    try:
        yield people
    finally:
        await people.leave()
    assert not people.faults, people.faults
