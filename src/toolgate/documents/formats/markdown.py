"""Reads Markdown and plain text: paragraphs, under the headings above them."""

import re

from toolgate.documents.formats.blocks import DocumentText, UnreadableDocument

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\Z")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*\Z")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
MAX_LINE_CHARS = 100_000
"""A longer line is cut into several, so that no expression goes through a megabyte at once."""


def decoded(data: bytes) -> str:
    """The text of a file: UTF-8, or UTF-16 if it begins with its mark."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise UnreadableDocument(f"it is neither a known kind of document nor text in UTF-8 (byte {error.start})") from None
    if "\0" in text:
        raise UnreadableDocument("it is neither a known kind of document nor text")
    return text


def read_text(data: bytes, into: DocumentText) -> None:
    """Reads a text whose headings mean nothing: paragraphs are parted by empty lines."""
    for paragraph in re.split(r"\n[ \t]*\n", decoded(data).replace("\r\n", "\n")):
        into.add(paragraph)


def read_markdown(data: bytes, into: DocumentText) -> None:
    """Reads Markdown. Its marks stay in the text; only headings are taken out of it."""
    read_markdown_text(decoded(data), into)


def read_markdown_text(text: str, into: DocumentText) -> None:
    paragraph: list[str] = []
    fence: str | None = None

    def flush() -> None:
        into.add("\n".join(paragraph))
        paragraph.clear()

    for line in _lines(text):
        found = _FENCE.match(line)
        if found is not None and (fence is None or found[1].startswith(fence)):
            fence = found[1] if fence is None else None
        elif fence is None and (heading := _ATX.match(line)) is not None:
            flush()
            into.heading(len(heading[1]), heading[2] or "")
            continue
        elif fence is None and len(paragraph) == 1 and paragraph[0].strip() and (under := _UNDERLINE.match(line)):
            title = paragraph.pop()
            into.heading(1 if under[1][0] == "=" else 2, title)
            continue
        elif fence is None and not line.strip():
            flush()
            continue
        paragraph.append(line)
    flush()


def _lines(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        if len(line) <= MAX_LINE_CHARS:
            lines.append(line)
        else:
            lines += [line[start : start + MAX_LINE_CHARS] for start in range(0, len(line), MAX_LINE_CHARS)]
    return lines
