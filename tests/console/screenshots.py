"""Takes pictures of every page of the console with the demo's content: `python -m tests.console.screenshots [FOLDER]`.

Each page in light and dark, on a desk and on a phone, into docs/images/console, so that pictures never grow old. What does
not fit is said: pages that scroll sideways, panels that are narrower than what is in them, and messages of the browser.
"""

import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.chromium import DESKTOP, FLAGS, PHONE
from tests.needs import chromium_program
from toolgate.serve.console.site import ROUTES

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "images" / "console"
TOOLGATE = str(Path(sys.executable).with_name("toolgate"))
COLOURS = 256
"""Of a picture: text and panels need few, and a picture takes a fifth of the room."""
DISTINCT, SWATCH = 32, 40
"""Colours that are kept for being unlike all others, and pixels that one has at least: what a legend names is seen in it."""
SIZES = {name: (size["width"], size["height"]) for name, size in (("desktop", DESKTOP), ("phone", PHONE))}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
MAX_HEIGHT = 2_400
TELLING = {
    "/tools": "/tools?q=find_order", "/calls": "/calls?tool=weekly_report",
    "/calls/{id}/undo": "/calls?tool=write_file&status=success", "/openapi/{name}": "/servers",
}  # fmt: skip
"""By list, or by page about one thing: the part of the list whose first thing has most to show."""
DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Parcel carrier", "version": "2.3.0", "description": "Rates, labels and tracking of parcels."},
    "servers": [{"url": "https://api.carrier.example"}],
    "paths": {
        "/rates": {"get": {"operationId": "list_rates", "summary": "List the rates for a parcel.", "responses": {}}},
        "/labels": {"post": {"operationId": "buy_label", "summary": "Buy a label for a parcel.", "responses": {}}},
        "/labels/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            "delete": {"operationId": "cancel_label", "summary": "Cancel a label.", "responses": {}},
        },
    },
}
WROTE = ("path=notes.txt", "content=Count the A-200 on Friday.", "--tenant", "acme", "--user", "lena")
WITHOUT_PLACES = """(places) => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode())
        for (const [from, to] of places) walker.currentNode.data = walker.currentNode.data.replaceAll(from, to);
}"""
"""Where the server of the pictures was run is nobody's business."""


@contextmanager
def demo() -> Iterator[tuple[str, str]]:
    """A server with the demo's content. Gives the link to sign in, and its folder."""
    with tempfile.TemporaryDirectory() as home:
        command = [TOOLGATE, "--home", f"{home}/demo", "serve", "--demo", "--port", "0", "--json"]
        process = subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            link = json.loads(process.stdout.readline())["sign_in"]
            add_more(Path(home))
            yield link, home
        finally:
            process.terminate()
            process.wait(30)


def add_more(home: Path) -> None:
    """Adds what the demo has none of: an OpenAPI document, and a change that can be undone."""
    document = home / "carrier.json"
    document.write_text(json.dumps(DOCUMENT))
    for command in (("tools", "add", "--openapi", str(document)), ("call", "write_file", *WROTE, "--yes")):
        settings = str(home / "demo" / "toolgate.yaml")
        subprocess.run([TOOLGATE, "--settings", settings, *command], cwd=home, check=True, stdout=subprocess.DEVNULL)


def addresses(page: Page, root: str) -> dict[str, str]:
    """The address of each page, by the name of its picture. Of a page about one thing: that of the first on its list."""
    found: dict[str, str] = {}
    for path in sorted({route.path for route in ROUTES if route.method == "GET"}):
        name = re.sub(r"[^a-z]+", "-", path.replace("{", "one-").lower()).strip("-") or "overview"
        if "{" not in path:
            found[name] = path
            continue
        listed = path[: path.index("/{")]
        page.goto(root + TELLING.get(path, TELLING.get(listed, listed)))
        links = page.locator(f'main a[href^="{listed}/"]')
        address = f"{links.first.get_attribute('href')}{path[path.index('}') + 1 :]}" if links.count() else None
        answer = None if address is None else page.goto(root + address)
        if address is not None and answer is not None and answer.ok:
            found[name] = address
        else:
            print(f"no picture of {path}: {listed} leads to none", file=sys.stderr)
    return found | {"search": "/search?q=file"} if "search" in found else found


def take(page: Page, address: str, file: Path, home: str) -> list[str]:
    """One picture. Gives what is wrong with the page."""
    size = page.viewport_size
    assert size is not None
    answer = page.goto(address)
    page.wait_for_timeout(300)  # plots are drawn
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    narrow = page.evaluate(
        "[...document.querySelectorAll('.panel')].filter((one) => one.scrollWidth > one.clientWidth).length"
    )
    page.evaluate(WITHOUT_PLACES, [[home, "/srv"], [str(Path(TOOLGATE).parent), "/usr/bin"]])
    height = min(page.evaluate("document.documentElement.scrollHeight"), MAX_HEIGHT)
    page.set_viewport_size({"width": size["width"], "height": max(height, size["height"])})  # bars at its bottom stand there
    taken = page.screenshot(animations="disabled")
    page.set_viewport_size(size)
    _kept(Image.open(io.BytesIO(taken)).convert("RGB")).save(file, optimize=True)
    faults = [f"{file.name}: {wide} px too wide"] if wide > 0 else []
    faults += [f"{file.name}: {narrow} panels are too narrow"] if narrow else []
    status = 0 if answer is None else answer.status
    return [*faults, *([f"{file.name}: status {status}"] if status != 200 else [])]


def _kept(image: Image.Image) -> Image.Image:
    """The picture in its most frequent and most distinct colours, exactly as they are; others as the nearest of them.
    Pillow's own palettes are not exact: white would be grey."""
    parts = np.asarray(image, dtype=np.int64)
    colours, places, counts = np.unique(parts @ (65_536, 256, 1), return_inverse=True, return_counts=True)
    known = np.stack((colours >> 16, colours >> 8 & 255, colours & 255), axis=1)
    kept = known[np.argsort(-counts)[: COLOURS - DISTINCT]]
    large = known[counts >= SWATCH]
    for _ in range(DISTINCT):
        away = np.square(large[:, None] - kept).sum(axis=2).min(axis=1)
        kept = np.vstack((kept, large[away.argmax()]))
    nearest = np.array([np.square(kept - one).sum(axis=1).argmin() for one in known], dtype=np.uint8)
    taken = Image.fromarray(nearest[places].reshape(parts.shape[:2]))
    taken.putpalette(kept.astype(np.uint8).tobytes())
    return taken


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    faults: list[str] = []
    errors: list[str] = []
    with demo() as (link, home), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_program(), args=list(FLAGS))
        root = link[: link.index("/sign-in")]
        first = browser.new_context()
        page = first.new_page()
        page.goto(link)
        state = first.storage_state()
        pages = addresses(page, root)
        for size, (width, height) in SIZES.items():
            for scheme in SCHEMES:
                context = browser.new_context(
                    viewport={"width": width, "height": height}, color_scheme=scheme, storage_state=state,
                    is_mobile=size == "phone", has_touch=size == "phone",
                )  # fmt: skip
                page = context.new_page()
                page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
                for name, path in pages.items():
                    faults += take(page, root + path, folder / f"{name}-{size}-{scheme}.png", home)
                context.close()
        browser.close()
    faults += errors
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(pages) * 4} pictures in {folder}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
