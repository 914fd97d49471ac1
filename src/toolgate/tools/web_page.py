"""The text of a web page, as Markdown or plain. `http_fetch` runs it in a process of its own, because pages are hostile."""

import re
from html.parser import HTMLParser
from typing import Any

UNSEEN = frozenset({"script", "style", "template", "noscript", "svg", "math", "iframe", "object", "nav", "footer"})
VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "source", "wbr", "area", "base", "col", "embed", "track"})
INLINE = frozenset(
    {"a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "del", "em", "font", "i", "ins", "kbd", "label", "mark", "q",
     "s", "samp", "small", "span", "strong", "sub", "sup", "time", "u", "var"}
)  # fmt: skip
CELLS = frozenset({"td", "th"})
HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
MAX_TITLE_CHARS = 300
MAX_OPEN_TAGS = 50
SHORT_PAGE_CHARS = 1_000
MIN_ARTICLE_CHARS = 200


def readable(asked: dict[str, Any]) -> dict[str, Any]:
    """Title and text of a page: {html, url, markdown, most} gives {title, text, truncated}."""
    html, markdown = asked["html"], asked["markdown"]
    plain = PageText(markdown=markdown)
    plain.feed(html)
    plain.close()
    text = plain.text()
    if len(text) > SHORT_PAGE_CHARS:  # of a short page everything is worth reading
        article = _article(html, asked["url"], markdown=markdown) or ""
        text = article if len(article) >= MIN_ARTICLE_CHARS else text
    return {"title": plain.title(), "text": text[: asked["most"]], "truncated": len(text) > asked["most"]}


def _article(html: str, url: str, *, markdown: bool) -> str | None:
    """The main text without menus and advertisements; None if trafilatura is not installed or finds none."""
    try:
        from trafilatura import extract
    except ImportError:
        return None
    found = extract(
        html, url=url, output_format="markdown" if markdown else "txt", include_links=markdown, include_comments=False
    )
    return str(found) if found else None


class PageText(HTMLParser):
    """Collects what a reader of a page sees. No tree is built, so nesting costs nothing."""

    def __init__(self, *, markdown: bool) -> None:
        super().__init__(convert_charrefs=True)
        self._markdown = markdown
        self._parts: list[str] = []
        self._title: list[str] = []
        self._in_title = False
        self._unseen: list[str] = []
        """The open tags whose content is not shown."""
        self._preformatted = False

    def title(self) -> str:
        return " ".join("".join(self._title).split())[:MAX_TITLE_CHARS]

    def text(self) -> str:
        lines = (" ".join(line.split()) for line in "".join(self._parts).split("\n"))
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - html.parser's
        if tag == "title" and not self._title:
            self._in_title = True
        elif tag in UNSEEN:
            self._unseen = [*self._unseen[-MAX_OPEN_TAGS:], tag]
        elif tag == "br":
            self._parts.append("\n")
        elif tag in CELLS:
            self._parts.append(" | ")
        elif tag not in INLINE:
            self._preformatted = self._preformatted or tag == "pre"
            mark = HEADINGS.get(tag, "- " if tag == "li" else "") if self._markdown else ""
            self._parts.append(f"\n{mark}" if tag in ("li", "tr") else f"\n\n{mark}")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif self._unseen and tag in self._unseen:
            while self._unseen.pop() != tag:
                pass
        elif tag not in INLINE and tag not in VOID and tag not in CELLS:
            self._preformatted = self._preformatted and tag != "pre"
            self._parts.append("\n" if tag in ("li", "tr") else "\n\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif not self._unseen:
            self._parts.append(data if self._preformatted else data.replace("\n", " "))
