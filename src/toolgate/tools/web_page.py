"""The text of a web page, as Markdown or plain. `http_fetch` runs it in a process of its own, because pages are hostile."""

import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin

UNSEEN = frozenset({"script", "style", "template", "noscript", "svg", "math", "iframe", "object", "nav", "footer"})
VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "source", "wbr", "area", "base", "col", "embed", "track"})
UNBROKEN = frozenset(
    {"a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "del", "em", "font", "i", "ins", "kbd", "label", "mark", "q",
     "s", "samp", "small", "span", "strong", "sub", "sup", "tbody", "tfoot", "thead", "time", "u", "var"}
)  # fmt: skip
CELLS = frozenset({"td", "th"})
HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
MAX_TITLE_CHARS = 300
MAX_OPEN_TAGS = 50
SHORT_PAGE_CHARS = 1_000
MIN_ARTICLE_CHARS = 200
MAX_LINKS = 2_000
MAX_LINK_CHARS = 2_000
LINK_SCHEMES = ("http:", "https:", "mailto:")
_LANGUAGE = re.compile(r"(?:^|\s)lang(?:uage)?-([\w+#.-]{1,20})(?:\s|$)")


def readable(asked: dict[str, Any]) -> dict[str, Any]:
    """Title and text of a page: {html, url, markdown, most} gives {title, text, truncated}."""
    html, markdown = asked["html"], asked["markdown"]
    plain = PageText(asked["url"], markdown=markdown)
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
        from trafilatura import extract, load_html
    except ImportError:
        return None
    tree = load_html(html)
    if tree is None:
        return None
    if markdown:
        _write_links(tree, url)
        _mark_code(tree)
    found = extract(
        tree,
        url=url,
        output_format="markdown" if markdown else "txt",
        include_links=markdown,
        include_formatting=markdown,
        include_tables=True,
        include_comments=False,
    )
    return str(found) if found else None


def _write_links(tree: Any, url: str) -> None:
    """Makes links absolute: trafilatura takes the host alone for their base, so they would lead to other pages."""
    for number, link in enumerate(tree.iter("a")):
        address = link_address(url, link.attrib.pop("href", "")) if number < MAX_LINKS else ""
        if address:
            link.set("href", address)


def _mark_code(tree: Any) -> None:
    """Puts the text of each `pre` into a `code`: trafilatura takes no other for a block of code."""
    for block in tree.iter("pre"):
        if len(block) == 0 and block.text:
            code = block.makeelement("code", {})
            code.text, block.text = block.text, None
            block.append(code)


class PageText(HTMLParser):
    """Collects what a reader of a page sees; as Markdown with links, tables and blocks of code. No tree is built, so nesting
    costs nothing."""

    def __init__(self, url: str, *, markdown: bool) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self._markdown = markdown
        self._done: list[str] = []
        """What stands before `_parts`: finished text and blocks of code, in turn."""
        self._parts: list[str] = []
        self._title: list[str] = []
        self._in_title = False
        self._unseen: list[str] = []
        """The open tags whose content is not shown."""
        self._preformatted = False
        self._language = ""
        self._begun: dict[str, tuple[int, str]] = {}
        """By tag (`a`, `code`, `tr`): where in `_parts` the open one begins, and the address of a link."""
        self._links = self._rows = self._cells = 0

    def title(self) -> str:
        return " ".join("".join(self._title).split())[:MAX_TITLE_CHARS]

    def text(self) -> str:
        self._finish()
        return "\n\n".join(part for part in self._done if part)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and not self._title:
            self._in_title = True
        elif tag in UNSEEN:
            self._unseen = [*self._unseen[-MAX_OPEN_TAGS:], tag]
        elif tag == "br":
            self._parts.append("\n")
        elif self._preformatted:
            self._language = self._language or _language(attrs)
        elif tag == "pre":
            self._finish()
            self._preformatted, self._language = True, _language(attrs)
        elif tag in ("a", "code"):
            self._begin_inline(tag, attrs)
        elif tag in CELLS:
            self._cells += 1
            self._parts.append(" | ")
        elif tag not in UNBROKEN:
            self._begin_block(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif self._unseen and tag in self._unseen:
            while self._unseen.pop() != tag:
                pass
        elif self._preformatted:
            if tag == "pre":
                self._finish()
        elif tag in ("a", "code"):
            self._end_inline(tag)
        elif tag == "tr":
            self._end_row()
        elif tag not in UNBROKEN and tag not in VOID and tag not in CELLS:
            self._parts.append(" " if tag == "li" else "\n\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif not self._unseen:
            self._parts.append(data if self._preformatted else data.replace("\n", " "))

    # -- Markdown

    def _begin_block(self, tag: str) -> None:
        mark = HEADINGS.get(tag, "- " if tag == "li" else "") if self._markdown else ""
        self._parts.append(f"\n{mark}" if tag in ("li", "tr") else f"\n\n{mark}")
        if tag == "table":
            self._rows = 0
        if tag == "tr":
            self._cells = 0
            self._begun["tr"] = len(self._parts), ""

    def _end_row(self) -> None:
        """Ends a row of a table; under the first goes the line that makes a table of it, unless it is there for layout."""
        begin, _ = self._begun.pop("tr", (len(self._parts), ""))
        row = "".join(self._parts[begin:])
        if self._markdown and self._cells and "\n" not in row.strip():
            self._parts.append(" |")
            if not self._rows:
                self._parts.append(f"\n{'|---' * self._cells}|")
        self._rows += 1

    def _begin_inline(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._markdown and not self._unseen:
            self._begun[tag] = len(self._parts), self._address(attrs) if tag == "a" else ""

    def _end_inline(self, tag: str) -> None:
        """Writes a link or code within a line. Only its end tells that it is one: tags may be left open."""
        begin, address = self._begun.pop(tag, (len(self._parts), ""))
        if begin >= len(self._parts) or (tag == "a" and not address):
            return
        whole = "".join(self._parts[begin:])
        words = " ".join(whole.split())
        if not words or (tag == "code" and ("`" in words or "](" in words)):
            return
        written = f"[{words.lstrip('# ')}]({address})" if tag == "a" else f"`{words}`"
        before, after = " " if whole[0].isspace() else "", " " if whole[-1].isspace() else ""
        self._parts[begin:] = [f"{before}{written}{after}"]

    def _address(self, attrs: list[tuple[str, str | None]]) -> str:
        self._links += 1
        return link_address(self._url, dict(attrs).get("href") or "") if self._links <= MAX_LINKS else ""

    def _finish(self) -> None:
        """Ends a stretch of text, or a block of code, whose spaces and lines stay as they are."""
        text = "".join(self._parts)
        if self._preformatted:
            code = "\n".join(line.rstrip() for line in text.strip("\n").split("\n")).rstrip()
            if code and self._markdown:
                fence = max(["```", *(f"{run}`" for run in re.findall(r"`{3,}", code))], key=len)
                code = f"{fence}{self._language}\n{code}\n{fence}"
            self._done.append(code)
        else:
            lines = (" ".join(line.split()) for line in text.split("\n"))
            self._done.append(re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip())
        self._parts, self._preformatted, self._begun = [], False, {}


def link_address(url: str, href: str) -> str:
    """Where a link on a page leads; empty: to the page itself, or nowhere that can be fetched."""
    href = href.strip()
    if not href or href.startswith("#"):
        return ""
    try:
        whole = urljoin(url, href)
    except ValueError:
        return ""
    if len(whole) > MAX_LINK_CHARS or not whole.lower().startswith(LINK_SCHEMES):
        return ""
    return re.sub(r"[\s()<>]", lambda found: f"%{ord(found[0]):02X}" if found[0].isascii() else "", whole)


def _language(attrs: list[tuple[str, str | None]]) -> str:
    found = _LANGUAGE.search(dict(attrs).get("class") or "")
    return found[1] if found else ""
