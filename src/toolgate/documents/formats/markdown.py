"""Reads Markdown and plain text: paragraphs, under the headings above them."""

import re

from toolgate.documents.formats.blocks import DocumentText, UnreadableDocument

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


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

    for line in text.splitlines():
        found = _FENCE.match(line)
        if found is not None and (fence is None or found[1].startswith(fence)):
            fence = found[1] if fence is None else None
        elif fence is None and (heading := _heading(line)) is not None:
            flush()
            into.heading(*heading)
            continue
        elif fence is None and len(paragraph) == 1 and (level := _underline(line)) is not None:
            into.heading(level, paragraph.pop())
            continue
        elif fence is None and not line.strip():
            flush()
            continue
        paragraph.append(line)
    flush()


def _heading(line: str) -> tuple[int, str] | None:
    """The level and the text of a heading in number signs. Without an expression: those that backtrack take forever on lines
    that are made for it."""
    text = line.strip()
    level = len(text) - len(text.lstrip("#"))
    if not 1 <= level <= 6 or text[level : level + 1] not in ("", " ", "\t") or _indent(line) > 3:
        return None
    title = text[level:].strip()
    without = title.rstrip("#")
    return level, without.rstrip() if without[-1:] in ("", " ", "\t") else title


def _underline(line: str) -> int | None:
    """The level of the heading that a line underlines."""
    marks = line.strip()
    if not marks or marks.strip(marks[0]) or _indent(line) > 3:
        return None
    return {"=": 1, "-": 2}.get(marks[0])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
