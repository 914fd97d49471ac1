"""Reads HTML: the text that a reader of the page sees, under its headings. An event for each tag, so that no nesting,
however deep, costs more than its length."""

from html.parser import HTMLParser

from toolgate.documents.formats.blocks import DocumentText
from toolgate.documents.formats.markdown import decoded

UNSEEN = frozenset(
    ("script", "style", "template", "noscript", "svg", "math", "head", "nav", "footer", "iframe", "object", "select")
)  # fmt: skip
"""What is in them is not read. The title of the page, which stands in its head, is."""
VOID = frozenset(("br", "hr", "img", "input", "link", "meta", "source", "wbr", "area", "base", "col", "embed", "track"))
INLINE = frozenset(
    ("a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img", "ins", "kbd", "label",
     "mark", "q", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr")
)  # fmt: skip
CELLS = frozenset(("td", "th"))
HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))


def read_html(data: bytes, into: DocumentText) -> None:
    """Reads a page."""
    parser = _PageParser(into)
    parser.feed(_page(data))
    parser.close()
    parser.flush()


def _page(data: bytes) -> str:
    """Pages of other encodings are read as Windows-1252, as browsers do."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return decoded(data) if data[:2] in (b"\xff\xfe", b"\xfe\xff") else data.decode("cp1252", "replace")


class _PageParser(HTMLParser):
    def __init__(self, into: DocumentText) -> None:
        super().__init__(convert_charrefs=True)
        self._into = into
        self._words: list[str] = []
        self._unseen: str | None = None
        """The tag that began what is not read."""
        self._depth = 0
        """How many of that tag are open."""

    def flush(self) -> None:
        self._into.add("\n".join(" ".join(line.split()) for line in self._taken().split("\n")))

    def _taken(self) -> str:
        text = "".join(self._words)
        self._words.clear()
        return text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if self._unseen is not None:
            self._depth += tag == self._unseen
            if self._unseen == "head" and tag == "body":  # a page need not end its head
                self._unseen = None
        elif tag in UNSEEN:
            self.flush()
            self._unseen, self._depth = tag, 1
        elif tag == "br":
            self._words.append("\n")
        elif tag in CELLS:
            self._words.append(" | " if self._words else "")
        elif tag not in INLINE:
            self.flush()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._unseen is not None:
            self._depth -= tag == self._unseen
            if self._depth <= 0:
                self._unseen = None
            return
        if tag in HEADINGS:
            self._into.heading(int(tag[1]), self._taken())
        elif tag not in INLINE and tag not in CELLS:
            self.flush()

    def handle_data(self, data: str) -> None:
        if self._unseen is None:
            self._words.append(data.replace("\n", " "))
