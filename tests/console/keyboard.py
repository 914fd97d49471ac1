"""Somebody who has no mouse: goes by Tab, by the keys that pages name, and by typing."""

from playwright.async_api import Locator, Page, expect

MAX_TABS = 120


class Keyboard:
    """Hands on the keys of one page. Nothing is clicked or focused but by them."""

    def __init__(self, page: Page) -> None:
        self.page = page

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.page.keyboard.press(key)

    async def tab_to(self, goal: Locator, key: str = "Tab") -> None:
        """Goes on until something has the focus, and sees that it is shown there."""
        await expect(goal).to_be_visible()
        for _ in range(MAX_TABS):
            if await goal.evaluate("one => one === document.activeElement"):
                ring = await goal.evaluate("one => getComputedStyle(one).outlineStyle")
                assert ring != "none" or await goal.evaluate("one => one.matches('input, select, textarea')"), ring
                return
            await self.page.keyboard.press(key)
        at = await self.page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
        raise AssertionError(f"{MAX_TABS} times {key} do not lead to {goal}; the focus is at {at}")

    async def choose(self, goal: Locator, key: str = "Enter") -> None:
        """Goes to a button or link and presses it."""
        await self.tab_to(goal)
        await self.page.keyboard.press(key)

    async def fill(self, goal: Locator, text: str) -> None:
        """Goes to a field and types over what is in it."""
        await self.tab_to(goal)
        await self.page.keyboard.press("Control+a")
        await self.page.keyboard.type(text)

    async def pick(self, goal: Locator, label: str) -> None:
        """Goes to a list of choices and types the beginning of one."""
        await self.tab_to(goal)
        await self.page.keyboard.type(label)

    async def is_at(self, goal: Locator) -> None:
        """Expects the focus somewhere."""
        await expect(goal).to_be_focused()

    async def at_the_content(self) -> None:
        """Expects that the page has taken the focus to what is new, and not to its top."""
        await expect(self.page.locator("main:focus, main :focus")).to_have_count(1)
