"""Has a file read: what kind it is, and its text. Files are hostile until proven otherwise, and their readers are large: all
but plain text is read in the jail, without network, files or environment, within limits of time and memory."""

from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec

from toolgate.documents.formats.blocks import Block, DocumentText, UnreadableDocument
from toolgate.documents.formats.markdown import read_markdown, read_text
from toolgate.errors import Failed, InvalidInput
from toolgate.extras import EXTRAS, require
from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.jail import MB, ResourceLimits, Spec
from toolgate.sandbox.jails.inside_files import python
from toolgate.sandbox.runtimes.python import library
from toolgate.threads import to_thread

Kind = Literal["pdf", "office", "html", "markdown", "text"]
LIMITS = ResourceLimits(seconds=60, memory=768 * MB, disk=MB, files=100, processes=8, output=32 * MB)
JAILED_READER = Path(__file__).resolve().parent / "jailed_reader.py"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
HTML_NAMES = (".html", ".htm", ".xhtml")
THEIR_MODULES = ("pypdfium2_raw", "lxml", "et_xmlfile", "PIL", "typing_extensions")
"""Modules that those of the extra import; packages may be installed in more than one folder."""
MAX_NUMBER = 10_000_000
"""Of a page or row."""
MARKDOWN_NAMES = (".md", ".markdown", ".mdown")


class DocumentContent(msgspec.Struct, frozen=True):
    """The text of a document."""

    kind: str
    blocks: list[Block]
    truncated: bool = False
    """True if it has more text than was read."""


class _ReaderAnswer(msgspec.Struct):
    """The answer of the reader in the jail. It is not believed: a library that a file broke into may have written it."""

    kind: Literal["pdf", "docx", "xlsx", "pptx", "html"] | None = None
    blocks: list[Block] = []
    truncated: bool = False
    error: str | None = None


class DocumentReader:
    """Reads files into text."""

    def __init__(self, sandbox: Sandbox, limits: ResourceLimits = LIMITS) -> None:
        self._sandbox = sandbox
        self._limits = limits

    async def read(self, name: str, data: bytes, *, depth: int = 0) -> DocumentContent:
        """The text of a file. Raises InvalidInput if it can't be read, and Failed if it met a limit or there is no jail."""
        kind = kind_of(name, data)
        try:
            if kind in ("markdown", "text"):
                content = await to_thread(_read_here, kind, data)
            else:
                content = await self._read_jailed(kind, data, depth)
        except UnreadableDocument as error:
            raise InvalidInput(
                f"{name} cannot be read: {error}.", suggestion="PDF, DOCX, XLSX, PPTX, HTML, Markdown and plain text can."
            ) from None
        if not content.blocks:
            raise InvalidInput(
                f"{name} has no text.",
                suggestion="Of scanned pages, which are pictures, the text has to be recognised first.",
            )
        return content

    async def _read_jailed(self, kind: Kind, data: bytes, depth: int) -> DocumentContent:
        require("documents")
        ran = await self._sandbox.run_own(_spec(kind, self._limits), data, depth=depth)
        if ran.stopped in ("time", "memory"):
            raise UnreadableDocument(f"it takes too much {ran.stopped} to read")
        if ran.stopped is not None:
            raise UnreadableDocument("it has too much in it")
        try:
            answer = msgspec.json.decode(ran.stdout, type=_ReaderAnswer)
        except (msgspec.DecodeError, RecursionError):
            raise Failed("SANDBOX_ERROR", "The reader of documents failed.", reason=ran.stderr[-2_000:]) from None
        if answer.error is not None or answer.kind is None:
            raise UnreadableDocument(_one_line(answer.error or "it is damaged"))
        return await to_thread(_within_limits, answer.kind, answer)


def kind_of(name: str, data: bytes) -> Kind:
    """The kind of a file, by how it begins; by its name only where that says nothing."""
    start = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n")
    if b"%PDF-" in data[:1024]:
        return "pdf"
    if data.startswith(b"PK\x03\x04"):
        return "office"
    if data.startswith(OLE):
        raise InvalidInput(
            f"{name} is an Office file of the old kind, or encrypted.",
            suggestion="Save it as DOCX, XLSX or PPTX, unencrypted.",
        )
    if name.lower().endswith(HTML_NAMES) or start[:15].lower().startswith((b"<!doctype html", b"<html")):
        return "html"
    return "markdown" if name.lower().endswith(MARKDOWN_NAMES) else "text"


def _read_here(kind: Kind, data: bytes) -> DocumentContent:
    text = DocumentText()
    with text.limited():
        (read_markdown if kind == "markdown" else read_text)(data, text)
    return DocumentContent(kind, text.blocks, text.truncated)


def _spec(kind: Kind, limits: ResourceLimits) -> Spec:
    """The process to jail: our interpreter, which may read the packages that it imports and its own code."""
    found = map(find_spec, (*EXTRAS["documents"].modules, *THEIR_MODULES))
    folders = {str(Path(spec.origin).resolve().parent.parent) for spec in found if spec is not None and spec.origin}
    interpreter, root = python(), JAILED_READER.parent
    return Spec(
        profile="python",
        argv=(str(interpreter), str(JAILED_READER), kind, *sorted(folders)),
        environment=(("MALLOC_ARENA_MAX", "1"), ("PYTHONDONTWRITEBYTECODE", "1"), ("TZ", "UTC")),
        readable=(*library(interpreter), root, *map(Path, sorted(folders))),
        limits=limits,
    )


def _within_limits(kind: str, answer: _ReaderAnswer) -> DocumentContent:
    """What the reader should have given: cleaned and counted again."""
    text = DocumentText()
    with text.limited():
        for block in answer.blocks:
            page, row = _number(block.page), _number(block.row)
            text.add(block.text, page=page, section=block.section, sheet=block.sheet, row=row)
    return DocumentContent(kind, text.blocks, answer.truncated or text.truncated)


def _number(given: int | None) -> int | None:
    return given if given is not None and 0 < given < MAX_NUMBER else None


def _one_line(words: str) -> str:
    return " ".join(words[:200].split())
